"""Where a run goes, an evaluation with a bar beside it, and what is said after Ctrl-C."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from datetime import date
from glob import escape
from itertools import count
from pathlib import Path

from openconductor.cli import console
from openconductor.cli.console import counted
from openconductor.cli.live import dollars_text, say_interrupted
from openconductor.errors import JournalError
from openconductor.evaluation.eval_config import EvalConfig
from openconductor.evaluation.grid import Progress, run_grid
from openconductor.evaluation.records import CONFIG, JOURNAL, Results, holds
from openconductor.store import read_store
from openconductor.types import Usage


def own_folder(config: EvalConfig) -> Path:
    """Where an evaluation goes if nothing is said: the folder of the day that holds it already, or else a new one.

    The first of a day and name is ``runs/<date>-<name>``; others have ``-2``, ``-3`` … behind that.
    """
    first = Path("runs") / f"{date.today():%Y-%m-%d}-{config.name}"
    for folder in (first, *sorted(first.parent.glob(f"{escape(first.name)}-*"))):
        if holds(folder, config):
            return folder
    if not first.exists():
        return first
    numbered = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(folder for folder in numbered if not folder.exists())


def evaluated(
    config: EvalConfig, folder: Path, what: str, *, retry_failed: bool = False
) -> Results:
    """Evaluate a recipe into a folder, or resume what is there; ``what`` names it beside the bar."""
    console.say(f"run folder: {folder}")
    with console.only_results_on_stdout(), console.progress_bar(what) as advance:

        def told(now: Progress) -> None:
            paid = dollars_text(now.spent.usage, zero=True)
            advance(now.done, now.total, f"{paid}, {counted(now.spent.calls, 'call')}")

        return asyncio.run(run_grid(config, folder, retry_failed=retry_failed, on_progress=told))


@contextmanager
def interruptible(
    folder: Path, go_on: str, journals: Iterable[str] = (JOURNAL,)
) -> Generator[None]:
    """On Ctrl-C in a run, say what the calls in its journals cost until now, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0" and (folder / CONFIG).is_file():
            calls, usage = 0, Usage()
            for path in (folder / name for name in journals if (folder / name).is_file()):
                with suppress(JournalError), read_store(path) as reading:
                    spent = reading.totals().spent
                    calls, usage = calls + spent.calls, usage + spent.usage
            say_interrupted(calls, usage, go_on, kept=True)
        raise


def missing(answers: int) -> str:
    """How many answers an evaluation that was stopped still lacks."""
    return f"{counted(answers, 'answer')} {'is' if answers == 1 else 'are'} missing"
