"""The gym's table: the Conductor beside every reference level, on the same held-out questions.

In: a Conductor, a number of questions, a seed. Out: a GymTable, whose ``to_json`` is what ``demo --json`` prints.

Every system really answers every question, through the same executor and judged by the same grader; nothing in the
table is an expectation (those are in ``gym.levels``). An invalid plan counts as wrong, and so does a refused call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from openconductor.baselines.planned import PlannedOrchestrator
from openconductor.baselines.random_workflow import RandomWorkflows
from openconductor.baselines.single import SingleWorker
from openconductor.errors import ConfigError
from openconductor.evaluation.run import Outcome, evaluate
from openconductor.evaluation.statistics import Estimate, accuracy
from openconductor.graders.exact import ExactGrader
from openconductor.gym.exact import oracle_workflow
from openconductor.gym.levels import fixed_workflow
from openconductor.gym.questions import KINDS, GymQuestion, Kind, draw_questions, read_question
from openconductor.gym.workers import gym_pool
from openconductor.measures import Topology, mean_steps, routing_entropy_bits, topology_shares, worker_shares
from openconductor.pool import WorkerPool
from openconductor.protocols import Orchestrator
from openconductor.types import Question, Usage, Workflow

OnProgress = Callable[[int, int, str], None]
"""Called with how many questions a system has answered, of how many, and what that system is."""

LEVELS = ("conductor", "random", "best_worker", "best_fixed", "oracle")


@dataclass(frozen=True, slots=True)
class GymTable:
    """What was measured on the held-out questions.

    Attributes:
        questions: how many questions each system was asked.
        seed: what drew the questions, the workers' answers and the random workflows.
        levels: accuracy with its 95 % interval, by ``LEVELS``. ``best_worker`` is the worker that did best on just
            these questions, which flatters it (and never the Conductor).
        workers: each worker's accuracy alone, by name.
        masked: the Conductor's episodes that could not be decided, because its own provider failed; left out.
        validity: the share of the Conductor's completions that are a workflow.
        accuracy_given_valid: its accuracy on these; None where there is none.
        routing_entropy_bits: entropy of its worker shares.
        worker_share: each worker's share of its steps, by name.
        topology_share: each shape's share of its workflows.
        mean_steps: steps a workflow; None where there is none.
        mean_steps_by_kind: the same by kind of question, from easy to hard.
        usage: what the Conductor's episodes used, its own completions among it.
        seconds: wall time of the whole table.
    """

    questions: int
    seed: int
    levels: Mapping[str, Estimate]
    workers: Mapping[str, float]
    masked: int
    validity: float
    accuracy_given_valid: float | None
    routing_entropy_bits: float
    worker_share: Mapping[str, float]
    topology_share: Mapping[Topology, float]
    mean_steps: float | None
    mean_steps_by_kind: Mapping[Kind, float | None]
    usage: Usage
    seconds: float

    def to_json(self) -> dict[str, object]:
        """The object that ``demo --json`` prints; all shares are fractions."""
        return {
            "questions": self.questions,
            "seed": self.seed,
            "accuracy": {name: self.levels[name].value for name in LEVELS},
            "ci95": {name: [self.levels[name].low, self.levels[name].high] for name in LEVELS},
            "workers": dict(self.workers),
            "masked": self.masked,
            "validity": self.validity,
            "accuracy_given_valid": self.accuracy_given_valid,
            "routing_entropy_bits": self.routing_entropy_bits,
            "worker_share": dict(self.worker_share),
            "topology_share": dict(self.topology_share),
            "mean_steps": self.mean_steps,
            "mean_steps_by_kind": dict(self.mean_steps_by_kind),
            "usage": {
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
                "dollars": float(self.usage.dollars),
            },
            "seconds": self.seconds,
        }


async def gym_table(
    conductor: Orchestrator, *, questions: int = 400, seed: int = 0, on_progress: OnProgress | None = None
) -> GymTable:
    """Ask the Conductor and every reference the same questions of the test split.

    Args:
        conductor: the Conductor, over ``gym_pool(seed)``: else it and the references draw different answers.
        questions: how many.
        seed: draws questions, answers and random workflows.
        on_progress: told after each answer; the references come first.

    Raises:
        ConfigError: ``questions`` is below 1.
        OpenConductorError: the Conductor's provider failed on every question, or in a way that stops a run.
    """
    if questions < 1:
        raise ConfigError(f"gym_table.questions: got {questions}, expected at least 1")
    begun = time.perf_counter()
    drawn = draw_questions("test", questions, seed=seed)
    pool = gym_pool(seed)
    measured: dict[str, Sequence[Outcome]] = {}
    for name, system in {**references(pool, seed), "conductor": conductor}.items():
        measured[name] = await _measure(system, drawn, name, on_progress)
    ours = measured["conductor"]
    alone = {worker.name: _accuracy(measured[worker.name]) for _, worker in pool}
    played = [_workflows(outcome) for outcome in ours]
    workflows = [workflow for of_one in played for workflow in of_one]
    shares = worker_shares(workflows)
    valid = [outcome for outcome in ours if _is_valid(outcome)]
    given_valid = accuracy(valid)
    steps_by_kind: dict[Kind, float | None] = {
        kind: mean_steps(
            workflow
            for question, of_one in zip(drawn, played, strict=True)
            if question.kind == kind
            for workflow in of_one
        )
        for kind in KINDS
    }
    return GymTable(
        questions=questions,
        seed=seed,
        levels={
            "conductor": _accuracy(ours),
            "random": _accuracy(measured["random"]),
            "best_worker": max(alone.values(), key=lambda estimate: estimate.value),
            "best_fixed": _accuracy(measured["best_fixed"]),
            "oracle": _accuracy(measured["oracle"]),
        },
        workers={name: estimate.value for name, estimate in alone.items()},
        masked=_accuracy(ours).masked,
        validity=len(valid) / max(1, sum(_has_completion(outcome) for outcome in ours)),
        accuracy_given_valid=given_valid.value if given_valid is not None else None,
        routing_entropy_bits=routing_entropy_bits(workflows),
        worker_share={worker.name: shares.get(ordinal, 0.0) for ordinal, worker in pool},
        topology_share=topology_shares(workflows),
        mean_steps=mean_steps(workflows),
        mean_steps_by_kind=steps_by_kind,
        usage=sum((outcome.episode.usage for outcome in ours), Usage()),
        seconds=time.perf_counter() - begun,
    )


def references(pool: WorkerPool, seed: int = 0) -> dict[str, Orchestrator]:
    """What the Conductor is measured against in the gym, by name: each worker alone, and three planned levels."""
    systems: dict[str, Orchestrator] = {worker.name: SingleWorker(pool, ordinal) for ordinal, worker in pool}
    systems["random"] = RandomWorkflows(pool, seed=seed)
    systems["best_fixed"] = PlannedOrchestrator(pool, lambda asked: fixed_workflow(_of_the_gym(asked)))
    systems["oracle"] = PlannedOrchestrator(pool, lambda asked: oracle_workflow(_of_the_gym(asked))[0])
    return systems


def _of_the_gym(asked: Question) -> GymQuestion:
    question = read_question(asked) if isinstance(asked, str) else None
    if question is None:
        raise ConfigError(f"the question {str(asked)[:80]!r}: expected one of the gym")
    return question


async def _measure(
    system: Orchestrator, questions: Sequence[GymQuestion], name: str, on_progress: OnProgress | None
) -> list[Outcome]:
    done = 0

    def count(_: Outcome) -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, len(questions), name)

    return await evaluate(system, [question.problem() for question in questions], ExactGrader(), on_result=count)


def _accuracy(outcomes: Sequence[Outcome]) -> Estimate:
    """The accuracy; where nothing could be decided, there is an error that says why."""
    estimate = accuracy(outcomes)
    if estimate is None:
        raise next(outcome.episode.error for outcome in outcomes if outcome.episode.error is not None)
    return estimate


def _has_completion(outcome: Outcome) -> bool:
    return outcome.episode.rounds[0].workflow is not None or outcome.episode.rounds[0].completion is not None


def _is_valid(outcome: Outcome) -> bool:
    return outcome.episode.rounds[0].workflow is not None


def _workflows(outcome: Outcome) -> list[Workflow]:
    """The workflows of all rounds, those that only accept left out."""
    rounds = outcome.episode.rounds
    return [played.workflow for played in rounds if played.workflow is not None and played.workflow.steps]
