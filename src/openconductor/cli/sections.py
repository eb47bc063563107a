"""Parts of a report for people. In: sections with lines and tables. Out: the same on stdout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from openconductor.cli import console

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
            screen.print(_table(part.grid))


def _table(grid: Grid) -> Table:
    """A table as rich prints it: words to the left, figures to the right."""
    table = console.table()
    for place, head in enumerate(grid.head):
        words = place in grid.words
        table.add_column(head, justify="left" if words else "right", overflow="fold")
    for place, cells in enumerate(grid.rows[: grid.brief]):
        table.add_row(*map(console.printable, cells), style="bold" if place == grid.marked else None)
    return table
