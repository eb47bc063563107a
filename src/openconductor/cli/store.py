"""``openconductor store``: remove what is old from a store."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated

import typer

import openconductor as oc
from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.serving.key_ring import charge_killed
from openconductor.store import open_store, read_store
from openconductor.store.retention import DAY_S, prune_file

store = typer.Typer(no_args_is_help=True, help="Remove what is old from a store.")

_SECONDS = {"h": 3600.0, "d": DAY_S, "w": 7 * DAY_S}


@store.callback()
def _store() -> None:
    """Remove what is old from a store."""


@store.command()
def prune(
    file: Annotated[Path, typer.Argument(help="A journal that no server writes to.")],
    older_than: Annotated[
        str, typer.Option("--older-than", help="An age, such as 30d, 12h or 4w.")
    ],
    as_json: AsJson = False,
) -> None:
    """Remove episodes that began longer ago, and give the disk back.

    What each key was charged stays. What was removed is not replayed any more. Beside a running
    server it is refused: set keep_days in the server's config.
    """
    before = time.time() - _read_age(older_than)
    read_store(file).close()  # a file that is not there is not created
    with open_store(file) as journal:
        charge_killed(journal)
    pruned = prune_file(file, before)
    if as_json:
        console.show_json(pruned)
        return
    names = ("episode", "call", "message", "text")
    removed = [console.counted(pruned[f"{name}s"], name) for name in names]
    smaller = f"{pruned['bytes'] / 1e6:.1f} MB"
    console.show_text(f"removed {', '.join(removed)}; the file is {smaller} smaller")


def _read_age(text: str) -> float:
    """Return the seconds of an age such as ``30d``."""
    age = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text.strip())
    if age is None:
        raise oc.ConfigError(f"--older-than: got {text!r}, expected an age such as 30d, 12h or 4w")
    return float(age[1]) * _SECONDS[age[2]]
