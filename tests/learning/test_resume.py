"""A training that is killed and resumed ends like one that was left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openconductor.errors import ConfigError, JournalError
from openconductor.training.config import TrainConfig, dump_train_config
from openconductor.training.run import train

pytestmark = [pytest.mark.train, pytest.mark.timeout(600)]


def _curve(folder: Path) -> list[dict[str, object]]:
    records = [json.loads(line) for line in (folder / "curves.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def _start(recipe: Path, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "openconductor", "train", str(recipe), "--out", str(folder), *more]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=dict(os.environ)
    )


@pytest.fixture(scope="module")
def whole(tiny: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that was left alone; its recipe stands beside it."""
    folder = tmp_path_factory.mktemp("left_alone")
    (folder / "tiny.toml").write_text(dump_train_config(tiny), encoding="utf-8")
    run = _start(folder / "tiny.toml", folder / "whole")
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said.decode()
    return folder / "whole"


@pytest.mark.parametrize("records", [4, 9], ids=["first act", "second act"])
def test_a_training_killed_in_the_middle_resumes_to_the_same_curve(whole: Path, tmp_path: Path, records: int) -> None:
    recipe = whole.with_name("tiny.toml")
    cut = tmp_path / "cut"
    killed = _start(recipe, cut)
    curve = cut / "curves.jsonl"
    deadline = time.monotonic() + 240
    # Kill after a checkpoint (every 2 iterations) and an iteration that is not in it; each act has 6.
    while time.monotonic() < deadline and killed.poll() is None:
        if curve.is_file() and len(curve.read_text(encoding="utf-8").splitlines()) >= records:
            break
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not (cut / "results.json").exists()
    assert (cut / "widened").is_dir() == (records > 6)

    resumed = _start(recipe, cut, "--resume")
    _, said = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, said.decode()
    assert [record["iteration"] for record in _curve(cut)] == list(range(12))
    assert _curve(cut) == _curve(whole)
    results = [json.loads((folder / "results.json").read_text(encoding="utf-8")) for folder in (cut, whole)]
    assert results[0]["greedy"] == results[1]["greedy"]
    assert results[0]["sampled"] == results[1]["sampled"]


def test_a_folder_with_another_run_is_refused_and_left_alone(tiny: TrainConfig, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="not empty"):
        train(tiny, folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    (folder / "config.toml").write_text("name = 'other'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds a run already"):
        train(tiny, folder)
    with pytest.raises(ConfigError, match="another recipe"):
        train(tiny, folder, resume=True)


def test_a_run_that_is_resumed_with_other_code_says_so_and_keeps_both_on_record(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openconductor.training import run

    folder = tmp_path / "run"
    assert run._open_folder(tiny, folder, resume=False) == ""
    first = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert run._open_folder(tiny, folder, resume=True) == "", "nothing has changed"
    assert json.loads((folder / "environment.json").read_text(encoding="utf-8")) == first
    monkeypatch.setattr(run, "source_hash", lambda: "other")
    assert "another source" in run._open_folder(tiny, folder, resume=True)
    assert run._open_folder(tiny, folder, resume=True) == "", "said once"
    record = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert (record["source"], [entry["source"] for entry in record["resumed"]]) == (first["source"], ["other"])


def test_a_full_disk_while_saving_is_a_typed_error_and_leaves_no_half_checkpoint(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import Trainer

    def full(self: object, output_dir: str) -> None:
        (Path(output_dir) / "optimizer.pt").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Trainer, "_save_optimizer_and_scheduler", full)
    with pytest.raises(JournalError, match="No space left on device"):
        train(tiny, tmp_path / "run")
    assert not list((tmp_path / "run" / "checkpoints").glob("checkpoint-*"))
