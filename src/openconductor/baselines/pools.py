"""Pools as baselines need them: a worker by its name or ordinal, all workers changed alike, a refusal as words.

In: a pool. Out: ordinals, or a pool of the same ordinals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

from openconductor.errors import ConfigError, Refused, WorkerError, caused_by_plan
from openconductor.execution import find_fault
from openconductor.pool import WorkerPool
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Sampling, StepResult, Transcript, Usage
from openconductor.worker import Worker

DECLINED = "(This worker declined to answer.)"
"""What a refusal reads as in a forgiving pool."""


def ordinal_in(pool: WorkerPool, worker: int | str) -> int:
    """The ordinal of a worker that is named or numbered.

    Raises:
        ConfigError: the pool has no such worker.
    """
    if isinstance(worker, str):
        return pool.ordinal_of(worker)
    pool[worker]  # raises where there is none
    return worker


class _ChangedPool(WorkerPool):
    """A pool whose workers another one's were made into; a class of its own, for only a pool sets its workers."""

    __slots__ = ()

    def __init__(self, pool: WorkerPool, change: Callable[[Worker], Worker]) -> None:
        workers = {ordinal: change(worker) for ordinal, worker in pool}
        object.__setattr__(self, "_workers", MappingProxyType(workers))


def changed_pool(pool: WorkerPool, change: Callable[[Worker], Worker]) -> WorkerPool:
    """A pool of the same ordinals, each worker changed."""
    return _ChangedPool(pool, change)


def forgiving_pool(pool: WorkerPool) -> WorkerPool:
    """A pool whose workers say ``DECLINED`` where they would fail by the question's own doing.

    Where many answer side by side, one refusal then costs one vote and not the episode. What is billed and journaled
    stays: the failed call. A failure of transport or provider is raised as ever, for it must not change a score.
    """
    return changed_pool(pool, lambda worker: worker.wrapped(_Forgiving))


def spoken(transcript: Transcript) -> list[tuple[int, str]]:
    """What the steps of a forgiving pool answered, as (step, text), refusals left out.

    Raises:
        Refused: every one of them declined.
    """
    said = [(index, text) for index, result in enumerate(transcript.results) if (text := _text(result)) is not None]
    if not said:
        raise Refused("every worker declined to answer")
    return said


def last_spoken(transcript: Transcript) -> str:
    """What the last step of a forgiving pool answered.

    Raises:
        Refused: it declined.
    """
    text = _text(transcript.results[-1])
    if text is None:
        raise Refused("declined to answer")
    return text


def _text(result: StepResult) -> str | None:
    if result.completion is None or result.completion.text == DECLINED:
        return None
    return result.completion.text


class _Forgiving:
    """A provider whose refusals are words."""

    __slots__ = ("_provider",)

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        """Complete the conversation; raises what is not the question's own doing."""
        try:
            completion = await self._provider.complete(messages, sampling, call=call, on_text=on_text)
        except WorkerError as error:
            if not caused_by_plan(error):
                raise
            return Completion(DECLINED, usage=error.usage or Usage())
        fault = find_fault(completion)
        if fault is None or not caused_by_plan(fault):
            return completion
        return replace(completion, text=DECLINED, finish_reason="stop")


def check_flag(where: str, value: object) -> None:
    """Make sure that an option is true or false.

    Raises:
        ConfigError: it is neither.
    """
    if type(value) is not bool:
        raise ConfigError(f"{where}: got {value!r}, expected true or false")


def check_number(where: str, value: object) -> None:
    """Make sure that an option is a finite number from 0.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(f"{where}: got {value!r}, expected a number from 0")


def check_kind(where: str, value: object, kind: type) -> None:
    """Make sure that an option is of a class of ours.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, kind):
        raise ConfigError(f"{where}: got {value!r}, expected a {kind.__name__} or its file")


def check_count(where: str, value: object, least: int) -> None:
    """Make sure that an option is a whole number.

    Raises:
        ConfigError: it is none, or below ``least``.
    """
    if type(value) is not int or value < least:
        raise ConfigError(f"{where}: got {value!r}, expected a whole number from {least}")
