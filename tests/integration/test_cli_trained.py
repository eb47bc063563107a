"""A trained Conductor over other workers, in each verb that takes one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from chat_server import write_pool
from test_cli import QUESTION

from openconductor.evaluation.records import Results
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.workers import gym_pool

NAMES = tuple(gym_pool().names.values())


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained_with(*names: str) -> str:
    """Return the folder of a Conductor that was trained with workers of these names."""
    folder = Path(shutil.copytree(bundled_folder(), "conductor"))
    path = folder / "conductor.json"
    workers = [{"ordinal": ordinal, "name": name} for ordinal, name in enumerate(names)]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"workers": workers}))
    return str(folder)


@pytest.mark.parametrize("verb", ["ask", "serve", "mcp", "eval"])
def test_a_conductor_that_does_not_know_the_workers_is_refused(run, tmp_path, verb) -> None:
    folder = trained_with("anna", "otto")
    pool = write_pool(tmp_path, "http://127.0.0.1:9/v1", "anna", "eve")
    words = {"ask": ("Why?",), "eval": ("conductor", "--limit", "1")}.get(verb, ())
    ran = run(verb, *words, "--pool", pool, "--conductor", folder)
    ran.assert_refused("trained with other workers: 'eve' is unknown to it. Expected only workers")
    assert "--force" in ran.err


def test_workers_in_another_order_keep_their_names(run) -> None:
    folder = trained_with(*reversed(NAMES))
    usual = run("ask", QUESTION, "--json").json()["rounds"][0]
    turned = run("ask", QUESTION, "--json", "--conductor", folder).json()["rounds"][0]
    assert turned["conductor"]["text"] == usual["conductor"]["text"]
    numbers = [step["worker"] for step in usual["steps"]]
    assert [step["worker"] for step in turned["steps"]] == numbers
    assert [step["worker_name"] for step in turned["steps"]] == [NAMES[7 - n] for n in numbers]


def test_an_evaluation_names_workers_in_another_order_rightly(run) -> None:
    folder = trained_with(*reversed(NAMES))
    options = ("--conductor", folder, "--limit", "5", "--out", "run", "--json")
    assert run("eval", "conductor", f"worker:{NAMES[0]}", *options).code == 0
    answers = Results.load(Path("run"))
    assert answers.workers == {ordinal: NAMES[7 - ordinal] for ordinal in range(8)}
