"""The folders of trainings and evaluations: what they are of, and how far they are."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any, Literal
from urllib.parse import quote

from openconductor.evaluation.records import CONFIG, JOURNAL

CURVE = "curves.jsonl"
RESULTS = "results.json"
RunKind = Literal["training", "evaluation"]
RunState = Literal["running", "finished", "stopped"]

_QUIET_S = 600.0


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder of a training or an evaluation.

    Attributes:
        name: its path below the root, with ":" between the parts; it names the run in addresses.
        folder: the folder.
        kind: what it is of.
        recipe: its recipe, as it was written.
        written: when its files last changed, in seconds since 1970.
        state: how far it is. One that wrote nothing for ten minutes counts as stopped.
    """

    name: str
    folder: Path
    kind: RunKind
    recipe: Mapping[str, Any]
    written: float
    state: RunState

    @property
    def address(self) -> str:
        """Its page, below the prefix."""
        return f"/{self.kind}s/{quote(self.name, safe=':', errors='replace')}"

    @property
    def journal(self) -> str | Path:
        """The place of its store: a file in its folder, or a database."""
        return self.recipe.get("journal") or self.folder / JOURNAL

    @property
    def version(self) -> str:
        """A text that changes with the run's files."""
        return f"{self.written:.3f}-{self.state}"

    def read_json(self, name: str) -> Mapping[str, Any]:
        """Return what a file of the folder holds; empty: there is none, or it is being written."""
        with suppress(OSError, ValueError):
            return json.loads((self.folder / name).read_text("utf-8"))
        return {}


def find_runs(root: Path, name: str | None = None) -> list[RunFolder]:
    """Return the runs in a folder and in its folders, the one that was written last first.

    Args:
        root: the folder.
        name: only those of this name; None: all.
    """
    runs: list[RunFolder] = []
    for recipe in [*root.glob(f"*/{CONFIG}"), *root.glob(f"*/*/{CONFIG}")]:
        if name in (None, _name_of(recipe.parent, root)):
            run = read_run(recipe, root)
            if run is not None:
                runs.append(run)
    return sorted(runs, key=lambda run: run.written, reverse=True)


def read_run(file: Path, root: Path) -> RunFolder | None:
    """Return the run of a recipe's file; None: it is no run's.

    Args:
        file: the recipe.
        root: the run's name is its path below this folder.
    """
    folder = file.parent
    try:
        recipe = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if "rollout" in recipe:
        kind, result = "training", RESULTS
    elif "task" in recipe:
        kind, result = "evaluation", "table.json"
    else:
        return None
    names = (CONFIG, CURVE, JOURNAL, f"{JOURNAL}-wal", result)
    times = {name: _written(folder / name) for name in names}
    written = max(times.values())
    state: RunState = "stopped"
    if times[result] >= max(times[CURVE], times[CONFIG]):
        state = "finished"
    elif time() - written < _QUIET_S:
        state = "running"
    return RunFolder(_name_of(folder, root), folder, kind, recipe, written, state)


def _name_of(folder: Path, root: Path) -> str:
    return ":".join(folder.relative_to(root).parts)


def _written(path: Path) -> float:
    """Return when a file last changed; 0: there is none, or it is empty, as readers leave one."""
    with suppress(OSError):
        stat = path.stat()
        if stat.st_size:
            return stat.st_mtime
    return 0.0
