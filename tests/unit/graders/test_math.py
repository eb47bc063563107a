"""The math grader: what it says of answers without asking a worker, and what it makes of what workers say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openconductor.config import load_registered
from openconductor.errors import ConfigError, GradingError
from openconductor.graders import GRADERS, math_workers
from openconductor.graders.math import LONGEST, MathGrader
from openconductor.graders.math_workers import MathWorkers, Verdict
from openconductor.types import Grade, Problem


class SaidWorkers(MathWorkers):
    """Workers that say what they are told to."""

    def __init__(self, verdict: Verdict, *, gold_read: bool = True) -> None:
        self.verdict: Verdict = verdict
        self.gold_read = gold_read
        self.asked: list[tuple[str, list[str], float | None]] = []

    async def judge(self, gold: str, answers: Sequence[str], tolerance: float | None) -> tuple[Verdict, bool]:
        self.asked.append((gold, list(answers), tolerance))
        return self.verdict, self.gold_read


async def graded(workers: MathWorkers | None, reference: object, answer: str, tolerance: float | None = None) -> Grade:
    return await MathGrader(tolerance, workers=workers).grade(Problem("p", "", reference, "t"), answer)


@pytest.mark.parametrize(
    ("verdict", "gold_read", "correct", "note"),
    [
        *(("equal", True, True, "math-verify"), ("different", True, False, "math-verify")),
        *(("unread answer", True, False, "unreadable"), ("unread gold", True, None, "undecided")),
        *(("cpu", True, False, "timeout"), ("memory", True, False, "out of memory"), ("crash", True, False, "crash")),
        *((verdict, False, None, "undecided") for verdict in ("cpu", "memory", "crash")),
    ],
)
async def test_a_bomb_is_the_answers_fault_and_an_unread_reference_nobodys(
    verdict: Verdict, gold_read: bool, correct: bool | None, note: str
) -> None:
    grade = await graded(SaidWorkers(verdict, gold_read=gold_read), "x+1", r"\boxed{1+x}")
    assert (grade.correct, grade.extracted) == (correct, "1+x") and grade.note.startswith(note)


async def test_an_answer_to_a_plain_number_that_cannot_be_read_is_wrong() -> None:
    for reference in ("7", r"28\%", r"0.1\overline{6}", r"5\text{ apples}"):
        assert (await graded(SaidWorkers("unread gold"), reference, r"\boxed{@@}")).correct is False


async def test_a_starved_worker_is_the_machines_fault() -> None:
    with pytest.raises(GradingError, match="problem p: math workers: got no CPU time"):
        await graded(SaidWorkers("starved"), "x+1", r"\boxed{1+x}")


async def test_plain_numbers_words_the_same_text_other_units_and_what_is_too_long_need_no_worker() -> None:
    workers = SaidWorkers("equal")
    pairs = [("73", "073"), (r"\frac{1}{2}", "0.5"), (r"\text{even}", "odd"), ("x", "x"), ("x", "y" * (LONGEST + 1))]
    pairs.append((r"2\pi\text{ cm}^2", r"2\pi\text{ cm}^3"))
    grades = [await graded(workers, gold, rf"\boxed{{{answer}}}") for gold, answer in pairs]
    assert [grade.correct for grade in grades] == [True, True, False, True, False, False]
    assert not workers.asked
    assert (grades[-2].note[:10], grades[-1].note) == ("unreadable", "another kind of unit")


@pytest.mark.parametrize(
    ("reference", "answer", "asked"),
    [
        (r"$\dfrac{\pi}{2}\text{ cm}$", r"\boxed{pi/2}, \boxed{1.57}", (r"\frac{\pi}{2}", [r"\pi /2", "1.57"])),
        (r"2\pi\text{ m}", r"\boxed{200\pi\text{ cm}}", (r"2\pi", [r"(200\pi) \cdot \frac{1}{100}"])),
        (r"0.\overline{3}", r"\boxed{1-2/3}", (r"\frac{1}{3}", ["1-2/3"])),
    ],
)
async def test_workers_get_both_sides_in_one_form_and_in_one_unit(
    reference: str, answer: str, asked: tuple[str, list[str]]
) -> None:
    workers = SaidWorkers("equal")
    await graded(workers, reference, answer, 0.01)
    assert workers.asked == [(*asked, 0.01)]


@pytest.mark.parametrize("reference", [None, 5, "", "  ", ["5"], r"so \boxed{}", r"so \boxed{5"])
async def test_a_reference_without_a_value_is_the_graders_failure(reference: object) -> None:
    with pytest.raises(GradingError, match=r"problem p: got (the reference|a reference without a value)"):
        await graded(None, reference, r"\boxed{5}")


MARKS = tuple("\\{}()[]$,;:.-+*/^_%=<>&10x \n°²½٣")
WORDS = ("pi", "sqrt", "\\frac", "\\text", "\\left", "and", "cm", "answer is ", "Answer: ", "<think>", "</think>")
REPLIES = st.lists(st.sampled_from((*MARKS, *WORDS, "\\boxed{")) | st.text(max_size=3), max_size=20).map("".join)


@given(REPLIES, st.sampled_from(["5", "x+1", r"\text{a b}", "3 cm"]))
def test_whatever_is_written_gets_a_verdict(reply: str, reference: str) -> None:
    for answer in (reply, rf"\boxed{{{reply}}}"):
        assert asyncio.run(graded(SaidWorkers("different"), reference, answer)).correct in {True, False}


def test_a_tolerance_out_of_its_range_is_refused() -> None:
    for tolerance in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="tolerance"):
            MathGrader(tolerance)


async def test_without_math_verify_the_grader_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_workers, "find_spec", lambda name: None)
    monkeypatch.setattr("openconductor.graders.math.shared_workers", MathWorkers)
    assert (await graded(None, "5", r"\boxed{5}")).correct is True  # an integer needs none of it
    with pytest.raises(ConfigError, match=r'pip install "openconductor\[grade\]"'):
        await graded(None, "x+1", r"\boxed{1+x}")


def test_the_graders_are_registered() -> None:
    assert all(callable(load_registered(GRADERS, name, what="grader")) for name in GRADERS)
