"""``openconductor pool``: draft, check and measure a pool, and record or describe its workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.cli.pool_calibrate import calibrate
from openconductor.cli.pool_check import check
from openconductor.cli.pool_headroom import headroom
from openconductor.cli.pool_init import init
from openconductor.errors import ConfigError
from openconductor.evaluation.recording import write_replay_table


def replay(
    source: Annotated[
        Path,
        typer.Argument(help="The folder of an `eval`, or of MMLU-Pro's JSON files, one a model."),
    ],
    out: Annotated[Path, typer.Option("--out", help="The new table, NAME.csv.gz.")],
    as_json: AsJson = False,
) -> None:
    """Record what workers answered, to train on and measure.

    Questions that some worker did not answer in every repeat are left out. A question's split
    follows from its text: of five, three are for training, one for validation, one for the test.
    """
    if not out.name.endswith(".csv.gz"):
        raise ConfigError(f"--out {out}: expected a new file that ends with .csv.gz")
    if out.exists():
        raise ConfigError(f"--out {out}: exists already; expected a new file")
    made = write_replay_table(source, out)
    if as_json:
        console.show_json({"table": str(out), **made})
    else:
        models = ", ".join(made.pop("models"))
        figures = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in made.items())
        console.show(f"{out}: {figures}", f"workers: {models}")


pool = typer.Typer(
    help="Draft a pool file, check its workers, measure its headroom, write their cards."
)
for _verb in (headroom, calibrate, check, init, replay):
    pool.command(_verb.__name__)(_verb)
