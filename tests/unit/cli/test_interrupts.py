"""Ctrl-C in a run: what was spent, and the command that goes on."""

from __future__ import annotations

import asyncio
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

from journaled import ask

from openconductor.cli import report as report_verb, runs
from openconductor.evaluation.records import CONFIG
from openconductor.store import Journal, JournalReader

RECIPE = 'name = "mine"\nsystems = ["random"]\n[[task]]\nname = "gym"\nlimit = 2\n'


def paid(folder: Path) -> str:
    """Pay for an episode in a run's folder; what it cost, as it is said."""
    folder.mkdir(exist_ok=True)
    (folder / CONFIG).touch()
    with Journal(folder / "journal.sqlite") as journal:
        asyncio.run(ask(journal))
    with JournalReader(folder / "journal.sqlite") as reading:
        spent = reading.totals().spent
    assert (spent.calls, spent.usage.dollars) == (3, Decimal("0.000585"))
    return "interrupted after 3 calls, $0.000585; finished calls are not paid for again"


def stopped(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_headroom_and_a_report_of_a_recipe_go_on_with_the_same_command(
    run, tmp_path, monkeypatch
) -> None:
    folder, recipe = tmp_path / "a run", tmp_path / "recipe.toml"
    recipe.write_text(RECIPE, "utf-8")
    said = paid(folder)
    for verb, arguments in (
        (runs, ("pool", "headroom")),
        (report_verb, ("report", recipe)),
    ):
        monkeypatch.setattr(verb, "evaluate", stopped)
        ran = run(*arguments, "--out", folder)
        assert (ran.code, ran.out) == (130, "")
        assert ran.err.splitlines() == [said, f"resume with: the same command and --out '{folder}'"]


def test_replays_that_are_interrupted_count_their_own_journal_too(
    run, tmp_path, monkeypatch
) -> None:
    folder = tmp_path / "run"
    assert run("eval", "random", "--limit", "2", "--out", folder).code == 0
    with JournalReader(folder / "journal.sqlite") as reading:
        calls = reading.totals().spent.calls
    monkeypatch.setattr(report_verb, "replay_plans", stopped)
    ran = run("report", folder, "--system", "random")
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.splitlines()[0].startswith(f"interrupted after {calls} calls, $")
    assert ran.err.splitlines()[1] == "resume with: the same command"


def test_a_training_goes_on_with_its_recipe_and_overrides(run, tmp_path, monkeypatch) -> None:
    recipe, folder = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text('name = "tiny"\npool = "gym"\n[data]\ntask = "gym"\n', "utf-8")
    monkeypatch.setitem(sys.modules, "openconductor.training.run", SimpleNamespace(train=stopped))
    ran = run("train", recipe, "--out", folder)
    assert (ran.code, ran.err) == (130, "")  # nothing had begun
    said = paid(folder)
    begun = recipe.read_text("utf-8") + "[rollout]\niterations = 7\n"
    (folder / "config.toml").write_text(begun, "utf-8")
    ran = run("train", recipe, "rollout.iterations=7", "--out", folder, "--resume")
    go_on = (
        f"resume with: openconductor train {recipe} rollout.iterations=7 --out {folder} --resume"
    )
    assert (ran.code, ran.err.splitlines()) == (130, [said, go_on])
    monkeypatch.setenv("RANK", "1")  # of several processes the first one speaks
    assert run("train", recipe, "--out", folder).err == ""
