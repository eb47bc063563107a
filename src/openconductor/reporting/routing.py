"""Who gets the work, and what the plans look like: over all questions, by task, and by kind of question.

In: the records of one system. Out: shares, means and entropies with 95 % intervals, clustered by question. Workflows of
all rounds count, those that only accept aside.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from openconductor.evaluation.dependence import Dependence, routing_dependence
from openconductor.evaluation.intervals import jackknife_interval, mean_interval
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate, Key, clustered_mean, scores_by_problem
from openconductor.evaluation.strategies import STRATEGIES, strategy
from openconductor.measures import entropy_bits, topology, unused_steps
from openconductor.plots.estimates import share
from openconductor.plots.material import in_order
from openconductor.types import Workflow


@dataclass(frozen=True, slots=True)
class Group:
    """A system's plans for some of the questions.

    Attributes:
        name: ``all``, a task, or a kind of question.
        questions: how many questions there are; those without a plan too.
        accuracy: the share of right answers; None where nothing was decided.
        steps: steps a workflow; None where there is none.
        workers: each worker's share of the steps, by name in the pool's order.
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
        by_kind: by kind of question (task and kind, where there are several tasks), where there are several.
        most_bits: the entropy of an even spread over the pool.
        wasted: the share of steps whose response cannot reach the answer; None where there is no step.
        dependence: whether the workflow depends on the question; None where that cannot be told.
    """

    whole: Group
    by_task: tuple[Group, ...]
    by_kind: tuple[Group, ...]
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
    tasks = list(dict.fromkeys(record.task for record in records))
    there = {(record.task, record.kind) for record in records if record.kind}
    order = in_order({kind for _, kind in there})
    kinds = sorted(there, key=lambda pair: (tasks.index(pair[0]), order.index(pair[1])))
    by_kind = [
        (
            kind if len(tasks) == 1 else f"{task} / {kind}",
            [one for one in records if (one.task, one.kind) == (task, kind)],
        )
        for task, kind in kinds
    ]
    names = _names(records, workers)
    return Routing(
        whole=group("all", records, names),
        by_task=tuple(group(task, [one for one in records if one.task == task], names) for task in tasks)
        if len(tasks) > 1
        else (),
        by_kind=tuple(group(name, of_one, names) for name, of_one in by_kind) if len(by_kind) > 1 else (),
        most_bits=math.log2(max(1, len(names))),
        wasted=share(_counted(records, lambda workflow: (len(unused_steps(workflow)), len(workflow)))),
        dependence=routing_dependence(records, seed=seed),
    )


def group(name: str, records: Sequence[Record], workers: Mapping[int, str]) -> Group:
    """The plans for some questions."""
    scores = scores_by_problem(records)
    mean = clustered_mean(list(scores.values())) if scores else None
    masked = sum(record.correct is None for record in records)
    shapes = _spread(records, lambda workflow: str(topology(workflow)))
    kinds = _spread(records, strategy)
    return Group(
        name=name,
        questions=len({(record.task, record.problem) for record in records}),
        accuracy=None if mean is None else Estimate(mean.mean, mean.low, mean.high, len(scores), masked),
        steps=_mean_steps(records),
        workers=_worker_shares(records, workers),
        topologies=shapes,
        strategies={one: kinds[one] for one in STRATEGIES if one in kinds},
        entropy=routing_entropy(records, len(workers)),
    )


def routing_entropy(records: Sequence[Record], workers: int) -> Estimate | None:
    """The entropy of the workers' shares over steps in bits, with a jackknife interval; None where there is no step."""
    by_question: dict[Key, Counter[int]] = {}
    for record in records:
        counts = by_question.setdefault((record.task, record.problem), Counter())
        counts.update(step.worker for workflow in record.workflows for step in workflow)
    played = [counts for counts in by_question.values() if counts]
    total: Counter[int] = Counter()
    for counts in played:
        total.update(counts)
    if not total:
        return None
    value = entropy_bits(total.values())
    without = [entropy_bits(total[worker] - counts[worker] for worker in total) for counts in played]
    _, low, high = jackknife_interval(value, without) if len(played) > 1 else (value, 0.0, math.inf)
    most = math.log2(max(2, workers, len(total)))
    return Estimate(value, max(0.0, min(low, value)), min(most, max(high, value)), len(played))


def _names(records: Iterable[Record], workers: Mapping[int, str]) -> dict[int, str]:
    """The pool's names, and numbers for those that it lacks."""
    used = {step.worker for record in records for workflow in record.workflows for step in workflow}
    return {ordinal: workers.get(ordinal, str(ordinal)) for ordinal in sorted({*workers, *used})}


def _worker_shares(records: Sequence[Record], workers: Mapping[int, str]) -> dict[str, Estimate]:
    found: dict[str, Estimate] = {}
    for ordinal, name in workers.items():
        one = share(_counted(records, lambda flow, it=ordinal: (sum(s.worker == it for s in flow), len(flow))))
        if one is not None:
            found[name] = one
    return found


def _spread(records: Sequence[Record], name_of: Callable[[Workflow], str]) -> dict[str, Estimate]:
    """Each name's share of the workflows, by name in order."""
    by_question: dict[Key, list[str]] = {}
    for record in records:
        names = by_question.setdefault((record.task, record.problem), [])
        names += [name_of(workflow) for workflow in record.workflows]
    found: dict[str, Estimate] = {}
    counted = {key: Counter(names) for key, names in by_question.items()}
    for name in sorted({name for names in by_question.values() for name in names}):
        one = share({key: (names[name], names.total()) for key, names in counted.items()})
        if one is not None:
            found[name] = one
    return found


def _counted(records: Iterable[Record], count: Callable[[Workflow], tuple[int, int]]) -> dict[Key, tuple[float, float]]:
    """What is counted of each question's workflows, added up."""
    found: dict[Key, tuple[float, float]] = {}
    for record in records:
        of_kind, everything = found.get((record.task, record.problem), (0.0, 0.0))
        for workflow in record.workflows:
            more, all_more = count(workflow)
            of_kind, everything = of_kind + more, everything + all_more
        found[record.task, record.problem] = (of_kind, everything)
    return found


def _mean_steps(records: Iterable[Record]) -> Estimate | None:
    by_question: dict[Key, list[int]] = {}
    for record in records:
        for workflow in record.workflows:
            by_question.setdefault((record.task, record.problem), []).append(len(workflow))
    if not by_question:
        return None
    means = [fmean(lengths) for lengths in by_question.values()]
    low, high = mean_interval(means) if len(means) > 1 else (1.0, max(map(max, by_question.values())) * 1.0)
    return Estimate(fmean(means), max(1.0, low), high, len(means))
