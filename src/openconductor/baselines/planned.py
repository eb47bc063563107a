"""Workflows that a function makes, executed: the gym's oracle and best fixed workflow are of this kind.

In: a pool and a function from the question to a workflow. Out: Episodes.
"""

from __future__ import annotations

from collections.abc import Callable

from openconductor.baselines.pools import Baseline
from openconductor.episode import Stage
from openconductor.parser import validate_workflow
from openconductor.pool import WorkerPool
from openconductor.types import Question, Workflow


class PlannedOrchestrator(Baseline):
    """Executes, for each question, the workflow that a function makes.

    Args:
        pool: the workers.
        plan: makes the workflow; a WorkflowError that it raises ends the episode, as an invalid workflow does.
        max_steps: the most steps that a workflow may have; None is no limit.
        name: what tables call it.
    """

    def __init__(
        self,
        pool: WorkerPool,
        plan: Callable[[Question], Workflow],
        *,
        max_steps: int | None = None,
        name: str = "planned",
    ) -> None:
        super().__init__(pool, name)
        self._plan = plan
        self._max_steps = max_steps

    async def play(self, stage: Stage) -> str | None:
        """One round, of the plan."""
        stage.begin()
        workflow = self._plan(stage.question)
        validate_workflow(workflow, self.pool.ordinals, max_steps=self._max_steps)
        return await stage.answer_by(workflow)
