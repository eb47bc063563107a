"""The two streams of a command. In: results, lines for people, errors. Out: stdout and stderr, kept apart.

Results go to stdout; everything else goes to stderr. What a worker wrote is never let loose on a terminal: its control
characters are replaced, for they could move the cursor or change the title of the window.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import IO, TYPE_CHECKING, NoReturn, cast

import typer

from openconductor.errors import ConfigError, OpenConductorError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""The exit codes."""

WIDEST = 112  # columns; longer lines are hard to read
PIPED = 100  # columns where no terminal says how many there are

_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def results() -> Console:
    """The console of the results: stdout."""
    return _console(stderr=False)


def messages() -> Console:
    """The console of everything else: stderr."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    width = console.width if console.is_terminal or os.environ.get("COLUMNS", "").isdecimal() else PIPED
    console.width = min(width, WIDEST)
    return console


def show(renderable: RenderableType) -> None:
    """Print a result for people."""
    results().print(renderable)


def table(*, title: str = "") -> Table:
    """An empty table of figures: a line below the head, two cells from one column to the next."""
    from rich import box
    from rich.table import Table

    close = (0, 1, 0, 0)
    return Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=close, title=title or None, title_justify="left"
    )


def say(line: str) -> None:
    """Print a line that is no result."""
    print(printable(line), file=sys.stderr, flush=True)


def show_json(value: object) -> None:
    """Print a result for programs: one JSON document, and nothing else."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a lone surrogate, or a terminal of another time
        text = json.dumps(value, indent=2, allow_nan=False)
    print(text)


def show_text(text: str) -> None:
    """Print a text as the result: to a file or a pipe as it is, to a terminal without its control characters."""
    print(printable(text) if sys.stdout.isatty() else text)


def printable(text: str) -> str:
    """The text without control characters, but for line breaks and tabs."""
    return text.translate(_CONTROLS)


def show_error(error: OpenConductorError | str, *, hint: str = "") -> None:
    """Print one clear message to stderr."""
    from rich.text import Text

    console = messages()
    line = Text.assemble(("error: ", "bold red"), printable(str(error)))
    console.print(line, soft_wrap=True)
    if hint:
        console.print(Text(printable(hint), style="dim"), soft_wrap=True)


def fail(message: str, *, hint: str = "") -> NoReturn:
    """End the command as failed."""
    show_error(message, hint=hint)
    raise typer.Exit(FAILED)


def exit_code(error: OpenConductorError) -> int:
    """2 where the user's settings are wrong, 1 where something failed."""
    return USAGE if isinstance(error, ConfigError) else FAILED


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
