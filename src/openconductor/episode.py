"""The life of an episode: asked, rounds (planned, steps), answered; one for the Conductor, baselines and ``execute``.

In: a pool, a question, and what plays the rounds. Out: an Episode, with its events in order.

A Stage keeps the budget, tells the sink, and sees to it that every error whose fate is *stop*
carries ``.episode``. What a sink raises ends the episode and comes out as it was; nothing more is
told to it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from openconductor.calls.budget import BudgetMeter, PaidCall, check_price, open_meter
from openconductor.calls.worker import Worker
from openconductor.errors import (
    AuthFailed,
    OpenConductorError,
    WorkerError,
    WorkflowError,
    WorkflowReason,
)
from openconductor.events import (
    Answered,
    Asked,
    CallEnded,
    Event,
    Planned,
    RoundEnded,
    StepStarted,
    StepText,
)
from openconductor.execution import Asking, Execution, open_context
from openconductor.parser import parse_workflow, validate_workflow
from openconductor.pool import WorkerPool
from openconductor.prompt import SOLVE_SUBTASK, check_question, check_turns
from openconductor.protocols import CallContext, OnEvent
from openconductor.providers.orchestrator import working_for
from openconductor.types import (
    Budget,
    Call,
    Completion,
    Episode,
    Message,
    Question,
    Round,
    Step,
    Transcript,
    Usage,
    Workflow,
)

Act = Callable[["Stage"], Awaitable[str | None]]
"""Plays rounds on the stage it is given, and returns the answer; None lets the last round's error end the episode."""

_UNLIMITED = nullcontext()


@dataclass(slots=True)
class _OpenRound:
    """What is known of the round under way, should it have to stop."""

    completion: Completion | None = None
    workflow: Workflow | None = None
    execution: Execution | None = None
    calls: list[Call] = field(default_factory=list[Call])


class Stage:
    """One episode under way: whoever plays it runs its rounds here, one after the other.

    Args:
        pool: the workers.
        question: a text, or a chat whose last turn is the user's.
        context: what the question works for. Its ``sample`` tells repeats of a question apart.
        on_event: gets the events.
        fallback: whether a failed step goes to another worker.
        spent: what the end of the question's own budget is: ``stop`` is raised; where ``answered``,
            the answer until then counts; ``data`` ends the episode, which holds it.
        previous: a round that was played before; it is in the episode, but not on its bill.

    Attributes:
        rounds: those that have ended.
        answer: the answer until now.
        opening: the turns that open every step's context: the question, and the chat before it.
        meter: the budget; None is no limit.
        failure: what the sink raised.

    Raises:
        ConfigError: the question is neither a text nor a list of Messages.
    """

    def __init__(
        self,
        pool: WorkerPool,
        question: Question,
        *,
        context: CallContext | None = None,
        on_event: OnEvent | None = None,
        fallback: bool = False,
        spent: Literal["stop", "answered", "data"] = "stop",
        previous: Round | None = None,
    ) -> None:
        check_turns(question)
        self.pool = pool
        self.question = question
        self.sample = 0 if context is None else context.sample
        self.fallback = fallback
        self.rounds: list[Round] = [] if previous is None else [previous]
        self.answer: str | None = None if previous is None else previous.answer
        self.opening: tuple[Message, ...] = ()
        self.meter: BudgetMeter | None = None
        self.failure: BaseException | None = None
        self._on_event = on_event
        self._wants_text = on_event is not None and wants_text(on_event)
        self._spent = spent
        self._played_before = len(self.rounds)
        self._open: _OpenRound | None = None
        self._clock = asyncio.get_running_loop().time
        above = working_for.get()
        self._context = CallContext(
            uuid.uuid4().hex,
            self._played_before,
            sample=self.sample,
            depth=0 if above is None else above.depth + 1,
            origin=self._clock(),
        )

    async def play(self, act: Act, budget: Budget | None = None) -> Episode:
        """The whole episode.

        Args:
            act: plays the rounds.
            budget: what the question may cost.

        Returns:
            The Episode; ``error`` is the WorkflowError or WorkerError that ``act`` raised or left
            in the last round.

        Raises:
            ConfigError, AuthFailed, BudgetExceeded: nothing more can be done; ``.episode`` holds
                what had happened.
        """
        stop: OpenConductorError | None = None
        try:
            try:
                self.tell(Asked, self.question, self.sample, self.pool.names)
                check_question(self.question)
                self.opening = open_context(self.question)
                self.meter = open_meter(budget, now=self._context.origin)
                if self.meter is not None:
                    self._context = replace(self._context, deadline=self.meter.deadline)
                async with _UNLIMITED if self.meter is None else self.meter.time_limit():
                    self.answer = await act(self)
                error = self.rounds[-1].error if self.answer is None and self.rounds else None
            except OpenConductorError as raised:
                self.check_sink()  # what it raised need not be this error: it can fail while others are closed
                self.end(raised)
                error, stop = self._fate(raised)
            episode = self._episode(None if error is not None else self.answer, error)
            if stop is not None:
                stop.episode = episode
            self.tell(Answered, episode)
            self.check_sink()
            if self._on_event is not None:
                await settle(self._on_event)
        except OpenConductorError as raised:  # of a sink
            self.end(raised)
            raised.episode = self._episode(None, raised)
            raise
        if stop is not None:
            raise stop
        return episode

    # What an act does.

    def begin(self) -> None:
        """Begin a round."""
        self._open = _OpenRound()
        if self._context.round != len(self.rounds):
            self._context = replace(self._context, round=len(self.rounds))

    async def ask_planner(self, planner: Worker, messages: tuple[Message, ...]) -> Completion:
        """The planner's completion, under the budget, on the bill of the round.

        Raises:
            WorkerError, BudgetExceeded: there is none.
        """
        return await self.call(planner, Asking(messages, calls=self._round.calls))

    async def follow(self, completion: Completion, *, max_steps: int, subtasks: bool) -> None:
        """Run the workflow that a planner's completion says, to its answer; or accept the answer until now.

        Args:
            completion: what the planner wrote; where there is an answer already, three empty lists
                accept it.
            max_steps: the most steps.
            subtasks: off, every subtask is replaced by the neutral one.

        Raises:
            WorkflowError: it says none; ``truncated`` where the text was cut at its token limit.
        """
        self._round.completion = completion
        try:
            if completion.finish_reason == "length":
                raise WorkflowError(
                    WorkflowReason.TRUNCATED,
                    f"the Conductor's text was cut at its token limit after {len(completion.text)} characters",
                )
            workflow = parse_workflow(
                completion.text,
                self.pool.ordinals,
                max_steps=max_steps,
                accept_allowed=self.answer is not None,
            )
        except WorkflowError as error:
            self.tell(Planned, completion, None, error)
            raise
        if not subtasks:
            workflow = Workflow(
                tuple(Step(step.worker, SOLVE_SUBTASK, step.access) for step in workflow)
            )
        self._round.workflow = workflow
        self.tell(Planned, completion, workflow)
        if workflow.steps:
            said = await self.answer_by(workflow, previous=self.answer)
            self.answer = self.answer if said is None else said
        else:
            self.end()

    async def run(
        self,
        workflow: Workflow,
        *,
        opening: Sequence[Message] | None = None,
        previous: str | None = None,
    ) -> Transcript:
        """Execute a workflow, as the round that is open or a new one, and end the round.

        Args:
            workflow: it is executed as it is, so it must be valid over the pool
                (``validate_workflow``).
            opening: turns that open every step's context in place of ``opening``: with attempts of
                earlier rounds, say.
            previous: the previous round's final response, shown to steps whose access is ``"all"``.

        Returns:
            The transcript; a worker's failure is in it.

        Raises:
            ConfigError, AuthFailed, BudgetExceeded: nothing more can be done.
        """
        if self._open is None:
            self.begin()
        if self.meter is not None:
            self.meter.check()
            for ordinal in (
                self.pool.ordinals if self.fallback else {step.worker for step in workflow}
            ):
                check_price(self.meter, self.pool[ordinal])
        self._round.workflow = workflow
        opened = self.opening if opening is None else tuple(opening)
        self._round.execution = execution = Execution(workflow, self, opened, previous)
        transcript = await execution.run()
        self.end()
        return transcript

    async def answer_by(self, workflow: Workflow, *, previous: str | None = None) -> str | None:
        """The answer of a workflow, run as a round; None where a step failed."""
        await self.run(workflow, previous=previous)
        return self.rounds[-1].answer

    def end(self, error: OpenConductorError | None = None) -> None:
        """End the round that is open, where one is; ``error`` is why, where its steps do not say so."""
        if self._open is None:
            return
        now, self._open = self._open, None
        transcript = now.execution.transcript() if now.execution is not None else None
        if error is None and transcript is not None:
            error = transcript.error
        outcome = Round(now.completion, now.workflow, transcript, error, tuple(now.calls))
        self.rounds.append(outcome)
        self.tell(RoundEnded, outcome)

    # What an execution does.

    async def call(self, worker: Worker, now: Asking) -> Completion:
        """One worker's completion, under the budget; every attempt at it is told and kept in ``now``.

        What the sink raises on the way comes out of here.
        """
        meter, step = self.meter, now.step
        here = replace(self._context, step=step, subtask=now.subtask, last=now.last)
        paid: PaidCall | None = None
        if meter is not None:
            known = partial(worker.knows, now.messages, here)
            paid = await meter.call(worker.most(now.messages, last=now.last), known=known)
        context = replace(here, on_event=partial(self._hear, now.calls, paid))
        on_text = None
        try:
            with paid or _UNLIMITED:
                if step is not None:
                    if now.begun is None:
                        now.begun = self.now()
                    self.tell(StepStarted, step, now.worker, now.messages)
                    on_text = partial(self.tell, StepText, step) if self._wants_text else None
                completion = await worker.complete(now.messages, call=context, on_text=on_text)
        except WorkerError as error:
            if self.failure is not None:
                raise self.failure from None  # a failing sink, dressed up by the worker that streamed to it
            if meter is not None and meter.out_of_time():
                raise meter.exceeded("seconds") from error
            raise
        self.check_sink()  # a failing sink, swallowed by the worker that streamed to it
        return completion

    def tell(self, kind: Callable[..., Event], *fields: object) -> None:
        """Tell the sink of an event of this round, now; nothing where it has failed."""
        if self._on_event is not None:
            self._hand_on(kind(self._context.episode, self._context.round, self.now(), *fields))

    @property
    def outermost(self) -> bool:
        """Whether no orchestrator stands above."""
        return self._context.depth == 0

    def check_sink(self) -> None:
        """Raise what the sink raised, where it has failed: what was dropped must not be taken for told."""
        if self.failure is not None:
            raise self.failure

    def now(self) -> float:
        """Seconds since the episode began."""
        return self._clock() - self._context.origin

    # The rest.

    @property
    def _round(self) -> _OpenRound:
        assert self._open is not None, "no round has begun"
        return self._open

    def _fate(
        self, error: OpenConductorError
    ) -> tuple[OpenConductorError | None, OpenConductorError | None]:
        """What an error leaves: the episode's error, and the one to raise."""
        spent = self._spent if self.meter is not None and self.meter.ended_in(error) else "stop"
        if spent == "answered" and self.answer is not None:
            return None, None
        is_data = isinstance(error, WorkflowError | WorkerError) and not isinstance(
            error, AuthFailed
        )
        return (error, None) if is_data or spent == "data" else (error, error)

    def _episode(self, answer: str | None, error: OpenConductorError | None) -> Episode:
        usage = sum((one.usage for one in self.rounds[self._played_before :]), Usage())
        return Episode(
            self.question,
            tuple(self.rounds),
            answer,
            error,
            usage,
            self.now(),
            self._context.episode,
        )

    def _hear(self, calls: list[Call], paid: PaidCall | None, event: Event) -> None:
        """Take in what happens below a call: each attempt is kept and charged."""
        if event.episode != self._context.episode:
            return
        if isinstance(event, CallEnded):
            calls.append(event.call)
            if paid is not None:
                paid.charge(event.call.usage)
        self._hand_on(event)

    def _hand_on(self, event: Event) -> None:
        if self._on_event is None or self.failure is not None:
            return
        try:
            self._on_event(event)
        except BaseException as error:
            self.failure = error
            raise


async def execute(
    workflow: Workflow,
    pool: WorkerPool,
    question: Question,
    *,
    previous: str | None = None,
    budget: Budget | None = None,
    on_event: OnEvent | None = None,
    context: CallContext | None = None,
    fallback: bool = False,
    max_steps: int | None = None,
) -> Transcript:
    """Execute a workflow, its independent steps at the same time: an episode of one round.

    Args:
        workflow: the plan, from the parser or by hand.
        pool: the workers, by ordinal.
        question: a text, or a chat whose last turn is the user's.
        previous: the previous round's final response, shown to steps whose access is ``"all"``.
        budget: what the execution may cost; exceeding it cancels what runs.
        on_event: gets every event in order. It is trusted: an exception that it raises cancels what
            runs and comes out of here unchanged, and nothing more is sent to it.
        context: what the question works for. Its ``sample`` tells repeats of a question apart.
        fallback: whether a step whose worker failed goes to the next worker that it has not tried
            (the result's ``worker`` says which answered). Off where credit matters: in training and
            evaluation.
        max_steps: the most steps that the workflow may have; None is no limit.

    Returns:
        The transcript: its ``answer`` is the last step's response; ``error`` the first failure,
        where there is one.

    Raises:
        WorkflowError: the workflow is not valid over this pool.
        ConfigError: the question is no question, or a dollar budget meets a worker without a price.
        BudgetExceeded, AuthFailed: the execution had to stop; ``.episode`` holds what had happened.
    """
    validate_workflow(workflow, pool.ordinals, max_steps=max_steps)
    stage = Stage(pool, question, context=context, on_event=on_event, fallback=fallback)
    await stage.play(lambda stage: stage.answer_by(workflow, previous=previous), budget)
    transcript = stage.rounds[0].transcript
    assert transcript is not None  # what ended the round before it had one is raised
    return transcript


# ── sinks ─────────────────────────────────────────────────────────────────────────────────────────
class FanOut:
    """Several sinks as one: each gets, in the order given, the events that it wants. The first that fails ends it.

    >>> seen = []
    >>> FanOut(seen.append, print).wants_text
    True
    """

    def __init__(self, *sinks: OnEvent) -> None:
        self._sinks = [(sink, wants_text(sink)) for sink in sinks]
        self.wants_text = any(text for _, text in self._sinks)

    def __call__(self, event: Event) -> None:
        """Hand one event to each sink that wants its kind."""
        for sink, text in self._sinks:
            if text or not isinstance(event, StepText):
                sink(event)

    async def wait_durable(self) -> None:
        """Wait until every sink that can say so has made durable what it was handed."""
        for sink, _ in self._sinks:
            await settle(sink)


def wants_text(sink: OnEvent) -> bool:
    """Whether a sink wants what steps stream."""
    return bool(getattr(sink, "wants_text", True))


async def settle(sink: OnEvent) -> None:
    """Wait until a sink has made durable what it was handed, where it can say that."""
    wait = getattr(sink, "wait_durable", None)
    if wait is not None:
        await wait()
