"""The Conductor: it asks its planner for a workflow, and executes it, in rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from openconductor.calls.budget import check_price
from openconductor.calls.options import guess_tokens
from openconductor.calls.worker import run_blocking
from openconductor.config import one_of, shorten
from openconductor.episode import LiveEpisode
from openconductor.errors import (
    BudgetExceeded,
    ConfigError,
    WorkerError,
    WorkflowError,
    WorkflowReason,
    stops,
)
from openconductor.pool import Worker, WorkerPool, open_pool
from openconductor.prompt import (
    EXAMPLES,
    ExampleName,
    PromptOptions,
    Template,
    check_turns,
    render_prompt,
)
from openconductor.protocols import CallContext, OnEvent, Provider, SupportsComplete
from openconductor.providers import WorkerFunction, resolve
from openconductor.types import (
    Budget,
    Episode,
    Message,
    OnNoPlan,
    Question,
    Round,
    Rule,
    Sampling,
    Step,
    Workflow,
)

if TYPE_CHECKING:
    from openconductor.store import CompletionStore

PLAN_TIMEOUT_S = 120.0
"""The total deadline of one call of a planner behind a network that names none, where a worker can
answer in its place."""

Planner = Provider | SupportsComplete | Worker | WorkerFunction | str | Path
"""Writes workflows: a Provider, ``"provider:model"``, a checkpoint's folder, a plain function from
the messages to the text, or a Worker, which brings its own sampling, limits and price."""


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Conductor:
    """Answers questions with a pool of workers, by workflows that its planner writes.

    Attributes:
        planner: the worker that writes the workflows.
        pool: the workers on offer.
        max_steps: the most steps of one workflow.
        max_rounds: the most calls of the planner for a question; None: no limit.
        prompt: how the planner is asked.
        fallback: whether a failed step goes to another worker.
        on_no_plan: what happens where there is no valid plan.
        direct_below_tokens: a shorter question is answered without a plan; None: none is.
        force: whether a trained planner takes workers that it does not know.
    """

    planner: Worker
    pool: WorkerPool
    max_steps: int
    max_rounds: int | None
    prompt: PromptOptions
    fallback: bool
    on_no_plan: OnNoPlan
    direct_below_tokens: int | None
    force: bool

    def __init__(  # noqa: PLR0913 - the settings of a Conductor
        self,
        planner: Planner,
        *,
        pool: WorkerPool | str | Path,
        max_steps: int | None = None,
        max_rounds: int | None = 1,
        prompt: PromptOptions | None = None,
        sampling: Sampling | None = None,
        timeout_s: float | None = None,
        fallback: bool = False,
        on_no_plan: OnNoPlan = "error",
        direct_below_tokens: int | None = None,
        force: bool = False,
    ) -> None:
        """Make a Conductor.

        Args:
            planner: writes the workflows. A checkpoint brings its own prompt and sampling and costs
                nothing, a Worker its own sampling and price; ``"worker:NAME"`` is one of the pool.
                The price of any other planner's calls is unknown.
            pool: the workers on offer, or the path of a pool file. They get the ordinals that a
                trained planner knows them by.
            max_steps: the most steps that one workflow may have; default: as many as the checkpoint
                was trained to write, else 5.
            max_rounds: the most calls of the planner for a question, an accepting call included.
                1: no recursion. None: it continues until the planner accepts or the budget ends,
                and needs a budget that workers do use up.
            prompt: how the planner is asked; default: the checkpoint's, else ``PromptOptions()``
                (``prompted`` has what the command line asks with).
            sampling: how a planner that is not a Worker samples; default: the checkpoint's, else at
                most 1,024 tokens.
            timeout_s: the total deadline of one planner call.
            fallback: whether a failed step goes to another worker; leave it off in training and
                evaluation.
            on_no_plan: ``error`` for training and evaluation. With ``default_worker`` a text that
                is not a workflow gets one more try, which shows the planner its text and what is
                wrong with it. Where that fails, or the planner does not answer, the pool's default
                worker answers alone (``Round.rule``).
            direct_below_tokens: a question with fewer tokens (estimated, with the chat before it)
                is answered by the default worker, without a plan.
            force: whether a trained planner takes workers that it was not trained with, by their
                ordinals as they are.

        Raises:
            ConfigError: a value is out of its range, the planner cannot be resolved, or it was
                trained with other workers.
        """
        limits = {
            "max_steps": max_steps,
            "max_rounds": max_rounds,
            "direct_below_tokens": direct_below_tokens,
        }
        for name, value in limits.items():
            if value is not None and value < 1:
                raise ConfigError(f"Conductor.{name}: got {value}, expected at least 1")
        one_of("Conductor.on_no_plan", on_no_plan, get_args(OnNoPlan))
        if isinstance(pool, str | Path):
            pool = open_pool(str(pool))
        if not isinstance(cast(object, pool), WorkerPool):
            raise ConfigError(
                f"Conductor.pool: got {shorten(pool)}, expected a WorkerPool or a pool file's path"
            )
        planner = find_in_pool(planner, pool)
        if not isinstance(planner, Worker):
            provider = resolve(planner)
            sampling = sampling or provider.sampling or Sampling(max_tokens=1024)
            planner = Worker(provider, name="conductor", sampling=sampling, timeout_s=timeout_s)
        elif timeout_s is not None:
            timeout_s = min(timeout_s, planner.timeout_s or timeout_s)
            planner = replace(planner, timeout_s=timeout_s)
        provider = planner.resolved
        may_hang = provider.remote and planner.timeout_s is None
        if may_hang and on_no_plan == "default_worker":
            planner = replace(planner, timeout_s=PLAN_TIMEOUT_S)
        if provider.trained_with and not force:
            # A pool file may hold the planner, too, which can only plan.
            pool = _without(pool, provider).as_trained(provider.trained_with)
        settings = {
            "planner": planner,
            "pool": pool,
            "max_steps": max_steps or provider.max_steps or 5,
            "max_rounds": max_rounds,
            "prompt": prompt or provider.prompt_options or PromptOptions(),
            "fallback": fallback,
            "on_no_plan": on_no_plan,
            "direct_below_tokens": direct_below_tokens,
            "force": force,
        }
        for name, setting in settings.items():
            object.__setattr__(self, name, setting)

    def replaying(self, journal: CompletionStore) -> Conductor:
        """Return the Conductor answering from a journal what was paid for before.

        That goes for the planner's calls and the workers'. To record the new ones, pass the journal
        as ``on_event``.
        """
        planner = self.planner.replaying(journal)
        return replace(self, planner=planner, pool=self.pool.replaying(journal))

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
            question: a text, or a chat.
            budget: what the question may cost: the planner's calls and all steps, in all rounds.
            on_event: gets every event in order. An exception that it raises cancels what runs and
                comes out of here unchanged, and nothing more is sent to it.
            context: what the question works for. Its ``sample`` tells repeats of a question apart
                (caches and simulated workers draw by it).

        Returns:
            The Episode. ``answer`` is None where the first round failed; ``error`` is then the
            WorkflowError or WorkerError. A failure in a later round leaves the previous answer
            standing and marks that Round; so does, with ``max_rounds=None``, the end of the budget.
            With ``on_no_plan="default_worker"`` an attempt without a plan is a round of its own,
            beside ``max_rounds``, and the answer may be that of a later one.

        Raises:
            ConfigError, AuthFailed, BudgetExceeded: nothing more can be done; ``.episode`` holds
                what had happened.
        """
        live = self._open_episode(question, on_event, context)
        async with live.play(budget):
            self._check_budget(live)
            if self._is_direct(question):
                await self._answer_alone(live, "direct")
            else:
                await self._play_rounds(live, self.max_rounds)
        return live.episode

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
        """Go on after a worker has called the user's tools, with their results.

        That worker gets them where it was. Its answer is a round. The Conductor may revise it if
        rounds are left, and plans anew if it failed.

        Args:
            question: the whole chat, which ends with the results.
            worker: its ordinal.
            opening: what it is sent: the turns that it had before, its calls, and their results.
            budget: as for ``ask``.
            on_event: as for ``ask``.
            context: as for ``ask``, which this returns and raises as, too.
        """
        live = self._open_episode(question, on_event, context)
        async with live.play(budget):
            self._check_budget(live)
            await live.run(Workflow((Step(worker, ""),)), opening=opening)
            resumed = live.rounds[-1]
            live.answer = resumed.answer
            if not resumed.calls_tools:
                most_rounds = self.max_rounds
                if most_rounds is not None and resumed.error is not None:
                    most_rounds += 1
                await self._play_rounds(live, most_rounds)
        return live.episode

    async def plan(
        self,
        question: Question,
        *,
        previous: Round | None = None,
        on_event: OnEvent | None = None,
        context: CallContext | None = None,
    ) -> Round:
        """Ask the planner alone; no worker is asked.

        Args:
            question: as for ``ask``.
            previous: the round before, whose answers the planner is shown; None: it plans the first
                round.
            on_event: as for ``ask``.
            context: as for ``ask``.

        Returns:
            The round. It has a workflow that was not played, or the WorkflowError or WorkerError.

        Raises:
            ConfigError, AuthFailed, BudgetExceeded: the planner cannot be asked.
        """
        live = self._open_episode(question, on_event, context, previous)
        async with live.play():
            check_price(live.meter, self.planner)
            await self._play_round(live, plays=False)
        return live.rounds[-1]

    def ask_sync(
        self,
        question: Question,
        *,
        budget: Budget | None = None,
        on_event: OnEvent | None = None,
        context: CallContext | None = None,
    ) -> Episode:
        """Run ``ask`` without ``await``; beside a running event loop (notebooks) in a thread."""
        return run_blocking(
            lambda: self.ask(question, budget=budget, on_event=on_event, context=context)
        )

    def _open_episode(
        self,
        question: Question,
        on_event: OnEvent | None,
        context: CallContext | None,
        previous: Round | None = None,
    ) -> LiveEpisode:
        return LiveEpisode(
            self.pool,
            question,
            context=context,
            on_event=on_event,
            fallback=self.fallback,
            spent="stop" if self.max_rounds is not None else "answered",
            planner=self.planner.resolved,
            previous=previous,
        )

    def _check_budget(self, live: LiveEpisode) -> None:
        meter = live.meter
        for _, worker in self.pool:
            check_price(meter, worker)
        check_price(meter, self.planner)
        if self.max_rounds is None and (meter is None or not meter.is_limited):
            raise ConfigError(
                "Conductor.max_rounds=None goes on until the budget ends, and requires a budget "
                "with a limit"
            )

    def _is_direct(self, question: Question) -> bool:
        """Return True if a question is too short to be planned."""
        if self.direct_below_tokens is None:
            return False
        tokens, _ = guess_tokens(check_turns(question), Sampling())
        return tokens < self.direct_below_tokens

    async def _play_rounds(self, live: LiveEpisode, most_rounds: int | None) -> None:
        left = math.inf if most_rounds is None else most_rounds - len(live.rounds)
        while left > 0:
            await self._play_round(live)
            if self._lacks_plan(live) and self._may_try_again(live):
                await self._play_round(live)
            if self._lacks_plan(live):
                await self._answer_alone(live, "default_worker")
                break
            last = live.rounds[-1]
            if last.error is not None or last.accepted or last.calls_tools:
                break
            left -= 1

    async def _play_round(self, live: LiveEpisode, *, plays: bool = True) -> None:
        live.begin_round()
        messages = render_prompt(
            live.question,
            self.pool.ordinals,
            options=self.prompt,
            max_steps=self.max_steps,
            cards=self.pool.full_cards if self.prompt.template == "brief" else self.pool.cards,
            names=self.pool.names,
            previous=live.rounds[-1] if live.rounds else None,
        )
        replaceable = self.on_no_plan == "default_worker"
        try:
            completion = await live.ask_planner(self.planner, messages, replaceable=replaceable)
        except (WorkerError, BudgetExceeded) as error:
            a_worker_may_answer = replaceable and live.may_go_on_after(error)
            if stops(error) and not a_worker_may_answer:
                raise
            live.end_round(error)
            return
        try:
            await live.follow(
                completion, max_steps=self.max_steps, subtasks=self.prompt.subtasks, plays=plays
            )
        except WorkflowError as error:
            live.end_round(error)

    # ── without a plan ────────────────────────────────────────────────────────────────────────────
    def _lacks_plan(self, live: LiveEpisode) -> bool:
        """Return True if a worker has to answer without a plan."""
        if self.on_no_plan == "error" or live.answer is not None:
            return False
        return live.rounds[-1].workflow is None

    def _may_try_again(self, live: LiveEpisode) -> bool:
        """Return True if the planner may be shown what is wrong with its text, and write another.

        A text that was cut would be cut again. The default worker's call must still fit.
        """
        last = live.rounds[-1]
        if not isinstance(last.error, WorkflowError):
            return False
        if last.error.reason is WorkflowReason.TRUNCATED:
            return False
        default = self.pool[self.pool.default_worker]
        return live.has_room_for(self.planner, default)

    async def _answer_alone(self, live: LiveEpisode, rule: Rule) -> None:
        """Let the default worker answer, which is sent only the question.

        If the planner did not answer, another worker than the planner is asked. If the budget has
        no room for the default worker's call, the best worker that it has room for is asked.
        """
        pool = self.pool
        if live.rounds and isinstance(live.rounds[-1].error, WorkerError):
            pool = _without(pool, self.planner.resolved)
        ordinal = pool.default_worker
        if rule == "default_worker":
            for candidate in (ordinal, *pool.best_first(pool.ordinals)):
                if live.has_room_for(pool[candidate]):
                    ordinal = candidate
                    break
        workflow = Workflow((Step(ordinal, ""),))
        live.answer = await live.answer_by(workflow, rule=rule)


def _without(pool: WorkerPool, provider: Provider) -> WorkerPool:
    """Return the pool without a provider's worker; the pool itself if that leaves all or none."""
    others = [ordinal for ordinal, worker in pool if worker.provider is not provider]
    return pool.subset(others) if 0 < len(others) < len(pool) else pool


def prompted(
    conductor: Conductor,
    *,
    template: Template | None = None,
    examples: ExampleName | None = None,
    cards: bool | None = None,
) -> Conductor:
    """Return the Conductor that users are served: brief and with cards, unless it was trained.

    A trained planner is asked as it was trained.

    Args:
        conductor: the Conductor.
        template: ``brief``, or ``full``, which is the paper's; None: ``brief``.
        examples: the worked examples, a name in ``prompt.EXAMPLES``; None: none with ``brief``, the
            paper's with ``full``.
        cards: whether the planner is shown what is known of the workers; None: with ``brief``.

    Raises:
        ConfigError: something is chosen for a trained planner, or is unknown.
    """
    chosen = {"template": template, "examples": examples, "cards": cards}
    given = [f"{name} {value!r}" for name, value in chosen.items() if value is not None]
    if conductor.planner.resolved.prompt_options is not None:
        if given:
            raise ConfigError(
                f"prompt: got {', '.join(given)} for a trained Conductor, which is asked as it was "
                "trained; leave it out"
            )
        return conductor
    if template is None:
        template = "brief"
    brief = template == "brief"
    if examples is None:
        examples = "none" if brief else "out"
    if cards is None:
        cards = brief
    one_of("template", template, get_args(Template))
    one_of("examples", examples, EXAMPLES)
    options = PromptOptions(template, EXAMPLES[examples], cards=cards)
    return replace(conductor, prompt=options)


def find_in_pool(planner: Planner, pool: WorkerPool) -> Planner:
    """Return the worker that ``"worker:NAME"`` names; any other planner as it is.

    Raises:
        ConfigError: there is no such worker, or its name stands there alone.
    """
    if not isinstance(planner, str):
        return planner
    kind, _, name = planner.partition(":")
    if kind == "worker" and name:
        return pool[name]
    if planner in pool.names.values() and not Path(planner).is_dir():
        raise ConfigError(
            f"conductor {planner!r}: is a worker of the pool; expected 'worker:{planner}'"
        )
    return planner
