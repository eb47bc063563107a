"""One workflow under way: every step starts as soon as the steps that it sees have ended.

In: a valid Workflow, the Stage of its episode, the opening turns. Out: a Transcript at any time.

A step's failure ends the workflow: nothing that follows can be the planned answer, so the other
running steps are cancelled and stay in the transcript without completion or error. All steps are
run, also those whose response nobody sees.

Not covered: retries and rate limits (a worker's policies), parsing (``parser``), rounds
(``episode``), and undoing: a call that was sent is paid for, and a sync function that runs in a
thread ends in its own time after a cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from openconductor.calls.policies import as_answer, patient
from openconductor.errors import AuthFailed, EmptyResponse, OpenConductorError, Refused, WorkerError
from openconductor.events import StepEnded
from openconductor.prompt import tools_as_text
from openconductor.types import (
    Call,
    Completion,
    Message,
    Question,
    StepResult,
    Transcript,
    Usage,
    Workflow,
)

if TYPE_CHECKING:
    from openconductor.episode import Stage

_AS_EVER = nullcontext()


# ── what a step is shown ──────────────────────────────────────────────────────────────────────────
def open_context(question: Question) -> tuple[Message, ...]:
    """The turns that open every step's context: the question and the chat before it."""
    return join_turns((Message("user", question),) if isinstance(question, str) else question)


def join_turns(turns: Iterable[Message]) -> tuple[Message, ...]:
    r"""Join neighbouring turns of one role by a blank line, for many chat templates refuse repeats.

    Results of tools stay apart: each answers a call of its own.

    >>> join_turns([Message("user", "What is 6 * 7?"), Message("user", "Answer with a number.")])
    (Message(role='user', content='What is 6 * 7?\n\nAnswer with a number.', parts=()),)
    """
    groups: list[list[Message]] = []
    for turn in turns:
        if groups and groups[-1][0].role == turn.role != "tool":
            groups[-1].append(turn)
        else:
            groups.append([turn])
    return tuple(map(merge_turns, groups))


def merge_turns(turns: Sequence[Message]) -> Message:
    """Turns of one role as one, with the calls of tools of all of them in one part."""
    if len(turns) == 1:
        return turns[0]
    parts = [part for turn in turns for part in turn.parts]
    calls = [call for part in parts for call in cast("list[object]", part.get("tool_calls", ()))]
    text = "\n\n".join(turn.content for turn in turns if turn.content)
    kept = (
        *(part for part in parts if "tool_calls" not in part),
        *([{"tool_calls": calls}] if calls else ()),
    )
    return Message(turns[0].role, text, kept)


def step_context(
    workflow: Workflow,
    index: int,
    opening: Sequence[Message],
    responses: Sequence[str],
    previous: str | None = None,
) -> tuple[Message, ...]:
    """The turns that step ``index`` is sent: the question, what its access list grants, last its own subtask.

    Args:
        workflow: the workflow.
        index: the step, 0-based.
        opening: the turns of ``open_context``.
        responses: one text a step; only those of visible steps are read.
        previous: the previous round's final response; seen under ``"all"``, right after the
            question.
    """
    steps = workflow.steps
    turns = list(opening)
    if previous is not None and steps[index].access == "all":
        turns.append(Message("assistant", previous))
    for seen in workflow.visible(index):
        turns.append(Message("user", steps[seen].subtask))
        turns.append(Message("assistant", responses[seen]))
    if steps[index].subtask:
        turns.append(Message("user", steps[index].subtask))
    return join_turns(turns)


def find_fault(completion: Completion) -> WorkerError | None:
    """Why a completion is not an answer: filtered (Refused) or blank (EmptyResponse); None where it is one.

    A text cut at its token limit is an answer. One that was cut before any text came (all of it
    went into reasoning) is an EmptyResponse that is not retryable: the plan chose that worker, so
    the reward grades it.
    """
    if completion.finish_reason == "content_filter":
        return Refused("the answer was stopped by a content filter, expected an answer")
    if completion.text and not completion.text.isspace():
        return None
    cut = completion.finish_reason == "length"
    how = "the token limit was reached before any text" if cut else "got a blank text"
    return EmptyResponse(f"{how}, expected an answer", retryable=not cut)


# ── steps as they run ─────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class Asking:
    """What one worker after the other is asked: a step, or the planner's part of a round, under way.

    Attributes:
        messages: what is sent.
        step: 0-based; None is planning.
        worker: the ordinal of the worker that was asked last.
        begun: seconds since the episode began; None before anything was sent.
        calls: every attempt.
        subtask: the step's own; None is planning.
        last: whether it is the last of a workflow that answers a user, and not another
            orchestrator.
    """

    messages: tuple[Message, ...]
    step: int | None = None
    worker: int | None = None
    begun: float | None = None
    calls: list[Call] = field(default_factory=list[Call])
    subtask: str | None = None
    last: bool = False


class Execution:
    """One valid workflow under way: ``run`` runs it once, ``transcript`` says at any time what has happened."""

    def __init__(
        self,
        workflow: Workflow,
        stage: Stage,
        opening: tuple[Message, ...],
        previous: str | None = None,
    ) -> None:
        self._workflow = workflow
        self._stage = stage
        self._opening = opening
        self._previous = previous
        self._responses = [""] * len(workflow)
        self._results: list[StepResult | None] = [None] * len(workflow)
        self._unmet = [set(workflow.visible(index)) for index in range(len(workflow))]
        self._stopping = False

    async def run(self) -> Transcript:
        """Run every step; a worker's failure ends it early and is in the transcript.

        Raises:
            OpenConductorError: an error whose fate is *stop*.
        """
        ready: list[int] = [index for index, unmet in enumerate(self._unmet) if not unmet]
        running: dict[asyncio.Task[list[int]], int] = {}
        try:
            while ready or running:
                if len(ready) == 1 and not running:  # nothing runs beside it: no task is needed
                    ready = await self._run_line(ready[0])
                    continue
                running.update(
                    (asyncio.create_task(self._run_line(index)), index) for index in ready
                )
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ready = []
                for task in sorted(ended, key=running.__getitem__):
                    ready += task.result()
                    del running[task]
        except AuthFailed:
            raise
        except WorkerError:
            pass  # it is in a result already
        finally:
            await _cancel(running)
        self._stage.check_sink()  # it may have failed while the other steps were closed
        return self.transcript()

    def transcript(self) -> Transcript:
        """What has happened until now; a step that was not reached has an empty result."""
        pairs = zip(self._workflow, self._results, strict=True)
        return Transcript(
            self._workflow, tuple(result or StepResult(step) for step, result in pairs)
        )

    async def _run_line(self, index: int) -> list[int]:
        """Run a step and, as long as just one step waited for it alone, that one too: it needs no task of its own."""
        ready, task = await self._run_step(index), asyncio.current_task()
        # A worker may have swallowed our cancellation; nothing new begins then.
        while (
            len(ready) == 1 and not self._stopping and not (task is not None and task.cancelling())
        ):
            ready = await self._run_step(ready[0])
        return ready

    async def _run_step(self, index: int) -> list[int]:
        """Run one step; returns the steps that waited for nothing but it, and raises its failure once that is kept."""
        stage, step = self._stage, self._workflow.steps[index]
        own = step.worker
        last = stage.outermost and index == len(self._workflow) - 1
        opening = self._opening if last else tools_as_text(self._opening)
        context = step_context(self._workflow, index, opening, self._responses, self._previous)
        now = Asking(context, index, own, subtask=step.subtask, last=last)
        failure: OpenConductorError | None = None
        for now.worker in self._candidates(own) if stage.fallback else (own,):
            others = stage.fallback and any(
                one.healthy for ordinal, one in stage.pool if ordinal != now.worker
            )
            try:
                with patient(0) if others else _AS_EVER:  # somebody else can be asked instead
                    completion = await stage.call(stage.pool[now.worker], now)
            except asyncio.CancelledError:
                self._record_cancelled(index, now)
                raise
            except OpenConductorError as error:
                failure = error
            else:
                completion = as_answer(completion) if now.last else completion
                failure = None if now.last and completion.tool_calls else find_fault(completion)
                if failure is None:
                    self._responses[index] = completion.text
                    self._keep(index, now, completion, None)
                    stage.tell(StepEnded, index, self._results[index])
                    return self._unblocked_by(index)
                failure.worker = stage.pool[now.worker].name
            stops = not isinstance(failure, WorkerError) or isinstance(failure, AuthFailed)
            if stops or self._stopping or stage.failure is not None:
                break
        assert failure is not None
        self._stopping = True
        self._keep(index, now, None, failure)
        stage.tell(StepEnded, index, self._results[index])
        raise failure

    def _unblocked_by(self, index: int) -> list[int]:
        if self._stage.meter is not None:
            self._stage.meter.check()
        ready: list[int] = []
        for later, unmet in enumerate(self._unmet):
            if index in unmet:
                unmet.remove(index)
                if not unmet:
                    ready.append(later)
        return ready

    def _candidates(self, own: int) -> Iterator[int]:
        """Whom a step may ask, with fallback: every healthy worker, from its own and around; where none is, its own."""
        pool, asked = self._stage.pool, False
        ordinals = sorted(pool.ordinals)
        place = ordinals.index(own)
        for ordinal in (*ordinals[place:], *ordinals[:place]):
            if pool[ordinal].healthy:
                asked = True
                yield ordinal
        if not asked:
            yield own

    def _record_cancelled(self, index: int, now: Asking) -> None:
        if now.begun is None:
            return
        self._keep(index, now, None, None)
        meter = self._stage.meter
        if self._stopping or (
            meter is not None and meter.out_of_time()
        ):  # else the caller is gone: tell nobody
            self._stage.tell(
                StepEnded, index, self._results[index]
            )  # so that each StepStarted has its StepEnded

    def _keep(
        self, index: int, now: Asking, said: Completion | None, failed: OpenConductorError | None
    ) -> None:
        calls, begun = tuple(now.calls), now.begun
        spent = calls[0].usage if len(calls) == 1 else sum((call.usage for call in calls), Usage())
        ended = None if begun is None else self._stage.now()
        step = self._workflow.steps[index]
        self._results[index] = StepResult(
            step, said, failed, now.messages, now.worker, spent, begun, ended, calls
        )


async def _cancel(tasks: Iterable[asyncio.Task[list[int]]]) -> None:
    """Cancel what still runs and wait for it, however often we are cancelled meanwhile."""
    interruption: asyncio.CancelledError | None = None
    while waiting := [task for task in tasks if not task.done()]:
        for task in waiting:
            task.cancel()
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError as error:
            interruption = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it as lost
    if interruption is not None:
        raise interruption
