"""Estimate what a training needs before anything is paid for: memory, tokens, calls, hours.

The model is built without weights. The assumptions are the constants below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import fmean
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerBase

from openconductor.pool import WorkerPool
from openconductor.prompt import render_workflow
from openconductor.training.completions import check_room, context_length, write_prompt
from openconductor.training.models import build_model, build_tokenizer, load_tokenizer
from openconductor.training.run import quiet_libraries
from openconductor.training.setup import Questions, imitation_problems, training_problems
from openconductor.training.supervised import (
    FIRST_ROUNDS_PLAYED,
    fresh_tokenizer,
    plays_first_rounds,
)
from openconductor.training.train_config import TrainConfig
from openconductor.types import Step, Usage, Workflow

GIB = 2**30
CARDS = (1, 2, 4, 8)
STEPS = 3  # of a workflow, as in the paper's runs
COMPLETION_TOKENS = 400  # of the Conductor
CALL_TOKENS = (900, 700)  # read and written by a worker in a step
CALL_SECONDS = 30  # until the slowest workflow of an iteration has ended, a step
FLOPS = 4e14  # a second, of an H100 in bfloat16 at 40 % of its peak
SAMPLED = 2500  # tokens a second that one card samples of a 7B at 64 rows with vLLM
# With transformers, which is no faster for a smaller model: starting the kernels takes the time.
SAMPLED_PLAINLY = 700
CHECKPOINTS = 3  # on the disk while one is written: two count, until the new one is whole
CHECKPOINT_BYTES = 16  # a parameter that learns: weight, two moments, and a second copy if sharded
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
        memory: GiB a card by number of cards, for learning and for sampling, the weights sharded,
            and what the first card needs to measure the whole model alone; {} for a fresh tiny
            model, and without a prompt.
        hours: by number of cards, likewise.
        disk: GiB of checkpoints and of the models of all phases.
        context: the most tokens of a prompt and its completion, which vLLM must make room for;
            None: no question is here, or transformers samples.
    """

    parameters: int
    learnt: int
    prompt_tokens: float | None
    memory: dict[int, dict[str, float]]
    hours: dict[int, float]
    disk: float
    context: int | None = None


def call_needs(config: TrainConfig, pool: WorkerPool, held_out: int) -> CallNeeds:
    """Estimate what a training asks of its workers, with this many held-out questions."""
    rollouts = _learning_rollouts(config) + config.start.workflows
    rollouts += 2 * held_out * config.rollout.rounds  # sampled and greedy
    recorded = all(worker.recalls for _, worker in pool)
    live_steps = steps_of(config) - 1 if recorded else steps_of(config)
    calls = rollouts * live_steps
    tokens = calls * sum(CALL_TOKENS)
    return CallNeeds(rollouts, calls, tokens, _dollars(pool, calls), recorded)


def _learning_rollouts(config: TrainConfig) -> int:
    imitate = config.imitate
    rollouts = imitate.rounds * imitate.questions * imitate.completions
    rollouts += config.rollout.iterations * config.rollout.batch
    if config.cold_start.steps and plays_first_rounds(config):
        rollouts += FIRST_ROUNDS_PLAYED
    return rollouts


@quiet_libraries()
def model_needs(config: TrainConfig, pool: WorkerPool, questions: Questions | None) -> ModelNeeds:
    """Estimate what a training asks of its machine; of a base, only the tokenizer is loaded.

    Args:
        config: the recipe.
        pool: the workers, who are in the prompt.
        questions: to learn from; None: they are not here.

    Raises:
        ConfigError: the base or its tokenizer cannot be loaded, or a plan does not fit into a
            completion.
    """
    model, shape, tokenizer = _shape(config, pool, questions)
    if config.model.base:
        plan = Workflow((Step(pool.ordinals[0], "?"),))
        check_room(tokenizer, config, [render_workflow(plan)])
    parameters = sum(weights.numel() for weights in model.parameters())
    learnt = _adapter_parameters(model, config) if config.model.lora_rank else parameters
    needs = ModelNeeds(parameters, learnt, None, {}, {}, _disk(config, parameters, learnt))
    if questions is None:
        return needs
    problems = training_problems(config, questions) or imitation_problems(config, questions, 0, {})
    texts = [questions.planned(problem) for problem in problems]
    prompts = [write_prompt(tokenizer, text, config, pool) for text in texts]
    prompt = _mean_prompt_tokens(tokenizer, prompts)
    needs = replace(needs, prompt_tokens=prompt)
    if not config.model.base:
        return needs
    context = None
    if config.rollout.engine != "transformers":
        context = context_length(tokenizer, prompts, config, int(shape.max_position_embeddings))
    card = _CardNeeds(config, shape, parameters, learnt, prompt)
    return replace(
        needs,
        memory={cards: card.memory(cards) for cards in CARDS},
        hours={cards: card.hours(cards) for cards in CARDS},
        context=context,
    )


def _disk(config: TrainConfig, parameters: int, learnt: int) -> float:
    """Return the GiB of a run's checkpoints and of its phases' models and adapters, in float32."""
    phases = (config.cold_start.steps, config.imitate.rounds, config.rollout.iterations)
    models = sum(amount > 0 for amount in phases)
    adapters = learnt if config.model.lora_rank else 0
    model = 4 * (parameters + adapters)
    return (CHECKPOINTS * CHECKPOINT_BYTES * learnt + model * models) / GIB


def _shape(
    config: TrainConfig, pool: WorkerPool, questions: Questions | None
) -> tuple[Any, Any, PreTrainedTokenizerBase]:
    """Return the model, a base without its weights; its configuration and its tokenizer."""
    if config.model.base:
        shape = AutoConfig.from_pretrained(config.model.base).get_text_config()
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(shape)
        options = config.model.chat_template_kwargs
        return model, shape, load_tokenizer(config.model.base, options)
    tokenizer = build_tokenizer([])
    if questions is not None:
        tokenizer = fresh_tokenizer(config, questions, pool)
    fresh = build_model(config.model, tokenizer, seed=config.seed)
    return fresh, fresh.config, tokenizer


def steps_of(config: TrainConfig) -> int:
    """Return the steps that a workflow is assumed to have."""
    return min(STEPS, config.rollout.max_steps)


def _mean_prompt_tokens(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]) -> float:
    """Return the tokens of the first prompts, on average."""
    first = prompts[:_MEASURED_PROMPTS]
    return fmean(len(tokenizer.encode(prompt, add_special_tokens=False)) for prompt in first)


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
        The first card measures the whole model alone, before and after learning.
        """
        frozen = self.parameters - self.learnt if self.config.model.lora_rank else 0
        states = (16 * self.learnt + 4 * frozen) / cards
        activations = self._activations(cards)
        sampling = self._sampling(cards)
        alone = 4 * self.parameters + self._plain_sampling(1)
        return {
            "weights, gradients, Adam": states / GIB,
            "activations": activations / GIB,
            "sampling": sampling / GIB,
            "first card alone": alone / GIB,
            "peak": max(states + max(activations, sampling), alone) / GIB,
        }

    def hours(self, cards: int) -> float:
        """Return the hours of sampling, of learning, and of waiting for the workers."""
        config = self.config
        imitate = config.imitate
        plainly = imitate.rounds * imitate.questions * imitate.completions
        completions = config.rollout.iterations * config.rollout.batch
        fast = SAMPLED * 7e9 / self.parameters
        slow = min(SAMPLED_PLAINLY, fast)
        rate = slow if config.rollout.engine == "transformers" else fast
        sampling = (plainly / slow + completions / rate) * COMPLETION_TOKENS / cards
        rows = completions + imitate.rounds * imitate.steps * imitate.batch
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
        return self._plain_sampling(cards, copied=cards > 1 or engine == "vllm")

    def _plain_sampling(self, cards: int, *, copied: bool = True) -> float:
        """Return the bytes of the cache of this card's share, and of a copy of the weights."""
        shape = self.shape
        attention = int(shape.num_attention_heads)
        heads = int(getattr(shape, "num_key_value_heads", None) or attention)
        units = int(getattr(shape, "head_dim", None) or int(shape.hidden_size) // attention)
        rows = self._rows(cards, self.config.rollout.sample_batch)
        cache = rows * self._length * 2 * 2 * int(shape.num_hidden_layers) * heads * units
        return cache + (2 * self.parameters if copied else 0)
