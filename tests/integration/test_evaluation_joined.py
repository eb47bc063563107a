"""Processes that join one evaluation write the tables of one process, and pay no answer twice.

They are killed and started again at random moments, together and one by one. The server counts the
requests: beyond those of a run in peace there are only calls that were in flight at a kill. The
database has every answered call once.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import joined_children
import pytest
from counting_server import answered
from joined_children import LEASE_S
from nursery import Nursery
from sums import AT_ONCE, SIDE_BY_SIDE, TABLES, Peace, Server, in_peace
from tests.places import DatabasePlace
from tests.postgres_server import UNSAFE, PostgresServer, running

SEED = 20_261_127


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with closing(Server(SEED)) as server:
        yield server


@pytest.fixture(scope="module")
def peace(server: Server, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Peace:
    """A recipe, and what comes of it; its parameter: whether systems share equal calls."""
    return in_peace(server, tmp_path_factory.mktemp("peace"), shared=request.param)


class Team:
    """Processes that join one evaluation; two of them share a folder."""

    def __init__(self, size: int, peace: Peace, url: str, folder: Path) -> None:
        self.folders = [folder / "shared", *(folder / f"own-{n}" for n in range(1, size - 1))]
        if size > 1:
            self.folders.append(folder / "shared")
        more = ("--journal", url, "--join")
        self._commands = [peace.command(folder, *more) for folder in self.folders]
        self._members = [Nursery(joined_children.__file__) for _ in range(size)]

    def begin(self, *places: int) -> None:
        for place in places:
            self._members[place].begin(self._commands[place])

    def kill(self, place: int) -> bool:
        """Kill a process; return True if it was still at work."""
        status = self._members[place].end("kill")
        assert status in (0, signal.SIGKILL)
        return status == signal.SIGKILL

    def wait(self, *places: int) -> None:
        for place in places:
            assert self._members[place].end("wait") == 0

    def close(self) -> None:
        for member in self._members:
            member.close()


def paid(place: DatabasePlace) -> Counter[str]:
    """Count the answered calls of each kind in the database, which has none twice."""
    twice = (
        "SELECT key FROM calls WHERE replayable AND NOT replayed GROUP BY key HAVING count(*) > 1"
    )
    if place.rows("SELECT to_regclass('calls')") == [(None,)]:
        return Counter()
    assert place.rows(twice) == []
    with place.read() as reader:
        return answered(reader)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peace", "size", "kills"),
    [(False, 1, 3), (False, 2, 6), (False, 4, 10), (True, 2, 4)],
    indirect=["peace"],
)
def test_processes_that_are_killed_and_come_back_write_the_tables_of_one_and_pay_nothing_twice(
    peace: Peace, size: int, kills: int, server: Server, postgres: PostgresServer, tmp_path: Path
) -> None:
    draws = random.Random(f"{SEED} {size}")
    place = DatabasePlace(postgres.new_place())
    team = Team(size, peace, place.name, tmp_path)
    everybody = range(size)
    before = len(server.asked)
    in_the_middle = 0
    try:
        team.begin(*everybody)
        for kill in range(kills):
            wait_for(server, draws.randint(1, 1 + peace.requests.total() // (2 * kills)))
            time.sleep(draws.uniform(0.0, 0.03))
            held = paid(place)
            asked = Counter(server.asked[before:])
            assert (asked - held).total() <= (1 + kill) * size * AT_ONCE * SIDE_BY_SIDE
            # At every third kill all go; else one, who comes back while the others work.
            leaving = list(everybody) if kill % 3 == 2 else [draws.randrange(size)]
            in_the_middle += sum([team.kill(member) for member in leaving])
            team.begin(*leaving)
        team.wait(*everybody)
        assert paid(place) == peace.requests
        wasted = Counter(server.asked[before:]) - peace.requests
        seen = len(server.asked)
        team.begin(0)  # nothing is left to ask
        team.wait(0)
        assert len(server.asked) == seen
    finally:
        team.close()
    for folder in team.folders:
        for name in TABLES:
            assert (folder / name).read_bytes() == peace.tables[name], folder / name
    print(
        f"{size} processes, {in_the_middle} kills at work; "
        f"{wasted.total()} calls in flight were made again"
    )
    assert wasted.total() <= in_the_middle * AT_ONCE * SIDE_BY_SIDE
    assert in_the_middle >= kills // 2, "too few kills: the test lost its power"


@pytest.mark.slow
@pytest.mark.parametrize("peace", [False], indirect=True)
def test_a_database_that_is_killed_is_waited_for_and_only_calls_in_flight_are_made_again(
    peace: Peace, server: Server, tmp_path: Path
) -> None:
    size, kills = 2, 3
    draws = random.Random(SEED)
    before = len(server.asked)
    with running(*UNSAFE) as postgres:
        place = DatabasePlace(postgres.new_place())
        with closing(Team(size, peace, place.name, tmp_path)) as team:
            team.begin(*range(size))
            for _ in range(kills):
                wait_for(server, draws.randint(1, peace.requests.total() // (2 * kills)))
                postgres.kill()
                time.sleep(draws.uniform(0.0, 1.0))
                postgres.start()
            team.wait(*range(size))
        with place.read() as reader:
            assert answered(reader) >= peace.requests
    # Claims are forgotten with the database, so calls in flight may be made by the other, too.
    wasted = Counter(server.asked[before:]) - peace.requests
    print(f"the database was killed {kills} times; {wasted.total()} calls were made again")
    assert wasted.total() <= kills * size * AT_ONCE * SIDE_BY_SIDE
    for folder in team.folders:
        for name in TABLES:
            assert (folder / name).read_bytes() == peace.tables[name], folder / name


def wait_for(server: Server, requests: int) -> None:
    """Wait until so many more requests have come, or none comes for some seconds."""
    wanted, quiet = len(server.asked) + requests, time.monotonic() + 4 * LEASE_S
    while len(server.asked) < wanted and time.monotonic() < quiet:
        time.sleep(0.002)
