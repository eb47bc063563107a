"""A language model asked many questions at once, in process: how training looks at what it has learnt.

In: a model and problems. Out: completions, and what each is worth. This is the trainer's own view (torch, batched);
what a user runs goes through a Provider and ``Conductor.ask``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from openconductor.pool import WorkerPool
from openconductor.prompt import render_prompt
from openconductor.reward import RewardFunction, Scored
from openconductor.training.checkpoint import end_id, pad_id
from openconductor.training.train_config import TrainConfig
from openconductor.types import Completion, Problem, Question, Usage

_BATCH = 100


def render_chat(question: Question, config: TrainConfig, pool: WorkerPool) -> list[dict[str, str]]:
    """The Conductor's prompt as the plain dictionaries of a chat template."""
    options = config.prompt.options()
    messages = render_prompt(question, pool.ordinals, options=options, max_steps=config.rollout.max_steps)
    return [{"role": message.role, "content": message.content} for message in messages]


def write_prompt(tokenizer: PreTrainedTokenizerBase, question: Question, config: TrainConfig, pool: WorkerPool) -> str:
    """The Conductor's prompt as the text that the model completes."""
    chat = render_chat(question, config, pool)
    return cast("str", tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))


def completion_of(text: str, ids: Sequence[int], end: int) -> Completion:
    """What a model completed, the end's token among its ids where it came to one."""
    return Completion(
        text, usage=Usage(output_tokens=len(ids)), finish_reason="stop" if ids[-1:] == [end] else "length"
    )


def complete(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    max_tokens: int,
    temperature: float | None,
    seed: int,
) -> list[Completion]:
    """Complete prompts in batches; ``temperature`` None is greedy."""
    torch.manual_seed(seed)
    end = end_id(tokenizer)
    settings = GenerationConfig(
        max_new_tokens=max_tokens,
        do_sample=temperature is not None,
        temperature=temperature,
        top_k=0 if temperature is not None else None,
        eos_token_id=end,
        pad_token_id=pad_id(tokenizer),
    )
    training = model.training
    model.eval()
    completions: list[Completion] = []
    for start in range(0, len(prompts), _BATCH):
        batch = tokenizer(list(prompts[start : start + _BATCH]), return_tensors="pt", padding=True, padding_side="left")
        batch.pop("token_type_ids", None)
        with torch.no_grad():
            ids = cast("Any", model).generate(**batch.to(model.device), generation_config=settings)
        for row in ids[:, batch["input_ids"].shape[1] :].tolist():
            kept = row[: row.index(end) + 1] if end in row else row
            text = cast("str", tokenizer.decode(kept, skip_special_tokens=True))
            completions.append(completion_of(text, kept, end))
    model.train(training)
    return completions


async def score_all(score: RewardFunction, asked: Iterable[tuple[Problem, Completion, int]]) -> list[Scored]:
    """Play and judge completions at the same time; each comes with its problem and its sample's number.

    Where one raises, which stops a run, the others are ended: nothing may continue after it.
    """
    played = [asyncio.ensure_future(score(problem, said, sample=sample)) for problem, said, sample in asked]
    try:
        return await asyncio.gather(*played)
    finally:
        for one in played:
            one.cancel()
        await asyncio.gather(*played, return_exceptions=True)
