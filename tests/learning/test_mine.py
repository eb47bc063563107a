"""From questions of one's own to a trained Conductor, on recorded answers alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.learning import trades
from tests.learning.trades import Tradesman

import openconductor as oc
from openconductor.errors import BudgetExceeded, ConfigError, TaskError
from openconductor.prompt import render_workflow
from openconductor.store import open_store
from openconductor.tasks import load_task
from openconductor.training.scoring import Sampled, Scorer
from openconductor.training.setup import load_questions, open_workers
from openconductor.training.train_config import TrainConfig, load_train_config
from openconductor.types import Completion, Step, Workflow

pytestmark = pytest.mark.train

RECIPE = Path(__file__).parents[2] / "recipes" / "mine.toml"
TASK = "tests.learning.trades:TRADES"
Run = Callable[..., Any]


def record(folder: Path, run: Run, count: int) -> None:
    """Ask every worker every question once, and write the table, as docs/training.md says."""
    questions, pool = trades.open_shop(folder, count)
    task = ("--task", TASK, "--task-path", f"{TASK}={questions}")
    assert run("eval", "workers", "--pool", pool, *task, "--out", "answers").code == 0
    made = run("pool", "replay", "answers", "--out", "answers.csv.gz", "--json").json()
    assert (made["questions"], made["left_out"]) == (count, 0)
    assert made["models"] == [*trades.WORKERS]


@pytest.fixture
def shop(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with thirty questions, a pool and a table of its answers; no call counts yet."""
    monkeypatch.chdir(tmp_path)
    record(tmp_path, run, 30)
    Tradesman.calls.clear()
    return tmp_path


def recipe(*overrides: str) -> TrainConfig:
    return load_train_config(RECIPE, overrides)


CHAIN = (Step(0, "Solve it."), Step(1, "Check it.", "all"))


@pytest.mark.parametrize("calls", [0, 1])
def test_a_record_answers_steps_that_see_nothing_and_a_budget_pays_for_the_others(
    shop: Path, calls: int
) -> None:
    config = recipe("rollout.max_steps=2", f"budget.calls={calls}")
    questions = load_questions(config)
    with open_store(shop / "journal.sqlite") as journal:
        pool = open_workers(config, questions, journal)
        scorer = Scorer(config, pool, questions.grader, journal)
        plans = [Workflow((Step(worker, "Do it."),)) for worker in range(3)] + [Workflow(CHAIN)]
        problem = questions.learnt[0]
        *alone, chain = [
            Sampled(problem, Completion(render_workflow(plan)), sample=7) for plan in plans
        ]
        try:
            right = [scored.correct for scored in scorer.score(alone, phase="alone")]
            _, trade = Tradesman.rows[trades.bare(problem.question)]
            own = [*trades.WORKERS.values()].index(trade)
            assert right[own] and Tradesman.calls == {}
            assert journal.totals().counted.calls == 0, "nothing was paid"
            if calls:
                scorer.score([chain], phase="chain")
                scorer.score([chain], phase="again")
            else:
                with pytest.raises(BudgetExceeded):
                    scorer.score([chain], phase="chain")
        finally:
            scorer.close()
    assert Tradesman.calls == ({"atlas": 1} if calls else {}), "the journal answers repeats"


FAULTS = {
    "rollout.max_steps=2": r"budget.calls: got no limit, and steps may see earlier answers",
    "rollout.rounds=2": r"budget.calls: got no limit, and steps of second rounds see",
    "pool=more.toml": r"budget.calls: got no limit, and answers.csv.gz has no answers of baker",
    "pool=other.toml": r"no worker has answers in answers.csv.gz, such as 'baker'; .* calculator",
}


@pytest.mark.parametrize("override", FAULTS)
def test_a_training_from_records_makes_no_live_call_without_a_limit(
    shop: Path, override: str
) -> None:
    pool = (shop / "pool.toml").read_text()
    _, baker, rest = pool.partition("[[worker]]")[2].replace("calculator", "baker").partition("\n")
    other = f"[[worker]]{baker}{rest.partition('[[worker]]')[0]}"
    (shop / "other.toml").write_text(other)
    (shop / "more.toml").write_text(pool + other)
    config = recipe(override)
    with pytest.raises(ConfigError, match=FAULTS[override]):
        open_workers(config, load_questions(config))


def test_the_recipe_as_it_ships_is_ready_beside_a_pool_and_a_table(shop: Path, run: Run) -> None:
    dry = run("train", RECIPE, "--dry-run", "--offline", "--json").json()
    assert {check["state"] for check in dry["checks"]} == {"ready"}
    assert (dry["calls"], dry["dollars"], dry["recorded"]) == (0, "0", True)
    (shop / "pool.toml").unlink()
    ran = run("train", RECIPE, "--out", "run")
    assert ran.code == 2 and "pool.toml: no such file" in ran.err


def test_a_longest_question_has_to_fit_a_fresh_model(shop: Path, run: Run) -> None:
    ran = run("train", RECIPE, "--dry-run", "model.positions=80")
    assert ran.code == 1
    assert "model.positions: got 80, expected at least" in " ".join(ran.out.split())


def test_a_completion_has_to_have_room_for_a_plan_of_the_cold_start(shop: Path, run: Run) -> None:
    ran = run("train", RECIPE, "--dry-run", "rollout.max_tokens=10")
    assert ran.code == 1
    assert "rollout.max_tokens: got 10, expected at least" in " ".join(ran.out.split())


def test_questions_that_changed_since_are_not_taken_for_those_that_were_recorded(
    shop: Path,
) -> None:
    path = shop / "questions.jsonl"
    path.write_text(path.read_text().replace("What", "what"))
    task = load_task("replay", path="answers.csv.gz")
    with pytest.raises(TaskError, match=r"got another text in task trades, expected the ques"):
        _ = [task.load(split) for split in task.splits]


def test_an_evaluation_of_recorded_questions_calls_nobody(shop: Path, run: Run) -> None:
    task = ("--task", "replay", "--task-path", "replay=answers.csv.gz")
    systems = ("workers", "oracle_observed")
    ran = run("eval", *systems, "--pool", "pool.toml", *task, "--out", "again", "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["spent"]["calls"] == 0 and Tradesman.calls == {}


def share_planned(folder: Path) -> float:
    """Ask a trained Conductor the held-out questions as users do; return the share of plans."""
    problems = load_task("replay", path="answers.csv.gz").load("test")
    conductor = oc.Conductor(folder, pool="pool.toml")
    episodes = [conductor.ask_sync(trades.bare(problem.question)) for problem in problems]
    planned = [episode for episode in episodes if episode.rounds[0].workflow is not None]
    return len(planned) / len(episodes)


SEEDS = (1, 2, 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_conductor_over_ones_own_workers_is_as_good_as_the_best_plan_of_each_question(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train three seeds: of 95 % of the best plans, where no constant plan has more than 60 %.

    Asked without the form of the answer, as users ask, it plans as well.
    """
    monkeypatch.chdir(tmp_path)
    record(tmp_path, run, 600)
    Tradesman.calls.clear()
    figures: dict[int, tuple[float, float]] = {}
    for seed in SEEDS:
        begun = time.process_time()
        ran = run("train", RECIPE, f"seed={seed}", "--out", f"run-{seed}", "--json")
        seconds = time.process_time() - begun
        assert ran.code == 0, ran.err
        results = json.loads(ran.out)
        best = results["workers"]["best_of_each"]
        constant = max(results["workers"]["alone"].values())
        assert constant <= 0.6 * best
        figures[seed] = results["greedy"]["accuracy"] / best, seconds
    assert Tradesman.calls == {}, "not one further call"
    planned = {seed: share_planned(Path(f"run-{seed}")) for seed in SEEDS}
    print(figures, planned)
    assert min(planned.values()) >= 0.95, planned
    assert min(share for share, _ in figures.values()) >= 0.95, figures
    assert max(seconds for _, seconds in figures.values()) <= 300, figures
