"""``openconductor mcp``: offer the pool to coding agents as one tool, over stdin and stdout."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

import openconductor as oc
from openconductor.cli import console, options
from openconductor.config import needing
from openconductor.store import open_store
from openconductor.traces import TracesTable, open_traces


@options.spread
def mcp(
    *,
    pool: Annotated[Path, typer.Option("--pool", help="A pool file (TOML).", show_default=False)],
    conductor: Annotated[
        str, typer.Option("--conductor", help="The Conductor, as in `ask`.", show_default=False)
    ],
    how: options.AnswerOptions,
    total_calls: Annotated[
        int | None,
        typer.Option("--total-calls", min=0, help="The most calls of all answers together."),
    ] = None,
    total_dollars: Annotated[
        Decimal | None,
        typer.Option(
            "--total-dollars",
            parser=lambda text: options.read_dollars(text, "--total-dollars"),
            metavar="AMOUNT",
            help="The most US dollars of all answers together.",
        ),
    ] = None,
    journal: options.Journal = None,
    traces: options.Traced = False,
) -> None:
    """Offer the pool to coding agents as one MCP tool, over stdio.

    The agent starts it: its settings name this command. A budget holds for each answer, and a call
    may set a lower one. A total holds until the agent stops the command.
    """
    with needing("mcp", "mcp"):
        from openconductor.serving.apis.mcp_server import serve
    with console.only_results_on_stdout():
        workers = oc.WorkerPool.from_toml(pool)
        orchestrator = how.open_conductor(conductor, workers)
    total = oc.Budget(total_calls, dollars=total_dollars)
    with (
        open_traces(TracesTable() if traces else None) as tracing,
        nullcontext() if journal is None else open_store(journal) as store,
    ):
        asyncio.run(
            serve(
                orchestrator, how.budget, oc.__version__, total=total, store=store, traces=tracing
            )
        )
