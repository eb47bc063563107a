"""A database that is away, stands still, loses replies, has a full disk, or a clock that jumps.

Nobody who lives is taken for dead, no statement is waited for without end, and no batch is written
twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from tests.places import DatabasePlace
from tests.postgres_proxy import PostgresProxy, proxied
from tests.postgres_server import UNSAFE, PostgresServer, running
from tests.unit.store.journaled import one_call

from integration.test_serving_process import wait_until
from openconductor import JournalError
from openconductor.store.postgres import database, postgres_writer

LEASE_S = 1.5
HOUR = 3600
ENTITLED = Decimal(5)  # dollars that a process has reserved


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg_pool")
    monkeypatch.setattr(postgres_writer, "LEASE_S", LEASE_S)


def reserve(store: Any) -> None:
    """Reserve some money, which comes back when the store's process is taken for dead."""
    store.accounts.open("a", Decimal(0))
    assert store.accounts.reserve("a", Decimal(100), ENTITLED).granted == ENTITLED


def slices(place: DatabasePlace) -> int:
    return place.rows("SELECT count(*) FROM slices")[0][0]


def add_dead_process(place: DatabasePlace) -> None:
    """Leave what a process leaves that was killed just now: a claim and a slice."""
    place.rows("INSERT INTO processes VALUES ('dead', 7, 'infinity')")
    place.rows("INSERT INTO claims VALUES ('k', 'dead')")
    place.rows("INSERT INTO slices VALUES ('a', 'dead', 5)")
    place.rows("UPDATE accounts SET reserved = reserved + 5")


def settle(store: Any) -> None:
    store.accounts.settle_dead(lambda _: Decimal(0))


# ── who is dead ───────────────────────────────────────────────────────────────────────────────────
def test_a_process_that_says_nothing_for_a_lease_is_buried_by_another_one(
    postgres: PostgresServer,
) -> None:
    place = DatabasePlace(postgres.new_place())
    with place.open() as store:
        reserve(store)
        add_dead_process(place)
        began = time.monotonic()
        settle(store)
        assert slices(place) == 2
        assert asyncio.run(asyncio.wait_for(store.claim("k"), 30)) is None
        assert time.monotonic() - began >= LEASE_S
        settle(store)
        assert slices(place) == 1
        assert place.rows("SELECT reserved FROM accounts") == [(ENTITLED,)]


@pytest.mark.slow
def test_after_an_outage_nobody_is_buried_before_a_lease_has_passed() -> None:
    with running(*UNSAFE) as server:
        place = DatabasePlace(server.new_place())
        with place.open() as first, place.open() as second:
            reserve(second)
            time.sleep(LEASE_S)
            server.kill()
            time.sleep(1.5 * LEASE_S)
            server.start()
            settle(first)  # the second has not been heard of since the outage
            assert slices(place) == 1
            add_dead_process(place)
            began = time.monotonic()
            while slices(place) == 2:
                assert time.monotonic() < began + 30
                settle(first)
                time.sleep(0.05)
            assert time.monotonic() - began >= LEASE_S
            time.sleep(2 * LEASE_S)
            settle(first)
            assert slices(place) == 1  # the second lives


def test_a_process_whose_own_connection_stood_still_buries_nobody_at_once(
    postgres: PostgresServer,
) -> None:
    place = DatabasePlace(postgres.new_place())
    with proxied(place.name) as (proxy, url), DatabasePlace(url).open() as store:
        reserve(store)
        add_dead_process(place)
        time.sleep(LEASE_S / 2)
        proxy.pause()
        time.sleep(LEASE_S)
        proxy.resume()
        time.sleep(LEASE_S / 2)
        settle(store)
        assert slices(place) == 2


@pytest.mark.slow
def test_a_store_reads_again_soon_after_a_long_outage() -> None:
    with running(*UNSAFE) as server:
        place = DatabasePlace(server.new_place())
        with place.open() as store:
            assert store.episodes() == []
            server.kill()
            end = time.monotonic() + 20
            while time.monotonic() < end:
                reads(store)
            server.start()
            wait_until(lambda: reads(store), 5)


def reads(store: Any) -> bool:
    """Return True if a store, which is empty, can be read."""
    try:
        return store.episodes() == []
    except JournalError:
        return False


# ── a clock that jumps ────────────────────────────────────────────────────────────────────────────
class Clock:
    """A clock of the database that a test sets.

    The functions of a schema hide PostgreSQL's own of the same name, where the schema comes first.
    """

    def __init__(self, url: str) -> None:
        self.place = DatabasePlace(f"{url},pg_catalog")
        DatabasePlace(url).rows("""CREATE TABLE clock AS SELECT interval '0' AS ahead;
            CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
            'SELECT pg_catalog.clock_timestamp() + ahead FROM clock'""")

    def jump(self, seconds: int) -> None:
        self.place.rows(f"UPDATE clock SET ahead = ahead + interval '{seconds} seconds'")


@pytest.fixture
def clock(postgres: PostgresServer) -> Clock:
    return Clock(postgres.new_place())


@pytest.fixture(name="database")
def clocked_database(clock: Clock) -> DatabasePlace:
    return clock.place


def test_the_clock_of_a_test_is_the_one_that_the_store_reads(clock: Clock) -> None:
    before = clock.place.rows("SELECT extract(epoch FROM clock_timestamp())")[0][0]
    clock.jump(HOUR)
    after = clock.place.rows("SELECT extract(epoch FROM clock_timestamp())")[0][0]
    assert HOUR <= after - before < HOUR + 60


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_clock_that_jumps_kills_nobody_and_keeps_nobody_alive(
    stores: list[Any], clock: Clock, seconds: int
) -> None:
    first, second = stores
    reserve(second)
    add_dead_process(clock.place)
    clock.jump(seconds)
    settle(first)
    assert slices(clock.place) == 2
    assert asyncio.run(asyncio.wait_for(first.claim("k"), 30)) is None
    settle(first)
    assert slices(clock.place) == 1
    clock.jump(-seconds)
    assert asyncio.run(asyncio.wait_for(second.claim("k2"), 30)) is None
    settle(first)
    assert slices(clock.place) == 1


def test_requests_are_counted_again_after_the_clock_was_set_back(
    stores: list[Any], clock: Clock
) -> None:
    accounts = stores[0].accounts
    assert [accounts.count_request("a", 1), accounts.count_request("b", 1)] == [0.0, 0.0]
    assert 0 < accounts.count_request("a", 1) <= 60
    clock.jump(-HOUR)
    assert accounts.count_request("a", 1) == 0.0
    assert 0 < accounts.count_request("a", 1) <= 60
    clock.jump(HOUR)
    assert accounts.count_request("a", 1) == 0.0


def test_what_others_want_is_forgotten_after_the_clock_was_set_back(
    stores: list[Any], clock: Clock
) -> None:
    first, second = (store.accounts for store in stores)
    reserve(stores[0])
    assert second.reserve("a", ENTITLED, ENTITLED).granted == 0
    assert first.watch(["a"]) == {"a": True}
    clock.jump(-HOUR)
    assert first.watch(["a"]) == {"a": False}


# ── a server that does not answer ─────────────────────────────────────────────────────────────────
@pytest.fixture
def through_proxy(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[PostgresProxy, Any]]:
    """A store behind a proxy, which gives up on a statement after some tenths of a second."""
    with proxied(postgres.new_place()) as (proxy, url), DatabasePlace(url).open() as store:
        monkeypatch.setattr(database, "ANSWER_S", 0.4)
        monkeypatch.setattr(database.DatabaseConnection, "limit_s", 0.4)
        yield proxy, store


def test_a_batch_whose_commit_got_no_reply_is_acknowledged_and_written_once(
    through_proxy: tuple[PostgresProxy, Any],
) -> None:
    proxy, store = through_proxy
    store(one_call(episode="e1"))
    store.flush()
    proxy.lose_replies_of_commits(1)
    store(one_call(episode="e2"))
    store.flush()
    assert proxy.lost_commits == 1
    assert [call.episode for call in store.calls()] == ["e1", "e2"]


def test_a_connection_that_stands_still_delays_a_batch_and_loses_nothing(
    through_proxy: tuple[PostgresProxy, Any],
) -> None:
    proxy, store = through_proxy
    proxy.pause()
    for number in range(3):
        store(one_call(episode=f"e{number}"))
    time.sleep(1.5)
    proxy.resume()
    store.flush()
    assert [call.episode for call in store.calls()] == ["e0", "e1", "e2"]


def test_who_reserves_money_over_a_connection_without_answers_gets_an_error_and_goes_on(
    through_proxy: tuple[PostgresProxy, Any],
) -> None:
    proxy, store = through_proxy
    store.accounts.open("a", Decimal(0))
    proxy.lose_replies_of_commits(1)
    with pytest.raises(JournalError, match=r"did not answer for 0\.4 seconds"):
        reserve(store)
    wait_until(lambda: store.accounts.spent("a") == 0, 10)
    store.accounts.keep("a", Decimal(0))
    reserve(store)
