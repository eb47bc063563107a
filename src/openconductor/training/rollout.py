"""A language model asked many questions at once, in process: how training looks at what it has learnt.

In: a model and problems. Out: completions, and what each is worth. This is the trainer's own view (torch, batched);
what a user runs goes through a Provider and ``Conductor.ask``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, TypeVar, cast

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from openconductor.pool import WorkerPool
from openconductor.prompt import render_prompt
from openconductor.training.checkpoint import end_ids
from openconductor.training.train_config import TrainConfig
from openconductor.types import Completion, Question, Round, Usage

T = TypeVar("T")


def render_chat(
    question: Question, config: TrainConfig, ordinals: Sequence[int], previous: Round | None = None
) -> list[dict[str, str]]:
    """The Conductor's prompt as the plain dictionaries of a chat template; ``previous`` is the round before, if any."""
    options, max_steps = config.prompt.options(), config.rollout.max_steps
    messages = render_prompt(question, ordinals, options=options, max_steps=max_steps, previous=previous)
    return [{"role": message.role, "content": message.content} for message in messages]


def write_prompt(tokenizer: PreTrainedTokenizerBase, question: Question, config: TrainConfig, pool: WorkerPool) -> str:
    """The Conductor's prompt as the text that the model completes."""
    chat = render_chat(question, config, pool.ordinals)
    return cast("str", tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))


def completion_of(text: str, ids: Sequence[int], ends: frozenset[int]) -> Completion:
    """What a model completed, the end's token among its ids where it came to one."""
    ended = bool(ids) and ids[-1] in ends
    return Completion(text, usage=Usage(output_tokens=len(ids)), finish_reason="stop" if ended else "length")


def complete(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    config: TrainConfig,
    temperature: float | None,
    seed: int,
) -> list[Completion]:
    """Complete prompts in batches; ``temperature`` None is greedy. The model's own sampling settings do not count."""
    torch.manual_seed(seed)
    ends, size = end_ids(model), config.rollout.sample_batch
    settings = GenerationConfig(
        max_new_tokens=config.rollout.max_tokens,
        do_sample=temperature is not None,
        temperature=temperature,
        top_k=0 if temperature is not None else None,
        eos_token_id=sorted(ends),
        pad_token_id=cast("int", tokenizer.pad_token_id),
    )
    training = model.training
    model.eval()
    completions: list[Completion] = []
    half = config.optim.bf16 and model.device.type == "cuda"
    for start in range(0, len(prompts), size):
        batch = tokenizer(
            list(prompts[start : start + size]),
            return_tensors="pt",
            padding=True,
            padding_side="left",
            add_special_tokens=False,  # the chat template has written them
        )
        batch.pop("token_type_ids", None)
        with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16, enabled=half):
            ids = cast("Any", model).generate(**batch.to(model.device), generation_config=settings)
        for row in ids[:, batch["input_ids"].shape[1] :].tolist():
            end = next((place for place, token in enumerate(row) if token in ends), len(row))
            kept = row[: end + 1]
            text = cast("str", tokenizer.decode(kept, skip_special_tokens=True))
            completions.append(completion_of(text, kept, ends))
    model.train(training)
    return completions


async def gather_or_end(played: Iterable[Awaitable[T]]) -> list[T]:
    """All results, in order. Where one raises, which stops a run, the others are ended: nothing may go on after it."""
    tasks = [asyncio.ensure_future(one) for one in played]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
