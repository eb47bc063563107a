"""Recipes as text, and the contents of a run's folder, for all learning tests."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from openconductor.gym.bundled import bundled_folder
from openconductor.training.train_config import TrainConfig

COLD_START = bundled_folder() / "cold_start"
"""A Conductor that knows the form; its workflows are right at times."""


def recipe(text: str, *, base: Path = COLD_START) -> TrainConfig:
    """A recipe over the gym from a base, unless it names another task, pool or model."""
    tables: dict[str, Any] = {"pool": "gym", "data": {"task": "gym"}} | tomllib.loads(text)
    tables["model"] = {"base": str(base)} | tables.get("model", {})
    return TrainConfig.model_validate(tables)


def curve(folder: Path) -> list[dict[str, Any]]:
    """The records of a run's curve, without seconds."""
    lines = (folder / "curves.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        del record["seconds"]
    return records


def measured(folder: Path) -> tuple[object, object]:
    """The two measurements of a finished run."""
    results = json.loads((folder / "results.json").read_text("utf-8"))
    return results["sampled"], results["greedy"]


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def set_back(run: Path, *names: str) -> None:
    """Take files and folders out of a run, as if it had been killed before they were written."""
    aside = run.with_name(f"{run.name}-{len(list(run.parent.iterdir()))}")
    aside.mkdir()
    for name in names:
        (run / name).rename(aside / Path(name).name)


def start(recipe_file: Path, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """Begin a training in a process of its own."""
    command = ["train", str(recipe_file), "--out", str(folder), *more]
    return subprocess.Popen(
        [sys.executable, "-m", "openconductor", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
