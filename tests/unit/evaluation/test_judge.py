"""What the rules cannot decide: wrong, masked or judged, over workers that are functions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from judged_workers import Word, asked, faults, verdict

from openconductor.errors import BudgetExceeded, ConfigError, ServerFailed, Unreachable
from openconductor.evaluation import dry_run, grid
from openconductor.evaluation.eval_config import EvalConfig, make_eval_config
from openconductor.evaluation.records import Results, read_folder
from openconductor.evaluation.regrade import Regraded, regrade
from openconductor.evaluation.tables import make_table, much_masked
from openconductor.report.replays import replay_plans
from openconductor.store import read_store

RUN = Path("run")
SUMS = [{"name": "gsm8k", "path": "sums.jsonl"}]
TABLES = ("table.json", "table.md", "table.csv")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work where there are four questions and a pool of three; half the answers are undecided."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": f"q{number}", "question": f"What is animal {number}?", "answer": "a quick animal"}
        for number in range(4)
    ]
    Path("test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    table = '[[worker]]\nname = "{0}"\nprovider = "judged_workers:Word"\nmodel = "{0}"\n'
    table += "retries = 0\nprice = {{input = 1, output = 2}}\n"
    Path("pool.toml").write_text("".join(map(table.format, ("ann", "bob", "judge"))), "utf-8")
    asked.clear()
    yield
    faults.clear()
    verdict["text"] = ""


def recipe(**values: object) -> EvalConfig:
    task = [{"name": "rlpr", "path": "test.jsonl"}]
    defaults = {"systems": ["worker:ann", "worker:bob"], "pool": "pool.toml", "task": task}
    return make_eval_config(defaults | values, where="test")


def play(folder: Path = RUN, **values: object) -> Results:
    return asyncio.run(grid.run_grid(recipe(**values), folder))


def fates(results: Results, system: str = "worker:ann") -> list[tuple[bool | None, str]]:
    return [(record.correct, record.status) for record in results.of(system)]


def tables(folder: Path) -> list[str]:
    return [(folder / name).read_text("utf-8") for name in TABLES]


def paid(folder: Path = RUN) -> tuple[int, Decimal]:
    with read_store(folder / "journal.sqlite") as journal:
        spent = journal.totals().spent
    return spent.calls, spent.usage.dollars


# ── the fates ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("rule", "ann", "bob"),
    [
        ({}, (None, "ungraded"), (None, "ungraded")),
        ({"undecided": "wrong"}, (False, "undecided"), (False, "undecided")),
        ({"judge": "judge"}, (True, "judged"), (False, "judged")),
        ({"judge": "judge", "undecided": "wrong"}, (True, "judged"), (False, "judged")),
    ],
)
def test_what_the_rules_cannot_decide_is_masked_wrong_or_judged(
    rule: dict[str, object], ann: object, bob: object
) -> None:
    results = play(**rule)
    assert fates(results) == [ann, (True, "graded")] * 2
    assert fates(results, "worker:bob") == [bob, (True, "graded")] * 2
    row = make_table(results).row("worker:bob", "rlpr")
    counts = {"undecided": row.undecided, "judged": row.judged, "ungraded": row.ungraded}
    assert [name for name, count in counts.items() if count == 2] == [bob[1]]


def test_the_judge_is_billed_in_the_run_and_in_no_row() -> None:
    results = play(judge="judge")
    assert asked == {"ann": 4, "bob": 4, "judge": 4}
    assert paid() == (12, 12 * Decimal("0.00012"))
    assert {record.calls for record in results.records} == {1}


def test_equal_answers_to_a_question_are_judged_once_however_many_ask_at_the_same_time() -> None:
    play(judge="judge", systems=["worker:ann"], repeats=8)
    assert asked == {"ann": 32, "judge": 2}


@pytest.mark.parametrize("undecided", ["wrong", "masked"])
@pytest.mark.parametrize("text", ["", "I would rather not say."])
def test_a_judge_that_fails_or_gives_no_verdict_masks_by_any_rule(
    undecided: str, text: str
) -> None:
    verdict["text"] = text
    faults.extend([ServerFailed("down")] * 4 * (not text))
    results = play(judge="judge", undecided=undecided)
    assert fates(results) == [(None, "ungraded"), (True, "graded")] * 2
    notes = {record.note for record in results.records if record.correct is None}
    assert all(note.startswith("undecided: the judge") for note in notes)


# ── budgets and resumption ────────────────────────────────────────────────────────────────────────
def test_the_budget_holds_the_judges_calls_and_a_larger_one_goes_on_to_the_same_tables() -> None:
    play(Path("whole"), judge="judge")
    asked.clear()
    for calls in range(1, 12):
        with pytest.raises(BudgetExceeded, match="the evaluation's budget is spent"):
            play(judge="judge", budget={"calls": calls}, concurrency=1)
        assert paid()[0] == calls
    results = play(judge="judge", budget={"calls": 12})
    assert asked == {"ann": 4, "bob": 4, "judge": 4}, "nothing is paid twice"
    assert results.missing == 0
    assert tables(RUN) == tables(Path("whole"))


# ── grading again ─────────────────────────────────────────────────────────────────────────────────
def grade_again(judge: str = "") -> Regraded:
    return asyncio.run(regrade(RUN, judge=judge))


def test_a_finished_run_is_given_a_judge_and_its_answers_are_replayed_from_then_on() -> None:
    play(Path("whole"), judge="judge")
    play()
    asked.clear()
    moves = grade_again("judge").moves
    assert {(move.system, move.before, move.now) for move in moves} == {
        ("worker:ann", None, True),
        ("worker:bob", None, False),
    }
    assert asked == {"judge": 4}
    assert tables(RUN) == tables(Path("whole"))
    assert read_folder(RUN)[0].judge == "judge"
    assert (grade_again().moves, play(judge="judge").missing) == ((), 0)
    assert asked == {"judge": 4}


def test_what_a_judge_failed_at_is_asked_again() -> None:
    faults.append(ServerFailed("down"))
    assert make_table(play(judge="judge")).row("worker:ann", "rlpr").ungraded == 1
    asked.clear()
    assert len(grade_again().moves) == 1
    assert asked == {"judge": 1}


def test_what_a_judge_gave_no_verdict_on_is_asked_again_once_for_equal_answers() -> None:
    verdict["text"] = "I would rather not say."
    play(judge="judge", systems=["worker:ann"], repeats=4)
    asked.clear()
    assert grade_again().moves == ()
    assert asked == {"judge": 2}, "equal answers are asked about once"
    verdict["text"] = ""
    assert len(grade_again().moves) == 8
    assert grade_again().moves == ()
    assert asked == {"judge": 4}, "a verdict is kept"


def test_a_regrade_says_how_often_its_judge_failed_and_why(run: Any) -> None:
    play()
    verdict["text"] = "I would rather not say."
    failed = run("eval", "--regrade", "run", "--judge", "judge")
    assert failed.code == 1
    said = (
        "4 answers could not be decided (mostly: undecided: the judge gave no verdict); this asks"
    )
    assert said in " ".join(failed.err.split())
    assert "error: the judge judge has decided no answer" in failed.err
    verdict["text"] = ""
    faults.append(ServerFailed("down"))
    mended = run("eval", "--regrade", "run")
    assert mended.code == 0
    assert "1 answer could not be decided (mostly: undecided: the judge failed: " in mended.err
    run("eval", "--regrade", "run", "--retry-failed").assert_refused("asked again where it failed")


def test_a_judge_that_cannot_be_reached_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reach(word: Word) -> None:
        raise Unreachable("no connection")

    play()
    before = tables(RUN)
    monkeypatch.setattr(Word, "reach", reach)
    with pytest.raises(Unreachable, match="worker 'judge': no connection; nothing was asked"):
        grade_again("judge")
    assert (tables(RUN), read_folder(RUN)[0].judge) == (before, "")
    with pytest.raises(Unreachable, match="worker 'ann', worker 'judge': no connection; nothing"):
        play(Path("other"), judge="judge", systems=["worker:ann"])
    assert paid(Path("other")) == (0, 0)


def test_the_judge_of_a_regrade_is_paid_from_the_budget_of_the_run() -> None:
    play(budget={"calls": 10})
    with pytest.raises(BudgetExceeded):
        grade_again("judge")
    assert paid()[0] == 10
    assert sum(record.status == "judged" for record in Results.load(RUN).records) == 2
    rows = json.loads((RUN / "table.json").read_text("utf-8"))["rows"]
    assert sum(row["judged"] for row in rows) == 2


@pytest.mark.parametrize("name", ["nobody", "new"])
def test_the_judge_of_a_regrade_is_a_worker_of_the_run(name: str) -> None:
    play()
    pool = Path("pool.toml").read_text("utf-8")
    new = pool[: pool.index("[[worker]]", 1)].replace('"ann"', '"new"')
    Path("pool.toml").write_text(pool + new, "utf-8")
    with pytest.raises(ConfigError, match=f"judge: got '{name}', expected one of ann, bob, judge"):
        grade_again(name)
    Path("pool.toml").write_text(pool.replace('model = "judge"', 'model = "ann"'), "utf-8")
    with pytest.raises(ConfigError, match="judge is another model than in the run: got 'ann'"):
        grade_again("judge")


# ── replays ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("rule", "undecided"), [({}, True), ({"judge": "judge"}, False)])
def test_replayed_plans_are_judged_as_the_runs_own_answers(
    rule: dict[str, object], undecided: bool
) -> None:
    results = play(systems=["conductor"], conductor={"planner": "worker:ann"}, **rule)
    asked.clear()
    replays = asyncio.run(replay_plans(results, RUN))
    assert (replays.edits.undecided > 0) == undecided
    judged = asked["judge"]
    asyncio.run(replay_plans(results, RUN))
    assert asked["judge"] == judged, "a second replay is free"


# ── before anybody pays ───────────────────────────────────────────────────────────────────────────
def test_a_dry_run_counts_the_calls_that_a_judge_may_make_at_most() -> None:
    config = recipe(judge="judge", repeats=3)
    needs = {
        row.system: row for row in asyncio.run(dry_run.check_evaluation(config, offline=True)).needs
    }
    assert needs["judge judge, at most"].calls == 4 * 2 * 3
    assert needs["judge judge, at most"].dollars
    assert not asked


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"judge": "jude"}, "judge: got 'jude', expected one of ann, bob, judge; nearest: 'judge'"),
        ({"judge": "ann", "task": SUMS}, "the rules decide every answer to gsm8k"),
    ],
)
def test_a_judge_that_is_unknown_or_has_nothing_to_judge_is_refused(
    values: dict[str, object], said: str
) -> None:
    Path("sums.jsonl").write_text('{"question": "What is 1 + 1?", "answer": "#### 2"}\n', "utf-8")
    config = recipe(**values)
    checks = asyncio.run(dry_run.check_evaluation(config, offline=True)).checklist.checks
    assert said in next(check.text for check in checks if check.state == "wrong")
    with pytest.raises(ConfigError, match=re.escape(said)):
        asyncio.run(grid.run_grid(config, RUN))
    assert not RUN.exists()


# ── marks ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("rule", "marked"), [({}, True), ({"judge": "judge"}, False)])
def test_an_accuracy_that_leaves_out_much_is_marked_and_warned_of(
    rule: dict[str, object], marked: bool
) -> None:
    table = make_table(play(**rule))
    text = (RUN / "table.md").read_text("utf-8")
    assert (r"| \* 100.0 ± 0.0 |" in text) == marked
    said = "More than 3 % of the answers are masked"
    assert (said in text.partition("## Accuracy")[0]) == (said in much_masked(table.rows)) == marked
