"""``openconductor pool``: draft a pool file, and check what its workers can do (``headroom``: what they could gain).

In: a path. Out: the file, or a report on each worker with the fix beside each fault, as text or with ``--json``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openconductor.cli import console
from openconductor.cli.pool_headroom import headroom
from openconductor.cli.tables import show_tables, tables
from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from rich.text import Text

    from openconductor.cli.pool_check import Fault, WorkerReport
    from openconductor.prices import FoundPrice
    from openconductor.types import Price, Usage

pool = typer.Typer(
    name="pool", help="Draft a pool file, check its workers, and say what orchestrating them could gain."
)
pool.command("headroom")(headroom)

Json = dict[str, object]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@pool.command("check")
def check(
    path: Annotated[Path, typer.Argument(help="The pool file (TOML).", show_default=False)],
    offline: Annotated[bool, typer.Option("--offline", help="Make no call: only keys, settings and prices.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, max=600, help="Deadline of a call, seconds.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Ask each worker of a pool a few short questions: does it answer, stream, tell its tokens, what does it cost?

    Exits with 0 where every worker can be used, with 1 where one cannot, with 2 where its settings are wrong.
    """
    import asyncio

    from openconductor.cli.pool_check import check_pool

    with console.messages().status("asking the workers"):
        reports = asyncio.run(check_pool(path, offline=offline, timeout_s=timeout))
    if as_json:
        console.show_json(_check_json(path, reports, offline))
    else:
        _show_check(reports, offline)
    if not all(report.usable for report in reports):
        raise typer.Exit(console.USAGE if any(report.misset for report in reports) else console.FAILED)


@pool.command("init")
def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("pool.toml"),
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a pool file from the API keys in the environment and the models of local servers."""
    import asyncio
    import tomllib

    from openconductor.cli.pool_init import KEYS, LOCAL, find_workers, pool_text
    from openconductor.config import validate
    from openconductor.pool import PoolFile

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
        drafts = [
            {
                "name": one.name,
                "provider": one.provider,
                "model": one.model,
                "base_url": one.base_url,
                "api_key_env": one.api_key_env,
                "price": _found_json(one.known),
            }
            for one in workers
        ]
        console.show_json({"path": str(path), "workers": drafts})
        return
    rows = [
        (str(ordinal), one.name, one.model, one.api_key_env or one.base_url or "", _price(one.known.price))
        for ordinal, one in enumerate(workers)
    ]
    _show_words(("", "worker", "model", "key or server", "price in / out"), rows)
    console.say(f"wrote {path}; next: openconductor pool check {path}")


# ── for programs ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _check_json(path: Path, reports: Sequence[WorkerReport], offline: bool) -> Json:
    from openconductor.serialisation import plain

    return {
        "pool": str(path),
        "ok": all(report.usable for report in reports),
        "offline": offline,
        "calls": sum(report.calls for report in reports),
        "spent": plain(_spent(reports)),
        "workers": [_report_json(report) for report in reports],
    }


def _report_json(report: WorkerReport) -> Json:
    from openconductor.serialisation import plain

    return {
        "ordinal": report.ordinal,
        "name": report.name,
        "provider": report.provider,
        "model": report.model,
        "base_url": report.base_url,
        "usable": report.usable,
        "key": {"env": report.key_env, "present": report.key_present},
        "price": _price_json(report.price),
        "known_price": _found_json(report.known),
        "reachable": report.reachable,
        "latency_seconds": report.latency_s,
        "finish_reason": report.finish_reason,
        "usage_reported": report.usage_reported,
        "streaming": {
            "works": report.streams,
            "pieces": report.pieces,
            "first_text_seconds": report.first_text_s,
            "usage_reported": report.stream_usage_reported,
        },
        "tools": report.tools,
        "images": report.images,
        "calls": report.calls,
        "spent": plain(report.spent),
        "faults": [_fault_json(fault) for fault in report.faults],
    }


def _fault_json(fault: Fault) -> Json:
    return {"what": fault.what, "message": fault.message, "fix": fault.fix, "fatal": fault.fatal}


def _price_json(price: Price | None) -> Json | None:
    if price is None:
        return None
    amounts = {"input": price.input, "cached": price.cached, "output": price.output}
    return {name: None if amount is None else format(amount, "f") for name, amount in amounts.items()}


def _found_json(found: FoundPrice) -> Json:
    return {
        "price": _price_json(found.price),
        "reason": found.reason,
        "notes": list(found.notes),
        "source": found.source,
    }


# ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────────
def _show_check(reports: Sequence[WorkerReport], offline: bool) -> None:
    from rich.text import Text

    screen = console.results()
    right, wrong = ("ok", "no") if screen.options.ascii_only else ("✓", "✗")
    marks = {True: Text(right, style="green"), False: Text(wrong, style="red")}
    asked = () if offline else ("answers", "first text", "tokens", "tools", "images")
    rows: list[tuple[str | Text, ...]] = []
    for report in reports:
        told = () if offline else _told(report)
        rows.append((marks[report.usable], report.name, report.model, _key(report), *told, _cost(report)))
    _show_words(("", "worker", "model", "key", *asked, "price in / out"), rows)
    for report in reports:
        for fault in report.faults:
            style = "red" if fault.fatal else "yellow"
            screen.print(Text.assemble("\n", (report.name, "bold"), " ", (fault.what, style), f": {fault.message}"))
            screen.print(Text(f"  fix: {console.printable(fault.fix)}"), soft_wrap=True)
    usable = sum(report.usable for report in reports)
    console.say(f"{usable} of {len(reports)} workers can be used{'' if offline else f'; asking cost {_sum(reports)}'}")


def _told(report: WorkerReport) -> Iterator[str]:
    """What the calls brought to light."""
    yield {None: "not asked", False: "no"}.get(report.reachable, _seconds(report.latency_s))
    if report.streams == "yes":
        yield _seconds(report.first_text_s)
    elif report.streams == "accepted":
        yield "one piece" if report.pieces else "no text yet"
    else:
        yield {"failed": "fails"}.get(report.streams, "")
    reported = [told for told in (report.usage_reported, report.stream_usage_reported) if told is not None]
    yield "" if not reported else "told" if all(reported) else "not always" if any(reported) else "not told"
    yield {"yes": "called", "accepted": "accepted", "no": "no", "failed": "fails"}.get(report.tools, "")
    yield {"accepted": "accepted", "no": "no", "failed": "fails"}.get(report.images, "")


def _key(report: WorkerReport) -> str:
    if report.key_env is None:
        return "none"
    return "set" if report.key_present else "missing"


def _cost(report: WorkerReport) -> str:
    if report.price is None and report.known.price is not None:
        return f"known: {_price(report.known.price)}"
    return _price(report.price)


def _price(price: Price | None) -> str:
    return "not known" if price is None else f"${price.input:f} / ${price.output:f}"


def _sum(reports: Sequence[WorkerReport]) -> str:
    spent = _spent(reports)
    count = spent.unpriced_calls
    unknown = f" and {count} {'call' if count == 1 else 'calls'} of unknown price" if count else ""
    return f"${spent.dollars:.6f}{unknown}"


def _spent(reports: Sequence[WorkerReport]) -> Usage:
    from openconductor.types import Usage

    return sum((report.spent for report in reports), Usage())


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f} s"


def _show_words(head: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    """Tables without figures to align: a mark and a name before each line."""
    show_tables(tables(head, rows, words=range(len(head)), names=2))
