"""Calls that several processes want: one makes each, and the others wait for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.places import DatabasePlace
from tests.postgres_server import PostgresServer

from openconductor import Conductor, JournalError, ServerFailed, Worker, WorkerPool, WorkerTimeout
from openconductor.events import Asked, CallEnded, Event
from openconductor.protocols import CallContext
from openconductor.serving.apis.chat import CHAT
from openconductor.serving.gateway import Gateway
from openconductor.serving.key_ring import KeyRing
from openconductor.types import Completion, Message

PLAN = "model_id = [0]\nsubtasks = ['Answer.']\naccess_list = [[]]"
HELLO = (Message("user", "hello"),)


class Desk:
    """A server whose answers are numbered, and take as long as the test wants."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.began = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.failures = 0

    async def answer(self, messages: list[Message]) -> str:
        self.made.append(messages[-1].content)
        self.began.set()
        await self.may_answer.wait()
        if self.failures:
            self.failures -= 1
            raise ServerFailed("down", status=503)
        return f"answer {len(self.made)}"

    def worker(self, store: Any) -> Worker:
        """Return the worker as another process would make it."""
        return Worker(self.answer, name="w", retries=0).replaying(store)


async def ask(desk: Desk, store: Any, **context: Any) -> Completion:
    """Make a call of an episode that begins with it."""
    call = CallContext(f"e{id(store)}", step=0, **context)
    store(Asked(call.episode, 0, 0.0, "hello", call.sample))
    call = CallContext(call.episode, step=0, on_event=store, **context)
    return await desk.worker(store).complete(HELLO, call=call)


async def test_a_call_that_two_processes_want_at_once_is_made_by_one(stores: list[Any]) -> None:
    desk = Desk()
    asked = [asyncio.create_task(ask(desk, stores[number % 2])) for number in range(6)]
    await desk.began.wait()
    await asyncio.sleep(0.3)
    assert len(desk.made) == 1
    desk.may_answer.set()
    assert {(await task).text for task in asked} == {"answer 1"}
    assert len(desk.made) == 1
    for store in stores:
        store.flush()
    assert stores[0].totals().spent.calls == 1
    assert sum(call.replayed for call in stores[0].calls()) == 5


async def test_other_samples_are_other_calls(stores: list[Any]) -> None:
    desk = Desk()
    desk.may_answer.set()
    await asyncio.gather(*(ask(desk, stores[0], sample=number) for number in range(3)))
    assert len(desk.made) == 3


async def test_a_call_that_failed_is_made_by_the_next_who_waits(stores: list[Any]) -> None:
    desk = Desk()
    desk.failures = 1
    asked = [asyncio.create_task(ask(desk, store)) for store in stores]
    await desk.began.wait()
    desk.may_answer.set()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Completion", "ServerFailed"]
    assert len(desk.made) == 2


async def test_a_call_that_was_cancelled_is_made_by_the_next_who_waits(stores: list[Any]) -> None:
    desk = Desk()
    holder = asyncio.create_task(ask(desk, stores[0]))
    await desk.began.wait()
    waiters = [asyncio.create_task(ask(desk, store)) for store in stores]
    await asyncio.sleep(0.2)
    waiters[0].cancel()
    holder.cancel()
    desk.may_answer.set()
    assert (await waiters[1]).text == "answer 2"


async def test_a_deadline_ends_the_wait_for_another_process(stores: list[Any]) -> None:
    desk = Desk()
    holder = asyncio.create_task(ask(desk, stores[0]))
    await desk.began.wait()
    deadline = asyncio.get_running_loop().time() + 0.2
    with pytest.raises(WorkerTimeout, match="being made elsewhere"):
        await ask(desk, stores[1], deadline=deadline)
    holder.cancel()


async def test_the_claims_of_a_dead_process_are_taken_over(stores: list[Any]) -> None:
    first, second = stores
    assert await first.claim("k") is None
    waiting = asyncio.create_task(second.claim("k"))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    first._database.fetch(
        "UPDATE processes SET until = clock_timestamp() WHERE id = ? RETURNING id",
        (first._claims._owner,),
    )
    assert await asyncio.wait_for(waiting, 30) is None


async def test_a_claim_whose_reply_was_lost_keeps_nobody_waiting(
    stores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = stores[0]._claims
    claim = claims._claim
    replies = iter([JournalError("the pooler restarts")])

    def lose_the_first_reply(keys: Sequence[str]) -> list[str]:
        claimed = claim(keys)
        for error in replies:
            raise error
        return claimed

    monkeypatch.setattr(claims, "_claim", lose_the_first_reply)
    assert await asyncio.wait_for(stores[0].claim("k"), 10) is None
    second = asyncio.create_task(stores[0].claim("k"))
    third = asyncio.create_task(stores[1].claim("k"))
    await asyncio.sleep(0.3)
    assert not second.done() and not third.done()
    stores[0].release("k")
    done, _ = await asyncio.wait([second, third], return_when=asyncio.FIRST_COMPLETED, timeout=10)
    assert len(done) == 1
    for store in stores:
        store.release("k")
    assert await asyncio.wait_for(asyncio.gather(second, third), 10) == [None, None]


async def test_if_the_claims_end_in_a_bug_who_waits_and_who_comes_is_told(
    stores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stores
    assert await first.claim("k") is None
    waiting = asyncio.create_task(second.claim("k"))
    await asyncio.sleep(0.2)

    def fail(keys: Sequence[str]) -> list[str]:
        raise RuntimeError("a bug")

    monkeypatch.setattr("threading.excepthook", lambda _: None)
    monkeypatch.setattr(second._claims, "_find", fail)
    with pytest.raises(JournalError, match="a bug"):
        await asyncio.wait_for(waiting, 10)
    with pytest.raises(JournalError, match="no call is claimed any more"):
        await asyncio.wait_for(second.claim("another"), 10)


async def test_a_request_that_comes_as_the_claims_close_is_told(stores: list[Any]) -> None:
    claims = stores[0]._claims
    claims._queue.put(None)
    with pytest.raises(JournalError, match="is closed"):
        await asyncio.wait_for(claims.claim("k"), 10)


async def test_keys_that_others_hold_keep_no_other_key_waiting(
    stores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openconductor.store.postgres.claims._BATCH", 4)
    first, second = stores
    held = [f"a{number}" for number in range(9)]
    assert await asyncio.gather(*map(first.claim, held)) == [None] * 9
    waiting = [asyncio.create_task(second.claim(key)) for key in held]
    assert await asyncio.wait_for(second.claim("z"), 30) is None
    for key in held:
        first.release(key)
    assert await asyncio.wait_for(asyncio.gather(*waiting), 30) == [None] * 9


async def test_closing_a_store_gives_its_claims_back(stores: list[Any]) -> None:
    first, second = stores
    assert await first.claim("k") is None
    first.close()
    assert await asyncio.wait_for(second.claim("k"), 30) is None


async def test_where_no_texts_are_kept_nothing_is_claimed(postgres: PostgresServer) -> None:
    place = DatabasePlace(postgres.new_place())
    desk = Desk()
    desk.may_answer.set()
    with place.open(content="none") as store:
        await asyncio.gather(*(ask(desk, store) for _ in range(3)))
    assert len(desk.made) == 3
    assert place.rows("SELECT count(*) FROM claims") == [(0,)]


async def test_a_conductor_in_two_processes_asks_every_worker_once(stores: list[Any]) -> None:
    desk = Desk()
    desk.may_answer.set()

    async def play(store: Any, number: int) -> list[Event]:
        events: list[Event] = []

        def on_event(event: Event) -> None:
            events.append(event)
            store(event)

        pool = WorkerPool([Worker(desk.answer, name="w")])
        conductor = Conductor(lambda messages: PLAN, pool=pool).replaying(store)
        episode = await conductor.ask(f"What is {number} + 2?", on_event=on_event)
        assert episode.answer is not None
        return events

    numbers = [number % 5 for number in range(20)]
    played = await asyncio.gather(
        *(play(stores[place % 2], number) for place, number in enumerate(numbers))
    )
    calls = [event.call for events in played for event in events if isinstance(event, CallEnded)]
    assert len(desk.made) == 5
    assert sum(not call.replayed for call in calls if call.worker == "w") == 5
    assert stores[0].totals().by_worker["w"].calls == 5


async def test_a_served_answer_is_in_the_store_before_its_claim_ends(
    stores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    desk.may_answer.set()
    (store, _) = stores
    taken: list[str] = []
    put = store._put

    def note(item: Any) -> None:
        taken.append(type(item).__name__)
        put(item)

    monkeypatch.setattr(store, "_put", note)
    gateway = Gateway(WorkerPool([desk.worker(store)]), store, {})
    request = CHAT.read({"model": "direct:w", "messages": [{"role": "user", "content": "hello"}]})
    turn = await gateway.open(request, KeyRing(()).find({}))
    assert (await turn.answer()).text == "answer 1"
    assert taken.index("CallEnded") < taken.index("Release")
