# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""What is drawn on a panel: points with intervals, levels, stacked bars, heat maps, axes in percent.

In: a panel, numbers, looks. Out: marks on the panel. Shares stay fractions; only the axes speak of percent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from openconductor.plots.looks import FAINT, GREY, INK, Look, ink_on, shade
from openconductor.plots.sheet import SMALL, TEXT
from openconductor.plots.words import drawable, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from openconductor.evaluation.statistics import Estimate

TINY = 5.2  # points: numbers inside of bars and cells


def point(
    panel: Axes,
    x: float,
    y: float,
    one: Look,
    *,
    gid: str,
    across: tuple[float, float] | None = None,
    along: tuple[float, float] | None = None,
) -> None:
    """A point with its intervals: ``along`` from low to high in y, ``across`` in x."""
    panel.errorbar(
        [x],
        [y],
        xerr=_reach(x, across),
        yerr=_reach(y, along),
        fmt=one.marker or "o",
        color=one.colour,
        markerfacecolor="none" if one.hollow else one.colour,
        markeredgecolor=one.colour,
        markeredgewidth=0.8,
        markersize=6.0 if one.marker == "*" or one.hollow else 4.2,
        elinewidth=0.7,
        capsize=1.6,
        capthick=0.7,
        zorder=4 if one.marker == "*" else 3,
    ).lines[0].set_gid(gid)


def level(panel: Axes, y: float, one: Look, *, gid: str) -> None:
    """A thin horizontal line all across: a level to hold curves against."""
    panel.axhline(
        y, color=one.colour, linestyle=(0, one.dashes or (3.0, 2.0)), linewidth=0.7, alpha=0.75, zorder=1, gid=gid
    )


def span(panel: Axes, low: float, high: float, *, gid: str) -> None:
    """A pale band all across, from one height to another."""
    panel.axhspan(low, high, color=FAINT, alpha=0.6, linewidth=0, zorder=0, gid=gid)


def strip(panel: Axes, left: float, right: float) -> None:
    """Set the panel's right part apart: it has no place on the axis below, which ends where the strip begins."""
    from matplotlib.ticker import FixedLocator

    start, _ = panel.get_xlim()
    panel.xaxis.set_major_locator(FixedLocator([tick for tick in panel.get_xticks() if start <= tick <= left]))
    panel.axvspan(left, right, color="#F4F4F4", linewidth=0, zorder=-1, gid="strip")
    panel.set_xlim(start, right)


def upright(panel: Axes, x: float, one: Look, *, gid: str) -> None:
    """A vertical line all across: a level to hold bars against."""
    panel.axvline(
        x, color=one.colour, linestyle=(0, one.dashes) if one.dashes else "-", linewidth=0.8, zorder=2, gid=gid
    )


def stairs(panel: Axes, xs: Sequence[float], ys: Sequence[float], *, gid: str) -> None:
    """A line that keeps its height until the next point."""
    panel.plot(xs, ys, drawstyle="steps-post", color=GREY, linewidth=1.0, zorder=1, gid=gid)


def gain(panel: Axes, place: float, estimate: Estimate, top: float, looks: tuple[Look, Look], *, gid: str) -> None:
    """A bar from 0 to an estimate with its interval, and a pale one from there up to ``top``: what is missing."""
    one, missing = looks
    if estimate.value < top:
        panel.barh(
            place, top - estimate.value, left=estimate.value, height=0.66, color=missing.colour, gid=f"{gid}: regret"
        )
    panel.barh(
        place,
        estimate.value,
        height=0.66,
        color=one.colour,
        hatch=one.hatch or None,
        edgecolor="white",
        linewidth=0,
        gid=f"{gid}: gain",
    )
    panel.errorbar(
        [estimate.value],
        [place],
        xerr=_reach(estimate.value, ends(estimate)),
        fmt="none",
        ecolor=INK,
        elinewidth=0.8,
        capsize=1.8,
        capthick=0.8,
        zorder=4,
    )


def segments(panel: Axes, place: float, shares: Sequence[float], looks: Sequence[Look], *, gid: str) -> None:
    """One horizontal bar of shares side by side, with the percentage written into each that has the room."""
    start = 0.0
    for index, (part, one) in enumerate(zip(shares, looks, strict=True)):
        panel.barh(
            place,
            part,
            left=start,
            height=0.72,
            color=one.colour,
            edgecolor=INK,
            linewidth=0.3,
            hatch=one.hatch or None,
            gid=f"{gid}: {index}",
        )
        if part >= 0.08:
            box = {"boxstyle": "square,pad=0.12", "facecolor": one.colour, "edgecolor": "none"} if one.hatch else None
            panel.text(
                start + part / 2,
                place,
                f"{100 * part:.0f}",
                ha="center",
                va="center",
                fontsize=TINY,
                color=ink_on(one.colour),
                bbox=box,
            )
        start += part


def heat(panel: Axes, cells: Sequence[Sequence[float | None]], *, top: float, gid: str) -> None:
    """A heat map of shares, each written into its cell in percent; a cell without a number is a dash on grey.

    Args:
        panel: where to draw.
        cells: row by row.
        top: the share that is darkest.
        gid: names the cells: ``<gid>: <row>, <column>``.
    """
    from matplotlib.patches import Rectangle

    for down, row in enumerate(cells):
        for over, value in enumerate(row):
            colour = FAINT if value is None else shade(value / (top or 1.0))
            cell = Rectangle((over - 0.5, down - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.5)
            cell.set_gid(f"{gid}: {down}, {over}")
            panel.add_patch(cell)
            text = "–" if value is None else f"{100 * value:.0f}"
            panel.text(over, down, text, ha="center", va="center", fontsize=TINY + 0.6, color=ink_on(colour))
    panel.set_xlim(-0.5, len(cells[0]) - 0.5)
    panel.grid(visible=False)


def percent(panel: Axes, axis: Literal["x", "y"], label: str) -> None:
    """Fractions on an axis are written as percentages."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    one = panel.xaxis if axis == "x" else panel.yaxis
    one.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    one.set_major_formatter(FuncFormatter(_percent))
    label_axis(panel, axis, label)


def logarithmic(panel: Axes, axis: Literal["x", "y"], label: str) -> None:
    """A logarithmic axis whose numbers are written out (0.0002, 30, 5k); for x its range is that of the data."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    (panel.set_xscale if axis == "x" else panel.set_yscale)("log")
    low, high = panel.get_xlim() if axis == "x" else panel.get_ylim()
    one = panel.xaxis if axis == "x" else panel.yaxis
    narrow = math.log10(high / low) < 1.6
    one.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,), numticks=7))
    one.set_major_formatter(FuncFormatter(_written_out))
    one.set_minor_formatter(NullFormatter())
    label_axis(panel, axis, label)


def rows_of_shares(panel: Axes, texts: Sequence[str], label: str) -> None:
    """The axes of horizontal bars that each add up to one."""
    names(panel, "y", texts)
    percent(panel, "x", label)
    panel.set_xlim(0, 1)
    panel.spines["left"].set_visible(False)


def from_zero(panel: Axes) -> None:
    """The axis y begins a little below 0, so that a marker at 0 is whole."""
    top = panel.get_ylim()[1]
    panel.set_ylim(-0.03 * top, top)


def label_axis(panel: Axes, axis: Literal["x", "y"], label: str) -> None:
    """Name an axis, with its unit."""
    (panel.set_xlabel if axis == "x" else panel.set_ylabel)(label)


def whole_numbers(panel: Axes) -> None:
    """Only whole numbers along x."""
    from matplotlib.ticker import MaxNLocator

    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def names(panel: Axes, axis: Literal["x", "y"], texts: Sequence[str], *, slanted: bool = False) -> None:
    """Names along an axis at 0, 1, 2 …; down the page along y, and along x slanted where they are too long."""
    places = range(len(texts))
    shown = [drawable(text) for text in texts]
    if axis == "y":
        panel.set_yticks(places, shown)
        panel.set_ylim(len(texts) - 0.5, -0.5)
        panel.tick_params(axis="y", length=0)
        panel.grid(visible=False, axis="y")
    else:
        panel.set_xticks(places, shown)
        if slanted:
            for text in panel.get_xticklabels():
                text.set(rotation=40, horizontalalignment="right", rotation_mode="anchor")
        panel.tick_params(axis="x", length=0)


def beside(panel: Axes, place: float, texts: Sequence[str], ends_at: Sequence[float]) -> None:
    """Short texts to the right of a row, outside of the panel; each ends so many points from the panel's edge."""
    for text, end in zip(texts, ends_at, strict=True):
        panel.annotate(
            drawable(text),
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(end, 0),
            textcoords="offset points",
            ha="right",
            va="center_baseline",
            fontsize=SMALL - 0.4,
            color=INK,
        )


def headings(panel: Axes, texts: Sequence[str], ends_at: Sequence[float]) -> None:
    """What the texts of ``beside`` are, above them."""
    for text, end in zip(texts, ends_at, strict=True):
        panel.annotate(
            text,
            (1.0, 1.0),
            xycoords="axes fraction",
            xytext=(end, 2),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=SMALL - 0.4,
            color=GREY,
        )


def headline(panel: Axes, text: str) -> None:
    """A short title of one panel among several."""
    panel.set_title(drawable(text), fontsize=TEXT, loc="left", color=INK, pad=3)


def gaps(values: Sequence[float | None]) -> list[float]:
    """The values, with NaN for what is not known: matplotlib leaves a gap there."""
    return [math.nan if value is None else value for value in values]


def ends(estimate: Estimate) -> tuple[float, float]:
    """The interval of an estimate."""
    return estimate.low, estimate.high


def _reach(value: float, interval: tuple[float, float] | None) -> list[list[float]] | None:
    """How far an interval goes to either side, as matplotlib wants it."""
    if interval is None:
        return None
    return [[max(0.0, value - interval[0])], [max(0.0, interval[1] - value)]]


def _percent(share: float, _: int | None = None) -> str:
    """A fraction in percent, with no more digits than it has."""
    return signed(100 * share, 2).rstrip("0").rstrip(".")


def _written_out(value: float, _: int | None = None) -> str:
    """A number as people write it.

    >>> [_written_out(value) for value in (0.00002, 0.5, 20, 5000, 2e6)]
    ['0.00002', '0.5', '20', '5k', '2M']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.12f}".rstrip("0").rstrip(".") if value < 1 else f"{value:g}"
