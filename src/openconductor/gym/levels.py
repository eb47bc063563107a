"""Reference levels: what to expect, exactly, of orchestration that knows more or less.

The best fixed workflow is one choice of workers and access for every question, with the best
subtasks for each. Only the random level is estimated: its workflows are drawn, though the accuracy
of each is exact.
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
"""A subtask that no worker of the gym understands, so that each admits a failure."""


@dataclass(frozen=True, slots=True)
class Constant:
    """The same workers and access for every question.

    Attributes:
        workers: the ordinal of each step's worker.
        access: the earlier steps that each step sees.
    """

    workers: tuple[int, ...]
    access: tuple[tuple[int, ...], ...]


BEST_FIXED = Constant(workers=(5, 1, 7, 1, 3), access=((), (), (), (0, 1, 2), (0, 1, 3)))
"""The best constant over the gym's eight workers, as far as a search of local ascents sees."""
BEST_FIXED_ACCURACY = 0.3912
"""Its expected accuracy, with equal weights of the four kinds and of the compositions of each."""


def fixed_workflow(question: GymQuestion, constant: Constant = BEST_FIXED) -> Workflow:
    """Return the constant's workflow for a question, with its best subtasks."""
    plan, _ = _best_plan(question, constant)
    return _workflow(question, constant, plan)


def fixed_accuracy(question: GymQuestion, constant: Constant = BEST_FIXED) -> float:
    """Return the exact expected accuracy of ``fixed_workflow``."""
    _, accuracy = _best_plan(question, constant)
    return accuracy


@dataclass(frozen=True, slots=True)
class ReferenceLevels:
    """Expected accuracies, each the mean over the same questions.

    Attributes:
        random: random workflows.
        workers: each worker alone, by name.
        best_fixed: the best constant choice of workers and access; None: not searched for.
        oracle: the best workflow of each question.
    """

    random: float
    workers: Mapping[str, float]
    best_fixed: float | None
    oracle: float

    @property
    def best_worker(self) -> float:
        """The accuracy of the best worker alone."""
        return max(self.workers.values())


def reference_levels(
    questions: Sequence[GymQuestion], offered: Offered = ALL, *, draws: int = 50, seed: int = 0
) -> ReferenceLevels:
    """Return the levels over one or more questions, with ``draws`` random workflows for each."""
    drawn: list[float] = []
    oracle: list[float] = []
    for question in questions:
        drawn.append(random_accuracy(question, offered, draws=draws, seed=seed))
        _, accuracy = oracle_workflow(question, offered)
        oracle.append(accuracy)
    workers: dict[str, float] = {}
    for profile in offered.values():
        workers[profile.name] = fmean(alone_accuracy(question, profile) for question in questions)
    best_fixed = None
    if offered == ALL:
        best_fixed = fmean(fixed_accuracy(question) for question in questions)
    return ReferenceLevels(fmean(drawn), workers, best_fixed, fmean(oracle))


# ── the best subtasks of a constant ───────────────────────────────────────────────────────────────
Shape = tuple[tuple[Skill, ...], tuple[tuple[int, ...], ...], bool]
"""A question's skills, the orders of its operations that lead to the answer, whether it is smudged.

Questions of one shape are alike to the workers."""

_Part = tuple[int, ...] | str
"""A step's subtask: operations of the question in order, or a text (COMPARE[0] or NOTHING)."""
_Plan = tuple[_Part, ...]
_Work = frozenset[int]
"""Operations that have been done."""
_PLANS: dict[tuple[Shape, Constant], tuple[_Plan, float]] = {}


def shape_of(question: GymQuestion) -> Shape:
    """Return the shape of a question; each order of its operations is tried on its list."""
    operations = [operation for operation, _ in question.operations]
    orders: list[tuple[int, ...]] = []
    for order in permutations(range(len(operations))):
        done = perform((operations[index] for index in order), question.value)
        if done == question.answer:
            orders.append(order)
    skills: tuple[Skill, ...] = tuple(operation.skill for operation in operations)
    return skills, tuple(orders), question.smudged


def _best_plan(question: GymQuestion, constant: Constant) -> tuple[_Plan, float]:
    """Return the best of all plans for the constant's steps, and its expected accuracy."""
    shape = shape_of(question)
    if (shape, constant) not in _PLANS:
        plans = _PlanSearch(shape, constant).plans()
        bounds = {plan: _bound(question, constant, plan) for plan in plans}
        best: tuple[_Plan, float] = ((NOTHING,) * len(constant.workers), 0.0)
        for plan in sorted(bounds, key=lambda plan: -bounds[plan]):
            if bounds[plan] > best[1]:
                accuracy = expected_accuracy(question, _workflow(question, constant, plan))
                if accuracy > best[1] + 1e-12:
                    best = plan, accuracy
        _PLANS[shape, constant] = best
    return _PLANS[shape, constant]


class _PlanSearch:
    """A search for every way to give a constant's steps subtasks that may lead to the answer."""

    def __init__(self, shape: Shape, constant: Constant) -> None:
        skills, orders, _ = shape
        self._access = constant.access
        self._all: _Work = frozenset(range(len(skills)))
        # By the work that is done at its end: the work that was done before a step, and its part.
        self._ways: dict[_Work, list[tuple[_Work, tuple[int, ...]]]] = {}
        places = range(len(skills) + 1)
        for order in orders:
            for start, end in combinations(places, 2):
                ways = self._ways.setdefault(frozenset(order[:end]), [])
                ways.append((frozenset(order[:start]), order[start:end]))

    def plans(self) -> Iterator[_Plan]:
        """Yield every plan whose last step may have done all operations."""
        last = len(self._access) - 1
        yield from self._plans_up_to(last, {last: self._all})

    def _plans_up_to(self, index: int, wanted: Mapping[int, _Work]) -> Iterator[_Plan]:
        """Yield the parts of the steps up to ``index``, of which some work is wanted."""
        if index < 0:
            yield ()
            return
        for part, needed in self._choices(index, wanted.get(index)):
            if all(wanted.get(step, work) == work for step, work in needed.items()):
                for plan in self._plans_up_to(index - 1, {**wanted, **needed}):
                    yield (*plan, part)

    def _choices(
        self, index: int, goal: _Work | None
    ) -> Iterator[tuple[_Part, Mapping[int, _Work]]]:
        """Yield the parts that may reach a step's goal, and what each needs of earlier steps."""
        if goal is None:
            yield NOTHING, {}
            return
        seen = self._access[index]
        # A worker continues from the last response that it sees, or from the question.
        for before, part in self._ways.get(goal, ()):
            if bool(before) == bool(seen):
                yield part, ({seen[-1]: before} if seen else {})
        for count in range(1, len(seen) + 1):
            for steps in combinations(seen, count):
                yield COMPARE[0], dict.fromkeys(steps, goal)


def _bound(question: GymQuestion, constant: Constant, plan: _Plan) -> float:
    """Return an upper bound of the plan's expected accuracy.

    It takes a comparison for right where something that it sees is.
    """
    chances: list[float] = []
    for worker, seen, part in zip(constant.workers, constant.access, plan, strict=True):
        if part == COMPARE[0]:
            either = sum(chances[step] for step in seen)
            chances.append(min(1.0, either))
        elif isinstance(part, str):
            chances.append(0.0)
        else:
            successes = [success for success, _ in _best_phrases(question, worker, part)]
            further = FURTHER ** (len(part) - 1)
            before = chances[seen[-1]] if seen else 1.0
            chances.append(prod(successes) * further * before)
    return chances[-1]


def _workflow(question: GymQuestion, constant: Constant, plan: _Plan) -> Workflow:
    """Return the plan as a workflow, each operation in the wording that its worker likes."""
    steps: list[Step] = []
    for worker, seen, part in zip(constant.workers, constant.access, plan, strict=True):
        subtask = part
        if not isinstance(subtask, str):
            phrases = [text for _, text in _best_phrases(question, worker, subtask)]
            subtask = ", then ".join(phrases)
        steps.append(Step(worker, subtask, seen))
    return Workflow(tuple(steps))


def _best_phrases(
    question: GymQuestion, worker: int, part: Sequence[int]
) -> list[tuple[float, str]]:
    """Return the worker's chance and wording for each operation of a part."""
    profile = ALL[worker]
    return [profile.best_phrase(question.operations[index][0]) for index in part]
