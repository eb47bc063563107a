"""How long workflows are, by task and kind (like the paper's Figure 8).

In: the Conductor's records. Out: a Figure: one bar of shares a row, darker for longer, and the mean with its interval.
"""

from __future__ import annotations

from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING

from openconductor.evaluation.intervals import mean_interval
from openconductor.plots import marks
from openconductor.plots.iterations import FEWEST
from openconductor.plots.looks import Look, shade
from openconductor.plots.material import Material, Row, first_workflows, rows
from openconductor.plots.planned import caption_of, nothing
from openconductor.plots.sheet import Key, Sheet, in_words, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Length of workflows"
LONGEST = 7
"""Workflows of so many steps and more are drawn as one."""


def plot(results: Material) -> Figure:
    """Draw it; in words where no system planned a workflow."""
    why = nothing(results)
    if why:
        return in_words(TITLE, why)
    found = rows(results.by_system[results.ours or ""])
    counts = [lengths_of(row) for row in found]
    lengths = range(1, max(max(of_row, default=1) for of_row in counts) + 1)
    looks = [Look(shade((length - 1) / max(1, len(lengths) - 1) * 0.9)) for length in lengths]
    with styled():
        sheet = Sheet(TITLE, height=0.42 + 0.21 * len(found))
        (panel,) = sheet.panels
        for place, (row, of_row) in enumerate(zip(found, counts, strict=True)):
            total = of_row.total()
            if total:
                marks.segments(panel, place, [of_row[length] / total for length in lengths], looks, gid=row.name)
            marks.beside(panel, place, (_mean(row), f"{total:,}"), (36, 58))
        marks.headings(panel, ("mean steps", "n"), (36, 58))
        marks.rows_of_shares(panel, [row.name for row in found], "workflows (%)")
        more = "+" if len(lengths) == LONGEST else ""
        keys = [
            Key(f"{length}{more if length == LONGEST else ''} step{'s' if length > 1 else ''}", one, "area")
            for length, one in zip(lengths, looks, strict=True)
        ]
        return sheet.finish(
            caption_of(
                results,
                "±: half of the 95 % interval of the mean over questions; none where all are alike, or fewer than "
                f"{FEWEST}.",
            ),
            keys,
        )


def lengths_of(row: Row) -> Counter[int]:
    """How many of the first workflows of a row have each length; all from ``LONGEST`` on count as that."""
    return Counter(min(len(flow), LONGEST) for flows in first_workflows(row.records).values() for flow in flows)


def _mean(row: Row) -> str:
    """The mean length of a row, each question weighing the same, with half its interval where that says something."""
    means = [fmean(map(len, flows)) for flows in first_workflows(row.records).values() if flows]
    if not means:
        return "–"
    if len(set(means)) < 2 or len(means) < FEWEST:
        return f"{fmean(means):.1f}"
    low, high = mean_interval(means)
    return f"{fmean(means):.1f} ± {(high - low) / 2:.1f}"
