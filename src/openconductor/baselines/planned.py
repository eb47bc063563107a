"""Workflows that are made without a Conductor: by a function, at random, or one for all questions.

In: a pool and how a workflow is made. Out: Episodes of one round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean

from openconductor.baselines.instructions import ALONE, in_gym
from openconductor.baselines.observed import Observations, text_of
from openconductor.baselines.pools import Baseline, check_count, forgiving_pool, ordinal_in, spoken
from openconductor.episode import Stage
from openconductor.errors import ConfigError
from openconductor.gym.questions import read_question
from openconductor.gym.sampling import random_workflow
from openconductor.gym.workers import SimulatedWorker
from openconductor.gym.world import COMPARE
from openconductor.parser import validate_workflow
from openconductor.pool import WorkerPool
from openconductor.prompt import SOLVE_SUBTASK
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

    async def play(self, stage: Stage) -> str | None:
        """One round, of the plan."""
        stage.begin()
        workflow = self._plan(stage.question)
        validate_workflow(workflow, self.pool.ordinals, max_steps=self._max_steps)
        return await stage.answer_by(workflow)


class RandomWorkflows(Baseline):
    """Draws a valid workflow for each question: the floor of the scale.

    A draw is keyed by (seed, question, sample), so the same question gets the same workflow
    whenever it is asked. A question of the gym gets one of ``gym.sampling``, whose number of steps
    follows the operations that it names. Of any other question the number of steps and each step's
    worker are uniform, each step is told to solve it, and sees each earlier step with a chance of
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
        asked = read_question(question) if isinstance(question, str) else None
        if asked is not None:
            return random_workflow(rng, asked, self.pool.ordinals, max_steps=self._max_steps)
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

    With neither observations nor a workflow it is, in the gym, ``gym.levels``'s constant, found by
    search over the exact expected accuracy, with the best subtasks for each question; outside the
    gym that is an error.

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

    async def play(self, stage: Stage) -> str | None:
        """One round; of a vote the first answer that most of the workers gave."""
        if not self._votes:
            return await super().play(stage)
        said = await spoken(stage, self.workflow(stage.question))
        return None if said is None else _vote(list(said.values()))

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """The constant; the gym's has subtasks that depend on the question."""
        if self._workflow is not None:
            return self._workflow
        from openconductor.gym.levels import BEST_FIXED, fixed_workflow

        asked = in_gym(question)
        if asked is None:
            raise ConfigError(
                "BestFixed: outside the gym, expected observations of a selection split, or a workflow"
            )
        if missing := sorted({worker for worker in BEST_FIXED.workers if worker not in self.pool}):
            raise ConfigError(
                f"BestFixed: the gym's constant needs the workers {missing}, which the pool lacks"
            )
        return fixed_workflow(asked)


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
    from openconductor.baselines.consensus import (  # the gym's constant needs no graders
        answer_key,
        majority,
    )

    return majority(responses, answer_key)


class Heuristic(Baseline):
    """What a reader of the gym's source would write: it knows who is good at what, and learns nothing.

    Each operation that the question names goes to the worker, in the wording, that succeed most
    often, one after the other; a smudged list is read four times, and the referee compares. A row
    of the gym's tables that says how little code its questions need once the workers are known; a
    Conductor has to find these out.

    Args:
        pool: workers of the gym.

    Raises:
        ConfigError: the pool has others.
    """

    def __init__(self, pool: WorkerPool) -> None:
        super().__init__(pool, "heuristic")
        providers = {ordinal: worker.provider for ordinal, worker in pool}
        self._profiles = {
            place: one.profile
            for place, one in providers.items()
            if isinstance(one, SimulatedWorker)
        }
        if len(self._profiles) < len(pool):
            raise ConfigError(
                "Heuristic: got workers whose skills nobody can look up, expected those of the gym alone"
            )

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """A chain of specialists, or attempts and a comparison."""
        from openconductor.gym.exact import best_part

        asked = in_gym(question)
        if asked is None:
            raise ConfigError(
                f"Heuristic: got {text_of(question)[:80]!r}, expected a question of the gym"
            )
        parts = [best_part([operation], self._profiles) for operation, _ in asked.operations]
        referees = [place for place, profile in self._profiles.items() if profile.referee]
        if asked.smudged and referees:
            return Workflow((*[Step(*parts[0])] * 4, Step(referees[0], COMPARE[0], range(4))))
        return Workflow(
            tuple(Step(worker, told, range(at)[-1:]) for at, (worker, told) in enumerate(parts))
        )
