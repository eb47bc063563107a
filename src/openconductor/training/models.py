"""Models, their tokenizers and adapters: fresh ones, and those that a training starts from.

The tiny Conductor is a Qwen2 of a few hundred thousand parameters. Its tokenizer has one token for
each phrase of its task and of the wire, and spells all else, so that a subtask is copied as it is.
Load it with ``PreTrainedTokenizerFast``: ``AutoTokenizer`` rebuilds the pre-tokenizer of a Qwen2
checkpoint, which makes other ids.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
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
)

from openconductor.errors import ConfigError
from openconductor.providers.chat_template import (
    NO_OPTIONS,
    TemplateOptions,
    prepare_template,
)
from openconductor.providers.conductor_file import weights_digest
from openconductor.providers.tiny import PLAIN_CHAT
from openconductor.providers.transformers_lm import (
    avoid_cudnn_attention,
    speed_up_head,
    tokenizer_class,
)
from openconductor.training.train_config import ModelConfig

ADAPTER = "adapter"
"""The folder in a model's own with the adapters that are merged in its weights, as peft reads them.

They are those of all phases, so they go with the recipe's base.
"""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
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


def check_base(name: str) -> str:
    """Check that a base model exists, before anything is written or loaded.

    Returns:
        Its commit, if it comes from the hub. "": it is a folder.

    Raises:
        ConfigError: it does not; the message has the name and the cause.
    """
    if is_folder_name(name) and not Path(name).is_dir():
        raise _not_loaded(name, FileNotFoundError("no such folder"))
    try:
        config = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise _not_loaded(name, error) from error
    commit: str | None = getattr(config, "_commit_hash", None)
    return commit or ""


def digest_base(name: str) -> str:
    """Return a digest of a base model's weights, as ``Provider.weights``; it reads them all.

    Raises:
        ConfigError: there is no such model.
    """
    return check_base(name) or weights_digest(Path(name))


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
    speed_up_head(model)
    avoid_cudnn_attention()
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
def with_adapters(model: PreTrainedModel, config: ModelConfig, *, seed: int) -> PreTrainedModel:
    """Return the model with low-rank adapters, which alone learn, where the recipe wants them.

    Their weights are drawn by seed.
    """
    if not config.lora_rank:
        return model
    from peft import get_peft_model

    torch.manual_seed(seed)
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
