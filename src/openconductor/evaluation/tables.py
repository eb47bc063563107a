"""The table of an evaluation, and its forms.

A Table has a row for each system and task, and the differences from one system. It is written as
JSON, Markdown and CSV: the same bytes for the same records. Nothing in it depends on when or in
which order things were asked; latency is in a file of its own. Shares are fractions in CSV and
JSON, percent in Markdown. Unknown values are empty, null or a dash, never 0.

Everything is computed without pandas, so that one system can be evaluated without the extra
``eval``.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from decimal import Decimal
from math import fsum, sqrt
from statistics import fmean, median
from typing import Any, NamedTuple, TypeVar

from openconductor.evaluation.eval_config import ALONE, HINDSIGHT, against_in
from openconductor.evaluation.records import MASKED, Record, Results
from openconductor.evaluation.statistics import (
    Difference,
    Estimate,
    averaged_interval,
    clustered_mean,
    difference,
    holm,
    pass_at_k,
    scores_by_problem,
)
from openconductor.measures import MOST_MASKED, group_by, mean_steps, routing_entropy_bits
from openconductor.types import Usage

AVERAGE = "average"
"""The task of a system's row over all tasks, each weighing the same (as in the paper's tables)."""
UNKNOWN = "–"
MOST_CUT = 0.03
"""The share of a system's answers that may be cut without a warning."""
MARK = "*"
"""Stands before an accuracy that leaves out more masked answers."""

_REASONS = ("unparsed", "invalid", "refused", "undecided", "ungraded", "failed", "judged")
_COUNTS = ("n", "masked", "cut", *_REASONS)

Number = TypeVar("Number", float, Decimal)
Interval = tuple[float, float]
Cells = Sequence[str]


@dataclass(frozen=True, slots=True)
class TableRow:
    """One system on one task; None: unknown.

    Attributes:
        n, k: problems, and repeats of each.
        accuracy, se, ci95: the mean over problems of the share of right answers among the decided
            ones, its standard error clustered by problem, its 95 % interval.
        pass_at_k: the chance that one of k answers is right, over the problems whose k answers were
            all decided.
        dollars_per_question, tokens_per_question, calls_per_question: of a question asked once.
        right_per_dollar: right answers that a dollar buys.
        validity, accuracy_given_valid: the share of planned first rounds that were workflows, and
            their accuracy.
        mended: the share of questions whose first round had no valid plan, which ``ask`` would have
            mended; a planner that did not answer counts here, too.
        routing_entropy_bits, mean_steps: of the workers' shares over steps; steps a workflow.
        unparsed, invalid, refused, undecided: records that count as wrong, by reason
            (``records.Status``).
        ungraded, failed, masked: records that are masked, by reason, and together.
        judged: records that a judge called right or wrong.
        cut: records in which a worker's answer was cut at its token limit; they are graded like all
            others.
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
    mended: float | None
    routing_entropy_bits: float | None
    mean_steps: float | None
    unparsed: int
    invalid: int
    refused: int
    undecided: int
    ungraded: int
    failed: int
    masked: int
    judged: int
    cut: int

    @property
    def decided(self) -> float:
        """The share of its answers that are not masked."""
        return 1 - self.masked / (self.n * self.k)

    @property
    def is_marked(self) -> bool:
        """True if more than ``MOST_MASKED`` of the answers are masked."""
        return self.masked > MOST_MASKED * self.n * self.k


@dataclass(frozen=True, slots=True)
class Gap:
    """The lead of a system over the one that it is compared with, on the same problems.

    ``p_holm`` is adjusted for all comparisons of the table, those over all tasks (``average``)
    among them.
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
    """The content of ``table.json``.

    Attributes:
        missing: records that a whole evaluation would have beyond these.
        rows: by system, then task; with several tasks, ``average`` last.
        against: the system that the others are compared with; None: there is no other.
        differences: the others' leads over it.
        learning: number and cost of the answers that trained baselines learnt from; None: none.
    """

    name: str
    setting: str
    repeats: int
    missing: int
    rows: tuple[TableRow, ...]
    against: str | None = None
    differences: tuple[Gap, ...] = ()
    learning: dict[str, object] | None = None

    def to_json(self) -> dict[str, object]:
        """Return plain values; shares are fractions, null is unknown."""
        return asdict(self)

    @property
    def best_worker(self) -> str:
        """The worker alone that is right most often, as a system; "": none was decided.

        Each task weighs the same. Masked answers count as wrong here, because no worker is the best
        one for answering little that can be decided.
        """
        right: dict[str, float] = {}
        for row in self.rows:
            is_worker = row.system.startswith(ALONE) and row.task != AVERAGE
            if is_worker and row.accuracy is not None:
                right[row.system] = right.get(row.system, 0.0) + row.accuracy * row.decided
        return max(right, key=lambda system: right[system], default="")

    def row(self, system: str, task: str) -> TableRow:
        """Return one row; KeyError if there is none."""
        return {(row.system, row.task): row for row in self.rows}[system, task]


def make_table(results: Results, against: str = "") -> Table:
    """Make the table of an evaluation.

    Args:
        results: the results of the evaluation.
        against: the system that the others are compared with; "": the recipe's, or the first.

    Raises:
        ConfigError: the recipe compares with a system that is not in it.
    """
    config = results.config
    compared = None
    gaps: list[Gap] = []
    if len(results.systems) > 1:
        compared = against_in(results.systems, against or config.against)
        gaps = _gaps(results, results.by_row(), compared)
    return Table(
        name=config.name,
        setting=config.setting,
        repeats=config.repeats,
        missing=results.missing,
        rows=tuple(make_rows(results)),
        against=compared,
        differences=tuple(gaps),
        learning=_learning(results.learning),
    )


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────
def make_rows(results: Results) -> list[TableRow]:
    """Make the rows of an evaluation: each system on each task, and on average over several."""
    records = results.by_row()
    rows: list[TableRow] = []
    for system in results.systems:
        own: list[TableRow] = []
        for task in results.tasks:
            row = make_row(system, task, records[system, task], results.config.repeats)
            own.append(row)
        rows += own
        if len(own) > 1:
            rows.append(_average(own))
    return rows


def make_row(system: str, task: str, records: Sequence[Record], repeats: int) -> TableRow:
    """Make one row; without records everything but the counts is None."""
    scores = list(scores_by_problem(records).values())
    accuracy = se = ci95 = None
    if scores:
        accuracy, se, low, high = clustered_mean(scores)
        ci95 = (low, high)
    most_decided = max((len(of_problem) for of_problem in scores), default=0)
    workflows = [workflow for record in records for workflow in record.workflows]
    planned = [record for record in records if record.valid is not None]
    valid = [record for record in planned if record.valid]
    with_planner = [record for record in records if record.rounds and record.rounds[0].planned]
    valid_scores = list(scores_by_problem(valid).values())
    usage = total_usage(records)
    dollars = None if usage.unpriced_calls else _share(usage.dollars, records)
    right_per_dollar = None
    if accuracy is not None and dollars:
        right_per_dollar = float(Decimal(accuracy) / dollars)
    status = Counter(record.status for record in records)
    return TableRow(
        system=system,
        task=task,
        n=len({record.problem for record in records}),
        k=repeats,
        accuracy=accuracy,
        se=se,
        ci95=ci95,
        pass_at_k=pass_at_k(scores, repeats).mean if 1 < repeats <= most_decided else None,
        dollars_per_question=None if dollars is None else float(dollars),
        tokens_per_question=_share(usage.tokens, records),
        calls_per_question=_share(sum(record.calls for record in records), records),
        right_per_dollar=right_per_dollar,
        validity=_share(len(valid), planned),
        accuracy_given_valid=clustered_mean(valid_scores).mean if valid_scores else None,
        mended=_share(sum(record.unplanned for record in with_planner), with_planner),
        routing_entropy_bits=routing_entropy_bits(workflows) if workflows else None,
        mean_steps=mean_steps(workflows),
        **{reason: status[reason] for reason in _REASONS},
        masked=sum(status[name] for name in MASKED),
        cut=sum(record.cut for record in records),
    )


def total_usage(records: Iterable[Record]) -> Usage:
    """Return the usage of all records together."""
    return sum((record.usage for record in records), Usage())


def _share(total: Number, records: Sequence[Record]) -> Number | None:
    """Return the part of a total that falls on one record; None: there are no records."""
    return total / len(records) if records else None


def _average(rows: Sequence[TableRow]) -> TableRow:
    """Return the mean of a system's rows, each task weighing the same; counts are added up.

    A number is known only if it is known for every task. The tasks' problems are independent, so
    the variance of the mean is the sum of theirs over the square of their number.
    """
    values: dict[str, Any] = asdict(rows[0])
    values["task"] = AVERAGE
    for name in values.keys() - {"system", "task", "k", "se", "ci95"}:
        column = [getattr(row, name) for row in rows]
        if name in _COUNTS:
            values[name] = sum(column)
        elif None in column:
            values[name] = None
        else:
            values[name] = fmean(column)
    values["se"] = values["ci95"] = values["right_per_dollar"] = None
    mean, dollars = values["accuracy"], values["dollars_per_question"]
    if mean is not None:
        errors = [row.se for row in rows if row.se is not None]
        accuracies = [Estimate(row.accuracy or 0.0, *(row.ci95 or (0, 0)), row.n) for row in rows]
        squares = fsum(error**2 for error in errors)
        values["se"] = sqrt(squares) / len(rows)
        values["ci95"] = averaged_interval(accuracies)
        if dollars:
            values["right_per_dollar"] = mean / dollars
    return TableRow(**values)


def _learning(records: Sequence[Record]) -> dict[str, object] | None:
    """Return number and cost of the answers that trained baselines learnt from."""
    if not records:
        return None
    usage = total_usage(records)
    return {
        "questions": len({record.key for record in records}),
        "records": len(records),
        "calls": sum(record.calls for record in records),
        "tokens": usage.tokens,
        "dollars": None if usage.unpriced_calls else float(usage.dollars),
    }


# ── costs for users ───────────────────────────────────────────────────────────────────────────────
class Cost(NamedTuple):
    """The cost of a question to a user, every task weighing the same; None: unknown.

    Attributes:
        dollars: US dollars.
        seconds: until the answer, in the median; of simulated workers the seconds of work.
        calls: calls of workers and planner.
    """

    dollars: float | None = None
    seconds: float | None = None
    calls: float | None = None


def user_costs(results: Results) -> dict[str, Cost]:
    """Return the cost of a question to each system that was asked, with the seconds of ``latency``.

    It is apart from ``make_table``, because times differ between runs with the same answers.
    """
    rows = results.by_row()
    costs: dict[str, Cost] = {}
    for system in results.systems:
        parts = [
            _task_cost(rows[system, task], simulated=results.config.simulated)
            for task in results.tasks
        ]
        costs[system] = Cost(*map(_mean_if_known, zip(*parts, strict=True)))
    return costs


def _task_cost(records: Sequence[Record], *, simulated: bool) -> Cost:
    if not records:
        return Cost()
    usage = total_usage(records)
    dollars = None if usage.unpriced_calls else float(usage.dollars) / len(records)
    calls = fmean(record.calls for record in records)
    if simulated:
        return Cost(dollars, usage.seconds / len(records), calls)
    return Cost(dollars, median(record.seconds for record in records), calls)


def _mean_if_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


# ── differences ───────────────────────────────────────────────────────────────────────────────────
def _gaps(
    results: Results, records: Mapping[tuple[str, str], Sequence[Record]], against: str
) -> list[Gap]:
    """Compare every system with one, task by task and over all.

    Hindsight is left out, because it chose by these answers: no test fits it.
    """
    compared: list[tuple[str, str, Difference]] = []
    for system in results.systems:
        if system not in (against, HINDSIGHT):
            for task, gap in _compare(results, records, system, against).items():
                compared.append((system, task, gap))
    adjusted = holm([gap.p for _, _, gap in compared])
    gaps: list[Gap] = []
    for (system, task, gap), p_holm in zip(compared, adjusted, strict=True):
        row = Gap(
            system=system,
            task=task,
            difference=gap.value,
            ci95=(gap.low, gap.high),
            p=gap.p,
            p_holm=p_holm,
            problems=gap.problems,
            better=gap.better,
            worse=gap.worse,
        )
        gaps.append(row)
    return gaps


def _compare(
    results: Results,
    records: Mapping[tuple[str, str], Sequence[Record]],
    system: str,
    against: str,
) -> dict[str, Difference]:
    """Compare two systems on each task, and on all if every task can be compared."""
    seed = results.config.seed or 0
    compared: dict[str, Difference] = {}
    for task in results.tasks:
        ours = scores_by_problem(records[system, task])
        theirs = scores_by_problem(records[against, task])
        gap = difference(ours, theirs, seed)
        if gap is not None:
            compared[task] = gap
    if 1 < len(results.tasks) == len(compared):
        ours = scores_by_problem(results.of(system))
        whole = difference(ours, scores_by_problem(results.of(against)), seed)
        assert whole is not None  # every task can be compared
        compared[AVERAGE] = whole
    return compared


# ── files ─────────────────────────────────────────────────────────────────────────────────────────
def table_files(table: Table) -> dict[str, str]:
    """Return the text of each file of a table, by its name."""
    text = json.dumps(table.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    return {"table.json": text + "\n", "table.md": _markdown(table), "table.csv": _csv(table)}


def _markdown(table: Table) -> str:
    lines = [f"# {_escaped(table.name)}", "", _about(table), ""]
    sections = [
        ("Accuracy", accuracy_grid(table)),
        ("Cost and form, a question", details(table)),
        (f"Against {table.against}", comparisons(table)),
    ]
    for title, (head, rows) in sections:
        if rows:
            lines += [f"## {_escaped(title)}", "", _markdown_line(head)]
            lines.append(_markdown_line(["---"] * len(head)))
            lines += [_markdown_line(row) for row in rows]
            lines.append("")
    return "\n".join(lines)


def _markdown_line(cells: Cells) -> str:
    return "| " + " | ".join(map(_escaped, cells)) + " |"


_SPECIAL = re.compile(r"[\\`*\[\]<|~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
"""Characters with a meaning in Markdown; an underscore inside a word and a lone & have none."""


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda mark: f"\\{mark[0]}", " ".join(text.splitlines()))


def _csv(table: Table) -> str:
    """Return every row with every column, for programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head: list[object] = [field.name for field in fields(TableRow)]
    place = head.index("ci95")
    head[place : place + 1] = ["ci95_low", "ci95_high"]
    writer.writerow(head)
    for row in table.rows:
        cells: list[object] = list(astuple(row))
        cells[place : place + 1] = row.ci95 or (None, None)
        writer.writerow(cells)
    return out.getvalue()


_COLUMNS = {
    **{name: (name, "") for name in ("system", "task", "n", "k")},
    "95 %": ("ci95", "interval"),
    "pass@k": ("pass_at_k", "percent"),
    "dollars": ("dollars_per_question", "dollars"),
    "tokens": ("tokens_per_question", ".0f"),
    "calls": ("calls_per_question", ".2f"),
    "right a dollar": ("right_per_dollar", ".1f"),
    "valid": ("validity", "percent"),
    "given valid": ("accuracy_given_valid", "percent"),
    "mended": ("mended", "percent"),
    "entropy, bits": ("routing_entropy_bits", ".2f"),
    "steps": ("mean_steps", ".2f"),
    **{name: (name, "") for name in (*_REASONS, "cut")},
}
"""The columns of ``details``: for each head its field, and the form of its values."""


def accuracy_grid(table: Table) -> tuple[Cells, list[Cells]]:
    """Return systems down, tasks across: percent, with the standard error, marked by ``MARK``."""
    tasks = list(dict.fromkeys(row.task for row in table.rows))
    lines: dict[str, list[str]] = {}
    for row in table.rows:  # by system, then task
        cell = UNKNOWN
        if row.accuracy is not None:
            cell = f"{100 * row.accuracy:.1f} ± {100 * (row.se or 0.0):.1f}"
        if row.is_marked:
            cell = f"{MARK} {cell}"
        lines.setdefault(row.system, [row.system]).append(cell)
    return ["system", *(f"{task}, %" for task in tasks)], list(lines.values())


def first_table(table: Table, results: Results) -> tuple[Cells, list[Cells]]:
    """Return ``accuracy_grid`` with the cost of a question to a user."""
    head, rows = accuracy_grid(table)
    costs = user_costs(results)
    priced: list[Cells] = []
    for system, *shares in rows:
        cost = costs[system]
        took = UNKNOWN if cost.seconds is None else f"{cost.seconds:.2f}"
        dollars = UNKNOWN if cost.dollars is None else _dollars(1000 * cost.dollars)
        priced.append([system, *shares, dollars, took])
    return [*head, "dollars a 1,000", "seconds"], priced


def details(table: Table) -> tuple[Cells, list[Cells]]:
    """Return cost and form of each row."""
    rows: list[Cells] = []
    for row in table.rows:
        rows.append([_cell(row, head) for head in _COLUMNS])
    return list(_COLUMNS), rows


def briefly(table: Table) -> tuple[Cells, list[Cells]]:
    """Return as much of ``details`` as fits on a terminal.

    ``no answer`` is unparsed, invalid and refused together.
    """
    heads = ("system", "task", "dollars", "tokens", "calls", "valid", "steps", "entropy, bits")
    rows: list[Cells] = []
    for row in table.rows:
        counts = (row.unparsed + row.invalid + row.refused, row.masked, row.cut)
        rows.append([*(_cell(row, head) for head in heads), *map(str, counts)])
    return [*heads, "no answer", "masked", "cut"], rows


def comparisons(table: Table) -> tuple[Cells, list[Cells]]:
    """Return differences in points of percent, with intervals and p-values."""
    heads = ("system", "task", "difference, points", "95 %", "p (Holm)")
    rows: list[Cells] = []
    for gap in table.differences:
        low, high = gap.ci95
        row = [
            gap.system,
            gap.task,
            f"{100 * gap.difference:+.1f}",
            f"{100 * low:+.1f} to {100 * high:+.1f}",
            "<0.001" if gap.p_holm < 0.001 else f"{gap.p_holm:.3f}",
            str(gap.better),
            str(gap.worse),
            str(gap.problems),
        ]
        rows.append(row)
    return [*heads, "better", "worse", "problems"], rows


def _cell(row: TableRow, head: str) -> str:
    name, form = _COLUMNS[head]
    value = getattr(row, name)
    if value is None:
        return UNKNOWN
    if form == "percent":
        return f"{100 * value:.1f}"
    if form == "interval":
        return f"{100 * value[0]:.1f} to {100 * value[1]:.1f}"
    if form == "dollars":
        return _dollars(value)
    return format(value, form)


def _dollars(value: float) -> str:
    """Write an amount, never as a power of ten."""
    if not value:
        return "0"
    if value < 1e-6:
        return "<0.000001"
    return f"{value:.4f}" if value >= 0.01 else f"{value:.6f}"


def _about(table: Table) -> str:
    """Return the sentences above a table."""
    sizes: dict[str, int] = {}
    for row in table.rows:
        if row.task != AVERAGE:
            # A run that was stopped has fewer questions for some systems.
            sizes[row.task] = max(row.n, sizes.get(row.task, 0))
    tasks = ", ".join(f"{task} (n = {n})" for task, n in sizes.items())
    text = f"{table.setting.capitalize()}, k = {table.repeats}, {tasks}. "
    text += "Standard errors and intervals are clustered by problem."
    if any(row.system == HINDSIGHT for row in table.rows):
        text += (
            f" {HINDSIGHT} looks back at these very answers, luck included: a bound, not a system, "
            "and not compared."
        )
    if table.missing:
        answers = "1 answer is" if table.missing == 1 else f"{table.missing} answers are"
        text += f" {answers} missing: the evaluation was stopped."
    warning = much_masked(table.rows)
    if warning:
        text += f"\n\n{_escaped(warning)}."
    return text


# ── warnings ──────────────────────────────────────────────────────────────────────────────────────
def much_masked(rows: Iterable[TableRow]) -> str:
    """Return a sentence on all accuracies that leave out many masked answers, the worst first.

    "" if there is none.
    """
    marked = [row for row in rows if row.is_marked and row.task != AVERAGE]
    if not marked:
        return ""
    marked.sort(key=lambda row: row.decided)
    counts = [f"{row.masked} of {row.n * row.k} by {row.system} on {row.task}" for row in marked]
    return (
        f"{MARK} More than {100 * MOST_MASKED:.0f} % of the answers are masked and in no average, "
        f"so the figure may be off by as much: {', '.join(counts)}"
    )


def invalid_plans(results: Results) -> list[str]:
    """Return a sentence for each system of which many plans were invalid and count as wrong."""
    sentences: list[str] = []
    for system, records in group_by(results.records, lambda record: record.system).items():
        invalid = sum(record.status == "invalid" for record in records)
        if invalid > MOST_MASKED * len(records):
            sentences.append(
                f"{system}: {invalid} of {len(records)} plans were invalid and count as wrong; "
                "`ask` and `serve` mend them, as --on-no-plan default_worker does here"
            )
    return sentences


def cut_answers(results: Results) -> list[str]:
    """Return a warning for each system and task that has many answers cut at a token limit."""
    warnings: list[str] = []
    for (system, task), records in results.by_row().items():
        cut = sum(record.cut for record in records)
        if cut > MOST_CUT * len(records):
            warnings.append(
                f"warning: {system} on {task}: in {cut} of {len(records)} answers a worker was cut "
                f"at its token limit ({100 * cut / len(records):.0f} %); a larger max_tokens would "
                "let it finish"
            )
    return warnings
