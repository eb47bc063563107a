"""Sampling and scoring: what a model completes, many prompts at once, and what each completion is worth.

In: a model and problems. Out: completions, and a Scored each. This is the training's own view
(torch, batched); what a user runs goes through a Provider and ``Conductor.ask``. The first of a
training's processes scores for all of them: it holds the journal, the budget and the workers'
limits, so nothing is paid for twice and no limit counts per process.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from openconductor.baselines.single import SingleWorker
from openconductor.calls.budget import check_price
from openconductor.calls.policies import RUN_UNREACHABLE_S
from openconductor.config import load_registered
from openconductor.errors import ConfigError, GradingError, TrainingStopped, WorkflowError
from openconductor.evaluation.grid import open_run_budget
from openconductor.graders.code import CodeGrader
from openconductor.graders.freeform import FreeFormGrader
from openconductor.parser import parse_workflow
from openconductor.pool import WorkerPool, simulated_pool
from openconductor.prompt import render_prompt
from openconductor.protocols import CallContext, Grader, OnEvent
from openconductor.reward import RewardFunction, RewardValue, Scored
from openconductor.store import Store
from openconductor.tasks.paper_mix import MixGrader
from openconductor.training.checkpoint import end_ids
from openconductor.training.train_config import TrainConfig
from openconductor.types import Budget, Completion, Grade, Message, Problem, Question, Round, Usage

T = TypeVar("T")
LIKELY = 1e-4
"""Tokens with a smaller chance are not explored: they are slips."""
MASKED = 0.2
"""The largest share of an iteration's rewards that may be masked."""


# ── sampling ──────────────────────────────────────────────────────────────────────────────────────
def render_chat(
    question: Question, config: TrainConfig, pool: WorkerPool, previous: Round | None = None
) -> list[dict[str, str]]:
    """The Conductor's prompt as the plain dictionaries of a chat template; ``previous`` is the round before, if any."""
    options, max_steps = config.prompt.options(), config.rollout.max_steps
    messages = render_prompt(
        question,
        pool.ordinals,
        options=options,
        max_steps=max_steps,
        cards=pool.cards,
        previous=previous,
    )
    return [{"role": message.role, "content": message.content} for message in messages]


def write_prompt(
    tokenizer: PreTrainedTokenizerBase,
    question: Question,
    config: TrainConfig,
    pool: WorkerPool,
    previous: Round | None = None,
) -> str:
    """The Conductor's prompt as the text that the model completes; ``previous`` is the round before, if any."""
    chat = render_chat(question, config, pool, previous)
    return cast(
        "str", tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    )


def completion_of(text: str, ids: Sequence[int], ends: frozenset[int]) -> Completion:
    """What a model completed, the end's token among its ids where it came to one."""
    ended = bool(ids) and ids[-1] in ends
    return Completion(
        text, usage=Usage(output_tokens=len(ids)), finish_reason="stop" if ended else "length"
    )


def complete(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    config: TrainConfig,
    temperature: float | None,
    seed: int,
    explore: float = 1.0,
    explored: Sequence[bool] = (),
) -> list[Completion]:
    """Complete prompts in batches; ``temperature`` None is greedy. The model's own sampling settings do not count.

    In the completions that are ``explored``, ``explore`` multiplies the temperature of the first
    token where it is mostly a number: among the tokens that begin with a digit and whose chance is
    not below ``LIKELY``.
    """
    torch.manual_seed(seed)
    ends, size = end_ids(model), config.rollout.sample_batch
    numbers = (
        _numbers(tokenizer, cast("int", model.config.vocab_size))
        if explore > 1 and any(explored)
        else None
    )
    settings = GenerationConfig(
        max_new_tokens=config.rollout.max_tokens,
        do_sample=temperature is not None,
        temperature=temperature,
        top_k=0 if temperature is not None else None,
        eos_token_id=sorted(ends),
        pad_token_id=cast("int", tokenizer.pad_token_id),
    )
    training = model.training
    model.eval()
    completions: list[Completion] = []
    for start in range(0, len(prompts), size):
        batch = tokenizer(
            list(prompts[start : start + size]),
            return_tensors="pt",
            padding=True,
            padding_side="left",
            add_special_tokens=False,  # the chat template has written them
        )
        batch.pop("token_type_ids", None)
        with (
            torch.no_grad(),
            torch.autocast(model.device.type, torch.bfloat16, enabled=config.optim.bf16),
        ):
            width = batch["input_ids"].shape[1]
            rows = torch.tensor(explored[start : start + size]).unsqueeze(1)
            processors = [] if numbers is None else [_Explored(rows, width, numbers, explore)]
            ids = cast("Any", model).generate(
                **batch.to(model.device),
                generation_config=settings,
                logits_processor=LogitsProcessorList(processors),
            )
        for row in ids[:, width:].tolist():
            end = next((place for place, token in enumerate(row) if token in ends), len(row))
            kept = row[: end + 1]
            text = cast("str", tokenizer.decode(kept, skip_special_tokens=True))
            completions.append(completion_of(text, kept, ends))
    model.train(training)
    return completions


@lru_cache(maxsize=1)
def _numbers(tokenizer: PreTrainedTokenizerBase, size: int) -> torch.Tensor:
    """Which of a model's ``size`` tokens begin with a digit [V]."""
    numbers = torch.zeros(size, dtype=torch.bool)
    for token in range(min(size, len(tokenizer))):
        numbers[token] = cast("str", tokenizer.decode([token]))[:1].isdigit()
    return numbers


@dataclass(frozen=True, slots=True)
class _Explored:
    """Makes the numbers with which completions may begin more alike, in some rows [B, 1] of a batch."""

    rows: torch.Tensor
    width: int
    numbers: torch.Tensor
    temperature: float

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The scores [B, V] of the next token."""
        if ids.shape[1] > self.width:
            return scores
        numbers, chances = self.numbers.to(scores.device), torch.softmax(scores.float(), -1)
        may = numbers & (chances >= LIKELY)
        rows = self.rows.to(scores.device) & ((chances * numbers).sum(-1, keepdim=True) > 0.5)
        return torch.where(
            rows, (scores / self.temperature).masked_fill(~may, float("-inf")), scores
        )


def unreadable(completion: Completion, config: TrainConfig, ordinals: Sequence[int]) -> str:
    """Why a completion is not a workflow; "" where it is one."""
    if completion.finish_reason == "length":
        return f"truncated: no end within {config.rollout.max_tokens} tokens"
    try:
        parse_workflow(completion.text, ordinals, max_steps=config.rollout.max_steps)
    except WorkflowError as error:
        return str(error)
    return ""


def draw_pool(config: TrainConfig, pool: WorkerPool, key: str) -> WorkerPool:
    """The workers that a question offers, drawn by its key as the recipe says (``pool``, ``rollout.offered``)."""
    simulated = simulated_pool(config.pool)
    if simulated is not None and simulated.redrawn:
        pool = simulated.draw(config.seed, key)
    if not config.rollout.offered or not key:
        return pool
    rng = random.Random(f"offered/{config.seed}/{key}")
    fewest, most = (min(one, len(pool)) for one in config.rollout.offered)
    return pool.subset(sorted(rng.sample(pool.ordinals, rng.randint(fewest, most))))


async def gather_or_end(played: Iterable[Awaitable[T]]) -> list[T]:
    """All results, in order. Where one raises, which stops a run, the others are ended: nothing may go on after it."""
    tasks = [asyncio.ensure_future(one) for one in played]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# ── scoring ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion to score.

    Attributes:
        problem: what was asked.
        completion: what the model wrote.
        sample: tells repeats of a question apart.
        key: draws the workers on offer (``draw_pool``); "" is the whole pool.
        previous: the round before, in recursion.
    """

    problem: Problem
    completion: Completion
    sample: int
    key: str = ""
    previous: Round | None = None


class Scorer:
    """Plays, grades and rewards completions, under the budget of the whole training.

    Args:
        config: the recipe.
        pool: the workers.
        grader: the judge of the final answers.
        journal: gets a record of each completion, and of the workers' calls where they cost
            anything.
    """

    def __init__(
        self, config: TrainConfig, pool: WorkerPool, grader: Grader, journal: Store
    ) -> None:
        self._config, self._pool, self._journal = config, pool, journal
        limits = Budget(dollars=config.budget.dollars, calls=config.budget.calls)
        budget = None
        if limits != Budget():
            budget = open_run_budget(limits, journal.totals().spent)
        self._context = CallContext(budget=budget, unreachable_s=RUN_UNREACHABLE_S)
        for _, worker in pool:
            check_price(budget, worker)
            if config.reward.dollars and worker.price is None:
                raise ConfigError(
                    f"reward.dollars: got a pool whose worker {worker.name!r} has no price, expected one"
                )
        paid = simulated_pool(config.pool) is None
        self._score = RewardFunction(
            pool,
            _as_configured(grader, config, pool, journal, self._context),
            prompt=config.prompt.options(),
            max_steps=config.rollout.max_steps,
            grade_timeout_s=config.reward.grade_timeout_s,
            on_event=journal if paid else None,
            value=reward_value(config),
        )
        self._runner = (
            asyncio.Runner()
        )  # one loop for the whole run: connections stay open between iterations

    def score(self, sampled: Sequence[Sampled], *, phase: str) -> list[Scored]:
        """Score completions at the same time; ``phase`` names them in the journal.

        Raises:
            BudgetExceeded: the training's budget is spent.
            ConfigError, AuthFailed, TaskError, JournalError: nothing that follows can succeed.
        """
        scored = self._runner.run(gather_or_end(self._one(one) for one in sampled))
        for place, (one, worth) in enumerate(zip(sampled, scored, strict=True)):
            self._journal.put_record(f"{phase}/{place}", self._record(one, worth, phase))
        self._journal.flush()
        return scored

    def close(self) -> None:
        """Close the workers' connections."""
        self._runner.run(self._pool.aclose())
        self._runner.close()

    async def _one(self, one: Sampled) -> Scored:
        offered = draw_pool(self._config, self._pool, one.key)
        context = replace(self._context, sample=one.sample)
        return await self._score(
            one.problem, one.completion, context=context, pool=offered, previous=one.previous
        )

    def _record(self, one: Sampled, worth: Scored, phase: str) -> dict[str, object]:
        error = worth.episode.error
        return {
            "training": phase,
            "problem": one.problem.id,
            "round": len(worth.episode.rounds) - 1,
            "offered": draw_pool(self._config, self._pool, one.key).ordinals,
            "completion": one.completion.text,
            "invalid": error.reason.value if isinstance(error, WorkflowError) else None,
            "error": None if error is None else str(error),
            "answer": worth.episode.answer,
            "undecided": is_undecided(worth),
            "correct": worth.correct,
            "reward": worth.reward,
        }


def check_masked(scored: Sequence[Scored]) -> None:
    """Stop where too little of an iteration could be decided; what a recipe's own reward masks does not count.

    Raises:
        TrainingStopped: more than ``MASKED`` of the rewards are masked; the message says why.
    """
    masked = [one for one in scored if one.correct is None]
    if len(masked) <= MASKED * len(scored):
        return
    reasons: dict[str, int] = {}
    for one in masked:
        why = (
            str(one.episode.error or (one.grade.note if one.grade else "")) or "no reason was given"
        )
        reasons[why] = reasons.get(why, 0) + 1
    most = max(reasons, key=lambda why: reasons[why])
    raise TrainingStopped(
        f"{len(masked)} of {len(scored)} rewards are masked, expected at most {MASKED:.0%}; the most "
        f"frequent reason ({reasons[most]} times): {most}. Mend it, then go on with --resume"
    )


def reward_value(config: TrainConfig) -> RewardValue | None:
    """What a recipe's ``reward.function`` names; None where it names none.

    Raises:
        ConfigError: there is no such thing, or it does not take a problem, an episode and a grade.
    """
    if not config.reward.function:
        return None
    found: Any = load_registered({}, config.reward.function, what="reward")
    try:
        inspect.signature(found).bind(None, None, None)
    except TypeError as error:
        raise ConfigError(
            f"reward.function: {error}; expected one of (problem, episode, grade)"
        ) from error
    return found


class _Deciding:
    """A grader that takes an undecided answer for a wrong one; one that fails still decides nothing."""

    def __init__(self, inner: Grader) -> None:
        self._inner = inner

    async def grade(self, problem: Problem, answer: str) -> Grade:
        grade = await self._inner.grade(problem, answer)
        return replace(grade, correct=False) if grade.correct is None else grade


def _as_configured(
    grader: Grader,
    config: TrainConfig,
    pool: WorkerPool,
    on_event: OnEvent,
    context: CallContext,
) -> Grader:
    """The grader, with what the recipe says about answers that the rules cannot decide."""
    if isinstance(grader, MixGrader):
        return MixGrader(
            {
                name: _as_configured(one, config, pool, on_event, context)
                for name, one in grader.graders.items()
            }
        )
    if isinstance(grader, CodeGrader):
        return (
            grader  # its rules decide everything: what it leaves undecided is a sandbox that failed
        )
    if config.reward.judge and isinstance(grader, FreeFormGrader):
        grader = FreeFormGrader(
            judge=_Judge(SingleWorker(pool, config.reward.judge), on_event, context)
        )
    return _Deciding(grader) if config.reward.undecided == "wrong" else grader


class _Judge:
    """A worker as a judge, whose calls are billed, journaled and found again as those of the workflows are."""

    def __init__(self, worker: SingleWorker, on_event: OnEvent, context: CallContext) -> None:
        self._worker = worker
        self._on_event = on_event
        self._context = context

    async def complete(self, messages: Sequence[Message], *, call: CallContext) -> Completion:
        episode = await self._worker.ask(messages, on_event=self._on_event, context=self._context)
        if episode.answer is None:
            raise GradingError(
                f"the judge failed: {episode.error}"
            )  # masks: no failure of it makes an answer wrong
        return Completion(episode.answer)


def is_undecided(one: Scored) -> bool:
    """Whether the grader could not decide, whatever the recipe then counts that as."""
    return one.grade is not None and one.grade.note.startswith("undecided")
