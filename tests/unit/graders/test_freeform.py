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


KINDS = {
    "choice": ("B", "(C)"),
    "number": ("42", "-3.5 kg", "5 m", "$4.50"),
    "math": ("x^2 + 1", r"\sqrt{2}", "2*pi", "f(x)"),
    "text": ("photosynthesis", "an increase of demand", "sub-Saharan Africa"),
}


def test_the_kind_is_read_off_the_reference() -> None:
    assert {kind: [kind_of(reference) for reference in references] for kind, references in KINDS.items()} == {
        kind: [kind] * len(references) for kind, references in KINDS.items()
    }


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
    assert all(part in prompt for part in ("What falls?", "a decrease in supply", "supply falls"))
    assert "Long reasoning" not in prompt


@pytest.mark.parametrize("answer", ["Answer: A decrease in supply.", "I do not know."])
async def test_a_judge_is_never_asked_about_what_the_rules_decide(answer: str) -> None:
    judge = SaidJudge("Verdict: wrong")
    assert (await FreeFormGrader(judge).grade(OPEN, answer)).correct is not None
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


@pytest.mark.parametrize(
    "reference", [None, 5, "", FreeFormAnswer(" "), FreeFormAnswer("x", "word"), FreeFormAnswer("red", "choice")]
)  # type: ignore[arg-type]
async def test_a_reference_of_no_kind_is_the_graders_failure(reference: object) -> None:
    with pytest.raises(GradingError, match="problem p: got the "):
        await FreeFormGrader().grade(Problem("p", "", reference, "t"), "Answer: 5")
