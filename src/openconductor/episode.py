"""The life of an episode: a question is asked, rounds are planned and executed, an answer is given.

``LiveEpisode`` is an episode under way, for the Conductor, baselines and ``execute`` alike. It runs
each workflow by an ``Execution``, and both make their calls through a ``Dispatcher``.

Every error whose fate is *stop* carries ``.episode``. What a sink raises ends the episode and comes
out unchanged, and nothing more is sent to that sink.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from openconductor.calls.budget import BudgetMeter, check_price
from openconductor.calls.dispatcher import Assignment, Dispatcher, settle
from openconductor.calls.options import keep_offered_calls
from openconductor.calls.worker import Worker
from openconductor.context import find_fault, join_turns, step_context
from openconductor.errors import (
    AuthFailed,
    BudgetExceeded,
    OpenConductorError,
    WorkerError,
    WorkflowError,
    WorkflowReason,
    stops,
)
from openconductor.events import (
    Answered,
    Asked,
    Chosen,
    Planned,
    RoundEnded,
    StepEnded,
)
from openconductor.parser import parse_completion, trailing_text, validate_workflow
from openconductor.pool import WorkerPool
from openconductor.prompt import SOLVE_SUBTASK, check_question, check_turns, tools_as_text
from openconductor.protocols import CallContext, OnEvent, Provider
from openconductor.types import (
    Budget,
    Call,
    Completion,
    Episode,
    Message,
    Question,
    Round,
    Rule,
    Step,
    StepResult,
    Transcript,
    Usage,
    Workflow,
)

_UNLIMITED = nullcontext()


# ── the steps of a workflow ───────────────────────────────────────────────────────────────────────
class Execution:
    """A valid workflow under way: every step starts as soon as the steps that it sees have ended.

    A step's failure ends the workflow, because no later step can give the planned answer. The other
    running steps are cancelled, and stay in the transcript without completion or error. A call that
    was sent is paid for, and a sync function in a thread ends in its own time. All steps are run,
    also those whose response nobody sees.

    Args:
        workflow: the workflow.
        pool: the workers.
        dispatcher: makes the calls.
        opening: the turns that open every step's context.
        previous: the previous round's final response, shown to steps whose access is ``"all"``.
        begun: whether the opening ends with the beginning of the answer.
        fallback: whether a failed step goes to another worker.
        planner: the Conductor's provider; if it is also a worker's, that one takes over last.
    """

    def __init__(
        self,
        workflow: Workflow,
        pool: WorkerPool,
        dispatcher: Dispatcher,
        *,
        opening: tuple[Message, ...],
        previous: str | None,
        begun: bool,
        fallback: bool,
        planner: Provider | None,
    ) -> None:
        self._workflow = workflow
        self._pool = pool
        self._dispatcher = dispatcher
        self._opening = opening
        self._previous = previous
        self._begun = begun
        self._fallback = fallback
        self._planner = planner
        self._responses = [""] * len(workflow)
        self._results: list[StepResult | None] = [None] * len(workflow)
        self._unmet = [set(workflow.visible(index)) for index in range(len(workflow))]
        self._stopping = False

    async def run(self) -> Transcript:
        """Run every step once. A worker's failure ends it early, and is in the transcript.

        Raises:
            OpenConductorError: an error whose fate is *stop*.
        """
        ready = [index for index, unmet in enumerate(self._unmet) if not unmet]
        running: dict[asyncio.Task[list[int]], int] = {}
        try:
            while ready or running:
                if len(ready) == 1 and not running:  # nothing runs beside it: no task is needed
                    ready = await self._run_line(ready[0])
                    continue
                for index in ready:
                    running[asyncio.create_task(self._run_line(index))] = index
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ready = list[int]()
                for task in sorted(ended, key=running.__getitem__):
                    ready += task.result()
                    del running[task]
        except AuthFailed:
            raise
        except WorkerError:
            pass  # it is in a result already
        finally:
            await _cancel(running)
        self._dispatcher.check_sink()  # it may have failed while the other steps were cancelled
        return self.transcript()

    def transcript(self) -> Transcript:
        """Return what has happened until now; a step that was not reached has an empty result."""
        steps = zip(self._workflow, self._results, strict=True)
        results = tuple(result or StepResult(step) for step, result in steps)
        return Transcript(self._workflow, results)

    async def _run_line(self, index: int) -> list[int]:
        """Run a step, then its successors for as long as there is exactly one.

        Returns:
            The steps that are ready then.
        """
        task = asyncio.current_task()
        ready = await self._run_step(index)
        while len(ready) == 1 and not self._stopping:
            if task is not None and task.cancelling():  # a worker swallowed our cancellation
                break
            ready = await self._run_step(ready[0])
        return ready

    async def _run_step(self, index: int) -> list[int]:
        """Run one step; return the steps that waited only for it.

        Raises:
            OpenConductorError: the step failed; its result is kept.
        """
        dispatcher = self._dispatcher
        step = self._workflow.steps[index]
        last = dispatcher.context.depth == 0 and index == len(self._workflow) - 1
        opening = self._opening if last else tools_as_text(self._opening)
        messages = step_context(
            self._workflow, index, opening, self._responses, self._previous, begun=self._begun
        )
        assignment = Assignment(messages, index, step.subtask, last)
        failure: OpenConductorError | None = None
        for ordinal in self._candidates(step.worker):
            assignment.worker = ordinal
            try:
                completion = await self._complete(self._pool[ordinal], assignment)
            except asyncio.CancelledError:
                self._keep_cancelled(index, assignment)
                raise
            except OpenConductorError as error:
                failure = error
                if not self._may_fall_back(failure):
                    break
            else:
                self._responses[index] = completion.text
                self._keep(index, assignment, completion=completion)
                return self._successors(index)
        assert failure is not None
        self._stopping = True
        self._keep(index, assignment, failure=failure)
        raise failure

    async def _complete(self, worker: Worker, assignment: Assignment) -> Completion:
        others = (other.healthy for ordinal, other in self._pool if ordinal != assignment.worker)
        replaceable = self._fallback and any(others)
        completion = await self._dispatcher.call(worker, assignment, replaceable=replaceable)
        if assignment.last:
            completion = keep_offered_calls(completion, self._dispatcher.context.options)
            if completion.tool_calls:
                return completion
        fault = find_fault(completion)
        if fault is not None:
            fault.worker = worker.name
            raise fault
        return completion

    def _candidates(self, planned: int) -> Iterator[int]:
        """Yield the workers to try: the planned one, with fallback then each other healthy one."""
        tried = False
        if self._fallback:
            for ordinal in chain((planned,), self._substitutes(planned)):
                if self._pool[ordinal].healthy:  # asked late: it may have failed meanwhile
                    tried = True
                    yield ordinal
        if not tried:
            yield planned

    def _substitutes(self, planned: int) -> Iterator[int]:
        """Yield the other workers, the best measured one first and the planner last.

        Equal ones are in the order of the pool, from the planned one on.
        """
        ordinals = sorted(self._pool.ordinals)
        place = ordinals.index(planned)
        others = self._pool.best_first((*ordinals[place + 1 :], *ordinals[:place]))
        others.sort(key=lambda ordinal: self._pool[ordinal].provider is self._planner)
        yield from others

    def _may_fall_back(self, failure: OpenConductorError) -> bool:
        """Return True if another worker may be asked after a failure."""
        if not isinstance(failure, WorkerError):
            return False
        return not self._stopping and self._dispatcher.failure is None

    def _successors(self, index: int) -> list[int]:
        """Return the steps that waited only for this one, if the budget is not overspent."""
        if self._dispatcher.meter is not None:
            self._dispatcher.meter.check_limits()
        ready: list[int] = []
        for later, unmet in enumerate(self._unmet):
            if index in unmet:
                unmet.remove(index)
                if not unmet:
                    ready.append(later)
        return ready

    def _keep_cancelled(self, index: int, assignment: Assignment) -> None:
        """Keep what a cancelled step cost, if it was sent."""
        if assignment.started is None:
            return
        # Where the caller is gone, nobody listens. Else each StepStarted has its StepEnded.
        meter = self._dispatcher.meter
        late = meter is not None and meter.out_of_time()
        self._keep(index, assignment, report=self._stopping or late)

    def _keep(
        self,
        index: int,
        assignment: Assignment,
        *,
        completion: Completion | None = None,
        failure: OpenConductorError | None = None,
        report: bool = True,
    ) -> None:
        calls = tuple(assignment.calls)
        started = assignment.started
        self._results[index] = StepResult(
            step=self._workflow.steps[index],
            completion=completion,
            error=failure,
            messages=assignment.messages,
            worker=assignment.worker,
            usage=sum((call.usage for call in calls), Usage()),
            started=started,
            ended=None if started is None else self._dispatcher.now(),
            calls=calls,
        )
        if report:
            self._dispatcher.emit(StepEnded, index, self._results[index])


async def _cancel(tasks: Iterable[asyncio.Task[list[int]]]) -> None:
    """Cancel what still runs and wait for it, however often we are cancelled meanwhile."""
    interruption: asyncio.CancelledError | None = None
    while True:
        waiting = [task for task in tasks if not task.done()]
        if not waiting:
            break
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


def _check_end(text: str) -> None:
    """Raise too_long if a text goes on after the three lists."""
    rest = trailing_text(text)
    if rest:
        raise WorkflowError(
            WorkflowReason.TOO_LONG,
            f"the text goes on for {len(rest)} characters after the three lists, expected its end",
        )


# ── the rounds of an episode ──────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class _OpenRound:
    """What is known of the round under way, should it have to stop."""

    completion: Completion | None = None
    workflow: Workflow | None = None
    execution: Execution | None = None
    calls: list[Call] = field(default_factory=list[Call])
    rule: Rule | None = None


class LiveEpisode:
    """An episode under way, whose rounds are run one after the other inside ``play``.

    Args:
        pool: the workers.
        question: a text, or a chat.
        context: what the question works for. Its ``sample`` tells repeats of a question apart.
        on_event: gets the events.
        fallback: whether a failed step goes to another worker.
        spent: what happens at the end of the question's own budget. ``stop`` raises; ``answered``
            returns the answer until then, if there is one; ``data`` ends the episode, which holds
            the error.
        planner: the Conductor's provider; if it is also a worker's, that one takes over last.
        previous: a round that was played before; it is in the episode, but not on its bill.

    Attributes:
        rounds: the rounds that have ended.
        answer: the answer until now; None at the end: the last round's error ends the episode.
        opening: the turns that open every step's context: the question, and the chat before it.
        episode: the outcome, after ``play``.

    Raises:
        ConfigError: the question is neither a text nor a list of Messages.
    """

    episode: Episode

    def __init__(
        self,
        pool: WorkerPool,
        question: Question,
        *,
        context: CallContext | None = None,
        on_event: OnEvent | None = None,
        fallback: bool = False,
        spent: Literal["stop", "answered", "data"] = "stop",
        planner: Provider | None = None,
        previous: Round | None = None,
    ) -> None:
        check_turns(question)
        self.pool = pool
        self.question = question
        self.rounds: list[Round] = [] if previous is None else [previous]
        self.answer: str | None = None if previous is None else previous.answer
        self.opening: tuple[Message, ...] = ()
        self._works_for = context or CallContext()
        self._fallback = fallback
        self._spent = spent
        self._planner = planner
        self._played_before = len(self.rounds)
        self._open: _OpenRound | None = None
        self._dispatcher = Dispatcher(self._works_for, on_event)
        self._number_round()

    @property
    def sample(self) -> int:
        """The number that tells repeats of the question apart."""
        return self._works_for.sample

    @property
    def meter(self) -> BudgetMeter | None:
        """The budget; None: no limit."""
        return self._dispatcher.meter

    @asynccontextmanager
    async def play(self, budget: Budget | None = None) -> AsyncGenerator[None]:
        """Begin the episode, and end it with the ``answer`` and ``rounds`` that the block leaves.

        A WorkflowError or WorkerError that the block raises becomes the error of the episode.

        Args:
            budget: what the question may cost.

        Raises:
            ConfigError, AuthFailed, BudgetExceeded: nothing more can be done; ``.episode`` holds
                what had happened.
        """
        dispatcher = self._dispatcher
        stop: OpenConductorError | None = None
        try:
            try:
                keep_texts = dispatcher.context.keep_texts
                dispatcher.emit(Asked, self.question, self.sample, self.pool.names, keep_texts)
                self.opening = join_turns(check_question(self.question))
                dispatcher.open_meter(budget, self._works_for)
                async with _UNLIMITED if self.meter is None else self.meter.time_limit():
                    yield
                error = self.rounds[-1].error if self.answer is None and self.rounds else None
            except OpenConductorError as raised:
                # A sink's failure comes first: it can fail while other steps are cancelled.
                self.end_round(raised)
                own_end = self._ended_budget(raised)
                error = raised
                if own_end and self._spent == "answered" and self.answer is not None:
                    error = None  # the answer until now stands
                elif stops(raised) and not (own_end and self._spent == "data"):
                    stop = raised
            self.episode = self._outcome(error)
            if stop is not None:
                stop.episode = self.episode
            dispatcher.emit(Answered, self.episode)
            dispatcher.check_sink()
            await settle(dispatcher.on_event)
        except OpenConductorError as raised:  # of a sink
            self._close_round(raised)
            raised.episode = self._outcome(raised)
            raise
        finally:
            dispatcher.end_trace()
        if stop is not None:
            raise stop

    def has_room_for(self, *workers: Worker) -> bool:
        """Return True if the budget has room for a call of each of these workers."""
        if self.meter is None:
            return True
        context = self._dispatcher.context
        calls = [worker.most(self.opening, context) for worker in workers]
        return all(account.has_room_for(calls) for account in self.meter.accounts)

    def may_go_on_after(self, error: OpenConductorError) -> bool:
        """Return True if another call may succeed after a planner's error whose fate is *stop*.

        A wrong key is the planner's own, and the call of a worker may fit the question's budget
        where the planner's did not. Time that is over is over for all.
        """
        if isinstance(error, BudgetExceeded):
            return error.limit != "seconds" and self._ended_budget(error)
        return isinstance(error, AuthFailed)

    def begin_round(self) -> None:
        """Begin a round."""
        self._open = _OpenRound()
        self._number_round()

    async def ask_planner(
        self, planner: Worker, messages: tuple[Message, ...], *, replaceable: bool = False
    ) -> Completion:
        """Return the planner's completion, under the budget, on the bill of the round.

        Args:
            planner: writes the plan.
            messages: what it is sent.
            replaceable: True if a worker answers where there is no plan. The planner then has half
                of the time that is left, and is not waited for if it cannot be reached while a
                worker can.

        Raises:
            WorkerError, BudgetExceeded: there is none.
        """
        assignment = Assignment(messages, calls=self._round.calls)
        if not replaceable:
            return await self._dispatcher.call(planner, assignment)
        deadline = None
        if self.meter is not None and self.meter.deadline is not None:
            now = asyncio.get_running_loop().time()
            deadline = now + (self.meter.deadline - now) / 2
        healthy = any(worker.healthy for _, worker in self.pool)
        return await self._dispatcher.call(
            planner, assignment, replaceable=healthy, deadline=deadline
        )

    async def follow(
        self,
        completion: Completion,
        *,
        max_steps: int,
        subtasks: bool,
        trailing: bool = True,
        plays: bool = True,
    ) -> None:
        """Run the workflow that a planner wrote, to its answer; or accept the answer until now.

        Args:
            completion: what the planner wrote. If there is an answer already, three empty lists
                accept it.
            max_steps: the most steps.
            subtasks: False: every subtask is replaced by the neutral one.
            trailing: False: text that follows the three lists is an error.
            plays: False: the round ends with the workflow, and no worker is asked.

        Raises:
            WorkflowError: it is not a workflow; ``truncated`` if the text was cut at its token
                limit, ``too_long`` if it may not follow the lists.
        """
        self._round.completion = completion
        try:
            workflow = self._parse(completion, max_steps)
            if not trailing:
                _check_end(completion.text)
        except WorkflowError as error:
            self._dispatcher.emit(Planned, completion, None, error)
            raise
        if not subtasks:
            steps = [Step(step.worker, SOLVE_SUBTASK, step.access) for step in workflow]
            workflow = Workflow(tuple(steps))
        self._round.workflow = workflow
        self._dispatcher.emit(Planned, completion, workflow)
        if not plays or not workflow.steps:
            self._close_round()
            return
        answer = await self.answer_by(workflow, previous=self.answer)
        if answer is not None:
            self.answer = answer

    async def run(
        self,
        workflow: Workflow,
        *,
        opening: Sequence[Message] | None = None,
        previous: str | None = None,
        rule: Rule | None = None,
    ) -> Transcript:
        """Execute a workflow, as the round that is open or as a new one, and end the round.

        Args:
            workflow: must be valid over the pool (``validate_workflow``).
            opening: turns that open every step's context instead of ``self.opening``: with attempts
                of earlier rounds, say.
            previous: the previous round's final response, shown to steps whose access is ``"all"``.
            rule: chose the workflow. A step that fails then goes to another worker, whatever
                ``fallback`` says.

        Returns:
            The transcript; a worker's failure is in it.

        Raises:
            ConfigError, AuthFailed, BudgetExceeded: nothing more can be done.
        """
        if self._open is None:
            self.begin_round()
        if rule is not None:
            reason = self.rounds[-1].error if self.rounds else None
            self._round.rule = rule
            self._dispatcher.emit(Chosen, rule, workflow, reason)
        fallback = self._fallback or rule is not None
        if self.meter is not None:
            self.meter.check_limits()
            planned = {step.worker for step in workflow}
            for ordinal in self.pool.ordinals if fallback else planned:
                check_price(self.meter, self.pool[ordinal])
        execution = Execution(
            workflow,
            self.pool,
            self._dispatcher,
            opening=self.opening if opening is None else tuple(opening),
            previous=previous,
            begun=opening is None and self.opening[-1].role == "assistant",
            fallback=fallback,
            planner=self._planner,
        )
        self._round.workflow = workflow
        self._round.execution = execution
        transcript = await execution.run()
        self._close_round()
        return transcript

    async def answer_by(
        self, workflow: Workflow, *, previous: str | None = None, rule: Rule | None = None
    ) -> str | None:
        """Run a workflow as a round, and return its answer; None: a step failed."""
        await self.run(workflow, previous=previous, rule=rule)
        return self.rounds[-1].answer

    def end_round(self, error: OpenConductorError) -> None:
        """End the open round, if there is one, with an error that its steps do not hold.

        Raises:
            BaseException: what the sink raised, if it has failed.
        """
        self._dispatcher.check_sink()
        self._close_round(error)

    @property
    def _round(self) -> _OpenRound:
        assert self._open is not None, "no round has begun"
        return self._open

    def _number_round(self) -> None:
        context = self._dispatcher.context
        if context.round != len(self.rounds):
            self._dispatcher.context = replace(context, round=len(self.rounds))

    def _close_round(self, error: OpenConductorError | None = None) -> None:
        if self._open is None:
            return
        ended = self._open
        self._open = None
        transcript = None
        if ended.execution is not None:
            transcript = ended.execution.transcript()
            error = error or transcript.error
        calls = tuple(ended.calls)
        outcome = Round(ended.completion, ended.workflow, transcript, error, calls, rule=ended.rule)
        self.rounds.append(outcome)
        self._dispatcher.emit(RoundEnded, outcome)

    def _parse(self, completion: Completion, max_steps: int) -> Workflow:
        if completion.finish_reason == "length":
            length = len(completion.text)
            raise WorkflowError(
                WorkflowReason.TRUNCATED,
                f"the Conductor's text was cut at its token limit after {length} characters",
            )
        return parse_completion(
            completion.text,
            self.pool.ordinals,
            max_steps=max_steps,
            accept_allowed=self.answer is not None,
        )

    def _ended_budget(self, error: OpenConductorError) -> bool:
        """Return True if an error is the end of the question's own budget."""
        return self.meter is not None and self.meter.ended_in(error)

    def _outcome(self, error: OpenConductorError | None) -> Episode:
        dispatcher = self._dispatcher
        played = self.rounds[self._played_before :]
        return Episode(
            question=self.question,
            rounds=tuple(self.rounds),
            answer=self.answer if error is None else None,
            error=error,
            usage=sum((outcome.usage for outcome in played), Usage()),
            seconds=dispatcher.now(),
            id=dispatcher.context.episode,
        )


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
        question: a text, or a chat.
        previous: the previous round's final response, shown to steps whose access is ``"all"``.
        budget: what the execution may cost; exceeding it cancels what runs.
        on_event: gets every event in order. It is trusted: an exception that it raises cancels what
            runs and comes out of here unchanged, and nothing more is sent to it.
        context: what the question works for. Its ``sample`` tells repeats of a question apart.
        fallback: whether a step whose worker failed goes to the best measured one of those that it
            has not tried, of equals to the next (the result's ``worker`` says which answered).
            Leave it off where credit matters: in training and evaluation.
        max_steps: the most steps that the workflow may have; None: no limit.

    Returns:
        The transcript: its ``answer`` is the last step's response; ``error`` the first failure.

    Raises:
        WorkflowError: the workflow is not valid over this pool.
        ConfigError: the question is invalid, or a dollar budget meets a worker without a price.
        BudgetExceeded, AuthFailed: the execution had to stop; ``.episode`` holds what had happened.
    """
    validate_workflow(workflow, pool.ordinals, max_steps=max_steps)
    live = LiveEpisode(pool, question, context=context, on_event=on_event, fallback=fallback)
    async with live.play(budget):
        live.answer = await live.answer_by(workflow, previous=previous)
    transcript = live.rounds[0].transcript
    assert transcript is not None  # an error that ended the round before it had one was raised
    return transcript
