"""Ask a planner again, to tell plans made for a question from plans drawn by chance.

``plan_again`` asks it once more, and ``measure_again`` makes the figures. ``docs/report.md`` gives
the reasons.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
"""A plan is compared with those of this many other questions, if there are, to twice as many."""

Replan = Callable[[Record, Record | None], Awaitable[Round]]
"""Asks the planner of a record again, and returns a round that was not played.

Without a second record it is the first round. Else it is the second round, and the planner is shown
the answers of the second record's first round.
"""
Features = Counter[tuple[object, ...]]
"""Counts the steps of a plan, or its words."""


@dataclass(frozen=True, slots=True)
class Again:
    """The planning that was repeated, by question.

    Attributes:
        shape: the likeness of a plan's steps to those of the plan written again, less their mean
            likeness to the plans written again for other questions; from -1 to 1.
        words: the same of the words of their subtasks.
        looking: the scores of second rounds that were written again.
        elsewhere: the same if the planner was shown the answers to another question.
        failures: why the planner could not be asked again, of the questions that are left out.
    """

    shape: Mapping[Key, float]
    words: Mapping[Key, float]
    looking: Scores
    elsewhere: Scores
    failures: Mapping[Key, str] = field(default_factory=dict[Key, str])


@dataclass(frozen=True, slots=True)
class AgainFigures:
    """The figures of repeated planning.

    Attributes:
        shape, words: the mean of ``Again.shape`` and ``Again.words``.
        look: second rounds less those that were shown the answers to another question; None: there
            is no second round.
        failed: the number of questions that are left out, because the planner could not be asked.
    """

    shape: Estimate
    words: Estimate
    look: Difference | None
    failed: int = 0


async def plan_again(
    records: Sequence[Record],
    problems: Mapping[Key, Problem],
    replan: Replan,
    watch: Watch,
    *,
    concurrency: int = 64,
) -> Again:
    """Ask the planner again for each question with a valid plan, and play its second rounds.

    A question whose planner does not answer is left out, and its failure kept.

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
    others = dict(_deal([record for record in planned.values() if _looks(record)]))
    # In the order of the questions, not in that in which the planner answers.
    written: dict[Key, Sequence[Round]] = dict.fromkeys(planned, ())
    scores: dict[Key, tuple[float | None, float | None]] = dict.fromkeys(planned, (None, None))
    failures: dict[Key, str] = dict.fromkeys(planned, "")

    async def play(record: Record, second: Round) -> float | None:
        rounds = _with_steps([record.workflows[0], second.workflow])
        seen = await watch(problems[record.key], rounds, record.sample)
        return seen.score

    async def repeat(record: Record) -> None:
        rounds = [await replan(record, None)]
        other = others.get(record.key)
        if other is not None:
            rounds += [await replan(record, record), await replan(record, other)]
        for planning in rounds:
            failures[record.key] = failures[record.key] or _failure_of(planning)
        if failures[record.key]:
            return
        written[record.key] = rounds[:2]
        if other is not None:
            scores[record.key] = (await play(record, rounds[1]), await play(record, rounds[2]))

    await for_each(planned.values(), repeat, limit=max(1, concurrency))
    pairs: dict[Key, tuple[Rounds, Rounds]] = {}
    for key, rounds in written.items():
        if rounds:
            own = [planning.workflow for planning in planned[key].rounds[: len(rounds)]]
            again = [planning.workflow for planning in rounds]
            pairs[key] = (_with_steps(own), _with_steps(again))
    return Again(
        shape=_compare(pairs, _steps),
        words=_compare(pairs, _words),
        looking=grouped((key, looking) for key, (looking, _) in scores.items()),
        elsewhere=grouped((key, elsewhere) for key, (_, elsewhere) in scores.items()),
        failures={key: failure for key, failure in failures.items() if failure},
    )


def measure_again(again: Again, seed: int = 0) -> AgainFigures | None:
    """Measure what repeated planning shows; None: there are fewer than two questions."""
    if len(again.shape) < 2:
        return None
    return AgainFigures(
        shape=mean_estimate(list(again.shape.values())),
        words=mean_estimate(list(again.words.values())),
        look=difference(again.looking, again.elsewhere, seed, pooled=True),
        failed=len(again.failures),
    )


def _looks(record: Record) -> bool:
    """Return True if the planner was asked for a second round, and saw answers."""
    return len(record.rounds) > 1 and record.rounds[1].planned and bool(record.rounds[0].workflow)


def _failure_of(planning: Round) -> str:
    """Return why the planner could not be asked, so that its plan is unknown. "": it was asked."""
    if planning.error is None or isinstance(planning.error, WorkflowError):
        return ""
    return str(planning.error) or type(planning.error).__name__


def _with_steps(rounds: Iterable[Workflow | None]) -> Rounds:
    """Return the rounds that have steps, without those that accept or are invalid."""
    return tuple(workflow for workflow in rounds if workflow)


def _deal(records: Sequence[Record]) -> Iterator[tuple[Key, Record]]:
    """Yield each question with the record of another one of its task."""
    for of_task in group_by(records, lambda record: record.task).values():
        for record, other in pair_up(of_task):
            yield record.key, other


def pair_up(records: Sequence[Record]) -> Iterator[tuple[Record, Record]]:
    """Yield each record with the next one, and the last with the first; one alone has no other."""
    if len(records) > 1:
        yield from zip(records, [*records[1:], records[0]], strict=True)


# ── how alike two plans are ───────────────────────────────────────────────────────────────────────
def _steps(rounds: Rounds) -> Features:
    """Count the steps of a plan by round, worker, and the number of steps that they see.

    Steps of the last round that do not reach the answer are not counted.
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
    pairs: Mapping[Key, tuple[Rounds, Rounds]], count: Callable[[Rounds], Features]
) -> dict[Key, float]:
    """Return by question the likeness of its two plans, less that of its plan to other questions'.

    A question that is the only one of its task is left out.
    """
    again = {key: count(rounds) for key, (_, rounds) in pairs.items()}
    excess: dict[Key, float] = {}
    for keys in group_by(pairs, lambda key: key[0]).values():
        for place, key in enumerate(keys):
            others = keys[place + 1 :] + keys[:place]
            if not others:
                continue
            own = count(pairs[key][0])
            sample = others[:: max(1, len(others) // OTHERS)]
            by_chance = [_likeness(own, again[other]) for other in sample]
            excess[key] = _likeness(own, again[key]) - fmean(by_chance)
    return excess
