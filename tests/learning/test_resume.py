"""A training that is killed and resumed ends like one that was left alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openconductor.errors import ConfigError, JournalError, TrainingStopped
from openconductor.gym.bundled import bundled_folder
from openconductor.training import curves, imitation, run
from openconductor.training.train_config import TrainConfig, dump_train_config

pytestmark = [pytest.mark.train, pytest.mark.timeout(600)]


def _curve(folder: Path) -> list[dict[str, Any]]:
    records = [
        json.loads(line)
        for line in (folder / "curves.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def _start(recipe: Path, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "openconductor",
        "train",
        str(recipe),
        "--out",
        str(folder),
        *more,
    ]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def _finish(run: subprocess.Popen[bytes]) -> None:
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said.decode()


def _left_alone(recipe: Path) -> Path:
    folder = recipe.with_name("left-alone")
    _finish(_start(recipe, folder))
    return folder


def _killed_and_resumed(recipe: Path, records: int) -> Path:
    """A run that is killed once its curve has so many records, and resumed."""
    folder = recipe.with_name(f"killed-at-{records}")
    killed = _start(recipe, folder)
    curve = folder / "curves.jsonl"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and killed.poll() is None:
        if curve.is_file() and len(curve.read_text(encoding="utf-8").splitlines()) >= records:
            break
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "results.json").exists()
    assert (folder / "imitated").is_dir() == (records > 3)
    _finish(_start(recipe, folder, "--resume"))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Path]]]:
    """One recipe three times, two at a time: left alone, killed in imitation and resumed, and in GRPO."""
    config = TrainConfig.model_validate(
        {
            "seed": 3,
            "pool": "gym",
            "data": {
                "task": "gym",
                "mix": [1.0, 0.0, 0.0, 0.0],
            },  # others are so seldom right that one is lost
            "save_every": 2,
            "model": {
                "base": str(bundled_folder() / "cold_start")
            },  # its workflows are valid, their rewards differ
            "imitate": {
                "rounds": 3,
                "questions": 16,
                "steps": 4,
                "batch": 16,
                "micro_batch": 16,
                "learning_rate": 1e-3,
            },
            "prompt": {"template": "compact", "access": "index"},
            "rollout": {"iterations": 6, "questions": 4, "completions": 4, "max_tokens": 72},
            "optim": {"learning_rate": 1e-3, "micro_batch": 16, "bf16": False},
            "start": {"prompts": 20, "workflows": 20},
            "held_out": {"questions": 40},
        }
    )
    recipe = tmp_path_factory.mktemp("runs") / "short.toml"
    recipe.write_text(dump_train_config(config), encoding="utf-8")
    with ThreadPoolExecutor(2) as pool:
        yield {
            "whole": pool.submit(_left_alone, recipe),
            # Killed after a whole round or checkpoint (every 2 iterations), and a round or
            # iteration that is not in it.
            "imitation": pool.submit(_killed_and_resumed, recipe, 2),
            "grpo": pool.submit(_killed_and_resumed, recipe, 6),
        }


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["imitation", "grpo"])
def test_a_training_killed_in_the_middle_resumes_to_the_same_curve(
    runs: dict[str, Future[Path]], phase: str
) -> None:
    whole, cut = runs["whole"].result(), runs[phase].result()
    assert [record["iteration"] for record in _curve(cut)] == list(range(9))
    assert _curve(cut) == _curve(whole)
    results = [
        json.loads((folder / "results.json").read_text(encoding="utf-8")) for folder in (cut, whole)
    ]
    assert results[0]["greedy"] == results[1]["greedy"]
    assert results[0]["sampled"] == results[1]["sampled"]
    weights = [(folder / "conductor" / "model.safetensors").read_bytes() for folder in (cut, whole)]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_the_training_that_was_killed_had_something_to_learn_from(
    runs: dict[str, Future[Path]],
) -> None:
    whole = runs["whole"].result()
    assert sum(record["groups_without_spread"] < 1 for record in _curve(whole)) >= 5
    started = (bundled_folder() / "cold_start" / "model.safetensors").read_bytes()
    assert (whole / "conductor" / "model.safetensors").read_bytes() != started


@pytest.mark.slow
def test_a_cold_start_that_was_cut_off_goes_on_to_the_same_weights(
    tiny: TrainConfig, tmp_path: Path
) -> None:
    def stop(line: str) -> None:
        if line.startswith("cold start: step 7 "):
            raise InterruptedError

    run.train(tiny, tmp_path / "whole")
    with pytest.raises(InterruptedError):
        run.train(tiny, tmp_path / "cut", on_progress=stop)
    assert not (tmp_path / "cut" / "cold_start").exists()
    said: list[str] = []
    run.train(tiny, tmp_path / "cut", resume=True, on_progress=said.append)
    assert not any(line.startswith("cold start: step 2 ") for line in said), "it did not begin anew"
    names = [tmp_path / name / "cold_start" / "model.safetensors" for name in ("whole", "cut")]
    assert names[0].read_bytes() == names[1].read_bytes()
    assert not (tmp_path / "cut" / "cold_start_checkpoints").exists()


def test_imitation_that_had_ended_early_plays_no_further_round_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig.model_validate(
        {
            "pool": "gym",
            "data": {"task": "gym"},
            "model": {"base": str(bundled_folder() / "cold_start")},
            "imitate": {"rounds": 6, "questions": 8, "steps": 2, "batch": 4, "micro_batch": 4},
            "prompt": {"template": "compact", "access": "index"},
            "rollout": {"iterations": 0, "max_tokens": 72},
            "start": {"prompts": 8, "workflows": 8},
            "held_out": {"questions": 8},
        }
    )

    def stop(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(imitation, "is_settled", lambda records: len(records) >= 2)
    with monkeypatch.context() as patched:
        patched.setattr(run, "save_trained", stop)  # what comes right behind the last round
        with pytest.raises(InterruptedError):
            run.train(config, tmp_path / "run")
    before = _curve(tmp_path / "run")
    run.train(config, tmp_path / "run", resume=True)
    assert [record["iteration"] for record in before] == [0, 1]
    assert _curve(tmp_path / "run") == before


def test_a_run_that_is_cut_off_while_it_sharpens_goes_on_to_the_same_curve(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate = {
        "rounds": 6,
        "sharpen": 2,
        "questions": 8,
        "steps": 2,
        "batch": 4,
        "micro_batch": 4,
        "explore": 2.0,
    }
    plain = tiny.model_dump() | {
        "imitate": imitate,
        "model": {"base": str(bundled_folder() / "cold_start")},
    }
    config = TrainConfig.model_validate(
        plain | {"cold_start": {"steps": 0}, "data": {"task": "gym"}}
    )
    monkeypatch.setattr(imitation, "is_settled", lambda records: len(records) == 2)
    run.train(config, tmp_path / "alone")
    explored, whole = list[float](), imitation.complete

    def cut(*given: object, explore: float, **options: object) -> object:
        explored.append(explore)
        if len(explored) == 4:
            raise InterruptedError
        return whole(*given, explore=explore, **options)

    with monkeypatch.context() as patched:
        patched.setattr(imitation, "complete", cut)
        with pytest.raises(InterruptedError):
            run.train(config, tmp_path / "cut")
    assert explored == [2.0, 2.0, 1.0, 1.0]
    run.train(config, tmp_path / "cut", resume=True)
    assert _curve(tmp_path / "cut") == _curve(tmp_path / "alone")
    assert [record["phase"] for record in _curve(tmp_path / "alone")].count("imitate") == 4


def test_imitation_in_recursion_that_is_cut_off_between_its_two_rounds_goes_on_to_the_same_curve(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate = {"rounds": 2, "questions": 16, "steps": 2, "batch": 4, "micro_batch": 4}
    rollout = tiny.rollout.model_dump() | {"rounds": 2, "max_tokens": 72, "iterations": 2}
    plain = tiny.model_dump() | {"imitate": imitate, "rollout": rollout, "cold_start": {"steps": 0}}
    config = TrainConfig.model_validate(
        plain | {"model": {"base": str(bundled_folder() / "cold_start")}}
    )
    run.train(config, tmp_path / "alone")
    sampled, whole = list[int](), imitation.complete

    def cut(model: Any, tokenizer: Any, prompts: list[str], **options: Any) -> object:
        sampled.append(sum("Before:" in prompt for prompt in prompts))
        if len(sampled) == 4:
            raise InterruptedError
        return whole(model, tokenizer, prompts, **options)

    with monkeypatch.context() as patched:
        patched.setattr(imitation, "complete", cut)
        with pytest.raises(InterruptedError):
            run.train(config, tmp_path / "cut")
    assert sampled[::2] == [0, 0], "the first rounds"
    assert 0 < min(sampled[1::2]) <= 8 * 4, (
        "each answer is shown once more, of half as many questions"
    )
    run.train(config, tmp_path / "cut", resume=True)
    curve = _curve(tmp_path / "alone")
    assert _curve(tmp_path / "cut") == curve
    assert all(
        {"single", "single, again"} <= set(record["accuracy_by_kind"]) for record in curve[:2]
    )
    assert [record["rollouts"] for record in curve[:2]] == [32 + shown for shown in sampled[1::2]]


def test_a_run_that_was_killed_while_its_folder_was_made_begins_anew(
    tiny: TrainConfig, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "environment.json").write_text("{}", encoding="utf-8")
    assert run._open_folder(tiny, tmp_path / "run", resume=False) == ""
    assert (tmp_path / "run" / "config.toml").is_file()


def test_a_run_that_an_alarm_ended_is_resumed_from_its_checkpoint(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny.model_copy(update={"alarms": "stop", "save_every": 100})
    looked_at = (1, config.rollout.iterations)  # at the end an alarm has nothing to end
    monkeypatch.setattr(
        curves, "warnings", lambda records: ["collapsing"] if len(records) in looked_at else []
    )
    with pytest.raises(TrainingStopped, match=r"iteration 0: collapsing\. A checkpoint is written"):
        run.train(config, tmp_path / "run")
    assert len(_curve(tmp_path / "run")) == 1
    run.train(config, tmp_path / "run", resume=True)
    run.train(config.model_copy(update={"alarms": "tell"}), tmp_path / "alone")
    assert _curve(tmp_path / "run") == _curve(tmp_path / "alone")


def test_a_larger_budget_resumes_and_no_other_change_does(
    tiny: TrainConfig, tmp_path: Path
) -> None:
    run._open_folder(tiny, tmp_path / "run", resume=False)
    larger = tiny.model_copy(update={"budget": tiny.budget.model_copy(update={"calls": 7})})
    assert run._open_folder(larger, tmp_path / "run", resume=True) == ""
    assert "calls = 7" in (tmp_path / "run" / "config.toml").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="seed: 3 there, 4 here"):
        run._open_folder(larger.model_copy(update={"seed": 4}), tmp_path / "run", resume=True)


def test_a_cold_start_that_was_saved_is_not_made_again(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(run, "_measure_start", stop)  # what comes right behind the cold start
        with pytest.raises(InterruptedError):
            run.train(tiny, tmp_path / "run")
    saved = (tmp_path / "run" / "cold_start" / "model.safetensors").read_bytes()
    phases = (replace(run.PHASES[0], run=stop), *run.PHASES[1:])
    run.train(tiny, tmp_path / "run", resume=True, phases=phases)
    assert (tmp_path / "run" / "cold_start" / "model.safetensors").read_bytes() == saved


def test_a_folder_with_another_run_is_refused_and_left_alone(
    tiny: TrainConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="not empty"):
        run.train(tiny, folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    (folder / "config.toml").write_text("name = 'other'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds a run already"):
        run.train(tiny, folder)
    with pytest.raises(ConfigError, match="another recipe"):
        run.train(tiny, folder, resume=True)


def test_a_run_that_is_resumed_with_other_code_says_so_and_keeps_both_on_record(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    assert run._open_folder(tiny, folder, resume=False) == ""
    first = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert run._open_folder(tiny, folder, resume=True) == "", "nothing has changed"
    assert json.loads((folder / "environment.json").read_text(encoding="utf-8")) == first
    monkeypatch.setattr(run, "source_hash", lambda: "other")
    assert "another source" in run._open_folder(tiny, folder, resume=True)
    assert run._open_folder(tiny, folder, resume=True) == "", "said once"
    record = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert (record["source"], [entry["source"] for entry in record["resumed"]]) == (
        first["source"],
        ["other"],
    )


def test_a_full_disk_while_saving_is_a_typed_error_and_leaves_no_half_checkpoint(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import Trainer

    def full(self: object, output_dir: str) -> None:
        (Path(output_dir) / "optimizer.pt").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Trainer, "_save_optimizer_and_scheduler", full)
    with pytest.raises(JournalError, match="No space left on device"):
        run.train(tiny, tmp_path / "run")
    assert not list((tmp_path / "run" / "checkpoints").glob("checkpoint-*"))
