"""Estimate what a training needs before anything is paid for: memory, tokens, calls, hours.

The model is built without weights. The assumptions are the constants below.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerBase

from openconductor.pool import WorkerPool
from openconductor.training.checkpoint import build_model, build_tokenizer, load_tokenizer
from openconductor.training.completions import write_prompt
from openconductor.training.run import quiet_libraries
from openconductor.training.setup import Questions, imitation_problems, training_problems
from openconductor.training.supervised import fresh_tokenizer
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
class CallNeeds:
    """What a training asks of its workers.

    Attributes:
        rollouts: completions of the Conductor, held-out ones included.
        calls: of workers.
        tokens: that the workers read and write.
        dollars: for the workers, at their prices. None: a worker has no price.
        recorded: True if steps that see no other one are answered from a record.
    """

    rollouts: int
    calls: int
    tokens: int
    dollars: Decimal | None
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class ModelNeeds:
    """What a training asks of its own machine.

    Attributes:
        parameters: of the model.
        learnt: parameters that have gradients.
        prompt_tokens: of the Conductor's prompt, on average. None: no question is here.
        memory: GiB a card by number of cards, for learning and for sampling, the weights sharded;
            {} for a fresh tiny model, and without a prompt.
        hours: by number of cards, likewise.
    """

    parameters: int
    learnt: int
    prompt_tokens: float | None
    memory: dict[int, dict[str, float]]
    hours: dict[int, float]


def call_needs(config: TrainConfig, pool: WorkerPool, held_out: int) -> CallNeeds:
    """Estimate what a training asks of its workers, with this many held-out questions."""
    rollouts = _learning_rollouts(config) + config.start.workflows + 2 * held_out
    recorded = all(worker.recalls for _, worker in pool)
    live_steps = steps_of(config) - 1 if recorded else steps_of(config)
    calls = rollouts * live_steps
    tokens = calls * sum(CALL_TOKENS)
    return CallNeeds(rollouts, calls, tokens, _dollars(pool, calls), recorded)


def _learning_rollouts(config: TrainConfig) -> int:
    imitate = config.imitate
    imitated = imitate.rounds * imitate.questions * imitate.completions
    return imitated + config.rollout.iterations * config.rollout.batch


@quiet_libraries()
def model_needs(config: TrainConfig, pool: WorkerPool, questions: Questions | None) -> ModelNeeds:
    """Estimate what a training asks of its machine; of a base, only the tokenizer is loaded.

    Args:
        config: the recipe.
        pool: the workers, who are in the prompt.
        questions: to learn from; None: they are not here.

    Raises:
        ConfigError: the base or its tokenizer cannot be loaded.
    """
    model, shape, tokenizer = _shape(config, pool, questions)
    parameters = sum(weights.numel() for weights in model.parameters())
    learnt = _adapter_parameters(model, config) if config.model.lora_rank else parameters
    prompt = None
    if questions is not None:
        prompt = _mean_prompt_tokens(config, pool, questions, tokenizer)
    if prompt is None or not config.model.base:
        return ModelNeeds(parameters, learnt, prompt, {}, {})
    needs = _CardNeeds(config, shape, parameters, learnt, prompt)
    learning = _learning_rollouts(config)
    return ModelNeeds(
        parameters,
        learnt,
        prompt,
        memory={cards: needs.memory(cards) for cards in CARDS},
        hours={cards: needs.hours(cards, learning) for cards in CARDS},
    )


def _shape(
    config: TrainConfig, pool: WorkerPool, questions: Questions | None
) -> tuple[Any, Any, PreTrainedTokenizerBase]:
    """Return the model, a base without its weights; its configuration and its tokenizer."""
    if config.model.base:
        shape = AutoConfig.from_pretrained(config.model.base).get_text_config()
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(shape)
        return model, shape, load_tokenizer(config.model.base)
    tokenizer = build_tokenizer([])
    if questions is not None:
        tokenizer = fresh_tokenizer(config, questions, pool)
    fresh = build_model(config.model, tokenizer, seed=config.seed)
    return fresh, fresh.config, tokenizer


def steps_of(config: TrainConfig) -> int:
    """Return the steps that a workflow is assumed to have."""
    return min(STEPS, config.rollout.max_steps)


def _mean_prompt_tokens(
    config: TrainConfig,
    pool: WorkerPool,
    questions: Questions,
    tokenizer: PreTrainedTokenizerBase,
) -> float:
    """Return the tokens of the prompts of the first questions, on average."""
    problems = training_problems(config, questions) or imitation_problems(config, questions, 0, {})
    lengths: list[int] = []
    for problem in problems[:_MEASURED_PROMPTS]:
        prompt = write_prompt(tokenizer, problem.question, config, pool)
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
    if not calls:
        return Decimal(0)
    read, written = CALL_TOKENS
    usage = Usage(input_tokens=read, output_tokens=written)
    dollars = Decimal(0)
    for _, worker in pool:
        if worker.price is None:
            return None
        dollars += worker.price.dollars(usage)
    return dollars / len(pool) * calls


@dataclass(frozen=True, slots=True)
class _CardNeeds:
    """What a model of a base asks of each card.

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
