"""A budget that the processes of an evaluation share: one account, spent to its end."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import joined_children
import pytest
from nursery import Nursery
from tests.places import DatabasePlace
from tests.postgres_server import PostgresServer

from integration.counting_server import CountingServer, Turns, write_pool
from openconductor import cli
from openconductor.errors import BudgetExceeded
from openconductor.evaluation.eval_config import EvalConfig, make_eval_config
from openconductor.evaluation.grid import run_grid
from openconductor.evaluation.records import Results

TABLES = ("table.json", "table.md", "table.csv")
WRITTEN = 10
DOLLAR_A_CALL = Decimal("0.01")
QUESTIONS = 20
CALLS = 3 * QUESTIONS


class CountedWorkers(CountingServer):
    """Workers each of whose answers costs a cent; the requests are counted."""

    PAUSE_S = (0.005, 0.02)

    def __init__(self) -> None:
        super().__init__(1)

    def text(self, model: str, turns: Turns, asked: str) -> str:
        return "A" * WRITTEN


@pytest.fixture
def counted() -> Iterator[CountedWorkers]:
    with closing(CountedWorkers()) as server:
        yield server


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: CountedWorkers) -> None:
    monkeypatch.chdir(tmp_path)
    prices = (0, 1000)
    write_pool(Path("pool.toml"), counted.url, "a", "b", "c", prices=prices, most_tokens=WRITTEN)


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_place()


def recipe(url: str, **budget: object) -> EvalConfig:
    values: dict[str, object] = {
        "pool": "pool.toml",
        "systems": ["workers"],
        "task": [{"name": "gym", "limit": QUESTIONS}],
        "seed": 1,
        "concurrency": 4,
        "journal": url,
        "budget": budget,
    }
    return make_eval_config(values, where="test")


async def join(config: EvalConfig, folder: str) -> Results | BudgetExceeded:
    try:
        return await run_grid(config, folder, joins=True)
    except BudgetExceeded as error:
        return error


def join_all(config: EvalConfig, *folders: str) -> list[Results | BudgetExceeded]:
    async def together() -> list[Results | BudgetExceeded]:
        return await asyncio.gather(*(join(config, folder) for folder in folders))

    return asyncio.run(asyncio.wait_for(together(), 120))


@pytest.mark.parametrize(
    ("budget", "calls"), [({"calls": 25}, 25), ({"dollars": 0.25}, 25), ({"dollars": 0.255}, 25)]
)
def test_processes_spend_one_budget_to_its_last_call_and_no_further(
    url: str, counted: CountedWorkers, budget: dict[str, object], calls: int
) -> None:
    ended = join_all(recipe(url, **budget), "one", "two", "three")
    assert len(counted.asked) == calls
    for error in ended:
        assert isinstance(error, BudgetExceeded)
        assert error.limit == next(iter(budget))
        assert "the evaluation's budget is spent" in str(error)
        assert "With a larger budget the same command goes on from there" in str(error)
    place = DatabasePlace(url)
    assert place.rows("SELECT count(*) FROM claims") == [(0,)]
    assert place.rows("SELECT sum(reserved) FROM accounts") == [(0,)]
    assert place.rows("SELECT count(*) FROM bills") == [(0,)]
    spent = calls if "calls" in budget else calls * DOLLAR_A_CALL
    assert place.rows("SELECT spent FROM accounts") == [(spent,)]


def test_calls_that_processes_make_for_each_other_are_counted_once(
    url: str, counted: CountedWorkers
) -> None:
    systems = ("workers", "consensus:a?n=2", "reflection:a")
    config = replace(recipe(url, calls=70), systems=systems, share_calls=True)
    ended = join_all(config, "one", "two", "three")
    assert [type(error) for error in ended] == [BudgetExceeded] * 3
    assert len(counted.asked) == 70
    assert DatabasePlace(url).rows("SELECT spent, reserved FROM accounts") == [(70, 0)]


def test_a_larger_budget_goes_on_and_ends_in_the_tables_of_one_process(
    url: str, counted: CountedWorkers
) -> None:
    join_all(recipe(url, calls=25, dollars=1), "one", "two")
    ended = join_all(recipe(url, calls=CALLS, dollars=1), "one", "two")
    assert len(counted.asked) == CALLS
    asyncio.run(run_grid(recipe(""), "alone"))
    for folder, results in zip(("one", "two"), ended, strict=True):
        assert isinstance(results, Results), results
        for name in TABLES:
            assert Path(folder, name).read_bytes() == Path("alone", name).read_bytes()


def test_what_runs_without_a_budget_have_spent_counts_for_those_that_join(
    url: str, counted: CountedWorkers
) -> None:
    with pytest.raises(BudgetExceeded):
        asyncio.run(run_grid(recipe(url, calls=10), "alone"))
    (error,) = join_all(recipe(url, calls=10), "one")
    assert isinstance(error, BudgetExceeded)
    assert len(counted.asked) == 10
    join_all(recipe(url, calls=15), "one")
    with pytest.raises(BudgetExceeded):
        asyncio.run(run_grid(recipe(url, calls=20), "alone"))
    join_all(recipe(url, calls=30), "one", "two")
    assert len(counted.asked) == 30


def test_the_command_ends_as_without_join(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["eval", "workers", "--pool", "pool.toml", "--limit", "4", "--budget-dollars", "0.03"]
    ended: list[tuple[int, str]] = []
    for options in (["--out", "alone"], ["--out", "joined", "--journal", url, "--join"]):
        code = cli.main([*command, *options])
        ended.append((code, capsys.readouterr().err.partition("; the run's budget")[0]))
    assert ended[0][0] == ended[1][0] == 1
    said = "the evaluation's budget is spent, 3 of 12 questions are done: paid 3 calls and $0.03"
    assert said in ended[0][1] and said in ended[1][1]
    assert "3 of 12" in ended[1][1]


@pytest.mark.slow
def test_processes_that_are_killed_never_pass_the_budget_by_more_than_what_was_in_flight(
    url: str, counted: CountedWorkers, tmp_path: Path
) -> None:
    draws = random.Random(20_261_127)
    size, budget, at_once = 3, 45, 4
    command = ["eval", "workers", "--pool", "pool.toml", "--limit", str(QUESTIONS), "--seed", "1"]
    command += ["--concurrency", str(at_once), "--budget-calls", str(budget)]
    command += ["--journal", url, "--join"]
    kills = 0
    with ExitStack() as stack:
        team = [Nursery(joined_children.__file__) for _ in range(size)]
        for member in team:
            stack.callback(member.close)
        for place, member in enumerate(team):
            member.begin([*command, "--out", str(tmp_path / f"own-{place}")])
        for wanted in (6, 14, 22):
            end = time.monotonic() + 30
            while len(counted.asked) < wanted and time.monotonic() < end:
                time.sleep(0.002)
            place = draws.randrange(size)
            kills += team[place].end("kill") == signal.SIGKILL
            team[place].begin([*command, "--out", str(tmp_path / f"own-{place}")])
        statuses: list[Any] = [member.end("wait") for member in team]
    assert statuses == [256, 256, 256]  # exit code 1
    assert kills
    # A call of a killed process was sent, and may not be known.
    assert budget <= len(counted.asked) <= budget + kills * at_once
