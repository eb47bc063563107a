"""One worker answers alone: it is sent nothing but the question. In: a pool and a worker. Out: Episodes."""

from __future__ import annotations

from openconductor.baselines.instructions import ALONE
from openconductor.baselines.playing import Baseline, Stage
from openconductor.baselines.pools import ordinal_in
from openconductor.pool import WorkerPool
from openconductor.types import Step, Workflow


def alone(worker: int) -> Workflow:
    """The workflow of one step that adds nothing to the question."""
    return Workflow((Step(worker, ALONE),))


class SingleWorker(Baseline):
    """Asks one worker of a pool.

    Args:
        pool: the pool.
        worker: the worker's name or ordinal.

    Raises:
        ConfigError: the pool has no such worker.
    """

    def __init__(self, pool: WorkerPool, worker: int | str) -> None:
        ordinal = ordinal_in(pool, worker)
        super().__init__(pool, pool[ordinal].name)
        self._workflow = alone(ordinal)

    async def play(self, stage: Stage) -> str | None:
        """One round of one step."""
        return (await stage.run(self._workflow)).answer
