"""The Conductor: a question is prompted, the model's text parsed, the workflow executed; in rounds.

In: a planner (what writes workflows), a WorkerPool, a question. Out: an Episode with its answer or
its error.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from openconductor.calls.budget import check_price
from openconductor.episode import Stage
from openconductor.errors import AuthFailed, ConfigError, WorkerError, WorkflowError
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import PromptOptions, render_prompt
from openconductor.protocols import CallContext, OnEvent, Provider, SupportsComplete
from openconductor.providers import WorkerFunction, resolve
from openconductor.types import Budget, Episode, Message, Question, Sampling, Step, Workflow

if TYPE_CHECKING:
    from openconductor.store import CompletionStore

T = TypeVar("T")

Planner = Provider | SupportsComplete | Worker | WorkerFunction | str | Path
"""What writes workflows: a Provider, ``"provider:model"``, a checkpoint's folder, a plain function from the messages to
the text, or a Worker, which brings its own sampling, limits and price."""


class Conductor:
    """Answers questions with a pool of workers, by workflows that its planner writes.

    Args:
        planner: what writes the workflows. A checkpoint brings its own prompt and sampling and
            costs nothing, a Worker its own sampling and price; the calls of any other planner have
            no known price.
        pool: the workers on offer.
        max_steps: the most steps that one workflow may have; default: as many as the checkpoint was
            trained to write, else 5.
        max_rounds: how often the planner is called for a question, an accepting call included; 1 is
            no recursion, None continues until the planner accepts or the budget ends, and then
            needs a budget that workers do use up.
        prompt: how the planner is asked; default: the checkpoint's, else ``PromptOptions()``.
        sampling: how the planner samples; default: the checkpoint's, else at most 1,024 tokens.
        timeout_s: the total deadline of one planner call.
        fallback: whether a failed step goes to another worker; leave it off in training and
            evaluation.

    Raises:
        ConfigError: a value is out of its range, or the planner cannot be resolved.
    """

    def __init__(
        self,
        planner: Planner,
        *,
        pool: WorkerPool,
        max_steps: int | None = None,
        max_rounds: int | None = 1,
        prompt: PromptOptions | None = None,
        sampling: Sampling | None = None,
        timeout_s: float | None = None,
        fallback: bool = False,
    ) -> None:
        for name, value in (("max_steps", max_steps), ("max_rounds", max_rounds)):
            if value is not None and value < 1:
                raise ConfigError(f"Conductor.{name}: got {value}, expected at least 1")
        if timeout_s is not None and not timeout_s > 0:
            raise ConfigError(f"Conductor.timeout_s: got {timeout_s}, expected more than 0 seconds")
        self.pool = pool
        self.max_rounds = max_rounds
        self.timeout_s = timeout_s
        self.fallback = fallback
        self.planner: Provider | Worker = (
            planner if isinstance(planner, Worker) else resolve(planner)
        )
        self.sampling = sampling or self.planner.sampling or Sampling(max_tokens=1024)
        self.prompt = prompt or PromptOptions()
        self.max_steps = max_steps or 5
        if not isinstance(self.planner, Worker):
            self.prompt = prompt or self.planner.prompt_options or self.prompt
            self.max_steps = max_steps or self.planner.max_steps or self.max_steps
            self.asked = Worker(
                self.planner, name="conductor", sampling=self.sampling, timeout_s=timeout_s
            )
        else:
            own = self.planner.timeout_s
            shorter = timeout_s is not None and (own is None or timeout_s < own)
            self.asked = replace(self.planner, timeout_s=timeout_s) if shorter else self.planner
        """The planner as what is called: with retries, deadline and bill, as any worker."""

    def replaying(self, journal: CompletionStore) -> Conductor:
        """The same Conductor, answering from a journal what stands there: paid for before, and not again.

        That goes for the planner's calls and the workers'. To record the new ones, pass the journal
        as ``on_event``.
        """
        other = copy(self)
        other.pool = self.pool.replaying(journal)
        other.asked = self.asked.replaying(journal)
        return other

    async def ask(
        self,
        question: Question,
        *,
        budget: Budget | None = None,
        on_event: OnEvent | None = None,
        context: CallContext | None = None,
    ) -> Episode:
        """Answer one question.

        Args:
            question: a text, or a chat whose last turn is the user's.
            budget: what the question may cost: the planner's calls and all steps, in all rounds.
            on_event: gets every event in order. An exception that it raises cancels what runs and
                comes out of here unchanged, and nothing more is sent to it.
            context: what the question works for. Its ``sample`` tells repeats of a question apart
                (caches and simulated workers draw by it).

        Returns:
            The Episode. ``answer`` is None where the first round failed; ``error`` is then the
            WorkflowError or WorkerError. A failure in a later round leaves the previous answer
            standing and marks that Round; so does, with ``max_rounds=None``, the end of the budget.

        Raises:
            ConfigError, AuthFailed, BudgetExceeded: nothing more can be done; ``.episode`` holds
                what had happened.
        """
        return await self._stage(question, on_event, context).play(self._play, budget)

    async def resume(
        self,
        question: Question,
        worker: int,
        opening: Sequence[Message],
        *,
        budget: Budget | None = None,
        on_event: OnEvent | None = None,
        context: CallContext | None = None,
    ) -> Episode:
        """Go on after a worker has called the user's tools: that very worker gets their results, where it was.

        What it answers is a round; the Conductor may revise it where rounds are left, and plans
        anew where it failed.

        Args:
            question: the whole chat, which ends with the results.
            worker: its ordinal.
            opening: what it is sent: the turns that it had before, its calls, and their results.
            budget: as for ``ask``.
            on_event: as for ``ask``.
            context: as for ``ask``, which this returns and raises as, too.
        """

        async def go_on(stage: Stage) -> str | None:
            await stage.run(Workflow((Step(worker, ""),)), opening=opening)
            now = stage.rounds[-1]
            stage.answer = now.answer
            return (
                stage.answer
                if now.calls_tools
                else await self._play(stage, more=now.error is not None)
            )

        return await self._stage(question, on_event, context).play(go_on, budget)

    def _stage(
        self, question: Question, on_event: OnEvent | None, context: CallContext | None
    ) -> Stage:
        spent = "stop" if self.max_rounds is not None else "answered"
        return Stage(
            self.pool,
            question,
            context=context,
            on_event=on_event,
            fallback=self.fallback,
            spent=spent,
        )

    async def _play(self, stage: Stage, *, more: bool = False) -> str | None:
        meter, limit = stage.meter, None if self.max_rounds is None else self.max_rounds + more
        for worker in (*(worker for _, worker in self.pool), self.asked):
            check_price(meter, worker)
        if limit is None and (
            meter is None or not meter.limits("calls", "tokens", "dollars", "seconds")
        ):
            raise ConfigError(
                "Conductor.max_rounds=None goes on until the budget ends: expected a budget with a limit"
            )
        while limit is None or len(stage.rounds) < limit:
            try:
                await self._play_round(stage)
            except (WorkflowError, WorkerError) as error:
                if isinstance(error, AuthFailed):
                    raise
                stage.check_sink()
                stage.end(error)
            now = stage.rounds[-1]
            if now.error is not None or now.accepted or now.calls_tools:
                break
        return stage.answer

    async def _play_round(self, stage: Stage) -> None:
        stage.begin()
        messages = render_prompt(
            stage.question,
            self.pool.ordinals,
            options=self.prompt,
            max_steps=self.max_steps,
            cards=self.pool.cards,
            previous=stage.rounds[-1] if stage.rounds else None,
        )
        said = await stage.ask_planner(self.asked, messages)
        await stage.follow(said, max_steps=self.max_steps, subtasks=self.prompt.subtasks)

    def ask_sync(
        self,
        question: Question,
        *,
        budget: Budget | None = None,
        on_event: OnEvent | None = None,
        context: CallContext | None = None,
    ) -> Episode:
        """``ask`` for callers without ``await``; works beside a running event loop (notebooks) too, in a thread."""
        return _run_blocking(
            lambda: self.ask(question, budget=budget, on_event=on_event, context=context)
        )


def _run_blocking(ask: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run a coroutine to its end, in a loop of its own: here, or in a thread where a loop already runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(ask())
    tasks: list[asyncio.Task[T]] = []

    async def cancellable() -> T:
        tasks.append(asyncio.ensure_future(ask()))
        return await tasks[0]

    with ThreadPoolExecutor(1, thread_name_prefix="openconductor-ask") as thread:
        future = thread.submit(contextvars.copy_context().run, asyncio.run, cancellable())
        try:
            return future.result()
        except KeyboardInterrupt:
            for task in tasks if not future.done() else ():
                task.get_loop().call_soon_threadsafe(
                    task.cancel
                )  # else leaving would wait for the whole episode
            raise
