"""What a training would need, before anything is paid for or downloaded: memory, tokens, calls, dollars, hours.

In: a recipe. Out: checks of its data, pool and keys, the model built without weights, and an
estimate with the assumptions that it rests on. The formulas are in the texts that it returns, so
that a reader can redo them.
"""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
from __future__ import annotations

import os
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from openconductor.errors import ConfigError
from openconductor.pool import open_pool
from openconductor.training.checkpoint import check_base, load_tokenizer
from openconductor.training.examples import (
    held_out_problems,
    imitation_problems,
    load_questions,
    training_problems,
)
from openconductor.training.grpo import grpo_arguments
from openconductor.training.rollout import write_prompt
from openconductor.training.run import quiet_libraries
from openconductor.training.train_config import TrainConfig
from openconductor.types import Usage

GIB = 2**30
CARDS = (1, 2, 4, 8)
STEPS = 3  # of a workflow, as in the paper's runs
COMPLETION_TOKENS = 400  # of the Conductor
CALL_TOKENS = (900, 700)  # read and written by a worker in a step
CALL_SECONDS = 30  # until the slowest workflow of an iteration has ended, a step
FLOPS = 4e14  # a second, of an H100 in bfloat16 at 40 % of its peak
SAMPLED = 2500  # tokens a second that one card samples of a 7B at 64 rows
_READ = 16  # prompts that are measured


@dataclass(frozen=True, slots=True)
class TrainingNeeds:
    """What a training would need.

    Attributes:
        parameters: of the model; ``learnt`` of them are trained.
        learnt: parameters that have gradients.
        prompt_tokens: of the Conductor's prompt, on average.
        memory: GiB a card by number of cards, for learning and for sampling, the weights sharded.
        rollouts: completions of the Conductor, held-out ones included.
        calls: of workers.
        tokens: that the workers read and write.
        dollars: for the workers, at their prices; None where one has none.
        hours: on how many cards, by number of cards.
        missing_keys: environment variables that the pool names and that are not set.
    """

    parameters: int
    learnt: int
    prompt_tokens: float
    memory: dict[int, dict[str, float]]
    rollouts: int
    calls: int
    tokens: int
    dollars: Decimal | None
    hours: dict[int, float]
    missing_keys: tuple[str, ...]


@quiet_libraries()
def estimate(config: TrainConfig) -> TrainingNeeds:
    """Check a recipe whole and estimate what it needs; nothing is written, paid for or loaded but the tokenizer.

    Raises:
        ConfigError: a setting, the pool or the base is wrong.
        TaskError: data are absent.
    """
    questions = load_questions(config)
    pool = open_pool(config.pool, config.seed)
    if not config.model.base:
        raise ConfigError(
            "--dry-run: got no model.base, expected one: a fresh tiny model needs no estimate"
        )
    check_base(config.model.base)
    grpo_arguments(config, Path("dry-run"), cpu=True)
    described = AutoConfig.from_pretrained(config.model.base).get_text_config()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(described)
    tokenizer = load_tokenizer(config.model.base)
    problems = training_problems(config, questions) or imitation_problems(config, questions, 0, {})
    prompts = [
        write_prompt(tokenizer, problem.question, config, pool) for problem in problems[:_READ]
    ]
    prompt = fmean(len(tokenizer.encode(text, add_special_tokens=False)) for text in prompts)
    parameters = sum(one.numel() for one in model.parameters())
    learnt = _adapted(model, config) if config.model.lora_rank else parameters
    imitated = config.imitate.rounds * config.imitate.questions * config.imitate.completions
    learning = imitated + config.rollout.iterations * config.rollout.batch
    measured = config.start.workflows + 2 * len(held_out_problems(config, questions))
    calls = (learning + measured) * min(STEPS, config.rollout.max_steps)
    workers = [worker for _, worker in pool]
    usage = Usage(input_tokens=CALL_TOKENS[0], output_tokens=CALL_TOKENS[1])
    prices = [worker.price.dollars(usage) for worker in workers if worker.price is not None]
    keys = sorted({key for worker in workers if (key := worker.resolved.api_key_env)})
    return TrainingNeeds(
        parameters=parameters,
        learnt=learnt,
        prompt_tokens=prompt,
        memory={
            cards: _memory(config, described, parameters, learnt, prompt, cards) for cards in CARDS
        },
        rollouts=learning + measured,
        calls=calls,
        tokens=calls * sum(CALL_TOKENS),
        dollars=sum(prices, Decimal(0)) / len(prices) * calls
        if len(prices) == len(workers)
        else None,
        hours={cards: _hours(config, parameters, prompt, learning, cards) for cards in CARDS},
        missing_keys=tuple(key for key in keys if not os.environ.get(key)),
    )


def _adapted(model: Any, config: TrainConfig) -> int:
    """How many parameters the adapters have."""
    ends = config.model.lora_targets
    layers = [
        layer
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear)
        and "lm_head" not in name
        and (not ends or name.endswith(tuple(ends)))
    ]
    return sum(
        config.model.lora_rank * (layer.in_features + layer.out_features) for layer in layers
    )


def _memory(
    config: TrainConfig, shape: Any, parameters: int, learnt: int, prompt: float, cards: int
) -> dict[str, float]:
    """GiB a card: weights, gradients and Adam in float32 (of frozen ones the weights), activations, and sampling."""
    length = prompt + config.rollout.max_tokens
    frozen = parameters - learnt if config.model.lora_rank else 0
    states = (16 * learnt + 4 * frozen) / cards
    layers, hidden = int(shape.num_hidden_layers), int(shape.hidden_size)
    kept = 2 * hidden * layers if config.optim.checkpointing else 34 * hidden * layers
    micro = min(
        config.optim.micro_batch,
        config.rollout.questions * config.rollout.completions // cards or 1,
    )
    micro = max(micro, config.imitate.micro_batch) if config.imitate.rounds else micro
    activations = micro * length * (kept + 34 * hidden + 4 * int(shape.intermediate_size))
    heads = int(getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads)
    units = int(getattr(shape, "head_dim", None) or hidden // int(shape.num_attention_heads))
    rows = min(
        config.rollout.sample_batch,
        config.rollout.questions * config.rollout.completions // cards or 1,
    )
    cache = rows * length * 2 * 2 * layers * heads * units
    engine = (
        config.rollout.engine
    )  # sharded weights are gathered to sample, and vLLM has a copy of its own
    copied = 2 * parameters if cards > 1 or engine == "vllm" else 0
    sampling = 0 if engine == "vllm_server" else cache + copied
    return {
        "weights, gradients, Adam": states / GIB,
        "activations": activations / GIB,
        "sampling": sampling / GIB,
        "peak": (states + max(activations, sampling)) / GIB,
    }


def _hours(
    config: TrainConfig, parameters: int, prompt: float, completions: int, cards: int
) -> float:
    """Sampling at ``SAMPLED`` tokens a second for 7B, learning at ``FLOPS``, and the wait for the workers."""
    sampling = completions * COMPLETION_TOKENS / (SAMPLED * 7e9 / parameters) / cards
    passes = 8 if config.optim.checkpointing else 6
    own = config.imitate
    rows = own.rounds * (own.steps * own.batch - own.questions * own.completions) + completions
    learning = passes * parameters * rows * (prompt + COMPLETION_TOKENS) / FLOPS / cards
    waits = config.rollout.iterations * config.rollout.rounds + config.imitate.rounds
    waiting = waits * CALL_SECONDS * min(STEPS, config.rollout.max_steps)
    return (sampling + learning + waiting) / 3600


def described(config: TrainConfig, found: TrainingNeeds) -> list[str]:
    """The estimate in lines for people, with its arithmetic."""
    rollout = config.rollout
    steps = min(STEPS, rollout.max_steps)
    shape = f"{rollout.iterations} iterations x {rollout.questions} questions x {rollout.completions} completions"
    if config.imitate.rounds:
        own = config.imitate
        shape += f", {own.rounds} rounds of imitation at most x {own.questions} questions x {own.completions}"
    dollars = "not known: a worker of the pool has no price"
    if found.dollars is not None:
        dollars = f"{found.dollars:,.0f} for the workers, each asked equally often"
    read, written = CALL_TOKENS
    rows = {
        "model": f"{config.model.base}: {found.parameters / 1e9:.2f} B parameters, {found.learnt / 1e9:.3f} B learn",
        "prompt": f"{found.prompt_tokens:.0f} tokens on average, completions of at most {rollout.max_tokens}",
        "rollouts": f"{found.rollouts:,} ({shape}, and what is measured)",
        "calls": f"{found.calls:,} of workers, at {steps} steps a workflow",
        "tokens": f"{found.tokens / 1e6:.0f} million of workers, at {read} read and {written} written a call",
        "dollars": dollars,
    }
    lines = [f"{name:<12} {text}" for name, text in rows.items()]
    for cards, memory in found.memory.items():
        parts = ", ".join(f"{name} {size:.1f}" for name, size in memory.items() if name != "peak")
        lines.append(
            f"{cards} GPU{'s' if cards > 1 else ' '}       {memory['peak']:.0f} GiB each ({parts}), "
            f"{found.hours[cards]:.0f} hours"
        )
    lines.append(
        f"hours assume {SAMPLED} tokens/s sampled of a 7B a card, {FLOPS:.0e} FLOP/s, {COMPLETION_TOKENS} tokens a "
        f"completion, {CALL_SECONDS} s a step for the slowest workflow"
    )
    if found.missing_keys:
        lines.append(f"keys         not set: {', '.join(found.missing_keys)}")
    return lines
