"""Widening: before the second act of learning, a Conductor's plans are varied, so that there is something to learn.

In: a tiny Conductor that has learnt its workers. Out: the same one, except that most of its workflows, at random and
whatever the question, are repeated in independent attempts that some worker compares: it knows its workers, and knows
nothing about when attempts pay and who compares well. A converged policy no longer tries such things by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from openconductor.errors import WorkflowError
from openconductor.gym.questions import KINDS, draw_question
from openconductor.gym.sampling import write_thought
from openconductor.gym.world import COMPARE
from openconductor.parser import parse_workflow
from openconductor.pool import WorkerPool
from openconductor.prompt import render_workflow
from openconductor.training.checkpoint import end_id, pad_id
from openconductor.training.cold_start import collate
from openconductor.training.config import TrainConfig
from openconductor.training.dataset import render_chat, write_prompt
from openconductor.training.policy import complete
from openconductor.types import Step, Workflow

KEPT = 0.3
"""Share of the Conductor's own workflows that stay as they are."""
_SPARE = 20  # one more question in so many, for plans that cannot be read


def widen(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    pool: WorkerPool,
    config: TrainConfig,
    *,
    on_step: Callable[[int, float], None] | None = None,
) -> None:
    """Train the model in place on its own workflows, most of them varied; ``on_step`` gets index and loss (nats)."""
    settings = config.widen
    rows = _rows(model, tokenizer, pool, config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    model.train()
    for step in range(min(settings.steps, len(rows) // settings.batch)):
        batch = rows[step * settings.batch : (step + 1) * settings.batch]
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * max(0.05, 1 - step / settings.steps)
        loss = model(**collate(batch, pad=pad_id(tokenizer))).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if on_step is not None:
            on_step(step, float(loss.item()))


def _rows(
    model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, pool: WorkerPool, config: TrainConfig
) -> list[tuple[list[int], list[int]]]:
    """Prompts with the Conductor's own plans, varied or not, as token ids; what it cannot plan is left out."""
    rng = random.Random(f"widen/{config.seed}")
    count = config.widen.steps * config.widen.batch
    questions = [draw_question("train", KINDS[index % len(KINDS)], rng) for index in range(count + count // _SPARE)]
    prompts = [write_prompt(tokenizer, render_chat(question.text, config, pool)) for question in questions]
    completions = complete(
        model, tokenizer, prompts, max_tokens=config.rollout.max_tokens, temperature=1.0, seed=config.seed
    )
    rows: list[tuple[list[int], list[int]]] = []
    for question, prompt, completion in zip(questions, prompts, completions, strict=True):
        try:
            plan = parse_workflow(completion.text, pool.ordinals, max_steps=config.rollout.max_steps)
        except WorkflowError:
            continue
        if rng.random() >= KEPT:
            plan = vary(plan, rng, pool.ordinals, max_steps=config.rollout.max_steps)
        text = render_workflow(plan, write_thought(plan, question))
        rows.append((tokenizer.encode(prompt), [*tokenizer.encode(text), end_id(tokenizer)]))
    return rows


def vary(plan: Workflow, rng: random.Random, ordinals: Sequence[int], *, max_steps: int) -> Workflow:
    """The plan in a random number of independent attempts, then a comparison by a random worker.

    A plan that has no room for a comparison stays as it is.
    """
    room = (max_steps - 1) // len(plan)
    if room < 1:
        return plan
    steps: list[Step] = []
    for attempt in range(rng.randint(1, room)):
        start = attempt * len(plan)
        steps += [
            Step(step.worker, step.subtask, tuple(start + seen for seen in plan.visible(index)))
            for index, step in enumerate(plan)
        ]
    return Workflow((*steps, Step(rng.choice(list(ordinals)), rng.choice(COMPARE), "all")))
