"""Money that replicas share: the last cent is spent once, and that of a dead replica comes back."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import pytest
from tests.places import DatabasePlace

from integration.test_serving_process import wait_until
from openconductor.calls.budget import BudgetMeter
from openconductor.errors import BudgetExceeded, JournalError
from openconductor.events import Asked, CallEnded
from openconductor.serving.apis.wire import RequestFailed
from openconductor.serving.key_ring import KeyRing, Tenant, hash_key
from openconductor.serving.serve_config import KeyTable
from openconductor.store import Balance
from openconductor.types import Budget, Call, Message, Price, Sampling, Usage

CENT = Decimal("0.01")
PRICE = Price(Decimal(0), Decimal(10_000))  # a cent a token written
HELLO = (Message("user", "hello"),)


def tenant_of(store: Any, **options: Any) -> Tenant:
    table = KeyTable("ann", hash_key("oc-ann"), **{"period": "total", **options})
    return KeyRing([table], store).find({"x-api-key": "oc-ann"})


def one_call(cents: int, most: int) -> CallEnded:
    usage = Usage(0, 0, cents, dollars=cents * CENT)
    sampling = Sampling(max_tokens=most)
    return CallEnded(
        "e", 0, 0.0, 0, Call("w", "answered", HELLO, sampling, usage=usage, price=PRICE)
    )


def books(database: DatabasePlace) -> tuple[Decimal, Decimal, Decimal, Decimal]:
    """Return what the account holds, and the sums of its charges and slices."""
    (row,) = (
        database.rows("""SELECT spent, reserved, (SELECT coalesce(sum(dollars), 0) FROM charges),
        (SELECT coalesce(sum(dollars), 0) FROM slices) FROM accounts""")
    )
    return row


async def spend(tenant: Tenant, episode: str, *, cents: int, most: int, seconds: float = 0) -> bool:
    """Make a call that may cost ``most`` cents and costs fewer; return False if it is refused."""
    try:
        with tenant.admit() as bill:
            bill.open(episode)
            meter = BudgetMeter(Budget(), now=0.0, payer=bill.budget)
            try:
                with await meter.reserve_call(Usage(dollars=most * CENT), worker="w") as reserved:
                    await asyncio.sleep(seconds)
                    ended = one_call(cents, most)
                    reserved.charge(ended.call.usage)
                    bill.add(ended)
            finally:
                bill.close()
    except (BudgetExceeded, RequestFailed):
        return False
    return True


# ── the account ───────────────────────────────────────────────────────────────────────────────────
def test_what_is_reserved_and_charged_never_passes_the_limit(
    stores: list[Any], database: DatabasePlace
) -> None:
    first, second = (store.accounts for store in stores)
    first.open("a", Decimal(1))
    first.open("a", Decimal(5))
    assert first.reserve("a", Decimal(10), Decimal(6)) == (6, 1)
    assert second.reserve("a", Decimal(10), Decimal(4)) == (0, 1)
    assert second.reserve("a", Decimal(10), Decimal(0)) == (Decimal("0.03"), 1)
    assert first.watch(["a"]) == {"a": True}
    first.charge("a", "e1", Decimal("2.5"), closed=False)
    first.charge("a", "e1", Decimal(4), closed=True)
    stores[0].flush()
    assert books(database) == (5, Decimal("2.03"), 4, Decimal("2.03"))
    first.keep("a", Decimal(0))
    first.keep("a", Decimal(3))
    assert second.reserve("a", Decimal(10), Decimal("4.97")) == (Decimal("4.97"), 5)
    assert second.reserve("a", Decimal(10), Decimal("0.01")).granted == 0
    assert books(database) == (5, 5, 4, 5)


async def test_a_slice_whose_reply_was_lost_comes_back_when_it_is_wanted(
    stores: list[Any], database: DatabasePlace
) -> None:
    first, second = (tenant_of(store, dollars=Decimal("1.00")) for store in stores)
    assert await spend(first, "e1", cents=1, most=10)
    (account,) = database.rows("SELECT id FROM accounts")[0]
    assert stores[0].accounts.reserve(account, Decimal(1), Decimal("0.5")).granted > 0
    assert await asyncio.wait_for(spend(second, "e2", cents=90, most=99), 10)
    assert await asyncio.wait_for(spend(first, "e3", cents=9, most=9), 10)


async def test_the_first_slice_of_a_key_comes_back_if_its_reply_was_lost(
    stores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (tenant_of(store, dollars=Decimal("1.00")) for store in stores)
    reserve = stores[0].accounts.reserve

    def lose_the_reply(*values: Any) -> Balance:
        reserve(*values)
        raise JournalError("the connection was lost")

    with monkeypatch.context() as patched:
        patched.setattr(stores[0].accounts, "reserve", lose_the_reply)
        with pytest.raises(JournalError):
            await spend(first, "e1", cents=1, most=90)
    assert await asyncio.wait_for(spend(second, "e2", cents=99, most=99), 10)


async def test_what_an_orchestrator_has_spent_inside_a_call_is_given_to_nobody(
    stores: list[Any],
) -> None:
    first, second = (tenant_of(store, dollars=Decimal("1.00")) for store in stores)
    most = Usage(dollars=90 * CENT)
    with first.admit() as bill:
        bill.open("e1")
        question = BudgetMeter(Budget(), now=0.0, payer=bill.budget)
        with await question.reserve_call(most, worker="orchestrator") as outer:
            inside = BudgetMeter(Budget(), now=0.0, payer=outer)
            with await inside.reserve_call(most, worker="w") as inner:
                inner.charge(most)
            other = asyncio.create_task(spend(second, "e2", cents=50, most=50))
            await asyncio.sleep(0.5)
            assert not other.done()
            outer.charge(most)
            bill.add(one_call(90, 90))
        bill.close()
    assert not await asyncio.wait_for(other, 10)


def test_a_store_that_closes_gives_its_slices_back(
    stores: list[Any], database: DatabasePlace
) -> None:
    for store in stores:
        store.accounts.open("a", Decimal(0))
        assert store.accounts.reserve("a", Decimal(10), Decimal(5)).granted == 5
    stores[1].close()
    assert books(database) == (0, 5, 0, 5)


def connect(database: DatabasePlace) -> Any:
    import psycopg

    return psycopg.connect(database.name)


def kill(database: DatabasePlace, store: Any) -> None:
    """Let a store's process count as dead, until it says that it is alive."""
    database.rows(f"UPDATE processes SET until = '-infinity' WHERE id = '{store._owner}'")


def test_a_dead_replica_is_charged_what_its_calls_cost_and_its_money_comes_back(
    stores: list[Any], database: DatabasePlace
) -> None:
    dead, alive = stores
    dead.accounts.open("a", Decimal(0))
    assert dead.accounts.reserve("a", Decimal(10), Decimal(5)).granted == 5
    for episode, total in (("e1", 2), ("e2", 1)):
        dead.accounts.charge("a", episode, Decimal(total), closed=False)
    dead.flush()
    alive.accounts.settle_dead(lambda _: Decimal(9))
    assert books(database) == (3, 2, 3, 2)  # it lives
    kill(database, dead)
    # The calls of e2 were to be stored at its end: their charge is all that is known of them.
    costs = {"e1": Decimal("2.25"), "e2": Decimal(0)}
    alive.accounts.settle_dead(costs.__getitem__)
    assert books(database) == (Decimal("3.25"), 0, Decimal("3.25"), 0)
    # It was only paused: what it charges counts once, and touches nobody's slice.
    assert alive.accounts.reserve("a", Decimal(10), Decimal(3)).granted == 3
    dead.accounts.charge("a", "e1", Decimal("2.5"), closed=True)
    dead.flush()
    assert books(database) == (Decimal("3.5"), 3, Decimal("3.5"), 3)


def test_settling_for_a_dead_replica_locks_accounts_in_one_order(
    stores: list[Any], database: DatabasePlace
) -> None:
    dead, alive = stores
    for account in ("a", "b"):
        dead.accounts.open(account, Decimal(0))
    assert dead.accounts.reserve("a", Decimal(10), Decimal(5)).granted == 5
    dead.accounts.charge("b", "e1", Decimal(1), closed=False)
    dead.flush()
    kill(database, dead)
    with connect(database) as other, ThreadPoolExecutor() as threads:
        other.execute("SELECT FROM accounts WHERE id = 'a' FOR UPDATE")
        settling = threads.submit(alive.accounts.settle_dead, lambda _: Decimal(2))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: database.rows(waiting) == [(1,)])
        other.execute("SELECT FROM accounts WHERE id = 'b' FOR UPDATE")  # after a, as all do
        other.commit()
        settling.result(30)
    assert database.rows("SELECT id, spent, reserved FROM accounts ORDER BY id") == [
        ("a", 0, 0),
        ("b", 2, 0),
    ]


def test_requests_of_a_minute_are_counted_by_all_replicas_together(stores: list[Any]) -> None:
    first, second = (store.accounts for store in stores)
    assert [first.count_request("a", 3), second.count_request("a", 3)] == [0.0, 0.0]
    assert first.count_request("a", 3) == 0.0
    for accounts in (first, second):
        assert 50 < accounts.count_request("a", 3) <= 60
    assert second.count_request("b", 3) == 0.0


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────
async def test_two_replicas_spend_a_budget_to_within_one_call_and_never_more(
    stores: list[Any], database: DatabasePlace
) -> None:
    tenants = [tenant_of(store, dollars=Decimal("2.00")) for store in stores]

    async def ask(number: int) -> bool:
        tenant = tenants[number % 2]
        return await spend(tenant, f"e{number}", cents=1 + number % 3, most=3, seconds=0.002)

    answered = await asyncio.wait_for(asyncio.gather(*map(ask, range(160))), 60)
    for store in stores:
        store.flush()
    spent, _, charged, _ = books(database)
    cents = [1 + number % 3 for number, was_answered in enumerate(answered) if was_answered]
    assert spent == charged == sum(cents) * CENT
    assert Decimal("1.97") < spent <= Decimal("2.00")


async def test_what_another_replica_has_reserved_and_does_not_need_is_called_back(
    stores: list[Any],
) -> None:
    first, second = (tenant_of(store, dollars=Decimal("1.00")) for store in stores)
    assert await spend(first, "e1", cents=1, most=90)
    assert await asyncio.wait_for(spend(second, "e2", cents=2, most=95), 10)
    assert not await asyncio.wait_for(spend(second, "e3", cents=1, most=98), 10)
    assert await asyncio.wait_for(spend(first, "e4", cents=1, most=97), 10)


async def test_a_call_waits_for_what_calls_of_another_replica_may_leave(stores: list[Any]) -> None:
    first, second = (tenant_of(store, dollars=Decimal("1.00")) for store in stores)
    running = asyncio.create_task(spend(first, "e1", cents=5, most=90, seconds=0.5))
    await asyncio.sleep(0.1)
    assert await asyncio.wait_for(spend(second, "e2", cents=1, most=80), 10)
    assert await running


async def test_the_money_of_a_dead_replica_is_spent_by_another_one(
    stores: list[Any], database: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openconductor.calls.shared_budget._SETTLE_S", 0.1)
    dead, alive = stores
    table = KeyTable("ann", hash_key("oc-ann"), dollars=Decimal("1.00"), period="total")
    tenant = KeyRing([table], dead).find({"x-api-key": "oc-ann"})
    hanging = asyncio.create_task(spend(tenant, "e1", cents=5, most=90, seconds=600))
    await asyncio.sleep(0.3)
    dead(Asked("e1", 0, 0.0, "hello"))
    dead(CallEnded("e1", 0, 0.0, 0, one_call(30, 30).call))
    dead.flush()
    other = tenant_of(alive, dollars=Decimal("1.00"))
    waiting = asyncio.create_task(spend(other, "e2", cents=60, most=65))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    kill(database, dead)
    assert await asyncio.wait_for(waiting, 20)
    alive.flush()
    assert books(database)[:3] == (90 * CENT, books(database)[3], 90 * CENT)
    assert not await asyncio.wait_for(spend(other, "e3", cents=1, most=11), 20)
    hanging.cancel()


async def test_a_replica_that_was_paused_spends_nothing_of_what_others_took(
    stores: list[Any], database: DatabasePlace
) -> None:
    paused, alive = stores
    first, second = (tenant_of(store, dollars=Decimal("1.00")) for store in stores)
    assert await spend(first, "e1", cents=1, most=99)
    kill(database, paused)
    alive.accounts.settle_dead(lambda _: CENT)
    assert await asyncio.wait_for(spend(second, "e2", cents=98, most=99), 10)
    await asyncio.sleep(0.4)  # the next look at the slice
    assert not await asyncio.wait_for(spend(first, "e3", cents=5, most=5), 10)


async def test_a_call_that_costs_more_than_it_reserved_ends_nothing_while_others_leave_enough(
    stores: list[Any],
) -> None:
    tenant = tenant_of(stores[0], dollars=Decimal("1.00"))
    for cents, is_passed in ((40, False), (70, True)):
        with tenant.admit() as bill:
            bill.open(f"e{cents}")
            meter = BudgetMeter(Budget(), now=0.0, payer=bill.budget)
            with await meter.reserve_call(Usage(dollars=CENT), worker="w") as reserved:
                reserved.charge(Usage(dollars=cents * CENT))
            with pytest.raises(BudgetExceeded) if is_passed else nullcontext():
                meter.check_limits()
            bill.close()


async def test_a_budget_of_no_dollars_pays_for_what_is_free(stores: list[Any]) -> None:
    tenant = tenant_of(stores[0], dollars=Decimal(0))
    assert await spend(tenant, "e1", cents=0, most=0)
    assert not await spend(tenant, "e2", cents=1, most=1)


async def test_a_new_period_is_opened_beside_the_event_loop(
    stores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = time.time()
    table = KeyTable("ann", hash_key("oc-ann"), dollars=Decimal("1.00"), period="day")
    tenant = KeyRing([table], stores[0], clock=lambda: wall).find({"x-api-key": "oc-ann"})
    assert await spend(tenant, "e1", cents=100, most=100)
    opening: list[threading.Thread] = []
    open_account = stores[0].accounts.open

    def note(*values: Any) -> None:
        opening.append(threading.current_thread())
        open_account(*values)

    monkeypatch.setattr(stores[0].accounts, "open", note)
    wall += 86_400
    assert await spend(tenant, "e2", cents=100, most=100)
    assert opening and threading.current_thread() not in opening


async def test_what_a_key_spent_before_it_had_an_account_counts(stores: list[Any]) -> None:
    record = {"key": "ann", "began": 1.0, "charged": "0.97"}
    stores[0].put_record("serve/e0", record, texts=False)
    stores[0].flush()
    tenants = [tenant_of(store, dollars=Decimal("1.00")) for store in stores]
    assert [await spend(tenant, "e", cents=4, most=4) for tenant in tenants] == [False, False]
    assert await spend(tenants[0], "e1", cents=3, most=3)
    assert not await spend(tenants[1], "e2", cents=1, most=1)


async def test_old_episodes_stay_until_their_keys_are_charged(
    stores: list[Any], database: DatabasePlace
) -> None:
    from openconductor.store import prune_store

    dead, alive = stores
    dead.accounts.open("a", Decimal(0))
    for episode in ("open", "closed"):
        dead(Asked(episode, 0, 0.0, "hello"))
        dead.accounts.charge("a", episode, Decimal(1), closed=episode == "closed")
    dead.flush()
    prune_store(database.name, 9e9)
    assert [episode.id for episode in alive.episodes()] == ["open"]
    kill(database, dead)
    alive.accounts.settle_dead(lambda _: Decimal(2))
    prune_store(database.name, 9e9)
    assert alive.episodes() == []
    assert alive.accounts.spent("a") == 3
