"""Replies as chat models write them: right programs are accepted however they are shown."""

from __future__ import annotations

import pytest

from integration.reply_cases import PROBLEMS, Reply, read_replies
from openconductor.graders.code import CodeGrader
from openconductor.sandboxes import Sandbox
from openconductor.types import Grade, Problem

REPLIES = [*read_replies("replies"), *read_replies("replies_held_out")]
BY_NAME = {(reply.problem, reply.name): reply for reply in REPLIES}
IDS = [f"{problem}: {name}" for problem, name in BY_NAME]


async def grade(reply: Reply, sandbox: Sandbox, mode: str = "strict") -> Grade:
    problem = Problem(reply.name, "", PROBLEMS[reply.problem], "replies")
    return await CodeGrader(mode, sandbox).grade(problem, reply.text)  # type: ignore[arg-type]


@pytest.mark.parametrize("reply", BY_NAME.values(), ids=IDS)
async def test_a_reply_is_judged_by_its_program(reply: Reply, sandbox: Sandbox) -> None:
    verdict = await grade(reply, sandbox)
    assert verdict.correct is reply.right, f"{verdict.note}\n{verdict.extracted}"


@pytest.mark.parametrize(
    ("problem", "name", "taken"),
    [
        ("double_evens", "one block", "passed"),
        ("double_evens", "usage block last", "passed; program: block 1 of 2"),
        ("count_vowels", "helper in an earlier block", "passed; program: blocks 1, 2 of 2"),
        ("count_vowels", "import block behind", "passed; program: blocks 1, 2 of 2"),
        ("running_max", "built in pieces of one function", "passed; program: blocks 1, 2, 3 of 3"),
        ("double_evens", "only output is fenced", "passed; program: code of no block"),
    ],
)
async def test_the_note_says_which_blocks_were_taken(
    problem: str, name: str, taken: str, sandbox: Sandbox
) -> None:
    verdict = await grade(BY_NAME[problem, name], sandbox)
    assert verdict.note.startswith(f"[{sandbox.level}, Python ")
    assert verdict.note.endswith(f"] {taken}")


async def test_livecodebenchs_mode_takes_the_lines_between_the_last_two_fences(
    sandbox: Sandbox,
) -> None:
    for name, right in (("one block", True), ("usage block last", False), ("never closed", False)):
        verdict = await grade(BY_NAME["double_evens", name], sandbox, "lcb-compat")
        assert verdict.correct is right, name
