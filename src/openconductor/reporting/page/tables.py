"""Tables of the page, and the small drawings of intervals within them.

In: grids of texts, estimates. Out: elements. Every table has a caption and headings of rows and columns; one that is
wider than the screen scrolls by itself, by keyboard as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from openconductor.evaluation.statistics import Estimate
from openconductor.reporting.page.elements import Child, element
from openconductor.reporting.routing import Group
from openconductor.reporting.sections import Grid
from openconductor.reporting.words import NOTHING, interval, percent

_WITH_INTERVAL = re.compile(r"(\S+(?: %)?) \((\S+ to \S+)\)")
_SIGNED = re.compile(r"[+-]\d+\.\d")
_ENDS = re.compile(r"([+-]\d+\.\d) to ([+-]\d+\.\d)")
SHADES = 6
"""How many shades of a cell there are; the style sheet has a class for each."""


def table(
    caption: str,
    head: Sequence[Child],
    rows: Iterable[Element],
    *,
    words: Iterable[int] = (0,),
    class_: str | None = None,
    titled: bool = False,
) -> Element:
    """A table in a frame that scrolls.

    Args:
        caption: what it shows.
        head: the headings of the columns; an empty one is no heading.
        rows: its rows, made by ``row``.
        words: the columns that hold words, which stand to the left.
        class_: of the table.
        titled: whether a heading above says the same as the caption, which is then for readers aloud alone.
    """
    left = set(words)
    headings = [
        element("td") if heading == "" else element("th", heading, scope="col", class_=_side(place, left))
        for place, heading in enumerate(head)
    ]
    made = element(
        "table",
        element("caption", caption, class_="aloud" if titled else None),
        element("thead", element("tr", *headings)),
        element("tbody", *rows),
        class_=class_,
    )
    return element("div", made, class_="scroll", role="region", tabindex="0", aria_label=caption)


def row(cells: Sequence[Child], *, words: Iterable[int] = (0,), class_: str | None = None) -> Element:
    """A row; its first cell is its heading. Cells that are elements are taken as they are.

    Of a figure with its interval in brackets, the interval stands below the figure.
    """
    left = set(words)
    made = [
        cell
        if isinstance(cell, Element)
        else element("th", cell, scope="row", class_="words")
        if place == 0
        else element("td", cell, class_="words")
        if place in left
        else element("td", *_figure(cell))
        for place, cell in enumerate(cells)
    ]
    return element("tr", *made, class_=class_)


def of_grid(caption: str, grid: Grid) -> Element:
    """The table of a section; where it has signed differences with intervals, these are drawn beside it."""
    head, rest = _drawn_differences(grid)
    rows = [
        row([*cells, *drawings], words=grid.words, class_="ours" if place == grid.marked else None)
        for place, (cells, drawings) in enumerate(zip(grid.rows, rest, strict=True))
    ]
    return table(caption, [*grid.head, *head], rows, words=grid.words, titled=True)


def facts(pairs: Iterable[tuple[str, Child]]) -> Element:
    """Names and what they are, as a list."""
    return element(
        "dl", *(element("div", element("dt", name), element("dd", value)) for name, value in pairs), class_="facts"
    )


def drawn(one: Estimate, held: float | None = None) -> Element:
    """A cell that shows a share on a scale from 0 to 1: its interval as a bar, itself as a stroke.

    Args:
        one: the share; it stands in words beside the drawing, so readers aloud skip this cell.
        held: a level to hold it against, drawn as a thin line.
    """
    return _drawn((one.low, one.value, one.high), (0.0, 1.0), held)


def ticks(*labels: str) -> Element:
    """The heading of a column of drawings: what its left end, its middle, its right end are."""
    return element("span", *(element("span", label) for label in labels), class_="ticks")


def shares_of_workers(caption: str, groups: Sequence[Group]) -> Element:
    """Who gets how much of the work: a row a group of questions, a column a worker, darker for more."""
    workers = list(dict.fromkeys(name for group in groups for name in group.workers))
    rows = [
        row(
            [
                group.name,
                f"{group.questions:,}",
                *(_shaded(group.workers.get(worker)) for worker in workers),
            ],
            class_="ours" if place == 0 else None,
        )
        for place, group in enumerate(groups)
    ]
    return table(caption, ["", "questions", *workers], rows, class_="shares")


def _shaded(one: Estimate | None) -> Element:
    if one is None:
        return element("td", NOTHING)
    shade = min(SHADES - 1, int(one.value * SHADES))
    return element("td", percent(one), element("small", interval(one)), class_=f"shade-{shade}")


def _drawn_differences(grid: Grid) -> tuple[list[Element], list[list[Element]]]:
    """A heading and a cell a row that draw the first signed figures with intervals; nothing where there are none."""
    for column in range(1, len(grid.head) - 1):
        found = [_difference(cells[column], cells[column + 1]) for cells in grid.rows]
        known = [one for one in found if one is not None]
        if len(known) > 1:
            least = min(0.0, 10.0 * math.floor(min(low for low, _, _ in known) / 10))
            most = max(0.0, 10.0 * math.ceil(max(high for _, _, high in known) / 10))
            cells = [element("td") if one is None else _drawn(one, (least, most), 0.0) for one in found]
            return [ticks(f"{least:+.0f}", f"{most:+.0f}")], [[cell] for cell in cells]
    return [], [[] for _ in grid.rows]


def _difference(value: str, span: str) -> tuple[float, float, float] | None:
    """``+3.3`` and ``-1.0 to +7.6`` as low, value, high; None of other texts."""
    ends = _ENDS.fullmatch(span)
    return (float(ends[1]), float(value), float(ends[2])) if ends is not None and _SIGNED.fullmatch(value) else None


def _drawn(one: tuple[float, float, float], scale: tuple[float, float], held: float | None) -> Element:
    least, most = scale

    def place(value: float) -> str:
        share = (value - least) / (most - least) if most > least else 0.5
        return f"{100 * min(max(share, 0.0), 1.0):.2f}".rstrip("0").rstrip(".")

    def line(class_: str, start: float, end: float, top: int, bottom: int) -> Element:
        return element("line", class_=class_, x1=place(start), x2=place(end), y1=str(top), y2=str(bottom))

    low, value, high = one
    picture = element(
        "svg",
        line("scale", least, most, 6, 6),
        None if held is None else line("held", held, held, 0, 12),
        line("range", low, high, 6, 6),
        line("value", value, value, 1, 11),
        viewBox="0 0 100 12",
        preserveAspectRatio="none",
        aria_hidden="true",
        focusable="false",
    )
    return element("td", picture, class_="drawn")


def _figure(text: str) -> list[Child]:
    """``80.5 (74.4 to 85.4)`` as the figure and, smaller, its interval; any other text as it is."""
    found = _WITH_INTERVAL.fullmatch(text)
    return [text] if found is None else [found[1], element("small", found[2])]


def _side(place: int, left: set[int]) -> str | None:
    return "words" if place in left else None
