"""What the verbs that evaluate share. In: a recipe, a folder, amounts. Out: a run with a bar beside it, its results."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING

from openconductor.cli import console
from openconductor.cli.progress import progress_bar
from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from openconductor.evaluation.config import EvalConfig
    from openconductor.evaluation.grid import Progress
    from openconductor.evaluation.results import Results


def new_folder(name: str) -> Path:
    """Where a run goes if nothing is said: ``runs/<date>-<name>``."""
    return Path("runs") / f"{date.today():%Y-%m-%d}-{name}"


def own_folder(config: EvalConfig) -> Path:
    """Where an evaluation goes if nothing is said: the folder of the day that holds it already, or else a new one.

    The first of a day and name is ``runs/<date>-<name>``; others have ``-2``, ``-3`` … behind that.
    """
    from openconductor.evaluation.folder import holds

    first = new_folder(config.name)
    numbered = re.compile(re.escape(first.name) + r"-([2-9]|[1-9]\d+)")
    there = first.parent.iterdir() if first.parent.is_dir() else ()
    taken = {int(match[1]): path for path in there if (match := numbered.fullmatch(path.name))}
    if first.exists():
        taken[1] = first
    for _, folder in sorted(taken.items()):
        if holds(folder, config):
            return folder
    free = next(number for number in range(1, len(taken) + 2) if number not in taken)
    return first if free == 1 else first.with_name(f"{first.name}-{free}")


def evaluated(config: EvalConfig, folder: Path, what: str, *, retry_failed: bool = False) -> Results:
    """Evaluate a recipe into a folder, or go on with what is there; ``what`` names it beside the bar."""
    import asyncio

    from openconductor.cli.bill import dollars_text
    from openconductor.evaluation.runner import run_grid
    from openconductor.reporting.words import counted

    console.say(f"run folder: {folder}")
    with console.only_results_on_stdout(), progress_bar(what) as advance:

        def told(now: Progress) -> None:
            paid = dollars_text(now.spent.usage, zero=True)
            advance(now.done, now.total, f"{paid}, {counted(now.spent.calls, 'call')}")

        return asyncio.run(run_grid(config, folder, retry_failed=retry_failed, on_progress=told))


def missing(count: int) -> str:
    """How many answers an evaluation that was stopped still lacks."""
    from openconductor.reporting.words import counted

    return f"{counted(count, 'answer')} {'is' if count == 1 else 'are'} missing"


def dollars_of(text: str | None) -> Decimal | None:
    """An amount of the option ``--budget-dollars``.

    Raises:
        ConfigError: it is none.
    """
    if text is None:
        return None
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise ConfigError(f"--budget-dollars: got {text!r}, expected an amount of US dollars such as 2.50")
    return amount
