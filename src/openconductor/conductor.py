"""The Conductor: a question is prompted, the model's text parsed, the workflow executed; in rounds.

In: a planner (what writes workflows), a WorkerPool, a question. Out: an Episode with its answer or its error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from openconductor.blocking import run_blocking
from openconductor.budget import BudgetMeter, check_price, open_meter, time_limit
from openconductor.context import open_context
from openconductor.emit import Emitter, Hearing, asked, open_call
from openconductor.errors import (
    AuthFailed,
    ConfigError,
    OpenConductorError,
    WorkerError,
    WorkerTimeout,
    WorkflowError,
    WorkflowReason,
)
from openconductor.events import Answered, Planned, RoundEnded
from openconductor.execution import Execution, Setting
from openconductor.parser import parse_workflow
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import SOLVE_SUBTASK, PromptOptions, check_turns, render_prompt
from openconductor.protocols import CallContext, OnEvent, Provider
from openconductor.providers import WorkerFunction, resolve
from openconductor.types import (
    Budget,
    Call,
    Completion,
    Episode,
    Message,
    Question,
    Round,
    Sampling,
    Step,
    Usage,
    Workflow,
)

if TYPE_CHECKING:
    from openconductor.worker import CompletionStore

Planner = Provider | Worker | WorkerFunction | str | Path
"""What writes workflows: a Provider, ``"provider:model"``, a checkpoint's folder, a plain function from the messages to
the text, or a Worker, which brings its own sampling, limits and price."""


class Conductor:
    """Answers questions with a pool of workers, by workflows that its planner writes.

    Args:
        planner: what writes the workflows. A checkpoint brings its own prompt and sampling and costs nothing, a Worker
            its own sampling and price; the calls of any other planner have no known price.
        pool: the workers on offer.
        max_steps: the most steps that one workflow may have.
        max_rounds: how often the planner is called for a question, an accepting call included; 1 is no recursion, None
            goes on until the planner accepts or the budget ends, and then needs a budget that workers do use up.
        prompt: how the planner is asked; default: the checkpoint's, else ``PromptOptions()``.
        sampling: how the planner samples; default: the checkpoint's, else at most 1,024 tokens.
        timeout_s: the total deadline of one planner call.
        fallback: whether a failed step goes to another worker; leave it off in training and evaluation.

    Raises:
        ConfigError: a value is out of its range, or the planner cannot be resolved.
    """

    def __init__(
        self,
        planner: Planner,
        *,
        pool: WorkerPool,
        max_steps: int = 5,
        max_rounds: int | None = 1,
        prompt: PromptOptions | None = None,
        sampling: Sampling | None = None,
        timeout_s: float | None = None,
        fallback: bool = False,
    ) -> None:
        if max_steps < 1:
            raise ConfigError(f"Conductor.max_steps: got {max_steps}, expected at least 1")
        if max_rounds is not None and max_rounds < 1:
            raise ConfigError(f"Conductor.max_rounds: got {max_rounds}, expected at least 1, or None for no limit")
        if timeout_s is not None and not timeout_s > 0:
            raise ConfigError(f"Conductor.timeout_s: got {timeout_s}, expected more than 0 seconds")
        self.pool = pool
        self.max_steps = max_steps
        self.max_rounds = max_rounds
        self.timeout_s = timeout_s
        self.fallback = fallback
        self.planner: Provider | Worker = planner if isinstance(planner, Worker) else resolve(planner)
        options = getattr(self.planner, "prompt_options", None)
        self.plans_here = options is not None
        """Whether the planner is a checkpoint that runs in this process, and so costs nothing by the token."""
        self.prompt = prompt or _prompt_options(options)
        self.sampling = sampling or getattr(self.planner, "sampling", None) or Sampling(max_tokens=1024)
        self.asked: Worker = (
            self.planner
            if isinstance(self.planner, Worker)
            else Worker(self.planner, name="conductor", sampling=self.sampling, timeout_s=timeout_s)
        )
        """The planner as what is called: with retries, deadline and bill, as any worker."""

    def replaying(self, journal: CompletionStore) -> Conductor:
        """The same Conductor, answering from a journal what stands there: paid for before, and not again.

        That goes for the planner's calls and the workers'. To record the new ones, pass the journal as ``on_event``.
        """
        other = copy(self)
        other.pool = self.pool.replaying(journal)
        other.asked = self.asked.replaying(journal)
        return other

    async def ask(
        self, question: Question, *, budget: Budget | None = None, on_event: OnEvent | None = None, sample: int = 0
    ) -> Episode:
        """Answer one question.

        Args:
            question: a text, or a chat whose last turn is the user's.
            budget: what the question may cost: the planner's calls and all steps, in all rounds.
            on_event: gets every event in order. An exception that it raises cancels what runs and comes out of here
                unchanged, and nothing more is sent to it.
            sample: tells repeats of the same question apart (caches and simulated workers draw by it).

        Returns:
            The Episode. ``answer`` is None where the first round failed; ``error`` is then the WorkflowError or
            WorkerError. A failure in a later round leaves the previous answer standing and marks that Round; so does,
            with ``max_rounds=None``, the end of the budget.

        Raises:
            ConfigError, AuthFailed, BudgetExceeded: nothing more can be done; ``.episode`` holds what had happened.
        """
        check_turns(question)
        return await _Asking(self, question, budget, on_event, sample).run()

    def ask_sync(
        self, question: Question, *, budget: Budget | None = None, on_event: OnEvent | None = None, sample: int = 0
    ) -> Episode:
        """``ask`` for callers without ``await``; works beside a running event loop (notebooks) too, in a thread."""
        return run_blocking(lambda: self.ask(question, budget=budget, on_event=on_event, sample=sample))


def read_plan(
    completion: Completion, workers: Sequence[int], *, max_steps: int, options: PromptOptions, accept_allowed: bool
) -> Workflow:
    """The workflow that a planner's completion says.

    Args:
        completion: what the planner wrote.
        workers: the offered ordinals.
        max_steps: the most steps.
        options: with ``subtasks`` off, every subtask is replaced by the neutral one.
        accept_allowed: whether three empty lists mean *accept* (in a later round).

    Raises:
        WorkflowError: it says none; ``truncated`` where the text was cut at its token limit.
    """
    if completion.finish_reason == "length":
        raise WorkflowError(
            WorkflowReason.TRUNCATED,
            f"the Conductor's text was cut at its token limit after {len(completion.text)} characters",
        )
    workflow = parse_workflow(completion.text, workers, max_steps=max_steps, accept_allowed=accept_allowed)
    if options.subtasks:
        return workflow
    return Workflow(tuple(Step(step.worker, SOLVE_SUBTASK, step.access) for step in workflow))


@dataclass(slots=True)
class _OpenRound:
    """What is known of the round under way, should it have to stop."""

    completion: Completion | None = None
    workflow: Workflow | None = None
    execution: Execution | None = None
    calls: list[Call] = field(default_factory=list[Call])

    def closed(self, error: OpenConductorError | None = None) -> Round:
        transcript = self.execution.transcript() if self.execution is not None else None
        if error is None and transcript is not None:
            error = transcript.error
        return Round(self.completion, self.workflow, transcript, error, tuple(self.calls))


class _Asking:
    """One ``ask`` under way."""

    def __init__(
        self, conductor: Conductor, question: Question, budget: Budget | None, on_event: OnEvent | None, sample: int
    ) -> None:
        self._conductor = conductor
        self._question = question
        self._budget = budget
        self._emit = Emitter(on_event) if on_event is not None else None
        self._clock = asyncio.get_running_loop().time
        self._origin = self._clock()
        self._call = open_call(origin=self._origin, sample=sample)
        self._meter: BudgetMeter | None = None
        self._opening: tuple[Message, ...] = ()
        self._rounds: list[Round] = []
        self._open: _OpenRound | None = None
        self._answer: str | None = None
        self._usage = Usage()

    async def run(self) -> Episode:
        try:
            return await self._run()
        except OpenConductorError as error:
            # What had happened goes with every error, also with one of a sink that fails while the end is told.
            if error.episode is None or error.episode.id != self._call.episode:
                self._close_round(error, quiet=True)
                error.episode = self._episode(None, error)
            raise

    async def _run(self) -> Episode:
        try:
            if self._emit is not None:
                self._emit(asked(self._call, self._question))
            self._prepare()
            async with time_limit(self._meter):
                await self._run_rounds()
        except OpenConductorError as error:
            if self._emit is not None:
                self._emit.check()  # what it raised need not be this error: it can fail while others are closed
            self._close_round(error)
            if not self._ends_in_peace(error):
                error.episode = self._episode(None, error)
                await self._announce(error.episode)
                raise
        failed = self._rounds[-1].error if self._answer is None else None
        episode = self._episode(self._answer, failed)
        await self._announce(episode)
        return episode

    def _prepare(self) -> None:
        conductor = self._conductor
        self._opening = open_context(self._question)
        self._meter = meter = open_meter(self._budget, now=self._origin)
        if meter is not None:
            self._call = replace(self._call, deadline=meter.deadline)
            for _, worker in conductor.pool:
                check_price(meter, worker)
            check_price(meter, conductor.asked)
        if conductor.max_rounds is None and (meter is None or not meter.bounded):
            raise ConfigError("Conductor.max_rounds=None goes on until the budget ends: expected a budget with a limit")

    async def _run_rounds(self) -> None:
        limit = self._conductor.max_rounds
        while limit is None or len(self._rounds) < limit:
            self._open = _OpenRound()
            self._call = replace(self._call, round=len(self._rounds))
            try:
                await self._run_round(self._open)
            except AuthFailed:
                raise
            except (WorkflowError, WorkerError) as error:
                if self._emit is not None and self._emit.failure is not None:
                    raise
                self._close_round(error)
            else:
                self._close_round()
            if self._rounds[-1].error is not None or self._rounds[-1].accepted:
                return

    async def _run_round(self, now: _OpenRound) -> None:
        conductor = self._conductor
        now.completion = completion = await self._plan(now.calls)
        try:
            now.workflow = workflow = read_plan(
                completion,
                conductor.pool.ordinals,
                max_steps=conductor.max_steps,
                options=conductor.prompt,
                accept_allowed=self._answer is not None,
            )
        except WorkflowError as error:
            self._announce_plan(completion, None, error)
            raise
        self._announce_plan(completion, workflow)
        if self._meter is not None:
            self._meter.check()
        if not workflow.steps:
            return
        setting = Setting(conductor.pool, self._call, self._origin, self._meter, self._emit, conductor.fallback)
        now.execution = Execution(workflow, setting, self._opening, self._answer)
        transcript = await now.execution.run()
        if transcript.error is None:
            self._answer = transcript.answer

    async def _plan(self, calls: list[Call]) -> Completion:
        """The planner's completion, under its deadline and the budget; every attempt at it is added to ``calls``."""
        conductor, meter = self._conductor, self._meter
        messages = render_prompt(
            self._question,
            conductor.pool.ordinals,
            options=conductor.prompt,
            max_steps=conductor.max_steps,
            cards={ordinal: worker.description for ordinal, worker in conductor.pool}
            if conductor.prompt.cards
            else None,
            previous=self._rounds[-1] if self._rounds else None,
        )
        try:
            paid = await meter.call(conductor.asked.most(messages)) if meter is not None else None
            call = replace(self._call, on_event=Hearing(self._call.episode, calls, paid, self._emit))
            with paid or nullcontext():
                return await self._call_planner(messages, call)
        except WorkerError as error:
            error.worker = error.worker or "conductor"
            if meter is not None and meter.out_of_time():
                raise meter.exceeded("seconds") from error
            raise

    async def _call_planner(self, messages: Sequence[Message], call: CallContext) -> Completion:
        conductor = self._conductor
        limit = conductor.timeout_s
        if limit is None or not isinstance(conductor.planner, Worker):
            return await conductor.asked.complete(messages, call=call)
        scope = asyncio.timeout(limit)  # beside the Worker's own
        try:
            async with scope:
                return await conductor.asked.complete(messages, call=call)
        except TimeoutError as error:
            if not scope.expired() or isinstance(error, WorkerError):
                raise
            raise WorkerTimeout(f"no completion within {limit} s", worker="conductor") from None

    def _close_round(self, error: OpenConductorError | None = None, *, quiet: bool = False) -> None:
        if self._open is None:
            return
        outcome, self._open = self._open.closed(error), None
        self._rounds.append(outcome)
        self._usage += outcome.usage
        if self._emit is not None and not quiet:
            self._emit(RoundEnded(self._call.episode, self._call.round, self._now(), outcome))

    def _ends_in_peace(self, error: OpenConductorError) -> bool:
        """Whether the error is just the end that ``max_rounds=None`` asks for: our own budget's, with an answer."""
        unlimited = self._conductor.max_rounds is None and self._answer is not None
        return unlimited and self._meter is not None and self._meter.ended_in(error)

    def _announce_plan(
        self, completion: Completion, workflow: Workflow | None, error: OpenConductorError | None = None
    ) -> None:
        if self._emit is not None:
            self._emit(Planned(self._call.episode, self._call.round, self._now(), completion, workflow, error))

    async def _announce(self, episode: Episode) -> None:
        if self._emit is not None:
            self._emit(Answered(self._call.episode, self._call.round, self._now(), episode))
            await self._emit.settle()

    def _episode(self, answer: str | None, error: OpenConductorError | None) -> Episode:
        rounds = tuple(self._rounds)
        return Episode(self._question, rounds, answer, error, self._usage, self._now(), self._call.episode)

    def _now(self) -> float:
        return self._clock() - self._origin


def _prompt_options(options: object) -> PromptOptions:
    """The prompt that a checkpoint was trained with (a PromptOptions, or a mapping of its shape), or the default."""
    if isinstance(options, PromptOptions):
        return options
    if options is None:
        return PromptOptions()
    try:
        return PromptOptions(**cast("Mapping[str, Any]", options))
    except TypeError as error:
        raise ConfigError(f"the checkpoint's prompt options: {error}; got {options!r}") from error
