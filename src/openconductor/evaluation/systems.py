"""Specs become systems: Conductors, their ablations, baselines, over one pool that answers from the run's journal.

In: Specs, a recipe, a pool, a journal; for trained baselines Lessons. Out: Systems that can be asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from openconductor.baselines import baseline_options, make_baseline
from openconductor.baselines.collaboration import Trial
from openconductor.baselines.observed import Observations
from openconductor.baselines.rewired import ablated
from openconductor.conductor import Conductor
from openconductor.errors import ConfigError
from openconductor.evaluation.cells import System
from openconductor.evaluation.config import GYM, EvalConfig
from openconductor.evaluation.gym_table import references
from openconductor.evaluation.planner import Planners
from openconductor.evaluation.specs import (
    CONDUCTOR,
    HINDSIGHT,
    ORACLE,
    PLANNER,
    WORKER,
    Spec,
    Value,
    options_of,
    refuse_unknown,
)
from openconductor.journal import Journal
from openconductor.pool import WorkerPool
from openconductor.protocols import Orchestrator
from openconductor.types import Budget

UNLIMITED = "unlimited"
ABLATIONS = ("access", "calls", "examples", "max_steps", "one_worker", "rounds", "sequential", "subtasks")
"""The options of ``conductor`` and ``planner``; ``calls`` is a question's budget, which unlimited rounds need."""

EXPLORER = "explorer"
"""What plays the trials that MASRouter learns from, beside the workers alone."""

_TAUGHT = ("observations", "trials")  # options that are Lessons
_TRAINED = ("router", "controller")  # options that name what was trained before
_OF_PYTHON = ("key", "workflow")  # options that no text can say
_ARGUMENTS = ("worker", "aggregator")


@dataclass(frozen=True, slots=True)
class Lessons:
    """What trained baselines learn from.

    Attributes:
        observations: of every worker alone.
        trials: of collaborations drawn at random.
    """

    observations: Observations
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True)
class Workshop:
    """Makes the systems of one evaluation.

    Attributes:
        config: the recipe.
        planners: who plans, and the workers, in its setting.
        journal: where finished calls are found; None where there are none to find, so that nobody looks.
    """

    config: EvalConfig
    planners: Planners
    journal: Journal | None

    def make(self, spec: Spec, lessons: Lessons | None = None) -> System:
        """The system of a spec.

        Args:
            spec: what it is.
            lessons: what a trained baseline learns from (``learns``).

        Raises:
            ConfigError: it names what there is not, or an option that it does not take or that is out of its range.
        """
        if spec.kind in (CONDUCTOR, PLANNER):
            return self._conductor(spec)
        return System(spec.name, self._baseline(spec, lessons))

    def check(self, spec: Spec) -> None:
        """Make sure that the system can be made, before anything is paid for: one that learns of made-up lessons.

        Raises:
            ConfigError: as ``check_spec`` and ``make`` raise it; the message names the system.
        """
        try:
            check_spec(spec)
            if spec.kind != HINDSIGHT:
                self.make(spec, _made_up(self.planners.pool) if learns(spec, self.config) else None)
        except ConfigError as error:
            if str(error).startswith("system "):
                raise
            raise ConfigError(f"system {spec.name!r}: {error}") from error

    def explorer(self) -> System:
        """What plays collaborations drawn at random, for ``Lessons.trials``."""
        pool = self._replaying()
        return System(EXPLORER, make_baseline(EXPLORER, pool, seed=self.config.seed or 0))

    # ── Conductors ───────────────────────────────────────────────────────────────────────────────────────────────────
    def _conductor(self, spec: Spec) -> System:
        options: dict[str, Any] = dict(options_of(spec))
        calls = _count(spec, "calls", options.pop("calls", None))
        max_steps = _count(spec, "max_steps", options.pop("max_steps", None))
        rounds = options.pop("rounds", self.config.conductor.rounds)
        if rounds == UNLIMITED and calls is None:
            raise ConfigError(
                f"system {spec.name!r}: unlimited rounds go on until a budget ends; expected calls=N beside, the most "
                "calls of a question"
            )
        for name in ("sequential", "subtasks"):
            if not isinstance(options.get(name, True), bool):
                raise ConfigError(f"system {spec.name!r}: {name} {options[name]!r}, expected true or false")
        max_steps = max_steps or self.config.conductor.max_steps
        conductor = Conductor(self.planners.of(spec), pool=self.planners.pool, max_steps=max_steps)
        rounds = None if rounds == UNLIMITED else _count(spec, "rounds", rounds)
        budget = None if calls is None else Budget(calls=calls)
        if self.journal is not None:
            conductor = conductor.replaying(self.journal)
        return System(spec.name, ablated(conductor, rounds=rounds, **options), budget)

    def _replaying(self) -> WorkerPool:
        pool = self.planners.pool
        return pool if self.journal is None else pool.replaying(self.journal)

    # ── baselines ────────────────────────────────────────────────────────────────────────────────────────────────────
    def _baseline(self, spec: Spec, lessons: Lessons | None) -> Orchestrator:
        pool = self._replaying()
        if spec.kind == WORKER:
            return make_baseline("single", pool, worker=pool.ordinal_of(spec.argument))
        if spec.kind == ORACLE:
            if self.config.pool != GYM:
                raise ConfigError("system 'oracle': only the gym has one, got a pool file; expected oracle_observed")
            return references(pool, self.config.seed or 0)[ORACLE]
        known = baseline_options(spec.kind)
        options: dict[str, object] = dict(options_of(spec))
        if spec.argument:
            options[_argument(spec)] = spec.argument
        if "seed" in known:
            options.setdefault("seed", self.config.seed or 0)
        if lessons is not None:
            options |= {name: getattr(lessons, name) for name in _TAUGHT if name in known}
        return make_baseline(spec.kind, pool, **options)


def _made_up(pool: WorkerPool) -> Lessons:
    """The smallest lessons that a system can be made of."""
    names = tuple(worker.name for _, worker in pool)
    seen = Observations(("Question?",), names, ((1.0,) * len(names),), (("Answer.",) * len(names),))
    return Lessons(seen, tuple(Trial(seen.questions[0], "io", (name,), 1.0, 0.0) for name in names))


def check_spec(spec: Spec) -> None:
    """Make sure that a spec has the name and the options that its kind takes.

    Raises:
        ConfigError: it has not; of an option that is not known the message names the nearest.
    """
    if spec.kind in (CONDUCTOR, PLANNER):
        refuse_unknown(spec, ABLATIONS)
    elif spec.kind in (WORKER, ORACLE, HINDSIGHT):
        refuse_unknown(spec, ())
        if (spec.kind == WORKER) != bool(spec.argument):
            raise ConfigError(f"system {spec.name!r}: expected {'worker:NAME' if spec.kind == WORKER else spec.kind}")
    else:
        unsaid = (*_TAUGHT, *_ARGUMENTS, *_OF_PYTHON)
        refuse_unknown(spec, [name for name in baseline_options(spec.kind) if name not in unsaid])
        named = _argument(spec)
        if spec.argument and not named:
            raise ConfigError(f"system {spec.name!r}: takes no name, got {spec.argument!r}")
        if named and not spec.argument:
            raise ConfigError(f"system {spec.name!r}: no worker, expected {spec.kind}:NAME")


def _argument(spec: Spec) -> str:
    """What a baseline calls the worker that stands behind its name's colon; "" where it takes none."""
    known = baseline_options(spec.kind)
    return next((name for name in _ARGUMENTS if name in known), "")


def learns(spec: Spec, config: EvalConfig) -> bool:
    """Whether a system learns from questions that are not evaluated. The gym's best fixed workflow is known."""
    if spec.kind in (CONDUCTOR, PLANNER, WORKER, ORACLE, HINDSIGHT):
        return False
    if spec.kind == "best_fixed" and config.pool == GYM:
        return False
    return "observations" in baseline_options(spec.kind) and not set(_TRAINED) & set(options_of(spec))


def describe_trained(specs: Iterable[Spec]) -> dict[str, object]:
    """A digest of each file that a system was trained to before, by its path; read after ``Workshop.check``."""
    paths = {str(value) for spec in specs for name, value in spec.options if name in _TRAINED}
    return {path: blake2b(Path(path).read_bytes(), digest_size=16).hexdigest() for path in sorted(paths)}


def explores(spec: Spec, config: EvalConfig) -> bool:
    """Whether a system learns from trials of collaborations, too."""
    return learns(spec, config) and "trials" in baseline_options(spec.kind)


def _count(spec: Spec, name: str, value: Value | None) -> int | None:
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise ConfigError(f"system {spec.name!r}: {name} {value!r}, expected a whole number from 1")
    return value


__all__ = ["ABLATIONS", "EXPLORER", "Lessons", "Workshop", "check_spec", "describe_trained", "explores", "learns"]
