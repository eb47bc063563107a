"""One workflow under way: every step starts as soon as the steps that it sees have ended.

In: a valid Workflow, what its episode shares (``Setting``), the opening turns. Out: a Transcript at any time.

A step's failure ends the workflow: nothing that follows can be the planned answer, so the other running steps are
cancelled and stay in the transcript without completion or error. All steps are run, also those whose response nobody
sees.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from openconductor.budget import BudgetMeter
from openconductor.context import step_context
from openconductor.emit import Emitter, Hearing
from openconductor.errors import (
    AuthFailed,
    EmptyResponse,
    OpenConductorError,
    Refused,
    WorkerError,
)
from openconductor.events import StepEnded, StepStarted, StepText
from openconductor.pool import WorkerPool
from openconductor.protocols import CallContext
from openconductor.types import (
    Call,
    Completion,
    Message,
    StepResult,
    Transcript,
    Usage,
    Workflow,
)


def find_fault(completion: Completion) -> WorkerError | None:
    """Why a completion is no answer: filtered (Refused) or blank (EmptyResponse); None where it is one.

    A text cut at its token limit is an answer. One that was cut before any text came (all of it went into reasoning) is
    an EmptyResponse that is not retryable: the plan chose that worker, so the reward grades it.
    """
    if completion.finish_reason == "content_filter":
        return Refused("the answer was stopped by a content filter, expected an answer")
    if completion.text and not completion.text.isspace():
        return None
    cut = completion.finish_reason == "length"
    how = "the token limit was reached before any text" if cut else "got a blank text"
    return EmptyResponse(f"{how}, expected an answer", retryable=not cut)


@dataclass(frozen=True, slots=True)
class Setting:
    """What the executions of one episode share.

    Attributes:
        pool: the workers.
        call: episode, round, sample, depth and deadline of the calls.
        origin: the event loop's time at which the episode began.
        meter: the question's budget; None is no limit.
        emit: where events go; None is nowhere.
        fallback: whether a failed step goes to another worker.
    """

    pool: WorkerPool
    call: CallContext
    origin: float
    meter: BudgetMeter | None = None
    emit: Emitter | None = None
    fallback: bool = False


@dataclass(slots=True)
class _Attempt:
    """What one step has come to.

    Attributes:
        index: the step's.
        messages: what its worker is sent.
        last: who was asked last; the step's own worker where nobody was.
        calls: every attempt that was made for it.
        failure: why the last that was asked has not answered.
    """

    index: int
    messages: tuple[Message, ...]
    last: int
    calls: list[Call] = field(default_factory=list[Call])
    failure: OpenConductorError | None = None


class Execution:
    """One valid workflow under way: ``run`` runs it once, ``transcript`` says at any time what has happened."""

    __slots__ = (
        "_begun",
        "_clock",
        "_ended",
        "_failure",
        "_followers",
        "_lanes",
        "_opening",
        "_previous",
        "_responses",
        "_results",
        "_setting",
        "_stopping",
        "_unmet",
        "workflow",
    )

    def __init__(
        self, workflow: Workflow, setting: Setting, opening: tuple[Message, ...], previous: str | None = None
    ) -> None:
        self.workflow = workflow
        self._setting = setting
        self._opening = opening
        self._previous = previous
        self._clock = asyncio.get_running_loop().time
        self._responses = [""] * len(workflow)
        self._results: list[StepResult | None] = [None] * len(workflow)
        self._begun: list[float | None] = [None] * len(workflow)
        self._unmet: list[int] = []
        self._followers: list[list[int]] = [[] for _ in workflow.steps]
        for index in range(len(workflow)):
            visible = workflow.visible(index)
            self._unmet.append(len(visible))
            for seen in visible:
                self._followers[seen].append(index)
        self._stopping = False
        self._failure: BaseException | None = None
        self._lanes: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[None] | None = None

    async def run(self) -> Transcript:
        """Run every step; a worker's failure ends it early and stands in the transcript.

        Raises:
            OpenConductorError: an error whose fate is *stop*.
        """
        ready = [index for index, unmet in enumerate(self._unmet) if unmet == 0]
        try:
            while len(ready) == 1:  # nothing runs beside it: no task is needed
                ready = await self._advance(ready[0])
            if ready:
                await self._run_lanes(ready)
        except AuthFailed:
            raise
        except WorkerError:
            pass  # it stands in a result already
        if self._setting.emit is not None:
            self._setting.emit.check()  # it may have failed while the other steps were closed
        return self.transcript()

    def transcript(self) -> Transcript:
        """What has happened until now; a step that was not reached has an empty result."""
        steps = self.workflow.steps
        results = tuple(result or StepResult(step) for step, result in zip(steps, self._results, strict=True))
        return Transcript(self.workflow, results)

    # Lanes: a task that runs a step and then, without a new task, what that step unblocks.

    async def _run_lanes(self, ready: list[int]) -> None:
        self._ended = asyncio.get_running_loop().create_future()
        for index in ready:
            self._open_lane(index)
        try:
            await self._ended
        finally:
            await self._close_lanes()
        if self._failure is not None:
            raise self._failure

    def _open_lane(self, index: int) -> None:
        lane = asyncio.create_task(self._lane(index))
        self._lanes.add(lane)
        lane.add_done_callback(self._lane_ended)

    async def _lane(self, index: int) -> None:
        ready = await self._advance(index)
        # A worker may have swallowed our cancellation; nothing new begins then.
        while ready and not self._stopping and self._ended is not None and not self._ended.done():
            for other in ready[1:]:
                self._open_lane(other)
            ready = await self._advance(ready[0])

    def _lane_ended(self, lane: asyncio.Task[None]) -> None:
        self._lanes.discard(lane)
        emit = self._setting.emit
        failure = lane.exception() if not lane.cancelled() else emit.failure if emit is not None else None
        if failure is not None and self._failure is None:
            self._failure = failure
            self._stopping = True
        if self._ended is not None and not self._ended.done() and (failure is not None or not self._lanes):
            self._ended.set_result(None)

    async def _close_lanes(self) -> None:
        """Cancel the lanes that still run and wait for each, however often we are cancelled meanwhile."""
        interruption: asyncio.CancelledError | None = None
        while self._lanes:
            for lane in self._lanes:
                lane.cancel()
            try:
                await asyncio.wait(self._lanes)
            except asyncio.CancelledError as error:
                interruption = error
        if interruption is not None:
            raise interruption

    # Steps.

    async def _advance(self, index: int) -> list[int]:
        """Run one step; returns the steps that waited for nothing but it."""
        meter = self._setting.meter
        await self._run_step(index)
        if meter is not None:
            meter.check()
        ready: list[int] = []
        for follower in self._followers[index]:
            self._unmet[follower] -= 1
            if self._unmet[follower] == 0:
                ready.append(follower)
        return ready

    async def _run_step(self, index: int) -> None:
        """Run one step to its result; raises its failure once the result stands."""
        step, pool = self.workflow.steps[index], self._setting.pool
        messages = step_context(self.workflow, index, self._opening, self._responses, self._previous)
        attempt = _Attempt(index, messages, step.worker)
        candidates = self._around(step.worker) if self._setting.fallback else [step.worker]
        for ordinal in [one for one in candidates if pool[one].healthy] or [step.worker]:
            if await self._ask(attempt, ordinal):
                return
            if not self._may_go_on(attempt.failure):
                break
        failure = attempt.failure
        assert failure is not None
        self._stopping = True
        self._record(index, self._result(attempt, failed=failure))
        raise failure

    async def _ask(self, attempt: _Attempt, ordinal: int) -> bool:
        """Ask one worker; returns whether it has answered, else ``attempt`` holds why not."""
        index, attempt.last = attempt.index, ordinal
        try:
            completion = await self._call(index, ordinal, attempt.messages, attempt.calls)
        except asyncio.CancelledError:
            if self._begun[index] is not None:
                self._record_cancelled(index, self._result(attempt))
            raise
        except OpenConductorError as error:
            attempt.failure = error
            return False
        failure = find_fault(completion)
        if failure is None:
            self._responses[index] = completion.text
            self._record(index, self._result(attempt, said=completion))
            return True
        failure.worker = self._setting.pool[ordinal].name
        attempt.failure = failure
        return False

    def _may_go_on(self, failure: OpenConductorError | None) -> bool:
        """Whether another candidate may answer after this failure of one."""
        stops = failure is not None and (not isinstance(failure, WorkerError) or isinstance(failure, AuthFailed))
        return not stops and not self._is_over()

    def _result(
        self, attempt: _Attempt, *, said: Completion | None = None, failed: OpenConductorError | None = None
    ) -> StepResult:
        calls, begun = attempt.calls, self._begun[attempt.index]
        spent = calls[0].usage if len(calls) == 1 else sum((call.usage for call in calls), Usage())
        ended = None if begun is None else self._now()  # None: refused, or cancelled, before anything was sent
        step = self.workflow.steps[attempt.index]
        return StepResult(step, said, failed, attempt.messages, attempt.last, spent, begun, ended, tuple(calls))

    async def _call(self, index: int, ordinal: int, messages: tuple[Message, ...], calls: list[Call]) -> Completion:
        """One worker's answer, under its budget; what the event sink raises on the way comes out of here.

        Every attempt at it is added to ``calls``.
        """
        setting = self._setting
        emit, call, meter = setting.emit, setting.call, setting.meter
        worker = setting.pool[ordinal]
        paid = await meter.call(worker.most(messages)) if meter is not None else None
        hears = Hearing(call.episode, calls, paid, emit)
        context = CallContext(
            call.episode, call.round, index, 0, call.sample, call.depth, call.deadline, call.path, call.origin, hears
        )
        on_text = partial(self._emit_text, index) if emit is not None and emit.wants_text else None
        try:
            if paid is None:
                self._emit_started(index, ordinal, messages)
                completion = await worker.complete(messages, call=context, on_text=on_text)
            else:
                with paid:
                    self._emit_started(index, ordinal, messages)
                    completion = await worker.complete(messages, call=context, on_text=on_text)
        except WorkerError as error:
            if emit is not None and emit.failure is not None:
                raise emit.failure from None  # a failing sink, dressed up by the worker that streamed to it
            if paid is not None and paid.meter.out_of_time():
                raise paid.meter.exceeded("seconds") from error
            raise
        if emit is not None and emit.failure is not None:
            raise emit.failure  # a failing sink, swallowed by the worker that streamed to it
        return completion

    def _is_over(self) -> bool:
        """Whether no further call may begin: another step, or the sink, has failed."""
        emit = self._setting.emit
        return self._stopping or (emit is not None and emit.failure is not None)

    def _around(self, own: int) -> list[int]:
        """Whom a step with fallback may ask: its own worker, then in ordinal order from there, and around."""
        ordinals = sorted(self._setting.pool.ordinals)
        place = ordinals.index(own)
        return [*ordinals[place:], *ordinals[:place]]

    def _record(self, index: int, result: StepResult) -> None:
        self._results[index] = result
        emit, call = self._setting.emit, self._setting.call
        if emit is not None:
            emit(StepEnded(call.episode, call.round, self._now(), index, result))

    def _record_cancelled(self, index: int, result: StepResult) -> None:
        meter = self._setting.meter
        if self._stopping or (meter is not None and meter.out_of_time()):
            self._record(index, result)  # so that each StepStarted has its StepEnded
        else:
            self._results[index] = result  # the caller is gone: tell nobody

    def _emit_started(self, index: int, ordinal: int, messages: tuple[Message, ...]) -> None:
        emit, call = self._setting.emit, self._setting.call
        if self._begun[index] is None:
            self._begun[index] = self._now()
        if emit is not None:
            emit(StepStarted(call.episode, call.round, self._now(), index, ordinal, messages))

    def _emit_text(self, index: int, text: str) -> None:
        setting = self._setting
        if setting.emit is not None:
            setting.emit(StepText(setting.call.episode, setting.call.round, self._now(), index, text))

    def _now(self) -> float:
        return self._clock() - self._setting.origin
