"""``openconductor pool check``: print what each worker of a pool can do, with the fix beside each fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import openconductor as oc
from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.probe import SETTINGS, WorkerReport, check_pool


def check(
    path: Annotated[Path, typer.Argument(help="The pool file (TOML).", show_default=False)],
    offline: Annotated[
        bool, typer.Option("--offline", help="Make no call: only keys, settings and prices.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=600, help="Deadline of a call, seconds.")
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Ask each worker of a pool: does it answer, stream, cost what?

    Exits with 0 where every worker can be used, with 1 where one cannot, with 2 where its settings
    are wrong.
    """
    with console.messages().status("asking the workers"):
        reports = asyncio.run(check_pool(path, None if offline else timeout))
    usable, spent = (
        sum(one.usable for one in reports),
        sum((one.spent for one in reports), oc.Usage()),
    )
    if as_json:
        said = {"pool": str(path), "ok": usable == len(reports), "offline": offline}
        calls = sum(one.calls for one in reports)
        console.show_json({**said, "calls": calls, "spent": spent, "workers": reports})
    else:
        _show_reports(reports, offline)
        unpriced = console.counted(spent.unpriced_calls, "call")
        unknown = f" and {unpriced} of unknown price" if spent.unpriced_calls else ""
        paid = "" if offline else f"; asking cost ${spent.dollars:.6f}{unknown}"
        console.say(f"{usable} of {len(reports)} workers can be used{paid}")
    if usable < len(reports):
        misset = any(fault.what == SETTINGS for one in reports for fault in one.faults)
        raise typer.Exit(console.USAGE if misset else console.FAILED)


# ── for people ────────────────────────────────────────────────────────────────────────────────────
def _show_reports(reports: Sequence[WorkerReport], offline: bool) -> None:
    """Print a line a worker, then each fault with its fix."""
    asked = () if offline else ("answers", "first text", "tokens", "tools", "images")
    head = ("", "worker", "model", "key", *asked, "price in / out")
    rows: list[list[str | Text]] = []
    for one in reports:
        mark = Text("✓", style="green") if one.usable else Text("✗", style="red")
        key = "none" if one.key.env is None else "set" if one.key.present else "missing"
        known = "known: " if one.price is None and one.known_price.price is not None else ""
        price = known + price_text(one.price or one.known_price.price)
        rows.append([mark, one.name, one.model, key, *(() if offline else _seen(one)), price])
    console.show_table(head, rows, words=range(len(head)), names=2)
    screen = console.results()
    for one in reports:
        for fault in one.faults:
            what = (fault.what, "red" if fault.fatal else "yellow")
            screen.print(Text.assemble("\n", (one.name, "bold"), " ", what, f": {fault.message}"))
            screen.print(Text(f"  fix: {console.printable(fault.fix)}"), soft_wrap=True)


def _seen(report: WorkerReport) -> list[str]:
    """What the calls brought to light."""
    stream = report.streaming
    answers = {None: "not asked", False: "no"}.get(
        report.reachable, _seconds(report.latency_seconds)
    )
    whole = "one piece" if stream.pieces else "no text yet"
    text = {"yes": _seconds(stream.first_text_seconds), "accepted": whole, "failed": "fails"}.get(
        stream.works, ""
    )
    reported = [said for said in (report.usage_reported, stream.usage_reported) if said is not None]
    told = "told" if all(reported) else "not always" if any(reported) else "not told"
    words = {"yes": "called", "failed": "fails", "untried": ""}
    able = (words.get(one, one) for one in (report.tools, report.images))
    return [answers, text, told if reported else "", *able]


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f} s"


def price_text(price: oc.Price | None) -> str:
    """The price of input and of output, US dollars a million tokens."""
    return "not known" if price is None else f"${price.input:f} / ${price.output:f}"
