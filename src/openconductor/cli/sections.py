"""Parts of a report for people. In: sections with lines and tables. Out: the same on stdout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from openconductor.cli import console
from openconductor.cli.tables import show_tables, tables

if TYPE_CHECKING:
    from rich.table import Table

    from openconductor.reporting.sections import Grid, Section


def show_sections(parts: Iterable[Section]) -> None:
    """Print parts of a report."""
    from rich.text import Text

    screen = console.results()
    for part in parts:
        screen.print()
        screen.print(Text(console.printable(part.title), style="bold"))
        for line in part.lines:
            screen.print(Text(console.printable(line)))
        if part.grid is not None and part.grid.rows:
            show_tables(_tables(part.grid))


def _tables(grid: Grid) -> list[Table]:
    """A table as rich prints it, words to the left, figures to the right; several where the room is narrow."""
    names = next((place for place in range(1, len(grid.head)) if place not in grid.words), 1)
    styles = ["bold" if place == grid.marked else None for place in range(len(grid.rows))]
    return tables(grid.head, grid.rows[: grid.brief], words=grid.words, names=names, styles=styles)
