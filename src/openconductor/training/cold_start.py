"""Supervised learning of the tiny Conductor: before the first act of GRPO, and between the two.

``cold_start``: a fresh model learns syntax and copying on random valid workflows. Their workers, wording, access and
length are drawn at random, so it knows nothing about who is good (a run measures that: it scores like the random
workflow). ``widen``: a Conductor that has learnt its workers learns its own workflows, most of them, at random and
whatever the question, repeated in independent attempts that some worker compares. It then knows its workers, and knows
nothing about when attempts pay and who compares well; a converged policy no longer tries such things by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from openconductor.errors import WorkflowError
from openconductor.gym.questions import KINDS, GymQuestion, draw_question
from openconductor.gym.sampling import random_workflow, write_thought
from openconductor.gym.world import COMPARE
from openconductor.parser import parse_workflow
from openconductor.prompt import render_workflow
from openconductor.training.checkpoint import end_id, pad_id
from openconductor.training.examples import Setup
from openconductor.training.rollout import complete, write_prompt
from openconductor.types import Step, Workflow

KEPT = 0.3
"""Share of the Conductor's own workflows that stay as they are."""
_WARMUP = 50  # steps
_SPARE = 20  # one more question in so many, for plans that cannot be read
_IGNORED = -100  # the label of a token that is not learnt

Row = tuple[list[int], list[int]]
"""The token ids of a prompt and of its completion, the end included."""


def cold_start(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, setup: Setup) -> None:
    """Train the model in place, and say how it goes."""
    config, settings, pool = setup.config, setup.config.cold_start, setup.pool
    rng = random.Random(f"cold-start/{config.seed}")

    def row(index: int) -> Row:
        question = draw_question("train", KINDS[index % len(KINDS)], rng)
        workflow = random_workflow(rng, question, pool.ordinals, max_steps=config.rollout.max_steps)
        return _row(tokenizer, write_prompt(tokenizer, question.text, config, pool), workflow, question)

    rates = [
        settings.learning_rate * min((step + 1) / _WARMUP, 1.0) * max(0.02, 1 - step / settings.steps)
        for step in range(settings.steps)
    ]
    batches = ([row(index) for index in range(settings.batch)] for _ in rates)
    every = max(1, settings.steps // 10)
    for step, loss in enumerate(_imitate(model, batches, rates, pad=pad_id(tokenizer), decay=0.01)):
        if step % every == 0:
            setup.say(f"cold start: step {step} of {settings.steps}, loss {loss:.3f} nats a token")


def widen(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, setup: Setup) -> None:
    """Train the model in place on its own workflows, most of them varied; what it cannot plan is left out."""
    config, pool = setup.config, setup.pool
    settings, max_steps = config.widen, config.rollout.max_steps
    rng = random.Random(f"widen/{config.seed}")
    count = settings.steps * settings.batch
    questions = [draw_question("train", KINDS[index % len(KINDS)], rng) for index in range(count + count // _SPARE)]
    prompts = [write_prompt(tokenizer, question.text, config, pool) for question in questions]
    completions = complete(
        model, tokenizer, prompts, max_tokens=config.rollout.max_tokens, temperature=1.0, seed=config.seed
    )
    rows: list[Row] = []
    for question, prompt, completion in zip(questions, prompts, completions, strict=True):
        with suppress(WorkflowError):
            plan = parse_workflow(completion.text, pool.ordinals, max_steps=max_steps)
            if rng.random() >= KEPT:
                plan = vary(plan, rng, pool.ordinals, max_steps=max_steps)
            rows.append(_row(tokenizer, prompt, plan, question))
    rates = [
        settings.learning_rate * max(0.05, 1 - step / settings.steps)
        for step in range(min(settings.steps, len(rows) // settings.batch))
    ]
    batches = (rows[step * settings.batch : (step + 1) * settings.batch] for step in range(len(rates)))
    for _ in _imitate(model, batches, rates, pad=pad_id(tokenizer), decay=0.0):
        pass


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


def _row(tokenizer: PreTrainedTokenizerFast, prompt: str, workflow: Workflow, question: GymQuestion) -> Row:
    completion = render_workflow(workflow, write_thought(workflow, question))
    return tokenizer.encode(prompt), [*tokenizer.encode(completion), end_id(tokenizer)]


def _imitate(
    model: Qwen2ForCausalLM, batches: Iterable[list[Row]], rates: Sequence[float], *, pad: int, decay: float
) -> Iterator[float]:
    """One step of supervised learning a batch, at its rate, on the completions alone; yields each step's loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=decay)
    model.train()
    for rate, rows in zip(rates, batches, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        longest = max(len(prompt) + len(completion) for prompt, completion in rows)
        ids = torch.full((len(rows), longest), pad)
        labels = torch.full((len(rows), longest), _IGNORED)
        for index, (prompt, completion) in enumerate(rows):
            end = len(prompt) + len(completion)
            ids[index, :end] = torch.tensor(prompt + completion)
            labels[index, len(prompt) : end] = torch.tensor(completion)
        mask = (ids != pad).long()
        loss = model(input_ids=ids, labels=labels, attention_mask=mask).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield float(loss.item())
