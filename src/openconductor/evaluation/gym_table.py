"""The demo's levels: the Conductor beside every reference on the gym's held-out questions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from openconductor.baselines.consensus import Consensus
from openconductor.baselines.planned import BestFixed, PlannedOrchestrator, RandomWorkflows
from openconductor.baselines.single import SingleWorker
from openconductor.conductor import Conductor
from openconductor.errors import ConfigError
from openconductor.evaluation import Outcome, evaluate
from openconductor.evaluation.eval_config import ORACLE
from openconductor.evaluation.records import Record, record_of
from openconductor.evaluation.statistics import Estimate, estimate, scores_by_problem
from openconductor.evaluation.tables import make_row, total_usage
from openconductor.graders.exact import ExactGrader
from openconductor.measures import Topology, mean_steps, topology_shares, worker_shares
from openconductor.pool import WorkerPool
from openconductor.protocols import OnEvent, Orchestrator
from openconductor.tasks.simulated import Simulation, simulations
from openconductor.types import Problem, Usage

OnProgress = Callable[[int, int, str], None]

LEVELS = ("conductor", "random", "best_worker", "best_fixed", "vote", "oracle")


@dataclass(frozen=True, slots=True)
class GymTable:
    """The levels on the held-out questions, and the form of the Conductor's own workflows.

    Attributes:
        levels: by ``LEVELS``. ``best_worker`` is the worker that did best on just these questions,
            which flatters it (and never the Conductor).
            ``vote`` is that worker's majority of as many answers as one of the Conductor's costs.
        workers: the accuracy of each worker alone.
        votes: how many answers the vote has.
    """

    questions: int
    seed: int
    levels: Mapping[str, Estimate]
    workers: Mapping[str, float]
    votes: int
    masked: int
    validity: float
    accuracy_given_valid: float | None
    routing_entropy_bits: float
    worker_share: Mapping[str, float]
    topology_share: Mapping[Topology, float]
    mean_steps: float | None
    mean_steps_by_kind: Mapping[str, float | None]
    usage: Usage
    seconds: float

    def to_json(self) -> dict[str, object]:
        """Return the object that ``demo --json`` prints; all shares are fractions."""
        values = asdict(self)
        del values["levels"]
        usage = self.usage
        values["usage"] = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "dollars": float(usage.dollars),
        }
        return {
            "questions": values.pop("questions"),
            "seed": values.pop("seed"),
            "accuracy": {name: level.value for name, level in self.levels.items()},
            "ci95": {name: [level.low, level.high] for name, level in self.levels.items()},
            **values,
        }


async def gym_table(
    conductor: Conductor,
    *,
    questions: int = 400,
    seed: int = 0,
    on_progress: OnProgress | None = None,
    on_event: OnEvent | None = None,
) -> GymTable:
    """Ask the Conductor and every reference the same questions of the test split.

    All levels are measured, none is an expectation. The Conductor's pool is ``gym_pool(seed)``, or
    some of its workers; the references have the same. ``on_progress`` is told after each answer;
    the references come first. ``on_event`` gets every event of the Conductor's episodes.

    Raises:
        ConfigError: ``questions`` is below 1.
        OpenConductorError: the Conductor's provider failed on every question, or in a way that
            stops a run.
    """
    if questions < 1:
        raise ConfigError(f"gym_table.questions: got {questions}, expected at least 1")
    begun = time.perf_counter()
    pool = conductor.pool
    simulation = _simulation(pool)
    problems = simulation.draw(simulation.tested, questions, seed=seed)
    levels: dict[str, Estimate] = {}
    spent: dict[str, Usage] = {}
    systems = references(pool, seed)
    answers = (len(systems) + 2) * len(problems)  # the Conductor's and the vote's, too
    done = itertools.count(1)

    async def measure(name: str, system: Orchestrator) -> list[Record]:
        def tell(_: Outcome) -> None:
            if on_progress is not None:
                on_progress(next(done), answers, name)

        sink = on_event if system is conductor else None
        records = await _ask(name, system, problems, tell, sink)
        masked = sum(record.correct is None for record in records)
        levels[name] = estimate(scores_by_problem(records), masked)
        spent[name] = total_usage(records)
        return records

    for name, system in systems.items():
        await measure(name, system)
    own = await measure("conductor", conductor)
    workers = {worker.name: levels[worker.name].value for _, worker in pool}
    best = max(workers, key=lambda name: workers[name])
    levels["best_worker"] = levels[best]
    votes = max(1, round(spent["conductor"].dollars / spent[best].dollars))
    await measure("vote", Consensus(pool, best, n=votes))
    row = make_row("conductor", simulation.name, own, 1)
    workflows = [workflow for record in own for workflow in record.workflows]
    shares = worker_shares(workflows)
    return GymTable(
        questions=questions,
        seed=seed,
        levels={name: levels[name] for name in LEVELS if name in levels},
        workers=workers,
        votes=votes,
        masked=row.masked,
        validity=row.validity or 0.0,
        accuracy_given_valid=row.accuracy_given_valid,
        routing_entropy_bits=row.routing_entropy_bits or 0.0,
        worker_share={worker.name: shares.get(ordinal, 0.0) for ordinal, worker in pool},
        topology_share=topology_shares(workflows),
        mean_steps=row.mean_steps,
        mean_steps_by_kind=_steps_by_kind(own, simulation.kinds),
        usage=spent["conductor"],
        seconds=time.perf_counter() - begun,
    )


async def _ask(
    name: str,
    system: Orchestrator,
    problems: Sequence[Problem],
    on_result: Callable[[Outcome], None],
    on_event: OnEvent | None,
) -> list[Record]:
    """Ask one system every problem.

    Raises:
        OpenConductorError: no answer was decided.
    """
    grader = ExactGrader()
    outcomes = await evaluate(system, problems, grader, on_result=on_result, on_event=on_event)
    if all(outcome.correct is None for outcome in outcomes):
        errors = [outcome.episode.error for outcome in outcomes]
        raise next(error for error in errors if error is not None)
    return [record_of(outcome, system=name) for outcome in outcomes]


def _steps_by_kind(records: Sequence[Record], kinds: Iterable[str]) -> dict[str, float | None]:
    """Return the mean number of steps for each kind of question; None: no workflow."""
    steps: dict[str, float | None] = {}
    for kind in kinds:
        of_kind = [record for record in records if record.kind == kind]
        steps[kind] = mean_steps(workflow for record in of_kind for workflow in record.workflows)
    return steps


def references(pool: WorkerPool, seed: int = 0) -> dict[str, Orchestrator]:
    """Return what the Conductor is measured against: each worker alone, and the planned levels.

    The best fixed workflow is one of them if all its workers are in the pool.
    """
    simulation = _simulation(pool)
    systems: dict[str, Orchestrator] = {
        worker.name: SingleWorker(pool, ordinal) for ordinal, worker in pool
    }
    systems["random"] = RandomWorkflows(pool, seed=seed)
    if set(pool.ordinals) >= set(simulation.fixed_workers):
        systems["best_fixed"] = BestFixed(pool)
    plan = partial(simulation.oracle_workflow, pool=pool)
    systems[ORACLE] = PlannedOrchestrator(pool, plan)
    return systems


def _simulation(pool: WorkerPool) -> Simulation:
    for simulation in simulations():
        if simulation.knows(pool):
            return simulation
    raise ConfigError("the pool has workers that are not simulated, so its levels are unknown")
