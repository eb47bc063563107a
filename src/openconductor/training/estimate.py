"""Estimate what a training needs before anything is paid for: memory, tokens, calls, hours.

``estimate`` checks a recipe's data, pool and keys, and builds the model without weights. The
assumptions are the constants below.
"""

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
from openconductor.pool import WorkerPool, open_pool
from openconductor.training.checkpoint import check_base, load_tokenizer
from openconductor.training.completions import write_prompt
from openconductor.training.grpo import grpo_arguments
from openconductor.training.run import quiet_libraries
from openconductor.training.setup import (
    held_out_problems,
    imitation_problems,
    load_questions,
    training_problems,
)
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
_MEASURED_PROMPTS = 16


@dataclass(frozen=True, slots=True)
class TrainingNeeds:
    """The needs of a training.

    Attributes:
        parameters: of the model.
        learnt: parameters that have gradients.
        prompt_tokens: of the Conductor's prompt, on average.
        memory: GiB a card by number of cards, for learning and for sampling, the weights sharded.
        rollouts: completions of the Conductor, held-out ones included.
        calls: of workers.
        tokens: that the workers read and write.
        dollars: for the workers, at their prices. None: a worker has no price.
        hours: by number of cards.
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
    """Check a recipe whole and estimate its needs; only the tokenizer is loaded.

    Raises:
        ConfigError: a setting, the pool or the base is wrong.
        TaskError: data are absent.
    """
    questions = load_questions(config)
    pool = open_pool(config.pool, config.seed)
    base = config.model.base
    if not base:
        raise ConfigError("--dry-run requires model.base; a fresh tiny model needs no estimate")
    check_base(base)
    grpo_arguments(config, Path("dry-run"))
    shape = AutoConfig.from_pretrained(base).get_text_config()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape)
    problems = training_problems(config, questions) or imitation_problems(config, questions, 0, {})
    texts = [problem.question for problem in problems[:_MEASURED_PROMPTS]]
    parameters = sum(weights.numel() for weights in model.parameters())
    model_needs = _ModelNeeds(
        config=config,
        shape=shape,
        parameters=parameters,
        learnt=_adapter_parameters(model, config) if config.model.lora_rank else parameters,
        prompt=_mean_prompt_tokens(config, pool, texts),
    )
    imitate = config.imitate
    learning = imitate.rounds * imitate.questions * imitate.completions
    learning += config.rollout.iterations * config.rollout.batch
    held_out = len(held_out_problems(config, questions))
    rollouts = learning + config.start.workflows + 2 * held_out
    calls = rollouts * steps_of(config)
    return TrainingNeeds(
        parameters=parameters,
        learnt=model_needs.learnt,
        prompt_tokens=model_needs.prompt,
        memory={cards: model_needs.memory(cards) for cards in CARDS},
        rollouts=rollouts,
        calls=calls,
        tokens=calls * sum(CALL_TOKENS),
        dollars=_dollars(pool, calls),
        hours={cards: model_needs.hours(cards, learning) for cards in CARDS},
        missing_keys=_missing_keys(pool),
    )


def steps_of(config: TrainConfig) -> int:
    """Return the steps that a workflow is assumed to have."""
    return min(STEPS, config.rollout.max_steps)


def _mean_prompt_tokens(config: TrainConfig, pool: WorkerPool, questions: list[str]) -> float:
    tokenizer = load_tokenizer(config.model.base)
    lengths: list[int] = []
    for question in questions:
        prompt = write_prompt(tokenizer, question, config, pool)
        lengths.append(len(tokenizer.encode(prompt, add_special_tokens=False)))
    return fmean(lengths)


def _adapter_parameters(model: Any, config: TrainConfig) -> int:
    """Return the number of parameters of the adapters."""
    targets = tuple(config.model.lora_targets)
    ends = 0
    for name, layer in model.named_modules():
        is_linear = isinstance(layer, torch.nn.Linear) and "lm_head" not in name
        if is_linear and (not targets or name.endswith(targets)):
            ends += layer.in_features + layer.out_features
    return config.model.lora_rank * ends


def _dollars(pool: WorkerPool, calls: int) -> Decimal | None:
    """Return the price of the calls, each worker asked equally often. None: a price is unknown."""
    read, written = CALL_TOKENS
    usage = Usage(input_tokens=read, output_tokens=written)
    dollars = Decimal(0)
    for _, worker in pool:
        if worker.price is None:
            return None
        dollars += worker.price.dollars(usage)
    return dollars / len(pool) * calls


def _missing_keys(pool: WorkerPool) -> tuple[str, ...]:
    keys: set[str | None] = set()
    for _, worker in pool:
        keys |= {worker.resolved.api_key_env, *worker.resolved.variables}
    return tuple(sorted(key for key in keys if key and not os.environ.get(key)))


@dataclass(frozen=True, slots=True)
class _ModelNeeds:
    """The needs of the model itself.

    Attributes:
        config: the recipe.
        shape: the model's configuration.
        parameters: all of them.
        learnt: those with gradients.
        prompt: tokens of a prompt, on average.
    """

    config: TrainConfig
    shape: Any
    parameters: int
    learnt: int
    prompt: float

    def memory(self, cards: int) -> dict[str, float]:
        """Return the GiB that each card needs, and for what.

        Weights that learn, their gradients and Adam's moments are float32; so are frozen weights.
        """
        frozen = self.parameters - self.learnt if self.config.model.lora_rank else 0
        states = (16 * self.learnt + 4 * frozen) / cards
        activations = self._activations(cards)
        sampling = self._sampling(cards)
        return {
            "weights, gradients, Adam": states / GIB,
            "activations": activations / GIB,
            "sampling": sampling / GIB,
            "peak": (states + max(activations, sampling)) / GIB,
        }

    def hours(self, cards: int, completions: int) -> float:
        """Return the hours of sampling, of learning, and of waiting for the workers."""
        config = self.config
        rate = SAMPLED * 7e9 / self.parameters
        sampling = completions * COMPLETION_TOKENS / rate / cards
        imitate = config.imitate
        imitated = imitate.steps * imitate.batch - imitate.questions * imitate.completions
        rows = completions + imitate.rounds * imitated
        passes = 8 if config.optim.checkpointing else 6
        tokens = self.prompt + COMPLETION_TOKENS
        learning = passes * self.parameters * rows * tokens / FLOPS / cards
        waits = config.rollout.iterations * config.rollout.rounds + imitate.rounds
        waiting = waits * CALL_SECONDS * steps_of(config)
        return (sampling + learning + waiting) / 3600

    @property
    def _length(self) -> float:
        return self.prompt + self.config.rollout.max_tokens

    def _rows(self, cards: int, most: int) -> int:
        """Return how many of an iteration's completions a card holds at a time."""
        rollout = self.config.rollout
        share = rollout.questions * rollout.completions // cards
        return min(most, share or 1)

    def _activations(self, cards: int) -> float:
        """Return the bytes of the activations of a micro-batch."""
        config = self.config
        layers = int(self.shape.num_hidden_layers)
        hidden = int(self.shape.hidden_size)
        kept = (2 if config.optim.checkpointing else 34) * hidden * layers
        rows = self._rows(cards, config.optim.micro_batch)
        if config.imitate.rounds:
            rows = max(rows, config.imitate.micro_batch)
        layer = 34 * hidden + 4 * int(self.shape.intermediate_size)
        return rows * self._length * (kept + layer)

    def _sampling(self, cards: int) -> float:
        """Return the bytes of the key-value cache and of a copy of the weights, in bfloat16.

        Sharded weights are gathered to sample, and vLLM has a copy of its own.
        """
        engine = self.config.rollout.engine
        if engine == "vllm_server":
            return 0
        shape = self.shape
        attention = int(shape.num_attention_heads)
        heads = int(getattr(shape, "num_key_value_heads", None) or attention)
        units = int(getattr(shape, "head_dim", None) or int(shape.hidden_size) // attention)
        rows = self._rows(cards, self.config.rollout.sample_batch)
        cache = rows * self._length * 2 * 2 * int(shape.num_hidden_layers) * heads * units
        copied = 2 * self.parameters if cards > 1 or engine == "vllm" else 0
        return cache + copied
