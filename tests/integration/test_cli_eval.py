"""``openconductor eval`` as a user meets it: exit codes, two streams kept apart, pure JSON.

A bar with costs.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from chat_server import completion, says, write_pool
from test_cli import in_a_terminal, serving

from openconductor.graders.exact import ExactGrader
from openconductor.types import Grade

SOME = ("eval", "worker:maven", "random", "--limit", "4")


def nobody(tmp_path: Path) -> str:
    """A pool of one worker behind a port where nobody listens."""
    return write_pool(tmp_path, "http://127.0.0.1:9/v1", "local", more="retries = 0")


def calls(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection:
        return connection.execute("SELECT count(*) FROM calls").fetchone()[0]


# ── results ───────────────────────────────────────────────────────────────────────────────────────
def test_the_table_goes_to_stdout_and_all_else_to_stderr(run, tmp_path: Path) -> None:
    ran = run(*SOME, "--out", str(tmp_path / "run"))
    assert ran.code == 0
    assert "accuracy" in ran.out
    assert "worker:maven" in ran.out
    assert "against worker:maven" in ran.out
    folder, progress = ran.err.splitlines()  # no terminal, no bar: a line at the end
    assert folder == f"run folder: {tmp_path / 'run'}"
    assert re.fullmatch(r"evaluating: 8 of 8, \$[\d.]+, \d+ calls", progress)
    assert (
        run(*SOME, "--out", str(tmp_path / "run")).err == f"{folder}\n"
    )  # there was nothing to do


def test_answers_that_were_cut_at_a_token_limit_are_warned_of(run, tmp_path: Path) -> None:
    with serving(*[says(completion("forty", finish="length"))]) as server:
        pool = write_pool(tmp_path, server.url, "local")
        ran = run("eval", "worker:local", "--pool", pool, "--limit", "1", "--out", tmp_path / "run")
    assert ran.code == 0
    assert re.search(r"masked +cut", ran.out)
    assert "warning: worker:local on gym: in 1 of 1 answers a worker was cut" in ran.err


@pytest.mark.parametrize("columns", [60, 80, 112])
def test_no_name_and_no_figure_is_cut_off_however_narrow_the_terminal(
    run, tmp_path, monkeypatch, columns
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    systems = ("consensus:maven?n=3", "random?max_steps=2&seed=1")
    ran = run("eval", *systems, "--limit", "2", "--out", str(tmp_path / "run"))
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= columns
    assert "\N{HORIZONTAL ELLIPSIS}" not in ran.out
    rules = [
        number
        for number, line in enumerate(lines)
        if line.startswith("\N{BOX DRAWINGS LIGHT HORIZONTAL}")
    ]
    for rule in rules[1:]:  # after the table of accuracy: each part has the names of its rows
        assert lines[rule - 1].split()[:2] == ["system", "task"]
        assert lines[rule + 1].split()[1] == "gym"
    heads = "dollars tokens calls valid steps entropy, bits no answer masked "
    heads += "difference, points 95 % p (Holm) problems"
    assert set(ran.out.split()) >= set(heads.split())


def test_json_is_the_table_with_what_was_spent_and_a_run_is_resumed_by_its_folder_alone(
    run, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    values = run(*SOME, "--repeats", "2", "--seed", "5", "--out", folder, "--json").json()
    rows = [(row["system"], row["n"], row["k"]) for row in values["rows"]]
    assert rows == [("worker:maven", 4, 2), ("random", 4, 2)]
    assert values["against"] == "worker:maven"
    assert values["folder"] == str(folder)
    assert values["spent"]["calls"] == calls(folder)
    assert values["spent"]["dollars"] > 0
    assert {one["system"] for one in values["latency"]} == {"worker:maven", "random"}
    table = json.loads((folder / "table.json").read_text("utf-8"))
    assert {key: values[key] for key in table} == table
    again = run("eval", "--out", folder, "--json").json()
    assert again["rows"] == values["rows"]
    assert calls(folder) == values["spent"]["calls"]


def test_each_evaluation_of_a_day_has_a_folder_of_its_own_and_is_found_again(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def folder(system: str, *more: str) -> str:
        path = run("eval", system, "--limit", "3", *more, "--json").json()["folder"]
        return re.sub(r"^runs/\d{4}-\d\d-\d\d-", "", path)

    assert [folder("worker:maven"), folder("worker:jack"), folder("random")] == [
        "eval",
        "eval-2",
        "eval-3",
    ]
    (second,) = (tmp_path / "runs").glob("*-eval-2")
    paid = calls(second)
    assert [folder("worker:jack", "--budget-calls", "99"), folder("worker:maven")] == [
        "eval-2",
        "eval",
    ]
    assert calls(second) == paid
    shutil.rmtree(next((tmp_path / "runs").glob("*-eval")))
    assert [folder("worker:jack"), folder("worker:maven")] == ["eval-2", "eval"]


def test_the_command_line_overrules_the_recipe(run, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'name = "mine"\nsystems = ["random"]\nseed = 1\n[[task]]\nname = "gym"\nlimit = 3\n',
        "utf-8",
    )
    told = ("eval", "--config", str(recipe), "--out", str(tmp_path / "run"), "--json")
    values = run(*told, "worker:jack", "repeats=2", "--limit", "2", "--budget-dollars", "$9").json()
    assert values["name"] == "mine"
    assert values["repeats"] == 2
    assert [(row["system"], row["n"]) for row in values["rows"]] == [("worker:jack", 2)]
    written = (tmp_path / "run" / "config.toml").read_text("utf-8")
    assert "seed = 1" in written
    assert 'dollars = "9"' in written


# ── what is refused, and what fails ───────────────────────────────────────────────────────────────
WRONG = """
conducter                                         → nearest: 'conductor'
random --task-path gsm8k                          → expected NAME=FILE
random --task gym --task-path gsm8k=x.jsonl       → expected the name of a --task
random repeats=2                                  → key=value requires --config
random --setting tight                            → setting: got 'tight'
random --budget-dollars much                      → --budget-dollars: got 'much'
workers --repeats 2 --seed -1                     → '--seed': Input should be greater than or equal to 0
random --task math500                             → expected a pool file: --pool FILE
random --limt 3                                   → '--limit'
random --regrade runs/x                           → --regrade allows no other option than --json
--regrade runs/x                                  → expected the folder of an evaluation
random --config nowhere.toml                      → nowhere.toml
"""  # noqa: E501


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_wrong_usage_says_what_is_wrong_exits_with_2_and_leaves_nothing(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, message = line.split("→")
    ran = run("eval", *arguments.split())
    assert (ran.code, ran.out) == (2, "")
    assert message.strip() in re.sub(r"\s+", " ", ran.err)
    assert list(tmp_path.iterdir()) == []


def test_data_that_are_not_there_are_a_failure(run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    path = f"gsm8k={tmp_path / 'nowhere.jsonl'}"
    ran = run("eval", "random", "--pool", nobody(tmp_path), "--task-path", path, "--out", folder)
    assert ran.code == 1
    assert ran.out == ""
    assert "nowhere.jsonl" in ran.err
    assert not folder.exists()


def test_where_no_answer_could_be_decided_the_table_comes_with_a_failure(
    run, tmp_path: Path
) -> None:
    words = ("--pool", nobody(tmp_path), "--limit", "2", "--out", tmp_path / "run")
    ran = run("eval", "worker:local", *words)
    assert ran.code == 1
    assert "worker:local" in ran.out
    assert "2 answers failed and are masked" in ran.err
    assert "error: none of 2 answers could be decided; the first: Unreachable: " in ran.err


# ── regrade ───────────────────────────────────────────────────────────────────────────────────────
def test_regrading_calls_nobody_and_lists_what_moved(run, tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "run"
    assert run("eval", "oracle", "--limit", "5", "--out", str(folder)).code == 0
    paid, same = calls(folder), run("eval", "--regrade", str(folder))
    assert same.code == 0
    assert "0 verdicts changed" in same.err
    assert "accuracy" in same.out

    async def grade(self: ExactGrader, problem: object, answer: str) -> Grade:
        return Grade(False, "x", note="stricter")

    monkeypatch.setattr(ExactGrader, "grade", grade)
    values = run("eval", "--regrade", str(folder), "--json").json()
    assert values["regraded"] > 0
    assert {(move["system"], move["before"], move["now"]) for move in values["moves"]} == {
        ("oracle", True, False)
    }
    assert values["rows"][0]["accuracy"] == 0
    assert calls(folder) == paid


# ── a terminal ────────────────────────────────────────────────────────────────────────────────────
def test_a_terminal_sees_a_bar_with_what_is_done_what_it_cost_and_the_time_left(
    tmp_path: Path,
) -> None:
    told = ("eval", "workers", "random", "--limit", "40", "--out", str(tmp_path / "run"))
    code, shown = in_a_terminal(*told, env={"NO_COLOR": "1"})
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(r"\d+/360", plain)
    assert re.search(r"\$0\.\d+, \d+ calls", plain)
    assert re.search(r"\d:\d\d:\d\d|-:--:--", plain)
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor comes back
