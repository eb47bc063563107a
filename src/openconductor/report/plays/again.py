"""Planning repeated: does a plan hang on its question or on chance, and does a second round look?

``plan_again`` asks a planner once more, and ``measure_again`` makes the figures of it.
``docs/report.md`` gives the reasons.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from openconductor.errors import WorkflowError
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
    concurrency: int = 64,
) -> Again:
    """Ask the planner again for each question with a valid plan, and play its second rounds.

    A question whose planner does not answer is left out.

    Args:
        records: of one system; of repeats the first one counts.
        problems: by task and id.
        replan: asks the planner.
        watch: plays rounds.
        concurrency: the most questions at once.

    Raises:
        OpenConductorError: an error whose fate is *stop*; what runs is cancelled.
    """
    planned: dict[Key, Record] = {}
    for record in records:
        if record.valid and record.workflows and record.key in problems:
            planned.setdefault(record.key, record)
    shown = dict(_deal([record for record in planned.values() if _looks(record)]))
    asked: dict[Key, list[Round]] = {}
    seconds: list[tuple[Key, float | None, float | None]] = []

    async def play(record: Record, second: Round) -> float | None:
        rounds = (record.workflows[0], second.workflow)
        seen = await watch(problems[record.key], _with_steps(rounds), record.sample)
        return seen.score

    async def repeat(record: Record) -> None:
        rounds = [await replan(record, None)]
        if record.key in shown:
            rounds += [await replan(record, record), await replan(record, shown[record.key])]
        if any(map(_is_undecided, rounds)):
            return
        asked[record.key] = rounds[:2]
        if len(rounds) > 1:
            looking, elsewhere = await play(record, rounds[1]), await play(record, rounds[2])
            seconds.append((record.key, looking, elsewhere))

    await for_each(planned.values(), repeat, limit=max(1, concurrency))
    pairs: dict[Key, tuple[Rounds, Rounds]] = {}
    for key, rounds in asked.items():
        own = [one.workflow for one in planned[key].rounds[: len(rounds)]]
        pairs[key] = (_with_steps(own), _with_steps([one.workflow for one in rounds]))
    return Again(
        shape=_compare(pairs, _steps),
        words=_compare(pairs, _words),
        looking=grouped((key, looking) for key, looking, _ in seconds),
        elsewhere=grouped((key, elsewhere) for key, _, elsewhere in seconds),
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
    """Return True if the planner wrote nothing, so that it is not known what it would."""
    return not (one.error is None or isinstance(one.error, WorkflowError))


def _with_steps(rounds: Iterable[Workflow | None]) -> Rounds:
    """Return the rounds that have steps, without those that accept or are invalid."""
    return tuple(workflow for workflow in rounds if workflow)


def _deal(records: Sequence[Record]) -> Iterator[tuple[Key, Record]]:
    """Yield each question with the record of another one of its task."""
    for of_task in group_by(records, lambda record: record.task).values():
        if len(of_task) > 1:
            for record, other in zip(of_task, [*of_task[1:], of_task[0]], strict=True):
                yield record.key, other


# ── how alike two plans are ───────────────────────────────────────────────────────────────────────
def _steps(rounds: Rounds) -> Features:
    """Count the steps of a plan by round, worker, and the number of steps that they see.

    Of the last round only what reaches the answer counts.
    """
    steps: Features = Counter()
    for number, workflow in enumerate(rounds, start=1):
        useful = useful_part(workflow) if number == len(rounds) else workflow
        for place, step in enumerate(useful):
            steps[number, step.worker, len(useful.visible(place))] += 1
    return steps


def _words(rounds: Rounds) -> Features:
    """Count the words of a plan's subtasks."""
    text = "\n".join(step.subtask for workflow in rounds for step in workflow)
    return Counter((word,) for word in re.findall(r"\w+", text.casefold()))


def _likeness(one: Features, other: Features) -> float:
    """Return the share of what two plans have in common."""
    whole = (one | other).total()
    return (one & other).total() / whole if whole else 1.0


def _compare(
    pairs: Mapping[Key, tuple[Rounds, Rounds]], features: Callable[[Rounds], Features]
) -> dict[Key, float]:
    """Return by question how much more alike its plans are than its own one and those of others.

    A question that is the only one of its task is left out.
    """
    excess: dict[Key, float] = {}
    again = {key: features(rounds) for key, (_, rounds) in pairs.items()}
    for keys in group_by(pairs, lambda key: key[0]).values():
        for place, key in enumerate(keys):
            others = keys[place + 1 :] + keys[:place]
            if others:
                own = features(pairs[key][0])
                sample = others[:: max(1, len(others) // OTHERS)]
                by_chance = fmean(_likeness(own, again[other]) for other in sample)
                excess[key] = _likeness(own, again[key]) - by_chance
    return excess
