"""Widening: before a second round of learning, a Conductor's plans are varied, so that there is something to learn.

In: a trained Conductor. Out: the same one, except that in most of its workflows, at random, it repeats its plan in
independent attempts and lets some worker compare them: it knows its workers, and knows nothing about when attempts pay
and who compares well. A converged policy no longer tries such things by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from openconductor.errors import WorkflowError
from openconductor.gym.questions import KINDS, draw_question
from openconductor.gym.sampling import write_thought
from openconductor.gym.world import COMPARE
from openconductor.parser import parse_workflow
from openconductor.pool import WorkerPool
from openconductor.prompt import render_workflow
from openconductor.training.cold_start import collate
from openconductor.training.config import TrainConfig
from openconductor.training.dataset import render_chat
from openconductor.training.policy import complete
from openconductor.types import Step, Workflow

_KEPT = 0.3  # share of the Conductor's own workflows that stay as they are


def widen(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    pool: WorkerPool,
    config: TrainConfig,
    *,
    on_step: Callable[[int, float], None] | None = None,
) -> None:
    """Train the model in place on its own workflows, most of them varied; ``on_step`` gets index and loss (nats)."""
    settings = config.cold_start
    rng = random.Random(f"widen/{config.seed}")
    rows = _rows(model, tokenizer, pool, config, rng)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    model.train()
    for step in range(settings.steps):
        batch = rows[step * settings.batch : (step + 1) * settings.batch]
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * max(0.05, 1 - step / settings.steps)
        loss = model(**collate(batch, pad=int(tokenizer.pad_token_id))).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if on_step is not None:
            on_step(step, float(loss.item()))


def _rows(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    pool: WorkerPool,
    config: TrainConfig,
    rng: random.Random,
) -> list[tuple[list[int], list[int]]]:
    """Prompts with the Conductor's own plans, varied or not, as token ids; what it cannot plan is left out."""
    count = config.cold_start.steps * config.cold_start.batch
    questions = [draw_question("train", KINDS[index % len(KINDS)], rng) for index in range(count + count // 20)]
    prompts = [
        tokenizer.apply_chat_template(
            render_chat(question.text, config, pool), tokenize=False, add_generation_prompt=True
        )
        for question in questions
    ]
    completions = complete(
        model, tokenizer, prompts, max_tokens=config.rollout.max_tokens, temperature=1.0, seed=config.seed
    )
    rows: list[tuple[list[int], list[int]]] = []
    for prompt, completion in zip(prompts, completions, strict=True):
        try:
            plan = parse_workflow(completion.text, pool.ordinals, max_steps=config.rollout.max_steps)
        except WorkflowError:
            continue
        if rng.random() >= _KEPT:
            plan = vary(plan, rng, pool.ordinals, max_steps=config.rollout.max_steps)
        text = render_workflow(plan, write_thought(plan))
        rows.append((tokenizer.encode(prompt), [*tokenizer.encode(text), int(tokenizer.eos_token_id)]))
    return rows


def vary(plan: Workflow, rng: random.Random, ordinals: Sequence[int], *, max_steps: int) -> Workflow:
    """The plan in a random number of independent attempts, then a comparison by a random worker.

    A plan that has no room for a comparison stays as it is.
    """
    most = (max_steps - 1) // len(plan)
    if most < 1:
        return plan
    steps: list[Step] = []
    for attempt in range(rng.randint(1, most)):
        start = attempt * len(plan)
        steps += [
            Step(step.worker, step.subtask, tuple(start + seen for seen in plan.visible(index)))
            for index, step in enumerate(plan)
        ]
    return Workflow((*steps, Step(rng.choice(list(ordinals)), rng.choice(COMPARE), "all")))
