"""``openconductor pool check``: print what each worker of a pool can do, and how to fix faults."""

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
from openconductor.probe import SETTINGS, Fault, WorkerReport, check_pool

USABLE = Text("✓", style="green")
UNUSABLE = Text("✗", style="red")


def check(
    path: Annotated[Path, typer.Argument(help="The pool file (TOML).", show_default=False)],
    offline: Annotated[
        bool, typer.Option("--offline", help="Make no call: check only keys, settings and prices.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, max=600, help="Seconds for a call and its repeats."),
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Ask each worker of a pool: does it answer, stream, cost what?

    Exit code 0: every worker can be used. 1: some cannot. 2: settings of some are wrong.
    """
    with console.progress_bar("asking the workers", quiet=True) as advance:
        reports = asyncio.run(check_pool(path, None if offline else timeout, advance))
    usable = sum(report.usable for report in reports)
    spent = sum((report.spent for report in reports), oc.Usage())
    if as_json:
        console.show_json(
            {
                "pool": str(path),
                "ok": usable == len(reports),
                "offline": offline,
                "calls": sum(report.calls for report in reports),
                "spent": spent,
                "workers": reports,
            }
        )
    else:
        _show_reports(reports, offline)
        summary = f"{usable} of {len(reports)} workers can be used"
        if not offline:
            summary += f"; asking cost ${spent.dollars:.6f}"
        if spent.unpriced_calls:
            summary += f" and {console.counted(spent.unpriced_calls, 'call')} of unknown price"
        console.say(summary)
    if usable < len(reports):
        faults = [fault.what for report in reports for fault in report.faults]
        raise typer.Exit(console.USAGE if SETTINGS in faults else console.FAILED)


def _show_reports(reports: Sequence[WorkerReport], offline: bool) -> None:
    """Print a line a worker, then each fault with its fix."""
    head = ["", "worker", "model", "key"]
    if not offline:
        head += ["answers", "streams", "tokens", "tools", "images"]
    head.append("price in / out")
    rows: list[list[str | Text]] = []
    for report in reports:
        mark = USABLE if report.usable else UNUSABLE
        row = [mark, report.name, report.model, _key_text(report)]
        if not offline:
            row += _answer_cells(report)
        rows.append([*row, _price_cell(report)])
    console.show_table(head, rows, words=range(len(head)), names=2)
    names: dict[Fault, list[str]] = {}  # workers may share one, such as a missing key
    for report in reports:
        for fault in report.faults:
            names.setdefault(fault, []).append(report.name)
    screen = console.results()
    for fault, of_workers in names.items():
        kind = (fault.what, "red" if fault.fatal else "yellow")
        who = (", ".join(of_workers), "bold")
        screen.print(Text.assemble("\n", who, " ", kind, f": {fault.message}"))
        screen.print(Text(f"  fix: {console.printable(fault.fix)}"), soft_wrap=True)


def _key_text(report: WorkerReport) -> str:
    if report.key.env is None:
        return "none"
    return "set" if report.key.present else "missing"


def _price_cell(report: WorkerReport) -> str:
    if report.prices_itself:
        return "needs none"
    if report.price is None and report.known_price.price is not None:
        return f"known: {price_text(report.known_price.price)}"
    return price_text(report.price)


def _answer_cells(report: WorkerReport) -> list[str]:
    """Return the cells about answers, streams, tokens, tools and images."""
    answers = {None: "untried", False: "no", True: f"{report.latency_seconds or 0:.2f} s"}
    tokens = {None: "", False: "not reported", True: "reported"}
    return [
        answers[report.reachable],
        report.streaming.works,
        tokens[report.usage_reported],
        report.tools,
        report.images,
    ]


def price_text(price: oc.Price | None) -> str:
    """Return the price of input and of output, US dollars a million tokens."""
    return "not known" if price is None else f"${price.input:f} / ${price.output:f}"
