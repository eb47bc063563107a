"""``openconductor store``: remove what is old from a store, or copy one."""

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
from openconductor.store import copy_store, open_store, prune_store, read_store
from openconductor.store.sqlite.retention import DAY_S

store = typer.Typer(no_args_is_help=True, help="Remove what is old from a store, or copy one.")

_SECONDS = {"h": 3600.0, "d": DAY_S, "w": 7 * DAY_S}


@store.callback()
def _store() -> None:
    """Remove what is old from a store, or copy one."""


@store.command()
def prune(
    place: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="A file that no server writes to, or a URL.")
    ],
    older_than: Annotated[
        str, typer.Option("--older-than", help="An age, such as 30d, 12h or 4w.")
    ],
    as_json: AsJson = False,
) -> None:
    """Remove episodes that began longer ago, and give the disk back.

    What each key was charged stays. What was removed is not replayed any more. A file beside a
    running server is refused: set keep_days in the server's config. A database may be in use.
    """
    before = time.time() - _read_age(older_than)
    read_store(place).close()  # a file that is not there is not created
    with open_store(place) as journal:
        charge_killed(journal, before)
    pruned = prune_store(place, before)
    if as_json:
        console.show_json(pruned)
        return
    names = ("episode", "call", "message", "text")
    removed = [console.counted(pruned[f"{name}s"], name) for name in names]
    told = f"removed {', '.join(removed)}"
    if "bytes" in pruned:
        told += f"; the file is {pruned['bytes'] / 1e6:.1f} MB smaller"
    console.show_text(told)


@store.command()
def copy(
    file: Annotated[Path, typer.Argument(help="A journal that no server writes to.")],
    url: Annotated[
        str, typer.Argument(metavar="URL", help="A database: postgresql://USER@HOST/DATABASE.")
    ],
    as_json: AsJson = False,
) -> None:
    """Copy a journal from a file into a PostgreSQL database.

    Nothing in it is paid for again. What the database has already is left as it is.
    """
    copied = copy_store(file, url)
    if as_json:
        console.show_json(copied)
        return
    names = ("episode", "call", "record")
    told = ", ".join(console.counted(copied[f"{name}s"], name) for name in names)
    if copied["known"]:
        told += f"; {console.counted(copied['known'], 'episode')} were there already"
    console.show_text(f"copied {told}")


def _read_age(text: str) -> float:
    """Return the seconds of an age such as ``30d``."""
    age = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text.strip())
    if age is None:
        raise oc.ConfigError(f"--older-than: got {text!r}, expected an age such as 30d, 12h or 4w")
    return float(age[1]) * _SECONDS[age[2]]
