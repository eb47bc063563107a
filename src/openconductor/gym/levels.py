"""Reference levels: what to expect, exactly, of orchestration that knows more or less.

In: a question, or many. Out: the best fixed workflow (one choice of workers and access for every
question, its subtasks as good as they can be) with its expected accuracy, and the mean expected
accuracies of every level. Only the random level is estimated: its workflows are drawn, though each
one's accuracy is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from math import prod
from statistics import fmean

from openconductor.gym.exact import (
    ALL,
    Offered,
    alone_accuracy,
    expected_accuracy,
    oracle_workflow,
    random_accuracy,
)
from openconductor.gym.questions import GymQuestion
from openconductor.gym.workers import FURTHER
from openconductor.gym.world import COMPARE, Skill, perform
from openconductor.types import Step, Workflow

NOTHING = "do nothing"
"""A subtask that no worker of the gym understands: each says that it could not do that."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Who works and who sees whom, the same for every question: one ordinal and one tuple of earlier steps a step."""

    workers: tuple[int, ...]
    access: tuple[tuple[int, ...], ...]


BEST_FIXED = Constant(workers=(5, 1, 7, 1, 3), access=((), (), (), (0, 1, 2), (0, 1, 3)))
"""The best constant over the gym's eight workers, as far as a search of local ascents sees."""
BEST_FIXED_ACCURACY = 0.3912
"""Its expected accuracy: the four kinds of question alike, and within a kind all compositions alike."""


def fixed_workflow(question: GymQuestion, constant: Constant = BEST_FIXED) -> Workflow:
    """The constant's workflow for a question, with its best subtasks."""
    return _workflow(question, constant, _best(question, constant)[0])


def fixed_accuracy(question: GymQuestion, constant: Constant = BEST_FIXED) -> float:
    """The expected accuracy of ``fixed_workflow``, exact."""
    return _best(question, constant)[1]


@dataclass(frozen=True, slots=True)
class ReferenceLevels:
    """Expected accuracies, each the mean over the same questions.

    Attributes:
        random: random workflows.
        workers: each worker alone, by name.
        best_fixed: the best constant choice of workers and access; None where no search has been
            made for it.
        oracle: the best workflow of each question.
    """

    random: float
    workers: Mapping[str, float]
    best_fixed: float | None
    oracle: float

    @property
    def best_worker(self) -> float:
        """The best worker alone."""
        return max(self.workers.values())


def reference_levels(
    questions: Sequence[GymQuestion], offered: Offered = ALL, *, draws: int = 50, seed: int = 0
) -> ReferenceLevels:
    """The levels over some questions (at least one); ``draws`` random workflows are averaged for each question."""
    return ReferenceLevels(
        random=fmean(
            random_accuracy(question, offered, draws=draws, seed=seed) for question in questions
        ),
        workers={
            one.name: fmean(alone_accuracy(question, one) for question in questions)
            for one in offered.values()
        },
        best_fixed=fmean(fixed_accuracy(question) for question in questions)
        if offered == ALL
        else None,
        oracle=fmean(oracle_workflow(question, offered)[1] for question in questions),
    )


# ── the best subtasks of a constant ───────────────────────────────────────────────────────────────
Shape = tuple[tuple[Skill, ...], tuple[tuple[int, ...], ...], bool]
"""The skills that a question asks for, the orders of its operations that lead to the answer, whether it is smudged.

Questions of one shape are alike to the workers."""

_Part = tuple[int, ...] | str
"""What a step is told: some of the question's operations in order, or one of the texts COMPARE[0] and NOTHING."""
_Ways = Mapping[frozenset[int], Sequence[tuple[frozenset[int], tuple[int, ...]]]]
"""By the operations that are done at last: those that were done before, and those that a step does."""
_PLANS: dict[tuple[Shape, Constant], tuple[tuple[_Part, ...], float]] = {}


def shape_of(question: GymQuestion) -> Shape:
    """The shape of a question; the orders that lead to the answer are found by trying them on its list."""
    operations = [operation for operation, _ in question.operations]
    orders = (
        order
        for order in permutations(range(len(operations)))
        if perform((operations[index] for index in order), question.value) == question.answer
    )
    return tuple(operation.skill for operation in operations), tuple(orders), question.smudged


def _best(question: GymQuestion, constant: Constant) -> tuple[tuple[_Part, ...], float]:
    """The best of all plans for the constant's steps, and its expected accuracy."""
    shape = shape_of(question)
    if (shape, constant) not in _PLANS:
        skills, orders, _ = shape
        ways: dict[frozenset[int], list[tuple[frozenset[int], tuple[int, ...]]]] = {}
        for order in orders:
            for start, end in combinations(range(len(order) + 1), 2):
                ways.setdefault(frozenset(order[:end]), []).append(
                    (frozenset(order[:start]), order[start:end])
                )
        last = len(constant.workers) - 1
        plans = _plans(ways, constant.access, last, {last: frozenset(range(len(skills)))})
        bounds = {plan: _bound(question, constant, plan) for plan in plans}
        best: tuple[tuple[_Part, ...], float] = ((NOTHING,) * (last + 1), 0.0)
        for plan, bound in sorted(bounds.items(), key=lambda pair: -pair[1]):
            if bound > best[1]:
                accuracy = expected_accuracy(question, _workflow(question, constant, plan))
                if accuracy > best[1] + 1e-12:
                    best = plan, accuracy
        _PLANS[shape, constant] = best
    return _PLANS[shape, constant]


def _plans(
    ways: _Ways, access: Sequence[Sequence[int]], index: int, wanted: Mapping[int, frozenset[int]]
) -> Iterator[tuple[_Part, ...]]:
    """Every way to tell the steps up to ``index`` something that may lead to the work that is ``wanted`` of some."""
    if index < 0:
        yield ()
        return
    seen, goal = access[index], wanted.get(index)
    choices: list[
        tuple[_Part, Mapping[int, frozenset[int]]]
    ] = []  # with what each wants of earlier steps
    if goal is None:
        choices.append((NOTHING, {}))
    else:
        # A worker continues from the last response that it sees, or from the question.
        starts = (
            (before, part) for before, part in ways.get(goal, ()) if bool(before) == bool(seen)
        )
        choices += ((part, {seen[-1]: before} if seen else {}) for before, part in starts)
        answers = (some for count in range(1, len(seen) + 1) for some in combinations(seen, count))
        choices += ((COMPARE[0], dict.fromkeys(some, goal)) for some in answers)
    for part, more in choices:
        if all(wanted.get(step, work) == work for step, work in more.items()):
            yield from (
                (*plan, part) for plan in _plans(ways, access, index - 1, {**wanted, **more})
            )


def _bound(question: GymQuestion, constant: Constant, plan: Sequence[_Part]) -> float:
    """No less than the plan's expected accuracy: a comparison is right at most where something that it sees is."""
    chances: list[float] = []
    for worker, seen, part in zip(constant.workers, constant.access, plan, strict=True):
        if isinstance(part, str):
            chances.append(
                min(1.0, sum(chances[step] for step in seen)) if part == COMPARE[0] else 0.0
            )
        else:
            done = prod(ALL[worker].best_phrase(question.operations[index][0])[0] for index in part)
            chances.append(done * FURTHER ** (len(part) - 1) * (chances[seen[-1]] if seen else 1.0))
    return chances[-1]


def _workflow(question: GymQuestion, constant: Constant, plan: Sequence[_Part]) -> Workflow:
    """The plan in words, for each operation the wording that its worker likes."""
    steps: list[Step] = []
    for worker, seen, part in zip(constant.workers, constant.access, plan, strict=True):
        if not isinstance(part, str):
            part = ", then ".join(  # noqa: PLW2901
                ALL[worker].best_phrase(question.operations[index][0])[1] for index in part
            )
        steps.append(Step(worker, part, seen))
    return Workflow(tuple(steps))
