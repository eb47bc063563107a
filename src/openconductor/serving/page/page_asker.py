"""The server as the page asks it: the same models, limits and bills as over the APIs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from openconductor.conductor import Conductor
from openconductor.errors import OpenConductorError
from openconductor.prompt import check_turns
from openconductor.serving.access_log import log_request
from openconductor.serving.apis.wire import (
    Body,
    ClientRequest,
    Control,
    RequestFailed,
    request_failure,
)
from openconductor.serving.gateway import Gateway, OwnWay
from openconductor.serving.key_ring import KeyRing, Tenant
from openconductor.serving.page.reruns import costs_of, own_way, suggest_budget, words_of
from openconductor.serving.turn import Turn
from openconductor.types import Budget, Sampling
from openconductor.ui.asker import EpisodeChange, PageQuestion, Quote
from openconductor.ui.replies import PageProblem

API = "page"
"""Stands for the page where the log and the metrics name an API."""


class PageAsker:
    """Answers what the visitors of the page ask.

    Args:
        gateway: opens episodes.
        keys: who may ask what. A visitor without a key is everybody's tenant.
    """

    def __init__(self, gateway: Gateway, keys: KeyRing) -> None:
        self.example = gateway.example
        self._gateway = gateway
        self._keys = keys
        self._watches: set[asyncio.Task[None]] = set()

    def models(self, key: str | None) -> list[str]:
        """Return the models that a key may ask."""
        return self._gateway.offered(self._tenant(key))

    def workers(self, key: str | None) -> list[str]:
        """Return the names of the workers that a key may use."""
        control = self._tenant(key).limit(Control())
        return control.workers or list(self._gateway.names.values())

    async def ask(self, key: str | None, question: PageQuestion) -> str:
        """Begin to answer; return the id of the episode, which the store has from now on."""
        offered = {"model": self.models(key), "workers": self.workers(key)}
        if not question.model:
            question = replace(question, model=offered["model"][0])
        given = {"model": [question.model], "workers": question.workers}
        for field, names in given.items():
            unknown = [name for name in names if name not in offered[field]]
            if unknown:
                expected = ", ".join(offered[field])
                raise PageProblem(400, f"{field}: got {unknown[0][:99]!r}, expected of {expected}")
        if len(question.workers) == len(offered["workers"]):
            question = replace(question, workers=())
        return await self._open(key, question)

    def quote(self, key: str | None, model: str | None, change: EpisodeChange) -> Quote:
        """Return the price of a change, to an episode that a model answered."""
        _, conductor = self._conductor(key, model)
        try:
            prices = costs_of(change, conductor)
        except OpenConductorError as error:
            raise PageProblem(400, str(error)) from error
        return Quote(words_of(change), prices, suggest_budget(prices))

    async def ask_again(
        self, key: str | None, model: str | None, change: EpisodeChange, budget: Budget
    ) -> str:
        """Begin to answer again; the budget pays for what is not recorded."""
        name, _ = self._conductor(key, model)
        question = PageQuestion(check_turns(change.stored.question), name)
        return await self._open(key, question, partial(own_way, change, budget))

    def stop(self, key: str | None, episode: str) -> None:
        """Stop an episode of the key, if it is running."""
        turn = self._gateway.find_turn(episode)
        if turn is not None and turn.key == self._tenant(key).name:
            turn.cancel(RequestFailed(499, "cancelled", "it was stopped on the page"))

    async def keep(self, name: str, record: Mapping[str, object]) -> None:
        """Keep a record without texts in the store."""
        self._gateway.store.put_record(name, record, texts=False)
        await self._gateway.store.wait_durable()

    async def _open(
        self, key: str | None, question: PageQuestion, way: OwnWay | None = None
    ) -> str:
        """Open an episode, and wait until the store has it."""
        began = time.monotonic()
        try:
            control = Control(workers=list(question.workers) or None, max_dollars=question.dollars)
            request = ClientRequest(
                body=Body(model=question.model, conductor=control),
                model=question.model,
                turns=tuple(question.turns),
                options=Sampling(),
                stream=False,
            )
            tenant = self._tenant(key)
            turn = await self._gateway.open(request, tenant, own_way=way, watched=True)
            watch = asyncio.create_task(self._watch(turn, began))
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)
            await turn.begun()
            await turn.wait_durable()
        except OpenConductorError as error:
            failure = request_failure(error)
            raise PageProblem(failure.status, failure.message) from error
        return turn.id

    async def _watch(self, turn: Turn, began: float) -> None:
        """Wait for the end of an episode; count and log it, as the APIs do."""
        metrics = self._gateway.metrics
        model = turn.request.model
        status = 200
        with metrics.in_flight(API):
            try:
                await turn.answer()
            except RequestFailed as error:
                status = error.status
        metrics.count_request(API, model, status, time.monotonic() - began)
        log_request(
            began,
            status,
            id=turn.id,
            key=turn.key,
            api=API,
            model=model,
            steps=turn.steps,
            tokens=turn.tokens,
            dollars=f"{turn.charged:f}",
        )

    def _conductor(self, key: str | None, model: str | None) -> tuple[str, Conductor]:
        """Return the Conductor that was asked or else the first, with the workers of a key."""
        tenant = self._tenant(key)
        offered = self._gateway.offered(tenant)
        for name in sorted(offered, key=lambda name: name != model):
            system = self._gateway.systems[name]
            if isinstance(system, Conductor):
                return name, self._gateway.limited(system, tenant.limit(Control()))
        raise PageProblem(403, "This key may ask no Conductor, and so no workflow again.")

    def _tenant(self, key: str | None) -> Tenant:
        try:
            return self._keys.named(key or "")
        except RequestFailed as error:
            raise PageProblem(error.status, error.message) from error
