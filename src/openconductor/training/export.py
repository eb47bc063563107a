"""Export of a trained Conductor: a folder with weights, tokenizer and a model card."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

import torch

from openconductor.errors import ConfigError
from openconductor.training.checkpoint import (
    is_conductor,
    is_tiny,
    load_model,
    servers_read_alike,
    storing,
)
from openconductor.training.curves import WINDOW, Record, read_curve, read_record
from openconductor.training.train_config import load_train_config

_SERVED = """Served by
`vllm serve FOLDER` or `transformers serve FOLDER`, it is a provider:
`openai_compatible:FOLDER` with the server's `base_url`, its prompt, and temperature 0."""
_NOT_SERVED = """It is not for
vLLM and `transformers serve`, which split its text as Qwen's tokenizers do, not as its own does."""


def export(
    run: Path, folder: Path, *, dtype: Literal["bfloat16", "float16", "float32"] | None = None
) -> Path:
    """Write a finished run's Conductor into a new folder, which is returned.

    Args:
        run: the folder of the training.
        folder: where to write; it must not exist.
        dtype: of the weights. None: bfloat16, and float32 for a tiny Conductor, whose runtime reads
            no other.

    Raises:
        ConfigError: the run is not finished, the folder exists, or a tiny Conductor is wanted in
            another dtype.
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
    default = "float32" if tiny else "bfloat16"
    model, tokenizer = load_model(conductor, dtype=getattr(torch, dtype or default))
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    with storing(folder):
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        shutil.copy(conductor / "conductor.json", part)
        card = model_card(run, read_record(results), served=servers_read_alike(part))
        (part / "README.md").write_text(card, encoding="utf-8")
        part.replace(folder)
    return folder


def model_card(run: Path, results: Record, *, served: bool) -> str:
    """Return what a reader of an exported Conductor should know, in Markdown.

    Args:
        run: the folder of the training.
        results: what it reached.
        served: True if servers split a text into the same tokens.
    """
    recipe = (run / "config.toml").read_text(encoding="utf-8").strip()
    config = load_train_config(run / "config.toml")
    curve = read_curve(run / "curves.jsonl")
    last_phase = [record for record in curve if record["phase"] == curve[-1]["phase"]]
    told = read_record(run / "conductor" / "conductor.json")
    base = config.model.base or "a fresh model"
    serving = _SERVED if served else _NOT_SERVED
    tested = ", ".join(config.held_out.tasks) or config.data.task
    return f"""---
library_name: transformers
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
