"""``openconductor export``: a finished training becomes a folder that vLLM, ``transformers serve`` and a hub take.

In: a run's folder. Out: the new folder, with a model card; its path on stdout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.config import needing


def export(
    run: Annotated[
        Path, typer.Argument(help="The folder of a finished training.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The new folder (default: RUN/export).")
    ] = None,
    dtype: Annotated[
        Literal["bfloat16", "float16", "float32"] | None,
        typer.Option(
            "--dtype", help="Of the weights (default: bfloat16; float32 for a tiny Conductor)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a trained Conductor as a folder that vLLM and transformers serve.

    A model card is in it, with recipe, curve and verdict.
    """
    with needing("export", "train"):
        from openconductor.training.checkpoint import servers_read_alike
        from openconductor.training.run import export as write
    with console.only_results_on_stdout():
        folder = write(run, out or run / "export", dtype=dtype)
        served = servers_read_alike(folder)
    if as_json:
        console.show_json({"folder": str(folder), "served": served})
    else:
        console.show(str(folder))
        console.say(
            f"serve it with: vllm serve {folder}   or: transformers serve {folder}"
            if served
            else "not for vLLM and transformers serve: they would split its text as Qwen's tokenizers do"
        )
