"""The calls of an episode, within its budget, and the sinks of its events."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from openconductor.calls.budget import BudgetMeter, open_meter
from openconductor.calls.worker import Worker
from openconductor.errors import WorkerError
from openconductor.events import CallEnded, Event, StepStarted, StepText
from openconductor.protocols import CallContext, OnEvent, Tracer
from openconductor.types import Budget, Call, Completion, Message


@dataclass(slots=True)
class Assignment:
    """A step, or the plan of a round, that one worker is asked, or with fallback one after another.

    Attributes:
        messages: what is sent.
        step: 0-based; None: planning.
        subtask: the step's own; None: planning.
        last: True for the last step of a workflow that answers a user, not another orchestrator.
        worker: the ordinal of the worker that was asked last.
        started: seconds since the episode began; None: nothing was sent.
        calls: every attempt.
    """

    messages: tuple[Message, ...]
    step: int | None = None
    subtask: str | None = None
    last: bool = False
    worker: int | None = None
    started: float | None = None
    calls: list[Call] = field(default_factory=list[Call])


class Dispatcher:
    """Makes the calls of one episode within its budget, and hands its events to the sink.

    Args:
        context: what the episode's question works for.
        on_event: the sink; None: nobody listens.

    Attributes:
        context: the context of the episode's calls, but for what differs from call to call.
        meter: the budget; None: no limit.
        failure: the exception that the sink raised.
    """

    def __init__(self, context: CallContext, on_event: OnEvent | None) -> None:
        self.meter: BudgetMeter | None = None
        self.failure: BaseException | None = None
        self.on_event = on_event
        self._wants_text = on_event is not None and wants_text(on_event)
        self._tracer = find_tracer(on_event)
        self._clock = asyncio.get_running_loop().time
        episode = uuid.uuid4().hex
        trace = context.trace if self._tracer is None else self._tracer.begin(episode)
        self.context = CallContext(
            episode,
            sample=context.sample,
            depth=context.depth,
            origin=self._clock(),
            options=context.options,
            unreachable_s=context.unreachable_s,
            keep_texts=context.keep_texts,
            trace=trace,
        )

    def end_trace(self) -> None:
        """Tell the sink's tracer, if it has one, that the episode has ended."""
        if self._tracer is not None:
            self._tracer.end(self.context.episode)

    def open_meter(self, budget: Budget | None, context: CallContext) -> None:
        """Set the budget of the episode, which ``context.budget`` pays for.

        Raises:
            ConfigError: a limit is not a number of at least 0.
        """
        self.meter = open_meter(budget, now=self.context.origin, payer=context.budget)
        if self.meter is not None:
            self.context = replace(self.context, deadline=self.meter.deadline)

    async def call(
        self,
        worker: Worker,
        assignment: Assignment,
        *,
        replaceable: bool = False,
        deadline: float | None = None,
    ) -> Completion:
        """Return one worker's completion. Every attempt is kept in the assignment.

        Args:
            worker: the worker.
            assignment: what it is asked.
            replaceable: True if another worker can be asked instead, so that this one is not waited
                for if it cannot be reached.
            deadline: the event loop's time by which it must have answered; None: the episode's.

        Raises:
            WorkerError: the worker failed.
            BudgetExceeded: the budget ended.
        """
        context = replace(
            self.context,
            step=assignment.step,
            subtask=assignment.subtask,
            last=assignment.last,
            trace=self.context.new_span(),
            on_event=partial(self._hear, assignment.calls),
            unreachable_s=0.0 if replaceable else self.context.unreachable_s,
            deadline=self.context.deadline if deadline is None else deadline,
        )
        if self.meter is None:
            return await self._send(worker, assignment, context)
        messages = assignment.messages
        reservation = await self.meter.reserve_call(
            worker.most(messages, context),
            worker=worker.name,
            is_replay=partial(worker.knows, messages, context),
        )
        try:
            with reservation:
                context = replace(context, budget=reservation)
                return await self._send(worker, assignment, context)
        except WorkerError as error:
            if self.meter.out_of_time():
                raise self.meter.exceeded("seconds") from error
            raise

    async def _send(
        self, worker: Worker, assignment: Assignment, context: CallContext
    ) -> Completion:
        on_text = None
        try:
            if assignment.step is not None:
                if assignment.started is None:
                    assignment.started = self.now()
                step = assignment.step
                self.emit(StepStarted, step, assignment.worker, assignment.messages)
                if self._wants_text:
                    on_text = partial(self.emit, StepText, step)
            completion = await worker.complete(assignment.messages, call=context, on_text=on_text)
        except WorkerError:
            if self.failure is not None:  # the worker that streamed to the sink has wrapped it
                raise self.failure from None
            raise
        self.check_sink()  # the worker that streamed to the sink may have swallowed its failure
        return completion

    def emit(self, kind: Callable[..., Event], *fields: object) -> None:
        """Hand the sink an event of this round, unless it has failed."""
        if self.on_event is not None:
            self._hand_on(kind(self.context.episode, self.context.round, self.now(), *fields))

    def check_sink(self) -> None:
        """Raise what the sink raised, if it has failed, because events after that were dropped."""
        if self.failure is not None:
            raise self.failure

    def now(self) -> float:
        """Return the seconds since the episode began."""
        return self._clock() - self.context.origin

    def _hear(self, calls: list[Call], event: Event) -> None:
        """Keep an attempt at a call of this episode, and hand its event on."""
        if event.episode != self.context.episode:
            return
        if isinstance(event, CallEnded):
            calls.append(event.call)
        self._hand_on(event)

    def _hand_on(self, event: Event) -> None:
        if self.on_event is None or self.failure is not None:
            return
        try:
            self.on_event(event)
        except BaseException as error:
            self.failure = error
            raise


# ── sinks ─────────────────────────────────────────────────────────────────────────────────────────
class FanOut:
    """Several sinks as one: each gets the events that it wants, in the order given.

    The failure of one ends the episode.

    >>> seen = []
    >>> FanOut(seen.append, print).wants_text
    True
    """

    def __init__(self, *sinks: OnEvent) -> None:
        self._sinks = [(sink, wants_text(sink)) for sink in sinks]
        self.wants_text = any(text for _, text in self._sinks)
        tracers = [find_tracer(sink) for sink in sinks]
        self.tracer = next((tracer for tracer in tracers if tracer is not None), None)

    def __call__(self, event: Event) -> None:
        """Hand one event to each sink that wants its kind."""
        for sink, text in self._sinks:
            if text or not isinstance(event, StepText):
                sink(event)

    async def wait_durable(self) -> None:
        """Wait until every sink has made its events durable."""
        for sink, _ in self._sinks:
            await settle(sink)


def wants_text(sink: OnEvent) -> bool:
    """Return True if a sink wants what steps stream."""
    return bool(getattr(sink, "wants_text", True))


def find_tracer(sink: OnEvent | None) -> Tracer | None:
    """Return the tracer of a sink. None: it does not trace."""
    return getattr(sink, "tracer", None)


async def settle(sink: OnEvent | None) -> None:
    """Wait until a sink has made its events durable, if it can say so."""
    wait = getattr(sink, "wait_durable", None)
    if wait is not None:
        await wait()
