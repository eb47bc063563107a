"""The base class of baselines, and pools of changed workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

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
"""The text of a refusal in a forgiving pool."""


class Baseline:
    """An Orchestrator that plays a question without a Conductor.

    Events, transcripts, bills and budgets are those of a Conductor. A baseline defines
    ``workflow``, or ``play`` if it is more than one workflow.

    Attributes:
        needs: the lessons that it learns from (``Observations``, ``Trial``), given as its options
            ``observations`` and ``trials``.
        name: its name for people.
        pool: the workers.
        fallback: whether a failed step goes to another worker, as users want it; it is off in
            evaluation, because it would credit the wrong worker.

    Raises:
        ConfigError: a class defines neither.
    """

    needs: ClassVar[type | tuple[type, ...]] = ()
    fallback: bool = False

    def __init__(self, pool: WorkerPool, name: str) -> None:
        if type(self).play is Baseline.play and type(self).workflow is Baseline.workflow:
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
        """Answer one question.

        As for the Conductor's ``ask``, data errors end the episode and *stop* errors are raised. A
        chat of one plain turn is asked as its text, as evaluations ask it.
        """
        live = LiveEpisode(
            self.pool, _plain(question), context=context, on_event=on_event, fallback=self.fallback
        )
        async with live.play(budget):
            live.answer = await self.play(live)
        return live.episode

    async def play(self, live: LiveEpisode) -> str | None:
        """Play one question: here one round, of ``workflow``.

        Returns:
            The answer; None: the last round's error ends the episode.

        Raises:
            WorkflowError, WorkerError: the episode ends with it.
        """
        return await live.answer_by(self.workflow(live.question, sample=live.sample))

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """Return the workflow that is played for a question."""
        raise NotImplementedError


def _plain(question: Question) -> Question:
    """Return a question as a text if it is a chat of one plain turn of the user."""
    match question:
        case [Message(role="user", content=text, parts=[])]:
            return text
        case _:
            return question


def ordinal_in(pool: WorkerPool, worker: int | str) -> int:
    """Return the ordinal of a worker that is named or numbered.

    Raises:
        ConfigError: the pool has no such worker.
    """
    if isinstance(worker, str):
        return pool.ordinal_of(worker)
    pool[worker]  # raises if there is none
    return worker


def changed_pool(pool: WorkerPool, change: Callable[[Worker], Worker]) -> WorkerPool:
    """Return a pool of the same ordinals, each worker changed."""
    return WorkerPool({ordinal: change(worker) for ordinal, worker in pool})


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A provider whose calls are made by a function, which gets each as something to await."""

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
        """Complete the conversation by the function."""
        return await self.way(
            partial(self.provider.complete, messages, sampling, call=call, on_text=on_text)
        )


def around(worker: Worker, way: Around) -> Worker:
    """Return the worker with each call made by ``way``, a function of what to await."""
    return worker.wrapped(partial(_Wrapper, way=way))


def forgiving_pool(pool: WorkerPool) -> WorkerPool:
    """Return a pool whose workers answer ``DECLINED`` where they would refuse or reject a call.

    If many answer side by side, one refusal then costs one vote and not the episode. The failed
    call is billed and journaled. A failure of transport or provider is raised as ever, because it
    must not change a score.
    """
    return changed_pool(pool, lambda worker: around(worker, _forgive))


async def play_answers(
    live: LiveEpisode, workflow: Workflow, opening: Sequence[Message] | None = None
) -> dict[int, str]:
    """Play a workflow over a forgiving pool, and return the answers by step, without refusals.

    ``opening`` is that of ``LiveEpisode.run``.

    Raises:
        WorkerError: a step failed; Refused if every worker declined.
    """
    transcript = await live.run(workflow, opening=opening)
    if transcript.error is not None:
        raise transcript.error
    answers: dict[int, str] = {}
    for step, result in enumerate(transcript.results):
        if result.completion is not None and result.completion.text != DECLINED:
            answers[step] = result.completion.text
    if not answers:
        raise Refused("every worker declined to answer")
    return answers


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
    """Check that an option is a whole number.

    Raises:
        ConfigError: it is not, or is below ``least``.
    """
    if type(value) is not int or value < least:
        raise ConfigError(f"{where}: got {value!r}, expected a whole number from {least}")
