"""The tiny Conductor and the folders that a training writes: models, tokenizers, checkpoints, whole or not at all.

In: sizes and a seed, or a folder. Out: a model with its tokenizer (torch), and folders that a reader never sees
half-written. The tiny Conductor is a Qwen2 of a few hundred thousand parameters; its tokenizer has one token for each
phrase of the gym and of the wire, and spells all else, so a subtask is copied as it is. Load it with
``PreTrainedTokenizerFast``: ``AutoTokenizer`` rebuilds the pre-tokenizer of a Qwen2 checkpoint and with it other ids.
"""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import torch
from safetensors import SafetensorError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from openconductor.errors import ConfigError, JournalError
from openconductor.gym.questions import JOINERS, LARGEST, OPENERS, SMUDGED
from openconductor.gym.sampling import REMARK
from openconductor.gym.world import COMPARE, OPERATIONS, WORDINGS
from openconductor.providers.tiny import PLAIN_CHAT, Checkpoint
from openconductor.training.train_config import ModelConfig, TrainConfig

COMPLETE = "complete"
"""The file that marks a folder as whole; it is written last."""
TOLERANCE = 1e-3
"""The largest difference between the runtime's logits and torch's with which a checkpoint is handed out."""

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
_WIRE = (
    *("model_id = [", "\nmodel_id = [", "]\nsubtasks = [", "]\naccess_list = ["),
    *(f"Model {ordinal}\n" for ordinal in range(16)),
    *(f": {ordinal}" for ordinal in range(10)),
    *('"', '", "', "; ", ", ", "\n", "]", "[]", '"all"', "Question: ", ".\n"),
    *(f"[{index}]" for index in range(4)),
    *("Before:\n", "Answer: "),
)


# ── models and tokenizers ────────────────────────────────────────────────────────────────────────────────────────────
def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tiny Conductor's tokenizer, the same on every machine; it loses nothing on printable ASCII."""
    characters = sorted(set(string.printable))
    vocabulary = {token: index for index, token in enumerate((PAD, END, UNKNOWN, *characters))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    numbers = [f" {number}" for number in range(LARGEST + 1)]
    phrases = [operation.phrase(wording) for operation in OPERATIONS.values() for wording in WORDINGS]
    texts = [*_WIRE, *OPENERS, *JOINERS, f" {SMUDGED}", REMARK, *phrases, *COMPARE, *numbers]
    backend.add_tokens([AddedToken(text, normalized=False) for text in dict.fromkeys(texts) if len(text) > 1])
    backend.add_special_tokens([AddedToken(token, special=True) for token in (PAD, END, UNKNOWN)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=PAD, eos_token=END, unk_token=UNKNOWN, padding_side="left"
    )
    tokenizer.chat_template = PLAIN_CHAT
    return tokenizer


def end_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id of the token that ends a completion."""
    return cast("int", tokenizer.eos_token_id)


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id of the token that fills rows up."""
    return cast("int", tokenizer.pad_token_id)


def build_model(config: ModelConfig, tokenizer: PreTrainedTokenizerFast, *, seed: int) -> Qwen2ForCausalLM:
    """A fresh tiny model with weights drawn by seed."""
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
        eos_token_id=end_id(tokenizer),
        pad_token_id=pad_id(tokenizer),
        use_sliding_window=False,
        initializer_range=config.initializer_range,
    )
    return Qwen2ForCausalLM(architecture).float()


def is_tiny(name: str) -> bool:
    """Whether a name is the folder of a tiny Conductor that was saved here."""
    return (Path(name) / "conductor.json").is_file()


def load_model(folder: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    """Load a checkpoint of the tiny Conductor.

    Raises:
        ConfigError: the folder holds no checkpoint, one of another architecture, or one whose weights do not fit it.
    """
    described = folder / "config.json"
    if not described.is_file():
        raise ConfigError(f"checkpoint {folder}: found no config.json, expected a folder saved by training")
    if (got := json.loads(described.read_text(encoding="utf-8")).get("model_type")) != "qwen2":
        raise ConfigError(f"checkpoint {folder}: got architecture {got!r}, expected 'qwen2'")
    loaded = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    model, found = cast("tuple[Qwen2ForCausalLM, dict[str, object]]", loaded)
    # transformers fills what is missing with random numbers, and only warns.
    if wrong := {what.replace("_", " "): keys for what, keys in found.items() if keys}:
        raise ConfigError(f"checkpoint {folder}: got {wrong} in its weights, expected none")
    return model, PreTrainedTokenizerFast.from_pretrained(folder)


def load_base_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a base model from a folder or a hub, as its own configuration says; tiny Conductors from their folder.

    Raises:
        ConfigError: it cannot be loaded; the message names it and the cause.
    """
    if is_tiny(name):
        return load_model(Path(name))
    try:
        return AutoModelForCausalLM.from_pretrained(name, dtype="auto"), AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.base {name!r}: could not be loaded: {error}") from error


# ── folders ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@contextmanager
def storing(what: Path) -> Generator[None]:
    """Turn a failing disk into a JournalError that says what could not be written.

    torch and safetensors wrap a full disk into errors of their own; torch's is known by its text alone.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "PytorchStreamWriter" not in str(error):
            raise
        cause = error.strerror if isinstance(error, OSError) else None
        raise JournalError(f"{what}: could not be written: {cause or error}") from error


@contextmanager
def whole_folder(path: Path) -> Generator[Path]:
    """Fill a folder whole: the block writes to a neighbour, which takes its place at the end."""
    part = path.with_name(path.name + ".part")
    with storing(path):
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
    """Whether a folder was written to its end."""
    return (path / COMPLETE).is_file()


def last_checkpoint(folder: Path) -> tuple[Path | None, int]:
    """The newest whole checkpoint and the iterations done by then; unfinished ones are removed."""
    best: tuple[Path | None, int] = (None, 0)
    for path in folder.glob("checkpoint-*"):
        if not is_complete(path):
            shutil.rmtree(path, ignore_errors=True)
        elif (done := int(path.name.rpartition("-")[2])) > best[1]:
            best = (path, done)
    return best


def save_conductor(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: TrainConfig, folder: Path
) -> None:
    """Save what ``Conductor`` needs: weights, tokenizer, and how it wants to be asked (``conductor.json``).

    A tiny one is read back by the runtime and compared with torch before it takes its place.

    Raises:
        ConfigError: the runtime computes something else.
        JournalError: the disk failed; a folder that was there before is unchanged.
    """
    described = {
        "prompt": config.prompt.model_dump(),
        "max_tokens": config.rollout.max_tokens,
        "max_steps": config.rollout.max_steps,
    }
    with whole_folder(folder) as part:
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        (part / "conductor.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        if tokenizer.chat_template == PLAIN_CHAT:
            difference = largest_difference(Checkpoint.read(part), cast("Qwen2ForCausalLM", model))
            if not difference <= TOLERANCE:
                raise ConfigError(
                    f"checkpoint {folder}: the runtime's logits differ by {difference:.2g} from torch's, expected at "
                    f"most {TOLERANCE}"
                )


def largest_difference(checkpoint: Checkpoint, model: Qwen2ForCausalLM) -> float:
    """How far the runtime's logits are from torch's, at most, on random tokens.

    Two sequences are read at once, as a prompt and then a token at a time through the cache, and each position is
    compared with the logits that torch computes of the whole text without one.
    """
    length = min(12, checkpoint.shape.max_position_embeddings)
    ids = torch.randint(checkpoint.shape.vocab_size, (2, length), generator=torch.Generator().manual_seed(0))
    training = model.training
    with torch.no_grad():
        expected = model.eval()(input_ids=ids.to(model.device), use_cache=False).logits.float().cpu().numpy()
    model.train(training)
    mask = np.ones(ids.shape, np.int64)
    places = mask.cumsum(1) - 1
    cache, worst, start = checkpoint.empty_cache(2), 0.0, 0
    for end in range(length // 2, length + 1):
        logits, cache = checkpoint.step(ids[:, start:end].numpy(), mask[:, :end], places[:, start:end], cache)
        worst = max(worst, float(np.abs(logits - expected[:, end - 1]).max()))
        start = end
    return worst
