# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""One sheet of paper: panels, a title and a legend, laid out by matplotlib.

A figure is one column wide (3.5 inches). It is made without pyplot: no global state, no window, fit
for threads and servers. matplotlib is imported when a sheet is opened.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from openconductor.config import needing
from openconductor.evaluation.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 3.5  # inches: one column of a two-column page
LEGEND_LINE = 0.13  # inches
INK, GREY, FAINT = "#303030", "#8A8A8A", "#D9D9D9"
DOTTED = (0, (1, 1))
_STYLING = threading.RLock()
Look = dict[str, Any]
"""The look of a series: keyword arguments of matplotlib."""
Drawn: TypeAlias = "tuple[Figure, str] | str"
"""A figure and its caption, or in words why there is nothing to draw."""


@contextmanager
def styled() -> Generator[None]:
    """Draw in the style of ``paper.mplstyle``; the user's own settings of matplotlib stay the same.

    matplotlib keeps its settings for all threads together, so one thread draws at a time.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    with needing("plots", "plots"):
        from matplotlib import style

    paper = str(files("openconductor.plots").joinpath("paper.mplstyle"))
    with _STYLING, style.context(["default", paper]):
        yield


def opened(height: float, rows: int = 1, **more: Any) -> tuple[Figure, list[Axes]]:
    """Open an empty figure with panels below each other.

    Args:
        height: of all panels with their labels and the title, in inches.
        rows: the number of panels.
        more: other arguments of ``Figure.subplots``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(rows, squeeze=False, **more)
    return figure, list(panels.flat)


def in_words(why: str) -> Figure:
    """Make a figure that says why there is nothing to draw."""
    figure, (panel,) = opened(0.9)
    panel.set_axis_off()
    figure.text(0.02, 0.1, why, wrap=True)
    return figure


def finish(figure: Figure, title: str) -> None:
    """Add the title and a legend of all labels of all panels, and fix the layout."""
    figure.suptitle(title, x=0.02, ha="left")
    entries: dict[str, Any] = {}
    for panel in figure.axes:
        handles, names = panel.get_legend_handles_labels()
        entries |= zip(names, handles, strict=True)
    if entries:
        widest = max(len(name) for name in entries)
        columns = max(1, min(4, 72 // (9 + widest)))
        lines = -(-len(entries) // columns)  # rounded up
        figure.set_figheight(figure.get_figheight() + LEGEND_LINE * lines)
        place: Look = {"loc": "outside lower center", "ncols": columns}
        figure.legend(list(entries.values()), list(entries), **place)
    figure.draw_without_rendering()
    # A figure that is drawn again lays itself out again, not quite as before: two files of it would
    # differ.
    figure.set_layout_engine("none")


# ── parts of a panel ──────────────────────────────────────────────────────────────────────────────
def in_percent(panel: Axes, axis: Literal["x", "y"], label: str) -> None:
    """Write the fractions on an axis as percentages, and name it."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def percent(share: float, _: int | None = None) -> str:
        return f"{round(100 * share, 3) + 0:g}"

    ruler = panel.xaxis if axis == "x" else panel.yaxis
    ruler.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ruler.set_major_formatter(FuncFormatter(percent))
    ruler.set_label_text(label)


def in_rows(panel: Axes, names: Sequence[str], beside: Sequence[str] = ()) -> None:
    """Write names down the page, one at each whole number from 0, and texts at their right ends."""
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")
    if beside:
        right = panel.secondary_yaxis("right")
        right.set_yticks(range(len(beside)), beside)
        right.tick_params(length=0)
        right.spines["right"].set_visible(False)


def point(
    panel: Axes, x: float | Estimate, y: float | Estimate, look: Look, label: str = ""
) -> None:
    """Draw a point with its intervals, along each axis on which it is an estimate."""
    across, width = _with_ends(x)
    up, height = _with_ends(y)
    own: Look = {"zorder": 3, **look, "linestyle": "none", "elinewidth": 0.7, "label": label}
    panel.errorbar(across, up, xerr=width, yerr=height, **own)


def _with_ends(number: float | Estimate) -> tuple[float, list[list[float]] | None]:
    """Return a value, and its distances from the ends of its interval as matplotlib wants them."""
    if not isinstance(number, Estimate):
        return number, None
    below = max(0.0, number.value - number.low)
    above = max(0.0, number.high - number.value)
    return number.value, [[below], [above]]
