"""The free-form grader: kinds, and a judge that is asked only about what the rules leave open."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from openconductor.errors import AuthFailed, GradingError, ServerFailed, WorkerError
from openconductor.graders.freeform import FreeFormAnswer, FreeFormGrader, kind_of
from openconductor.pool import Worker
from openconductor.protocols import CallContext
from openconductor.types import Completion, Message, Problem


class SaidJudge:
    """A judge that says what it is told to, and remembers what it was asked."""

    def __init__(self, says: str | WorkerError) -> None:
        self.says = says
        self.asked: list[str] = []

    async def complete(self, messages: Sequence[Message], *, call: CallContext) -> Completion:
        self.asked.append(messages[-1].content)
        if isinstance(self.says, WorkerError):
            raise self.says
        return Completion(self.says)


OPEN = Problem("p", "What falls?", FreeFormAnswer("a decrease in supply"), "t")


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("B", "choice"),
        ("(C)", "choice"),
        ("42", "number"),
        ("-3.5 kg", "number"),
        ("5 m", "number"),
        ("$4.50", "number"),
        ("x^2 + 1", "math"),
        (r"\sqrt{2}", "math"),
        ("2*pi", "math"),
        ("f(x)", "math"),
        ("photosynthesis", "text"),
        ("an increase of demand", "text"),
        ("sub-Saharan Africa", "text"),
    ],
)
def test_the_kind_is_read_off_the_reference(reference: str, kind: str) -> None:
    assert kind_of(reference) == kind


async def test_what_the_rules_cannot_decide_is_undecided_and_no_judge_is_asked_by_default() -> None:
    grade = await FreeFormGrader().grade(OPEN, "Answer: supply falls")
    assert (grade.correct, grade.extracted) == (None, "supply falls")
    assert grade.note.startswith("undecided")


@pytest.mark.parametrize(("says", "correct"), [("It fits.\nVerdict: right", True), ("No.\n**Verdict: wrong**", False)])
async def test_a_judges_verdict_is_told_apart_by_its_note(says: str, correct: bool) -> None:
    judge = SaidJudge(says)
    grade = await FreeFormGrader(judge).grade(OPEN, "Long reasoning.\nAnswer: supply falls")
    assert grade.correct is correct
    assert grade.note == f"judge: {'right' if correct else 'wrong'}"
    (prompt,) = judge.asked
    assert "What falls?" in prompt
    assert "a decrease in supply" in prompt
    assert "supply falls" in prompt
    assert "Long reasoning" not in prompt


@pytest.mark.parametrize("answer", ["Answer: A decrease in supply.", "I do not know."])
async def test_a_judge_is_never_asked_about_what_the_rules_decide(answer: str) -> None:
    judge = SaidJudge("Verdict: wrong")
    grade = await FreeFormGrader(judge).grade(OPEN, answer)
    assert grade.correct is not None
    assert not judge.asked


@pytest.mark.parametrize("says", ["", "right", "Verdict: maybe", "Verdict: right, or Verdict: unsure"])
async def test_a_judge_without_a_verdict_leaves_it_undecided(says: str) -> None:
    grade = await FreeFormGrader(SaidJudge(says)).grade(OPEN, "Answer: supply falls")
    assert grade.correct is None
    assert grade.note.startswith("undecided")


async def test_a_judge_that_fails_leaves_it_undecided_and_one_without_a_key_stops() -> None:
    grade = await FreeFormGrader(SaidJudge(ServerFailed("down"))).grade(OPEN, "Answer: supply falls")
    assert (grade.correct, grade.note) == (None, "undecided: the judge failed: down")
    with pytest.raises(AuthFailed):
        await FreeFormGrader(SaidJudge(AuthFailed("no key"))).grade(OPEN, "Answer: supply falls")


async def test_a_worker_is_a_judge() -> None:
    judge = Worker(lambda messages: "Verdict: right", name="judge")
    assert (await FreeFormGrader(judge).grade(OPEN, "Answer: supply falls")).correct is True


@pytest.mark.parametrize("reference", [None, 5, "", FreeFormAnswer(" "), FreeFormAnswer("x", "word")])  # type: ignore[arg-type]
async def test_a_reference_of_no_kind_is_the_graders_failure(reference: object) -> None:
    with pytest.raises(GradingError, match="problem p: got the "):
        await FreeFormGrader().grade(Problem("p", "", reference, "t"), "Answer: 5")


async def test_a_choice_without_a_letter_as_its_reference_is_the_graders_failure() -> None:
    with pytest.raises(GradingError, match="problem p: got the reference 'red' of kind choice"):
        await FreeFormGrader().grade(Problem("p", "", FreeFormAnswer("red", "choice"), "t"), "Answer: A")
