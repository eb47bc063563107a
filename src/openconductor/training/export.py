"""A trained Conductor as a folder that vLLM, ``transformers serve`` and a hub take, with its model card.

In: a run's folder. Out: weights in one dtype, tokenizer with chat template, generation settings, ``conductor.json``,
and a ``README.md`` that says how it was trained, what it reached and how to ask it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, cast

import torch

from openconductor.errors import ConfigError
from openconductor.training.checkpoint import is_conductor, load_model, storing
from openconductor.training.curves import Record
from openconductor.training.train_config import load_train_config

Dtype = Literal["bfloat16", "float16", "float32"]
_WINDOW = 20  # iterations at either end of the curve


def export(run: Path, folder: Path, *, dtype: Dtype = "bfloat16") -> Path:
    """Write a finished run's Conductor into a new folder, which is returned.

    Args:
        run: the folder of the training.
        folder: where to write; it must not be there yet.
        dtype: of the weights.

    Raises:
        ConfigError: the run is not finished, or the folder is there.
        JournalError: the disk failed.
    """
    conductor = run / "conductor"
    if not is_conductor(str(conductor)) or not (run / "results.json").is_file():
        raise ConfigError(f"export: {run} holds no finished training, expected conductor/ and results.json in it")
    if folder.exists():
        raise ConfigError(f"export: {folder} is there already, expected a new folder")
    model, tokenizer = load_model(conductor, dtype=cast("torch.dtype", getattr(torch, dtype)))
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    with storing(folder):
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        shutil.copy(conductor / "conductor.json", part)
        results = cast("Record", json.loads((run / "results.json").read_text(encoding="utf-8")))
        (part / "README.md").write_text(_card(run, results), encoding="utf-8")
        part.replace(folder)
    return folder


def _card(run: Path, results: Record) -> str:
    config = load_train_config(run / "config.toml")
    curve = [json.loads(line) for line in (run / "curves.jsonl").read_text(encoding="utf-8").splitlines()]
    told = json.loads((run / "conductor" / "conductor.json").read_text(encoding="utf-8"))
    base = config.model.base or "a fresh model"
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [openconductor, orchestration, grpo]
---
# {config.name}

A Conductor: for each question it writes a workflow over numbered workers. It was trained by OpenConductor from {base}
on {config.data.task} over the pool `{config.pool}`, seed {config.seed}. It plans only for workers in the places that
they had in that pool.

## What it reached

Held out: {config.held_out.questions} questions at most of {", ".join(config.held_out.tasks) or config.data.task}.
One seed proves little: compare several before you rely on a figure.

{_phases(results)}

## Curve

{_ends(curve)}

## How to ask it

`openconductor ask --conductor FOLDER --pool POOL.toml "…"` loads this folder in process. Served by
`vllm serve FOLDER` or `transformers serve`, it is a provider: `openai_compatible:NAME` with the server's `base_url`,
and the prompt that it was trained with:

```json
{json.dumps(told["prompt"], indent=2)}
```

At most {told["max_tokens"]} tokens and {told["max_steps"]} steps.

## Recipe

```toml
{(run / "config.toml").read_text(encoding="utf-8").strip()}
```
"""


def _phases(results: Record) -> str:
    rows = ["| | accuracy | given valid | validity |", "|---|---|---|---|"]
    for key, name in (("start", "before rewards"), ("sampled", "sampled at temperature 1"), ("greedy", "greedy")):
        shares = [_percent(results[key][measure]) for measure in ("accuracy", "accuracy_given_valid", "validity")]
        rows.append(f"| {name} | {' | '.join(shares)} |")
    return "\n".join(rows)


def _ends(curve: list[dict[str, Any]]) -> str:
    window = min(_WINDOW, len(curve))
    rows = [f"| | first {window} iterations | last {window} |", "|---|---|---|"]
    for measure in ("validity", "accuracy", "routing_entropy_bits", "masked"):
        ends = [fmean(record[measure] for record in part) for part in (curve[:window], curve[-window:])]
        rows.append(f"| {measure.replace('_', ' ')} | {ends[0]:.3f} | {ends[1]:.3f} |")
    return "\n".join(rows)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
