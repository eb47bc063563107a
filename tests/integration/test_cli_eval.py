"""``openconductor eval`` as a user meets it: exit codes, two streams kept apart, pure JSON.

A bar with costs.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from chat_server import completion, says, write_pool
from test_cli import in_a_terminal, serving

from openconductor.graders.exact import ExactGrader
from openconductor.types import Grade

SOME = "worker:maven random --limit 4 --out run"
RUN = Path("run")


@pytest.fixture
def evaluate(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Run ``eval`` with words in an empty current directory."""
    monkeypatch.chdir(tmp_path)
    return lambda words: run("eval", *words.split())


def nobody() -> str:
    """Write a pool of one worker behind a port where nobody listens."""
    return write_pool(Path(), "http://127.0.0.1:9/v1", "local", more="retries = 0")


def calls(folder: Path = RUN) -> int:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection:
        return connection.execute("SELECT count(*) FROM calls").fetchone()[0]


# ── results ───────────────────────────────────────────────────────────────────────────────────────
def test_the_table_goes_to_stdout_and_all_else_to_stderr(evaluate) -> None:
    ran = evaluate(SOME)
    assert ran.code == 0
    assert "accuracy" in ran.out
    assert "worker:maven" in ran.out
    assert "against worker:maven" in ran.out
    folder, progress, following = ran.err.splitlines()  # no terminal, no bar: a line at the end
    assert folder == "run folder: run"
    assert re.fullmatch(r"evaluating: 8 of 8, \$[\d.]+, \d+ calls", progress)
    assert following == "next: openconductor show run", "no system plans, so there is no report"
    assert evaluate(SOME).err == f"{folder}\n{following}\n", "there was nothing to do"


def test_systems_are_compared_with_the_best_worker_unless_another_one_is_named(evaluate) -> None:
    words = "conductor worker:novice worker:jack --limit 12 --out run"
    ran = evaluate(words)
    assert "against worker:jack, the best worker alone" in ran.out
    assert ran.err.splitlines()[-1] == "next: openconductor report run"
    values = evaluate("--out run --json").json()
    assert values["against"] == "conductor", "the files compare with the first one, as before"
    named = evaluate(f"{words}2 --against worker:novice")
    assert "against worker:novice\n" in named.out


def test_invalid_plans_are_said_with_what_mends_them(evaluate) -> None:
    text = completion("I would ask the first worker.")
    with serving(*[says(text)] * 20) as server:
        pool = write_pool(Path(), server.url, "local")
        words = f"conductor worker:local --conductor worker:local --pool {pool} --limit 4"
        ran = evaluate(f"{words} --out run")
    said = "conductor: 4 of 4 plans were invalid and count as wrong; `ask` and `serve` mend them"
    assert said in ran.err


def test_answers_that_were_cut_at_a_token_limit_are_warned_of(evaluate) -> None:
    with serving(*[says(completion("forty", finish="length"))]) as server:
        pool = write_pool(Path(), server.url, "local")
        ran = evaluate(f"worker:local --pool {pool} --limit 1 --out run")
    assert ran.code == 0
    assert re.search(r"masked +cut", ran.out)
    assert "warning: worker:local on gym: in 1 of 1 answers a worker was cut" in ran.err


@pytest.mark.parametrize("columns", [60, 80, 112])
def test_no_name_and_no_figure_is_cut_off_however_narrow_the_terminal(
    evaluate, monkeypatch, columns
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = evaluate("consensus:maven?n=3 random?max_steps=2&seed=1 --limit 2 --out run")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= columns
    assert "\N{HORIZONTAL ELLIPSIS}" not in ran.out
    heads = "dollars tokens calls valid steps entropy, bits no answer masked "
    heads += "difference, points 95 % p (Holm) problems"
    assert set(ran.out.split()) >= set(heads.split())


def test_json_is_the_table_with_what_was_spent_and_a_run_is_resumed_by_its_folder_alone(
    evaluate,
) -> None:
    values = evaluate(f"{SOME} --repeats 2 --seed 5 --json").json()
    rows = [(row["system"], row["n"], row["k"]) for row in values["rows"]]
    assert rows == [("worker:maven", 4, 2), ("random", 4, 2)]
    assert values["against"] == "worker:maven"
    assert values["folder"] == "run"
    assert values["spent"]["calls"] == calls()
    assert values["spent"]["dollars"] > 0
    table = json.loads((RUN / "table.json").read_text("utf-8"))
    assert {key: values[key] for key in table} == table
    again = evaluate("--out run --json").json()
    assert again["rows"] == values["rows"]
    assert calls() == values["spent"]["calls"]


def test_each_evaluation_of_a_day_has_a_folder_of_its_own_and_is_found_again(evaluate) -> None:
    def folder(words: str) -> str:
        path = evaluate(f"{words} --limit 3 --json").json()["folder"]
        return re.sub(r"^runs/\d{4}-\d\d-\d\d-", "", path)

    assert folder("worker:maven") == "eval"
    assert folder("worker:jack") == "eval-2"
    assert folder("random") == "eval-3"
    (second,) = Path("runs").glob("*-eval-2")
    paid = calls(second)
    assert folder("worker:jack --budget-calls 99") == "eval-2"
    assert folder("worker:maven") == "eval"
    assert calls(second) == paid
    shutil.rmtree(next(Path("runs").glob("*-eval")))
    assert folder("worker:jack") == "eval-2"
    assert folder("worker:maven") == "eval"


def test_the_command_line_overrules_the_recipe(evaluate) -> None:
    recipe = 'name = "mine"\nsystems = ["random"]\nseed = 1\n[[task]]\nname = "gym"\nlimit = 3\n'
    Path("recipe.toml").write_text(recipe)
    words = "--config recipe.toml --out run --json worker:jack repeats=2 --limit 2"
    values = evaluate(f"{words} --budget-dollars $9").json()
    assert values["name"] == "mine"
    assert values["repeats"] == 2
    assert [(row["system"], row["n"]) for row in values["rows"]] == [("worker:jack", 2)]
    written = (RUN / "config.toml").read_text("utf-8")
    assert "seed = 1" in written
    assert 'dollars = "9"' in written


# ── what is refused, and what fails ───────────────────────────────────────────────────────────────
WRONG = """
conducter                                         → nearest: 'conductor'
random --task gym --task mmlu --task-path gsm8k   → expected NAME=FILE
random --task gym --task-path gsm8k=x.jsonl       → with the name of a --task
random repeats=2                                  → key=value requires --config
random --setting tight                            → setting: got 'tight'
random --budget-dollars much                      → --budget-dollars: got 'much'
workers --repeats 2 --seed -1                 → '--seed': Input should be greater than or equal to 0
random --task math500                             → expected a pool file: --pool FILE
random --limt 3                                   → '--limit'
random --regrade runs/x                           → --regrade allows only --judge and --json
--regrade runs/x                                  → expected the folder of an evaluation
random --config nowhere.toml                      → nowhere.toml
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_wrong_usage_says_what_is_wrong_exits_with_2_and_leaves_nothing(
    evaluate, line: str
) -> None:
    words, message = line.split("→")
    ran = evaluate(words)
    ran.assert_refused(message)
    assert ran.err.startswith("error: "), "no folder is named before something is written"
    assert list(Path().iterdir()) == []


def test_data_that_are_not_there_are_a_failure(evaluate) -> None:
    ran = evaluate(f"random --pool {nobody()} --task-path gsm8k=nowhere.jsonl --out run")
    ran.assert_refused("nowhere.jsonl", code=1)
    assert ran.err.startswith("error: ")
    assert not RUN.exists()


def test_a_worker_without_a_price_is_refused_before_anything_is_written(evaluate) -> None:
    Path("mine.jsonl").write_text('{"id": "a", "problem": "1 + 1?", "answer": "2"}\n', "utf-8")
    pool = Path("unpriced.toml")
    pool.write_text(
        '[[worker]]\nname = "local"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n', "utf-8"
    )
    words = "random --task gsm8k --task-path gsm8k=mine.jsonl --budget-dollars 1"
    ran = evaluate(f"{words} --pool {pool} --out run")
    ran.assert_refused("worker 'local' has no price")
    assert ran.err.startswith("error: ")
    assert not RUN.exists()


def test_where_no_answer_could_be_decided_the_table_comes_with_a_failure(evaluate) -> None:
    with serving(says({"error": "busy"}, status=500)) as server:
        pool = write_pool(Path(), server.url, "local", more="retries = 0")
        ran = evaluate(f"worker:local --pool {pool} --limit 2 --out run")
    assert ran.code == 1
    assert "worker:local" in ran.out
    assert "2 answers failed and are masked" in ran.err
    assert "error: none of 2 answers could be decided; the first: ServerFailed: " in ran.err


@pytest.mark.parametrize("words", ["worker:local", "random", "consensus:local?n=3"])
def test_a_worker_that_cannot_be_reached_is_an_error_before_anything_is_asked(
    evaluate, words: str
) -> None:
    ran = evaluate(f"{words} --pool {nobody()} --limit 2 --out run")
    assert (ran.code, ran.out) == (1, "")
    assert "worker 'local': local at http://127.0.0.1:9/v1: no connection: " in ran.err
    assert "start the server, or correct base_url; nothing was asked" in ran.err
    assert calls() == 0


# ── regrade ───────────────────────────────────────────────────────────────────────────────────────
def test_regrading_calls_nobody_and_lists_what_moved(evaluate, monkeypatch) -> None:
    assert evaluate("oracle --limit 5 --out run").code == 0
    paid, same = calls(), evaluate("--regrade run")
    assert same.code == 0
    assert "0 verdicts changed" in same.err
    assert "accuracy" in same.out

    async def grade(self: ExactGrader, problem: object, answer: str) -> Grade:
        return Grade(False, "x", note="stricter")

    monkeypatch.setattr(ExactGrader, "grade", grade)
    values = evaluate("--regrade run --json").json()
    assert values["regraded"] > 0
    assert {(move["system"], move["before"], move["now"]) for move in values["moves"]} == {
        ("oracle", True, False)
    }
    assert values["rows"][0]["accuracy"] == 0
    assert calls() == paid


# ── a terminal ────────────────────────────────────────────────────────────────────────────────────
def test_a_terminal_sees_a_bar_with_what_is_done_what_it_cost_and_the_time_left(
    tmp_path: Path,
) -> None:
    words = ("eval", "workers", "random", "--limit", "40", "--out", str(tmp_path / "run"))
    code, shown = in_a_terminal(*words, env={"NO_COLOR": "1"})
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(r"\d+/360", plain)
    assert re.search(r"\$0\.\d+, \d+ calls", plain)
    assert re.search(r"\d:\d\d:\d\d|-:--:--", plain)
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor comes back
