"""Models, tokenizers and the folders that a training writes, whole or not at all.

The tiny Conductor is a Qwen2 of a few hundred thousand parameters. Its tokenizer has one token for
each phrase of its task and of the wire, and spells all else, so that a subtask is copied as it is.
Load it with ``PreTrainedTokenizerFast``: ``AutoTokenizer`` rebuilds the pre-tokenizer of a Qwen2
checkpoint, which makes other ids.
"""

from __future__ import annotations

import json
import os
import shutil
import string
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate.utils import DeepSpeedPlugin, parse_flag_from_env
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Trainer,
)
from transformers.integrations import deepspeed

from openconductor.errors import ConfigError, JournalError
from openconductor.pool import WorkerPool, simulated_pool
from openconductor.providers.chat_template import (
    NO_OPTIONS,
    TemplateOptions,
    prepare_template,
)
from openconductor.providers.conductor_file import question_digest
from openconductor.providers.tiny import PLAIN_CHAT, Checkpoint
from openconductor.providers.transformers_lm import tokenizer_class
from openconductor.training.train_config import ModelConfig, TrainConfig
from openconductor.types import Problem, TrainedWorker

ADAPTER = "adapter"
"""The folder in a model's own with the adapters that are merged in its weights, as peft reads them.

They are those of all phases, so they go with the recipe's base.
"""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
COMPLETE = "complete"
"""The file that marks a folder as whole; it is written last, in a checkpoint with its engine."""
TOLERANCE = 1e-3
"""The largest allowed difference between the runtime's logits and torch's."""

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
_WIRE = (
    *("model_id = [", "\nmodel_id = [", "]\nsubtasks = [", "]\naccess_list = ["),
    *(f"Model {ordinal}\n" for ordinal in range(16)),
    *(f": {ordinal}" for ordinal in range(10)),
    *('"', '", "', "; ", ", ", "\n", "]", "[]", '"all"', "Question: ", ".\n"),
    *(f"[{index}]" for index in range(4)),
    *("Before:\n", "Answer: "),
)
_SPLIT_DIFFERENTLY = (
    """What's 1234 + 30?\n\nmodel_id = [0, 12]\nsubtasks = ["Add.  Don't guess", "Check it."]\n"""
)


# ── fresh models ──────────────────────────────────────────────────────────────────────────────────
def build_tokenizer(phrases: Sequence[str]) -> PreTrainedTokenizerFast:
    """Build the tiny Conductor's tokenizer, which loses nothing on printable ASCII.

    It has one token for each phrase, for each part of a workflow's text, and for each character of
    ASCII and among the phrases. The same phrases make the same tokenizer on every machine.
    """
    characters = sorted({*string.printable, *(text for text in phrases if len(text) == 1)})
    vocabulary = {token: index for index, token in enumerate((PAD, END, UNKNOWN, *characters))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    texts = [text for text in dict.fromkeys((*_WIRE, *phrases)) if len(text) > 1]
    backend.add_tokens([AddedToken(text, normalized=False) for text in texts])
    backend.add_special_tokens([AddedToken(token, special=True) for token in (PAD, END, UNKNOWN)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
    )
    tokenizer.chat_template = PLAIN_CHAT
    return tokenizer


def build_model(
    config: ModelConfig, tokenizer: PreTrainedTokenizerFast, *, seed: int
) -> Qwen2ForCausalLM:
    """Build a fresh tiny model with weights drawn by seed."""
    torch.manual_seed(seed)
    architecture = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden,
        intermediate_size=config.intermediate,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=config.positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=cast("int", tokenizer.eos_token_id),
        pad_token_id=cast("int", tokenizer.pad_token_id),
        use_sliding_window=False,
        initializer_range=config.initializer_range,
    )
    return Qwen2ForCausalLM(architecture).float()


# ── loading ───────────────────────────────────────────────────────────────────────────────────────
def is_conductor(name: str) -> bool:
    """Return True if the name is a folder that a training wrote for ``Conductor``."""
    return (Path(name) / "conductor.json").is_file()


def is_tiny(name: str) -> bool:
    """Return True if the name is the folder of a tiny Conductor."""
    template = Path(name) / "chat_template.jinja"
    if not is_conductor(name) or not template.is_file():
        return False
    return template.read_text(encoding="utf-8") == PLAIN_CHAT


def is_folder_name(name: str) -> bool:
    """Return True if a base is a folder by its name; on the hub it is ``owner/name`` at most."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1


def check_base(name: str) -> None:
    """Check that a base model exists, before anything is written or loaded.

    Raises:
        ConfigError: it does not; the message has the name and the cause.
    """
    if is_folder_name(name) and not Path(name).is_dir():
        raise _not_loaded(name, FileNotFoundError("no such folder"))
    try:
        AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise _not_loaded(name, error) from error


def load_model(
    name: str | Path, *, dtype: torch.dtype = torch.float32, options: TemplateOptions = NO_OPTIONS
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a Conductor or a base model, without its own sampling settings.

    Args:
        name: a folder, or a name on the hub.
        dtype: of the weights. Those that learn are float32, because bfloat16 weights do not move at
            the learning rates of GRPO.
        options: of the chat template.

    Raises:
        ConfigError: it cannot be loaded, weights are missing, or it has no chat template, or one
            that does not read the options.
    """
    try:
        loaded = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, output_loading_info=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise _not_loaded(name, error) from error
    model, report = cast("tuple[PreTrainedModel, dict[str, object]]", loaded)
    _check_weights(name, report)
    tokenizer = load_tokenizer(name, options)
    ends = end_ids(model) | {cast("int", tokenizer.eos_token_id)}
    model.generation_config = GenerationConfig(
        eos_token_id=sorted(ends), pad_token_id=tokenizer.pad_token_id
    )
    return model, tokenizer


def _check_weights(name: str | Path, report: dict[str, object]) -> None:
    """Check that no weight was missing; transformers draws it at random and only warns."""
    checked = ["missing_keys", "mismatched_keys"]
    if is_conductor(str(name)):
        checked = list(report)
    wrong = {key.replace("_", " "): report[key] for key in checked if report[key]}
    if wrong:
        raise ConfigError(f"checkpoint {name}: got {wrong} in its weights, expected none")


def load_tokenizer(
    name: str | Path, options: TemplateOptions = NO_OPTIONS
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a Conductor or a base model, and prepare its chat template.

    Raises:
        ConfigError: it cannot be loaded, has no chat template, or one that does not read the
            options.
    """
    try:
        tokenizer = cast("PreTrainedTokenizerBase", tokenizer_class(name).from_pretrained(name))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise _not_loaded(name, error) from error
    if not tokenizer.chat_template:
        raise ConfigError(
            f"model {name}: its tokenizer has no chat template, expected an instruction-tuned model"
        )
    prepare_template(tokenizer, str(name), options)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def servers_read_alike(folder: Path) -> bool:
    """Return True if vLLM and ``transformers serve`` split a text as the Conductor here does.

    They load tokenizers by ``AutoTokenizer``, which gives each qwen2 the splitting of Qwen's,
    whatever it was saved with.
    """
    servers = AutoTokenizer.from_pretrained(folder)
    ours = load_tokenizer(folder)
    return servers.encode(_SPLIT_DIFFERENTLY) == ours.encode(_SPLIT_DIFFERENTLY)


def end_ids(model: PreTrainedModel) -> frozenset[int]:
    """Return the ids of the tokens that end a completion."""
    declared = getattr(model.generation_config, "eos_token_id", None)
    if isinstance(declared, int):
        return frozenset({declared})
    return frozenset(declared or ())


def _not_loaded(name: str | Path, error: Exception) -> ConfigError:
    cause = " ".join(str(error).split())
    return ConfigError(f"model.base {str(name)!r}: could not be loaded: {cause}")


# ── adapters ──────────────────────────────────────────────────────────────────────────────────────
def with_adapters(model: PreTrainedModel, config: ModelConfig) -> PreTrainedModel:
    """Return the model with low-rank adapters, which alone learn, where the recipe wants them."""
    if not config.lora_rank:
        return model
    from peft import get_peft_model

    return cast("PreTrainedModel", get_peft_model(model, adapters(config)))


def adapters(config: ModelConfig) -> Any:
    """Return the recipe's adapters in peft's words."""
    from peft import LoraConfig

    return LoraConfig(
        r=config.lora_rank,
        lora_alpha=2 * config.lora_rank,
        target_modules=list(config.lora_targets) or "all-linear",
        task_type="CAUSAL_LM",
    )


def save_adapter(adapted: Any, base: str, folder: Path, earlier: Path | None) -> None:
    """Save the adapters of a model of peft, joined with those that are merged in its weights.

    Joined matrices have the sum of the products: the ranks add up.

    Args:
        adapted: the model.
        base: the name of the model that has none of the adapters.
        folder: where to write.
        earlier: the folder of the adapters that are merged; None: there are none.
    """
    from peft import get_peft_model_state_dict

    learnt = get_peft_model_state_dict(adapted)
    weights = {name: tensor.float().cpu() for name, tensor in learnt.items()}
    if earlier is not None:
        merged = load_file(earlier / ADAPTER_WEIGHTS)
        for name, tensor in weights.items():
            axis = 0 if "lora_A" in name else 1
            weights[name] = torch.cat([merged[name], tensor], axis)
    rank = next(len(tensor) for name, tensor in weights.items() if "lora_A" in name)
    settings: Any = adapted.peft_config["default"]
    alpha = settings.lora_alpha * rank // settings.r
    saved: Any = replace(settings, r=rank, lora_alpha=alpha, inference_mode=True)
    saved.base_model_name_or_path = base
    saved.save_pretrained(str(folder))
    save_file(weights, folder / ADAPTER_WEIGHTS)


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
    """Check that so many processes can go on from the newest checkpoint in a folder.

    An optimizer is stored as its engine holds it: ZeRO's in a part for each process, the others'
    whole.

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
    fits = begun["engine"] == engine
    if begun["engine"].startswith("ZeRO"):
        wanted += f" with {begun['processes']} processes"
        fits = fits and begun["processes"] == processes
    if not fits:
        raise ConfigError(
            f"checkpoint {path}: requires {wanted}, got {engine} with {processes}; resume with the "
            f"same (accelerate launch), or remove {folder}, and this phase begins anew"
        )


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
                    processes = self.accelerator.num_processes
                    mark = json.dumps({"engine": engine_name(), "processes": processes})
                    (path / COMPLETE).write_text(mark, encoding="utf-8")
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
    simulated = simulated_pool(config.pool)
    if simulated is not None and simulated.redrawn:
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
