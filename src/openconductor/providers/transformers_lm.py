"""A model of ``transformers`` in this process (extra ``local``). In: turns, sampling. Out: a Completion and its tokens.

``batching`` says how calls become batches; here is how one is generated, and how a model is loaded.
"""

# torch and transformers are typed in part only; everything else of strict mode holds.
# pyright: reportMissingTypeStubs=false, reportPrivateImportUsage=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import transformers as hf
from jinja2 import TemplateError

from openconductor.config import one_of
from openconductor.errors import ConfigError, Rejected
from openconductor.providers.batching import BatchingProvider, BatchRow
from openconductor.providers.conductor_file import NAME as CONDUCTOR_FILE, read_conductor_file
from openconductor.types import Sampling

MAX_BATCH = 16
"""The most requests generated together."""

MAX_TOKENS = 4096
"""The limit where ``Sampling.max_tokens`` and the model's own generation settings name none."""

DTYPES = ("auto", "float32", "bfloat16", "float16")


class TransformersProvider(BatchingProvider):
    """A causal LM that ``transformers`` loads, asked through its chat template.

    It is loaded when it is made. Of ``Sampling.body``, ``chat_template_kwargs`` is known: what the
    chat template takes (``{"enable_thinking": False}``).

    Args:
        model: a folder, or a name on the hub (downloaded by ``transformers`` where it is not in its
            cache).
        device: where it runs (``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``); None: a GPU where
            there is one.
        dtype: of its weights: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``, as they
            were saved.

    Attributes:
        model: as given.
        prompt_options, sampling, max_steps: how a trained Conductor wants to be asked; None of any
            other model.
        identity: what stands behind a worker's name.

    Raises:
        ConfigError: it cannot be loaded, has no chat template, or the device or the dtype is none.
    """

    def __init__(
        self, model: str | Path, *, device: str | None = None, dtype: str = "auto"
    ) -> None:
        self.model = str(model)
        self._tokenizer, self._lm = _loaded(self.model, device, dtype)
        self._device = self._lm.device
        config, own = self._lm.config, self._lm.generation_config
        commit = getattr(config, "_commit_hash", None) or ""
        self.identity = f"transformers {self.model} {self._lm.dtype} {commit}".strip()
        given = cast("int | list[int] | None", getattr(own, "eos_token_id", None))
        ends = [given] if isinstance(given, int) else given or [self._tokenizer.eos_token_id]
        positions = cast(
            "int | None", getattr(config.get_text_config(), "max_position_embeddings", None)
        )
        if (Path(model) / CONDUCTOR_FILE).is_file():
            said = read_conductor_file(Path(model))
            self.prompt_options, self.max_steps = said.prompt, said.max_steps
            self.sampling = Sampling(max_tokens=said.max_tokens)
        super().__init__(
            f"transformers-{self.model}-{self._device}",
            positions=positions or sys.maxsize,
            max_tokens=cast("int | None", own and own.max_new_tokens) or MAX_TOKENS,
            ends=[cast(int, end) for end in ends if end is not None],
            batch=MAX_BATCH,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, device={str(self._device)!r})"

    def _check_body(self, sampling: Sampling) -> None:
        options, got = sampling.body.get("chat_template_kwargs", {}), dict(sampling.body)
        if set(got) - {"chat_template_kwargs"} or not isinstance(options, Mapping):
            raise ConfigError(
                f"sampling.body: got {got!r}, expected nothing but a table `chat_template_kwargs`"
            )

    def _tokens(self, row: BatchRow) -> list[int]:
        turns = [{"role": message.role, "content": message.content} for message in row.messages]
        options = {**cast("Mapping[str, Any]", row.sampling.body.get("chat_template_kwargs", {}))}
        options |= {"tokenize": True, "add_generation_prompt": True, "return_dict": False}
        try:
            return cast("list[int]", self._tokenizer.apply_chat_template(turns, **options))
        except (TemplateError, ValueError, TypeError) as error:
            raise Rejected(f"{self!r}: its chat template refuses the turns: {error}") from error

    def _decoded(self, ids: Sequence[int]) -> str:
        return cast("str", self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def _generate(self, rows: list[BatchRow]) -> None:
        """Complete all requests together; prompts are padded on the left."""
        longest = max(len(row.prompt) for row in rows)
        filler = min(self._ends, default=0)  # hidden by the mask
        ids = [[filler] * (longest - len(row.prompt)) + row.prompt for row in rows]
        mask = [[0] * (longest - len(row.prompt)) + [1] * len(row.prompt) for row in rows]
        settings = hf.GenerationConfig(
            max_new_tokens=max(row.limit for row in rows),
            do_sample=False,
            pad_token_id=filler,
            eos_token_id=None,
        )
        last = time.perf_counter()

        def watch(input_ids: torch.Tensor, *_: object, **_more: object) -> torch.Tensor:
            """Which rows are over, once each has taken its token."""
            nonlocal last
            now = time.perf_counter()
            share = (now - last) / max(1, sum(not row.over for row in rows))
            last = now
            for row, token in zip(rows, input_ids[:, -1].tolist(), strict=True):
                if not row.over:
                    row.seconds += share
                    self._take(row, token)
            return torch.tensor([row.over for row in rows], device=input_ids.device)

        with torch.inference_mode():
            cast(Any, self._lm).generate(
                torch.tensor(ids, device=self._device),
                attention_mask=torch.tensor(mask, device=self._device),
                generation_config=settings,
                logits_processor=hf.LogitsProcessorList(cast(Any, [partial(_draw, rows)])),
                stopping_criteria=hf.StoppingCriteriaList(cast(Any, [watch])),
            )


def _draw(rows: Sequence[BatchRow], _ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """The scores, but for the rows that sample: one token is left to each, drawn by a number of its own."""
    drawn = [
        (index, row, row.draws) for index, row in enumerate(rows) if row.draws and not row.over
    ]
    if not drawn:
        return scores
    indices = [index for index, _, _ in drawn]
    heat = torch.tensor([[row.sampling.temperature] for _, row, _ in drawn], device=scores.device)
    logits = scores[indices].float()
    mass = ((logits - logits.amax(dim=1, keepdim=True)) / heat).exp().cumsum(dim=1)
    points = (
        torch.tensor([[draws.random()] for _, _, draws in drawn], device=scores.device)
        * mass[:, -1:]
    )
    tokens = (mass <= points).sum(dim=1, keepdim=True).clamp(max=scores.shape[1] - 1)
    chosen = torch.full_like(scores[indices], -torch.inf).scatter(1, tokens, 0.0)
    return scores.index_copy(0, torch.tensor(indices, device=scores.device), chosen)


# ── loading ───────────────────────────────────────────────────────────────────────────────────────
def tokenizer_class(name: str | Path) -> Any:
    """The class that reads a tokenizer as it was saved: AutoTokenizer rebuilds a Qwen2's, and with it other ids."""
    with suppress(OSError, ValueError, AttributeError):
        described = json.loads((Path(name) / "tokenizer_config.json").read_text(encoding="utf-8"))
        if described.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend"):
            return hf.PreTrainedTokenizerFast
    return hf.AutoTokenizer


def _loaded(
    name: str, device: str | None, dtype: str
) -> tuple[hf.PreTrainedTokenizerBase, hf.PreTrainedModel]:
    one_of("dtype", dtype, DTYPES)
    where = device or torch.accelerator.current_accelerator(check_available=True) or "cpu"
    try:
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for it
        raise ConfigError(
            f"device: got {device!r}, which is not there: {' '.join(str(error).split())}"
        ) from error
    try:
        tokenizer = cast("hf.PreTrainedTokenizerBase", tokenizer_class(name).from_pretrained(name))
        model = cast(
            "hf.PreTrainedModel", hf.AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ConfigError(
            f"model {name!r}: could not be loaded: {' '.join(str(error).split())}"
        ) from error
    if not tokenizer.chat_template:
        raise ConfigError(
            f"model {name!r}: its tokenizer has no chat template, expected a model that can chat"
        )
    return tokenizer, cast("hf.PreTrainedModel", cast(Any, model).to(where).eval())
