"""How every baseline plays: workflows, made without a Conductor, become the rounds of one Episode.

In: what makes the workflows, a pool, a question. Out: the Episode, and the same events as the Conductor's, but for
``Planned``: nobody wrote a completion. Everything that a baseline calls goes through here, so that transcripts, ledger,
journal, replay and budgets hold for it as for the Conductor.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from openconductor.budget import BudgetMeter, check_price, open_meter, time_limit
from openconductor.context import open_context
from openconductor.emit import Emitter, asked, open_call
from openconductor.errors import AuthFailed, OpenConductorError, WorkerError, WorkflowError
from openconductor.events import Answered, RoundEnded
from openconductor.execution import Execution, Setting
from openconductor.pool import WorkerPool
from openconductor.prompt import check_question, check_turns
from openconductor.protocols import OnEvent
from openconductor.types import Budget, Episode, Message, Question, Round, Transcript, Usage, Workflow

if TYPE_CHECKING:
    from openconductor.worker import CompletionStore


class Baseline(ABC):
    """A pool, a name, and a way to play a question.

    Attributes:
        name: what tables call it.
        pool: the workers.
    """

    def __init__(self, pool: WorkerPool, name: str) -> None:
        self.pool = pool
        self.name = name

    async def ask(
        self, question: Question, *, budget: Budget | None = None, on_event: OnEvent | None = None, sample: int = 0
    ) -> Episode:
        """Answer one question; as for the Conductor's ``ask``, data errors end the episode and *stop* errors rise."""
        return await perform(self.play, self.pool, question, budget=budget, on_event=on_event, sample=sample)

    def replaying(self, journal: CompletionStore) -> Self:
        """The same baseline, answering from a journal what stands there: paid for before, and not again."""
        other = copy(self)
        other.pool = self.pool.replaying(journal)
        return other

    @abstractmethod
    async def play(self, stage: Stage) -> str | None:
        """Play one question on a stage.

        Returns:
            The answer; None where the last round's error ends the episode.

        Raises:
            WorkflowError, WorkerError: the episode ends with it.
        """


class Stage:
    """One episode under way: a baseline runs its rounds on it, one after the other.

    Attributes:
        question: what was asked.
        sample: tells repeats of the same question apart.
    """

    def __init__(
        self, pool: WorkerPool, question: Question, *, sample: int = 0, on_event: OnEvent | None = None
    ) -> None:
        self.question = question
        self.sample = sample
        self._pool = pool
        self._clock = asyncio.get_running_loop().time
        self._origin = self._clock()
        self._call = open_call(origin=self._origin, sample=sample)
        self._emit = Emitter(on_event) if on_event is not None else None
        self._meter: BudgetMeter | None = None
        self._open: Execution | None = None
        self._rounds: list[Round] = []

    async def run(self, workflow: Workflow, *, after: Sequence[Message] = ()) -> Transcript:
        """Execute a workflow as the next round; a worker's failure stands in the transcript.

        Args:
            workflow: it is executed as it is, so it must be valid over the pool (``validate_workflow``).
            after: turns that every step sees behind the question: attempts of earlier rounds.

        Raises:
            ConfigError, AuthFailed, BudgetExceeded: nothing more can be done.
        """
        for worker in {step.worker for step in workflow}:
            check_price(self._meter, self._pool[worker])
        self._call = replace(self._call, round=len(self._rounds))
        setting = Setting(self._pool, self._call, self._origin, self._meter, self._emit)
        self._open = Execution(workflow, setting, (*open_context(self.question), *after))
        transcript = await self._open.run()
        self._end_round(None)
        return transcript

    async def play(self, act: Callable[[Stage], Awaitable[str | None]], budget: Budget | None) -> Episode:
        """The whole episode: what ``perform`` does, on this stage."""
        try:
            if self._emit is not None:
                self._emit(asked(self._call, self.question))
            check_question(self.question)
            self._meter = open_meter(budget, now=self._origin)
            if self._meter is not None:
                self._call = replace(self._call, deadline=self._meter.deadline)
            async with time_limit(self._meter):
                answer = await act(self)
        except OpenConductorError as error:
            from_sink = self._emit is not None and self._emit.failure is not None
            episode = self._close(None, error)
            is_data = isinstance(error, WorkflowError | WorkerError) and not isinstance(error, AuthFailed)
            if not is_data or from_sink:
                error.episode = episode
                await self._settle()
                raise
        else:
            episode = self._close(answer, None)
        await self._settle()
        return episode

    def _end_round(self, error: OpenConductorError | None) -> None:
        """Close the round that is open, or tell of one that never came to a workflow."""
        execution, self._open = self._open, None
        if execution is None:
            outcome = Round(None, error=error)
        else:
            transcript = execution.transcript()
            outcome = Round(None, execution.workflow, transcript, error or transcript.error)
        self._rounds.append(outcome)
        self._tell(lambda at: RoundEnded(self._call.episode, self._call.round, at, outcome))

    def _close(self, answer: str | None, error: OpenConductorError | None) -> Episode:
        if self._open is not None or not self._rounds:
            self._end_round(error)
        if answer is None and error is None:
            error = self._rounds[-1].error
        usage = sum((one.usage for one in self._rounds), Usage())
        seconds = self._clock() - self._origin
        episode = Episode(self.question, tuple(self._rounds), answer, error, usage, seconds, self._call.episode)
        self._tell(lambda at: Answered(self._call.episode, self._call.round, at, episode))
        return episode

    def _tell(self, event: Callable[[float], RoundEnded | Answered]) -> None:
        if self._emit is not None and self._emit.failure is None:
            self._emit(event(self._clock() - self._origin))

    async def _settle(self) -> None:
        if self._emit is not None:
            await self._emit.settle()


async def perform(
    act: Callable[[Stage], Awaitable[str | None]],
    pool: WorkerPool,
    question: Question,
    *,
    budget: Budget | None = None,
    on_event: OnEvent | None = None,
    sample: int = 0,
) -> Episode:
    """Answer a question by what ``act`` plays on a stage.

    Args:
        act: runs rounds on the stage it is given, and returns the answer; None lets the last round's error stand.
        pool: the workers.
        question: a text, or a chat whose last turn is the user's.
        budget: what the question may cost.
        on_event: gets the events in order; what it raises comes out unchanged.
        sample: tells repeats of the same question apart.

    Returns:
        The Episode; ``error`` is the WorkflowError or WorkerError that ``act`` raised or left standing.

    Raises:
        ConfigError, AuthFailed, BudgetExceeded: nothing more can be done; ``.episode`` holds what had happened.
    """
    check_turns(question)
    return await Stage(pool, question, sample=sample, on_event=on_event).play(act, budget)
