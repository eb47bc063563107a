"""``openconductor keys``: make, list and revoke the keys that are in a journal.

Servers that run over the journal let a new key in, and refuse a revoked one, within two seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, cast

import typer

from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.config import Table, apply_overrides, needing
from openconductor.serving.serve_config import KeyTable, ServeConfig
from openconductor.store import open_records, place_name, read_store

keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys while servers run.")

Place = Annotated[
    str,
    typer.Option(
        "--journal",
        metavar="FILE|URL",
        help="The journal of the servers; they may run meanwhile.",
    ),
]
Name = Annotated[str, typer.Argument(help="The name of the key's holder.", show_default=False)]
JOURNAL = ServeConfig().journal


@keys.callback()
def _keys() -> None:
    """Make, list and revoke API keys while servers run."""


@keys.command()
def add(
    name: Name,
    limits: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LIMIT=VALUE]...",
            help="As in a [[key]] of the config: dollars=20 period=day 'workers=[\"w\"]'.",
            show_default=False,
        ),
    ] = None,
    journal: Place = JOURNAL,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is printed once; the journal keeps a hash of it.

    Models and workers are those of the servers; what they do not have, the key cannot ask.
    """
    values: Table = {}
    apply_overrides(values, limits or ())
    with needing("keys", "serve"):
        from openconductor.serving.shared.key_book import KeyBook
    with open_records(journal) as store:
        made = KeyBook(store).add({**values, "name": name}, _accept)
    if as_json:
        console.show_json({"key": made.key, **made.booked.shown()})
        return
    console.say(f"The key of {name}, which is shown only once; servers take it within 2 seconds:")
    console.show_text(made.key)


@keys.command("list")
def list_keys(journal: Place = JOURNAL, as_json: AsJson = False) -> None:
    """List the keys in a journal, with their limits."""
    with needing("keys", "serve"):
        from openconductor.serving.shared.key_book import keys_in, limits_of, names_in_config
    with read_store(journal) as store:
        booked_keys = keys_in(store)
        in_config = names_in_config(store)
    if as_json:
        shown = [booked.shown() for booked in booked_keys]
        console.show_json({"keys": shown, "in_config": in_config})
        return
    rows: list[list[str]] = []
    for booked in booked_keys:
        limits = _limits_text(limits_of(booked.table))
        revoked = "" if booked.revoked is None else _time_text(booked.revoked)
        rows.append([booked.table.name, _time_text(booked.made), revoked, limits])
    if rows:
        console.show_table(("key", "made", "revoked", "limits"), rows, words=range(4), names=1)
    else:
        console.say(f"{place_name(journal)} has no key; openconductor keys add NAME makes one")
    if in_config:
        console.say(f"in the config of the servers: {', '.join(in_config)}")


@keys.command()
def revoke(name: Name, journal: Place = JOURNAL, as_json: AsJson = False) -> None:
    """Revoke a key; servers refuse it within 2 seconds.

    Requests under way end as they began.
    """
    with needing("keys", "serve"):
        from openconductor.serving.shared.key_book import KeyBook
    read_store(journal).close()  # a file that is not there is not created
    with open_records(journal) as store:
        revoked = KeyBook(store).revoke(name)
    if as_json:
        console.show_json(revoked.shown())
    else:
        console.show_text(f"revoked the key of {name}; servers refuse it within 2 seconds")


def _accept(key: KeyTable) -> None:
    """Accept any models and workers: the servers know theirs."""


def _limits_text(limits: Mapping[str, object]) -> str:
    texts: list[str] = []
    for name, value in limits.items():
        text = ",".join(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else str(value)
        texts.append(f"{name}={text}")
    return " ".join(texts)


def _time_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
