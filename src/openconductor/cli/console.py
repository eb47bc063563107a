"""The two streams of a command: results go to stdout, everything else to stderr.

Texts of workers are printed without their control characters, which could move the cursor or change
the title of the window.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn, cast

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from openconductor.measures import Pace
from openconductor.store.serialisation import plain

if TYPE_CHECKING:
    from openconductor.checklist import Check, Checklist

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""The exit codes."""

PROGRAM = "openconductor"
WIDEST = 112  # columns; longer lines are hard to read
PIPED = 100  # columns if there is no terminal
WIDEST_WORD = 26  # cells of a word in a table; a longer one, such as a system's name, is broken
FIRST_WAIT, LONGEST_WAIT = 5, 300  # seconds until a line of progress without a terminal
GAP = 2  # cells between two columns of a table

_CONTROL_CODES = [*range(32), *range(127, 160)]
_CONTROLS = {
    code: "\N{REPLACEMENT CHARACTER}" for code in _CONTROL_CODES if chr(code) not in "\n\t"
}

Advance = Callable[..., None]
"""Tells a bar how many are done, of how many, and the text beside it."""


def results() -> Console:
    """Return the console of the results: stdout."""
    return _console(stderr=False)


def messages() -> Console:
    """Return the console of everything else: stderr."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    width = PIPED
    if console.is_terminal or os.environ.get("COLUMNS", "").isdecimal():
        width = console.width
    console.width = min(width, WIDEST)
    return console


# ── results ───────────────────────────────────────────────────────────────────────────────────────
def show(*renderables: RenderableType) -> None:
    """Print results for people, one below the other."""
    results().print(*renderables, sep="\n")


_MARKS = {"ready": ("✓", "green"), "absent": ("–", "yellow"), "wrong": ("✗", "red")}


def show_checks(checks: Iterable[Check]) -> None:
    """Print a line for each check: a mark, its name, and the details."""
    show_marked((Text(*_MARKS[check.state]), check.name, check.text) for check in checks)


def show_marked(lines: Iterable[tuple[Text, str, str]]) -> None:
    """Print lines of a mark, a name, and the details."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for mark, name, text in lines:
        table.add_row(mark, name, printable(text))
    show(table)


def finish_checks(checklist: Checklist, *, offline: bool) -> None:
    """Say in a line how a dry run ended, and exit.

    Raises:
        typer.Exit: something is wrong, or absent and not ``offline``.
    """
    wrong = sum(check.state == "wrong" for check in checklist.checks)
    absent = sum(check.state == "absent" for check in checklist.checks)
    if wrong:
        say(f"{counted(wrong, 'check')} failed (✗)")
    elif absent:
        say(f"nothing is wrong; {counted(absent, 'thing')} not here (–)")
    else:
        say("everything is ready")
    if wrong or (absent and not offline):
        raise typer.Exit(FAILED)


def labelled(label: str, content: RenderableType) -> Table:
    """Return a label and its content in two columns."""
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
    """Print a table as a result. If it is too wide, print it as several tables of fewer columns.

    Args:
        head: the titles of the columns.
        rows: the cells of each row.
        words: the columns of text, whose cells fold; all others are figures and are never cut.
        names: how many first columns name a row; every table has them.
        marked: the row that stands out.
    """
    screen = results()
    columns = [_Column(head, rows, place, place in words) for place in range(len(head))]
    fixed = columns[:names]
    for number, part in enumerate(_split_columns(fixed, columns[names:], screen.width)):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        room = max(0, _spare(part, screen.width))
        for column in part:
            more = min(room, column.widest - column.least)
            room -= more
            justify = "left" if column.is_text else "right"
            width = column.least + more
            table.add_column(column.title, justify=justify, width=width, overflow="fold")
        for row in range(len(rows)):
            style = "bold" if row == marked else None
            table.add_row(*(column.cells[row] for column in part), style=style)
        if number:
            screen.print()
        screen.print(table)


class _Column:
    """A column of a table.

    Attributes:
        title: its head.
        cells: its printable cells.
        is_text: True if its cells fold.
        widest: the cells on the terminal that its longest line takes.
        least: the cells that it needs: its longest word or figure. Very long words are broken, and
            a title folds.
    """

    def __init__(
        self, head: Sequence[str], rows: Sequence[Sequence[str | Text]], place: int, is_text: bool
    ) -> None:
        self.title = head[place]
        self.is_text = is_text
        cells = [row[place] for row in rows]
        self.cells = [printable(cell) if isinstance(cell, str) else cell for cell in cells]
        texts = [str(cell) for cell in cells]
        lines = [line for text in texts for line in text.splitlines()]
        self.widest = max(map(cell_len, [self.title, *lines]))
        if is_text:
            words = " ".join([self.title, *texts]).split()
            longest = max(map(cell_len, words), default=0)
            self.least = min(longest, WIDEST_WORD)
        else:
            pieces = [*self.title.split(), *texts]
            self.least = max(map(cell_len, pieces), default=0)


def _split_columns(fixed: list[_Column], others: list[_Column], width: int) -> list[list[_Column]]:
    """Distribute columns over tables that fit into the width; each begins with the fixed ones."""
    parts = [list(fixed)]
    for column in others:
        if len(parts[-1]) > len(fixed) and _spare([*parts[-1], column], width) < 0:
            parts.append(list(fixed))
        parts[-1].append(column)
    return parts


def _spare(columns: list[_Column], width: int) -> int:
    """Return the cells that columns leave free at their least width."""
    needed = sum(column.least + GAP for column in columns)
    return width + GAP - needed


def show_json(value: object, *, indent: int | None = 2) -> None:
    """Print a result for programs: its ``plain`` form as one JSON document."""
    form = plain(value)
    text = json.dumps(form, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a lone surrogate, or a terminal with an old encoding
        text = json.dumps(form, indent=indent, allow_nan=False)
    print(text, flush=True)


def show_text(text: str) -> None:
    """Print a text as the result. A terminal gets it without its control characters."""
    print(printable(text) if sys.stdout.isatty() else text)


def printable(text: str) -> str:
    """Return a text without control characters; line breaks and tabs stay."""
    return text.translate(_CONTROLS)


def percent(share: float | None) -> str:
    """Return a share in percent. None: a dash."""
    return "–" if share is None else f"{share:.1%}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 answer``, ``2,400 answers``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# ── everything else ───────────────────────────────────────────────────────────────────────────────
@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Generator[Advance]:
    """Show a bar with the time left on stderr while the block runs.

    Without a terminal it is a few lines of text, with the time of day when all will be done. A
    ``quiet`` one says nothing there of work that takes less than 5 s.
    """
    screen = messages()
    if screen.is_interactive:
        with _terminal_bar(screen, title) as advance:
            yield advance
    else:
        lines = _ProgressLines(title)
        yield lines.advance
        if not quiet or lines.printed:
            lines.end()


@contextmanager
def _terminal_bar(screen: Console, title: str) -> Generator[Advance]:
    columns = (
        TextColumn(title),
        BarColumn(None),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        _BottleneckColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True, expand=True) as bar:
        task = bar.add_task("", total=None)

        def advance(done: int, total: int, description: str = "") -> None:
            if bar.tasks[0].total is None:
                # What was done before this command began tells nothing about its speed.
                bar.reset(task, completed=max(0, done - 1), total=total)
            bar.update(task, completed=done, total=total, description=description)

        yield advance


class _BottleneckColumn(ProgressColumn):
    """Shows the worker that most calls wait for."""

    def render(self, task: Task) -> Text:
        """Return the column's text, a few times a second."""
        return Text(printable(name_bottleneck()), style="yellow")


def name_bottleneck() -> str:
    """Return the worker that most calls wait for, with their number; "": none waits."""
    from openconductor.calls.worker import waiting_calls

    waiting = waiting_calls()
    if not waiting:
        return ""
    name = max(waiting, key=lambda worker: waiting[worker])
    return f"waiting for {name}: {counted(waiting[name], 'call')}"


class _ProgressLines:
    """Prints progress as lines: one after 5 s, then each after twice the time, up to 5 minutes."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.pace = Pace()
        self.printed_at = time.monotonic()
        self.wait = FIRST_WAIT
        self.line = ""
        self.printed = False

    def advance(self, done: int, total: int, description: str = "") -> None:
        """Keep a new line, and print it if it is time."""
        self.line = f"{self.title}: {done:,} of {total:,}"
        for part in (description, name_bottleneck()):
            if part:
                self.line += f", {part}"
        self.line += self.pace.finish(done, total)
        silence = time.monotonic() - self.printed_at
        if silence >= self.wait:
            say(self.line)
            self.printed_at += silence
            self.wait = min(2 * self.wait, LONGEST_WAIT)
            self.line = ""
            self.printed = True

    def end(self) -> None:
        """Print the last line, if it is new."""
        if self.line:
            say(self.line)


def say(line: str) -> None:
    """Print a line that is not a result."""
    print(printable(line), file=sys.stderr, flush=True)


def show_error(error: Exception | str, *, hint: str = "") -> None:
    """Print an error, and a hint below it, to stderr."""
    screen = messages()
    message = Text.assemble(("error: ", "bold red"), printable(str(error)))
    screen.print(message, soft_wrap=True)
    if hint:
        screen.print(Text(printable(hint), style="dim"), soft_wrap=True)


def fail(message: str, *, hint: str = "") -> NoReturn:
    """End the command as failed."""
    show_error(message, hint=hint)
    raise typer.Exit(FAILED)


def own_path() -> str:
    """Return how this program is started: by its name if the shell finds it, else by its path."""
    started = sys.argv[0]
    is_ours = Path(started).name == PROGRAM
    return started if is_ours and shutil.which(PROGRAM) != started else PROGRAM


def prepare_streams() -> None:
    """Escape characters that the terminal cannot show, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard(stream: IO[str]) -> None:
    """Point a stream at nothing, so that Python's own flush at the end does not fail."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


@contextmanager
def only_results_on_stdout() -> Generator[None]:
    """Send what libraries and their child processes print to stdout inside the block to stderr."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # a service without these streams
        yield
        return
    python_stdout = sys.stdout
    sys.stdout = cast("IO[str]", sys.stderr)
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stdout = python_stdout
        os.dup2(kept, 1)
        os.close(kept)
