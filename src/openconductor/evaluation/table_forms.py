"""A table as files: Markdown, CSV, LaTeX and JSON, the same bytes for the same table.

In: a Table. Out: texts by the file's name. Shares are fractions in CSV and JSON, percent in Markdown and LaTeX; what is
not known is empty, null or a dash, never 0.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields

from openconductor.evaluation.specs import HINDSIGHT
from openconductor.evaluation.table import AVERAGE, Gap, Row, Table

UNKNOWN = "–"

Cells = Sequence[str]


def table_files(table: Table) -> dict[str, str]:
    """The text of each file of a table, by its name."""
    return {
        "table.json": json.dumps(table.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        "table.md": markdown(table),
        "table.csv": comma_separated(table),
        "table.tex": latex(table),
    }


def markdown(table: Table) -> str:
    """Three tables: accuracy as a grid, what it took and how it was formed, and differences where there are any."""
    lines = [f"# {_plain(table.name)}", "", _about(table), ""]
    parts = [
        ("Accuracy", accuracy_grid(table)),
        ("Cost and form, a question", details(table)),
        (f"Against {table.against}", comparisons(table)),
    ]
    for title, (head, rows) in parts:
        if rows:
            lines += [f"## {_plain(title)}", ""]
            lines += ["| " + " | ".join(map(_plain, cells)) + " |" for cells in (head, ["---"] * len(head), *rows)]
            lines.append("")
    return "\n".join(lines)


def comma_separated(table: Table) -> str:
    """Every row with every column, for programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [field.name for field in fields(Row)]
    place = names.index("ci95")
    writer.writerow([*names[:place], "ci95_low", "ci95_high", *names[place + 1 :]])
    for row in table.rows:
        values = list(astuple(row))
        values[place : place + 1] = ["", ""] if row.ci95 is None else row.ci95
        writer.writerow(["" if value is None else value for value in values])
    return out.getvalue()


def latex(table: Table) -> str:
    """The same three tables as ``tabular`` environments; needs the package booktabs."""
    lines = [f"% {_tex(_about(table))}"]
    for head, rows in (accuracy_grid(table), details(table), comparisons(table)):
        if rows:
            named = sum(name in ("system", "task") for name in head)
            columns = "l" * named + "r" * (len(head) - named)
            lines += [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", _tex_row(head), "\\midrule"]
            lines += [*map(_tex_row, rows), "\\bottomrule", "\\end{tabular}", ""]
    return "\n".join(lines)


# ── what stands in them ──────────────────────────────────────────────────────────────────────────────────────────────
def accuracy_grid(table: Table) -> tuple[Cells, list[Cells]]:
    """Systems down, tasks across: percent, with the standard error."""
    tasks = list(dict.fromkeys(row.task for row in table.rows))
    systems = list(dict.fromkeys(row.system for row in table.rows))
    rows: list[Cells] = [[system, *(_score(table.row(system, task)) for task in tasks)] for system in systems]
    return ["system", *(f"{task}, %" for task in tasks)], rows


def details(table: Table) -> tuple[Cells, list[Cells]]:
    """What each row took, and of what form it was."""
    head = [
        *("system", "task", "n", "k", "95 %", "pass@k", "dollars", "tokens", "calls", "right a dollar"),
        *("valid", "given valid", "entropy, bits", "steps"),
        *("unparsed", "invalid", "refused", "ungraded", "failed"),
    ]
    rows: list[Cells] = [
        [
            *(row.system, row.task, str(row.n), str(row.k), _interval(row), percent(row.pass_at_k)),
            *(_number(row.dollars_per_question, dollars), _number(row.tokens_per_question, lambda x: f"{x:.0f}")),
            *(
                _number(row.calls_per_question, lambda x: f"{x:.2f}"),
                _number(row.right_per_dollar, lambda x: f"{x:.1f}"),
            ),
            *(percent(row.validity), percent(row.accuracy_given_valid)),
            *(_number(value, lambda x: f"{x:.2f}") for value in (row.routing_entropy_bits, row.mean_steps)),
            *map(str, (row.unparsed, row.invalid, row.refused, row.ungraded, row.failed)),
        ]
        for row in table.rows
    ]
    return head, rows


def briefly(table: Table) -> tuple[Cells, list[Cells]]:
    """What of ``details`` fits on a terminal; ``no answer`` is unparsed, invalid and refused together."""
    head, rows = details(table)
    names = ("system", "task", "dollars", "tokens", "calls", "valid", "steps", "entropy, bits")
    places = [head.index(name) for name in names]
    counts = [[str(row.unparsed + row.invalid + row.refused), str(row.masked)] for row in table.rows]
    shown: list[Cells] = [
        [*(cells[place] for place in places), *of_row] for cells, of_row in zip(rows, counts, strict=True)
    ]
    return [*names, "no answer", "masked"], shown


def comparisons(table: Table) -> tuple[Cells, list[Cells]]:
    """Differences in points of percent, with what they are worth."""
    head = ["system", "task", "difference, points", "95 %", "p", "p (Holm)", "better", "worse", "problems"]
    return head, [_comparison(gap) for gap in table.gaps]


def _comparison(gap: Gap) -> Cells:
    low, high = gap.ci95
    return [
        *(gap.system, gap.task, f"{100 * gap.difference:+.1f}", f"{100 * low:+.1f} to {100 * high:+.1f}"),
        *(chance(gap.p), chance(gap.p_holm), str(gap.better), str(gap.worse), str(gap.problems)),
    ]


def percent(value: float | None) -> str:
    """A share in percent, with one decimal."""
    return _number(value, lambda x: f"{100 * x:.1f}")


def dollars(value: float) -> str:
    """Dollars of a question, never as a power of ten: from a cent on four decimals, below it six."""
    if 0 < value < 1e-6:
        return "<0.000001"
    return f"{value:.4f}" if value >= 0.01 else f"{value:.6f}" if value else "0"


def chance(p: float) -> str:
    """A p-value."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _about(table: Table) -> str:
    sizes: dict[str, int] = {}
    for row in table.rows:
        if row.task != AVERAGE:
            sizes[row.task] = max(row.n, sizes.get(row.task, 0))  # a run that was stopped has fewer for some systems
    sized = ", ".join(f"{task} (n = {n})" for task, n in sizes.items())
    parts = [f"{table.setting.capitalize()}, k = {table.repeats}, {sized}."]
    parts.append("Standard errors and intervals are clustered by problem.")
    if any(row.system == HINDSIGHT for row in table.rows):
        parts.append(
            f"{HINDSIGHT} looks back at these very answers, luck included: a bound, not a system, and not compared."
        )
    if table.missing:
        lack = "1 answer is" if table.missing == 1 else f"{table.missing} answers are"
        parts.append(f"{lack} missing: the evaluation was stopped.")
    return " ".join(parts)


def _score(row: Row) -> str:
    if row.accuracy is None or row.se is None:
        return UNKNOWN
    return f"{100 * row.accuracy:.1f} ± {100 * row.se:.1f}"


def _interval(row: Row) -> str:
    return UNKNOWN if row.ci95 is None else f"{100 * row.ci95[0]:.1f} to {100 * row.ci95[1]:.1f}"


def _number(value: float | None, form: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else form(value)


_MARKED = re.compile(r"[\\`*\[\]<|~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
"""What Markdown would read as more than itself; an underscore inside a word and a lone ampersand it does not."""


def _plain(text: str) -> str:
    return _MARKED.sub(lambda mark: f"\\{mark[0]}", " ".join(text.splitlines()))


def _tex_row(cells: Cells) -> str:
    return " & ".join(map(_tex, cells)) + " \\\\"


_TEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": "\\textbackslash{}",
        "~": "\\textasciitilde{}",
        "^": "\\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "|": "\\textbar{}",
        "[": "{[}",  # behind a row's end it would begin an option
        "±": "$\\pm$",
        "–": "--",
    }
)


def _tex(text: str) -> str:
    return " ".join(text.splitlines()).translate(_TEX)
