"""Workflows that a function makes, executed: the gym's oracle and best fixed workflow are of this kind.

In: a pool and a function from the question to a workflow. Out: Episodes.
"""

from __future__ import annotations

from collections.abc import Callable

from openconductor.baselines.playing import play
from openconductor.parser import validate_workflow
from openconductor.pool import WorkerPool
from openconductor.protocols import OnEvent
from openconductor.types import Budget, Episode, Question, Workflow

Plan = Callable[[Question], Workflow]


class PlannedOrchestrator:
    """Executes, for each question, the workflow that a function makes.

    Args:
        pool: the workers.
        plan: makes the workflow; a WorkflowError that it raises ends the episode, as an invalid workflow does.
        max_steps: the most steps that a workflow may have; None is no limit.
        name: what tables call it.
    """

    def __init__(self, pool: WorkerPool, plan: Plan, *, max_steps: int | None = None, name: str = "planned") -> None:
        self._pool = pool
        self._plan = plan
        self._max_steps = max_steps
        self.name = name

    async def ask(
        self, question: Question, *, budget: Budget | None = None, on_event: OnEvent | None = None, sample: int = 0
    ) -> Episode:
        """Answer one question; as for the Conductor's ``ask``, data errors end the episode and *stop* errors rise."""
        return await play(
            lambda: self._valid(question), self._pool, question, budget=budget, on_event=on_event, sample=sample
        )

    def _valid(self, question: Question) -> Workflow:
        workflow = self._plan(question)
        validate_workflow(workflow, self._pool.ordinals, max_steps=self._max_steps)
        return workflow
