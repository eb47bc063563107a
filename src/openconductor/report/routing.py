"""Who gets the work, and what the plans look like: over all questions, by task, and by kind of question.

In: the records of one system. Out: shares, means and entropies with 95 % intervals, clustered by
question. Workflows of all rounds count, except those that only accept. Steps whose response cannot
reach the answer are in no share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import get_args

from openconductor.evaluation import statistics
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate, Key
from openconductor.evaluation.strategies import (
    STRATEGIES,
    Dependence,
    routing_dependence,
    strategy,
    useful_part,
)
from openconductor.measures import Topology, entropy_bits, topology, unused_steps
from openconductor.plots.estimates import share, shares_of
from openconductor.plots.material import in_order
from openconductor.types import Workflow


@dataclass(frozen=True, slots=True)
class RoutingGroup:
    """A system's plans for some of the questions.

    Attributes:
        name: ``all``, a task, or a kind of question.
        questions: how many questions there are; those without a plan too.
        accuracy: the share of right answers; None where nothing was decided.
        steps: steps a workflow; None where there is none.
        workers: each worker's share of the steps that reach the answer, by name in the pool's
            order.
        topologies: each shape's share of the workflows.
        strategies: each strategy's share of the workflows.
        entropy: of the workers' shares over steps, in bits; None where there is no step.
    """

    name: str
    questions: int
    accuracy: Estimate | None
    steps: Estimate | None
    workers: Mapping[str, Estimate]
    topologies: Mapping[str, Estimate]
    strategies: Mapping[str, Estimate]
    entropy: Estimate | None


@dataclass(frozen=True, slots=True)
class Routing:
    """How a system spreads the work.

    Attributes:
        whole: over all questions.
        by_task: by task, where there are several.
        by_kind: by kind of question (task and kind, where there are several tasks), where there are
            several.
        most_bits: the entropy of an even spread over the pool.
        wasted: the share of steps whose response cannot reach the answer; None where there is no
            step.
        dependence: whether the workflow depends on the question; None where that cannot be told.
    """

    whole: RoutingGroup
    by_task: tuple[RoutingGroup, ...]
    by_kind: tuple[RoutingGroup, ...]
    most_bits: float
    wasted: Estimate | None
    dependence: Dependence | None

    @property
    def top(self) -> tuple[str, Estimate] | None:
        """The worker with the most steps, and its share; None where there is no step."""
        workers = self.whole.workers
        return max(workers.items(), key=lambda entry: entry[1].value) if workers else None


def routing(records: Sequence[Record], workers: Mapping[int, str], *, seed: int = 0) -> Routing:
    """How a system spreads the work.

    Args:
        records: of one system.
        workers: the pool's names by ordinal; a worker that is not named is called by its number.
        seed: of the permutations.
    """
    used = {step.worker for record in records for workflow in record.workflows for step in workflow}
    names = {ordinal: workers.get(ordinal, str(ordinal)) for ordinal in sorted({*workers, *used})}
    tasks, order = (
        list(dict.fromkeys(one.task for one in records)),
        in_order({one.kind for one in records}),
    )
    kinds = sorted(
        {(one.task, one.kind) for one in records if one.kind},
        key=lambda pair: (tasks.index(pair[0]), order.index(pair[1])),
    )
    flows = _by_question(records)
    unused = {
        key: (sum(len(unused_steps(flow)) for flow in some), sum(map(len, some)))
        for key, some in flows.items()
    }
    return Routing(
        whole=_group("all", records, names),
        by_task=tuple(
            _group(task, [one for one in records if one.task == task], names)
            for task in tasks[1:] and tasks
        ),
        by_kind=tuple(
            _group(
                kind if len(tasks) == 1 else f"{task} / {kind}",
                [one for one in records if (one.task, one.kind) == (task, kind)],
                names,
            )
            for task, kind in kinds[1:] and kinds
        ),
        most_bits=math.log2(max(1, len(names))),
        wasted=share(unused),
        dependence=routing_dependence(records, seed=seed),
    )


def routing_entropy(records: Sequence[Record], workers: int) -> Estimate | None:
    """The entropy of the workers' shares over steps in bits, with a jackknife interval; None where there is no step."""
    by_question = _by_question(records).values()
    steps = [
        Counter(step.worker for flow in flows for step in useful_part(flow))
        for flows in by_question
    ]
    played = [counts for counts in steps if counts]
    total = sum(played, Counter[int]())
    if not total:
        return None
    value = entropy_bits(total.values())
    without = [
        entropy_bits(total[worker] - counts[worker] for worker in total) for counts in played
    ]
    _, low, high = (
        statistics.jackknife_interval(value, without) if len(played) > 1 else (value, 0.0, math.inf)
    )
    most = math.log2(max(2, workers, len(total)))
    return Estimate(value, max(0.0, min(low, value)), min(most, max(high, value)), len(played))


def _group(name: str, records: Sequence[Record], workers: Mapping[int, str]) -> RoutingGroup:
    """The plans for some questions."""
    scores, flows = statistics.scores_by_problem(records), _by_question(records)
    masked = sum(record.correct is None for record in records)
    means = [fmean(map(len, of_one)) for of_one in flows.values() if of_one]
    longest = float(max((len(flow) for of_one in flows.values() for flow in of_one), default=1))
    low, high = statistics.mean_interval(means) if len(means) > 1 else (1.0, longest)

    def shares(
        things: Callable[[Workflow], Sequence[str]], names: Iterable[str]
    ) -> dict[str, Estimate]:
        counts = {
            key: Counter(thing for flow in some for thing in things(flow))
            for key, some in flows.items()
        }
        return shares_of(counts, names)

    shapes = shares(lambda flow: [topology(flow)], sorted(get_args(Topology)))
    strategies = shares(lambda flow: [strategy(flow)], STRATEGIES)
    return RoutingGroup(
        name=name,
        questions=len(flows),
        accuracy=statistics.estimate(scores, masked) if scores else None,
        steps=Estimate(fmean(means), max(1.0, low), high, len(means)) if means else None,
        workers=shares(
            lambda flow: [workers[step.worker] for step in useful_part(flow)], workers.values()
        ),
        topologies={name: one for name, one in shapes.items() if one.value},
        strategies={name: one for name, one in strategies.items() if one.value},
        entropy=routing_entropy(records, len(workers)),
    )


def _by_question(records: Sequence[Record]) -> dict[Key, list[Workflow]]:
    """The workflows of each question, of all repeats and rounds."""
    found: dict[Key, list[Workflow]] = {}
    for record in records:
        found.setdefault((record.task, record.problem), []).extend(record.workflows)
    return found
