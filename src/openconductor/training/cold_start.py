"""The cold start: supervised learning of syntax and copying on random valid workflows.

In: a fresh model. Out: one that writes valid workflows whose workers, wording, access and length are drawn at random,
so it knows nothing about who is good (a run measures that: it scores like the random workflow).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from openconductor.gym.questions import KINDS, Kind, draw_question
from openconductor.gym.sampling import random_workflow, write_thought
from openconductor.pool import WorkerPool
from openconductor.prompt import render_workflow
from openconductor.training.checkpoint import end_id, pad_id
from openconductor.training.config import TrainConfig
from openconductor.training.dataset import render_chat, write_prompt

_WARMUP = 50  # steps
IGNORED = -100


def cold_start(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    pool: WorkerPool,
    config: TrainConfig,
    *,
    on_step: Callable[[int, float], None] | None = None,
) -> None:
    """Train the model in place; ``on_step`` gets each step's index and loss (nats a token)."""
    settings = config.cold_start
    rng = random.Random(f"cold-start/{config.seed}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)

    def factor(step: int) -> float:
        return min((step + 1) / _WARMUP, 1.0) * max(0.02, 1 - step / settings.steps)

    schedule = LambdaLR(optimizer, factor)
    model.train()
    for step in range(settings.steps):
        rows = [_draw_row(rng, KINDS[index % len(KINDS)], tokenizer, pool, config) for index in range(settings.batch)]
        loss = model(**collate(rows, pad=pad_id(tokenizer))).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if on_step is not None:
            on_step(step, float(loss.item()))


def _draw_row(
    rng: random.Random, kind: Kind, tokenizer: PreTrainedTokenizerFast, pool: WorkerPool, config: TrainConfig
) -> tuple[list[int], list[int]]:
    """The token ids of one prompt and of one random completion, its end included."""
    question = draw_question("train", kind, rng)
    workflow = random_workflow(rng, question, pool.ordinals, max_steps=config.rollout.max_steps)
    prompt = write_prompt(tokenizer, render_chat(question.text, config, pool))
    completion = render_workflow(workflow, write_thought(workflow, question))
    return tokenizer.encode(prompt), [*tokenizer.encode(completion), end_id(tokenizer)]


def collate(rows: list[tuple[list[int], list[int]]], *, pad: int) -> dict[str, torch.Tensor]:
    """Pad rows on the right; tensors of shape (rows, longest), labels only on completions."""
    longest = max(len(prompt) + len(completion) for prompt, completion in rows)
    ids = torch.full((len(rows), longest), pad)
    labels = torch.full((len(rows), longest), IGNORED)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for index, (prompt, completion) in enumerate(rows):
        end = len(prompt) + len(completion)
        ids[index, :end] = torch.tensor(prompt + completion)
        labels[index, len(prompt) : end] = torch.tensor(completion)
        mask[index, :end] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}
