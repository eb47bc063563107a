"""The table of an evaluation, its forms, and latencies.

In: Results. Out: a Table: a row a system and task, differences against one system; as JSON,
Markdown, CSV and LaTeX, the same bytes for the same records. Nothing in it depends on when or in
which order things were asked: latency is in a file of its own. Shares are fractions in CSV and
JSON, percent in Markdown and LaTeX; what is not known is empty, null or a dash, never 0.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from decimal import Decimal
from math import fsum, sqrt
from statistics import fmean
from typing import Any

from openconductor.evaluation.eval_config import (
    BOUNDS,
    GROUPS,
    HINDSIGHT,
    against_in,
    group_of,
    short_name,
)
from openconductor.evaluation.records import MASKED, Record, Results
from openconductor.evaluation.statistics import (
    Difference,
    averaged_interval,
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
UNKNOWN = "–"
MOST_CUT = 0.03  # of a system's answers, before that is worth a warning

_REASONS = ("unparsed", "invalid", "refused", "ungraded", "failed")

Interval = tuple[float, float]
Cells = Sequence[str]


@dataclass(frozen=True, slots=True)
class TableRow:
    """One system on one task; what is not known is None.

    Attributes:
        n, k: problems, and repeats of each.
        accuracy, se, ci95: the mean over problems of the share of right answers among what was
            decided, its standard error clustered by problem, its 95 % interval.
        pass_at_k: the chance that one of k answers is right, over the problems whose k answers were
            all decided.
        dollars_per_question, tokens_per_question, calls_per_question: of a question asked once.
        right_per_dollar: right answers that a dollar buys.
        validity, accuracy_given_valid: the share of planned first rounds that were workflows, and
            their accuracy.
        routing_entropy_bits, mean_steps: of the workers' shares over steps; steps a workflow.
        unparsed, invalid, refused: records that count as wrong, and why (``records.Status``).
        ungraded, failed, masked: records that are masked, and why; both together.
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
    routing_entropy_bits: float | None
    mean_steps: float | None
    unparsed: int
    invalid: int
    refused: int
    ungraded: int
    failed: int
    masked: int
    cut: int


@dataclass(frozen=True, slots=True)
class Gap:
    """By how much a system is right more often than the one that it is compared with, on the same problems.

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
    """What ``table.json`` holds.

    Attributes:
        missing: records that a whole evaluation would have beyond these.
        rows: by system, then task; where there are several tasks, ``average`` last.
        against: the system that the others are compared with; None where there is no other.
        gaps: the others' differences from it.
        learning: what the workers were asked for trained baselines, and what that cost; None where
            nothing was.
    """

    name: str
    setting: str
    repeats: int
    missing: int
    rows: tuple[TableRow, ...]
    against: str | None = None
    gaps: tuple[Gap, ...] = ()
    learning: dict[str, object] | None = None

    def to_json(self) -> dict[str, object]:
        """The table as plain values; shares are fractions, what is not known is null."""
        return {
            "differences" if name == "gaps" else name: value for name, value in asdict(self).items()
        }

    def row(self, system: str, task: str) -> TableRow:
        """One row; KeyError where there is none."""
        return {(row.system, row.task): row for row in self.rows}[system, task]


def make_table(results: Results) -> Table:
    """The table of an evaluation.

    Raises:
        ConfigError: the recipe compares with a system that is not in it.
    """
    by_row, config = results.by_row(), results.config
    rows: list[TableRow] = []
    for system in results.systems:
        mine = [
            make_row(system, task, by_row[system, task], config.repeats) for task in results.tasks
        ]
        rows += [*mine, _average(mine)] if len(mine) > 1 else mine
    against = against_in(results.systems, config.against) if len(results.systems) > 1 else None
    gaps = () if against is None else tuple(_gaps(results, by_row, against))
    learning, usage = results.learning, _used(results.learning)
    taught: dict[str, object] = {
        "questions": len({(record.task, record.problem) for record in learning}),
        "records": len(learning),
        "calls": sum(record.calls for record in learning),
        "tokens": usage.tokens,
        "dollars": None if usage.unpriced_calls else float(usage.dollars),
    }
    about = (config.name, config.setting, config.repeats, results.missing)
    return Table(*about, tuple(rows), against, gaps, taught if learning else None)


def make_row(system: str, task: str, records: Sequence[Record], repeats: int) -> TableRow:
    """One row; without records everything that they would say is None."""
    count = len(records)
    scores = list(scores_by_problem(records).values())
    mean, se, *ci95 = clustered_mean(scores) if scores else (None, None)
    planned = [record for record in records if record.valid is not None]
    given_valid = list(scores_by_problem(record for record in planned if record.valid).values())
    enough = repeats > 1 and any(len(of_one) >= repeats for of_one in scores)
    workflows = [workflow for record in records for workflow in record.workflows]
    usage = _used(records)
    dollars = None if usage.unpriced_calls or not count else usage.dollars / count
    status = Counter(str(record.status) for record in records)
    return TableRow(
        system=system,
        task=task,
        n=len({record.problem for record in records}),
        k=repeats,
        accuracy=mean,
        se=se,
        ci95=(ci95[0], ci95[1]) if ci95 else None,
        pass_at_k=pass_at_k(scores, repeats).mean if enough else None,
        dollars_per_question=None if dollars is None else float(dollars),
        tokens_per_question=usage.tokens / count if count else None,
        calls_per_question=sum(record.calls for record in records) / count if count else None,
        right_per_dollar=None if mean is None or not dollars else float(Decimal(mean) / dollars),
        validity=fmean(record.valid is True for record in planned) if planned else None,
        accuracy_given_valid=clustered_mean(given_valid).mean if given_valid else None,
        routing_entropy_bits=routing_entropy_bits(workflows) if workflows else None,
        mean_steps=mean_steps(workflows),
        masked=sum(status[one] for one in MASKED),
        cut=sum(record.cut for record in records),
        **{name: status[name] for name in _REASONS},
    )


def _average(rows: Sequence[TableRow]) -> TableRow:
    """The mean of a system's rows, each task weighing the same; counts are added up.

    A number is known only where it is known for every task. The tasks' problems are independent, so
    the variance of the mean is the sum of theirs over the square of their number.
    """
    values: dict[str, Any] = {
        "system": rows[0].system,
        "task": AVERAGE,
        "k": rows[0].k,
        "se": None,
        "ci95": None,
    }
    for name in (one.name for one in fields(TableRow) if one.name not in values):
        each = [getattr(row, name) for row in rows]
        values[name] = (
            sum(each)
            if name in ("n", "masked", "cut", *_REASONS)
            else None
            if None in each
            else fmean(each)
        )
    mean, dollars = values["accuracy"], values["dollars_per_question"]
    if mean is not None:
        values["se"] = sqrt(fsum(row.se**2 for row in rows if row.se is not None)) / len(rows)
        values["ci95"] = averaged_interval(
            [(row.accuracy or 0.0, *(row.ci95 or (0.0, 0.0))) for row in rows]
        )
    values["right_per_dollar"] = mean / dollars if mean is not None and dollars else None
    return TableRow(**values)


def _used(records: Sequence[Record]) -> Usage:
    return sum((record.usage for record in records), Usage())


def _gaps(
    results: Results, by_row: Mapping[tuple[str, str], Sequence[Record]], against: str
) -> list[Gap]:
    """Every system against one, task by task and over all. Hindsight chose by these very answers: no test fits it."""
    seed = results.config.seed or 0
    found: list[tuple[str, str, Difference]] = []
    for system in results.systems:
        if system not in (against, HINDSIGHT):
            rows = {task: (by_row[system, task], by_row[against, task]) for task in results.tasks}
            rows |= {AVERAGE: (results.of(system), results.of(against))} if len(rows) > 1 else {}
            compared = {
                task: one
                for task, (ours, theirs) in rows.items()
                if (one := difference(scores_by_problem(ours), scores_by_problem(theirs), seed))
                is not None
            }
            if len(compared) < len(rows):  # an average is known where all tasks are
                compared.pop(AVERAGE, None)
            found += [(system, task, one) for task, one in compared.items()]
    adjusted = holm([apart.p for _, _, apart in found])
    return [
        Gap(
            system,
            task,
            one.value,
            (one.low, one.high),
            one.p,
            p,
            one.problems,
            one.better,
            one.worse,
        )
        for (system, task, one), p in zip(found, adjusted, strict=True)
    ]


# ── as files ──────────────────────────────────────────────────────────────────────────────────────
def table_files(table: Table) -> dict[str, str]:
    """The text of each file of a table, by its name."""
    return {
        "table.json": json.dumps(table.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
        + "\n",
        "table.md": _markdown(table),
        "table.csv": _csv(table),
        "table.tex": _latex(table),
    }


def _markdown(table: Table) -> str:
    lines = [f"# {_plain(table.name)}", "", _about(table), ""]
    parts = [
        ("Accuracy", accuracy_grid(table)),
        ("Cost and form, a question", details(table)),
        (f"Against {table.against}", comparisons(table)),
    ]
    for title, (head, rows) in parts:
        if rows:
            lines += [f"## {_plain(title)}", ""]
            lines += [
                "| " + " | ".join(map(_plain, cells)) + " |"
                for cells in (head, ["---"] * len(head), *rows)
            ]
            lines.append("")
    return "\n".join(lines)


def _csv(table: Table) -> str:
    """Every row with every column, for programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head: list[object] = [one.name for one in fields(TableRow)]
    place = head.index("ci95")
    head[place : place + 1] = ["ci95_low", "ci95_high"]
    writer.writerow(head)
    for row in table.rows:
        cells: list[object] = list(astuple(row))
        cells[place : place + 1] = row.ci95 or (None, None)
        writer.writerow(cells)
    return out.getvalue()


def _latex(table: Table) -> str:
    """The tables of ``_markdown`` as ``tabular`` environments; needs the package booktabs.

    Systems are grouped under short names, and the best of each task is bold, bounds aside. What is
    the same for all is left out, and columns are close and their heads short, so that tables fit a
    page of one column.
    """
    accuracy: dict[str, dict[str, float]] = {}
    for row in table.rows:
        accuracy.setdefault(row.task, {})[row.system] = (
            -1.0 if row.accuracy is None else row.accuracy
        )
    best = [
        max((one[name] for name in one if name not in BOUNDS), default=1.0)
        for one in accuracy.values()
    ]
    lines, grid = [f"% {_tex(_about(table))}"], accuracy_grid(table)
    for head, rows in (grid, briefly(table), comparisons(table)):
        whole = head is grid[0] or len(rows) == 1
        kept = [
            place
            for place in range(len(head))
            if whole or not place or len({row[place] for row in rows}) > 1
        ]
        lines += _tabular([_NARROW.get(head[place], head[place]) for place in kept]) if rows else []
        for group in GROUPS:
            inside = [row for row in rows if group_of(row[0]) == group]
            lines += (
                ["\\midrule", f"\\multicolumn{{{len(kept)}}}{{l}}{{\\textit{{{group}}}}} \\\\"]
                if inside
                else []
            )
            for row in inside:
                _, *texts = (_tex(re.sub(r"(?<!\w)-(?=\d)", "−", row[place])) for place in kept)
                if head is grid[0] and row[0] not in BOUNDS:
                    found = zip(texts, accuracy.values(), best, strict=True)
                    texts = [
                        f"\\textbf{{{text}}}" if of[row[0]] == top else text
                        for text, of, top in found
                    ]
                lines.append(" & ".join([_tex(short_name(row[0])), *texts]) + " \\\\")
        lines += ["\\bottomrule", "\\end{tabular}}", ""] if rows else []
    return "\n".join(lines)


_NARROW = {"entropy, bits": "bits", "difference, points": "points", "no answer": "no ans."}


def _tabular(head: Cells) -> list[str]:
    named = sum(name in ("system", "task") for name in head)
    columns = "l" * named + "r" * (len(head) - named)
    close = "{\\footnotesize\\setlength{\\tabcolsep}{2pt}%"
    return [
        close,
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        " & ".join(map(_tex, head)) + " \\\\",
    ]


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
    "entropy, bits": ("routing_entropy_bits", ".2f"),
    "steps": ("mean_steps", ".2f"),
    **{name: (name, "") for name in (*_REASONS, "cut")},
}
"""The columns of ``details``: of each head its field, and how that is written."""


def accuracy_grid(table: Table) -> tuple[Cells, list[Cells]]:
    """Systems down, tasks across: percent, with the standard error."""
    tasks = list(dict.fromkeys(row.task for row in table.rows))
    shown: dict[str, list[str]] = {}
    for row in table.rows:  # by system, then task
        cell = (
            UNKNOWN
            if row.accuracy is None
            else f"{100 * row.accuracy:.1f} ± {100 * (row.se or 0.0):.1f}"
        )
        shown.setdefault(row.system, [row.system]).append(cell)
    return ["system", *(f"{task}, %" for task in tasks)], list(shown.values())


def details(table: Table) -> tuple[Cells, list[Cells]]:
    """What each row took, and of what form it was."""
    return [*_COLUMNS], [[_cell(row, head) for head in _COLUMNS] for row in table.rows]


def briefly(table: Table) -> tuple[Cells, list[Cells]]:
    """What of ``details`` fits on a terminal; ``no answer`` is unparsed, invalid and refused together."""
    heads = ("system", "task", "dollars", "tokens", "calls", "valid", "steps", "entropy, bits")
    rows: list[Cells] = [
        [
            *(_cell(row, head) for head in heads),
            *map(str, (row.unparsed + row.invalid + row.refused, row.masked, row.cut)),
        ]
        for row in table.rows
    ]
    return [*heads, "no answer", "masked", "cut"], rows


def cut_answers(results: Results) -> list[str]:
    """A warning for each system and task of whose answers more than a few percent were cut at a token limit."""
    counts = {
        row: (sum(one.cut for one in records), len(records))
        for row, records in results.by_row().items()
    }
    return [
        f"warning: {system} on {task}: in {cut} of {asked} answers a worker was cut at its token limit "
        f"({100 * cut / asked:.0f} %); a larger max_tokens would let it finish"
        for (system, task), (cut, asked) in counts.items()
        if cut > MOST_CUT * asked
    ]


def comparisons(table: Table) -> tuple[Cells, list[Cells]]:
    """Differences in points of percent, with what they are worth."""
    head = [
        "system",
        "task",
        "difference, points",
        "95 %",
        "p (Holm)",
        "better",
        "worse",
        "problems",
    ]
    rows: list[Cells] = [
        [
            *(gap.system, gap.task, f"{100 * gap.difference:+.1f}"),
            f"{100 * gap.ci95[0]:+.1f} to {100 * gap.ci95[1]:+.1f}",
            "<0.001" if gap.p_holm < 0.001 else f"{gap.p_holm:.3f}",
            *map(str, (gap.better, gap.worse, gap.problems)),
        ]
        for gap in table.gaps
    ]
    return head, rows


def _cell(row: TableRow, head: str) -> str:
    name, form = _COLUMNS[head]
    value = getattr(row, name)
    if value is None:
        return UNKNOWN
    if form == "percent":
        return f"{100 * value:.1f}"
    if form == "interval":
        return f"{100 * value[0]:.1f} to {100 * value[1]:.1f}"
    if form == "dollars":  # never as a power of ten
        return (
            "<0.000001"
            if 0 < value < 1e-6
            else f"{value:.4f}"
            if value >= 0.01
            else f"{value:.6f}"
            if value
            else "0"
        )
    return format(value, form)


def _about(table: Table) -> str:
    sizes: dict[str, int] = {}
    for row in table.rows:
        if row.task != AVERAGE:
            sizes[row.task] = max(
                row.n, sizes.get(row.task, 0)
            )  # a run that was stopped has fewer for some systems
    sized = ", ".join(f"{task} (n = {n})" for task, n in sizes.items())
    said = f"{table.setting.capitalize()}, k = {table.repeats}, {sized}. "
    said += "Standard errors and intervals are clustered by problem."
    if any(row.system == HINDSIGHT for row in table.rows):
        said += f" {HINDSIGHT} looks back at these very answers, luck included: a bound, not a system, and not compared."
    if table.missing:
        lack = "1 answer is" if table.missing == 1 else f"{table.missing} answers are"
        said += f" {lack} missing: the evaluation was stopped."
    return said


_MARKED = re.compile(r"[\\`*\[\]<|~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
"""What Markdown would read as more than itself; an underscore inside a word and a lone ampersand it does not."""


def _plain(text: str) -> str:
    return _MARKED.sub(lambda mark: f"\\{mark[0]}", " ".join(text.splitlines()))


_TEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {
        "\\": "\\textbackslash{}",
        "~": "\\textasciitilde{}",
        "^": "\\textasciicircum{}",
        "|": "\\textbar{}",
    }
    | {"<": "$<$", ">": "$>$", "±": "$\\pm$", "–": "--", "−": "$-$"}
    | {"[": "{[}"}  # behind a row's end it would begin an option
)


def _tex(text: str) -> str:
    return " ".join(text.splitlines()).translate(_TEX)
