"""The two streams of a command. In: results, lines for people, errors. Out: stdout and stderr, kept apart.

Results go to stdout; everything else goes to stderr. What a worker wrote is never let loose on a
terminal: its control characters are replaced, for they could move the cursor or change the title of
the window.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from io import TextIOWrapper
from typing import IO, NoReturn, cast

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from openconductor.store.serialisation import plain

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""The exit codes."""

WIDEST = 112  # columns; longer lines are hard to read
PIPED = 100  # columns where no terminal says how many there are
WIDEST_WORD = 26  # in a table; a longer one (the name of a system) may be broken anywhere
LINE_SECONDS, LONGEST_SILENCE = 30, 300  # between two lines of progress, where there is no terminal
GAP = 2  # cells from one column of a table to the next

_CONTROLS = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(32), *range(127, 160))
    if chr(code) not in "\n\t"
}

Advance = Callable[..., None]
"""Tells a bar how many are done, of how many, and what is said beside it."""


def results() -> Console:
    """The console of the results: stdout."""
    return _console(stderr=False)


def messages() -> Console:
    """The console of everything else: stderr."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    width = (
        console.width if console.is_terminal or os.environ.get("COLUMNS", "").isdecimal() else PIPED
    )
    console.width = min(width, WIDEST)
    return console


# ── results ───────────────────────────────────────────────────────────────────────────────────────
def show(*renderables: RenderableType) -> None:
    """Print results for people, one below the other."""
    results().print(*renderables, sep="\n")


def labelled(label: str, content: RenderableType) -> Table:
    """A label and what it stands for, in two columns."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=9, no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    grid.add_row(label, content)
    return grid


def show_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    words: Collection[int] = (0,),
    names: int = 1,
    marked: int | None = None,
) -> None:
    """Print a table as a result. Where the room is too narrow, its columns follow below each other in several tables.

    Args:
        head: what stands above each column.
        rows: the cells of each line.
        words: the columns to the left, whose cells fold; all others are figures and are never cut.
        names: this many first columns name a row, and are in every table.
        marked: the line that stands out.
    """
    screen = results()
    columns = [[title, *(str(cells[place]) for cells in rows)] for place, title in enumerate(head)]
    widest = [max(map(cell_len, column)) for column in columns]
    least = [_least(column, place in words) for place, column in enumerate(columns)]

    def spare(part: list[int]) -> int:
        return screen.width + GAP - sum(least[place] + GAP for place in part)

    parts = [list(range(names))]
    for place in range(names, len(head)):
        if len(parts[-1]) > names and spare([*parts[-1], place]) < 0:
            parts.append(list(range(names)))
        parts[-1].append(place)
    for number, part in enumerate(parts):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        room = max(0, spare(part))
        for place in part:
            more = min(room, widest[place] - least[place])
            room -= more
            justify = "left" if place in words else "right"
            table.add_column(
                head[place], justify=justify, width=least[place] + more, overflow="fold"
            )
        for line, cells in enumerate(rows):
            shown = [
                printable(cell) if isinstance(cell, str) else cell
                for cell in (cells[place] for place in part)
            ]
            table.add_row(*shown, style="bold" if line == marked else None)
        screen.print(*([""] if number else []), table, sep="\n")


def _least(column: Sequence[str], words: bool) -> int:
    """The cells that a column needs: its longest word, or figure; a very long word may be broken, a title folds."""
    pieces = " ".join(column).split() if words else [*column[0].split(), *column[1:]]
    longest = max(map(cell_len, pieces), default=0)
    return min(longest, WIDEST_WORD) if words else longest


def show_json(value: object, *, indent: int | None = 2) -> None:
    """Print a result for programs: one JSON document of its ``plain`` form, on one line without ``indent``."""
    said = plain(value)
    text = json.dumps(said, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a lone surrogate, or a terminal of another time
        text = json.dumps(said, indent=indent, allow_nan=False)
    print(text, flush=True)


def show_text(text: str) -> None:
    """Print a text as the result: to a file or a pipe as it is, to a terminal without its control characters."""
    print(printable(text) if sys.stdout.isatty() else text)


def printable(text: str) -> str:
    """The text without control characters, but for line breaks and tabs."""
    return text.translate(_CONTROLS)


def percent(share: float | None) -> str:
    """A share in percent; a dash where it is not known."""
    return "–" if share is None else f"{share:.1%}"


def counted(count: int, one: str) -> str:
    """How many of what: ``1 answer``, ``2,400 answers``."""
    return f"{count:,} {one if count == 1 else one + 's'}"


# ── everything else ───────────────────────────────────────────────────────────────────────────────
@contextmanager
def progress_bar(what: str, *, piped: bool = True) -> Generator[Advance]:
    """A bar with the time left on stderr, gone at the end; no terminal gets a few lines of text, where ``piped``."""
    screen = messages()
    if not screen.is_interactive:
        with _progress_lines(what) if piped else nullcontext(_silent) as lines:
            yield lines
        return
    columns = (
        TextColumn(what),
        BarColumn(None),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(
        *columns, TimeRemainingColumn(), console=screen, transient=True, expand=True
    ) as bar:
        task = bar.add_task("", total=None)

        def advance(done: int, total: int, more: str = "") -> None:
            if (
                bar.tasks[0].total is None
            ):  # what was done before this command began tells nothing about its speed
                bar.reset(task, completed=max(0, done - 1), total=total)
            bar.update(task, completed=done, total=total, description=more)

        yield advance


def _silent(*_: object) -> None:
    """Say nothing."""


@contextmanager
def _progress_lines(what: str) -> Generator[Advance]:
    """A line at each tenth, or after five minutes without one, but none within 30 s of another; and one at the end."""
    said_at, said, line = time.monotonic(), 0, ""

    def advance(done: int, total: int, more: str = "") -> None:
        nonlocal said_at, said, line
        line = f"{what}: {done:,} of {total:,}{more and f', {more}'}"
        silence = time.monotonic() - said_at
        if silence >= LONGEST_SILENCE or (silence >= LINE_SECONDS and done - said >= total / 10):
            say(line)
            said_at, said, line = said_at + silence, done, ""

    yield advance
    if line:
        say(line)


def say(line: str) -> None:
    """Print a line that is not a result."""
    print(printable(line), file=sys.stderr, flush=True)


def show_error(error: Exception | str, *, hint: str = "") -> None:
    """Print one clear message to stderr."""
    console = messages()
    console.print(Text.assemble(("error: ", "bold red"), printable(str(error))), soft_wrap=True)
    if hint:
        console.print(Text(printable(hint), style="dim"), soft_wrap=True)


def fail(message: str, *, hint: str = "") -> NoReturn:
    """End the command as failed."""
    show_error(message, hint=hint)
    raise typer.Exit(FAILED)


def prepare_streams() -> None:
    """Let no character that the terminal cannot show end the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def let_go(stream: IO[str]) -> None:
    """Point a stream whose reader has gone (or whose disk is full) at nothing, so that Python's own flush is quiet."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


@contextmanager
def only_results_on_stdout() -> Generator[None]:
    """Send to stderr whatever libraries (and their child processes) print to stdout inside the block."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # no such streams: a service without them
        yield
        return
    python, sys.stdout = sys.stdout, cast("IO[str]", sys.stderr)
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stdout = python
        os.dup2(kept, 1)
        os.close(kept)
