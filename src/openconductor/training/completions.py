"""Sampling of completions, many prompts at once, on a model that learns.

This is the training's own view (torch, in batches). What a user runs goes through a Provider and
``Conductor.ask``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
from accelerate import PartialState
from transformers import (
    Cache,
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.cache_utils import DynamicLayer

from openconductor.errors import ConfigError, WorkflowError
from openconductor.parser import parse_completion, trailing_text
from openconductor.pool import WorkerPool, simulated_pool
from openconductor.prompt import PREVIOUS_LIMIT, render_prompt
from openconductor.providers.transformers_lm import keep_rows
from openconductor.training.models import end_ids
from openconductor.training.train_config import TrainConfig
from openconductor.types import Completion, Question, Round, Usage

LIKELY = 1e-4
"""The smallest chance of a token that is explored; less likely ones are slips."""
ROOM = 32
"""Tokens that a cache has room for, so that each new one does not copy all earlier ones."""
_LATER_ROUND = 512  # tokens of the words around a plan and a response in a second round


def draws_ordinals(config: TrainConfig) -> bool:
    """Return True if an ordinal is another worker from question to question."""
    simulated = simulated_pool(config.pool)
    redrawn = simulated is not None and simulated.redrawn
    return redrawn or config.rollout.renumbered


def number_pool(config: TrainConfig, pool: WorkerPool, key: str) -> WorkerPool:
    """Return all workers under the ordinals that a question gives them.

    Args:
        config: the recipe; its ``pool`` and ``rollout.renumbered`` say what is drawn.
        pool: all workers.
        key: of the question; "": all workers under their own ordinals.
    """
    simulated = simulated_pool(config.pool)
    if simulated is not None and simulated.redrawn:
        pool = simulated.draw(config.seed, key)
    if not config.rollout.renumbered or not key:
        return pool
    ordinals = list(pool.ordinals)
    random.Random(f"renumbered/{config.seed}/{key}").shuffle(ordinals)
    return pool.numbered(dict(zip(pool.names.values(), ordinals, strict=True)))


def draw_pool(config: TrainConfig, pool: WorkerPool, key: str) -> WorkerPool:
    """Return the workers that a question offers, drawn by its key (``rollout.offered``).

    "": all workers.
    """
    pool = number_pool(config, pool, key)
    if not config.rollout.offered or not key:
        return pool
    rng = random.Random(f"offered/{config.seed}/{key}")
    fewest, most = config.rollout.offered
    count = rng.randint(min(fewest, len(pool)), min(most, len(pool)))
    return pool.subset(sorted(rng.sample(pool.ordinals, count)))


# ── prompts and completions ───────────────────────────────────────────────────────────────────────
def render_chat(
    question: Question, config: TrainConfig, pool: WorkerPool, previous: Round | None = None
) -> list[dict[str, str]]:
    """Return the Conductor's prompt as dictionaries for a chat template.

    ``previous`` is the round before, in recursion.
    """
    messages = render_prompt(
        question,
        pool.ordinals,
        options=config.prompt.options(),
        max_steps=config.rollout.max_steps,
        cards=pool.cards,
        previous=previous,
    )
    return [{"role": message.role, "content": message.content} for message in messages]


def write_prompt(
    tokenizer: PreTrainedTokenizerBase,
    question: Question,
    config: TrainConfig,
    pool: WorkerPool,
    previous: Round | None = None,
) -> str:
    """Return the Conductor's prompt as the text that the model completes."""
    chat = render_chat(question, config, pool, previous)
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return cast("str", text)


def check_room(
    tokenizer: PreTrainedTokenizerBase, config: TrainConfig, plans: Sequence[str]
) -> None:
    """Check that the shortest of some plans fits into a completion.

    Raises:
        ConfigError: it does not.
    """
    lengths = [len(tokenizer.encode(plan, add_special_tokens=False)) for plan in plans]
    shortest = min(lengths) + 1  # its end
    if shortest > config.rollout.max_tokens:
        raise ConfigError(
            f"rollout.max_tokens: got {config.rollout.max_tokens}, expected at least {shortest}, "
            "which the shortest plan takes"
        )


def context_length(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], config: TrainConfig, most: int
) -> int:
    """Return the most tokens of a prompt and its completion, at most the model's own context.

    The prompt of a second round has a plan of at most ``rollout.max_tokens`` and a response of at
    most ``PREVIOUS_LIMIT`` characters, taken for as many tokens; twice as many if it also shows the
    responses of the other steps.

    Raises:
        ConfigError: a prompt and its completion are longer than ``most``.
    """
    ids = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in set(prompts)]
    length = max(map(len, ids)) + config.rollout.max_tokens
    if length > most:
        raise ConfigError(
            f"rollout.max_tokens: got {config.rollout.max_tokens}, which with the longest prompt "
            f"are {length} tokens, expected at most {most} (the context of model.base)"
        )
    if config.rollout.rounds > 1:
        shown = PREVIOUS_LIMIT * (2 if config.prompt.previous == "answers" else 1)
        length += config.rollout.max_tokens + shown + _LATER_ROUND
    return min(length, most)


def make_completion(text: str, ids: Sequence[int], ends: frozenset[int]) -> Completion:
    """Return a completion of these tokens; the last one is an end token unless it was cut."""
    ended = bool(ids) and ids[-1] in ends
    usage = Usage(output_tokens=len(ids))
    return Completion(text, usage=usage, finish_reason="stop" if ended else "length")


def why_invalid(completion: Completion, config: TrainConfig, ordinals: Sequence[int]) -> str:
    """Return why a completion is not a workflow; "" if it is."""
    if completion.finish_reason == "length":
        return f"truncated: no end within {config.rollout.max_tokens} tokens"
    try:
        parse_completion(completion.text, ordinals, max_steps=config.rollout.max_steps)
    except WorkflowError as error:
        return str(error)
    if config.reward.trailing_text == "invalid" and trailing_text(completion.text):
        return "the text goes on after the three lists (reward.trailing_text)"
    return ""


# ── sampling ──────────────────────────────────────────────────────────────────────────────────────
def complete(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    config: TrainConfig,
    temperature: float | None,
    seed: int,
    explore: float = 1.0,
    explored: Sequence[bool] = (),
) -> list[Completion]:
    """Complete prompts in batches of ``rollout.sample_batch``.

    A process that is alone reads equal prompts once, and drops rows that are over. Several may
    share the model's weights; then all of them have to call it equally often.

    Args:
        model: the model; its own sampling settings do not count.
        tokenizer: of the model.
        prompts: the texts.
        config: the recipe.
        temperature: of sampling; None: greedy.
        seed: of all draws.
        explore: a factor on the temperature of the first token, where it is mostly a number: among
            the tokens that begin with a digit and whose chance is at least ``LIKELY``.
        explored: by prompt, True if ``explore`` applies; (): to none.
    """
    torch.manual_seed(seed)
    ends, size = end_ids(model), config.rollout.sample_batch
    numbers = None
    if explore > 1 and any(explored):
        numbers = _number_tokens(tokenizer, cast("int", model.config.vocab_size))
    settings = GenerationConfig(
        max_new_tokens=config.rollout.max_tokens,
        do_sample=temperature is not None,
        temperature=temperature,
        top_k=None if temperature is None else 0,
        eos_token_id=sorted(ends),
        pad_token_id=cast("int", tokenizer.pad_token_id),
        return_dict_in_generate=True,
    )
    is_alone = PartialState().num_processes == 1
    was_training = model.training
    sampler: Any = model.eval()
    completions: list[Completion] = []
    for start in range(0, len(prompts), size):
        end = start + size
        texts = prompts[start:end]
        batch = _tokenize(tokenizer, texts).to(model.device)
        processors = LogitsProcessorList()
        if numbers is not None:
            rows = torch.tensor(explored[start:end]).unsqueeze(1)
            width = batch["input_ids"].shape[1]
            processors.append(cast("Any", _Explorer(rows, width, numbers, explore)))
        bfloat16 = torch.autocast(model.device.type, torch.bfloat16, enabled=config.optim.bf16)
        with torch.no_grad(), bfloat16:
            cache = _read_prompts(sampler, tokenizer, texts, settings) if is_alone else None
            criteria = StoppingCriteriaList()
            if is_alone:
                criteria.append(_HalfAreOver(batch["input_ids"].shape[1], ends))
            written = _sample(sampler, batch, cache, settings, processors, criteria, ends)
        for ids in written:
            text = cast("str", tokenizer.decode(ids, skip_special_tokens=True))
            completions.append(make_completion(text, ids, ends))
    model.train(was_training)
    return completions


def _tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Any:
    """Return the tokens of some texts, padded on the left, and their mask."""
    batch: Any = tokenizer(
        list(texts),
        return_tensors="pt",
        padding=True,
        padding_side="left",
        add_special_tokens=False,  # the chat template has written them
    )
    batch.pop("token_type_ids", None)
    return batch


def _read_prompts(
    sampler: Any,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    settings: GenerationConfig,
) -> Cache | None:
    """Return the cache of all tokens of the prompts but the last, with equal prompts read once.

    None: no prompts are equal, or the cache holds more than keys and values of all positions.
    """
    different = list(dict.fromkeys(prompts))
    if len(different) == len(prompts):
        return None
    batch = _tokenize(tokenizer, different).to(sampler.device)
    one_token = GenerationConfig(
        max_new_tokens=1,
        do_sample=False,
        pad_token_id=settings.pad_token_id,
        return_dict_in_generate=True,
    )
    cache = sampler.generate(**batch, generation_config=one_token).past_key_values
    layers = getattr(cache, "layers", [None])
    if any(type(layer) is not DynamicLayer for layer in layers):
        return None
    cache.crop(-1)
    places = {prompt: place for place, prompt in enumerate(different)}
    copies = torch.tensor([places[prompt] for prompt in prompts], device=sampler.device)
    cache.batch_select_indices(copies)
    give_room(cache)
    return cache


def _sample(
    sampler: Any,
    batch: Mapping[str, torch.Tensor],
    cache: Cache | None,
    settings: GenerationConfig,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    ends: frozenset[int],
) -> list[list[int]]:
    """Return the new tokens of each row of a batch, up to its end token, which is kept.

    Rows that are over leave the batch whenever ``criteria`` stop it.
    """
    ids, mask = batch["input_ids"], batch["attention_mask"]
    width = ids.shape[1]
    longest = width + cast("int", settings.max_new_tokens)
    written: list[list[int]] = [[] for _ in ids]
    places = list(range(len(ids)))
    settings = copy(settings)
    while places:
        settings.max_new_tokens = longest - ids.shape[1]
        output = sampler.generate(
            input_ids=ids,
            attention_mask=mask,
            past_key_values=cache,
            generation_config=settings,
            logits_processor=processors,
            stopping_criteria=criteria,
        )
        ids = output.sequences
        over = _find_over(ids[:, width:], ends).tolist()
        running: list[int] = []
        for row, place in enumerate(places):
            if over[row] or ids.shape[1] == longest:
                written[place] = _up_to_end(ids[row, width:].tolist(), ends)
            else:
                running.append(row)
        places = [places[row] for row in running]
        ids, mask, cache = keep_rows(running, ids, mask, output.past_key_values)
    return written


class _HalfAreOver(StoppingCriteria):
    """Stops a batch when half of its rows are over.

    Args:
        width: tokens of the prompts.
        ends: the end tokens.
    """

    def __init__(self, width: int, ends: frozenset[int]) -> None:
        self._width, self._ends = width, ends

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Return for each row whether to stop [B]."""
        over = _find_over(input_ids[:, self._width :], self._ends)
        return torch.full_like(over, bool(2 * over.sum() >= len(over)))


def _find_over(ids: torch.Tensor, ends: frozenset[int]) -> torch.Tensor:
    """Return which rows of new tokens [B, T] have an end token [B]."""
    end_tokens = torch.tensor(sorted(ends), dtype=ids.dtype, device=ids.device)
    return torch.isin(ids, end_tokens).any(dim=1)


def _up_to_end(row: list[int], ends: frozenset[int]) -> list[int]:
    """Return the tokens up to the first end token, which is kept."""
    for place, token in enumerate(row):
        if token in ends:
            return row[: place + 1]
    return row


@lru_cache(maxsize=1)
def _number_tokens(tokenizer: PreTrainedTokenizerBase, size: int) -> torch.Tensor:
    """Return which of a model's ``size`` tokens begin with a digit [V]."""
    numbers = torch.zeros(size, dtype=torch.bool)
    for token in range(min(size, len(tokenizer))):
        text = cast("str", tokenizer.decode([token]))
        numbers[token] = text[:1].isdigit()
    return numbers


@dataclass(frozen=True, slots=True)
class _Explorer:
    """Evens out the chances of the numbers with which completions may begin.

    Attributes:
        rows: the completions of the batch to which it applies [B, 1].
        width: tokens of the prompts.
        numbers: the tokens that begin with a digit [V].
        temperature: the factor on the temperature.
    """

    rows: torch.Tensor
    width: int
    numbers: torch.Tensor
    temperature: float

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores [B, V] of the next token."""
        if ids.shape[1] > self.width:
            return scores
        numbers = self.numbers.to(scores.device)
        chances = torch.softmax(scores.float(), -1)
        chance_of_number = (chances * numbers).sum(-1, keepdim=True)
        applies = self.rows.to(scores.device) & (chance_of_number > 0.5)
        slips = ~(numbers & (chances >= LIKELY))
        even = (scores / self.temperature).masked_fill(slips, float("-inf"))
        return torch.where(applies, even, scores)


# ── the cache of keys and values ──────────────────────────────────────────────────────────────────
class GrowingLayer(DynamicLayer):
    """The keys and values of a layer [B, H, T, D], which begin a larger tensor where they can.

    Whatever replaces them (as ``batch_select_indices`` does) takes their room away, and the next
    token gives them some again.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values
        self._rooms = keys, values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **_more: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the keys and values of new tokens [B, H, new, D]; return all."""
        assert self.keys is not None
        assert self.values is not None
        keys_room, values_room = self._rooms
        keys, keys_room = _append(self.keys, key_states, keys_room)
        values, values_room = _append(self.values, value_states, values_room)
        self._rooms = keys_room, values_room
        self.keys, self.values = keys, values
        return keys, values


def _append(
    known: torch.Tensor, new: torch.Tensor, room: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the known tokens with the new ones behind them, and the tensor that they begin."""
    old = known.shape[-2]
    length = old + new.shape[-2]
    is_ours = known.data_ptr() == room.data_ptr() and known.shape[:-2] == room.shape[:-2]
    if not is_ours or length > room.shape[-2]:
        room = known.new_empty((*known.shape[:-2], length + ROOM, known.shape[-1]))
        room[..., :old, :] = known
    room[..., old:length, :] = new
    return room[..., :length, :], room


def give_room(cache: Cache) -> None:
    """Let all layers of a cache grow; they must be of class ``DynamicLayer``, and not empty."""
    layers: Any = cache.layers
    for place, layer in enumerate(layers):
        layers[place] = GrowingLayer(layer.keys, layer.values)
