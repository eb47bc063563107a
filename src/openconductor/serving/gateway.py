"""From a request to an episode: who is asked, with what limits, for whom, and what the conversation follows on.

In: a ClientRequest and the tenant that sent it. Out: a Turn, under way.

Not here: HTTP (``app``), how an API reads and writes (``wire``), keys and their budgets (``keys``).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from openconductor.baselines.single import SingleWorker
from openconductor.config import nearest
from openconductor.policies import Wishes
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
from openconductor.serving.serve_config import DIRECT
from openconductor.serving.turn import Ask, Called, Turn, renamed
from openconductor.types import Message

if TYPE_CHECKING:
    from openconductor.conductor import Conductor
    from openconductor.journal import Journal
    from openconductor.pool import WorkerPool
    from openconductor.protocols import Orchestrator
    from openconductor.serving.key_ring import Tenant
    from openconductor.serving.metrics import Metrics
    from openconductor.worker import Worker

CONDUCTOR = "conductor"
REMEMBERED = 256
"""Calls of tools whose context is kept at hand; that of older ones is read from the journal."""
HELD = 50_000_000
"""So many characters of them at most."""


class Gateway:
    """Opens an episode for each request.

    Args:
        conductor: what answers as ``conductor``, and whose workers answer alone.
        journal: where episodes are kept.
        metrics: what counts them.
        baselines: what answers under other names, by name.
        reasoning: how much is shown where a request does not say.
    """

    def __init__(
        self,
        conductor: Conductor,
        journal: Journal,
        metrics: Metrics,
        *,
        baselines: Mapping[str, Orchestrator] | None = None,
        reasoning: Reasoning = "summary",
    ) -> None:
        self.pool = conductor.pool
        self.conductor = conductor
        self.journal = journal
        self.metrics = metrics
        self.baselines = dict(baselines or {})
        self.reasoning: Reasoning = reasoning
        self.names = {ordinal: worker.name for ordinal, worker in self.pool}
        self.models = [CONDUCTOR, *self.baselines, *(f"{DIRECT}{name}" for name in self.names.values())]
        self.draining = False
        self._turns: set[Turn] = set()
        self._called: OrderedDict[str, Called] = OrderedDict()
        self._held = 0

    async def open(self, request: ClientRequest, tenant: Tenant) -> Turn:
        """Begin the episode of a request; it has been told of when this returns.

        Raises:
            RequestFailed: it was refused, or had failed at once.
        """
        if self.draining:
            raise RequestFailed(503, "shutting_down", "the server is shutting down", retry_after=5)
        if request.model not in self.models:
            like = nearest(request.model, self.models)
            raise RequestFailed(404, "model_not_found", f"model: got {request.model!r}; the nearest is {like!r}")
        tenant.check(request)
        if request.previous is not None:
            request = await self._following(request, tenant)
        request = replace(request, turns=await self._recalling(request.turns, tenant))
        control = tenant.limited(request.control)
        with ExitStack() as place:
            tab = place.enter_context(tenant.enter())
            ask, live = await self._who(request, tenant, control)
            turn = Turn(
                request, tenant.name, tab, self.journal, self.metrics, self.names, live=live and request.stream,
                shown=control.reasoning or self.reasoning, remember=self._remember,
            )  # fmt: skip
            self._turns.add(turn)
            place.callback(self._turns.discard, turn)
            seed = control.seed if control.seed is not None else request.wish.seed
            turn.start(ask, Wishes(request.wish, seed), place.pop_all())
        await turn.begun()
        return turn

    def stop(self) -> None:
        """End every turn that is under way, with an error that says why."""
        for turn in self._turns:
            turn.cancel(RequestFailed(503, "shutting_down", "the server shut down before the answer was whole"))

    # ── who is asked ─────────────────────────────────────────────────────────────────────────────────────────────────
    async def _who(self, request: ClientRequest, tenant: Tenant, control: Control) -> tuple[Ask, bool]:
        """What asks, and whether what the last step writes is the answer for sure, and can be shown as it is written.

        Raises:
            RequestFailed: the request may not ask that, or cannot be asked of it.
        """
        pool, model, asked = self._offered(control), request.model, {"budget": control.budget}
        if model.startswith(DIRECT):
            ordinal = _ordinal(pool, model.removeprefix(DIRECT))
            if ordinal is None:
                raise RequestFailed(403, "worker_not_allowed", f"model: {model!r} is not among the workers allowed")
            return partial(SingleWorker(pool, ordinal).ask, request.turns, **asked), True
        if model in self.baselines:
            if len(pool) < len(self.pool):
                raise invalid("conductor", f"{model!r} asks the whole pool; expected no choice of workers")
            if request.wish.body.get("tools"):
                raise invalid("tools", f"{model!r} cannot call tools; expected {CONDUCTOR!r} or {DIRECT}WORKER")
            return partial(self.baselines[model].ask, request.turns, **asked), False
        conductor = copy(self.conductor)
        conductor.pool = pool
        conductor.max_steps = min(conductor.max_steps, control.max_steps or conductor.max_steps)
        conductor.max_rounds = control.max_rounds or conductor.max_rounds
        called = await self._called_by(request.turns, tenant)
        ordinal = None if called is None else _ordinal(pool, called.worker)
        if called is None or ordinal is None:
            return partial(conductor.ask, request.turns, **asked), conductor.max_rounds == 1
        opening = _with_results(called, request.turns)
        return partial(conductor.resume, request.turns, ordinal, opening, **asked), conductor.max_rounds == 1

    def _offered(self, control: Control) -> WorkerPool:
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

    # ── what a conversation follows on ───────────────────────────────────────────────────────────────────────────────
    def _remember(self, episode: str, called: Called) -> None:
        """Keep at hand what called tools."""
        self._called[episode] = called
        self._held += _size(called)
        while len(self._called) > REMEMBERED or self._held > HELD:
            self._held -= _size(self._called.popitem(last=False)[1])

    async def _called_by(self, turns: Sequence[Message], tenant: Tenant) -> Called | None:
        """What called the tools whose results end a conversation; None where that was not us, or for somebody else."""
        results = _results(turns)
        found = {called_in(identifier) for identifier in results}
        episodes = {one[0] for one in found if one is not None}
        if not results or None in found or len(episodes) != 1:
            return None
        (episode,) = episodes
        called = self._called.get(episode)
        if called is None and await asyncio.to_thread(self._owner, episode) == tenant.name:
            called = await asyncio.to_thread(self._journaled, episode, tenant.name)
        return called if called is not None and called.tenant == tenant.name else None

    def _owner(self, episode: str) -> str | None:
        """Whose episode it is; None where it is nobody's here."""
        record = self.journal.find_outcome(f"serve/{episode}")
        return None if record is None else cast("str", record.get("key"))

    def _journaled(self, episode: str, tenant: str) -> Called | None:
        for call in reversed(list(self.journal.calls(episode))):
            said = call.completion
            if said is not None and said.tool_calls and call.messages is not None:
                return Called(tenant, call.worker, tuple(call.messages), tuple(map(dict, said.tool_calls)))
        return None

    async def _following(self, request: ClientRequest, tenant: Tenant) -> ClientRequest:
        """A request with the conversation before it: that of an earlier answer, and the answer.

        Raises:
            RequestFailed: there is no such answer of this tenant's, or it was not kept.
        """
        episode = cast("str", request.previous)
        before = await asyncio.to_thread(self._conversation, episode, tenant)
        if before is None:
            words = f"previous_response_id: there is no answer 'resp_{episode}' to go on from"
            raise RequestFailed(404, "previous_response_not_found", words, param="previous_response_id")
        own, rest = request.turns[: request.instructed], request.turns[request.instructed :]
        return replace(request, turns=(*own, *before, *rest))

    async def _recalling(self, turns: tuple[Message, ...], tenant: Tenant) -> tuple[Message, ...]:
        """Turns with the texts of the earlier answers that they name.

        Raises:
            RequestFailed: there is no such answer of this tenant's, or it was not kept.
        """
        said: dict[str, str] = {}
        for episode in {str(part[RECALLS]) for turn in turns for part in turn.parts if RECALLS in part}:
            told = await asyncio.to_thread(self._conversation, episode, tenant)
            if told is None:
                raise RequestFailed(404, "item_not_found", f"input: there is no message 'msg_{episode}'", param="input")
            said[episode] = told[-1].content
        return tuple(_recalled(turn, said) for turn in turns) if said else turns

    def _conversation(self, episode: str, tenant: Tenant) -> tuple[Message, ...] | None:
        record = self.journal.find_outcome(f"serve/{episode}")
        if record is None or record.get("key") != tenant.name:
            return None
        told = self.journal.find_episode(episode)
        if told is None or told.question is None or told.answer is None:
            return None
        asked = told.question
        turns = (
            (Message("user", asked),) if isinstance(asked, str) else tuple(asked)[cast("int", record["instructed"]) :]
        )
        called = self._journaled(episode, tenant.name) if record.get("tools") else None
        parts: tuple[Json, ...] = ({"tool_calls": renamed(called.calls, episode)},) if called is not None else ()
        return (*turns, Message("assistant", told.answer, parts))

    def episode(self, identifier: str, tenant: Tenant) -> Json | None:
        """An episode as the journal has it; None where it is not this tenant's, or not there."""
        record = self.journal.find_outcome(f"serve/{identifier}")
        if record is None or record.get("key") != tenant.name:
            return None
        whole = self.journal.whole_episode(identifier)
        return None if whole is None else {**whole, "request": dict(record)}


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def _is_offered(worker: Worker, control: Control) -> bool:
    if control.workers is not None and worker.name not in control.workers:
        return False
    if control.tags is not None and not set(control.tags) & set(worker.tags):
        return False
    if control.max_price is None:
        return True
    price = worker.price
    return price is not None and max(price.input, price.output) <= control.max_price


def _size(called: Called) -> int:
    return sum(len(turn.content) + (len(str(turn.parts)) if turn.parts else 0) for turn in called.messages)


def _ordinal(pool: WorkerPool, name: str) -> int | None:
    return next((ordinal for ordinal, worker in pool if worker.name == name), None)


def _identifier(turn: Message) -> str:
    return next((str(part["tool_call_id"]) for part in turn.parts if "tool_call_id" in part), "")


def _recalled(turn: Message, said: Mapping[str, str]) -> Message:
    texts = [said[str(part[RECALLS])] for part in turn.parts if RECALLS in part]
    rest = tuple(part for part in turn.parts if RECALLS not in part)
    return replace(turn, content="\n\n".join(filter(None, (*texts, turn.content))), parts=rest)


def _asked_at(turns: Sequence[Message]) -> int:
    """The index of the last assistant's turn; -1 where there is none."""
    return max((index for index, turn in enumerate(turns) if turn.role == "assistant"), default=-1)


def _results(turns: Sequence[Message]) -> list[str]:
    """The ids of the calls whose results come after the last turn of an assistant's."""
    return [_identifier(turn) for turn in turns[_asked_at(turns) + 1 :] if turn.role == "tool"]


def _with_results(called: Called, turns: Sequence[Message]) -> tuple[Message, ...]:
    """What the worker that called tools is sent: its context, its calls under its own ids, the results."""
    own = [str(call.get("id", "")) for call in called.calls]
    told: list[Message] = []
    for turn in turns[_asked_at(turns) + 1 :]:
        parts = turn.parts
        if turn.role == "tool":
            _, index = cast("tuple[str, int]", called_in(_identifier(turn)))
            named = {"tool_call_id": own[index] if index < len(own) else _identifier(turn)}
            parts = (*(part for part in parts if "tool_call_id" not in part), named)
        told.append(replace(turn, parts=parts))
    said = turns[_asked_at(turns)].content if _asked_at(turns) >= 0 else ""
    return (*called.messages, Message("assistant", said, ({"tool_calls": list(called.calls)},)), *told)
