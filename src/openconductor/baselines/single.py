"""One worker answers alone: it is sent nothing but the question; or so with several times its token budget.

In: a pool and a worker. Out: Episodes of one call.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from openconductor.baselines.instructions import ALONE
from openconductor.baselines.pools import Baseline, changed_pool, check_count, ordinal_in
from openconductor.episode import Stage
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.types import Step, Workflow
from openconductor.worker import Worker


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
        self._ordinal = ordinal_in(pool, worker)
        super().__init__(pool, pool[self._ordinal].name)

    async def play(self, stage: Stage) -> str | None:
        """One round of one step."""
        return await stage.answer_by(alone(self._ordinal))


class LongContext(SingleWorker):
    """Asks one worker, which may write ``times`` as many tokens as it otherwise may (the paper's "5x context").

    Only ``max_tokens`` grows; what a worker's ``body`` says about reasoning is sent as it is.

    Args:
        pool: the workers.
        worker: the worker's name or ordinal.
        times: the factor.
        max_tokens: the limit that is multiplied; default: the worker's own.

    Raises:
        ConfigError: the pool has no such worker, a number is below 1, or nothing limits the worker: there is nothing to
            multiply then, and the row would be the worker alone under another name.
    """

    def __init__(self, pool: WorkerPool, worker: int | str, *, times: int = 5, max_tokens: int | None = None) -> None:
        ordinal = ordinal_in(pool, worker)
        check_count("LongContext.times", times, 1)
        if max_tokens is not None:
            check_count("LongContext.max_tokens", max_tokens, 1)
        name, limit = pool[ordinal].name, max_tokens or pool[ordinal].sampling.max_tokens
        if limit is None:
            raise ConfigError(
                f"LongContext: worker {name!r} has no max_tokens, expected a limit to multiply: give max_tokens"
            )
        super().__init__(changed_pool(pool.subset([ordinal]), lambda one: _with_limit(one, times * limit)), ordinal)
        self.name = f"{name}, {times}x context"


def _with_limit(worker: Worker, max_tokens: int) -> Worker:
    """The same worker (its limits, circuit and replay with it) under another limit of output tokens."""
    other = copy(worker)  # not `replace`, which would compose its policies anew and so lose a replay around them
    object.__setattr__(other, "sampling", replace(worker.sampling, max_tokens=max_tokens))
    return other
