"""A whole evaluation, without a network: what it writes, what it asks, and what a second run of it does."""

from __future__ import annotations

import asyncio
import csv
import json
import sqlite3
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Adder, pool_of, write_sums

from openconductor.baselines.observed import Observations
from openconductor.baselines.routers import RouterDC
from openconductor.errors import BudgetExceeded, ConfigError, RateLimited
from openconductor.evaluation import runner
from openconductor.evaluation.config import EvalConfig, make_eval_config
from openconductor.evaluation.grid import OnProgress, Progress
from openconductor.evaluation.results import Results
from openconductor.gym.workers import gym_pool
from openconductor.journal import JournalReader
from openconductor.pool import WorkerPool

FILES = {"config.toml", "environment.json", "journal.sqlite", "latency.json"}
TABLES = {"table.json", "table.md", "table.csv", "table.tex"}
BEST_WORKER, SECOND = "worker:maven", "worker:referee"


def made(**values: object) -> EvalConfig:
    told = {"systems": [BEST_WORKER], "task": [{"name": "gym", "limit": 6}], "concurrency": 4, **values}
    return make_eval_config(told, where="test")


def run(config: EvalConfig, folder: Path, *, retry_failed: bool = False, tell: OnProgress | None = None) -> Results:
    return asyncio.run(runner.run_grid(config, folder, retry_failed=retry_failed, on_progress=tell))


def tables(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def paid_calls(folder: Path) -> int:
    with JournalReader(folder / "journal.sqlite") as journal:
        return journal.totals().spent.calls


def paid_for(folder: Path) -> list[str]:
    """The keys of the calls that can be found again; those that failed or were refused cannot."""
    query = "SELECT key FROM calls WHERE replayable AND NOT replayed ORDER BY key"
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection:
        return [key for (key,) in connection.execute(query)]


@pytest.fixture
def adders(monkeypatch: pytest.MonkeyPatch) -> dict[str, Adder]:
    """A pool of our own: ``ada`` is right, ``bob`` is not."""
    adders = {"ada": Adder(), "bob": Adder(1)}

    def load(config: EvalConfig) -> WorkerPool:
        return pool_of(**adders)

    monkeypatch.setattr(runner, "load_pool", load)
    return adders


def sums(tmp_path: Path, *, learn: bool = False, **values: object) -> EvalConfig:
    write_sums(tmp_path / "test.jsonl", range(1, 5))
    write_sums(tmp_path / "train.jsonl", range(11, 15))
    data = tmp_path if learn else tmp_path / "test.jsonl"
    return made(**{"task": [{"name": "gsm8k", "path": str(data)}], "pool": "pool.toml", "concurrency": 1, **values})


# ── what a run writes ────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_run_leaves_a_folder_that_says_what_it_was_and_what_came_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    heard: list[Progress] = []
    results = run(made(systems=[BEST_WORKER, "random"], repeats=2, seed=4), folder, tell=heard.append)
    assert {path.name for path in folder.iterdir() if not path.name.startswith("journal.sqlite-")} == FILES | TABLES
    assert tomllib.loads((folder / "config.toml").read_text("utf-8"))["seed"] == 4
    environment = json.loads((folder / "environment.json").read_text("utf-8"))
    assert environment["inputs"]["tasks"]["gym"]["problems"] == 6
    assert len(environment["inputs"]["workers"]) == 8
    assert [(one.done, one.total) for one in heard] == [(number, 24) for number in range(1, 25)]
    assert len(results.records) == 24 and results.missing == 0
    rows = list(csv.DictReader((folder / "table.csv").read_text("utf-8").splitlines()))
    assert [(row["system"], row["n"], row["k"]) for row in rows] == [(BEST_WORKER, "6", "2"), ("random", "6", "2")]
    assert Results.load(folder) == results


def test_hindsight_asks_every_worker_and_shows_only_what_was_named(tmp_path: Path) -> None:
    results = run(made(systems=["oracle_observed", "random"]), tmp_path / "run")
    assert {record.system for record in results.records} == {"oracle_observed", "random"}
    assert len({record.system for record in results.learning}) == 8
    assert results.missing == 0
    right = {record.problem for record in results.learning if record.correct}
    assert {record.problem for record in results.of("oracle_observed") if record.correct} == right


# ── a second run of the same folder ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("shared", [False, True])
def test_a_run_in_three_parts_is_the_same_as_one_in_peace(tmp_path: Path, shared: bool) -> None:
    config = made(systems=[BEST_WORKER, SECOND, "random", "best_fixed", "oracle"], repeats=2, share_calls=shared)
    peace = run(config, tmp_path / "peace")

    for number in (3, 5):
        heard: list[Progress] = []

        def stop(progress: Progress, heard: list[Progress] = heard, number: int = number) -> None:
            heard.append(progress)
            if len(heard) == number:
                raise ConfigError("enough")

        with pytest.raises(ConfigError, match="enough"):
            run(config, tmp_path / "parts", tell=stop)
    parts = run(config, tmp_path / "parts")
    assert tables(tmp_path / "parts") == tables(tmp_path / "peace")
    assert paid_for(tmp_path / "parts") == paid_for(tmp_path / "peace")
    assert [(one.answer, one.usage.dollars, one.calls) for one in parts.records] == [
        (one.answer, one.usage.dollars, one.calls) for one in peace.records
    ]


def test_a_run_that_is_done_asks_nobody(tmp_path: Path) -> None:
    config = made(systems=[BEST_WORKER, "random"])
    run(config, tmp_path / "run")
    before, paid = tables(tmp_path / "run"), paid_calls(tmp_path / "run")
    heard: list[Progress] = []
    run(config, tmp_path / "run", tell=heard.append)
    assert (heard, tables(tmp_path / "run"), paid_calls(tmp_path / "run")) == ([], before, paid)


def test_systems_that_make_the_same_call_pay_once_where_calls_are_shared(
    tmp_path: Path, adders: dict[str, Adder]
) -> None:
    config = sums(tmp_path, systems=["worker:ada", "best_fixed", "worker:bob"], learn=True, share_calls=True)
    shared = run(config, tmp_path / "shared")  # the best fixed workflow is ada alone
    assert len(adders["ada"].asked) == 4 + 4
    assert [row["accuracy"] for row in json.loads((tmp_path / "shared/table.json").read_text())["rows"]] == [1, 1, 0]
    assert all(record.usage.dollars > 0 for record in shared.records)  # each is billed what it would cost alone
    run(sums(tmp_path, systems=["worker:ada", "best_fixed", "worker:bob"], learn=True), tmp_path / "own")
    assert len(adders["ada"].asked) == 8 + 4 + 8


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_failed_is_masked_and_asked_again_only_on_request(tmp_path: Path, adders: dict[str, Adder]) -> None:
    config = sums(tmp_path, systems=["worker:ada", "worker:bob"])
    adders["ada"].failing[2] = RateLimited("too many")
    first = run(config, tmp_path / "run")
    assert [(one.problem[-1], one.correct) for one in first.of("worker:ada") if one.status == "failed"] == [("1", None)]
    adders["ada"].failing.clear()
    adders["ada"].asked.clear()
    assert run(config, tmp_path / "run").records == first.records
    assert adders["ada"].asked == []
    again = run(config, tmp_path / "run", retry_failed=True)
    assert adders["ada"].asked == [2]
    assert all(one.correct for one in again.of("worker:ada"))
    assert again.of("worker:bob") == first.of("worker:bob")


def test_what_a_system_has_learnt_from_stays_once_it_has_answered(tmp_path: Path, adders: dict[str, Adder]) -> None:
    config = sums(tmp_path, systems=["best_fixed"], learn=True)
    adders["ada"].failing |= {12: RateLimited("too many"), 2: RateLimited("too many")}
    poor = sums(tmp_path, systems=["best_fixed"], learn=True, budget={"calls": 8})
    with pytest.raises(BudgetExceeded):
        run(poor, tmp_path / "run")
    adders["ada"].asked.clear()
    run(config, tmp_path / "run", retry_failed=True)  # nothing has been answered by what was learnt: it may be mended
    assert adders["ada"].asked == [12, 1, 2, 3, 4]
    adders["ada"].asked.clear()
    adders["ada"].failing.clear()
    run(config, tmp_path / "run", retry_failed=True)
    assert adders["ada"].asked == [2]


def test_a_spent_budget_leaves_a_table_of_what_there_is(tmp_path: Path, adders: dict[str, Adder]) -> None:
    config = sums(tmp_path, systems=["best_fixed", "worker:bob"], learn=True, budget={"calls": 3})
    with pytest.raises(BudgetExceeded, match="3 of 16 questions are done: paid 3 calls"):
        run(config, tmp_path / "run")
    table = json.loads((tmp_path / "run" / "table.json").read_text("utf-8"))
    assert (table["missing"], table["learning"]["records"]) == (8, 3)
    assert [row["accuracy"] for row in table["rows"]] == [None, None]
    assert "8 answers are missing" in (tmp_path / "run" / "table.md").read_text("utf-8")


# ── what is refused before anything is paid for ──────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"systems": ["worker:mavn"]}, "nearest is 'maven'"),
        ({"systems": ["consensus:maven?m=5"]}, "no option 'm'"),
        ({"systems": ["consensus:maven?n=0"]}, "expected a whole number from 1"),
        ({"systems": ["smoothie?mode=both"]}, "expected 'independent' or 'dependent'"),
        ({"systems": ["random", BEST_WORKER], "against": "worker:referee"}, "against: got 'worker:referee'"),
        ({"task": [{"name": "gymn"}]}, "'gym'"),
        ({"constrained": {"mavn": {}}}, "nearest is 'maven'"),
    ],
)
def test_a_mistake_in_the_recipe_makes_no_folder(tmp_path: Path, values: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(made(**values), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_evaluation_of_something_else_does_not_go_into_the_folder(tmp_path: Path) -> None:
    run(made(), tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(ConfigError, match=r"systems: got \[\"random\"\], expected \[\"worker:maven\"\]"):
        run(made(systems=["random"]), tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_router_that_was_trained_anew_makes_it_another_evaluation(tmp_path: Path) -> None:
    names = ("maven", "jack")
    seen = Observations(("Sum 1 2.", "Sort 3 1."), names, ((1.0, 0.0), (0.0, 1.0)))
    RouterDC(gym_pool(), observations=seen, seed=0).save(tmp_path / "router.json")
    config = made(systems=[f"routerdc?router={tmp_path / 'router.json'}"])
    run(config, tmp_path / "run")
    paid = paid_calls(tmp_path / "run")
    run(config, tmp_path / "run")
    assert paid_calls(tmp_path / "run") == paid
    RouterDC(gym_pool(), observations=seen, seed=1).save(tmp_path / "router.json")
    with pytest.raises(ConfigError, match=r"is another one: trained: .*router\.json: got"):
        run(config, tmp_path / "run")
