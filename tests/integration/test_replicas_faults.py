"""Replicas of the server whose database is away for long, stands still, loses replies, has a full
disk, or whose clock jumps.

Each time all books agree afterwards: no acknowledged answer is lost, nothing is charged twice, no
budget is passed, and every client gets an answer or an error with a code.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
from test_postgres_faults import Clock
from tests.places import DatabasePlace
from tests.postgres_proxy import proxied
from tests.postgres_server import PostgresServer, running
from tests.postgres_small_disk import running_on_small_disk

from integration.test_replicas import (
    CLIENTS,
    LAUNCH,
    LIMIT,
    ONE_CALL,
    Replica,
    Workers,
    ask_all,
    replicas,
    stored_dollars,
    usage_of,
)
from integration.test_serving_process import wait_until

LEASE_S = 3.0  # of the replicas
REQUESTS = 1200
EXPECTED = {"200", "insufficient_quota", "journal_failed"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def workers() -> Iterator[Workers]:
    counting = Workers()
    yield counting
    counting.close()


def ask_through(
    servers: list[Replica], at: dict[int, Callable[[], object]], *more: str
) -> Counter[str]:
    """Ask while faults happen; check that every request had an expected end, or one of ``more``."""
    ended = asyncio.run(ask_all(servers, REQUESTS, at=at))
    print(dict(ended))
    assert set(ended) <= EXPECTED.union(more), ended
    assert ended.total() == REQUESTS
    return ended


def check_books(place: DatabasePlace, server: Replica, workers: Workers) -> Decimal:
    """Check that accounts, journal and workers agree; return what was spent."""
    wait_until(lambda: place.rows("SELECT count(*) FROM bills") == [(0,)], 60)
    spent = usage_of(server)
    assert spent == stored_dollars(place) == workers.dollars
    assert spent <= LIMIT
    twice = "SELECT key FROM calls WHERE replayable GROUP BY key HAVING count(*) > 1"
    assert place.rows(twice) == []
    return spent


def check_end(place: DatabasePlace, servers: list[Replica]) -> None:
    """Stop all replicas; check that nothing stays reserved."""
    for server in servers:
        server.process.terminate()
        server.process.wait(60)
    assert place.rows("SELECT reserved FROM accounts") == [(0,)]


def later(seconds: float, act: Callable[[], object]) -> None:
    threading.Timer(seconds, act).start()


def test_a_database_that_is_away_for_longer_than_a_lease_costs_nobody_a_cent(
    tmp_path: Path, workers: Workers
) -> None:
    # A server ends with the thread that started it.
    with ThreadPoolExecutor(1) as thread, running() as server:
        place = DatabasePlace(server.new_place())

        def start_late() -> None:
            time.sleep(1.5 * LEASE_S)
            server.start()

        with replicas(tmp_path, place, workers.url, 2) as servers:

            def stop_for_long() -> None:
                server.kill()
                thread.submit(start_late)

            ended = ask_through(servers, {250: stop_for_long})
            assert ended["200"] > 100 and ended["insufficient_quota"] > 50
            assert check_books(place, servers[1], workers) > LIMIT - ONE_CALL
            check_end(place, servers)


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_clock_of_the_database_that_jumps_changes_no_book(
    tmp_path: Path, postgres: PostgresServer, workers: Workers, seconds: int
) -> None:
    clock = Clock(postgres.new_place())
    with replicas(tmp_path, clock.place, workers.url, 2) as servers:
        ended = ask_through(servers, {150: lambda: clock.jump(seconds)})
        assert ended["200"] > 100 and ended["insufficient_quota"] > 50
        assert ended["journal_failed"] == 0
        assert check_books(clock.place, servers[1], workers) > LIMIT - ONE_CALL
        check_end(clock.place, servers)


@pytest.mark.parametrize("seconds", [1.0, 2 * LEASE_S])
def test_connections_that_stand_still_for_a_while_lose_nothing(
    tmp_path: Path, postgres: PostgresServer, workers: Workers, seconds: float
) -> None:
    place = DatabasePlace(postgres.new_place())
    with proxied(place.name) as (proxy, url):

        def stand_still() -> None:
            proxy.pause()
            later(seconds, proxy.resume)

        with replicas(tmp_path, DatabasePlace(url), workers.url, 2) as servers:
            ended = ask_through(servers, {250: stand_still})
            assert ended["200"] > 100
            check_books(place, servers[1], workers)
            check_end(place, servers)


def test_commits_that_get_no_reply_are_neither_lost_nor_made_twice(
    tmp_path: Path, postgres: PostgresServer, workers: Workers
) -> None:
    place = DatabasePlace(postgres.new_place())
    with (
        proxied(place.name) as (proxy, url),
        replicas(tmp_path, DatabasePlace(url), workers.url, 2) as servers,
    ):
        ended = ask_through(servers, {150: lambda: proxy.lose_replies_of_commits(6)})
        assert proxy.lost_commits == 6
        assert ended["200"] > 100
        check_books(place, servers[1], workers)
        check_end(place, servers)


def test_a_disk_that_is_full_for_a_while_loses_nothing(tmp_path: Path, workers: Workers) -> None:
    with running_on_small_disk() as (disk, url):
        place = DatabasePlace(url)
        with replicas(tmp_path, place, workers.url, 2) as servers:

            def fill() -> None:
                disk.fill()
                later(2 * LEASE_S, disk.free)

            ended = ask_through(servers, {250: fill})
            assert disk.has_refused()
            assert ended["200"] > 100
            check_books(place, servers[1], workers)
            check_end(place, servers)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have replicas that wait for a database for seconds in place of a minute."""
    patience = "postgres_writer._PATIENCE_S = 4.0\nfrom openconductor.cli"
    launch = LAUNCH.replace("from openconductor.cli", patience)
    monkeypatch.setattr("integration.test_replicas.LAUNCH", launch)


@pytest.mark.usefixtures("impatient")
def test_a_database_that_stays_away_is_an_error_for_everybody(
    tmp_path: Path, workers: Workers
) -> None:
    with running() as server:
        place = DatabasePlace(server.new_place())
        with replicas(tmp_path, place, workers.url, 2) as servers:
            # A server that gave up its database ends, and then nobody can connect.
            ended = ask_through(servers, {250: server.kill}, "connection")
            assert ended["200"] > 100 and ended["journal_failed"] > 0
            assert [replica.process.wait(60) for replica in servers] == [1, 1]


@pytest.mark.usefixtures("impatient")
def test_a_disk_that_stays_full_is_an_error_and_servers_that_are_started_again_go_on(
    tmp_path: Path, workers: Workers
) -> None:
    with running_on_small_disk() as (disk, url):
        place = DatabasePlace(url)
        with replicas(tmp_path, place, workers.url, 2) as servers:
            ended = ask_through(servers, {250: disk.fill}, "connection")
            assert disk.has_refused()
            assert ended["200"] > 100 and ended["journal_failed"] > 0
            assert [replica.process.wait(60) for replica in servers] == [1, 1]
        disk.free()
        again = tmp_path / "again"
        again.mkdir()
        with replicas(again, place, workers.url, 2) as servers:
            answered = "SELECT count(*) FROM episodes WHERE outcome = 'answered'"
            assert place.rows(answered)[0][0] >= ended["200"]
            assert ask_through(servers, {})["200"] > 0
            wait_until(lambda: place.rows("SELECT count(*) FROM bills") == [(0,)], 60)
            spent = usage_of(servers[0])
            assert stored_dollars(place) <= spent <= workers.dollars
            assert workers.dollars - spent <= CLIENTS * ONE_CALL
            assert LIMIT - ONE_CALL < spent <= LIMIT
            check_end(place, servers)
