"""What baselines share: a pool, a way to play a question in a LiveEpisode, and a refusal as words.

In: a pool. Out: ordinals, or a pool of the same ordinals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from openconductor.calls.worker import Worker
from openconductor.context import find_fault
from openconductor.episode import LiveEpisode
from openconductor.errors import ConfigError, Refused, WorkerError, caused_by_plan
from openconductor.pool import WorkerPool
from openconductor.protocols import CallContext, OnEvent, OnText, SupportsComplete
from openconductor.types import (
    Budget,
    Completion,
    Episode,
    Message,
    Question,
    Sampling,
    Usage,
    Workflow,
)

Around = Callable[[Callable[[], Awaitable[Completion]]], Awaitable[Completion]]

DECLINED = "(This worker declined to answer.)"
"""What a refusal reads as in a forgiving pool."""


class Baseline:
    """An Orchestrator that plays a question without a Conductor: in the same events, transcripts, bills and budgets.

    A baseline defines ``workflow``, or ``play`` where one workflow is not all.

    Attributes:
        name: what it is, for people.
        pool: the workers.

    Raises:
        ConfigError: a class defines neither.
    """

    def __init__(self, pool: WorkerPool, name: str) -> None:
        if (type(self).play, type(self).workflow) == (Baseline.play, Baseline.workflow):
            raise ConfigError(
                f"{type(self).__name__}: has neither `workflow` nor `play`, expected one of them"
            )
        self.pool = pool
        self.name = name

    async def ask(
        self,
        question: Question,
        *,
        budget: Budget | None = None,
        on_event: OnEvent | None = None,
        context: CallContext | None = None,
    ) -> Episode:
        """Answer one question; as for the Conductor's ``ask``, data errors end the episode and *stop* errors rise."""
        live = LiveEpisode(self.pool, question, context=context, on_event=on_event)
        async with live.play(budget):
            live.answer = await self.play(live)
        return live.episode

    async def play(self, stage: LiveEpisode) -> str | None:
        """Play one question on a stage: here one round, of ``workflow``.

        Returns:
            The answer; None where the last round's error ends the episode.

        Raises:
            WorkflowError, WorkerError: the episode ends with it.
        """
        return await stage.answer_by(self.workflow(stage.question, sample=stage.sample))

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """What is played of a question where that is one workflow."""
        raise NotImplementedError


def ordinal_in(pool: WorkerPool, worker: int | str) -> int:
    """The ordinal of a worker that is named or numbered.

    Raises:
        ConfigError: the pool has no such worker.
    """
    if isinstance(worker, str):
        return pool.ordinal_of(worker)
    pool[worker]  # raises where there is none
    return worker


def changed_pool(pool: WorkerPool, change: Callable[[Worker], Worker]) -> WorkerPool:
    """A pool of the same ordinals, each worker changed."""
    return WorkerPool({ordinal: change(worker) for ordinal, worker in pool})


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A provider whose calls are made by a function, which is handed each as something to await."""

    provider: SupportsComplete
    way: Around

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Complete the conversation, in whatever way the function does."""
        return await self.way(
            partial(self.provider.complete, messages, sampling, call=call, on_text=on_text)
        )


def around(worker: Worker, way: Around) -> Worker:
    """The same worker, each call made by ``way`` (a function of what to await for the completion)."""
    return worker.wrapped(partial(_Wrapper, way=way))


def forgiving_pool(pool: WorkerPool) -> WorkerPool:
    """A pool whose workers say ``DECLINED`` where they would fail by the question's own doing.

    Where many answer side by side, one refusal then costs one vote and not the episode. What is
    billed and journaled stays: the failed call. A failure of transport or provider is raised as
    ever, for it must not change a score.
    """
    return changed_pool(pool, lambda worker: around(worker, _forgive))


async def spoken(
    stage: LiveEpisode, workflow: Workflow, opening: Sequence[Message] | None = None
) -> dict[int, str] | None:
    """What the steps of a workflow over a forgiving pool answer, by step, refusals left out; None where one failed.

    ``opening`` is that of ``LiveEpisode.run``.

    Raises:
        Refused: every one of them declined.
    """
    transcript = await stage.run(workflow, opening=opening)
    if transcript.error is not None:
        return None
    texts = [
        result.completion.text if result.completion else DECLINED for result in transcript.results
    ]
    said = {step: text for step, text in enumerate(texts) if text != DECLINED}
    if not said:
        raise Refused("every worker declined to answer")
    return said


async def _forgive(complete: Callable[[], Awaitable[Completion]]) -> Completion:
    try:
        completion = await complete()
    except WorkerError as error:
        if not caused_by_plan(error):
            raise
        return Completion(DECLINED, usage=error.usage or Usage())
    fault = find_fault(completion)
    if fault is None or not caused_by_plan(fault):
        return completion
    return replace(completion, text=DECLINED, finish_reason="stop")


def check_count(where: str, value: object, least: int) -> None:
    """Make sure that an option is a whole number.

    Raises:
        ConfigError: it is none, or below ``least``.
    """
    if type(value) is not int or value < least:
        raise ConfigError(f"{where}: got {value!r}, expected a whole number from {least}")
