"""Tables in whatever room there is: no figure is ever cut off, and no word is broken that would fit.

In: a head and cells. Out: one table, or several to stand below each other, each with the names of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from openconductor.cli import console

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

GAP = 2  # cells from one column to the next
WIDEST_WORD = 26  # a longer one (the name of a system) may be broken anywhere


def tables(
    head: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    words: Collection[int] = (0,),
    names: int = 1,
    styles: Sequence[str | None] = (),
) -> list[Table]:
    """Tables for stdout, as few as its width allows; together they hold every column.

    Args:
        head: what stands above each column; it folds between its words where room is short.
        rows: the cells of each line.
        words: the columns to the left, whose cells fold between their words; all others are figures and stay whole.
        names: so many first columns name a row, and stand in every table.
        styles: of the lines, from the first.
    """
    texts = [[name, *(console.printable(str(cells[place])) for cells in rows)] for place, name in enumerate(head)]
    full = [max(map(len, column)) for column in texts]
    least, most = full.copy(), full.copy()
    for place, (name, *cells) in enumerate(texts):
        if place in words:
            least[place] = max(min(_longest(text), WIDEST_WORD) for text in (name, *cells))
        else:
            least[place] = most[place] = max(_longest(name), *map(len, cells), 0)
    room = console.results().width
    made: list[Table] = []
    for part in _parts(least, names, room):
        table = console.table()
        widths = [full[place] for place in part]
        if sum(widths) + GAP * (len(part) - 1) > room:
            widths = _spread([least[place] for place in part], [most[place] for place in part], room)
        for place, width in zip(part, widths, strict=True):
            justify = "left" if place in words else "right"
            table.add_column(head[place], justify=justify, width=width, overflow="fold")
        for number, cells in enumerate(rows):
            shown = (console.printable(one) if isinstance(one := cells[place], str) else one for place in part)
            table.add_row(*shown, style=styles[number] if number < len(styles) else None)
        made.append(table)
    return made


def show_tables(made: Sequence[Table]) -> None:
    """Print tables as results, an empty line between two."""
    for number, table in enumerate(made):
        if number:
            console.show("")
        console.show(table)


def _longest(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _spread(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """The widths of a table: what the room leaves goes, cell by cell, to the column that lacks most."""
    widths = list(least)
    for _ in range(room - sum(least) - GAP * (len(least) - 1)):
        place = max(range(len(widths)), key=lambda one: most[one] - widths[one])
        widths[place] += most[place] > widths[place]
    return widths


def _parts(widths: Sequence[int], names: int, room: int) -> list[list[int]]:
    """The columns of each part, the ``names`` in every one; parts are about equally wide."""
    named, figures = list(range(names)), range(names, len(widths))
    if not figures:
        return [named]
    room -= sum(widths[place] + GAP for place in named)
    whole = sum(widths[place] + GAP for place in figures)
    fair = min(room, whole / math.ceil(whole / max(1, room)) + max(widths[place] for place in figures) / 2)
    parts: list[list[int]] = []
    used = math.inf
    for place in figures:
        needed = widths[place] + GAP
        if used + needed > fair:
            parts.append(list(named))
            used = 0
        parts[-1].append(place)
        used += needed
    return parts
