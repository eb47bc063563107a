"""``openconductor pool``: draft, check and measure a pool, and record or describe its workers."""

from __future__ import annotations

import typer

from openconductor.cli.pool_calibrate import calibrate
from openconductor.cli.pool_check import check
from openconductor.cli.pool_headroom import headroom
from openconductor.cli.pool_init import init
from openconductor.cli.pool_replay import replay

pool = typer.Typer(
    help="Draft a pool file, check its workers, measure its headroom, write their cards."
)
for _verb in (headroom, calibrate, check, init, replay):
    pool.command(_verb.__name__)(_verb)
