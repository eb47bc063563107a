"""Samples of completions in trackers."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.integrations import TensorBoardCallback

from openconductor.training.grpo import show_samples
from openconductor.training.scoring import Sample

pytestmark = pytest.mark.train

SAMPLES = [Sample("What is 2 + 2?", "model_id = [0]", 0.5), Sample("What?", "no plan", 0.0)]


def trainer(tracker: str, *callbacks: object, first: bool = True) -> Any:
    return SimpleNamespace(
        args=SimpleNamespace(report_to=[tracker]),
        is_world_process_zero=lambda: first,
        state=SimpleNamespace(global_step=7),
        callback_handler=SimpleNamespace(callbacks=callbacks),
    )


def test_tensorboard_gets_questions_plans_and_rewards_as_text() -> None:
    written: list[tuple[str, str, int]] = []
    callback = object.__new__(TensorBoardCallback)
    callback.tb_writer = SimpleNamespace(add_text=lambda *text: written.append(text))
    show_samples(trainer("tensorboard", callback), SAMPLES)
    ((name, text, step),) = written
    assert (name, step) == ("conductor/completions", 7)
    assert "**What is 2 + 2?** reward 0.5" in text and "no plan" in text
    show_samples(trainer("tensorboard", callback, first=False), SAMPLES)
    show_samples(trainer("tensorboard", callback), [])
    assert len(written) == 1


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_wandb_and_trackio_get_a_table(tracker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []
    module = SimpleNamespace(log=logged.append, Table=lambda dataframe: dataframe)
    monkeypatch.setitem(sys.modules, tracker, module)
    show_samples(trainer(tracker), SAMPLES)
    table = logged[0]["conductor/completions"]
    assert list(table.columns) == ["question", "completion", "reward"]
    assert table["completion"].tolist() == ["model_id = [0]", "no plan"]
