"""One worker with several times its token budget (the Conductor paper's "5x context").

In: a pool and a worker. Out: Episodes of one call, whose limit of output tokens is ``times`` as high.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from openconductor.baselines.playing import Baseline, Stage
from openconductor.baselines.pools import changed_pool, check_count, ordinal_in
from openconductor.baselines.single import alone
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.worker import Worker


class LongContext(Baseline):
    """Asks one worker, which may write ``times`` as many tokens as it otherwise may.

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
        limit = max_tokens or pool[ordinal].sampling.max_tokens
        if limit is None:
            raise ConfigError(
                f"LongContext: worker {pool[ordinal].name!r} has no max_tokens, expected a limit to multiply: give "
                "max_tokens"
            )
        enlarged = changed_pool(pool.subset([ordinal]), lambda one: _with_limit(one, times * limit))
        super().__init__(enlarged, f"{pool[ordinal].name}, {times}x context")
        self._workflow = alone(ordinal)

    async def play(self, stage: Stage) -> str | None:
        """One round of one step."""
        return (await stage.run(self._workflow)).answer


def _with_limit(worker: Worker, max_tokens: int) -> Worker:
    """The same worker (its limits, circuit and replay with it) under another limit of output tokens."""
    other = copy(worker)  # not `replace`, which would compose its wrappers anew and so lose a replay around them
    object.__setattr__(other, "sampling", replace(worker.sampling, max_tokens=max_tokens))
    return other
