"""Grading as it streams: order, bounds, and lines that are none; and whether a task accepts its own gold answers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from openconductor.errors import ConfigError, GradingError, SandboxError, TaskError
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_compare import Mode
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest
from openconductor.tasks import load_task
from openconductor.tasks.check import Finding, check_task
from openconductor.tasks.gym import GymTask
from openconductor.tasks.items import Benchmark, Item, Loaded, Source
from openconductor.tasks.regrade import Submission, regrade, submissions
from openconductor.tasks.rows import Row, json_row
from openconductor.types import Grade, Problem


def line(**values: object) -> bytes:
    return json.dumps(values).encode() + b"\n"


async def graded(
    lines, read, *, found: list[dict[str, object]] | None = None, **options
) -> list[dict[str, object]]:
    """All verdicts; ``found`` holds those that came before an error."""
    found = [] if found is None else found
    async with aclosing(regrade(lines, read, **options)) as verdicts:
        async for verdict in verdicts:
            found += [verdict]
    return found


class Waits:
    """A grader whose answers name how many turns of the loop they take; it knows how many it does at once."""

    def __init__(self) -> None:
        self.now = self.most = self.done = 0

    async def grade(self, problem: Problem, answer: str) -> Grade:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(int(answer)):
                await asyncio.sleep(0)
        finally:
            self.now -= 1
        self.done += 1
        if answer == "13":
            raise GradingError("unlucky")
        return Grade(True, answer)


def waiting(grader: Waits):
    return lambda row: Submission(
        row.identity("id"), Problem("", "", "", ""), row.text("answer"), grader
    )


async def test_verdicts_come_in_the_order_of_the_lines_whatever_takes_long() -> None:
    lines = [line(id=number, answer=str((40 - number) * 5)) for number in range(40)]
    found = await graded(lines, waiting(Waits()), concurrency=7)
    assert [one["id"] for one in found] == list(range(40))


async def test_no_more_are_graded_at_once_than_asked_for_and_no_more_read_than_twice_that() -> None:
    grader, read = Waits(), 0

    def source() -> Iterator[bytes]:
        nonlocal read
        for number in range(100):
            read += 1
            yield line(id=number, answer="3")

    most_ahead = written = 0
    async with aclosing(regrade(source(), waiting(grader), concurrency=4)) as verdicts:
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

    async with aclosing(regrade(source(), waiting(Waits()))) as verdicts:
        assert (await anext(verdicts))["id"] == 1
        more.set()
        assert (await anext(verdicts))["id"] == 2


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"no json\n", "stdin, line 4: not JSON: "),
        (b"[1]\n", r"stdin, line 4: got \[1\], expected a JSON object"),
        (b'{"answer": "1"}\n', "stdin, line 4: field 'id': missing"),
        (b'{"id": 1, "answer": 5}\n', "stdin, line 4: field 'answer': got 5, expected a text"),
        (b"\xff\n", "stdin, line 4: byte 0 is not UTF-8"),
    ],
)
async def test_a_bad_line_ends_the_stream_after_all_verdicts_before_it(
    bad: bytes, message: str
) -> None:
    lines = [line(id=1, answer="50"), b"\n", line(id=2, answer="1"), bad, line(id=3, answer="1")]
    found: list[dict[str, object]] = []
    with pytest.raises(ConfigError, match=message):
        await graded(lines, waiting(Waits()), found=found)
    assert [one["id"] for one in found] == [1, 2]


async def test_a_stream_that_breaks_is_an_error_after_all_verdicts_before_it() -> None:
    def source() -> Iterator[bytes]:
        yield line(id=1, answer="9")
        raise OSError("disk")

    found: list[dict[str, object]] = []
    with pytest.raises(OSError, match="disk"):
        await graded(source(), waiting(Waits()), found=found)
    assert [one["id"] for one in found] == [1]


async def test_a_grader_that_fails_leaves_its_line_undecided_and_the_others_graded() -> None:
    found = await graded([line(id=1, answer="13"), line(id=2, answer="1")], waiting(Waits()))
    assert found == [
        {"id": 1, "correct": None, "extracted": None, "note": "undecided: unlucky"},
        {"id": 2, "correct": True, "extracted": "1", "note": ""},
    ]


async def test_who_stops_reading_stops_the_grading(caplog: pytest.LogCaptureFixture) -> None:
    grader = Waits()

    def endless() -> Iterator[bytes]:
        while True:
            yield line(id=1, answer="200")

    async with aclosing(regrade(endless(), waiting(grader), concurrency=4)) as verdicts:
        await anext(verdicts)
    await asyncio.sleep(0)
    assert grader.now == 0
    assert not caplog.records


async def test_an_extra_that_is_missing_ends_the_stream_without_a_sound_of_the_others(
    caplog,
) -> None:
    class Missing(Waits):
        async def grade(self, problem: Problem, answer: str) -> Grade:
            raise ConfigError("math-verify is not installed")

    with pytest.raises(ConfigError, match="math-verify is not installed"):
        await graded([line(id=number, answer="1") for number in range(20)], waiting(Missing()))
    await asyncio.sleep(0)
    assert not caplog.records


# ── the fields of each grader ─────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (
            "math",
            [
                ({"reference": "42", "answer": "\\boxed{42}"}, True),
                ({"reference": 42, "answer": "Answer: 42"}, True),
                ({"reference": 0.5, "answer": "\\boxed{1/2}"}, True),
                ({"reference": "\\frac{1}{2}", "answer": "\\boxed{0.5}"}, True),
                ({"reference": "7", "answer": ""}, False),
            ],
        ),
        (
            "choice",
            [
                ({"reference": "B", "choices": ["x", "y"], "answer": "Answer: B"}, True),
                ({"reference": 1, "choices": ["x", "y"], "answer": "Answer: B"}, True),
                ({"reference": "E", "answer": "Answer: E"}, True),
                ({"reference": 0, "choices": ["x", "y"], "answer": "Answer: C"}, False),
            ],
        ),
        (
            "freeform",
            [
                ({"reference": "9.8 m/s^2", "answer": "\\boxed{9.80 m/s^2}"}, True),
                ({"reference": 100, "tolerance": 0.1, "answer": "\\boxed{95}"}, True),
                ({"reference": "the cell", "kind": "text", "answer": "\\boxed{a membrane}"}, None),
                ({"reference": "C", "kind": "choice", "answer": "Answer: D"}, False),
            ],
        ),
    ],
)
async def test_each_grader_has_its_own_fields(kind, rows) -> None:
    lines = [line(id=place, **row) for place, (row, _) in enumerate(rows)]
    assert [one["correct"] for one in await graded(lines, submissions(kind))] == [
        correct for _, correct in rows
    ]


def submission(grader, mode: Mode = "strict", **values: object) -> Submission:
    row = json_row(line(id="a", answer="", **values), "stdin", 1)
    assert isinstance(row, Row)
    return submissions(grader, mode=mode)(row)


@pytest.mark.parametrize("mode", ["strict", "lcb-compat"])
def test_code_takes_tests_in_each_form_and_the_mode_and_runs_nothing_yet(mode: Mode) -> None:
    stdin = submission("code", mode, tests=[{"input": "1", "output": "1"}])
    assert stdin.problem.reference == CodeTests((IoTest("1", "1"),))
    assert isinstance(stdin.grader, CodeGrader)
    assert stdin.grader.mode == mode
    calls = submission("code", tests=[{"args": [1], "expected": 2}], starter_code="def up(x):")
    assert calls.problem.reference == CodeTests((CallTest((1,), 2),), "up")
    program = submission(
        "code", tests="def check(candidate):\n    assert candidate(1) == 2", entry_point="up"
    )
    assert program.problem.reference == CodeTests((CallTest((1,), 2, {}, "python"),), "up")


@pytest.mark.parametrize(
    "name", ["humaneval", "mbpp", "bigcodebench_hard", "livecodebench_v1", "livecodebench_v6"]
)
def test_figures_of_livecodebench_are_judged_as_it_judges_and_all_others_strictly(
    name: str,
) -> None:
    grader = load_task(name).grader
    assert isinstance(grader, CodeGrader)
    assert grader.mode == ("lcb-compat" if name.startswith("livecodebench") else "strict")


@pytest.mark.parametrize(
    ("grader", "values", "message"),
    [
        ("math", {}, "field 'reference': missing"),
        ("math", {"reference": ""}, "field 'reference': got ''"),
        (
            "choice",
            {"reference": "C", "choices": ["x", "y"]},
            "field 'reference': got 'C', expected a letter of AB",
        ),
        (
            "choice",
            {"reference": 2, "choices": ["x", "y"]},
            "field 'reference': got 2, expected a letter of AB, or an",
        ),
        (
            "choice",
            {"reference": 0, "choices": ["x"]},
            "field 'choices': got .* expected 2 to 10 choices",
        ),
        ("freeform", {"reference": "1", "kind": "maths"}, "field 'kind': got 'maths'"),
        ("freeform", {"reference": "1", "tolerance": -1}, "field 'tolerance': got -1"),
        ("code", {"tests": []}, "field 'tests': got "),
        ("code", {"tests": [{"args": [1], "expected": 1}]}, "field 'tests': test 0: "),
        ("code", {}, "field 'tests': missing"),
        ("code", {"tests": "x ="}, "field 'tests': test program: "),
    ],
)
def test_a_field_that_is_wrong_is_an_error_that_names_it(
    grader, values: dict[str, object], message: str
) -> None:
    with pytest.raises(TaskError, match=f"stdin, line 1: {message}"):
        submission(grader, **values)


# ── does a task accept its own gold answers? ──────────────────────────────────────────────────────
class Told:
    """A grader that does what the reply says."""

    async def grade(self, problem: Problem, answer: str) -> Grade:
        match answer:
            case "raise":
                raise GradingError("the reference has no value")
            case "sandbox":
                raise SandboxError("no sandbox works here")
        return Grade({"right": True, "wrong": False}.get(answer), answer, f"said {answer}")


class Prepared(Benchmark):
    """A task of replies that are prepared."""

    def __init__(self, *replies: str | None) -> None:
        super().__init__("prepared", "", ("test",), Told())
        self.replies = replies

    def _read(self, split: str) -> Loaded:
        items = [
            Item(Problem(f"p{n}", "", "", "demo"), canonical=reply)
            for n, reply in enumerate(self.replies)
        ]
        return Loaded(tuple(items), Source("drawn", split))


async def test_replies_are_told_apart_by_what_became_of_them() -> None:
    told: list[tuple[int, int]] = []
    task = Prepared("right", "wrong", None, "undecided", "raise", "right", "sandbox")
    found = await check_task(task, on_progress=lambda done, total: told.append((done, total)))
    assert (found.accepted, found.unanswered, found.ok) == (2, 1, False)
    assert found.refused == (Finding("p1", "wrong", "said wrong"),)
    assert [(one.id, one.note) for one in found.undecided] == [
        ("p3", "said undecided"),
        ("p4", "undecided: the reference has no value"),
        ("p6", "undecided: no sandbox works here"),
    ]
    assert told == [(done, 6) for done in range(1, 7)]


@pytest.mark.parametrize(
    ("replies", "ok"),
    [
        (("right", "raise"), True),
        (("raise", "sandbox"), False),
        (("right", "wrong"), False),
        ((None, None), True),
    ],
)
async def test_what_is_undecided_is_no_failure_unless_all_is(
    replies: tuple[str | None, ...], ok: bool
) -> None:
    assert (await check_task(Prepared(*replies))).ok == ok


async def test_the_gym_accepts_all_of_its_own_answers() -> None:
    found = await check_task(GymTask(limit=60, split="train"))
    assert (found.accepted, found.refused, found.undecided, found.unanswered, found.ok) == (
        60,
        (),
        (),
        0,
        True,
    )
    assert found.source.split == "train"
