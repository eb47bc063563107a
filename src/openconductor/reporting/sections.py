"""The shape of a report's parts, the same for terminals and pages.

In: texts. Out: Sections: a title, sentences, a table of texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of texts.

    Attributes:
        head: the columns' names.
        rows: the cells.
        words: which columns are of words; the others are of figures.
        marked: which row stands out.
        brief: so many rows, the first ones, are enough on a terminal; None is all.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset((0,))
    marked: int | None = None
    brief: int | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report: sentences, then a table.

    Attributes:
        title: its heading.
        lines: sentences.
        grid: the table; None where there is none.
        figures: the names of the figures of ``plots`` that belong here.
    """

    title: str
    lines: tuple[str, ...] = ()
    grid: Grid | None = None
    figures: tuple[str, ...] = field(default=())
