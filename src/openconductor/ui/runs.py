"""The folders of trainings and evaluations that the pages show."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any, Literal

from starlette.requests import Request

from openconductor.evaluation.records import CONFIG, JOURNAL
from openconductor.store.serialisation import plain
from openconductor.ui.door import Visitor
from openconductor.ui.replies import Page, PageProblem

CURVE = "curves.jsonl"
RESULTS = "results.json"
MOST_LISTED = 200
"""The most runs of the list."""
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
        return f"/{self.kind}s/{self.name}"

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


class Runs:
    """Finds the runs below a folder.

    Args:
        root: the folder; the runs stand in it, or in folders of it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def all(self) -> list[RunFolder]:
        """Return all runs, the one that was written last first."""
        recipes = [*self.root.glob(f"*/{CONFIG}"), *self.root.glob(f"*/*/{CONFIG}")]
        runs = [run for run in map(self._read, recipes) if run is not None]
        return sorted(runs, key=lambda run: run.written, reverse=True)

    def journals(self) -> list[str | Path]:
        """Return the places of the stores of all runs, the latest first."""
        return [run.journal for run in self.all()]

    def find(self, name: str, kind: RunKind, visitor: Visitor) -> RunFolder:
        """Return the run of a name, if a visitor may see it.

        Raises:
            PageProblem: there is none, or it is of another kind, or the visitor may not.
        """
        check_may_see_runs(visitor)
        parts = name.split(":")
        if all(part not in ("", ".", "..") and "/" not in part for part in parts):
            run = self._read(self.root.joinpath(*parts) / CONFIG)
            if run is not None and run.kind == kind:
                return run
        raise PageProblem(404, f"There is no {kind} {name!r} here.")

    def asked(self, request: Request, visitor: Visitor) -> RunFolder:
        """Return the run that the address of a request names.

        Raises:
            PageProblem: there is none, or the visitor may not see it.
        """
        kind: RunKind = "training" if "/trainings/" in request.url.path else "evaluation"
        return self.find(request.path_params["run"], kind, visitor)

    def _read(self, file: Path) -> RunFolder | None:
        """Return the run of a recipe's file; None: it is no run's."""
        folder = file.parent
        try:
            recipe = tomllib.loads(file.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if "rollout" not in recipe and "task" not in recipe:
            return None
        kind, result = (
            ("training", RESULTS) if "rollout" in recipe else ("evaluation", "table.json")
        )
        names = (CONFIG, CURVE, JOURNAL, f"{JOURNAL}-wal", result)
        times = {name: _written(folder / name) for name in names}
        written = max(times.values())
        state: RunState = "stopped"
        if times[result] >= max(times[CURVE], times[CONFIG]):
            state = "finished"
        elif time() - written < _QUIET_S:
            state = "running"
        name = ":".join(folder.relative_to(self.root).parts)
        return RunFolder(name, folder, kind, recipe, written, state)

    def page(self, _request: Request, visitor: Visitor) -> Page:
        """Show all runs, the latest first."""
        check_may_see_runs(visitor)
        found = self.all()
        shown = found[:MOST_LISTED]
        values = {"root": self.root, "runs": shown, "all": len(found)}
        return Page("runs", "Runs", values, lambda: {"runs": plain(shown)})


def check_may_see_runs(visitor: Visitor) -> None:
    """Check that a visitor sees all of a store.

    Raises:
        PageProblem: the visitor holds a key, which shows its own episodes only.
    """
    if visitor.key is not None:
        raise PageProblem(404, "A key shows its own episodes, and nothing of others.")


def _written(path: Path) -> float:
    """Return when a file last changed; 0: there is none."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0
