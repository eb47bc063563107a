"""Export of a trained Conductor: a folder with weights, tokenizer and a model card."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

import torch
from safetensors.torch import load_file, save_file

from openconductor.errors import ConfigError
from openconductor.providers.conductor_file import NAME as CONDUCTOR_FILE
from openconductor.training.checkpoint import storing
from openconductor.training.curves import WINDOW, Record, read_curve, read_record
from openconductor.training.models import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    is_conductor,
    is_tiny,
    load_model,
    load_tokenizer,
    servers_read_alike,
)
from openconductor.training.run import quiet_libraries
from openconductor.training.train_config import load_train_config

_SERVED = """Served by
`vllm serve FOLDER` or `transformers serve FOLDER`, it is a provider:
`openai_compatible:FOLDER` with the server's `base_url`, its prompt, and temperature 0."""
_ADAPTER = """It holds adapters,
which go with {base} alone. vLLM serves both together (`vllm serve {base} --enable-lora
--lora-modules conductor=FOLDER --chat-template FOLDER/chat_template.jinja`): the model `conductor`
there is a provider, with its prompt, and temperature 0."""
_NOT_SERVED = """It is not for
vLLM and `transformers serve`, which split its text as Qwen's tokenizers do, not as its own does."""


def export(
    run: Path,
    folder: Path,
    *,
    dtype: Literal["bfloat16", "float16", "float32"] | None = None,
    adapter: bool = False,
) -> Path:
    """Write a finished run's Conductor into a new folder, which is returned.

    Args:
        run: the folder of the training.
        folder: where to write; it must not exist.
        dtype: of the weights. None: bfloat16, and float32 for a tiny Conductor, whose runtime reads
            no other.
        adapter: write only the adapters that it learnt, which go with the recipe's base.

    Raises:
        ConfigError: the run is not finished or has no adapters, the folder exists, or a tiny
            Conductor is wanted in another dtype.
        JournalError: the disk failed.
    """
    conductor = run / "conductor"
    results = run / "results.json"
    if not is_conductor(str(conductor)) or not results.is_file():
        raise ConfigError(
            f"export: {run} holds no finished training, expected conductor/ and results.json in it"
        )
    if folder.exists():
        raise ConfigError(f"export: {folder} exists, expected a new folder")
    tiny = is_tiny(str(conductor))
    if tiny and dtype not in (None, "float32"):
        raise ConfigError(
            f"export: got dtype {dtype} for a tiny Conductor, whose runtime reads float32 only"
        )
    learnt = conductor / ADAPTER
    if adapter and not learnt.is_dir():
        raise ConfigError(
            f"export: {run} has no adapters, because it learnt all weights; expected a training "
            "with model.lora_rank, or an export without --adapter"
        )
    weights_type: torch.dtype = getattr(torch, dtype or ("float32" if tiny else "bfloat16"))
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    with storing(folder), quiet_libraries():
        try:
            part.mkdir(parents=True)
            if adapter:
                _write_adapter(learnt, part, weights_type)
            else:
                model, _ = load_model(conductor, dtype=weights_type)
                model.save_pretrained(part)
            load_tokenizer(conductor).save_pretrained(part)
            shutil.copy(conductor / CONDUCTOR_FILE, part)
            served = servers_read_alike(conductor)
            card = model_card(run, read_record(results), served=served, adapter=adapter)
            (part / "README.md").write_text(card, encoding="utf-8")
            part.replace(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder


def _write_adapter(learnt: Path, folder: Path, dtype: torch.dtype) -> None:
    """Write adapters with weights of another type."""
    shutil.copy(learnt / "adapter_config.json", folder)
    weights = load_file(learnt / ADAPTER_WEIGHTS)
    save_file(
        {name: tensor.to(dtype) for name, tensor in weights.items()}, folder / ADAPTER_WEIGHTS
    )


def adapter_server(folder: Path) -> str:
    """Return the command by which vLLM serves adapters beside their base."""
    settings = read_record(folder / "adapter_config.json")
    rank = 8
    while rank < settings["r"]:  # vLLM takes powers of two
        rank *= 2
    return (
        f"vllm serve {settings['base_model_name_or_path']} --enable-lora --max-lora-rank {rank} "
        f"--lora-modules conductor={folder} --chat-template {folder / 'chat_template.jinja'}"
    )


def model_card(run: Path, results: Record, *, served: bool, adapter: bool = False) -> str:
    """Return what a reader of an exported Conductor should know, in Markdown.

    Args:
        run: the folder of the training.
        results: what it reached.
        served: True if servers split a text into the same tokens.
        adapter: True if the folder has only the adapters.
    """
    recipe = (run / "config.toml").read_text(encoding="utf-8").strip()
    config = load_train_config(run / "config.toml")
    curve = read_curve(run / "curves.jsonl")
    last_phase = [record for record in curve if record["phase"] == curve[-1]["phase"]]
    told = read_record(run / "conductor" / "conductor.json")
    base = config.model.base or "a fresh model"
    library = "transformers"
    serving = _SERVED if served else _NOT_SERVED
    if adapter:
        library = f"peft\nbase_model: {base}"
        serving = _ADAPTER.format(base=base)
    tested = ", ".join(config.held_out.tasks) or config.data.task
    return f"""---
library_name: {library}
pipeline_tag: text-generation
tags: [openconductor, orchestration, grpo]
---
# {config.name}

A Conductor: for each question it writes a workflow over numbered workers. It was trained by
OpenConductor from {base} on {config.data.task} over the pool `{config.pool}`, seed {config.seed}.
{_describe_workers(told)}

## What it reached

Held out: {config.held_out.questions} questions at most of {tested}.
One seed proves little: compare several before you rely on a figure.

{_results_table(results)}

## Curve

{_curve_table(last_phase)}

## How to ask it

`openconductor ask --conductor FOLDER --pool POOL.toml "…"` loads this folder in process. {serving}
The prompt that it was trained with:

```json
{json.dumps(told["prompt"], indent=2)}
```

At most {told["max_tokens"]} tokens and {told["max_steps"]} steps.

## Recipe

```toml
{recipe}
```
"""


def _describe_workers(told: Record) -> str:
    """Say for which workers the Conductor of a ``conductor.json`` plans."""
    if told["prompt"].get("cards"):
        return "It reads the workers' cards, and plans for any pool that has them."
    lines = ["It plans only for workers in the places that they had in that pool."]
    for worker in told.get("workers", ()):
        model = f" ({worker['model']})" if worker["model"] else ""
        lines.append(f"- {worker['ordinal']}: {worker['name']}{model}")
    return "\n".join(lines)


def _results_table(results: Record) -> str:
    names = {
        "start": "before rewards",
        "sampled": "sampled at temperature 1",
        "greedy": "greedy",
    }
    rows = ["| | accuracy | given valid | validity |", "|---|---|---|---|"]
    for key, name in names.items():
        measured = results[key]
        shares = [measured[share] for share in ("accuracy", "accuracy_given_valid", "validity")]
        rows.append(f"| {name} | {' | '.join(map(_percent, shares))} |")
    return "\n".join(rows)


def _curve_table(curve: Sequence[Record]) -> str:
    # The two ends of a short training must not be the same.
    window = max(1, min(WINDOW, len(curve) // 4))
    rows = [f"| | first {window} iterations | last {window} |", "|---|---|---|"]
    for measure in ("validity", "accuracy", "routing_entropy_bits", "masked"):
        first = fmean(record[measure] for record in curve[:window])
        last = fmean(record[measure] for record in curve[-window:])
        rows.append(f"| {measure.replace('_', ' ')} | {first:.3f} | {last:.3f} |")
    return "\n".join(rows)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
