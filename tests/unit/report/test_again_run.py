"""A planner that is asked again for a run: by its model, over the run's journals, and paid once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import looking_workers
import pytest
from looking_workers import shown

from openconductor.cli.report import say_failed_planning
from openconductor.errors import BudgetExceeded, ConfigError, ServerFailed
from openconductor.evaluation import grid
from openconductor.evaluation.eval_config import make_eval_config
from openconductor.evaluation.records import Results
from openconductor.report.replays import Replays, load_conductor, read_replays, replay_plans
from openconductor.store import read_store

RUN = Path("run")
QUESTIONS = 6


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work where there are six questions, and a pool of a planner and two workers."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"question": f"What is animal {number}?", "answer": f"#### {number}"}
        for number in range(1, QUESTIONS + 1)
    ]
    Path("test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    table = '[[worker]]\nname = "{0}"\nprovider = "looking_workers:Zoo"\nmodel = "{0}"\n'
    table += "retries = 0\nprice = {{input = 1, output = 2}}\n"
    names = ("planner", "ann", "bob")
    Path("pool.toml").write_text("".join(map(table.format, names)), "utf-8")
    shown.clear()


def evaluate() -> Results:
    values = {
        "systems": ["conductor", "worker:ann"],
        "pool": "pool.toml",
        "task": [{"name": "gsm8k", "path": "test.jsonl"}],
        "conductor": {"planner": "worker:planner", "rounds": 2},
    }
    return asyncio.run(grid.run_grid(make_eval_config(values, where="test"), RUN))


def ask_again(results: Results, **options: Any) -> Replays:
    conductor = asyncio.run(load_conductor(results, RUN, "conductor"))
    return asyncio.run(replay_plans(results, RUN, conductor=conductor, **options))


def paid() -> int:
    with read_store(RUN / "counterfactual.sqlite") as store:
        return store.totals().spent.calls


def test_second_rounds_are_planned_again_on_own_answers_and_on_those_of_other_questions() -> None:
    results = evaluate()
    first = list(shown)
    assert sorted(first) == [(f"{number}", f"{number}") for number in range(1, QUESTIONS + 1)]
    asyncio.run(replay_plans(results, RUN))
    without = paid()
    shown.clear()
    again = ask_again(results).plays.again
    assert again is not None and len(again.shape) == QUESTIONS
    own = [pair for pair in shown if pair[0] == pair[1]]
    others = [pair for pair in shown if pair[0] != pair[1]]
    assert (len(own), len(others)) == (QUESTIONS, QUESTIONS)
    assert {answer for _, answer in others} == {question for question, _ in first}
    assert paid() - without <= 3 * QUESTIONS + QUESTIONS, "its calls, and plays of other rounds"
    assert all(score == [1.0] for score in again.looking.values())
    assert any(score == [0.0] for score in again.elsewhere.values()), "no second answer was asked"


def test_what_was_asked_again_is_paid_once_and_stays_in_later_replays() -> None:
    results = evaluate()
    asked = ask_again(results)
    calls = paid()
    assert ask_again(results) == asked
    assert paid() == calls
    later = asyncio.run(replay_plans(results, RUN))
    assert later.plays.again == asked.plays.again
    assert read_replays(results, RUN, "conductor") == later


def test_the_number_of_questions_is_a_choice() -> None:
    again = ask_again(evaluate(), planned=3).plays.again
    assert again is not None and len(again.shape) == 3


def test_asking_again_ends_with_the_budget_of_replays() -> None:
    results = evaluate()
    asyncio.run(replay_plans(results, RUN))
    with pytest.raises(BudgetExceeded):
        ask_again(results, dollars=Decimal("0.0001"))


def test_plans_are_replayed_by_their_workers_though_the_pool_file_has_another_order() -> None:
    results = evaluate()
    tables = Path("pool.toml").read_text("utf-8").split("[[worker]]")
    Path("pool.toml").write_text("[[worker]]".join([*tables[:2], tables[3], tables[2]]), "utf-8")
    assert ask_again(results).plays.own == {("gsm8k", key): [1.0] for _, key in list_keys(results)}


def list_keys(results: Results) -> list[tuple[str, str]]:
    return [record.key for record in results.of("conductor")]


@pytest.mark.parametrize(
    "lost", ["UPDATE rounds SET workflow = NULL WHERE episode", "DELETE FROM episodes WHERE id"]
)
def test_a_second_round_is_not_planned_again_on_answers_that_the_journal_lacks(lost: str) -> None:
    results = evaluate()
    episode = results.of("conductor")[0].episode
    with closing(sqlite3.connect(RUN / "journal.sqlite")) as journal, journal:
        journal.execute(f"{lost} = ?", (episode,))
    again = ask_again(results).plays.again
    assert again is not None
    reasons = set(again.failures.values())
    assert len(again.failures) == 2, "its own question, and the one that is shown its answers"
    assert len(reasons) == 1 and episode in reasons.pop()
    assert len(again.shape) == QUESTIONS - 2


def test_only_the_planner_of_the_run_is_asked_again_and_another_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = evaluate()
    with pytest.raises(ConfigError, match="worker:ann is no Conductor"):
        asyncio.run(load_conductor(results, RUN, "worker:ann"))
    closed: list[str] = []

    async def close(provider: looking_workers.Zoo) -> None:
        closed.append(provider.name)

    monkeypatch.setattr(looking_workers.Zoo, "aclose", close)
    pool = Path("pool.toml").read_text("utf-8")
    Path("pool.toml").write_text(pool.replace('model = "planner"', 'model = "ann"'), "utf-8")
    with pytest.raises(ConfigError, match="another model now: got 'ann', expected 'planner'"):
        asyncio.run(load_conductor(results, RUN, "conductor"))
    assert closed == ["ann"]


def test_questions_whose_planner_fails_are_counted_with_the_first_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = evaluate()

    def fail(provider: looking_workers.Zoo, prompt: str) -> str:
        if "animal 2?" in prompt or "animal 5?" in prompt:
            raise ServerFailed("the planner is away", retryable=False)
        return "model_id = [1]\nsubtasks = ['Answer.']\naccess_list = [[]]"

    monkeypatch.setattr(looking_workers.Zoo, "plan", fail)
    replays = ask_again(results)
    say_failed_planning(replays)
    said = capsys.readouterr().err
    assert said.startswith("planning was not repeated for 2 questions: it failed; the first: ")
    assert "the planner is away" in said
