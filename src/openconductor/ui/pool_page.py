"""The page about the pool: health, latency, errors, spending, cards and headroom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request

from openconductor.calls.cards import describe
from openconductor.evaluation.records import kept_calibrations
from openconductor.pool import WorkerPool
from openconductor.report.runs.run_folders import RunFolder, find_runs
from openconductor.store import StoreReader
from openconductor.store.serialisation import plain
from openconductor.ui.asker import Asker
from openconductor.ui.door import Visitor
from openconductor.ui.evaluations import EvaluationPages
from openconductor.ui.replies import Page
from openconductor.ui.runs import Runs


class WorkerPages:
    """Shows the workers of a pool.

    Args:
        store: has their calls.
        runs: has evaluations, which measured them.
        evaluations: has the numbers of these.
        pool: the workers of a server; None: only those that the store and the runs know.
        asker: knows which of them a key may use; None: a key sees all.
        usages: returns what each key has spent of its budget.
    """

    def __init__(
        self,
        store: StoreReader,
        runs: Runs,
        evaluations: EvaluationPages,
        pool: WorkerPool | None,
        asker: Asker | None,
        usages: Callable[[], Sequence[Mapping[str, Any]]],
    ) -> None:
        self._store = store
        self._runs = runs
        self._evaluations = evaluations
        self._pool = pool
        self._asker = asker
        self._usages = usages

    def page(self, _request: Request, visitor: Visitor) -> Page:
        """Show the pool; a key's holder sees its own workers and spending, and no calls."""
        sees_all = not visitor.key
        measured = self._latest_evaluation() if sees_all else None
        numbers = None if measured is None else self._evaluations.numbers(measured)
        cards: dict[str, str] = {}
        if measured is not None:
            kept = kept_calibrations(measured.folder) or {}
            cards = {name: describe(calibrations) for name, calibrations in kept.items()}
        workers = [] if self._pool is None else [worker for _, worker in self._pool]
        ordinals: Mapping[int, str] = {} if self._pool is None else self._pool.names
        if visitor.key and self._asker is not None:
            allowed = self._asker.workers(visitor.key)
            workers = [worker for worker in workers if worker.name in allowed]
            ordinals = {place: name for place, name in ordinals.items() if name in allowed}
        lines = self._store.lines(limit=1) if sees_all and not ordinals else ()
        latest = self._store.episode(lines[0].id, rounds=False) if lines else None
        if latest is not None:
            ordinals = latest.workers
        values: dict[str, object] = {
            "workers": workers,
            "ordinals": {name: ordinal for ordinal, name in ordinals.items()},
            "lines": {line.name: line for line in self._store.workers()} if sees_all else {},
            "spending": [key for key in self._usages() if sees_all or key["key"] == visitor.key],
            "cards": cards | {worker.name: worker.full_card for worker in workers},
            "measured": measured,
            "numbers": numbers,
        }
        data = {name: values[name] for name in ("lines", "spending", "cards")}
        data["healthy"] = {worker.name: worker.healthy for worker in workers}
        return Page("pool", "Pool", values, lambda: plain(data))

    def _latest_evaluation(self) -> RunFolder | None:
        """Return the latest evaluation that asked several workers alone; None: there is none."""
        for run in find_runs(self._runs.root):
            systems = run.recipe.get("systems", ())
            alone = sum(system.startswith("worker:") for system in systems)
            if run.kind == "evaluation" and ("workers" in systems or alone > 1):
                return run
        return None
