"""The systems that an evaluation measured, made again to answer users.

``choose_auto`` chooses the cheapest system of a run that is about as good as its best one.
``MeasuredRun`` makes the systems of a run over its pool, and says what was measured of them. It
asks nothing: a router learns again from the lessons that the run kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from openconductor.baselines.pools import Baseline
from openconductor.baselines.rewired import Rewired
from openconductor.conductor import Conductor
from openconductor.config import one_of
from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import ALONE, BOUNDS, EvalConfig, expand
from openconductor.evaluation.records import Plain, Results, kept_calibrations, read_folder
from openconductor.evaluation.statistics import (
    FEWEST,
    Difference,
    Key,
    difference,
    holm,
    interval_90,
    task_mean,
)
from openconductor.evaluation.systems import (
    Lessons,
    Workshop,
    check_trained_files,
    load_pool,
    needs,
    read_lessons,
)
from openconductor.evaluation.tables import TableRow, make_rows
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, OnEvent, Orchestrator
from openconductor.types import Budget, Episode, OnNoPlan, Question, TrainedWorker

AUTO = "auto"
"""The name of the system that ``choose_auto`` chooses."""
MARGIN = 0.02
"""A system is about as good as another one if it is surely less than this behind."""
MOST_CHANCE = 0.05
"""A system is better than the best worker if luck would do as much at most this often."""

_NO_WORKER = (
    "{run} asked no worker alone, which says what the others are worth; evaluate the system "
    "`workers`, too"
)


# ── the choice ────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Choice:
    """The system that ``auto`` is.

    Attributes:
        system: its name.
        won: False: no system is shown to be worth more than the best worker, which is chosen.
        reason: a sentence for people.
    """

    system: str
    won: bool
    reason: str


def choose_auto(results: Results) -> Choice | None:
    """Choose the cheapest system that is about as good as the best one; None: no worker was asked.

    The best system is the one that is right most often. A system is about as good if the 90 %
    interval of its lead over the best, paired by question, ends above -2 points. One that costs
    more than the best worker must also be better than it, by a test at 5 % that is adjusted (Holm)
    for the number of these systems: the best of many equal ones looks better than it is. A cheaper
    one must be about as good as the worker. If no system is, or fewer than 30 questions were asked,
    the best worker is chosen.

    Answers that are undecided or missing count as wrong. Costs are compared in dollars, then in
    calls; an unknown price counts as the highest.
    """
    contest = _Contest(results)
    if contest.worker is None:
        return None
    passing = [system for system in contest.right if contest.passes(system)]
    if not passing:
        reason = (
            f"no system won: on {contest.questions} questions none is shown to be better than the "
            "best worker, or as good for less"
        )
        return Choice(contest.worker, won=False, reason=reason)
    system = min(passing, key=lambda name: (contest.cost(name), -contest.right[name]))
    return Choice(system, won=True, reason=contest.reason(system))


class _Contest:
    """The systems of a run side by side, without the bounds of the scale.

    Attributes:
        right: the share of right answers of each system, every task weighing the same.
        best: the system that is right most often; of equal ones the cheapest.
        worker: the same of the workers alone; None: none was asked.
        questions: how many questions were asked.
    """

    def __init__(self, results: Results) -> None:
        self._seed = results.config.seed or 0
        self._rows = _whole_rows(results)
        systems = [system for system in results.systems if _is_competitor(system, results)]
        self._scores = _strict_scores(results, systems)
        self.right = {system: _mean(scores) for system, scores in self._scores.items()}
        self.questions = len(next(iter(self._scores.values()), ()))
        ranked = sorted(systems, key=lambda system: (-self.right[system], self.cost(system)))
        workers = [system for system in ranked if system.startswith(ALONE)]
        self.best = ranked[0] if ranked else ""
        self.worker = workers[0] if workers else None
        self._second = ranked[1] if len(ranked) > 1 else None
        self._better = frozenset[str]() if self.worker is None else self._find_better(self.worker)

    def cost(self, system: str) -> tuple[bool, float, float]:
        """Return the cost of a question, by which systems can be sorted."""
        row = self._rows[system]
        dollars = row.dollars_per_question
        return dollars is None, round(dollars or 0.0, 12), row.calls_per_question or 0.0

    def passes(self, system: str) -> bool:
        """Return True if a system is about as good as the best, and worth more than the worker."""
        assert self.worker is not None
        if self.questions < FEWEST:
            return False
        if system == self.best == self.worker:
            # It is offered in any case, but it wins only if it need not fear the next one.
            return self._second is not None and self._is_as_good(system, self._second)
        if system != self.best and not self._is_as_good(system, self.best):
            return False
        if system == self.worker:
            return True
        if self.cost(system) > self.cost(self.worker):
            return system in self._better
        return self._is_as_good(system, self.worker)

    def reason(self, system: str) -> str:
        """Say why a system that passes was chosen."""
        if system != self.best:
            lead = self._say_lead(system, self.best)
            return f"the cheapest system that is about as good as the best, {self.best}: {lead}"
        if system == self.worker:
            return f"the best worker; the next system is {self._second}"
        assert self.worker is not None
        lead = self._say_lead(system, self.worker)
        return f"the best system: against the best worker, {self.worker}, {lead}"

    def _find_better(self, worker: str) -> frozenset[str]:
        """Return the systems that cost more than the best worker and are shown to be better."""
        leads: dict[str, Difference] = {}
        for system in self.right:
            if not system.startswith(ALONE) and self.cost(system) > self.cost(worker):
                leads[system] = self._lead(system, worker)
        p_values = holm([lead.p for lead in leads.values()])
        better: set[str] = set()
        for (system, lead), p_value in zip(leads.items(), p_values, strict=True):
            if lead.low > 0 and p_value <= MOST_CHANCE:
                better.add(system)
        return frozenset(better)

    def _is_as_good(self, first: str, second: str) -> bool:
        low, _ = interval_90(self._lead(first, second))
        return low > -MARGIN

    def _say_lead(self, first: str, second: str) -> str:
        lead = self._lead(first, second)
        low, high = interval_90(lead)
        return f"{100 * lead.value:+.1f} points (90 %: {100 * low:+.1f} to {100 * high:+.1f})"

    def _lead(self, first: str, second: str) -> Difference:
        lead = difference(self._scores[first], self._scores[second], self._seed)
        assert lead is not None  # all have the same questions
        return lead


def _is_competitor(system: str, results: Results) -> bool:
    """Return True if a system was asked, and does not know the answers."""
    return system.partition("?")[0] not in BOUNDS and bool(results.of(system))


def _strict_scores(results: Results, systems: Sequence[str]) -> dict[str, dict[Key, list[float]]]:
    """Return the scores of each system; what it did not answer, or nobody could decide, is 0."""
    asked = {(record.key, record.sample) for record in results.records if record.system in systems}
    right = {record.cell for record in results.records if record.correct}
    scores: dict[str, dict[Key, list[float]]] = {}
    for system in systems:
        of_system: dict[Key, list[float]] = {}
        for key, sample in sorted(asked):
            is_right = (system, *key, sample) in right
            of_system.setdefault(key, []).append(float(is_right))
        scores[system] = of_system
    return scores


def _mean(scores: Mapping[Key, list[float]]) -> float:
    return task_mean({key: fmean(repeats) for key, repeats in scores.items()})


def _whole_rows(results: Results) -> dict[str, TableRow]:
    """Return the row of each system over all tasks."""
    return {row.system: row for row in make_rows(results)}  # the average comes last


# ── the systems ───────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Capped:
    """A system that makes at most so many calls for a question: the option ``calls``."""

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
        self._rows = _whole_rows(results)
        specs = expand(config.specs, results.workers.values())
        self._specs = {spec.name: spec for spec in specs if _is_competitor(spec.name, results)}
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
        evidence = self.evidence(AUTO)
        right = cast("float | None", evidence["right"]) or 0.0
        questions, dollars = evidence["questions"], evidence["dollars_per_question"]
        price = "at an unknown price" if dollars is None else f"for ${dollars:.6f} each"
        source = f"{self._folder}, {evidence['date'] or 'of unknown date'}"
        return (
            f"auto: {self.choice.system}, right on {right:.1%} of {questions} questions {price} "
            f"({source}); {self.choice.reason}"
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
