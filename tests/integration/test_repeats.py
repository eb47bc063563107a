"""A request that is repeated under its key is answered once, by whatever replica.

The results of tools may come to another replica than the one that asked for them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import httpx
import pytest
from tests.places import DatabasePlace, Place
from tests.postgres_server import running

from integration.served import PATHS, request_body
from openconductor import Conductor, JournalError, Worker, WorkerPool
from openconductor.serving.app import build_app
from openconductor.serving.gateway import Gateway
from openconductor.serving.key_ring import KeyRing, hash_key
from openconductor.serving.serve_config import KeyTable, ServeConfig
from openconductor.serving.shared.repeats import RepeatedRequest, Repeats
from openconductor.store import SHOWN
from openconductor.testing import Scripted
from openconductor.types import Completion, Message, Usage

PLAN = "model_id = [0]\nsubtasks = ['Answer.']\naccess_list = [[]]"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
KEYS = {"idempotency-key": "k1", "authorization": "Bearer oc-ann"}
TABLES = (KeyTable("ann", hash_key("oc-ann")), KeyTable("ben", hash_key("oc-ben")))


class Desk:
    """A worker whose answers are numbered, and take as long as the test wants."""

    def __init__(self) -> None:
        self.made = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, messages: list[Message]) -> str:
        self.made += 1
        number = self.made
        await self.may_answer.wait()
        if "fail" in messages[-1].content and number == 1:
            raise RuntimeError("broken")
        return f"answer {number}"


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def open_clients(
    stack: AsyncExitStack, worker: Worker, *places: Place, **options: Any
) -> list[httpx.AsyncClient]:
    """Serve from one replica over each place."""
    clients: list[httpx.AsyncClient] = []
    for place in places:
        store = stack.enter_context(place.open(**options))
        conductor = Conductor(lambda _: PLAN, pool=WorkerPool([worker]))
        gateway = Gateway(conductor.pool, store, {"conductor": conductor})
        app = build_app(gateway, KeyRing(TABLES, store), ServeConfig(key=TABLES))
        transport = httpx.ASGITransport(app)
        client = httpx.AsyncClient(transport=transport, base_url="http://test", headers=KEYS)
        clients.append(await stack.enter_async_context(client))
    return clients


@pytest.fixture
async def clients(place: Place, desk: Desk) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Two clients: of the same server over a file, or of two replicas over a database."""
    worker = Worker(desk, name="w", retries=0)
    async with AsyncExitStack() as stack:
        opened = await open_clients(
            stack, worker, *([place, place] if isinstance(place, DatabasePlace) else [place])
        )
        yield [opened[0], opened[-1]]


def repeated(repeats: Repeats) -> RepeatedRequest:
    """One request, as a replica reads it."""
    request = repeats.read(KEYS, "ann", PATHS["chat"], request_body("chat"))
    assert request is not None
    return request


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", list(PATHS))
async def test_a_repeated_request_gets_the_same_answer_and_is_paid_for_once(
    clients: list[httpx.AsyncClient], desk: Desk, api: str, stream: bool
) -> None:
    body = request_body(api, stream=stream)
    first = await clients[0].post(PATHS[api], json=body)
    again = await clients[1].post(PATHS[api], json=body)
    assert first.status_code == 200 and "answer 1" in first.text
    assert again.content == first.content
    for name in ("x-request-id", "content-type"):
        assert again.headers[name] == first.headers[name]
    assert desk.made == 1
    other = await clients[1].post(PATHS[api], json=body, headers={"idempotency-key": "k2"})
    assert "answer 2" in other.text


async def test_a_repeat_waits_for_the_request_that_is_under_way(
    clients: list[httpx.AsyncClient], desk: Desk
) -> None:
    desk.may_answer.clear()
    asking = [
        asyncio.create_task(client.post(PATHS["chat"], json=request_body("chat")))
        for client in (*clients, *clients)
    ]
    await asyncio.sleep(0.5)
    assert desk.made == 1
    desk.may_answer.set()
    answers = [await asyncio.wait_for(task, 20) for task in asking]
    assert len({answer.content for answer in answers}) == 1
    assert desk.made == 1


async def test_a_key_is_its_holders_own_and_names_one_request(
    clients: list[httpx.AsyncClient], desk: Desk
) -> None:
    body = request_body("chat")
    await clients[0].post(PATHS["chat"], json=body)
    bens = await clients[1].post(
        PATHS["chat"], json=body, headers={"authorization": "Bearer oc-ben"}
    )
    assert "answer 2" in bens.text
    changed = await clients[1].post(PATHS["chat"], json=request_body("chat", "What else?"))
    assert changed.status_code == 422
    assert changed.json()["error"]["code"] == "idempotency_key_reused"
    long = await clients[1].post(PATHS["chat"], json=body, headers={"idempotency-key": "k" * 256})
    assert long.status_code == 400
    assert desk.made == 2


async def test_what_failed_is_made_anew(clients: list[httpx.AsyncClient], desk: Desk) -> None:
    body = request_body("chat", "Please fail")
    failed = await clients[0].post(PATHS["chat"], json=body)
    assert failed.status_code >= 500
    again = await clients[1].post(PATHS["chat"], json=body)
    assert again.status_code == 200 and "answer 2" in again.text


async def test_an_answer_that_was_deleted_or_is_not_kept_is_made_anew(
    clients: list[httpx.AsyncClient], desk: Desk
) -> None:
    body = request_body("responses")
    first = await clients[0].post(PATHS["responses"], json=body)
    await clients[0].delete(f"/v1/responses/{first.json()['id']}")
    again = await clients[1].post(PATHS["responses"], json=body)
    assert "answer 2" in again.text
    body = request_body("responses", store=False)
    for number in (3, 4):
        fresh = await clients[1].post(
            PATHS["responses"], json=body, headers={"idempotency-key": "k3"}
        )
        assert f"answer {number}" in fresh.text


async def test_where_no_texts_are_kept_a_key_has_no_effect(place: Place, desk: Desk) -> None:
    async with AsyncExitStack() as stack:
        worker = Worker(desk, name="w")
        (client,) = await open_clients(stack, worker, place, content="none")
        for number in (1, 2):
            answer = await client.post(PATHS["chat"], json=request_body("chat"))
            assert f"answer {number}" in answer.text


async def test_a_claim_whose_reply_was_lost_is_given_back(
    stores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = map(Repeats, stores)
    claim_records = stores[0].claim_records

    def lose_the_reply(*values: Any) -> None:
        claim_records(*values)
        raise JournalError("the connection was lost")

    monkeypatch.setattr(stores[0], "claim_records", lose_the_reply)
    with pytest.raises(JournalError):
        await first.find(repeated(first))
    assert await asyncio.wait_for(second.find(repeated(second)), 10) is None


async def test_a_request_that_leaves_while_it_is_claimed_gives_its_claim_back(
    stores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = map(Repeats, stores)
    claim_records = stores[0].claim_records
    claiming, may_end = threading.Event(), threading.Event()

    def claim_slowly(*values: Any) -> Any:
        claiming.set()
        may_end.wait(20)
        return claim_records(*values)

    monkeypatch.setattr(stores[0], "claim_records", claim_slowly)
    leaving = asyncio.create_task(first.find(repeated(first)))
    await asyncio.to_thread(claiming.wait, 20)
    leaving.cancel()
    await asyncio.sleep(0.1)
    may_end.set()
    await asyncio.wait((leaving,))
    assert await asyncio.wait_for(second.find(repeated(second)), 10) is None


async def test_a_repeat_claims_a_request_after_its_end_is_written_and_keeps_that_claim(
    stores: list[Any], database: DatabasePlace
) -> None:
    import psycopg

    from openconductor.store.postgres.database import LOCK, WRITING

    first, second = map(Repeats, stores)
    assert await first.find(repeated(first)) is None
    with psycopg.connect(database.name, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s, %s)", (LOCK, WRITING))  # writers wait
        ending = asyncio.create_task(first.end(repeated(first)))
        again = asyncio.create_task(first.find(repeated(first)))
        await asyncio.sleep(0.5)
        assert not again.done()
    await ending
    assert await asyncio.wait_for(again, 10) is None
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(second.find(repeated(second)), 0.5)


async def test_an_answer_that_was_acknowledged_outlives_a_crash_of_the_database(
    desk: Desk,
) -> None:
    with running() as server:
        database = DatabasePlace(server.new_place())
        async with AsyncExitStack() as stack:
            worker = Worker(desk, name="w", retries=0)
            first, second = await open_clients(stack, worker, database, database)
            body = request_body("chat")
            answer = await first.post(PATHS["chat"], json=body)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            again = await second.post(PATHS["chat"], json=body)
            assert again.content == answer.content
            assert desk.made == 1


async def test_the_results_of_tools_are_answered_by_another_replica(
    database: DatabasePlace,
) -> None:
    call = {"id": "own0", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    asking = Completion("", tool_calls=(call,), finish_reason="tool_calls", usage=Usage(5, 0, 5))
    provider = Scripted([asking, Completion("13", usage=Usage(5, 0, 1))])
    async with AsyncExitStack() as stack:
        first, second = await open_clients(stack, Worker(provider, name="w"), database, database)
        body = request_body("chat", tools=[TOOL])
        asked = await first.post(PATHS["chat"], json=body, headers={"idempotency-key": ""})
        message = asked.json()["choices"][0]["message"]
        (served,) = message["tool_calls"]
        result = {"role": "tool", "tool_call_id": served["id"], "content": "13"}
        turns = [*body["messages"], message, result]
        told = await second.post(
            PATHS["chat"], json={**body, "messages": turns}, headers={"idempotency-key": ""}
        )
    assert told.json()["choices"][0]["message"]["content"] == "13"
    assert provider.calls[-1].messages[-1].parts[0] == {"tool_call_id": "own0"}


def test_what_is_sent_of_an_answer_is_no_answer_of_responses(place: Place) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(place.open())
        store.put_record(f"{SHOWN}e1", {"sent": "text"})
        store.flush()
        assert (
            Gateway(WorkerPool([Worker(Desk(), name="w")]), store, {}).history.response("e1", "ann")
            is None
        )
