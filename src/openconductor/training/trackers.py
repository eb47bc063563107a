"""Samples of completions for the trackers of a training, in the form of each.

Numbers reach trackers through the trainer's log; texts do not.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from transformers import Trainer
from transformers.integrations import TensorBoardCallback

from openconductor.training.scoring import Sample

_NAME = "conductor/completions"


def show_samples(trainer: Trainer, samples: Sequence[Sample]) -> None:
    """Show completions in the trackers of a trainer; only the first process has any."""
    if not samples or not trainer.is_world_process_zero():
        return
    for tracker in trainer.args.report_to or ():
        if tracker == "tensorboard":
            _write_text(trainer, samples)
        elif tracker in ("wandb", "trackio"):
            module: Any = importlib.import_module(tracker)
            module.log({_NAME: _make_table(module, samples)})


def _write_text(trainer: Trainer, samples: Sequence[Sample]) -> None:
    parts = [
        f"**{sample.question}** reward {sample.reward}\n\n```\n{sample.completion}\n```"
        for sample in samples
    ]
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.tb_writer is not None:
            callback.tb_writer.add_text(_NAME, "\n\n".join(parts), trainer.state.global_step)


def _make_table(module: Any, samples: Sequence[Sample]) -> Any:
    """Return a table of wandb or trackio."""
    from pandas import DataFrame

    return module.Table(dataframe=DataFrame(samples, columns=list(Sample._fields)))
