"""Grading as it streams: order, bounds, bad lines; and checks of a task by its own gold answers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from written_rows import read_cases

from openconductor.errors import ConfigError, GradingError, SandboxError, TaskError
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_compare import Mode
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest
from openconductor.tasks import load_task
from openconductor.tasks.check import CheckFinding, check_task
from openconductor.tasks.data.items import Benchmark, Item, Loaded, Source
from openconductor.tasks.data.rows import Row, json_row
from openconductor.tasks.gym import GymTask
from openconductor.tasks.regrade import Submission, Verdict, regrade, submissions
from openconductor.types import Grade, Problem


def line(**values: object) -> bytes:
    return json.dumps(values).encode() + b"\n"


async def verdicts_of(
    lines: Iterable[bytes], read: Callable[[Row], Submission], **options: Any
) -> list[Verdict]:
    async with aclosing(regrade(lines, read, **options)) as stream:
        return [verdict async for verdict in stream]


async def collect(ids: list[Any], lines: Iterable[bytes]) -> None:
    """Add the id of each verdict to a list, which also holds those before an error."""
    async with aclosing(regrade(lines, read_by(SlowGrader()))) as stream:
        async for verdict in stream:
            ids.append(verdict["id"])


class SlowGrader:
    """A grader whose answers are the turns of the loop that they take; it counts gradings."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    async def grade(self, problem: Problem, answer: str) -> Grade:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(int(answer)):
                await asyncio.sleep(0)
        finally:
            self.now -= 1
        if answer == "13":
            raise GradingError("unlucky")
        return Grade(True, answer)


def read_by(grader: SlowGrader) -> Callable[[Row], Submission]:
    problem = Problem("", "", "", "")
    return lambda row: Submission(row.identity("id"), problem, row.text("answer"), grader)


async def test_verdicts_come_in_the_order_of_the_lines_whatever_takes_long() -> None:
    lines = [line(id=number, answer=str((40 - number) * 5)) for number in range(40)]
    verdicts = await verdicts_of(lines, read_by(SlowGrader()), concurrency=7)
    assert [verdict["id"] for verdict in verdicts] == list(range(40))


async def test_no_more_are_graded_at_once_than_asked_for_and_no_more_read_than_twice_that() -> None:
    grader, read = SlowGrader(), 0

    def source() -> Iterator[bytes]:
        nonlocal read
        for number in range(100):
            read += 1
            yield line(id=number, answer="3")

    most_ahead = written = 0
    async with aclosing(regrade(source(), read_by(grader), concurrency=4)) as verdicts:
        async for _ in verdicts:
            most_ahead = max(most_ahead, read - written)
            written += 1
    assert written == 100
    assert grader.most == 4
    assert most_ahead <= 2 * 4 + 1  # one line waits in the thread's hand


async def test_the_first_verdict_comes_while_the_second_line_is_not_there_yet() -> None:
    more = threading.Event()

    def source() -> Iterator[bytes]:
        yield line(id=1, answer="0")
        assert more.wait(10)
        yield line(id=2, answer="0")

    async with aclosing(regrade(source(), read_by(SlowGrader()))) as verdicts:
        assert (await anext(verdicts))["id"] == 1
        more.set()
        assert (await anext(verdicts))["id"] == 2


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"no json\n", "stdin, line 4: not JSON: "),
        (b'{"answer": "1"}\n', "stdin, line 4: field 'id': missing"),
    ],
)
async def test_a_bad_line_ends_the_stream_after_all_verdicts_before_it(
    bad: bytes, message: str
) -> None:
    lines = [line(id=1, answer="50"), b"\n", line(id=2, answer="1"), bad, line(id=3, answer="1")]
    ids: list[Any] = []
    with pytest.raises(ConfigError, match=message):
        await collect(ids, lines)
    assert ids == [1, 2]


async def test_a_stream_that_breaks_is_an_error_after_all_verdicts_before_it() -> None:
    def source() -> Iterator[bytes]:
        yield line(id=1, answer="9")
        raise OSError("disk")

    ids: list[Any] = []
    with pytest.raises(OSError, match="disk"):
        await collect(ids, source())
    assert ids == [1]


async def test_a_grader_that_fails_leaves_its_line_undecided_and_the_others_graded() -> None:
    lines = [line(id=1, answer="13"), line(id=2, answer="1")]
    assert await verdicts_of(lines, read_by(SlowGrader())) == [
        {"id": 1, "correct": None, "extracted": None, "note": "undecided: unlucky"},
        {"id": 2, "correct": True, "extracted": "1", "note": ""},
    ]


async def test_who_stops_reading_stops_the_grading(caplog: pytest.LogCaptureFixture) -> None:
    grader = SlowGrader()

    def endless() -> Iterator[bytes]:
        while True:
            yield line(id=1, answer="200")

    async with aclosing(regrade(endless(), read_by(grader), concurrency=4)) as verdicts:
        await anext(verdicts)
    await asyncio.sleep(0)
    assert grader.now == 0
    assert not caplog.records


async def test_a_missing_extra_ends_the_stream_without_a_sound_of_the_others(caplog) -> None:
    class Missing(SlowGrader):
        async def grade(self, problem: Problem, answer: str) -> Grade:
            raise ConfigError("math-verify is not installed")

    lines = [line(id=number, answer="1") for number in range(20)]
    with pytest.raises(ConfigError, match="math-verify is not installed"):
        await verdicts_of(lines, read_by(Missing()))
    await asyncio.sleep(0)
    assert not caplog.records


# ── the fields of each grader ─────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("case", read_cases("submissions"), ids=str)
async def test_each_grader_has_its_own_fields(case: dict[str, Any]) -> None:
    (verdict,) = await verdicts_of([line(id=1, **case)], submissions(case["grader"]))
    assert verdict["correct"] is case["correct"]


def submission(grader, mode: Mode = "strict", **values: object) -> Submission:
    row = json_row(line(id="a", answer="", **values), "stdin", 1)
    assert row is not None
    return submissions(grader, mode=mode)(row)


@pytest.mark.parametrize("mode", ["strict", "lcb-compat"])
def test_code_takes_tests_in_each_form_and_the_mode_and_runs_nothing_yet(mode: Mode) -> None:
    stdin = submission("code", mode, tests=[{"input": "1", "output": "1"}])
    assert stdin.problem.reference == CodeTests((IoTest("1", "1"),))
    assert isinstance(stdin.grader, CodeGrader)
    assert stdin.grader.mode == mode
    calls = submission("code", tests=[{"args": [1], "expected": 2}], starter_code="def up(x):")
    assert calls.problem.reference == CodeTests((CallTest((1,), 2),), "up")
    source = "def check(candidate):\n    assert candidate(1) == 2"
    program = submission("code", tests=source, entry_point="up")
    assert program.problem.reference == CodeTests((CallTest((1,), 2, {}, "python"),), "up")


def test_figures_of_livecodebench_are_judged_as_it_judges_and_all_others_strictly() -> None:
    names = ("livecodebench_v1", "livecodebench_v6", "humaneval", "mbpp", "bigcodebench_hard")
    modes = [load_task(name).grader.mode for name in names]
    assert modes == ["lcb-compat", "lcb-compat", "strict", "strict", "strict"]


@pytest.mark.parametrize("case", read_cases("wrong_submissions"), ids=lambda case: case["message"])
def test_a_field_that_is_wrong_is_an_error_that_names_it(case: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match=f"stdin, line 1: {case['message']}"):
        submission(case["grader"], **case["fields"])


# ── does a task accept its own gold answers? ──────────────────────────────────────────────────────
class ReplyGrader:
    """A grader that does what the reply says."""

    async def grade(self, problem: Problem, answer: str) -> Grade:
        if answer == "raise":
            raise GradingError("the reference has no value")
        if answer == "sandbox":
            raise SandboxError("no sandbox works here")
        if answer == "bug":
            raise ZeroDivisionError("a bug\nof several lines")
        if answer == "stop":
            raise ConfigError("an extra is not installed")
        return Grade({"right": True, "wrong": False}.get(answer), answer, f"said {answer}")


class Prepared(Benchmark):
    """A task of replies that are prepared."""

    def __init__(self, *replies: str | None) -> None:
        super().__init__("prepared", "", ("test",), ReplyGrader())
        self.replies = replies

    def _read(self, split: str) -> Loaded:
        problems = [Problem(f"p{n}", "", "", "demo") for n in range(len(self.replies))]
        items = map(Item, problems, self.replies)
        return Loaded(tuple(items), Source("drawn", split))


async def test_a_check_tells_accepted_refused_and_undecided_replies_apart() -> None:
    progress: list[tuple[int, int]] = []
    task = Prepared("right", "wrong", None, "undecided", "raise", "right", "sandbox", "bug")
    report = await check_task(task, on_progress=lambda *counts: progress.append(counts))
    assert (report.accepted, report.unanswered, report.ok) == (2, 1, False)
    assert report.refused == (CheckFinding("p1", "wrong", "said wrong"),)
    assert [(finding.id, finding.note) for finding in report.undecided] == [
        ("p3", "said undecided"),
        ("p4", "undecided: the reference has no value"),
        ("p6", "undecided: no sandbox works here"),
        ("p7", "undecided: the grader raised ZeroDivisionError: a bug of several lines"),
    ]
    assert progress == [(done, 7) for done in range(1, 8)]


async def test_a_check_that_nothing_can_pass_stops_with_the_error_itself() -> None:
    with pytest.raises(ConfigError, match="an extra is not installed"):
        await check_task(Prepared("right", "stop"))


@pytest.mark.parametrize(
    ("replies", "ok"),
    [
        (("right", "raise"), True),
        (("raise", "sandbox"), False),
        (("right", "wrong"), False),
        ((None, None), True),
    ],
)
async def test_undecided_replies_are_no_failure_unless_all_are(
    replies: tuple[str | None, ...], ok: bool
) -> None:
    assert (await check_task(Prepared(*replies))).ok == ok


async def test_the_gym_accepts_all_of_its_own_answers() -> None:
    report = await check_task(GymTask(limit=60, split="train"))
    assert (report.accepted, report.ok, report.source.split) == (60, True, "train")
    assert (report.refused, report.undecided, report.unanswered) == ((), (), 0)
