"""The folders that a training writes, whole or not at all, by one process or several.

A checkpoint of a phase says which engine can go on from it. A Conductor's folder says how it is
asked (``conductor.json``).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate.utils import (
    DeepSpeedPlugin,
    FullyShardedDataParallelPlugin,
    parse_flag_from_env,
)
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2ForCausalLM,
    Trainer,
)
from transformers.integrations import deepspeed

from openconductor.errors import ConfigError, JournalError
from openconductor.pool import WorkerPool
from openconductor.providers.conductor_file import question_digest
from openconductor.providers.tiny import PLAIN_CHAT, Checkpoint
from openconductor.training.completions import draws_ordinals
from openconductor.training.models import ADAPTER, save_adapter
from openconductor.training.train_config import TrainConfig
from openconductor.types import Problem, TrainedWorker

COMPLETE = "complete"
"""The file that marks a folder as whole; it is written last, in a checkpoint with its engine."""
TOLERANCE = 1e-3
"""The largest allowed difference between the runtime's logits and torch's."""


# ── several processes ─────────────────────────────────────────────────────────────────────────────
def engine_name() -> str:
    """Return how the processes share the model, as ``accelerate launch`` says.

    ``plain``: each has all of it.
    """
    if parse_flag_from_env("ACCELERATE_USE_DEEPSPEED"):
        return f"ZeRO-{DeepSpeedPlugin().zero_stage}"
    if parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return f"FSDP{os.environ.get('FSDP_VERSION', '1')}"
    return "plain"


def _state_dict_type() -> str:
    """Return how FSDP stores weights and optimizer: whole, or in a part for each process."""
    kind: Any = FullyShardedDataParallelPlugin().state_dict_type
    return kind.name


def check_engine() -> str:
    """Check that the engine runs on this machine, and that its weights can be saved.

    Returns:
        Its name.

    Raises:
        ConfigError: it does not, or they cannot.
    """
    engine = engine_name()
    if engine.startswith("FSDP") and not torch.cuda.is_available():
        raise ConfigError(
            f"engine: got {engine}, which needs GPUs, and this machine has none; start without "
            "it: torchrun --nproc_per_node=2 -m openconductor train ..."
        )
    if engine == "ZeRO-3" and not DeepSpeedPlugin().zero3_save_16bit_model:
        raise ConfigError(
            "engine: ZeRO-3 would not gather the weights that it learnt; expected "
            "zero3_save_16bit_model: true in the config of accelerate, as in "
            "recipes/accelerate/deepspeed.yaml"
        )
    return engine


@contextmanager
def unsharded() -> Generator[None]:
    """Let one process load and run a whole model alone in the block.

    Under ZeRO-3 transformers shares every model among all processes, and waits for them.
    """
    reference = cast("Any", deepspeed)._hf_deepspeed_config_weak_ref
    config = None if reference is None else reference()
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config is not None:
            deepspeed.set_hf_deepspeed_config(config)


def whole_model(trainer: Trainer) -> PreTrainedModel | None:
    """Return a model with all weights of a trainer, plain or with adapters.

    Every process must call it. None: in all but the first.
    """
    accelerator = trainer.accelerator
    model: Any = accelerator.unwrap_model(trainer.model)
    adapted = hasattr(model, "merge_and_unload")
    if engine_name() == "plain" and not adapted:
        return model if accelerator.is_main_process else None
    # DeepSpeed's engine alone can gather its weights.
    sharded = cast("Any", trainer).deepspeed or trainer.model
    state = cast("dict[str, torch.Tensor]", accelerator.get_state_dict(sharded))
    if not accelerator.is_main_process:
        return None
    base = cast("PreTrainedModel", model.get_base_model() if adapted else model)
    dtype = torch.float32 if adapted else base.dtype
    with unsharded():
        # A model of its own: it ties its weights, which then are saved once.
        whole: Any = AutoModelForCausalLM.from_config(base.config, dtype=dtype)
        whole.generation_config = base.generation_config
        if not adapted:
            whole.load_state_dict(state)
            return whole
        from peft import get_peft_model

        adapting: Any = get_peft_model(whole, model.peft_config["default"])
        adapting.load_state_dict(state)
        return adapting


# ── folders ───────────────────────────────────────────────────────────────────────────────────────
_TORCH_DISK = ("PytorchStreamWriter", "inline_container")  # in torch's errors of a full disk


@contextmanager
def storing(path: Path, size: int = 0) -> Generator[None]:
    """Turn a failing disk into a JournalError that says what could not be written, and what to do.

    torch and safetensors wrap a full disk into errors of their own; torch's is known by its text
    alone. ``size`` is about how many bytes are written; 0: unknown.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        cause = str(error)
        if isinstance(error, OSError):
            cause = error.strerror or cause
        elif not isinstance(error, SafetensorError):
            if not any(word in cause for word in _TORCH_DISK):
                raise
            cause = "the disk took only a part of it"
        parent = next(folder for folder in path.absolute().parents if folder.is_dir())
        room = f"{_megabytes(shutil.disk_usage(parent).free)} are free there"
        if size:
            room += f", about {_megabytes(size)} are needed"
        raise JournalError(
            f"{path}: could not be written: {cause}; {room}. Make room and start again; a training "
            "goes on from its last checkpoint with --resume"
        ) from error


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


@contextmanager
def whole_folder(path: Path, size: int = 0) -> Generator[Path]:
    """Fill a folder whole: the block writes to a neighbour, which takes its place at the end.

    ``size`` is as for ``storing``.
    """
    part = path.with_name(path.name + ".part")
    with storing(path, size):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            yield part
            (part / COMPLETE).write_text("", encoding="utf-8")
            shutil.rmtree(path, ignore_errors=True)
            part.replace(path)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def is_complete(path: Path) -> bool:
    """Return True if a folder was written to its end."""
    return (path / COMPLETE).is_file()


def last_checkpoint(folder: Path) -> tuple[Path | None, int]:
    """Return the newest whole checkpoint and the steps done by then; remove unfinished ones."""
    latest, steps = None, 0
    for path in folder.glob("checkpoint-*"):
        if not is_complete(path):
            shutil.rmtree(path, ignore_errors=True)
            continue
        done = int(path.name.rpartition("-")[2])
        if done > steps:
            latest, steps = path, done
    return latest, steps


def check_checkpoint(folder: Path, processes: int) -> None:
    """Check that this number of processes can go on from the newest checkpoint in a folder.

    An optimizer is stored as its engine holds it: ZeRO's in a part for each process, FSDP's as
    ``FSDP_STATE_DICT_TYPE`` says, that of plain processes whole.

    Raises:
        ConfigError: they cannot.
    """
    path, _ = last_checkpoint(folder)
    mark = "" if path is None else (path / COMPLETE).read_text(encoding="utf-8")
    if not mark:
        return
    begun: dict[str, Any] = json.loads(mark)
    engine = engine_name()
    wanted = f"the engine {begun['engine']}"
    got = f"{engine} with {processes}"
    fits = begun["engine"] == engine
    if begun["engine"].startswith("ZeRO"):
        wanted += f" with {begun['processes']} processes"
        fits = fits and begun["processes"] == processes
    elif fits and "state_dict" in begun:
        wanted += f" and fsdp_state_dict_type {begun['state_dict']}"
        got = f"{engine} and {_state_dict_type()}"
        fits = begun["state_dict"] == _state_dict_type()
    if not fits:
        raise ConfigError(
            f"checkpoint {path}: requires {wanted}, got {got}; resume with the same (accelerate "
            f"launch), or remove {folder}, and this phase begins anew"
        )


def _describe_engine(processes: int) -> dict[str, object]:
    """Return what a checkpoint notes of the processes that write it."""
    engine = engine_name()
    described: dict[str, object] = {"engine": engine, "processes": processes}
    if engine.startswith("FSDP"):
        described["state_dict"] = _state_dict_type()
    return described


class WholeCheckpoints(Trainer):
    """A trainer whose checkpoints are whole or absent, and say what can go on from them."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        path = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        learnt = sum(weights.numel() for weights in model.parameters() if weights.requires_grad)
        first = self.accelerator.is_main_process
        with storing(path, 12 * learnt):  # weights and two moments
            try:
                super()._save_checkpoint(model, trial)
                self.accelerator.wait_for_everyone()
                if first:
                    engine = _describe_engine(self.accelerator.num_processes)
                    (path / COMPLETE).write_text(json.dumps(engine), encoding="utf-8")
            finally:
                if first and not is_complete(path):
                    shutil.rmtree(path, ignore_errors=True)


def save_trained(
    trainer: Trainer,
    tokenizer: PreTrainedTokenizerBase,
    config: TrainConfig,
    folder: Path,
    pool: WorkerPool,
    learnt: Sequence[Problem] = (),
    answer_forms: Sequence[str] = (),
    before: Path | None = None,
) -> None:
    """Save the model of a trainer as ``save_conductor`` does; every process must call it."""
    model = whole_model(trainer)
    if model is not None:
        with unsharded():
            save_conductor(
                model,
                tokenizer,
                config,
                folder,
                pool=pool,
                learnt=learnt,
                answer_forms=answer_forms,
                before=before,
            )
    trainer.accelerator.wait_for_everyone()


def save_conductor(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    config: TrainConfig,
    folder: Path,
    *,
    pool: WorkerPool | None = None,
    learnt: Sequence[Problem] = (),
    answer_forms: Sequence[str] = (),
    before: Path | None = None,
) -> None:
    """Save weights, tokenizer, and how the Conductor wants to be asked (``conductor.json``).

    That file also says what it learnt from, so that no evaluation takes it for held out, which
    workers it knows, unless each question had workers of its own, and which ``answer_forms`` of
    questions it was not shown. A tiny Conductor is read back by the runtime and compared with
    torch before it takes its place. Adapters are merged, and also kept as they are; ``before`` is
    the folder of the model that they were learnt on (None: the recipe's base).

    Raises:
        ConfigError: the runtime computes something else.
        JournalError: the disk failed; a folder that was there before is unchanged.
    """
    is_plain = tokenizer.chat_template == PLAIN_CHAT
    tasks = {config.data.task, *(problem.task for problem in learnt)}
    description = {
        "prompt": config.prompt.model_dump() | {"answer_forms": answer_forms},
        "max_tokens": config.rollout.max_tokens,
        "max_steps": config.rollout.max_steps,
        "chat": "plain" if is_plain else "template",
        "chat_template_kwargs": config.model.chat_template_kwargs,
        "learnt_splits": sorted({f"{task}/{config.data.split}" for task in tasks}),
        "learnt_questions": sorted({question_digest(problem.question) for problem in learnt}),
        "workers": [] if pool is None else _describe_workers(config, pool),
    }
    size = sum(tensor.nbytes for tensor in model.state_dict().values())
    earlier = None if before is None else before / ADAPTER
    if earlier is not None and not earlier.is_dir():
        earlier = None
    with whole_folder(folder, size) as part:
        if hasattr(model, "merge_and_unload"):
            save_adapter(model, config.model.base, part / ADAPTER, earlier)
            model = cast("PreTrainedModel", cast("Any", model).merge_and_unload())
        elif earlier is not None:
            shutil.copytree(earlier, part / ADAPTER)
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        text = json.dumps(description, indent=2) + "\n"
        (part / "conductor.json").write_text(text, encoding="utf-8")
        if is_plain:
            difference = largest_difference(Checkpoint.read(part), cast("Qwen2ForCausalLM", model))
            if not difference <= TOLERANCE:  # nor NaN
                raise ConfigError(
                    f"checkpoint {folder}: the runtime's logits differ by {difference:.2g} from "
                    f"torch's, expected at most {TOLERANCE}"
                )


def _describe_workers(config: TrainConfig, pool: WorkerPool) -> list[dict[str, object]]:
    """Return the workers that a training shows under the same ordinals throughout."""
    if draws_ordinals(config):
        return []
    workers: list[dict[str, object]] = []
    for ordinal, worker in pool:
        described = TrainedWorker(ordinal, worker.name, worker.resolved.model)
        workers.append(asdict(described))
    return workers


def largest_difference(checkpoint: Checkpoint, model: Qwen2ForCausalLM) -> float:
    """Return the largest difference of the runtime's logits from torch's, on random tokens.

    Two sequences are read to their end, whose logits depend on all of their tokens.
    """
    length = min(12, checkpoint.shape.max_position_embeddings)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(checkpoint.shape.vocab_size, (2, length), generator=generator)
    was_training = model.training
    with torch.no_grad():
        output = model.eval()(input_ids=ids.to(model.device), use_cache=False)
    model.train(was_training)
    expected = output.logits[:, -1].float().cpu().numpy()
    mask = np.ones(ids.shape, np.int64)
    positions = mask.cumsum(1) - 1
    logits, _ = checkpoint.step(ids.numpy(), mask, positions, checkpoint.empty_cache(2))
    return float(np.abs(logits - expected).max())
