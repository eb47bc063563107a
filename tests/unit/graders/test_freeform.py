"""The free-form grader: kinds, and a judge that is asked only about what the rules leave open."""

from __future__ import annotations

import pytest

from openconductor.errors import AuthFailed, GradingError, ServerFailed, WorkerError
from openconductor.graders.freeform import FreeFormAnswer, FreeFormGrader, kind_of
from openconductor.pool import Worker
from openconductor.testing import Scripted
from openconductor.types import Problem

OPEN = Problem("p", "What falls?", FreeFormAnswer("a decrease in supply"), "t")


KINDS = r"""
choice = B|(C)
number = 42|-3.5 kg|5 m|$4.50
math = x^2 + 1|\sqrt{2}|2*pi|f(x)
text = photosynthesis|an increase of demand|sub-Saharan Africa
"""


@pytest.mark.parametrize("line", KINDS.strip().splitlines())
def test_the_kind_is_read_off_the_reference(line: str) -> None:
    kind, _, references = line.partition(" = ")
    for reference in references.split("|"):
        assert kind_of(reference) == kind, reference


async def test_what_the_rules_cannot_decide_is_undecided_and_no_judge_is_asked_by_default() -> None:
    grade = await FreeFormGrader().grade(OPEN, "Answer: supply falls")
    assert (grade.correct, grade.extracted) == (None, "supply falls")
    assert grade.note.startswith("undecided")


def judge_of(verdict: str | WorkerError) -> tuple[Worker, Scripted]:
    """Return a judge that says this, and what records its calls."""
    script = Scripted(verdict)
    return Worker(script, name="judge"), script


@pytest.mark.parametrize(
    ("says", "correct"), [("It fits.\nVerdict: right", True), ("No.\n**Verdict: wrong**", False)]
)
async def test_a_judges_verdict_is_told_apart_by_its_note(says: str, correct: bool) -> None:
    judge, script = judge_of(says)
    grade = await FreeFormGrader(judge).grade(OPEN, "Long reasoning.\nAnswer: supply falls")
    assert (grade.correct, grade.note) == (correct, f"judge: {'right' if correct else 'wrong'}")
    (call,) = script.calls
    for part in ("What falls?", "a decrease in supply", "supply falls"):
        assert part in call.text
    assert "Long reasoning" not in call.text


@pytest.mark.parametrize("answer", ["Answer: A decrease in supply.", "I do not know."])
async def test_a_judge_is_never_asked_about_what_the_rules_decide(answer: str) -> None:
    judge, script = judge_of("Verdict: wrong")
    assert (await FreeFormGrader(judge).grade(OPEN, answer)).correct is not None
    assert not script.calls


@pytest.mark.parametrize(
    "says", ["", "right", "Verdict: right, or Verdict: unsure", ServerFailed("down")]
)
async def test_a_judge_that_gives_no_verdict_leaves_it_undecided(says: str | WorkerError) -> None:
    grade = await FreeFormGrader(judge_of(says)[0]).grade(OPEN, "Answer: supply falls")
    assert grade.correct is None and grade.note.startswith("undecided: the judge")


async def test_a_judge_without_a_key_stops() -> None:
    with pytest.raises(AuthFailed):
        await FreeFormGrader(judge_of(AuthFailed("no key"))[0]).grade(OPEN, "Answer: supply falls")


@pytest.mark.parametrize(
    "reference",
    [
        None,
        5,
        "",
        FreeFormAnswer(" "),
        FreeFormAnswer("x", "word"),
        FreeFormAnswer("red", "choice"),
    ],
)  # type: ignore[arg-type]
async def test_a_reference_of_no_kind_is_the_graders_failure(reference: object) -> None:
    with pytest.raises(GradingError, match="problem p: got the "):
        await FreeFormGrader().grade(Problem("p", "", reference, "t"), "Answer: 5")
