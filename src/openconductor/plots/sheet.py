# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""One sheet of paper: a title, panels, a legend, and a caption that says what was counted and how surely.

In: words and sizes. Out: a matplotlib Figure of one column's width (3.5 inches), as high as its words need. Made
without pyplot: no global state, no window, fit for threads and servers. matplotlib is imported when a sheet is opened.
"""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from openconductor.evaluation.statistics import Estimate

WIDTH = 3.5  # inches: one column of a two-column page
INK, GREY, FAINT = "#303030", "#8A8A8A", "#D9D9D9"
_SMALL, _TITLE = 6.2, 8.0  # points
_STYLING = threading.RLock()
Look = dict[str, Any]
"""How a series is drawn: keyword arguments of matplotlib."""
Drawn: TypeAlias = "tuple[Figure, str] | str"
"""What is drawn and its caption, or in words why there is nothing to draw."""


@contextmanager
def styled() -> Generator[None]:
    """Draw in the style of ``paper.mplstyle``, whatever the user's own settings of matplotlib are; they stay the same.

    matplotlib keeps its settings for all threads together, so one thread draws at a time.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib import style
    except ImportError as error:
        install = 'pip install "openconductor[plots]"'
        raise ConfigError(f"plots: {error}; expected the extra 'plots' to be installed: {install}") from error

    with _STYLING, style.context(["default", str(files("openconductor.plots").joinpath("paper.mplstyle"))]):
        yield


def opened(height: float, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Figure, list[Axes]]:
    """An empty figure with panels.

    Args:
        height: of all panels with their tick labels, in inches.
        rows: of panels.
        columns: of panels.
        more: other arguments of ``Figure.subplots``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(rows, columns, squeeze=False, **more)
    return figure, list(panels.flat)


def blank() -> Figure:
    """A figure that holds nothing, for words alone."""
    figure, (panel,) = opened(0.2)
    panel.set_axis_off()
    return figure


def finish(figure: Figure, title: str, caption: str) -> None:
    """Add title, legend (of all labels of all panels) and caption, make room for them, and fix the layout."""
    texts = textwrap.fill(title, 50), textwrap.fill(caption, 74)
    above, below = (
        (text.count("\n") + 1) * size * 1.35 / 72 + 0.08 for text, size in zip(texts, (_TITLE, _SMALL), strict=True)
    )
    entries = [entry for panel in figure.axes for entry in zip(*panel.get_legend_handles_labels(), strict=True)]
    legend, between = None, 0.0
    if entries:
        longest = max(len(label) for _, label in entries)
        rows = -(-len(entries) // max(1, min(4, int(242 / (32 + 3.6 * longest)))))  # points: a sample 32, a letter 3.6
        legend = figure.legend(*zip(*entries, strict=True), loc="lower center", ncols=-(-len(entries) // rows))
        legend.set_in_layout(False)
        between = legend.get_window_extent().height / figure.dpi
    total = figure.get_figheight() + above + below + between
    figure.set_figheight(total)
    figure.text(0.02, 1 - 0.04 / total, texts[0], fontsize=_TITLE, weight="bold", va="top")
    figure.text(0.02, (below - 0.04) / total, texts[1], fontsize=_SMALL, color=INK, va="top")
    if legend is not None:
        legend.set_bbox_to_anchor((0.5, below / total), figure.transFigure)
    place = (0.0, (below + between) / total, 1.0, 1 - (above + below + between) / total)
    figure.set_layout_engine("constrained", rect=place)
    figure.draw_without_rendering()
    # A figure that is drawn again lays itself out again, not quite as before: two files of it would differ.
    figure.set_layout_engine("none")


# ── what several figures need of a panel ─────────────────────────────────────────────────────────────────────────────
def in_percent(panel: Axes, axis: Literal["x", "y"], label: str) -> None:
    """Fractions on an axis are written as percentages, with no more digits than they have, and a true minus sign."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def percent(share: float, _: int | None = None) -> str:
        return f"{round(100 * share, 3) + 0:g}".replace("-", "−")

    one = panel.xaxis if axis == "x" else panel.yaxis
    one.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    one.set_major_formatter(FuncFormatter(percent))
    one.set_label_text(label)


def in_rows(panel: Axes, names: Sequence[str]) -> None:
    """Names down the page, one at each whole number from 0."""
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")


def aside(panel: Axes, end: float, heading: str, texts: Sequence[str]) -> None:
    """A column of short texts to the right of the panel's rows, which ends some points from the panel's edge."""
    own: Look = {"textcoords": "offset points", "ha": "right", "fontsize": _SMALL}
    panel.annotate(heading, (1.0, 1.0), xycoords="axes fraction", xytext=(end, 2), va="bottom", color=GREY, **own)
    for place, text in enumerate(texts):
        beside = panel.get_yaxis_transform()
        panel.annotate(text, (1.0, place), xycoords=beside, xytext=(end, 0), va="center", color=INK, **own)


def point(panel: Axes, x: float | Estimate, y: float | Estimate, look: Look, label: str = "") -> None:
    """A point with its intervals, along each axis on which it is an estimate."""
    places, ends = list[float](), list[list[list[float]] | None]()
    for one in (x, y):
        flat = isinstance(one, int | float)
        places.append(one if flat else one.value)
        ends.append(None if flat else [[max(0.0, one.value - one.low)], [max(0.0, one.high - one.value)]])
    own: Look = {"zorder": 3, **look, "linestyle": "none", "elinewidth": 0.7, "label": label}
    panel.errorbar(*places, xerr=ends[0], yerr=ends[1], **own)
