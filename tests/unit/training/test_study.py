"""The study over seeds: what counts as learnt."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.postgres_server import PostgresServer

from openconductor.errors import ConfigError, OpenConductorError
from openconductor.gym.exact import oracle_workflow
from openconductor.gym.levels import reference_levels
from openconductor.gym.questions import draw_questions
from openconductor.prompt import render_workflow
from openconductor.store import open_store
from openconductor.training import study as training_study
from openconductor.training.setup import HELD_OUT_SEED
from openconductor.training.study import study, summarise
from openconductor.training.train_config import TrainConfig, dump_train_config
from openconductor.types import Step, Workflow

LEVELS = {"random": 0.05, "best_worker": 0.2, "oracle": 0.8}


def _result(
    seed: int, greedy: float, *, control: str = "none", sampled: float = 0.0
) -> dict[str, object]:
    measured = {
        "accuracy": greedy,
        "validity": 1.0,
        "routing_entropy_bits": 2.0,
        "steps_by_kind": {"single": 1.0},
    }
    return {
        "seed": seed,
        "control": control,
        "start": {**measured, "accuracy": 0.05},
        "sampled": {**measured, "accuracy": sampled},
        "greedy": measured,
        "exact": {"sampled": {"all": sampled}, "greedy": {"all": greedy, "single": greedy}},
        "seconds": {"start": 1.0, "learning": 2.0},
    }


def test_a_seed_has_learnt_when_it_beats_three_times_random_and_the_best_worker() -> None:
    controls = [
        _result(1, 0.0, control="shuffled", sampled=0.055),
        _result(1, 0, control="flipped"),
    ]
    summary = summarise(
        [_result(1, 0.72), _result(2, 0.21), _result(3, 0.19), _result(4, 0.4), *controls], LEVELS
    )
    assert (summary["learnt"], summary["seeds"]) == (3, 4)
    assert summary["median_share_of_oracle"] == pytest.approx((0.4 + 0.21) / 2 / 0.8)
    assert summary["worst_share_of_oracle"] == pytest.approx(0.19 / 0.8)
    assert summary["seconds"] == 18.0
    assert summary["controls_over_start"] == {"shuffled": pytest.approx(1.1), "flipped": 0.0}


def test_a_run_that_fails_ends_the_study_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *seed-1*) echo "no room left" >&2; exit 3;; esac\nexec sleep 60\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    said: list[str] = []
    with pytest.raises(OpenConductorError, match=r"seed-1: exit 3: no room left"):
        study(
            TrainConfig.model_validate(RECIPE),
            tmp_path / "study",
            seeds=[1, 2, 3],
            controls=False,
            on_progress=said.append,
        )
    folder = f"study folder: {tmp_path / 'study'}"
    assert said == [folder, "seed-1: started", "seed-2: started"], "and seed 2 has been ended"
    assert not (tmp_path / "study" / "study.json").exists()


def test_a_training_takes_no_module_from_the_folder_that_its_study_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('a file of the folder was run')")
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$1" "$2" "$3" --version\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "seed-1"
    asyncio.run(training_study._train(run, TrainConfig.model_validate(RECIPE), lambda _: None))
    assert re.fullmatch(r"[\w.+]+\n", run.with_suffix(".log").read_text())


RECIPE = {
    "pool": "gym",
    "data": {"task": "gym"},
    "rollout": {"max_tokens": 72},
    "held_out": {"questions": 3},
}
QUESTIONS = draw_questions("test", 3, seed=HELD_OUT_SEED)


def _finish(folder: Path, config: TrainConfig) -> None:
    """Write a finished run: one greedy plan is the oracle's, one is idle, one cannot be read."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(dump_train_config(config), "utf-8")
    (folder / "results.json").write_text(json.dumps(_result(config.seed, 0.7)), "utf-8")
    best, _ = oracle_workflow(QUESTIONS[0])
    unreadable = {"completion": "I would rather not.", "invalid": "missing_list"}
    greedy = [
        {"completion": render_workflow(best), "invalid": None},
        {"completion": render_workflow(IDLE), "invalid": None},
        unreadable,
    ]
    with open_store(folder / "journal.sqlite") as journal:
        for place in range(3):
            journal.put_record(f"start/{place}", unreadable)
            journal.put_record(f"sampled/{place}", unreadable)
            journal.put_record(f"greedy/{place}", greedy[place])


IDLE = Workflow((Step(0, "do nothing"),))


def test_a_run_of_another_recipe_is_not_mixed_into_a_study(tmp_path: Path) -> None:
    config, folder = TrainConfig.model_validate({**RECIPE, "seed": 1}), tmp_path / "seed-1"
    _finish(folder, config)
    summary = study(config, tmp_path, seeds=[1], controls=False)
    (row,) = summary["rows"]
    assert row["seed"] == 1, "the finished run is taken"
    levels = reference_levels(QUESTIONS)
    for name in ("random", "best_worker", "oracle"):
        assert summary["levels"][name] == getattr(levels, name)
    _, accuracy = oracle_workflow(QUESTIONS[0])
    exact = pytest.approx(accuracy / 3 / levels.oracle)
    assert row["share_of_oracle"] == exact, "and not the measured 0.7"
    assert row["sampled_share_of_oracle"] == 0.0
    (tmp_path / "study.json").unlink()
    again = TrainConfig.model_validate({**RECIPE, "held_out": {"questions": 5}})
    message = r"seed-1 holds a run of another recipe.*held_out\.questions: 3 there, 5 here"
    with pytest.raises(ConfigError, match=message):
        study(again, tmp_path, seeds=[1], controls=False)
    assert not (tmp_path / "study.json").exists()
    (folder / "config.toml").unlink()
    with pytest.raises(ConfigError, match=r"config\.toml: no such file"):
        study(config, tmp_path, seeds=[1], controls=False)


def test_processes_share_the_runs_of_a_study_and_return_the_same_summary(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    async def train(run: Path, config: TrainConfig, say: object) -> None:
        trained.append(run.name)
        await asyncio.sleep(0.2)
        _finish(run, config)

    monkeypatch.setattr(training_study, "_train", train)
    config = TrainConfig.model_validate(RECIPE)
    url = postgres.new_place()
    (tmp_path / "alone").mkdir()
    alone = study(config, tmp_path / "alone", seeds=[1, 2, 3, 4], controls=False)
    trained.clear()

    def join(name: str) -> object:
        folder = tmp_path / name
        return study(config, folder, seeds=[1, 2, 3, 4], controls=False, jobs=1, journal=url)

    with ThreadPoolExecutor(2) as pool:
        summaries = list(pool.map(join, ("one", "two")))
    assert summaries == [alone, alone]
    assert sorted(trained) == ["seed-1", "seed-2", "seed-3", "seed-4"]
    texts = {(tmp_path / name / "study.json").read_text() for name in ("alone", "one", "two")}
    assert len(texts) == 1
    with pytest.raises(
        ConfigError, match=r"holds another study: seeds: got \[1\], expected \[1, 2"
    ):
        study(config, tmp_path / "three", seeds=[1], controls=False, journal=url)
    with pytest.raises(ConfigError, match="expected the URL of a database"):
        study(config, tmp_path / "three", seeds=[1], controls=False, journal="file.sqlite")


@pytest.mark.slow
def test_the_training_of_a_killed_study_ends_with_it(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho $$ > "$0.pid"\nexec sleep 60\n')
    program.chmod(0o755)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(dump_train_config(TrainConfig.model_validate(RECIPE)), "utf-8")
    code = "import sys; from openconductor.cli import main; import openconductor.training.study; "
    code += f"sys.executable = {str(program)!r}; "
    code += f"main(['train', {str(recipe)!r}, '--study', {str(tmp_path / 'study')!r}])"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        written = Path(f"{program}.pid")
        end = time.monotonic() + 100
        while not (written.exists() and written.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        child = Path(f"/proc/{written.read_text().strip()}")
        assert child.exists()
        process.kill()
    while child.exists() and "Z" not in child.joinpath("stat").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_study_needs_the_same_workers_for_every_question(tmp_path: Path) -> None:
    config = TrainConfig.model_validate(RECIPE | {"pool": "gym:drawn"})
    message = r"each question has workers or ordinals of its own, expected the same for all"
    with pytest.raises(ConfigError, match=message):
        study(config, tmp_path, seeds=[1], controls=False)
