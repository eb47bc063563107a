"""The best fixed workflow: the same workers and access for every question.

In: a pool, and what to choose by. Out: Episodes.

Three ways to choose, and what each is:

- ``workflow``: a workflow that is given. Nothing is chosen here; who gives it answers for where it was found.
- ``observations``: the best column of these. They have to come from a *selection* split, never from questions that are
  reported on: chosen on those, it would be a lucky constant. A column is a worker alone.
- neither: in the gym, ``gym.levels``'s constant, found by search over the exact expected accuracy, with the best
  subtasks for each question. Outside the gym nothing is known, and that is an error.
"""

from __future__ import annotations

from openconductor.baselines.instructions import in_gym
from openconductor.baselines.observed import Observations
from openconductor.baselines.pools import Baseline, ordinal_in
from openconductor.baselines.single import alone
from openconductor.episode import Stage
from openconductor.errors import ConfigError
from openconductor.gym.levels import BEST_FIXED, fixed_workflow
from openconductor.gym.questions import read_question
from openconductor.parser import validate_workflow
from openconductor.pool import WorkerPool
from openconductor.types import Question, Workflow


class BestFixed(Baseline):
    """Plays one constant.

    Args:
        pool: the workers.
        observations: of a selection split.
        workflow: the constant itself.

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
            raise ConfigError("BestFixed: got observations and a workflow, expected one of them at most")
        if observations is not None:
            workflow = alone(ordinal_in(pool, observations.best()))
        elif workflow is not None:
            validate_workflow(workflow, pool.ordinals)
        super().__init__(pool, "best_fixed")
        self.workflow = workflow
        """The constant; None where it is the gym's, whose subtasks depend on the question."""

    async def play(self, stage: Stage) -> str | None:
        """One round, of the constant."""
        workflow = self.workflow or self._of_the_gym(stage.question)
        return await stage.answer_by(workflow)

    def _of_the_gym(self, question: Question) -> Workflow:
        text = in_gym(question)
        asked = read_question(text) if text is not None else None
        if asked is None:
            raise ConfigError("BestFixed: outside the gym, expected observations of a selection split, or a workflow")
        missing = sorted({worker for worker in BEST_FIXED.workers if worker not in self.pool})
        if missing:
            raise ConfigError(f"BestFixed: the gym's constant needs the workers {missing}, which the pool lacks")
        return fixed_workflow(asked)
