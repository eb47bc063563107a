"""Baselines whose workflows are made by a function, at random, or once for all questions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean

from openconductor.baselines.observed import Observations
from openconductor.baselines.pools import (
    Baseline,
    check_count,
    forgiving_pool,
    ordinal_in,
    play_answers,
)
from openconductor.episode import LiveEpisode
from openconductor.errors import ConfigError
from openconductor.parser import validate_workflow
from openconductor.pool import WorkerPool
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.tasks.instructions import ALONE
from openconductor.tasks.simulated import simulation_of, simulations
from openconductor.types import Question, Step, Workflow, text_of


class PlannedOrchestrator(Baseline):
    """Executes, for each question, the workflow that a function makes.

    Args:
        pool: the workers.
        plan: makes the workflow. A WorkflowError that it raises ends the episode, as an invalid
            workflow does.
    """

    def __init__(
        self,
        pool: WorkerPool,
        plan: Callable[[Question], Workflow],
    ) -> None:
        super().__init__(pool, "planned")
        self._plan = plan

    async def play(self, live: LiveEpisode) -> str | None:
        """Play one round, of the plan."""
        live.begin_round()
        workflow = self._plan(live.question)
        validate_workflow(workflow, self.pool.ordinals)
        return await live.answer_by(workflow)


class RandomWorkflows(Baseline):
    """Draws a valid workflow for each question: the floor of the scale.

    A draw is keyed by (seed, question, sample), so the same question gets the same workflow
    whenever it is asked. A question of a simulated task gets a workflow that this task draws. For
    any other question the number of steps and each step's worker are uniform; each step is told to
    solve it, and sees each earlier step with a chance of one half.

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
        """Draw a workflow for a question."""
        rng = random.Random(f"random/{self._seed}/{sample}/{text_of(question)}")
        ordinals = self.pool.ordinals
        for simulation in simulations():
            workflow = simulation.random_workflow(
                rng, question, ordinals, max_steps=self._max_steps
            )
            if workflow is not None:
                return workflow
        steps: list[Step] = []
        for index in range(rng.randint(1, self._max_steps)):
            worker = rng.choice(ordinals)
            access = [earlier for earlier in range(index) if rng.random() < 0.5]
            steps.append(Step(worker, SOLVE_SUBTASK, access))
        return Workflow(tuple(steps))


class BestFixed(Baseline):
    """Plays the best fixed workflow: the same workers and access for every question.

    With neither observations nor a workflow it is, in a simulated task, that task's own constant,
    with the best subtasks for each question; elsewhere that is an error.

    Args:
        pool: the workers.
        observations: the best workflow on these is played: a worker alone, or a vote of the best
            three or five. They have to come from a *selection* split, never from questions that are
            reported on: chosen on those, it would be a lucky constant.
        workflow: the constant itself.

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
        self._votes = False
        if observations is not None:
            if workflow is not None:
                raise ConfigError(
                    "BestFixed: got observations and a workflow, expected one of them at most"
                )
            team = _best_team(observations)
            steps = [Step(ordinal_in(pool, name), ALONE) for name in team]
            workflow = Workflow(tuple(steps))
            self._votes = len(team) > 1
        elif workflow is not None:
            validate_workflow(workflow, pool.ordinals)
        super().__init__(forgiving_pool(pool) if self._votes else pool, "best_fixed")
        self._workflow = workflow

    async def play(self, live: LiveEpisode) -> str | None:
        """Play one round; of a vote the answer is the first that most of the workers gave."""
        if not self._votes:
            return await super().play(live)
        answers = await play_answers(live, self.workflow(live.question))
        return _vote(list(answers.values()))

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """Return the constant; a simulated task's has subtasks that depend on the question."""
        if self._workflow is not None:
            return self._workflow
        simulation = simulation_of(question)
        if simulation is None:
            raise ConfigError(
                "BestFixed: requires observations of a selection split, or a workflow; only "
                "simulated tasks know the best one"
            )
        missing = [ordinal for ordinal in simulation.fixed_workers if ordinal not in self.pool]
        if missing:
            raise ConfigError(
                f"BestFixed: the best fixed workflow of {simulation.name} needs the workers "
                f"{sorted(set(missing))}, which the pool lacks"
            )
        return simulation.fixed_workflow(question)


def _best_team(observations: Observations) -> tuple[str, ...]:
    """Return the worker or the voters with the most right answers; a tie goes to the fewest."""
    alone = observations.shares()
    best = observations.best()
    shares: dict[tuple[str, ...], float] = {(best,): alone[best]}
    if observations.answers:
        ranked = sorted(alone, key=lambda name: -alone[name])
        for size in (3, 5):
            if size <= len(ranked):
                team = tuple(ranked[:size])
                shares[team] = _share_by_vote(observations, team)
    return max(shares, key=lambda team: shares[team])


def _share_by_vote(observations: Observations, team: Sequence[str]) -> float:
    """Return the share of questions that a vote of the team gets right."""
    columns = [observations.workers.index(name) for name in team]
    rows = zip(observations.answers, observations.right, strict=True)
    return fmean(_vote_score(answers, right, columns) for answers, right in rows)


def _vote_score(
    answers: Sequence[str | None], right: Sequence[float | None], columns: Sequence[int]
) -> float:
    """Return the score of the voted answer to one question; 0 if no voter answered."""
    scores: dict[str, float] = {}
    votes: list[str] = []
    for column in columns:
        text = answers[column]
        if text is not None:
            votes.append(text)
            scores.setdefault(text, right[column] or 0.0)
    return scores[_vote(votes)] if votes else 0.0


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
                "Heuristic: the pool has workers whose skills are unknown, expected a simulated "
                "pool"
            )

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """Return the workflow that the simulation's heuristic writes for the question."""
        simulation = simulation_of(question)
        if simulation is None:
            raise ConfigError(
                f"Heuristic: got {text_of(question)[:80]!r}, expected a question of a simulated "
                "task"
            )
        return simulation.heuristic_workflow(question, self.pool)
