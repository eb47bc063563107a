"""A phase of somebody else's: it learns, its model is stored, and a killed run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra 'train': pip install 'openconductor[train]'")

import best_of_group
from best_of_group import BestOfGroup

from openconductor.errors import TrainingStopped
from openconductor.gym.bundled import bundled_folder
from openconductor.store import read_store
from openconductor.training.run import train
from openconductor.training.train_config import SupervisedConfig, TrainConfig

pytestmark = pytest.mark.train

CONFIG = TrainConfig.model_validate(
    {
        "pool": "gym",
        "data": {"task": "gym"},
        "model": {"base": str(bundled_folder() / "cold_start")},
        "prompt": {"template": "compact", "access": "index"},
        "rollout": {"max_tokens": 72},
        "save_every": 2,
        "start": {"prompts": 8, "workflows": 8},
        "held_out": {"questions": 8},
    }
)
LEARNING = SupervisedConfig(steps=4, batch=4, micro_batch=4, learning_rate=1e-3)
PHASE = BestOfGroup(questions=16, completions=4, learning=LEARNING).phase()


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_run_that_is_killed_in_the_phase_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    results = train(CONFIG, whole, phases=[PHASE])
    assert results["start"]["rollouts"] == results["greedy"]["rollouts"] == 8
    assert weights(whole / "conductor") == weights(whole / "best_of_group")
    assert weights(whole / "conductor") != weights(bundled_folder() / "cold_start")
    with read_store(whole / "journal.sqlite") as journal:
        phases = [str(record.value["training"]) for record in journal.records()]
    assert phases.count("best of group") == 64

    rows: list[object] = []

    def kill_in_step_4(*texts: object) -> object:
        rows.append(texts)
        if len(rows) > 3 * LEARNING.batch:
            raise InterruptedError
        return make_row(*texts)

    make_row = best_of_group.make_row
    with monkeypatch.context() as patched:
        patched.setattr(best_of_group, "make_row", kill_in_step_4)
        with pytest.raises(InterruptedError):
            train(CONFIG, cut, phases=[PHASE])
    assert not (cut / "best_of_group").exists()
    train(CONFIG, cut, phases=[PHASE], resume=True)
    assert weights(cut / "conductor") == weights(whole / "conductor")
    assert not (cut / "best_of_group_checkpoints").exists()


def test_where_nothing_is_right_the_phase_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_of_group, "_right_places", lambda *_: [])
    with pytest.raises(TrainingStopped, match="no workflow was right"):
        train(CONFIG, tmp_path / "run", phases=[PHASE])
