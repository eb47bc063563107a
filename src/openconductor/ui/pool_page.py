"""The page about the pool: health, latency, errors, spending, cards and headroom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from openconductor.calls.cards import describe
from openconductor.errors import ConfigError
from openconductor.evaluation.records import kept_calibrations
from openconductor.pool import Worker, WorkerPool
from openconductor.report.runs.run_folders import RunFolder, find_runs
from openconductor.store import StoreReader, WorkerLine
from openconductor.store.serialisation import plain
from openconductor.ui.asker import Asker
from openconductor.ui.door import Visitor
from openconductor.ui.evaluations import EvaluationPages
from openconductor.ui.replies import Page
from openconductor.ui.runs import Runs


@dataclass(frozen=True, slots=True)
class WorkerPages:
    """Shows the workers of a pool.

    Attributes:
        store: has their calls.
        runs: has evaluations, which measured them.
        evaluations: has the numbers of these.
        pool: the workers of a server; None: only those that the store and the runs know.
        asker: knows which of them a key may use; None: a key sees all.
        usages: returns what each key has spent of its budget.
    """

    store: StoreReader
    runs: Runs
    evaluations: EvaluationPages
    pool: WorkerPool | None
    asker: Asker | None
    usages: Callable[[], Sequence[Mapping[str, Any]]]

    def page(self, _request: Request, visitor: Visitor) -> Page:
        """Show the pool; a key's holder sees its own workers and spending, and no calls."""
        workers = self._workers(visitor)
        cards = {worker.name: worker.full_card for worker in workers.values()}
        names = {ordinal: worker.name for ordinal, worker in workers.items()}
        spending = self.usages()
        measured = numbers = problem = None
        lines: Sequence[WorkerLine] = ()
        if visitor.key:
            spending = [spent for spent in spending if spent["key"] == visitor.key]
        else:
            lines = self.store.workers()
            names = names or self._latest_names()
            measured = self._latest_evaluation()
        if measured is not None:
            try:
                numbers = self.evaluations.numbers(measured)
                cards = _measured_cards(measured) | cards
            except ConfigError as error:
                problem = str(error)
        values: dict[str, object] = {
            "workers": list(workers.values()),
            "ordinals": {name: ordinal for ordinal, name in names.items()},
            "lines": {line.name: line for line in lines},
            "spending": spending,
            "cards": cards,
            "measured": measured,
            "numbers": numbers,
            "problem": problem,
        }
        data = {name: values[name] for name in ("lines", "spending", "cards")}
        data["healthy"] = {worker.name: worker.healthy for worker in workers.values()}
        return Page("pool", "Pool", values, lambda: plain(data))

    def _workers(self, visitor: Visitor) -> dict[int, Worker]:
        """Return the workers of the server that a visitor may see, by ordinal."""
        workers = {} if self.pool is None else dict(self.pool)
        if not visitor.key or self.asker is None:
            return workers
        allowed = self.asker.workers(visitor.key)
        return {place: worker for place, worker in workers.items() if worker.name in allowed}

    def _latest_names(self) -> Mapping[int, str]:
        """Return the names of the workers that the latest episode was offered, by ordinal."""
        lines = self.store.lines(limit=1)
        latest = self.store.episode(lines[0].id, rounds=False) if lines else None
        return {} if latest is None else latest.workers

    def _latest_evaluation(self) -> RunFolder | None:
        """Return the latest evaluation that asked several workers alone; None: there is none."""
        for run in find_runs(self.runs.root):
            systems = run.recipe.get("systems", ())
            alone = sum(system.startswith("worker:") for system in systems)
            if run.kind == "evaluation" and ("workers" in systems or alone > 1):
                return run
        return None


def _measured_cards(run: RunFolder) -> dict[str, str]:
    """Return what an evaluation measured of workers, in words."""
    kept = kept_calibrations(run.folder) or {}
    return {name: describe(calibrations) for name, calibrations in kept.items()}
