"""Random workflows: the floor of the scale. In: a pool and a seed. Out: Episodes of workflows drawn at random.

A draw is keyed by (seed, question, sample), so the same question gets the same workflow whenever it is asked.
"""

from __future__ import annotations

import random

from openconductor.baselines.pools import Baseline, check_count
from openconductor.episode import Stage
from openconductor.gym.questions import read_question
from openconductor.gym.sampling import random_workflow
from openconductor.pool import WorkerPool
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.types import Question, Step, Workflow


class RandomWorkflows(Baseline):
    """Draws a valid workflow for each question.

    A question of the gym gets one of ``gym.sampling``, whose number of steps follows the operations that it names. Of
    any other question the number of steps and each step's worker are uniform, each step is told to solve it, and sees
    each earlier step with a chance of one half.

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

    async def play(self, stage: Stage) -> str | None:
        """One round, of the workflow that is drawn."""
        return await stage.answer_by(self.workflow(stage.question, sample=stage.sample))

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """The workflow that is drawn for a question."""
        text = question if isinstance(question, str) else "\0".join(f"{turn.role}:{turn.content}" for turn in question)
        rng = random.Random(f"random/{self._seed}/{sample}/{text}")
        asked = read_question(question) if isinstance(question, str) else None
        if asked is not None:
            return random_workflow(rng, asked, self.pool.ordinals, max_steps=self._max_steps)
        steps: list[Step] = []
        for index in range(rng.randint(1, self._max_steps)):
            worker = rng.choice(self.pool.ordinals)
            steps.append(Step(worker, SOLVE_SUBTASK, [earlier for earlier in range(index) if rng.random() < 0.5]))
        return Workflow(tuple(steps))
