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
from openconductor.prompt import render_prompt
from openconductor.reward import RewardFunction
from openconductor.training.checkpoint import end_id, pad_id
from openconductor.training.config import TrainConfig
from openconductor.training.curves import Rollout
from openconductor.training.examples import kind_of
from openconductor.types import Completion, Problem, Question, Usage

_BATCH = 100


def render_chat(question: Question, config: TrainConfig, pool: WorkerPool) -> list[dict[str, str]]:
    """The Conductor's prompt as the plain dictionaries of a chat template."""
    messages = render_prompt(
        question, pool.ordinals, options=config.prompt.options(), max_steps=config.rollout.max_steps
    )
    return [{"role": message.role, "content": message.content} for message in messages]


def write_prompt(tokenizer: PreTrainedTokenizerBase, question: Question, config: TrainConfig, pool: WorkerPool) -> str:
    """The Conductor's prompt as the text that the model completes."""
    chat = render_chat(question, config, pool)
    return cast("str", tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))


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
            kept = row[: row.index(end)] if end in row else row
            text = cast("str", tokenizer.decode(kept, skip_special_tokens=True))
            usage = Usage(output_tokens=len(kept) + (end in row))
            completions.append(Completion(text, usage=usage, finish_reason="stop" if end in row else "length"))
    model.train(training)
    return completions


def play(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    score: RewardFunction,
    pool: WorkerPool,
    config: TrainConfig,
    *,
    temperature: float | None,
    seed: int = 0,
) -> list[Rollout]:
    """Let the model orchestrate every problem's question once."""
    prompts = [write_prompt(tokenizer, problem.question, config, pool) for problem in problems]
    completions = complete(
        model, tokenizer, prompts, max_tokens=config.rollout.max_tokens, temperature=temperature, seed=seed
    )

    async def score_all() -> list[Rollout]:
        scored = await asyncio.gather(*(score(*pair, sample=seed) for pair in zip(problems, completions, strict=True)))
        return [
            Rollout(kind_of(problem), one.reward, one.episode, one.correct)
            for problem, one in zip(problems, scored, strict=True)
        ]

    return asyncio.run(score_all())
