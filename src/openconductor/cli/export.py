"""``openconductor export``: write a finished training as a folder that vLLM and others serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.cli.runs import ask_command
from openconductor.config import needing
from openconductor.errors import ConfigError
from openconductor.training.train_config import load_train_config


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
            "--dtype",
            help="The type of the weights (default: bfloat16; float32 for a tiny Conductor).",
        ),
    ] = None,
    adapter: Annotated[
        bool,
        typer.Option("--adapter", help="Write only the adapters; they go with the recipe's base."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a trained Conductor as a folder that vLLM and transformers serve.

    It has a model card with recipe, curve and verdict.
    """
    if not (run / "results.json").is_file():  # before torch is imported, which takes seconds
        raise ConfigError(
            f"export: no results.json in {run}, expected a finished training's folder"
        )
    out = out or run / "export"
    if out.exists():
        raise ConfigError(f"export: {out} exists, expected a new folder")
    with needing("export", "train"):
        from openconductor.training.export import adapter_server, export as write
        from openconductor.training.models import servers_read_alike
    with console.only_results_on_stdout():
        folder = write(run, out, dtype=dtype, adapter=adapter)
        served = servers_read_alike(run / "conductor")
    if as_json:
        console.show_json({"folder": str(folder), "served": served})
        return
    console.show(str(folder))
    if adapter:
        console.say(f"serve it with: {adapter_server(folder)}")
    elif served:
        console.say(f"serve it with: vllm serve {folder}   or: transformers serve {folder}")
    else:
        console.say(
            "vLLM and transformers serve cannot serve it: they would split its text as Qwen's "
            "tokenizers do"
        )
    pool = load_train_config(run / "config.toml").pool
    console.say(f"ask it with: {ask_command(folder, pool)}")
