"""Workflows that are made without a Conductor: by a function, at random, or one for all questions.

In: a pool and how a workflow is made. Out: Episodes of one round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean

from openconductor.baselines.observed import Observations, text_of
from openconductor.baselines.pools import Baseline, check_count, forgiving_pool, ordinal_in, spoken
from openconductor.episode import LiveEpisode
from openconductor.errors import ConfigError
from openconductor.parser import validate_workflow
from openconductor.pool import WorkerPool
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.tasks.instructions import ALONE
from openconductor.tasks.simulated import simulation_of, simulations
from openconductor.types import Question, Step, Workflow


class PlannedOrchestrator(Baseline):
    """Executes, for each question, the workflow that a function makes.

    Args:
        pool: the workers.
        plan: makes the workflow; a WorkflowError that it raises ends the episode, as an invalid
            workflow does.
        max_steps: the most steps that a workflow may have; None is no limit.
    """

    def __init__(
        self,
        pool: WorkerPool,
        plan: Callable[[Question], Workflow],
        *,
        max_steps: int | None = None,
    ) -> None:
        super().__init__(pool, "planned")
        self._plan = plan
        self._max_steps = max_steps

    async def play(self, stage: LiveEpisode) -> str | None:
        """One round, of the plan."""
        stage.begin_round()
        workflow = self._plan(stage.question)
        validate_workflow(workflow, self.pool.ordinals, max_steps=self._max_steps)
        return await stage.answer_by(workflow)


class RandomWorkflows(Baseline):
    """Draws a valid workflow for each question: the floor of the scale.

    A draw is keyed by (seed, question, sample), so the same question gets the same workflow
    whenever it is asked. A question of a simulated task gets a workflow that this task draws. Of
    any other question the number of steps and each step's worker are uniform, each step is told to solve it, and sees each earlier step with a chance of
    one half.

    Args:
        pool: the workers.
        seed: keys the draws.
        max_steps: the most steps of a workflow.

    Raises:
        ConfigError: ``max_steps`` is below 1, or the seed below 0.
    """

    def __init__(self, pool: WorkerPool, *, seed: int = 0, max_steps: int = 5) -> None:
        check_count("RandomWorkflows.max_steps", max_steps, 1)
        check_count("RandomWorkflows.seed", seed, 0)
        super().__init__(pool, "random")
        self._seed = seed
        self._max_steps = max_steps

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """The workflow that is drawn for a question."""
        text = (
            question
            if isinstance(question, str)
            else "\0".join(f"{turn.role}:{turn.content}" for turn in question)
        )
        rng = random.Random(f"random/{self._seed}/{sample}/{text}")
        for simulation in simulations():
            workflow = simulation.random_workflow(
                rng, question, self.pool.ordinals, max_steps=self._max_steps
            )
            if workflow is not None:
                return workflow
        steps: list[Step] = []
        for index in range(rng.randint(1, self._max_steps)):
            worker = rng.choice(self.pool.ordinals)
            steps.append(
                Step(
                    worker,
                    SOLVE_SUBTASK,
                    [earlier for earlier in range(index) if rng.random() < 0.5],
                )
            )
        return Workflow(tuple(steps))


class BestFixed(Baseline):
    """Plays the best fixed workflow: the same workers and access for every question.

    With neither observations nor a workflow it is, in a simulated task, that task's own constant,
    with the best subtasks for each question; elsewhere that is an error.

    Args:
        pool: the workers.
        observations: what would have been best there is played: a worker alone, or a vote of the
            best three or five. They have to come from a *selection* split, never from questions
            that are reported on: chosen on those, it would be a lucky constant.
        workflow: the constant itself; who gives it answers for where it was found.

    Raises:
        ConfigError: both are given, or the best column is not a worker of the pool.
        WorkflowError: a given workflow is not valid over the pool.
    """

    needs = Observations

    def __init__(
        self,
        pool: WorkerPool,
        *,
        observations: Observations | None = None,
        workflow: Workflow | None = None,
    ) -> None:
        if observations is not None and workflow is not None:
            raise ConfigError(
                "BestFixed: got observations and a workflow, expected one of them at most"
            )
        if observations is not None:
            workflow = Workflow(
                tuple(Step(ordinal_in(pool, name), ALONE) for name in _best_team(observations))
            )
        elif workflow is not None:
            validate_workflow(workflow, pool.ordinals)
        self._votes = observations is not None and workflow is not None and len(workflow) > 1
        super().__init__(forgiving_pool(pool) if self._votes else pool, "best_fixed")
        self._workflow = workflow

    async def play(self, stage: LiveEpisode) -> str | None:
        """One round; of a vote the first answer that most of the workers gave."""
        if not self._votes:
            return await super().play(stage)
        said = await spoken(stage, self.workflow(stage.question))
        return None if said is None else _vote(list(said.values()))

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """The constant; a simulated task's has subtasks that depend on the question."""
        if self._workflow is not None:
            return self._workflow
        simulation = simulation_of(question)
        if simulation is None:
            raise ConfigError(
                "BestFixed: requires observations of a selection split, or a workflow; only simulated "
                "tasks know the best one"
            )
        missing = {ordinal for ordinal in simulation.fixed_workers if ordinal not in self.pool}
        if missing:
            raise ConfigError(
                f"BestFixed: the best fixed workflow of {simulation.name} needs the workers "
                f"{sorted(missing)}, which the pool lacks"
            )
        return simulation.fixed_workflow(question)


def _best_team(observations: Observations) -> tuple[str, ...]:
    """The worker, or the voters, who would have been right most often; of equals the fewest."""
    best, alone = (
        observations.best(),
        {name: share or 0.0 for name, share in observations.shares().items()},
    )
    ranked = sorted(alone, key=lambda name: -alone[name])
    teams = [
        tuple(ranked[:size]) for size in (3, 5) if size <= len(ranked) and observations.answers
    ]

    def right(team: Sequence[str]) -> float:
        found: list[float] = []
        for shares, answers in zip(observations.right, observations.answers, strict=True):
            row = dict(zip(observations.workers, zip(answers, shares, strict=True), strict=True))
            heard = [
                (text, share) for text, share in map(row.__getitem__, team) if text is not None
            ]
            said = _vote([text for text, _ in heard]) if heard else None
            found.append(next((share or 0.0 for text, share in heard if text == said), 0.0))
        return fmean(found)

    return max([(best,), *teams], key=lambda team: alone[best] if len(team) == 1 else right(team))


def _vote(responses: Sequence[str]) -> str:
    from openconductor.baselines.consensus import (  # a simulated task's constant needs no graders
        answer_key,
        majority,
    )

    return majority(responses, answer_key)


class Heuristic(Baseline):
    """Plays what a reader of a simulation's source would write; it learns nothing.

    It shows how little code the questions need once the workers are known; a Conductor has to find
    these out.

    Args:
        pool: the workers of one simulated task.

    Raises:
        ConfigError: the pool has others.
    """

    def __init__(self, pool: WorkerPool) -> None:
        super().__init__(pool, "heuristic")
        if not any(simulation.knows(pool) for simulation in simulations()):
            raise ConfigError(
                "Heuristic: the pool has workers whose skills are unknown, expected a simulated pool"
            )

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """Return the workflow that the simulation's heuristic writes for the question."""
        simulation = simulation_of(question)
        if simulation is None:
            raise ConfigError(
                f"Heuristic: got {text_of(question)[:80]!r}, expected a question of a simulated task"
            )
        return simulation.heuristic_workflow(question, self.pool)
