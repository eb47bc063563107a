"""``openconductor pool``: draft a pool file, check what its workers can do, and say what they could gain together."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from openconductor.cli import console
from openconductor.cli.pool_headroom import headroom
from openconductor.cli.runs import AsJson, counted
from openconductor.errors import ConfigError

pool = typer.Typer(name="pool", help="Draft a pool file, check its workers, measure its headroom.")
pool.command("headroom")(headroom)


@pool.command("check")
def check(
    path: Annotated[Path, typer.Argument(help="The pool file (TOML).", show_default=False)],
    offline: Annotated[bool, typer.Option("--offline", help="Make no call: only keys, settings and prices.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, max=600, help="Deadline of a call, seconds.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Ask each worker of a pool: does it answer, stream, cost what?

    Exits with 0 where every worker can be used, with 1 where one cannot, with 2 where its settings are wrong.
    """
    import asyncio

    from openconductor.cli.pool_check import SETTINGS, check_pool, show_reports
    from openconductor.serialisation import plain
    from openconductor.types import Usage

    with console.messages().status("asking the workers"):
        reports = asyncio.run(check_pool(path, offline=offline, timeout_s=timeout))
    usable, spent = sum(one.usable for one in reports), sum((one.spent for one in reports), Usage())
    if as_json:
        said = {"pool": str(path), "ok": usable == len(reports), "offline": offline}
        calls = sum(one.calls for one in reports)
        console.show_json(said | {"calls": calls, "spent": plain(spent), "workers": plain(reports)})
    else:
        show_reports(reports, offline)
        unknown = f" and {counted(spent.unpriced_calls, 'call')} of unknown price" if spent.unpriced_calls else ""
        paid = "" if offline else f"; asking cost ${spent.dollars:.6f}{unknown}"
        console.say(f"{usable} of {len(reports)} workers can be used{paid}")
    if usable < len(reports):
        misset = any(fault.what == SETTINGS for one in reports for fault in one.faults)
        raise typer.Exit(console.USAGE if misset else console.FAILED)


@pool.command("init")
def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("pool.toml"),
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a pool file from your API keys and local servers."""
    import asyncio
    import tomllib

    from openconductor.cli.pool_check import price_text
    from openconductor.cli.pool_init import KEYS, LOCAL, find_workers, pool_text
    from openconductor.config import validate
    from openconductor.pool import PoolFile
    from openconductor.serialisation import plain

    if path.exists() and not force:
        raise ConfigError(f"{path}: is there already; expected another path, or --force to write over it")
    workers = asyncio.run(find_workers(os.environ))
    if not workers:
        console.fail(
            f"found nothing to make a pool of: none of {', '.join(KEYS)} is set, and no local server answered",
            hint=f"export one of these keys, or start a server at {' or '.join(LOCAL.values())}.",
        )
    text = pool_text(workers, today=date.today())
    validate(tomllib.loads(text), PoolFile, where=str(path))  # what is written will load
    with path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)
    if as_json:
        fields = ("name", "provider", "model", "base_url", "api_key_env", "price")
        drafts = [{name: plain(getattr(one, name)) for name in fields} for one in workers]
        console.show_json({"path": str(path), "workers": drafts})
        return
    head = ("", "worker", "model", "key or server", "price in / out")
    rows = [
        (str(ordinal), one.name, one.model, one.api_key_env or one.base_url or "", price_text(one.price.price))
        for ordinal, one in enumerate(workers)
    ]
    console.show_table(head, rows, words=range(len(head)), names=2)
    console.say(f"wrote {path}; next: openconductor pool check {path}")
