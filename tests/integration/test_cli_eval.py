"""``openconductor eval`` as a user meets it: exit codes, two streams kept apart, pure JSON, a bar with costs."""

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
ROW = {
    *(
        "system",
        "task",
        "n",
        "k",
        "accuracy",
        "se",
        "ci95",
        "dollars_per_question",
        "tokens_per_question",
    ),
    *("calls_per_question", "validity", "unparsed", "masked", "failed"),
}


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
    assert "accuracy" in ran.out and "worker:maven" in ran.out and "against worker:maven" in ran.out
    folder, progress = ran.err.splitlines()  # no terminal, no bar: a line at the end
    assert folder == f"run folder: {tmp_path / 'run'}"
    assert re.fullmatch(r"evaluating: 8 of 8, \$[\d.]+, \d+ calls", progress)
    assert (
        run(*SOME, "--out", str(tmp_path / "run")).err == f"{folder}\n"
    )  # there was nothing to do


def test_answers_that_were_cut_at_a_token_limit_are_counted_and_warned_of(
    run, tmp_path: Path
) -> None:
    with serving(*[says(completion("forty", finish="length"))]) as server:
        pool = write_pool(tmp_path, server.url, "local")
        told = (
            "eval",
            "worker:local",
            "--pool",
            pool,
            "--limit",
            "1",
            "--out",
            str(tmp_path / "run"),
        )
        ran = run(*told)
        rows = run(*told, "--json").json()["rows"]
    assert ran.code == 0
    assert re.search(r"masked +cut", ran.out)
    assert (
        "warning: worker:local on gym: in 1 of 1 answers a worker was cut at its token limit (100 %)"
        in ran.err
    )
    assert [(row["cut"], row["masked"]) for row in rows] == [(1, 0)]


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
    heads = "dollars tokens calls valid steps entropy, bits no answer masked difference, points 95 % p (Holm) problems"
    assert set(ran.out.split()) >= set(heads.split())


def test_json_is_one_document_with_every_column_and_what_was_spent(run, tmp_path: Path) -> None:
    ran = run(*SOME, "--repeats", "2", "--seed", "5", "--out", str(tmp_path / "run"), "--json")
    assert ran.code == 0
    values = ran.json()
    assert [(row["system"], row["n"], row["k"]) for row in values["rows"]] == [
        ("worker:maven", 4, 2),
        ("random", 4, 2),
    ]
    assert set(values["rows"][0]) >= ROW
    assert (values["against"], values["missing"], values["folder"]) == (
        "worker:maven",
        0,
        str(tmp_path / "run"),
    )
    assert values["spent"]["calls"] == calls(tmp_path / "run")
    assert values["spent"]["dollars"] > 0
    assert {one["system"] for one in values["latency"]} == {"worker:maven", "random"}
    table = json.loads((tmp_path / "run" / "table.json").read_text("utf-8"))
    assert {key: values[key] for key in table} == table


def test_a_run_is_gone_on_with_by_its_folder_alone(run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first, paid = run(*SOME, "--out", str(folder), "--json").json(), calls(folder)
    again = run("eval", "--out", str(folder), "--json")
    assert (again.code, again.json()["rows"], calls(folder)) == (0, first["rows"], paid)


def test_another_evaluation_of_the_day_gets_a_folder_of_its_own_and_each_is_found_again(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def folder(*told: str) -> str:
        ran = run("eval", *told, "--json")
        assert ran.code == 0
        return re.sub(r"^runs/\d{4}-\d\d-\d\d-", "", ran.json()["folder"])

    maven, jack = ("worker:maven", "--limit", "3"), ("worker:jack", "--limit", "3")
    assert [folder(*maven), folder(*jack), folder("random", "--limit", "3")] == [
        "eval",
        "eval-2",
        "eval-3",
    ]
    assert all(
        re.fullmatch(r"\d{4}-\d\d-\d\d-eval(-[23])?", one.name)
        for one in (tmp_path / "runs").iterdir()
    )
    paid = calls(next((tmp_path / "runs").glob("*-eval-2")))
    assert [folder(*jack, "--budget-calls", "99"), folder(*maven)] == ["eval-2", "eval"]
    assert calls(next((tmp_path / "runs").glob("*-eval-2"))) == paid
    shutil.rmtree(next((tmp_path / "runs").glob("*-eval")))
    assert [folder(*jack), folder(*maven)] == ["eval-2", "eval"]


def test_the_command_line_overrules_the_recipe(run, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'name = "mine"\nsystems = ["random"]\nseed = 1\n[[task]]\nname = "gym"\nlimit = 3\n',
        "utf-8",
    )
    told = ("eval", "--config", str(recipe), "--out", str(tmp_path / "run"), "--json")
    values = run(*told, "worker:jack", "repeats=2", "--limit", "2", "--budget-dollars", "$9").json()
    assert (values["name"], values["repeats"]) == ("mine", 2)
    assert [(row["system"], row["n"]) for row in values["rows"]] == [("worker:jack", 2)]
    written = (tmp_path / "run" / "config.toml").read_text("utf-8")
    assert "seed = 1" in written and 'dollars = "9"' in written


# ── what is refused, and what fails ───────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("conducter",), "nearest: 'conductor'"),
        (("random", "--task-path", "gsm8k"), "expected NAME=FILE"),
        (
            ("random", "--task", "gym", "--task-path", "gsm8k=x.jsonl"),
            "expected the name of a --task",
        ),
        (("random", "repeats=2"), "key=value requires --config"),
        (("random", "--setting", "tight"), "setting: got 'tight'"),
        (("random", "--budget-dollars", "much"), "--budget-dollars: got 'much'"),
        (
            ("workers", "--repeats", "2", "--seed", "-1"),
            "'--seed': Input should be greater than or equal to 0",
        ),
        (("random", "--task", "math500"), "expected a pool file: --pool FILE"),
        (("random", "--limt", "3"), "'--limit'"),
        (("random", "--regrade", "runs/x"), "--regrade allows no other option than --json"),
        (("--regrade", "runs/x"), "expected the folder of an evaluation"),
        (("random", "--config", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_wrong_usage_says_what_is_wrong_exits_with_2_and_leaves_nothing(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("eval", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in re.sub(r"\s+", " ", ran.err)
    assert list(tmp_path.iterdir()) == []


def test_data_that_are_not_there_are_a_failure(run, tmp_path: Path) -> None:
    told = ("--task-path", f"gsm8k={tmp_path / 'nowhere.jsonl'}", "--out", str(tmp_path / "run"))
    ran = run("eval", "random", "--pool", nobody(tmp_path), *told)
    assert (ran.code, ran.out) == (1, "")
    assert "nowhere.jsonl" in ran.err
    assert not (tmp_path / "run").exists()


def test_where_not_one_answer_could_be_decided_the_table_comes_with_a_failure(
    run, tmp_path: Path
) -> None:
    ran = run(
        "eval",
        "worker:local",
        "--pool",
        nobody(tmp_path),
        "--limit",
        "2",
        "--out",
        str(tmp_path / "run"),
    )
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
    assert "0 verdicts changed" in same.err and "accuracy" in same.out

    async def grade(self: ExactGrader, problem: object, answer: str) -> Grade:
        return Grade(False, "x", note="stricter")

    monkeypatch.setattr(ExactGrader, "grade", grade)
    values = run("eval", "--regrade", str(folder), "--json").json()
    assert values["regraded"] > 0
    assert {(move["system"], move["before"], move["now"]) for move in values["moves"]} == {
        ("oracle", True, False)
    }
    assert (values["rows"][0]["accuracy"], calls(folder)) == (0, paid)


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
