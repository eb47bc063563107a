"""The best fixed workflow: the same workers and access for every question.

In: a pool, and what to choose by. Out: Episodes.

Three ways to choose, and what each is:

- ``workflow``: a workflow that is given. Nothing is chosen here; who gives it answers for where it was found.
- ``observations``: the best column of these. They have to come from a *selection* split, never from questions that are
  reported on: chosen on those, it would be a lucky constant. A column is a worker alone, or one of ``candidates``.
- neither: in the gym, ``gym.fixed``'s constant, found by search over the exact expected accuracy, with the best
  subtasks for each question. Outside the gym nothing is known, and that is an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from openconductor.baselines.instructions import in_gym
from openconductor.baselines.observed import Observations
from openconductor.baselines.pools import Baseline
from openconductor.baselines.single import alone
from openconductor.config import nearest
from openconductor.episode import Stage
from openconductor.errors import ConfigError
from openconductor.gym.fixed import BEST_FIXED, fixed_workflow
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
        candidates: what the columns are that are no workers' names: fixed workflows that were played.

    Raises:
        ConfigError: both are given, or a column is neither a worker of the pool nor a candidate.
        WorkflowError: a given workflow is not valid over the pool.
    """

    def __init__(
        self,
        pool: WorkerPool,
        *,
        observations: Observations | None = None,
        workflow: Workflow | None = None,
        candidates: Mapping[str, Workflow] | None = None,
    ) -> None:
        if observations is not None and workflow is not None:
            raise ConfigError("BestFixed: got observations and a workflow, expected one of them at most")
        if observations is not None:
            workflow = choose_fixed(pool, observations, candidates or {})
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


def choose_fixed(pool: WorkerPool, observations: Observations, candidates: Mapping[str, Workflow]) -> Workflow:
    """The workflow of the best column.

    Raises:
        ConfigError: a column is neither a worker of the pool nor a candidate, or nothing was decided.
        WorkflowError: the candidate that is best is not valid over the pool.
    """
    names = {worker.name: ordinal for ordinal, worker in pool}
    for column in observations.workers:
        if column not in names and column not in candidates:
            near = nearest(column, [*names, *candidates])
            raise ConfigError(
                f"BestFixed: the column {column!r} is neither a worker of the pool nor a candidate; nearest: {near!r}"
            )
    best = observations.best()
    if best not in candidates:
        return alone(names[best])
    validate_workflow(candidates[best], pool.ordinals)
    return candidates[best]
