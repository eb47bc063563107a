"""Evaluations in a database: who joins them, what is agreed on, and whose each question is."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.places import DatabasePlace
from tests.postgres_server import PostgresServer

from openconductor import cli
from openconductor.errors import ConfigError
from openconductor.evaluation import ask_and_settle
from openconductor.evaluation.eval_config import EvalConfig, make_eval_config
from openconductor.evaluation.grid import run_grid
from openconductor.evaluation.joined.cells import JoinedCells
from openconductor.evaluation.records import Results
from openconductor.evaluation.regrade import regrade
from openconductor.types import Episode

TABLES = ("table.json", "table.md", "table.csv")
SYSTEMS = ["worker:maven", "random", "conductor"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def url(database: DatabasePlace) -> str:
    return database.name


def recipe(url: str = "", **values: object) -> EvalConfig:
    defaults = {"systems": SYSTEMS, "task": [{"name": "gym", "limit": 8}], "seed": 1}
    return make_eval_config(defaults | {"journal": url, "concurrency": 3} | values, where="test")


def expire_claimers(url: str) -> None:
    """Let the leases of all processes that have claimed something end."""
    DatabasePlace(url).rows(
        "UPDATE processes SET until = now() - interval '1 s' WHERE id IN (SELECT owner FROM claims)"
    )


# ── claims of records ─────────────────────────────────────────────────────────────────────────────
def test_a_record_is_claimed_by_one_process_until_it_is_kept_or_given_back(
    stores: list[Any],
) -> None:
    ours, theirs = stores
    assert sorted(ours.claim_records(["a", "b", "c"], 2).claimed) == ["a", "b"]
    assert theirs.claim_records(["a", "b", "c"], 3) == (["c"], [])
    assert theirs.claim_records(["a", "b"], 2) == ([], [])
    ours.put_record("a", {"right": True})
    ours.release("a")
    ours.release("b")
    ours.flush()
    assert theirs.claim_records(["a", "b", "c"], 3) == (["b", "c"], ["a"])
    assert ours.claim_records(["a", "b", "c"], 3) == ([], ["a"])


def test_the_claims_of_a_process_end_when_it_closes_the_store_or_is_not_heard_of(
    url: str, stores: list[Any]
) -> None:
    ours, theirs = stores
    with DatabasePlace(url).open() as third:
        assert third.claim_records(["a"], 1).claimed == ["a"]
        assert ours.claim_records(["a"], 1).claimed == []
    assert ours.claim_records(["a"], 1).claimed == ["a"]
    expire_claimers(url)
    assert theirs.claim_records(["a"], 1).claimed == ["a"]


async def test_a_process_that_lost_a_question_keeps_no_record_of_it_and_waits_for_the_others(
    url: str, stores: list[Any]
) -> None:
    ours, theirs = stores
    kept: list[int] = []
    cells = JoinedCells(ours, {"a": "A", "b": "B"}, kept.append)
    assert await anext(cells) == "A"
    expire_claimers(url)
    assert theirs.claim_records(["a"], 1).claimed == ["a"]
    assert await anext(cells) == "B"
    assert await asyncio.gather(cells.confirm("a"), cells.confirm("b")) == [False, True]
    ours.put_record("b", {})
    ours.release("b")
    last = asyncio.create_task(anext(cells, "the end"))
    await asyncio.sleep(0.4)
    assert not last.done()
    theirs.put_record("a", {})
    theirs.release("a")
    assert await last == "the end"
    assert kept == [1]


async def test_a_cell_is_claimed_only_when_it_can_be_asked(stores: list[Any]) -> None:
    ours, theirs = stores
    names = [str(number) for number in range(9)]
    cells = JoinedCells(ours, {name: name for name in names}, lambda _: None)
    asked: list[str] = []
    both_are_asked, may_end = asyncio.Event(), asyncio.Event()

    async def ask(cell: str) -> Episode | None:
        asked.append(cell)
        if len(asked) == 2:
            both_are_asked.set()
        await may_end.wait()

    async def settle(cell: str, episode: Episode) -> None:
        raise AssertionError

    asking = asyncio.create_task(ask_and_settle(cells, ask, settle, concurrency=2))
    await both_are_asked.wait()
    assert sorted(theirs.claim_records(names, 9).claimed) == [n for n in names if n not in asked]
    asking.cancel()


# ── a whole evaluation ────────────────────────────────────────────────────────────────────────────
def test_processes_that_join_ask_each_question_once_and_write_the_same_tables(url: str) -> None:
    values = {"systems": [*SYSTEMS, "cascade"], "learn": {"limit": 4}}
    asyncio.run(run_grid(recipe(**values), "alone"))
    total = 8 * 4 + 4 * 8
    done: dict[str, list[int]] = {"one": [], "two": []}

    async def join(folder: str) -> Results:
        config = recipe(url, **values)
        tell = done[folder].append
        return await run_grid(
            config, folder, joins=True, on_progress=lambda progress: tell(progress.done)
        )

    async def join_both() -> list[Results]:
        return await asyncio.gather(*map(join, done))

    results = asyncio.run(join_both())
    assert [result.missing for result in results] == [0, 0]
    assert [steps[-1] for steps in done.values()] == [total, total]
    for name in TABLES:
        expected = Path("alone", name).read_bytes()
        assert Path("one", name).read_bytes() == expected
        assert Path("two", name).read_bytes() == expected
    place = DatabasePlace(url)
    assert place.rows("SELECT count(*) FROM outcomes") == [(1 + total,)]
    assert place.rows("SELECT count(*) FROM claims") == [(0,)]
    assert place.rows("SELECT count(*) FROM calls WHERE replayed") == [(0,)]


def test_another_recipe_does_not_join(url: str) -> None:
    asyncio.run(run_grid(recipe(url), "one", joins=True))
    with pytest.raises(ConfigError, match="holds another evaluation: seed: got 2, expected 1"):
        asyncio.run(run_grid(recipe(url, seed=2), "two", joins=True))
    assert not Path("two/config.toml").exists()
    asyncio.run(run_grid(recipe(url, concurrency=5, name="other"), "two", joins=True))


def test_what_cannot_be_joined_is_refused_with_the_way_out(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["eval", "worker:maven", "--limit", "2", "--out", "run"]
    on_database = ["--journal", url, "--join"]
    refused = {
        ("--join",): "a SQLite file has one writer: --journal postgresql://USER@HOST/DATABASE",
        ("--journal", "file.sqlite"): "got 'file.sqlite', expected the URL of a database",
        ("--journal", "mysql://host/db"): "got a URL (mysql://…)",
        ("--journal", "postgresql://me:secret@host/db"): "expected it in PGPASSWORD or ~/.pgpass",
        ("--journal", "postgresql://h/db?password=secret"): "expected it in PGPASSWORD",
        (*on_database, "--retry-failed"): "run it once without --join",
    }
    for options, message in refused.items():
        assert cli.main([*base, *options]) == 2, options
        error = capsys.readouterr().err
        assert message in error, error
        assert "secret" not in error
    assert not Path("run").exists()


def test_a_dry_run_looks_at_the_database(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["eval", "worker:maven", "--limit", "2", "--dry-run", "--json", "--join", "--journal"]
    assert cli.main([*command, url]) == 0
    assert '"name": "journal"' in capsys.readouterr().out
    assert DatabasePlace(url).rows("SELECT to_regclass('episodes')") == [(None,)]
    assert cli.main([*command, f"postgresql://me@/none?host={tmp_path}"]) == 1
    assert "store postgresql:///none: " in capsys.readouterr().out


def test_a_run_in_a_database_is_read_graded_again_and_resumed_by_its_folder(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["eval", "worker:maven", "conductor", "--limit", "4", "--seed", "1", "--out", "run"]
    assert cli.main([*base, "--journal", url]) == 0
    assert tomllib.loads(Path("run/config.toml").read_text("utf-8"))["journal"] == url
    assert not list(Path("run").glob("journal.sqlite*"))
    before = Path("run/table.json").read_bytes()
    commands = [
        ["show", "run"],
        ["eval", "--out", "run", "--join"],
        ["eval", "--out", "run", "--json"],
    ]
    for command in commands:
        assert cli.main(command) == 0, command
    assert '"folder": "run"' in capsys.readouterr().out
    assert asyncio.run(regrade("run")).moves == ()
    assert Path("run/table.json").read_bytes() == before
    assert cli.main(["eval", "--out", "run", "--config", "run/config.toml", "journal="]) == 2
    assert f'journal: got "", expected "{url[:20]}' in capsys.readouterr().err


def test_a_copied_run_goes_on_in_its_folder_and_others_join_it(
    url: str, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["eval", *SYSTEMS, "--limit", "4", "--seed", "1", "--budget-calls", "9"]
    whole = ["eval", *SYSTEMS, "--limit", "4", "--seed", "1"]
    assert cli.main([*base, "--out", "run"]) == 1
    assert cli.main([*whole, "--out", "run", "--journal", url, "--join"]) == 2
    assert "is empty, and run has its answers in" in capsys.readouterr().err
    assert cli.main(["store", "copy", "run/journal.sqlite", url]) == 0
    assert cli.main([*whole, "--out", "other", "--journal", url, "--join"]) == 2
    assert "holds answers without a recipe" in capsys.readouterr().err
    assert cli.main([*whole, "--out", "run", "--journal", url, "--join"]) == 0
    assert cli.main([*whole, "--out", "other", "--journal", url, "--join"]) == 0
    assert cli.main([*whole, "--out", "alone"]) == 0
    expected = Path("alone/table.json").read_bytes()
    assert Path("run/table.json").read_bytes() == expected
    assert Path("other/table.json").read_bytes() == expected
    twice = (
        "SELECT key FROM calls WHERE replayable AND NOT replayed GROUP BY key HAVING count(*) > 1"
    )
    assert DatabasePlace(url).rows(twice) == []
    assert len(Results.load("other").records) == 12
