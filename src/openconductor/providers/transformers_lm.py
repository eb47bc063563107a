"""A model of ``transformers`` in this process (extra ``local``).

``batching`` collects calls into batches; here a batch is generated, and a model is loaded. Workers
of one base share its weights and its batches: each row of a batch goes through its own adapter.
"""

# torch and transformers are typed in part only; everything else of strict mode holds.
# pyright: reportMissingTypeStubs=false, reportPrivateImportUsage=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

import torch
import transformers as hf
from jinja2 import TemplateError

from openconductor.config import needing, one_of
from openconductor.errors import ConfigError, Rejected
from openconductor.providers.batching import BatchingProvider, BatchRow, pad_prompts, thread_of
from openconductor.providers.chat_template import NO_OPTIONS, prepare_template
from openconductor.providers.conductor_file import (
    NAME as CONDUCTOR_FILE,
    read_conductor_file,
    weights_digest,
)
from openconductor.types import Sampling

# The limit if neither ``Sampling.max_tokens`` nor the model's generation settings set one.
MAX_TOKENS = 4096

DTYPES = ("auto", "float32", "bfloat16", "float16")

_TEMPLATE_OPTIONS = "chat_template_kwargs"
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_NO_ADAPTER = "__base__"  # peft's name of a row that no adapter changes


class TransformersProvider(BatchingProvider):
    """A causal LM that ``transformers`` loads, asked through its chat template.

    It is loaded when it is made. ``Sampling.body`` may hold ``chat_template_kwargs``, which go to
    the chat template (``{"enable_thinking": False}``); those that a Conductor was trained with
    stay. A template without a system turn gets its text at the head of the first user turn.

    Args:
        model: a folder, or a name on the hub (``transformers`` downloads it if its cache lacks it).
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``. None: a GPU if there is one.
        dtype: type of the weights: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``, as
            they were saved.
        adapter: a folder with LoRA weights, as peft saves them. The base is in memory once, however
            many workers add adapters to it.
        batch: the most calls that are generated together. More are faster, and take more memory.
            Workers of one base share their batches, so give them the same number.

    Attributes:
        model: as given.

    Raises:
        ConfigError: the model cannot be loaded or has no chat template, the device, the dtype or
            the batch is invalid, or the adapter cannot be loaded.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str | None = None,
        dtype: str = "auto",
        adapter: str | Path | None = None,
        batch: int = 16,
    ) -> None:
        if batch < 1:
            raise ConfigError(f"batch: got {batch}, expected at least 1")
        self.model = str(model)
        self._base = _open_base(self.model, device, dtype)
        self._tokenizer = self._base.tokenizer
        self._lm = self._base.lm
        self._device = self._lm.device
        thread = f"transformers-{self.model}-{self._device}"
        config = self._lm.config
        self._commit: str = getattr(config, "_commit_hash", None) or ""
        self.identity = f"transformers {self.model} {self._lm.dtype} {self._commit}".strip()
        digest = ""
        if adapter is not None:
            digest = _digest_adapter(Path(adapter))
            # In the thread of the model, so that no batch is under way.
            thread_of(thread).submit(self._base.add_adapter, Path(adapter), digest).result()
            self.identity += f" adapter {digest}"
        if (Path(model) / CONDUCTOR_FILE).is_file():
            trained = read_conductor_file(Path(model))
            self.prompt_options = trained.prompt
            self.max_steps = trained.max_steps
            self.trained_with = trained.trained_with
            self.sampling = Sampling(max_tokens=trained.max_tokens)
        positions = getattr(config.get_text_config(), "max_position_embeddings", None)
        max_tokens = getattr(self._lm.generation_config, "max_new_tokens", None)
        super().__init__(
            thread,
            positions=cast("int | None", positions) or sys.maxsize,
            max_tokens=cast("int | None", max_tokens) or MAX_TOKENS,
            ends=self._end_tokens(),
            batch=batch,
            waiting=self._base.waiting,
            adapter=digest,
        )
        self._filler = min(self._ends, default=0)  # hidden by the mask

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, device={str(self._device)!r})"

    def weights(self) -> str:
        """Return the commit of a model of the hub, and a digest of a folder's weights."""
        return self._commit or weights_digest(Path(self.model))

    def _end_tokens(self) -> list[int]:
        """Return the tokens that end a completion: the model's, or else the tokenizer's."""
        ends = cast(Any, getattr(self._lm.generation_config, "eos_token_id", None))
        if ends is None or ends == []:
            ends = self._tokenizer.eos_token_id
        if not isinstance(ends, list):
            ends = [ends]
        return [cast(int, end) for end in ends if end is not None]

    def _check_body(self, sampling: Sampling) -> None:
        body = dict(sampling.body)
        options = body.get(_TEMPLATE_OPTIONS, {})
        if set(body) - {_TEMPLATE_OPTIONS} or not isinstance(options, Mapping):
            raise ConfigError(
                f"sampling.body: got {body!r}, expected only a table `{_TEMPLATE_OPTIONS}`"
            )

    def _encode(self, row: BatchRow) -> list[int]:
        turns = [{"role": message.role, "content": message.content} for message in row.messages]
        options = dict(cast("Mapping[str, Any]", row.sampling.body.get(_TEMPLATE_OPTIONS, {})))
        options |= {"tokenize": True, "add_generation_prompt": True, "return_dict": False}
        try:
            return cast("list[int]", self._tokenizer.apply_chat_template(turns, **options))
        except (TemplateError, ValueError, TypeError) as error:
            raise Rejected(f"{self!r}: its chat template refuses the turns: {error}") from error

    def _decode(self, ids: Sequence[int]) -> str:
        return cast("str", self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def _generate(self, rows: list[BatchRow]) -> None:
        padded, known = pad_prompts(rows, self._filler)
        ids = torch.tensor(padded, device=self._device)
        mask = torch.tensor(known, device=self._device)
        cache: Any = None
        with torch.inference_mode():
            while rows:
                ids, cache = self._generate_until_half_are_over(rows, ids, mask, cache)
                running = [place for place, row in enumerate(rows) if not row.over]
                rows = [rows[place] for place in running]
                ids, mask, cache = keep_rows(running, ids, mask, cache)

    def _generate_until_half_are_over(
        self, rows: Sequence[BatchRow], ids: torch.Tensor, mask: torch.Tensor, cache: Any
    ) -> tuple[torch.Tensor, Any]:
        """Generate until half of the rows are over, so that they cost nothing while others go on.

        Args:
            rows: the calls, none of them over.
            ids: their prompts and what they wrote so far [B, T].
            mask: 0 at padding, else 1 [B, T].
            cache: of all tokens but the last; None: of none.

        Returns:
            The tokens with the new ones [B, T + new], and their cache.
        """
        settings = hf.GenerationConfig(
            max_new_tokens=max(row.limit - len(row.ids) for row in rows),
            do_sample=False,
            pad_token_id=self._filler,
            eos_token_id=None,
            return_dict_in_generate=True,
        )
        last = time.perf_counter()
        stopped = False

        def draw(_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return scores if stopped else _draw(rows, scores)

        def take_tokens(input_ids: torch.Tensor, *_: object, **_more: object) -> torch.Tensor:
            """Hand each row its token, and return for each row whether to stop.

            On some devices the model takes one more step after it was stopped, which is undone.
            """
            nonlocal last, stopped
            if stopped:
                return torch.full((len(rows),), True, device=input_ids.device)
            now = time.perf_counter()
            running = [row for row in rows if not row.over]
            share = (now - last) / max(1, len(running))
            last = now
            for row, token in zip(rows, input_ids[:, -1].tolist(), strict=True):
                if not row.over:
                    row.seconds += share
                    self._take(row, token)
            stopped = 2 * sum(row.over for row in rows) >= len(rows)
            return torch.full((len(rows),), stopped, device=input_ids.device)

        model = cast(Any, self._lm)
        adapters: dict[str, list[str]] = {}
        if self._base.adapted is not None:
            model = self._base.adapted
            adapters["adapter_names"] = [row.adapter or _NO_ADAPTER for row in rows]
        output = model.generate(
            ids,
            attention_mask=mask,
            past_key_values=cache,
            generation_config=settings,
            logits_processor=hf.LogitsProcessorList(cast(Any, [draw])),
            stopping_criteria=hf.StoppingCriteriaList(cast(Any, [take_tokens])),
            synced_gpus=False,  # a training by several processes asks it in one of them
            **adapters,
        )
        return output.sequences, output.past_key_values


def keep_rows(
    kept: Sequence[int], ids: torch.Tensor, mask: torch.Tensor, cache: Any
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Keep some rows of a batch that goes on.

    Args:
        kept: their places.
        ids: all tokens [B, T + new].
        mask: of the tokens that were there before [B, T].
        cache: of all tokens but the last.

    Returns:
        The tokens, their mask and their cache; None: the cache must be computed anew.
    """
    places = torch.tensor(kept, dtype=torch.long, device=ids.device)
    new = ids.shape[1] - mask.shape[1]
    mask = torch.nn.functional.pad(mask[places], (0, new), value=1)
    if not hasattr(cache, "batch_select_indices"):
        return ids[places], mask, None
    cache.batch_select_indices(places)
    return ids[places], mask, cache


def _draw(rows: Sequence[BatchRow], scores: torch.Tensor) -> torch.Tensor:
    """Draw the next token of the rows that sample, by each row's own random number.

    Returns:
        The scores; all but the drawn token of a row that samples are minus infinity.
    """
    indices: list[int] = []
    temperatures: list[list[float | None]] = []
    numbers: list[list[float]] = []
    for index, row in enumerate(rows):
        if row.draws is not None and not row.over:
            indices.append(index)
            temperatures.append([row.sampling.temperature])
            numbers.append([row.draws.random()])
    if not indices:
        return scores
    device = scores.device
    logits = scores[indices].float()
    scaled = (logits - logits.amax(dim=1, keepdim=True)) / torch.tensor(temperatures, device=device)
    mass = scaled.exp().cumsum(dim=1)
    points = torch.tensor(numbers, device=device) * mass[:, -1:]
    tokens = (mass <= points).sum(dim=1, keepdim=True).clamp(max=scores.shape[1] - 1)
    drawn = torch.full_like(scores[indices], -torch.inf).scatter(1, tokens, 0.0)
    return scores.index_copy(0, torch.tensor(indices, device=device), drawn)


# ── bases and adapters ────────────────────────────────────────────────────────────────────────────
class _Base:
    """A loaded model, with all that its workers share.

    Attributes:
        tokenizer, lm: of the model.
        waiting: the calls that wait for its next batch.
        adapted: the model as peft's, which holds the adapters; None: there are none.
    """

    def __init__(self, name: str, device: str | None, dtype: str) -> None:
        self.tokenizer, self.lm = _load(name, device, dtype)
        self.waiting: deque[BatchRow] = deque()
        self.adapted: Any = None

    def add_adapter(self, folder: Path, name: str) -> None:
        """Load the adapter of a folder, unless one of this name is there.

        Raises:
            ConfigError: peft is not installed, or the adapter does not fit the model.
        """
        with needing("option adapter", "local"):
            import peft
        if self.adapted is not None and name in self.adapted.peft_config:
            return
        try:
            settings = peft.PeftConfig.from_pretrained(str(folder))
            if self.adapted is None:
                self.adapted = peft.PeftModel(self.lm, settings, adapter_name=name)
            self.adapted.load_adapter(str(folder), name)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            self._drop_adapter(name)
            reason = " ".join(str(error).split())
            raise ConfigError(f"adapter {str(folder)!r}: could not be loaded: {reason}") from error
        self.adapted.eval()

    def _drop_adapter(self, name: str) -> None:
        """Take an adapter out again that was loaded in part."""
        if self.adapted is None or name not in self.adapted.peft_config:
            return
        if len(self.adapted.peft_config) > 1:
            self.adapted.delete_adapter(name)
        else:
            self.adapted.unload()
            self.adapted = None


_bases: WeakValueDictionary[tuple[object, ...], _Base] = WeakValueDictionary()


def _open_base(name: str, device: str | None, dtype: str) -> _Base:
    """Return the base that is loaded under these settings, or load it.

    A folder that was written since is loaded again.
    """
    files = sorted(Path(name).iterdir()) if Path(name).is_dir() else []
    states = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    key = (name, device, dtype, *states)
    base = _bases.get(key)
    if base is None:
        base = _Base(name, device, dtype)
        _bases[key] = base
    return base


def _digest_adapter(folder: Path) -> str:
    """Return a digest of an adapter's files, which names it wherever it lies.

    Raises:
        ConfigError: a file is missing, or it is no LoRA that rows of a batch can have alone.
    """
    try:
        settings, weights = [(folder / name).read_bytes() for name in _ADAPTER_FILES]
        described = json.loads(settings)
    except (OSError, ValueError) as error:
        files = " and ".join(_ADAPTER_FILES)
        raise ConfigError(
            f"adapter {str(folder)!r}: {error}; expected a folder with {files}"
        ) from error
    kind = described.get("peft_type")
    if kind != "LORA" or described.get("use_dora"):
        got = "DoRA" if described.get("use_dora") else kind
        raise ConfigError(f"adapter {str(folder)!r}: got {got}, expected a plain LoRA")
    return blake2b(settings + weights, digest_size=8).hexdigest()


# ── loading ───────────────────────────────────────────────────────────────────────────────────────
def tokenizer_class(name: str | Path) -> Any:
    """Return the class that reads a tokenizer as it was saved.

    AutoTokenizer rebuilds a Qwen2's tokenizer, which changes the ids.
    """
    with suppress(OSError, ValueError, AttributeError):
        described = json.loads((Path(name) / "tokenizer_config.json").read_text(encoding="utf-8"))
        if described.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend"):
            return hf.PreTrainedTokenizerFast
    return hf.AutoTokenizer


def _load(
    name: str, device: str | None, dtype: str
) -> tuple[hf.PreTrainedTokenizerBase, hf.PreTrainedModel]:
    one_of("dtype", dtype, DTYPES)
    target = device or torch.accelerator.current_accelerator(check_available=True) or "cpu"
    try:
        torch.empty(0, device=target)  # before the weights are read
        tokenizer = tokenizer_class(name).from_pretrained(name)
        model = hf.AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
    except (OSError, ValueError, KeyError, RuntimeError, AssertionError) as error:
        # AssertionError: torch is not built for the device
        reason = " ".join(str(error).split())
        raise ConfigError(f"model {name!r} on {target}: could not be loaded: {reason}") from error
    if not tokenizer.chat_template:
        raise ConfigError(
            f"model {name!r}: its tokenizer has no chat template, expected a model that can chat"
        )
    prepare_template(tokenizer, name, NO_OPTIONS)
    speed_up_head(model)
    avoid_cudnn_attention()
    return tokenizer, cast(Any, model).to(target).eval()


def speed_up_head(model: hf.PreTrainedModel) -> None:
    """Make the last positions contiguous before a model's head reads them.

    From any other layout torch (2.13) copies the head's weights once a row, which on a CPU takes as
    long as all layers together take for a short prompt.
    """
    head = model.get_output_embeddings()
    if head is not None:
        head.register_forward_pre_hook(_make_contiguous)


def avoid_cudnn_attention() -> None:
    """Leave attention on a GPU to torch's other kernels.

    From torch 2.11 on, an H100 takes cuDNN's first. That one plans each new shape, which takes
    tenths of a second, and while text is generated each token has a shape of its own.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def _make_contiguous(_module: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (inputs[0].contiguous(), *inputs[1:])
