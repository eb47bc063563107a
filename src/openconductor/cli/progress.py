"""A progress bar on stderr, the same for every verb. In: how much is done, of how much. Out: a bar, gone at the end."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from openconductor.cli import console


class Advance(Protocol):
    """What a command tells its bar."""

    def __call__(self, done: int, total: int, more: str = "", /) -> None:
        """So many of ``total`` are done; ``more`` is said beside them."""
        ...


@contextmanager
def progress_bar(what: str) -> Generator[Advance]:
    """A bar with the time left; nothing where stderr is no terminal."""
    screen = console.messages()
    if not screen.is_interactive:
        yield _unseen
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(None), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=screen, transient=True, expand=True) as bar:
        task = bar.add_task("", total=None)
        begun = False

        def advance(done: int, total: int, more: str = "", /) -> None:
            nonlocal begun
            if not begun:  # what was done before this command began tells nothing about its speed
                bar.reset(task, completed=max(0, done - 1), total=total)
                begun = True
            bar.update(task, completed=done, total=total, description=more)

        yield advance


def _unseen(done: int, total: int, more: str = "", /) -> None:
    """Progress that nobody watches."""
