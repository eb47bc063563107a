"""The table: a row a system and task, differences against one row, as plain values.

In: Results. Out: a Table, whose ``to_json`` is ``table.json``; ``table_forms`` makes the other forms of it. Nothing in
it depends on when, where or in which order things were asked: latency stands in a file of its own (``latency``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from math import fsum, sqrt
from statistics import fmean

from openconductor.errors import ConfigError
from openconductor.evaluation.intervals import averaged_interval, p_of_interval
from openconductor.evaluation.records import MASKED, Record, Status
from openconductor.evaluation.results import Results
from openconductor.evaluation.specs import HINDSIGHT, read_spec
from openconductor.evaluation.statistics import (
    Difference,
    clustered_mean,
    difference,
    holm,
    pass_at_k,
    scores_by_problem,
)
from openconductor.measures import mean_steps, routing_entropy_bits
from openconductor.types import Usage

AVERAGE = "average"
"""The task of a system's row over all tasks, each weighing the same (as in the paper's tables)."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One system on one task.

    Attributes:
        system, task: their names.
        n: problems.
        k: repeats of each.
        accuracy: the mean over problems of the share of right answers among what was decided; None where nothing was.
        se: its standard error, clustered by problem.
        ci95: its 95 % interval.
        pass_at_k: the chance that one of k answers is right, over the problems whose k answers were all decided; None
            where k is 1 or there is no such problem.
        dollars_per_question: of a question asked once; None where the price of any call is not known.
        tokens_per_question, calls_per_question: read and written; attempts at workers and planner.
        right_per_dollar: right answers that a dollar buys; None where that is not known, or nothing was paid.
        validity: the share of planned first rounds that were workflows; None where no Conductor planned.
        accuracy_given_valid: the accuracy of these.
        routing_entropy_bits: of the workers' shares over steps; None where no step was played.
        mean_steps: steps a workflow; None where there is none.
        unparsed, invalid, refused: records that count as wrong, and why (``records.Status``).
        ungraded, failed: records that are masked, and why.
        masked: both together.
    """

    system: str
    task: str
    n: int
    k: int
    accuracy: float | None
    se: float | None
    ci95: Interval | None
    pass_at_k: float | None
    dollars_per_question: float | None
    tokens_per_question: float | None
    calls_per_question: float | None
    right_per_dollar: float | None
    validity: float | None
    accuracy_given_valid: float | None
    routing_entropy_bits: float | None
    mean_steps: float | None
    unparsed: int
    invalid: int
    refused: int
    ungraded: int
    failed: int
    masked: int


@dataclass(frozen=True, slots=True)
class Gap:
    """By how much a system is right more often than the one that it is compared with, on the same problems.

    ``p_holm`` is adjusted for all comparisons of the table, those over all tasks (``average``) among them.
    """

    system: str
    task: str
    difference: float
    ci95: Interval
    p: float
    p_holm: float
    problems: int
    better: int
    worse: int


@dataclass(frozen=True, slots=True)
class Table:
    """What ``table.json`` holds.

    Attributes:
        name: the evaluation's.
        setting: constrained or unconstrained.
        repeats: how often each question was asked.
        missing: records that a whole evaluation would have beyond these.
        rows: by system, then task; where there are several tasks, ``average`` last.
        against: the system that the others are compared with; None where there is no other.
        gaps: the others' differences from it.
        learning: what the workers were asked for trained baselines, and what that cost; None where nothing was.
    """

    name: str
    setting: str
    repeats: int
    missing: int
    rows: tuple[Row, ...]
    against: str | None = None
    gaps: tuple[Gap, ...] = ()
    learning: dict[str, object] | None = None

    def to_json(self) -> dict[str, object]:
        """The table as plain values; shares are fractions, what is not known is null."""
        return {
            "name": self.name,
            "setting": self.setting,
            "repeats": self.repeats,
            "missing": self.missing,
            "rows": [asdict(row) for row in self.rows],
            "against": self.against,
            "differences": [asdict(gap) for gap in self.gaps],
            "learning": self.learning,
        }

    def row(self, system: str, task: str) -> Row:
        """One row.

        Raises:
            KeyError: there is none.
        """
        for row in self.rows:
            if (row.system, row.task) == (system, task):
                return row
        raise KeyError((system, task))


def make_table(results: Results) -> Table:
    """The table of an evaluation.

    Raises:
        ConfigError: the recipe compares with a system that is not in it.
    """
    by_row = results.by_row()
    rows: list[Row] = []
    for system in results.systems:
        mine = [make_row(system, task, by_row[system, task], results.config.repeats) for task in results.tasks]
        rows += mine
        if len(mine) > 1:
            rows.append(_average(mine))
    against = against_in(results.systems, results.config.against) if len(results.systems) > 1 else None
    return Table(
        name=results.config.name,
        setting=results.config.setting,
        repeats=results.config.repeats,
        missing=results.missing,
        rows=tuple(rows),
        against=against,
        gaps=() if against is None else tuple(_gaps(results, by_row, against)),
        learning=_learning(results.learning),
    )


def against_in(systems: Sequence[str], named: str) -> str:
    """The system that the others are compared with; "" is the first.

    Raises:
        ConfigError: the one that is named is none of them, or is hindsight.
    """
    if not named:
        return next((system for system in systems if system != HINDSIGHT), systems[0])
    name = read_spec(named).name
    if name == HINDSIGHT:
        raise ConfigError(f"against: got {name!r}, which chose by the very answers; expected a system that answers")
    if name not in systems:
        raise ConfigError(f"against: got {name!r}, expected one of {', '.join(systems)}")
    return name


def make_row(system: str, task: str, records: Sequence[Record], repeats: int) -> Row:
    """One row; where there are no records, everything that they would say is None."""
    count = len(records)
    scores = list(scores_by_problem(records).values())
    mean = clustered_mean(scores) if scores else None
    planned = [record for record in records if record.valid is not None]
    valid = [record for record in planned if record.valid]
    given_valid = list(scores_by_problem(valid).values())
    enough = repeats > 1 and any(len(of_one) >= repeats for of_one in scores)
    workflows = [workflow for record in records for workflow in record.workflows]
    usage = sum((record.usage for record in records), Usage())
    dollars = None if usage.unpriced_calls or not count else usage.dollars / count
    status: Counter[Status] = Counter(record.status for record in records)
    return Row(
        system=system,
        task=task,
        n=len({record.problem for record in records}),
        k=repeats,
        accuracy=None if mean is None else mean.mean,
        se=None if mean is None else mean.se,
        ci95=None if mean is None else (mean.low, mean.high),
        pass_at_k=pass_at_k(scores, repeats).mean if enough else None,
        dollars_per_question=None if dollars is None else float(dollars),
        tokens_per_question=usage.tokens / count if count else None,
        calls_per_question=sum(record.calls for record in records) / count if count else None,
        right_per_dollar=None if mean is None or not dollars else float(Decimal(mean.mean) / dollars),
        validity=len(valid) / len(planned) if planned else None,
        accuracy_given_valid=clustered_mean(given_valid).mean if given_valid else None,
        routing_entropy_bits=routing_entropy_bits(workflows) if workflows else None,
        mean_steps=mean_steps(workflows),
        unparsed=status["unparsed"],
        invalid=status["invalid"],
        refused=status["refused"],
        ungraded=status["ungraded"],
        failed=status["failed"],
        masked=sum(status[one] for one in MASKED),
    )


def _average(rows: Sequence[Row]) -> Row:
    """The mean of a system's rows, each task weighing the same; counts are added up.

    A number is known only where it is known for every task. The tasks' problems are independent, so the variance of
    the mean is the sum of theirs over the square of their number (``intervals.averaged_interval``).
    """
    mean = _mean([row.accuracy for row in rows])
    se = sqrt(fsum(row.se**2 for row in rows if row.se is not None)) / len(rows) if mean is not None else None
    parts = [(row.accuracy, *row.ci95) for row in rows if row.accuracy is not None and row.ci95 is not None]
    dollars = _mean([row.dollars_per_question for row in rows])
    return Row(
        system=rows[0].system,
        task=AVERAGE,
        n=sum(row.n for row in rows),
        k=rows[0].k,
        accuracy=mean,
        se=se,
        ci95=averaged_interval(parts) if mean is not None else None,
        pass_at_k=_mean([row.pass_at_k for row in rows]),
        dollars_per_question=dollars,
        tokens_per_question=_mean([row.tokens_per_question for row in rows]),
        calls_per_question=_mean([row.calls_per_question for row in rows]),
        right_per_dollar=mean / dollars if mean is not None and dollars else None,
        validity=_mean([row.validity for row in rows]),
        accuracy_given_valid=_mean([row.accuracy_given_valid for row in rows]),
        routing_entropy_bits=_mean([row.routing_entropy_bits for row in rows]),
        mean_steps=_mean([row.mean_steps for row in rows]),
        unparsed=sum(row.unparsed for row in rows),
        invalid=sum(row.invalid for row in rows),
        refused=sum(row.refused for row in rows),
        ungraded=sum(row.ungraded for row in rows),
        failed=sum(row.failed for row in rows),
        masked=sum(row.masked for row in rows),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where one is not known."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _gaps(results: Results, by_row: Mapping[tuple[str, str], Sequence[Record]], against: str) -> list[Gap]:
    """Every system against one, task by task and over all. Hindsight chose by these very answers: no test fits it."""
    theirs = {task: scores_by_problem(by_row[against, task]) for task in results.tasks}
    seed = results.config.seed or 0
    found: list[tuple[str, str, Difference]] = []
    for system in results.systems:
        if system in (against, HINDSIGHT):
            continue
        compared = [
            (task, apart)
            for task in results.tasks
            if (apart := difference(scores_by_problem(by_row[system, task]), theirs[task], seed)) is not None
        ]
        found += [(system, task, apart) for task, apart in compared]
        if len(compared) == len(results.tasks) > 1:
            found.append((system, AVERAGE, _averaged([apart for _, apart in compared])))
    adjusted = holm([apart.p for _, _, apart in found])
    return [
        Gap(system, task, one.value, (one.low, one.high), one.p, p, one.problems, one.better, one.worse)
        for (system, task, one), p in zip(found, adjusted, strict=True)
    ]


def _averaged(by_task: Sequence[Difference]) -> Difference:
    """The mean of the differences of all tasks, each weighing the same."""
    value = fmean(one.value for one in by_task)
    low, high = averaged_interval([(one.value, one.low, one.high) for one in by_task])
    counts = (
        sum(one.problems for one in by_task),
        sum(one.better for one in by_task),
        sum(one.worse for one in by_task),
    )
    return Difference(value, low, high, p_of_interval(value, low, high), *counts)


def _learning(records: Sequence[Record]) -> dict[str, object] | None:
    if not records:
        return None
    usage = sum((record.usage for record in records), Usage())
    return {
        "questions": len({(record.task, record.problem) for record in records}),
        "records": len(records),
        "calls": sum(record.calls for record in records),
        "tokens": usage.tokens,
        "dollars": None if usage.unpriced_calls else float(usage.dollars),
    }
