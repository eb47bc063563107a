"""The recipes that make a pool of specialists and measure it."""

from __future__ import annotations

import runpy
import sys
import tomllib
from pathlib import Path

import pytest

import openconductor as oc
from openconductor.errors import ContextTooLong, WorkerError
from openconductor.store import open_store
from openconductor.tasks.specialists import SKILLS, draw_question
from openconductor.testing import Scripted

pytestmark = pytest.mark.train

RECIPES = Path(__file__).parents[3] / "recipes"
PROMPT_TOO_LONG = ContextTooLong("the prompt is too long")


async def play_and_ask(error: WorkerError, folder: Path) -> list[str]:
    """Return the answers of a worker that fails, by a plan and alone."""
    recipe = runpy.run_path(str(RECIPES / "specialists_levels.py"))
    pool = oc.WorkerPool([oc.Worker(Scripted(error), name="failing", retries=0)])
    question = draw_question("test", 0)
    with open_store(folder / "journal.sqlite") as journal:
        player = recipe["Player"](pool, journal)
        return [await player.play(question, (0,)), await player.ask_alone(question, 0)]


async def test_a_worker_that_cannot_be_reached_has_no_level(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="away"):
        await play_and_ask(WorkerError("away"), tmp_path)


async def test_a_failure_that_a_plan_caused_is_a_wrong_answer(tmp_path: Path) -> None:
    assert await play_and_ask(PROMPT_TOO_LONG, tmp_path) == ["", ""]


def test_the_recipe_of_the_base_model_makes_no_folder_that_is_called_as_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["smollm2.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(RECIPES / "smollm2.py"), run_name="__main__")
    assert "folder" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_weights_beside_a_checkpoint_may_be_half_written(tmp_path: Path) -> None:
    recipe = runpy.run_path(str(RECIPES / "specialists.py"))
    assert not recipe["is_trained"](tmp_path)
    (tmp_path / recipe["WEIGHTS"]).touch()
    assert recipe["is_trained"](tmp_path)
    (tmp_path / recipe["CHECKPOINT"]).touch()
    assert not recipe["is_trained"](tmp_path)


def test_a_pool_is_written_whatever_its_folders_are_called(tmp_path: Path) -> None:
    recipe = runpy.run_path(str(RECIPES / "specialists.py"))
    folder = tmp_path / 'a "quoted" \\ folder'
    folder.mkdir()
    recipe["write_pool"](Path('base "x"'), folder)
    workers = tomllib.loads((folder / "pool.toml").read_text("utf-8"))["worker"]
    assert {worker["model"] for worker in workers} == {'base "x"'}
    adapters = [worker["options"].get("adapter") for worker in workers]
    assert {str(folder / skill) for skill in SKILLS} | {None} == set(adapters)
