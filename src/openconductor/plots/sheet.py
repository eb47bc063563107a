# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""One sheet of paper: a title, panels, a legend, and a caption that says what was counted and how surely.

In: words and sizes. Out: a matplotlib Figure of one column's width (3.5 inches), as high as its words need. Made
without pyplot: no global state, no window, fit for threads and servers.

Needs the extra ``plots``; matplotlib is imported when a sheet is opened, not before.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from openconductor.plots.extra import require_extra
from openconductor.plots.looks import BLACK, GREY, INK, Look
from openconductor.plots.words import FONT, drawable

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

WIDTH = 3.5  # inches: one column of a two-column page
MARGIN = 0.06  # inches
TITLE, TEXT, SMALL = 8.0, 7.0, 6.2  # points
MESSAGE = "message"
"""The id of the text that stands in a figure in place of a drawing."""
_LINE = 1.28  # height of a line of text, in font sizes
_SCREEN = 300  # dots an inch, to measure words with
_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelsize": TEXT,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": TEXT,
    "axes.unicode_minus": True,
    "font.family": FONT,
    "font.size": TEXT,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",  # looks alike wherever it is opened
    "svg.hashsalt": "openconductor",  # else the ids in two equal figures differ
    "text.hinting": "none",
    "text.parse_math": False,  # a name with two dollar signs is no formula
    "xtick.color": INK,
    "xtick.labelsize": SMALL,
    "xtick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.color": INK,
    "ytick.labelsize": SMALL,
    "ytick.major.size": 2.5,
    "ytick.major.width": 0.6,
}
_STYLING = threading.RLock()


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend."""

    label: str
    look: Look
    shape: Literal["line", "point", "area"] = "line"


@contextmanager
def styled() -> Generator[None]:
    """Draw in the house's style, whatever the user's own settings of matplotlib are; they stay as they were.

    matplotlib keeps its settings for all threads together, so one thread draws at a time.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    require_extra()
    from matplotlib import style

    with _STYLING, style.context(["default", _STYLE]):
        yield


class Sheet:
    """A figure in the making: draw on ``panels``, then ``finish``.

    Args:
        title: what the figure shows, in a few words.
        height: of all panels with their tick labels, in inches.
        rows, columns: of the panels.
        heights: of the rows, relative to each other.
        share: whether panels above each other share their horizontal axis.
    """

    def __init__(
        self,
        title: str,
        *,
        height: float,
        rows: int = 1,
        columns: int = 1,
        heights: Sequence[float] | None = None,
        share: Literal["x", "y", ""] = "",
    ) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._title = title
        self._height = height
        self.figure = Figure(figsize=(WIDTH, height), dpi=_SCREEN)
        self._canvas = FigureCanvasAgg(self.figure)
        panels: Any = self.figure.subplots(
            rows, columns, squeeze=False, sharex=share == "x", sharey=share == "y", height_ratios=heights
        )
        self.panels: tuple[Axes, ...] = tuple(panels.flat)

    def finish(self, caption: str, keys: Sequence[Key] = ()) -> Figure:
        """Add title, legend and caption, make room for them, and fix the layout.

        Args:
            caption: what was counted, and what the intervals are.
            keys: the legend's entries.
        """
        title = self.wrapped(self._title, TITLE, "bold")
        words = self.wrapped(caption, SMALL)
        above = len(title) * TITLE * _LINE / 72 + 2 * MARGIN
        below = len(words) * SMALL * _LINE / 72 + 2 * MARGIN
        legend = self._legend(keys) if keys else None
        between = self._height_of(legend) if legend is not None else 0.0
        total = above + self._height + between + below
        self.figure.set_size_inches(WIDTH, total)
        self._write("title", title, total - MARGIN, TITLE, "bold", BLACK)
        self._write("caption", words, below - MARGIN, SMALL, "normal", INK)
        if legend is not None:
            legend.set_bbox_to_anchor((0.5, (below + between) / total), self.figure.transFigure)
        self._lay_out((0.0, (below + between) / total, 1.0, self._height / total))
        return self.figure

    def _write(self, gid: str, lines: Sequence[str], top: float, size: float, weight: str, colour: str) -> None:
        """Lines of text from the left margin; ``top`` is the height of the first one's top in inches."""
        high = self.figure.get_figheight()
        for number, line in enumerate(lines):
            middle = top - (number + 0.5) * size * _LINE / 72
            # Each line is a text of its own: matplotlib's spacing of several lines depends on their letters.
            text = self.figure.text(MARGIN / WIDTH, middle / high, line, fontsize=size, weight=weight, color=colour)
            text.set_verticalalignment("center_baseline")
            text.set_gid(f"{gid} {number}")

    def _lay_out(self, place: tuple[float, float, float, float]) -> None:
        """Put the panels into a rectangle (left, bottom, width, height), once and for all."""
        self.figure.set_layout_engine("constrained", rect=place, w_pad=MARGIN, h_pad=MARGIN / 2)
        self.figure.draw_without_rendering()
        # A figure that is drawn again lays itself out again, not quite as before: two files of it would differ.
        self.figure.set_layout_engine("none")

    def _legend(self, keys: Sequence[Key]) -> Legend:
        """The legend, in as many columns as there is room for, all of them about as long."""
        handles = [_handle(key) for key in keys]
        room = (WIDTH - 2 * MARGIN) * _SCREEN
        for columns in range(min(4, len(keys)), 0, -1):
            legend = self._legend_of(handles, keys, columns)
            if columns == 1 or legend.get_window_extent(self._canvas.get_renderer()).width <= room:
                down = -(-len(keys) // columns)
                legend.remove()
                return self._legend_of(handles, keys, -(-len(keys) // down))
            legend.remove()
        raise AssertionError("there is always one column")

    def _legend_of(self, handles: Sequence[Artist], keys: Sequence[Key], columns: int) -> Legend:
        legend = self.figure.legend(
            handles,
            [" "] * len(keys),  # the words come after: matplotlib leaves out labels that begin with an underscore
            loc="upper center",
            ncols=columns,
            borderpad=0.2,
            borderaxespad=0,
            columnspacing=1.2,
            handlelength=2.8,
            handletextpad=0.5,
            labelspacing=0.35,
        )
        for text, key in zip(legend.get_texts(), keys, strict=True):
            text.set_text(drawable(key.label))
        return legend

    def _height_of(self, legend: Legend) -> float:
        return float(legend.get_window_extent(self._canvas.get_renderer()).height) / _SCREEN

    def wrapped(self, text: str, size: float, weight: str = "normal") -> list[str]:
        """The text in lines that fit between the margins, measured in the font that they are drawn in."""
        from matplotlib.font_manager import FontProperties

        font = FontProperties(size=size, weight=weight)
        room = (WIDTH - 2 * MARGIN) * _SCREEN
        lines: list[str] = []
        for word in drawable(text).split():
            longer = f"{lines[-1]} {word}" if lines else word
            width, _, _ = self._canvas.get_renderer().get_text_width_height_descent(longer, font, ismath=False)
            if lines and width <= room:
                lines[-1] = longer
            else:
                lines.append(word)
        return lines


def in_words(title: str, message: str, caption: str = "") -> Figure:
    """A figure that says why there is nothing to draw, which an empty one would not."""
    with styled():
        sheet = Sheet(title, height=0.9)
        (panel,) = sheet.panels
        panel.set_axis_off()
        lines = sheet.wrapped(message, TEXT)
        panel.text(
            *(0.5, 0.5, "\n".join(lines)), ha="center", va="center", color=INK, gid=MESSAGE, transform=panel.transAxes
        )
        return sheet.finish(caption)


def title_of(figure: Figure) -> str:
    """The title of a figure of this shelf; "" where it has none."""
    return _text_of(figure, "title")


def caption_of(figure: Figure) -> str:
    """The caption of a figure of this shelf; "" where it has none."""
    return _text_of(figure, "caption")


def message_of(figure: Figure) -> str:
    """Why there is nothing to draw in a figure of this shelf; "" where something is drawn."""
    said = [text.get_text() for panel in figure.axes for text in panel.texts if text.get_gid() == MESSAGE]
    return " ".join(" ".join(said).split())


def _text_of(figure: Figure, gid: str) -> str:
    return " ".join(text.get_text() for text in figure.texts if str(text.get_gid()).startswith(gid))


def _handle(key: Key) -> Artist:
    """A small sample of a look for the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    one = key.look
    if key.shape == "area":
        return Patch(facecolor=one.colour, edgecolor=BLACK, linewidth=0.4, hatch=one.hatch or None)
    line = Line2D(
        [], [], color=one.colour, marker=one.marker or None, linestyle="none" if key.shape == "point" else "-"
    )
    if key.shape == "line" and one.dashes:
        line.set_linestyle((0, one.dashes))
    if one.hollow:
        line.set_markerfacecolor("none")
    return line
