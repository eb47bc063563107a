"""Planning repeated: does a plan hang on its question or on chance, and does a second round look?

``plan_again`` asks a planner once more, and ``measure_again`` makes the figures of it.
``docs/report.md`` gives the reasons.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from openconductor.errors import WorkflowError, caused_by_plan
from openconductor.evaluation import for_each
from openconductor.evaluation.counterfactual import Rounds, Watch
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import (
    Difference,
    Estimate,
    Key,
    Scores,
    difference,
    grouped,
    mean_estimate,
)
from openconductor.evaluation.strategies import useful_part
from openconductor.measures import group_by
from openconductor.types import Problem, Round, Workflow

AGAIN = 100
"""The number of questions for which a planner is asked again at first."""
OTHERS = 40
"""The most plans of other questions that a plan is compared with."""

Replan = Callable[[Record, Record | None], Awaitable[Round]]
"""Asks the planner of a record again, and returns a round that was not played.

It is the first round, or the second one, shown the answers of a given record's first round in place
of the own ones.
"""
Features = Counter[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Again:
    """The planning that was repeated, by question.

    Attributes:
        shape: how much more alike the steps of a plan and of the one written again are than those
            of the plan and of others that were written again; 1: the same, and no step in common.
        words: the same of the words of their subtasks.
        looking: the scores of second rounds that were written again.
        elsewhere: the same if the planner was shown the answers to another question.
    """

    shape: Mapping[Key, float]
    words: Mapping[Key, float]
    looking: Scores
    elsewhere: Scores


@dataclass(frozen=True, slots=True)
class AgainFigures:
    """What repeated planning shows.

    Attributes:
        shape, words: the mean of ``Again.shape`` and ``Again.words``.
        look: second rounds less those that were shown the answers to another question; None: there
            is no second round.
    """

    shape: Estimate
    words: Estimate
    look: Difference | None


async def plan_again(
    records: Sequence[Record],
    problems: Mapping[Key, Problem],
    replan: Replan,
    watch: Watch,
    *,
    seed: int = 0,
    concurrency: int = 64,
) -> Again:
    """Ask the planner again for each question with a valid plan, and play its second rounds.

    What infrastructure failed is left out.

    Args:
        records: of one system; of repeats the first one counts.
        problems: by task and id.
        replan: asks the planner.
        watch: plays rounds.
        seed: of the deal of other questions.
        concurrency: the most questions at once.

    Raises:
        OpenConductorError: an error whose fate is *stop*; what runs is cancelled.
    """
    first: dict[Key, Record] = {}
    for record in records:
        if record.valid and record.workflows and record.key in problems:
            first.setdefault(record.key, record)
    shown = dict(_deal([record for record in first.values() if _looks(record)], seed))
    rewritten: dict[Key, Record] = {}
    played: list[tuple[Key, float | None, float | None]] = []

    async def repeat(record: Record) -> None:
        rounds = [await replan(record, None)]
        other = shown.get(record.key)
        if other is not None:
            rounds.append(await replan(record, record))
            elsewhere = await replan(record, other)
            if not _is_undecided(rounds[1]) and not _is_undecided(elsewhere):
                problem = problems[record.key]
                scores: list[float | None] = []
                for second in (rounds[1], elsewhere):
                    plan = _played_rounds(record.workflows[0], second)
                    scores.append((await watch(problem, plan, record.sample)).score)
                played.append((record.key, scores[0], scores[1]))
        if not any(map(_is_undecided, rounds)):
            planned = [replace(record.rounds[0], workflow=one.workflow) for one in rounds]
            rewritten[record.key] = replace(record, rounds=tuple(planned))

    await for_each(first.values(), repeat, limit=max(1, concurrency))
    decided = [one for one in played if None not in one]
    own: list[Record] = []
    again: list[Record] = []
    for key, record in first.items():
        if key in rewritten:
            count = len(rewritten[key].rounds)
            own.append(replace(record, rounds=record.rounds[:count]))
            again.append(rewritten[key])
    return Again(
        shape=_compare(own, again, _steps),
        words=_compare(own, again, _words),
        looking=grouped((key, looking) for key, looking, _ in decided),
        elsewhere=grouped((key, elsewhere) for key, _, elsewhere in decided),
    )


def measure_again(again: Again, seed: int = 0) -> AgainFigures | None:
    """Measure what repeated planning shows; None: there are fewer than two questions."""
    if len(again.shape) < 2:
        return None
    return AgainFigures(
        shape=mean_estimate(list(again.shape.values())),
        words=mean_estimate(list(again.words.values())),
        look=difference(again.looking, again.elsewhere, seed, pooled=True),
    )


def _looks(record: Record) -> bool:
    """Return True if the planner was asked for a second round, and saw answers."""
    return len(record.rounds) > 1 and record.rounds[1].planned and bool(record.rounds[0].workflow)


def _is_undecided(one: Round) -> bool:
    """Return True if infrastructure failed, so that nothing is known of what would be planned."""
    error = one.error
    return not (error is None or isinstance(error, WorkflowError) or caused_by_plan(error))


def _played_rounds(first: Workflow, second: Round) -> Rounds:
    """Return the rounds that are played; one that accepts, or is invalid, is none."""
    return (first, second.workflow) if second.workflow else (first,)


def _deal(records: Sequence[Record], seed: int) -> Iterator[tuple[Key, Record]]:
    """Yield each question with the record of another one of its task."""
    rng = random.Random(f"shown/{seed}")
    for of_task in group_by(records, lambda record: record.task).values():
        order = list(of_task)
        rng.shuffle(order)
        if len(order) > 1:
            for record, other in zip(order, [*order[1:], order[0]], strict=True):
                yield record.key, other


# ── how alike two plans are ───────────────────────────────────────────────────────────────────────
def _steps(record: Record) -> Features:
    """Count the steps of a plan by round, worker, and the number of steps that they see.

    Of the last round only what reaches the answer counts.
    """
    steps: Features = Counter()
    last = len(record.workflows) - 1
    for number, workflow in enumerate(record.workflows):
        useful = useful_part(workflow) if number == last else workflow
        for place, step in enumerate(useful):
            steps[number, step.worker, len(useful.visible(place))] += 1
    return steps


def _words(record: Record) -> Features:
    """Count the words of a plan's subtasks."""
    words: Features = Counter()
    for workflow in record.workflows:
        for step in workflow:
            words.update((word,) for word in re.findall(r"\w+", step.subtask.casefold()))
    return words


def _likeness(one: Features, other: Features) -> float:
    """Return the share of what two plans have in common."""
    whole = (one | other).total()
    return (one & other).total() / whole if whole else 1.0


def _compare(
    own: Sequence[Record], again: Sequence[Record], features: Callable[[Record], Features]
) -> dict[Key, float]:
    """Return by question how much more alike plan and repetition are than plans of two questions.

    A question that is the only one of its task is left out.
    """
    excess: dict[Key, float] = {}
    repeated = {record.key: features(record) for record in again}
    for of_task in group_by(own, lambda record: record.task).values():
        keys = [record.key for record in of_task]
        for place, record in enumerate(of_task):
            others = keys[place + 1 :] + keys[:place]
            if others:
                plan = features(record)
                sample = others[:: max(1, len(others) // OTHERS)]
                by_chance = fmean(_likeness(plan, repeated[key]) for key in sample)
                excess[record.key] = _likeness(plan, repeated[record.key]) - by_chance
    return excess
