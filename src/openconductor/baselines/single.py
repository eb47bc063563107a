"""One worker answers alone: it is sent nothing but the question. In: a pool and an ordinal. Out: Episodes."""

from __future__ import annotations

from openconductor.baselines.playing import play
from openconductor.pool import WorkerPool
from openconductor.protocols import OnEvent
from openconductor.types import Budget, Episode, Question, Step, Workflow

_ALONE = ""
"""A subtask that adds nothing to the question (only a Conductor's own workflows must have a text here)."""


class SingleWorker:
    """Asks one worker of a pool.

    Args:
        pool: the pool.
        worker: the worker's ordinal.

    Raises:
        ConfigError: the pool has no such worker.
    """

    def __init__(self, pool: WorkerPool, worker: int) -> None:
        self._pool = pool
        self._workflow = Workflow((Step(worker, _ALONE),))
        self.name = pool[worker].name

    async def ask(
        self, question: Question, *, budget: Budget | None = None, on_event: OnEvent | None = None, sample: int = 0
    ) -> Episode:
        """Answer one question; as for the Conductor's ``ask``, data errors end the episode and *stop* errors rise."""
        return await play(lambda: self._workflow, self._pool, question, budget=budget, on_event=on_event, sample=sample)
