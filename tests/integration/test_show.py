"""``openconductor show`` over a run of the gym: what it lists, and what it shows of one answer."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openconductor import cli
from openconductor.evaluation.records import Results
from openconductor.store.sqlite.retention import prune_file

pytest.importorskip("numpy")
pytest.importorskip("safetensors")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three systems over twelve questions, each asked twice."""
    folder = tmp_path_factory.mktemp("show") / "run"
    systems = ("conductor", "worker:jack", "best_fixed")
    words = ("--limit", "12", "--repeats", "2", "--seed", "1", "--out", str(folder))
    assert cli.main(["eval", *systems, *words]) == 0
    return folder


@pytest.fixture(scope="module")
def missed(made: Path) -> Any:
    """A wrong answer of the Conductor that has a text."""
    records = Results.load(made).of("conductor")
    return next(record for record in records if record.correct is False and record.answer)


def test_without_an_id_answers_are_listed_and_one_is_named_to_look_at(made, run) -> None:
    ran = run("show", made, "--limit", "3")
    assert ran.code == 0
    assert (ran.out.count("right") + ran.out.count("wrong"), ran.out.count("gym-")) == (3, 3)
    assert "3 of 72 such answers" in ran.err
    words = ran.err.splitlines()[-1].partition("openconductor ")[2].split()
    assert "Verdict" in run(*words).out, "the command can be pasted"


def test_where_questions_were_asked_repeatedly_an_answer_says_which_sample_it_is(made, run) -> None:
    """Two lines of one question would else look like a line that was printed twice."""
    head, _, *lines = run("show", made, "--system", "worker:jack").out.splitlines()
    assert head.split() == ["id", "system", "sample", "verdict", "reason"]
    answers = [line.split() for line in lines if "worker:jack" in line]
    assert [answer[2] for answer in answers[:4]] == ["0", "1", "0", "1"]
    problem = Results.load(made).of("worker:jack")[0].problem
    whole = run("show", made, problem, "--system", "worker:jack").out
    assert f"{problem}, answered by worker:jack, sample 1" in whole


def test_questions_are_listed_in_the_order_of_their_numbers(made, run, monkeypatch) -> None:
    results = Results.load(made)
    (first, *_) = results.of("best_fixed")
    named = tuple(replace(first, problem=f"q{number}") for number in (1, 10, 2))
    numbered = replace(results, records=named)
    monkeypatch.setattr("openconductor.cli.show.Results.load", lambda _: numbered)
    values = run("show", made, "--json").json()
    assert [answer["record"]["problem"] for answer in values["answers"]] == ["q1", "q2", "q10"]


def test_a_folder_of_runs_is_an_error_that_names_them(made, run) -> None:
    for verb in (("show",), ("report",), ("ask", "--from")):
        ran = run(*verb, made.parent, *(["2 + 2?"] if verb[0] == "ask" else []))
        assert (ran.code, ran.out) == (2, "")
        assert f"expected the folder of an evaluation, such as {made}" in " ".join(ran.err.split())


def test_answers_are_chosen_by_system_task_and_verdict(made, run) -> None:
    chosen = ("--wrong", "--system", "best_fixed", "--task", "gym", "--limit", "99", "--json")
    values = run("show", made, *chosen).json()
    wrong = [one for one in Results.load(made).of("best_fixed") if one.correct is False]
    assert values["found"] == len(wrong) == len(values["answers"])
    assert {answer["verdict"] for answer in values["answers"]} == {"wrong"}
    assert "episode" not in values["answers"][0], "a list reads no plans"


def test_an_answer_is_shown_with_its_question_reference_plan_steps_and_verdict(
    made, missed, run
) -> None:
    ran = run("show", made, missed.problem, "--system", "conductor", "--json")
    answer = next(one for one in ran.json()["answers"] if one["record"]["sample"] == missed.sample)
    steps = answer["episode"]["rounds"][0]["steps"]
    text = " ".join(run("show", made, missed.problem).out.split())
    shown = [answer["question"], answer["reference"], missed.answer, "✗ wrong", "a workflow of"]
    shown += [step["subtask"] for step in steps] + [step["response"] for step in steps]
    assert [part for part in shown if " ".join(part.split()) not in text] == []
    assert "worker:jack" in text, "how others answered the same question stands below"


def test_a_system_without_a_planner_is_shown_by_its_steps(made, missed, run) -> None:
    text = run("show", made, missed.problem, "--system", "worker:jack").out
    assert "Steps" in text and "Conductor" not in text


def test_an_older_run_says_what_it_lacks_and_how_to_add_it(made, missed, tmp_path, run) -> None:
    old = Path(shutil.copytree(made, tmp_path / "old"))
    (old / "questions.jsonl").unlink()
    text = " ".join(run("show", old, missed.problem).out.split())
    assert "Take " in text or "Here is " in text, "the journal holds the question"
    command = f"openconductor eval --out {old}"
    assert "Reference unknown: the folder has no questions.jsonl" in text and command in text
    assert run(*command.split()[1:]).code == 0
    assert "Reference unknown" not in run("show", old, missed.problem).out


def test_what_the_journal_no_longer_holds_is_said(made, missed, tmp_path, run) -> None:
    pruned = Path(shutil.copytree(made, tmp_path / "pruned"))
    prune_file(pruned / "journal.sqlite", before=1e12)
    text = " ".join(run("show", pruned, missed.problem).out.split())
    assert "does not hold the plan and the steps any more" in text
    assert "✗ wrong" in text and missed.answer in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--system", "conducter"), "nearest: 'conductor'"),
        (("--task", "gim"), "nearest: 'gym'"),
        (("gym-0",), "the nearest is 'gym-"),
    ],
)
def test_unknown_names_are_named_with_the_nearest(made, run, words, why) -> None:
    ran = run("show", made, *words)
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err


def test_a_run_keeps_its_questions_with_their_references(made: Path) -> None:
    lines = (made / "questions.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 12
    assert set(rows[0]) == {"task", "id", "kind", "question", "reference"}
