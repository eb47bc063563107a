"""The systems that an evaluation measured, made again to answer users.

``MeasuredRun`` makes the systems of a run over its pool, and says what was measured of them. It
asks nothing: a router learns again from the lessons that the run kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from openconductor.baselines.pools import Baseline
from openconductor.baselines.rewired import Rewired
from openconductor.conductor import Conductor
from openconductor.config import one_of
from openconductor.errors import ConfigError
from openconductor.evaluation.choice import choose_auto, is_competitor
from openconductor.evaluation.eval_config import EvalConfig, expand
from openconductor.evaluation.records import Plain, Results, kept_calibrations, read_folder
from openconductor.evaluation.systems import (
    Lessons,
    Workshop,
    check_trained_files,
    load_pool,
    needs,
    read_lessons,
)
from openconductor.evaluation.tables import make_rows
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, OnEvent, Orchestrator
from openconductor.types import Budget, Episode, OnNoPlan, Question, TrainedWorker

AUTO = "auto"
"""The name of the system that ``choose_auto`` chooses."""

_NO_WORKER = (
    "{run} asked no worker alone, which says what the others are worth; evaluate the system "
    "`workers`, too"
)


# ── the systems ───────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Capped:
    """A system with a limit of calls for a question: the option ``calls``."""

    orchestrator: Orchestrator
    calls: int

    async def ask(
        self,
        question: Question,
        *,
        budget: Budget | None = None,
        on_event: OnEvent | None = None,
        context: CallContext | None = None,
    ) -> Episode:
        """Answer one question, within the lower of both limits of calls."""
        budget = budget or Budget()
        calls = self.calls if budget.calls is None else min(self.calls, budget.calls)
        budget = replace(budget, calls=calls)
        return await self.orchestrator.ask(
            question, budget=budget, on_event=on_event, context=context
        )


def for_users(
    orchestrator: Orchestrator,
    *,
    fallback: bool,
    on_no_plan: OnNoPlan,
    direct_below_tokens: int | None = None,
    plan_timeout_s: float | None = None,
) -> Orchestrator:
    """Return a system that answers users: it falls back to other workers, and needs no valid plan.

    The arguments are those of a served Conductor (``ServeConfig``).
    """
    how: dict[str, Any] = {
        "fallback": fallback,
        "on_no_plan": on_no_plan,
        "direct_below_tokens": direct_below_tokens,
    }
    match orchestrator:
        case Conductor(planner=planner):
            if plan_timeout_s is not None:
                timeout_s = min(plan_timeout_s, planner.timeout_s or plan_timeout_s)
                how["planner"] = replace(planner, timeout_s=timeout_s)
            return replace(orchestrator, **how)
        case Rewired(conductor=conductor):
            changed = for_users(conductor, plan_timeout_s=plan_timeout_s, **how)
            return replace(orchestrator, conductor=cast("Conductor", changed))
        case Capped(orchestrator=inner):
            changed = for_users(inner, plan_timeout_s=plan_timeout_s, **how)
            return replace(orchestrator, orchestrator=changed)
        case Baseline():
            orchestrator.fallback = fallback
            return orchestrator
        case _:
            return orchestrator


def planner_of(system: Orchestrator) -> Worker | None:
    """Return the worker that plans for a system; None: nobody does."""
    match system:
        case Conductor(planner=planner):
            return planner
        case Rewired(conductor=conductor):
            return conductor.planner
        case Capped(orchestrator=inner):
            return planner_of(inner)
        case _:
            return None


# ── the run ───────────────────────────────────────────────────────────────────────────────────────
class MeasuredRun:
    """A run of an evaluation, whose systems can be asked again.

    Args:
        folder: the run's folder.
        pool: a pool file in place of the recipe's; it must name the same workers and models.

    Attributes:
        workshop: makes the systems.
        config: the recipe, with the pool that was loaded.
        choice: what ``auto`` is; None: no worker was asked alone.
        names: the systems that can be asked: ``auto``, and all that were measured but for bounds.

    Raises:
        ConfigError: the folder holds no evaluation, or its pool has other workers.
        JournalError: its journal cannot be read.
    """

    def __init__(self, folder: Path, pool: str | None = None) -> None:
        results = Results.load(folder)
        _, environment = read_folder(folder)
        config = results.config
        if pool is not None:
            config = replace(config, pool=pool)
        self._folder = folder
        self.config = config
        self._environment = environment
        # A system's average over all tasks comes last.
        self._rows = {row.system: row for row in make_rows(results)}
        specs = expand(config.specs, results.workers.values())
        self._specs = {spec.name: spec for spec in specs if is_competitor(spec.name, results)}
        workers = _load_workers(folder, config, results.workers, environment)
        self.workshop = Workshop(config, workers)
        self.choice = choose_auto(results)
        auto = () if self.choice is None else (AUTO,)
        self.names = (*auto, *self._specs)

    @property
    def pool(self) -> WorkerPool:
        """The workers, under the ordinals of the run."""
        return self.workshop.pool

    def make(self, name: str) -> Orchestrator:
        """Make a system of the run, as it was measured.

        Raises:
            ConfigError: the run has no such system, or what it needs is missing.
        """
        if name == AUTO and self.choice is None:
            reason = _NO_WORKER.format(run=self._folder)
            raise ConfigError(f"auto: {reason}; this run offers {', '.join(self.names)}")
        one_of(f"system of {self._folder}", name, self.names)
        spec = self._specs[self.measured(name)]
        try:
            check_trained_files(spec, self._environment)
            lessons: Lessons | None = None
            if needs(spec, self.config):
                lessons = read_lessons(self._folder)
            system = self.workshop.make(spec, lessons)
        except ConfigError as error:
            raise ConfigError(f"system {spec.name!r}: {error}") from error
        if system.budget is None or system.budget.calls is None:
            return system.orchestrator
        return Capped(system.orchestrator, system.budget.calls)

    def measured(self, name: str) -> str:
        """Return the name under which a system was measured: of ``auto``, the chosen one's."""
        if name == AUTO and self.choice is not None:
            return self.choice.system
        return name

    def evidence(self, name: str) -> dict[str, object]:
        """Return what was measured of a system, as plain values; shares are fractions."""
        row = self._rows[self.measured(name)]
        evidence: dict[str, object] = {
            "system": row.system,
            "right": row.accuracy,
            "ci95": row.ci95,
            "questions": row.n,
            "undecided": row.masked,
            "dollars_per_question": row.dollars_per_question,
            "calls_per_question": row.calls_per_question,
            "run": str(self._folder),
            "date": self._environment.get("date"),
        }
        if name == AUTO and self.choice is not None:
            evidence["won"] = self.choice.won
            evidence["reason"] = self.choice.reason
        return evidence

    def say_auto(self) -> str:
        """Say what ``auto`` is, and why."""
        if self.choice is None:
            return f"auto: not offered, because {_NO_WORKER.format(run=self._folder)}"
        chosen = self.choice.candidates[self.choice.system]
        dollars = chosen.cost.dollars
        price = "at an unknown price" if dollars is None else f"for ${dollars:.6f} each"
        source = f"{self._folder}, {self._environment.get('date') or 'of unknown date'}"
        return (
            f"auto: {self.choice.system}, right on {chosen.right:.1%} of "
            f"{self.choice.questions} questions {price} ({source}); {self.choice.reason}"
        )


def _load_workers(
    folder: Path, config: EvalConfig, recorded: Mapping[int, str], environment: Plain
) -> WorkerPool:
    """Load the pool of a run under its ordinals.

    Raises:
        ConfigError: it cannot be loaded, or has other workers or models.
    """
    try:
        pool = load_pool(config, calibrations=kept_calibrations(folder))
    except ConfigError as error:
        raise ConfigError(
            f"{folder}: its workers cannot be loaded: {error}; --pool names their file, if it is "
            "at another place"
        ) from error
    models = cast("Mapping[str, Any]", environment.get("models", {}))  # unknown in older runs
    workers: list[TrainedWorker] = []
    for ordinal, name in recorded.items():
        workers.append(TrainedWorker(ordinal, name, str(models.get(name, ""))))
    differences = pool.differences(workers)
    for worker in workers:
        if worker.name not in pool.names.values():
            differences.append(f"{worker.name!r} is missing")
    if differences:
        names = ", ".join(repr(worker.name) for worker in workers)
        raise ConfigError(
            f"{folder}: its systems were measured with other workers than {config.pool} has: "
            f"{'; '.join(differences)}. Expected the workers {names}, with the same models "
            "(--pool FILE), or a new evaluation with this pool"
        )
    return pool.numbered({worker.name: worker.ordinal for worker in workers})
