"""From a request to an episode: who is asked, with what limits, for whom, and what the conversation follows on.

In: a ClientRequest and the tenant that sent it. Out: a Turn, under way.

Not here: HTTP (``app``), how an API reads and writes (``apis``), keys and their budgets
(``key_ring``).
"""

from __future__ import annotations

import asyncio
import gc
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from openconductor.baselines.single import SingleWorker
from openconductor.calls.options import offered_calls
from openconductor.config import nearest
from openconductor.evaluation.eval_config import CONDUCTOR
from openconductor.prompt import check_question
from openconductor.serving.apis.wire import (
    RECALLS,
    ClientRequest,
    Control,
    Json,
    Reasoning,
    RequestFailed,
    called_in,
    invalid,
)
from openconductor.serving.key_ring import SERVED
from openconductor.serving.metrics import Metrics
from openconductor.serving.serve_config import DIRECT
from openconductor.serving.turn import Ask, Called, Turn, renamed
from openconductor.store.episode_json import episode_json
from openconductor.types import Budget, Message

if TYPE_CHECKING:
    from openconductor.calls.worker import Worker
    from openconductor.conductor import Conductor
    from openconductor.pool import WorkerPool
    from openconductor.protocols import Orchestrator
    from openconductor.serving.key_ring import Tenant
    from openconductor.store import Store, StoredEpisode

TIDY_S = 0.5
"""How often failed requests are cleared away, at most: all objects are looked at for it."""
REMEMBERED = 256
"""Calls of tools whose context is kept at hand; that of older ones is read from the journal."""
HELD = 50_000_000
"""At most this many characters of them."""


class Gateway:
    """Opens an episode for each request.

    Args:
        conductor: what answers as ``conductor``, and whose workers answer alone.
        journal: where episodes are kept.
        baselines: what answers under other names, by name.
        reasoning: how much is shown where a request does not say.
    """

    def __init__(
        self,
        conductor: Conductor,
        journal: Store,
        *,
        baselines: Mapping[str, Orchestrator] | None = None,
        reasoning: Reasoning = "summary",
    ) -> None:
        self.pool = conductor.pool
        self.conductor = conductor
        self.journal = journal
        self.metrics = Metrics()
        self.baselines = dict(baselines or {})
        self.reasoning: Reasoning = reasoning
        self.names = {ordinal: worker.name for ordinal, worker in self.pool}
        self.models = [
            CONDUCTOR,
            *self.baselines,
            *(f"{DIRECT}{name}" for name in self.names.values()),
        ]
        self.draining = False
        self._turns: set[Turn] = set()
        self._called: OrderedDict[tuple[str, str], Called] = OrderedDict()  # by key and episode
        self._held = 0
        self._tidied: asyncio.TimerHandle | None = None

    async def open(self, request: ClientRequest, tenant: Tenant) -> Turn:
        """Begin the episode of a request; its id is known when this returns.

        Raises:
            RequestFailed: it was refused, or had failed at once.
            ConfigError: its conversation is no question.
        """
        if self.draining:
            raise RequestFailed(503, "shutting_down", "the server is shutting down", retry_after=5)
        if request.model not in (offered := self.offered(tenant)):
            like = nearest(request.model, offered)
            words = f"model: got {request.model!r}; the nearest that this key may ask is {like!r}"
            raise RequestFailed(404, "model_not_found", words, param="model")
        turns = await self._recalling(await self._following(request, tenant), tenant)
        request = replace(request, turns=check_question(turns))
        control = tenant.limited(request.control)
        with ExitStack() as place:
            tab = place.enter_context(tenant.enter())
            ask, live = await self._who(request, tenant, control)
            turn = Turn(
                request, tab, self.journal, self.metrics, self.names, live=live and request.stream,
                shown=control.reasoning or self.reasoning, remember=self._remember,
            )  # fmt: skip
            self._turns.add(turn)
            place.callback(self._turns.discard, turn)
            seed = control.seed if control.seed is not None else request.wish.seed
            turn.start(ask, replace(request.wish, seed=seed), place.pop_all())
        await turn.begun()
        return turn

    def offered(self, tenant: Tenant) -> list[str]:
        """The models that a tenant may ask."""
        return [name for name in self.models if tenant.may_ask(name)]

    def tidy(self) -> None:
        """Soon give back what failed requests hold: an error, what it came through, and all that the client sent."""
        loop = asyncio.get_running_loop()
        if self._tidied is None or self._tidied.when() < loop.time():
            self._tidied = loop.call_later(TIDY_S, gc.collect)

    def stop(self) -> None:
        """End every turn that is under way, with an error that says why."""
        for turn in self._turns:
            turn.cancel(
                RequestFailed(
                    503, "shutting_down", "the server shut down before the answer was whole"
                )
            )

    # ── who is asked ──────────────────────────────────────────────────────────────────────────────
    async def _who(
        self, request: ClientRequest, tenant: Tenant, control: Control
    ) -> tuple[Ask, bool]:
        """What asks, and whether what the last step writes is the answer for sure, and can be shown as it is written.

        Raises:
            RequestFailed: the request may not ask that, or cannot be asked of it.
        """
        pool, model = self._workers(control), request.model
        budget = Budget(
            control.max_calls, control.max_tokens, control.max_dollars, control.max_seconds
        )
        if model.startswith(DIRECT):
            ordinal = _ordinal(pool, model.removeprefix(DIRECT))
            if ordinal is None:
                raise RequestFailed(
                    403, "worker_not_allowed", f"model: {model!r} is not among the workers allowed"
                )
            return partial(SingleWorker(pool, ordinal).ask, request.turns, budget=budget), True
        if model in self.baselines:
            if len(pool) < len(self.pool):
                raise invalid(
                    "conductor", f"{model!r} asks the whole pool; expected no choice of workers"
                )
            if request.wish.body.get("tools"):
                raise invalid(
                    "tools",
                    f"{model!r} cannot call tools; expected {CONDUCTOR!r} or {DIRECT}WORKER",
                )
            return partial(self.baselines[model].ask, request.turns, budget=budget), False
        conductor = replace(
            self.conductor,
            pool=pool,
            max_steps=min(self.conductor.max_steps, control.max_steps or self.conductor.max_steps),
            max_rounds=control.max_rounds or self.conductor.max_rounds,
        )
        ask = partial(conductor.ask, request.turns, budget=budget)
        called = await self._called_by(request.turns, tenant)
        if called is not None and (ordinal := _ordinal(pool, called.worker)) is not None:
            opening = _with_results(called, request.turns)
            ask = partial(conductor.resume, request.turns, ordinal, opening, budget=budget)
        return ask, conductor.max_rounds == 1

    def _workers(self, control: Control) -> WorkerPool:
        """The workers that a request may use.

        Raises:
            RequestFailed: there is none, or one is named that there is not.
        """
        for name in control.workers or ():
            if name not in self.names.values():
                like = nearest(name, self.names.values())
                raise invalid("conductor.workers", f"got {name!r}; the nearest is {like!r}")
        kept = [ordinal for ordinal, worker in self.pool if _is_offered(worker, control)]
        if not kept:
            raise invalid("conductor", "no worker of the pool meets it, expected at least one")
        return self.pool if len(kept) == len(self.pool) else self.pool.subset(kept)

    # ── what a conversation follows on ────────────────────────────────────────────────────────────
    def _remember(self, key: str, episode: str, called: Called) -> None:
        """Keep at hand what called tools."""
        self._called[key, episode] = called
        self._held += _size(called)
        while len(self._called) > REMEMBERED or self._held > HELD:
            self._held -= _size(self._called.popitem(last=False)[1])

    async def _called_by(self, turns: Sequence[Message], tenant: Tenant) -> Called | None:
        """What called the tools whose results end a conversation; None where that was not us, or for somebody else."""
        _, since = _last_said(turns)
        found = {called_in(_identifier(turn)) for turn in since if turn.role == "tool"}
        episodes = {None if one is None else one[0] for one in found}
        if len(episodes) != 1 or (episode := episodes.pop()) is None:
            return None
        return self._called.get((tenant.name, episode)) or await asyncio.to_thread(
            self._journaled, episode, tenant
        )

    def _record(self, episode: str, tenant: Tenant) -> Mapping[str, object] | None:
        """What was kept of a request; None where it was not this tenant's, or is not there."""
        record = self.journal.find_record(f"{SERVED}{episode}")
        return record if record is not None and record.get("key") == tenant.name else None

    def _journaled(self, episode: str, tenant: Tenant) -> Called | None:
        if self._record(episode, tenant) is None:
            return None
        stored = self.journal.episode(episode)
        return None if stored is None else _tool_calls_in(stored)

    async def _following(self, request: ClientRequest, tenant: Tenant) -> tuple[Message, ...]:
        """A request's turns with the conversation before them: that of an earlier answer, and the answer.

        Raises:
            RequestFailed: there is no such answer of this tenant's, or it was not kept.
        """
        if (episode := request.previous) is None:
            return request.turns
        before = await asyncio.to_thread(self._conversation, episode, tenant)
        if before is None:
            words = f"previous_response_id: got 'resp_{episode}', expected the id of an earlier answer of this key"
            raise RequestFailed(
                404, "previous_response_not_found", words, param="previous_response_id"
            )
        own, rest = request.turns[: request.instructed], request.turns[request.instructed :]
        return (*own, *before, *rest)

    async def _recalling(self, turns: tuple[Message, ...], tenant: Tenant) -> tuple[Message, ...]:
        """Turns with the texts of the earlier answers that they name.

        Raises:
            RequestFailed: there is no such answer of this tenant's, or it was not kept.
        """
        said: dict[str, str] = {}
        for episode in {
            str(part[RECALLS]) for turn in turns for part in turn.parts if RECALLS in part
        }:
            told = await asyncio.to_thread(self._conversation, episode, tenant)
            if told is None:
                raise RequestFailed(
                    404,
                    "item_not_found",
                    f"input: there is no message 'msg_{episode}'",
                    param="input",
                )
            said[episode] = told[-1].content
        return tuple(_recalled(turn, said) for turn in turns) if said else turns

    def _conversation(self, episode: str, tenant: Tenant) -> tuple[Message, ...] | None:
        record = self._record(episode, tenant)
        told = None if record is None else self.journal.episode(episode)
        if record is None or told is None or not told.question or told.answer is None:
            return None
        asked = told.question
        turns = (
            (Message("user", asked),)
            if isinstance(asked, str)
            else asked[cast("int", record["instructed"]) :]
        )
        called = _tool_calls_in(told) if record.get("tools") else None
        parts = () if called is None else ({"tool_calls": renamed(called.calls, episode)},)
        return (*turns, Message("assistant", told.answer, parts))

    def episode(self, identifier: str, tenant: Tenant) -> Json | None:
        """An episode as the journal has it; None where it is not this tenant's, or not there."""
        record = self._record(identifier, tenant)
        stored = None if record is None else self.journal.episode(identifier)
        if stored is None:
            return None
        form = episode_json(stored, stored.workers)
        return {**form, "outcome": stored.outcome, "request": record}


def _tool_calls_in(episode: StoredEpisode) -> Called | None:
    """Return the last calls of the client's tools in an episode; None: there are none."""
    for played in reversed(episode.rounds):
        results = () if played.transcript is None else played.transcript.results
        for result in reversed(results):
            for call in reversed(result.calls):
                if call.completion is not None:
                    made = offered_calls(call.completion.tool_calls, call.sampling.body)
                    if made:
                        return Called(call.worker, call.messages, made)
    return None


# ── pieces ────────────────────────────────────────────────────────────────────────────────────────
def _is_offered(worker: Worker, control: Control) -> bool:
    named = control.workers is None or worker.name in control.workers
    tagged = control.tags is None or not set(control.tags).isdisjoint(worker.tags)
    price, most = worker.price, control.max_price
    cheap = most is None or (price is not None and max(price.input, price.output) <= most)
    return named and tagged and cheap


def _size(called: Called) -> int:
    return sum(
        len(turn.content) + (len(str(turn.parts)) if turn.parts else 0) for turn in called.messages
    )


def _ordinal(pool: WorkerPool, name: str) -> int | None:
    return next((ordinal for ordinal, worker in pool if worker.name == name), None)


def _identifier(turn: Message) -> str:
    return next((str(part["tool_call_id"]) for part in turn.parts if "tool_call_id" in part), "")


def _recalled(turn: Message, said: Mapping[str, str]) -> Message:
    texts = [said[str(part[RECALLS])] for part in turn.parts if RECALLS in part]
    rest = tuple(part for part in turn.parts if RECALLS not in part)
    return replace(turn, content="\n\n".join(filter(None, (*texts, turn.content))), parts=rest)


def _last_said(turns: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """What an assistant said last, and the turns since."""
    since = next(
        (index for index in range(len(turns), 0, -1) if turns[index - 1].role == "assistant"), 0
    )
    return turns[since - 1].content if since else "", turns[since:]


def _with_results(called: Called, turns: Sequence[Message]) -> tuple[Message, ...]:
    """What the worker that called tools is sent: its context, its calls under its own ids, the results."""
    own = [str(call.get("id", "")) for call in called.calls]
    said, since = _last_said(turns)
    told: list[Message] = []
    for turn in since:
        parts = turn.parts
        if turn.role == "tool":
            _, index = cast("tuple[str, int]", called_in(_identifier(turn)))
            named = {"tool_call_id": own[index] if index < len(own) else _identifier(turn)}
            parts = (*(part for part in parts if "tool_call_id" not in part), named)
        told.append(replace(turn, parts=parts))
    return (
        *called.messages,
        Message("assistant", said, ({"tool_calls": list(called.calls)},)),
        *told,
    )
