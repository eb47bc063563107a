"""A language model asked many questions at once, in process: how training looks at what it has learnt.

In: a model and problems. Out: scored rollouts. This is the trainer's own view (torch, batched); what a user runs goes
through a Provider and ``Conductor.ask``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from openconductor.pool import WorkerPool
from openconductor.reward import RewardFunction
from openconductor.training.checkpoint import end_id, pad_id
from openconductor.training.config import TrainConfig
from openconductor.training.curves import Rollout
from openconductor.training.dataset import render_chat, write_prompt
from openconductor.training.examples import Example
from openconductor.types import Completion, Usage

_BATCH = 100


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
    end, pad = end_id(tokenizer), pad_id(tokenizer)
    settings = GenerationConfig(
        max_new_tokens=max_tokens,
        do_sample=temperature is not None,
        temperature=temperature,
        top_k=0 if temperature is not None else None,
        eos_token_id=end,
        pad_token_id=pad,
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
            ended = end in row
            kept = row[: row.index(end)] if ended else row
            text = cast("str", tokenizer.decode(kept, skip_special_tokens=True))
            length = row.index(end) + 1 if ended else len(row)
            completions.append(
                Completion(text, usage=Usage(output_tokens=length), finish_reason="stop" if ended else "length")
            )
    model.train(training)
    return completions


def play(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    score: RewardFunction,
    pool: WorkerPool,
    config: TrainConfig,
    *,
    temperature: float | None,
    seed: int = 0,
) -> list[Rollout]:
    """Let the model orchestrate every example's question once."""
    prompts = [write_prompt(tokenizer, render_chat(example.problem.question, config, pool)) for example in examples]
    completions = complete(
        model, tokenizer, prompts, max_tokens=config.rollout.max_tokens, temperature=temperature, seed=seed
    )

    async def score_all() -> list[Rollout]:
        scored = await asyncio.gather(
            *(
                score(example.problem, completion, sample=seed)
                for example, completion in zip(examples, completions, strict=True)
            )
        )
        return [Rollout(example.kind, one.reward, one.episode) for example, one in zip(examples, scored, strict=True)]

    return asyncio.run(score_all())
