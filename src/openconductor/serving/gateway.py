"""From a request to an episode: the system that answers it, its limits, and its conversation."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from openconductor.baselines.single import SingleWorker
from openconductor.conductor import Conductor
from openconductor.config import nearest
from openconductor.prompt import check_question
from openconductor.serving.apis.wire import (
    ClientRequest,
    Control,
    Json,
    Reasoning,
    RequestFailed,
    invalid,
)
from openconductor.serving.history import History, resumed_turns
from openconductor.serving.metrics import Metrics
from openconductor.serving.serve_config import DIRECT, direct_names
from openconductor.serving.turn import Ask, Turn
from openconductor.types import Budget, Message

if TYPE_CHECKING:
    from openconductor.calls.worker import Worker
    from openconductor.pool import WorkerPool
    from openconductor.protocols import Orchestrator
    from openconductor.serving.key_ring import Tenant
    from openconductor.store import Store
    from openconductor.traces.tracer import Traces

CheckQuestion = Callable[[Sequence[Message]], tuple[Message, ...]]
OwnWay = Callable[[Conductor], Ask]
"""Returns another way to an answer than the ``ask`` of a Conductor."""

COLLECT_S = 0.5
"""Seconds at least between garbage collections after failed requests."""


class _Way(NamedTuple):
    """The way to the answer of a request.

    Attributes:
        ask: answers.
        live: True if the text of the last step is the answer for sure.
        alone: True if one worker is asked without a plan.
    """

    ask: Ask
    live: bool = False
    alone: bool = False


class Gateway:
    """Opens an episode for each request.

    Args:
        pool: the workers, each of which answers alone, too.
        store: keeps the episodes.
        systems: answer as models, by name.
        evidence: what was measured of systems, by the names of their models.
        reasoning: how much is shown, unless a request says.
        traces: records the spans of episodes. None: nothing is traced.
        check: returns the turns of a question, or raises ConfigError.
        example: a question that the workers can answer; "": any.
    """

    def __init__(
        self,
        pool: WorkerPool,
        store: Store,
        systems: Mapping[str, Orchestrator],
        *,
        evidence: Mapping[str, Json] | None = None,
        reasoning: Reasoning = "summary",
        traces: Traces | None = None,
        check: CheckQuestion = check_question,
        example: str = "",
    ) -> None:
        self.pool = pool
        self.store = store
        self.metrics = Metrics()
        self.history = History(store)
        self.systems = dict(systems)
        for ordinal, model in direct_names(pool).items():
            self.systems[model] = SingleWorker(pool, ordinal)
        self.evidence = dict(evidence or {})
        self.reasoning: Reasoning = reasoning
        self.traces = traces
        self.check = check
        self.example = example
        self.names = pool.names
        self._replays = any(worker.recalls for _, worker in pool)
        self.draining = False
        self._is_stopped = False
        self._turns: set[Turn] = set()
        self._collection: asyncio.TimerHandle | None = None

    async def open(
        self,
        request: ClientRequest,
        tenant: Tenant,
        headers: Mapping[str, str] | None = None,
        *,
        own_way: OwnWay | None = None,
        watched: bool = False,
    ) -> Turn:
        """Begin the episode of a request; of a stream its id is known when this returns.

        Args:
            request: the request.
            tenant: the key that it came with.
            headers: may name the span that the request belongs to.
            own_way: takes the place of the ``ask`` of the model, which must be a Conductor.
            watched: True if the page shows the episode while it runs, so that each event is kept at
                once.

        Raises:
            RequestFailed: the request is rejected, or failed at once.
            ConfigError: its conversation is not a question.
        """
        if self._is_stopped:
            raise RequestFailed(503, "shutting_down", "the server is shutting down", retry_after=5)
        offered = self.offered(tenant)
        if request.model not in offered:
            like = nearest(request.model, offered, at_least=0.5)
            example = next(iter(offered), None) if like is None else like
            message = f"model: got {request.model!r}; GET /v1/models lists the models of this key"
            if example is not None:
                message += f", such as {example!r}"
            raise RequestFailed(404, "model_not_found", message, param="model")
        turns = self.check(await self.history.complete(request, tenant.name))
        control = tenant.limit(request.control)
        with ExitStack() as place:
            bill = place.enter_context(tenant.admit())
            await tenant.count_request()
            way = await self._choose(request, turns, tenant, control, own_way)
            budget = Budget(
                calls=control.max_calls,
                tokens=control.max_tokens,
                dollars=control.max_dollars,
                seconds=control.max_seconds,
            )
            turn = Turn(
                request,
                bill,
                self.store,
                self.metrics,
                self.names,
                # A claimed call is given back as it ends: then its answer must be in the store.
                direct=way.alone and not (self._replays or watched),
                live=way.live and request.stream,
                reasoning=control.reasoning or self.reasoning,
                remember=self.history.remember,
                traces=self._traces_of(request, tenant, headers or {}),
            )
            self._turns.add(turn)
            place.callback(self._turns.discard, turn)
            options = request.options
            if control.seed is not None:
                options = replace(options, seed=control.seed)
            turn.start(partial(way.ask, turns, budget=budget), options, place.pop_all())
        if request.stream:
            await turn.begun()
        return turn

    def _traces_of(
        self, request: ClientRequest, tenant: Tenant, headers: Mapping[str, str]
    ) -> Traces | None:
        if self.traces is None:
            return None
        return self.traces.named(request.model, key=tenant.name, headers=headers)

    def offered(self, tenant: Tenant) -> list[str]:
        """Return the models that a tenant may ask."""
        offered: list[str] = []
        for name, system in self.systems.items():
            worker = self.names[system.worker] if _is_alone(system) else None
            if tenant.may_ask(name, worker):
                offered.append(name)
        return offered

    @property
    def running(self) -> int:
        """The number of requests under way."""
        return len(self._turns)

    def schedule_collection(self) -> None:
        """Schedule a garbage collection, which frees what failed requests still hold.

        An error holds the frames that it came through, and they hold all that the client sent.
        """
        loop = asyncio.get_running_loop()
        if self._collection is None or self._collection.when() < loop.time():
            self._collection = loop.call_later(COLLECT_S, gc.collect)

    def find_turn(self, episode: str) -> Turn | None:
        """Return the running turn of an episode; None: it does not run here."""
        return next((turn for turn in self._turns if turn.id == episode), None)

    async def ended(self) -> None:
        """Wait until no turn is running."""
        while self._turns:
            await next(iter(self._turns)).ended()
            await asyncio.sleep(0)

    def stop(self) -> None:
        """Cancel every running turn, with an error that says why, and reject further ones."""
        self._is_stopped = True
        for turn in self._turns:
            message = "the server shut down before the answer was complete"
            turn.cancel(RequestFailed(503, "shutting_down", message))

    # ── the system that answers ───────────────────────────────────────────────────────────────────
    async def _choose(
        self,
        request: ClientRequest,
        turns: tuple[Message, ...],
        tenant: Tenant,
        control: Control,
        own_way: OwnWay | None,
    ) -> _Way:
        """Return what answers a request.

        Raises:
            RequestFailed: the request may not ask for that, or the model cannot do it.
        """
        system = self.systems[request.model]
        if not isinstance(system, Conductor):
            if own_way is not None:
                raise invalid("model", f"got {request.model!r}, expected a Conductor")
            pool = self._workers(control)
            if _is_alone(system):
                return self._ask_alone(request.model, system, pool)
            self._check_baseline(request, pool)
            return _Way(system.ask)
        conductor = self.limited(system, control)
        if own_way is not None:
            return _Way(own_way(conductor))
        live = conductor.max_rounds == 1
        called = await self.history.tool_turn(turns, tenant.name)
        if called is not None:
            ordinals = {name: ordinal for ordinal, name in conductor.pool.names.items()}
            ordinal = ordinals.get(called.worker)
            if ordinal is not None:
                opening = resumed_turns(called, turns)
                resume = partial(conductor.resume, worker=ordinal, opening=opening)
                return _Way(resume, live)
        return _Way(conductor.ask, live)

    def limited(self, conductor: Conductor, control: Control) -> Conductor:
        """Return a Conductor within the limits of a request.

        Raises:
            RequestFailed: a worker is unknown, or none is allowed.
        """
        return replace(
            conductor,
            pool=self._workers(control),
            max_steps=min(conductor.max_steps, control.max_steps or conductor.max_steps),
            max_rounds=control.max_rounds or conductor.max_rounds,
        )

    def _ask_alone(self, model: str, system: SingleWorker, pool: WorkerPool) -> _Way:
        """Return the way to a worker's own answer, which only workers of the pool can take over."""
        if system.worker not in pool:
            message = f"model: {model!r} is not among the allowed workers"
            raise RequestFailed(403, "worker_not_allowed", message)
        alone = SingleWorker(pool, system.worker)
        alone.fallback = system.fallback
        return _Way(alone.ask, live=True, alone=True)

    def _check_baseline(self, request: ClientRequest, pool: WorkerPool) -> None:
        if len(pool) < len(self.pool):
            raise invalid(
                "conductor", f"{request.model!r} asks the whole pool; workers cannot be chosen"
            )
        if request.options.body.get("tools"):
            raise invalid(
                "tools",
                f"{request.model!r} cannot call tools; ask a Conductor or {DIRECT}WORKER",
            )

    def _workers(self, control: Control) -> WorkerPool:
        """Return the workers that a request may use.

        Raises:
            RequestFailed: a name is unknown, or no worker is allowed.
        """
        known = list(self.names.values())
        for name in control.workers or ():
            if name not in known:
                like = nearest(name, known)
                raise invalid("conductor.workers", f"got {name!r}; the nearest is {like!r}")
        allowed = [ordinal for ordinal, worker in self.pool if _is_allowed(worker, control)]
        if not allowed:
            raise invalid("conductor", "no worker of the pool meets it")
        return self.pool if len(allowed) == len(self.pool) else self.pool.subset(allowed)


def _is_alone(system: Orchestrator) -> TypeGuard[SingleWorker]:
    """Return True if a system is one worker; its subclasses ask their worker more than that."""
    return type(system) is SingleWorker


def _is_allowed(worker: Worker, control: Control) -> bool:
    if control.workers is not None and worker.name not in control.workers:
        return False
    if control.tags is not None and set(control.tags).isdisjoint(worker.tags):
        return False
    if control.max_price is None:
        return True
    price = worker.price
    return price is not None and max(price.input, price.output) <= control.max_price
