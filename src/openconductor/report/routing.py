"""Who gets the work, and the shapes of plans: over all questions, by task and by kind of question.

``measure_routing`` returns shares, means and entropies with 95 % intervals, clustered by question.
Workflows of all rounds count, except those that only accept. Steps whose response cannot reach the
answer, and that no later round looked at, are in no share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import get_args

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import (
    Estimate,
    Key,
    jackknife_interval,
    mean_interval,
)
from openconductor.evaluation.strategies import (
    STRATEGIES,
    Dependence,
    count_plans,
    routing_dependence,
    strategy,
    useful_part,
)
from openconductor.measures import Topology, entropy_bits, group_by, topology
from openconductor.plots.estimates import accuracy, share, shares_of
from openconductor.plots.material import in_order
from openconductor.types import Workflow


@dataclass(frozen=True, slots=True)
class RoutingGroup:
    """A system's plans for some of the questions.

    Attributes:
        name: ``all``, a task, or a kind of question.
        questions: the number of questions, those without a plan included.
        accuracy: the share of right answers; None: nothing was decided.
        steps: steps a workflow; None: there is no workflow.
        workers: each worker's share of the steps that reach the answer, by name in the pool's
            order.
        topologies: each shape's share of the workflows.
        strategies: each strategy's share of the workflows.
        entropy: of the workers' shares over steps, in bits; None: there is no step.
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
        by_task: by task; empty if there is one.
        by_kind: by kind of question (of several tasks by task and kind); empty if there is one.
        most_bits: the entropy of an even spread over the pool.
        wasted: the share of steps whose response cannot reach the answer, and that no later round
            looked at; None: there is no step.
        plans: the number of different plans, words and all rounds included.
        dependence: the dependence of the workflow on the question; None: it cannot be told.
    """

    whole: RoutingGroup
    by_task: tuple[RoutingGroup, ...]
    by_kind: tuple[RoutingGroup, ...]
    most_bits: float
    wasted: Estimate | None
    plans: int
    dependence: Dependence | None

    @property
    def top(self) -> tuple[str, Estimate] | None:
        """The worker with the most steps, and its share; None: there is no step."""
        workers = self.whole.workers
        if not workers:
            return None
        return max(workers.items(), key=lambda worker: worker[1].value)


def measure_routing(
    records: Sequence[Record], workers: Mapping[int, str], *, seed: int = 0
) -> Routing:
    """Measure how a system spreads the work.

    Args:
        records: the system's.
        workers: the pool's names by ordinal; a worker without a name is called by its number.
        seed: of the permutations.
    """
    used: set[int] = set()
    steps: list[int] = []
    unused: list[int] = []
    at_work = steps_by_question(records)
    plans = _plans_by_question(records).values()
    for workflows, counts in zip(plans, at_work, strict=True):
        used |= {step.worker for workflow in workflows for step in workflow}
        count = sum(len(workflow) for workflow in workflows)
        steps.append(count)
        unused.append(count - counts.total())
    ordinals = sorted({*workers, *used})
    names = {ordinal: workers.get(ordinal, str(ordinal)) for ordinal in ordinals}
    by_task = group_by(records, lambda record: record.task)
    return Routing(
        whole=_measure_group("all", records, names),
        by_task=_measure_groups(by_task, names),
        by_kind=_measure_groups(_group_by_kind(by_task), names),
        most_bits=math.log2(max(1, len(names))),
        wasted=share(unused, steps),
        plans=count_plans(records),
        dependence=routing_dependence(records, seed=seed),
    )


def _group_by_kind(by_task: Mapping[str, Sequence[Record]]) -> dict[str, list[Record]]:
    """Return the records of each kind of question, and of several tasks of each task and kind."""
    order = in_order(record.kind for records in by_task.values() for record in records)
    groups: dict[str, list[Record]] = {}
    for task, records in by_task.items():
        by_kind = group_by(records, lambda record: record.kind)
        for kind in order:
            if kind and kind in by_kind:
                name = kind if len(by_task) == 1 else f"{task} / {kind}"
                groups[name] = by_kind[kind]
    return groups


def _measure_groups(
    groups: Mapping[str, Sequence[Record]], names: Mapping[int, str]
) -> tuple[RoutingGroup, ...]:
    """Measure each group; one group alone is no group."""
    if len(groups) < 2:
        return ()
    return tuple(_measure_group(name, records, names) for name, records in groups.items())


def _measure_group(name: str, records: Sequence[Record], names: Mapping[int, str]) -> RoutingGroup:
    """Measure the plans for some questions."""
    plans = _plans_by_question(records).values()
    steps = steps_by_question(records)
    shapes = [Counter(map(topology, workflows)) for workflows in plans]
    strategies = [Counter(map(strategy, workflows)) for workflows in plans]
    workers = shares_of(steps, names)
    return RoutingGroup(
        name=name,
        questions=len(plans),
        accuracy=accuracy(records),
        steps=_mean_steps([workflows for workflows in plans if workflows]),
        workers={names[ordinal]: share for ordinal, share in workers.items()},
        topologies=_without_zeros(shares_of(shapes, sorted(get_args(Topology)))),
        strategies=_without_zeros(shares_of(strategies, STRATEGIES)),
        entropy=routing_entropy(steps, len(names)),
    )


def _without_zeros(shares: Mapping[str, Estimate]) -> dict[str, Estimate]:
    return {name: share for name, share in shares.items() if share.value}


def _mean_steps(plans: Sequence[Sequence[Workflow]]) -> Estimate | None:
    """Return the mean length of workflows, every question with a workflow weighing the same."""
    if not plans:
        return None
    means = [fmean(map(len, workflows)) for workflows in plans]
    low = 1.0
    high = float(max(map(len, plans[0])))
    if len(means) > 1:
        low, high = mean_interval(means)
    return Estimate(fmean(means), max(1.0, low), high, len(means))


def steps_by_question(records: Sequence[Record]) -> list[Counter[int]]:
    """Count for each question the steps of each worker, by ordinal, that are at work.

    Their response reaches the answer, or a later round looked at it.
    """
    counts: dict[Key, Counter[int]] = {}
    for record in records:
        of_question = counts.setdefault(record.key, Counter())
        last = len(record.rounds) - 1
        for place, one in enumerate(record.rounds):
            if one.workflow:
                useful = useful_part(one.workflow) if place == last else one.workflow
                of_question.update(step.worker for step in useful)
    return list(counts.values())


def routing_entropy(steps: Sequence[Counter[int]], workers: int) -> Estimate | None:
    """Return the entropy of the workers' shares over steps in bits, with a jackknife interval.

    None: there is no step.

    Args:
        steps: those of each question (``steps_by_question``).
        workers: the number of workers in the pool.
    """
    played = [counts for counts in steps if counts]
    total = sum(played, Counter[int]())
    if not total:
        return None
    value = entropy_bits(total.values())
    most = math.log2(max(2, workers, len(total)))
    if len(played) == 1:
        return Estimate(value, 0.0, most, 1)
    without = [entropy_bits((total - counts).values()) for counts in played]
    _, low, high = jackknife_interval(value, without)
    low = max(0.0, min(low, value))
    high = min(most, max(high, value))
    return Estimate(value, low, high, len(played))


def _plans_by_question(records: Sequence[Record]) -> dict[Key, list[Workflow]]:
    """Return the workflows of each question, of all repeats and rounds."""
    plans: dict[Key, list[Workflow]] = {}
    for record in records:
        plans.setdefault(record.key, []).extend(record.workflows)
    return plans
