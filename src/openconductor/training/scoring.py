"""Scoring of completions: played, graded, rewarded and recorded.

The first of a training's processes scores for all of them. It holds the journal, the budget and the
workers' limits, so nothing is paid for twice and no limit counts per process.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from openconductor.calls.budget import check_price
from openconductor.calls.dispatcher import FanOut
from openconductor.calls.policies import RUN_UNREACHABLE_S
from openconductor.config import load_registered
from openconductor.errors import ConfigError, TrainingStopped, WorkflowError
from openconductor.evaluation.grid import open_run_budget
from openconductor.evaluation.undecided import PoolJudge, settled
from openconductor.measures import Pace
from openconductor.pool import WorkerPool
from openconductor.protocols import CallContext, Grader
from openconductor.reward import (
    RewardFunction,
    RewardValue,
    Scored,
    episode_reward,
    priced_rewards,
)
from openconductor.store import Store
from openconductor.training.completions import draw_pool, number_pool
from openconductor.training.curves import Curve, Record, is_undecided, measure
from openconductor.training.train_config import BudgetConfig, TrainConfig
from openconductor.types import Budget, Completion, Grade, Problem, Round, text_of

if TYPE_CHECKING:
    from openconductor.traces.tracer import Traces
    from openconductor.training.setup import Setup

T = TypeVar("T")
MASKED = 0.2
"""The largest share of an iteration's rewards that may be masked."""
REPORT_EVERY = 10
"""The iterations between two lines for people."""
QUESTION_EXCERPT = 300
"""The characters of a question that the record of a rollout has, at most."""
_SHOWN = 4  # completions of an iteration that trackers get


@dataclass(frozen=True, slots=True)
class Sampled:
    """A completion to score.

    Attributes:
        problem: the problem that it answers.
        completion: the text of the model.
        sample: tells repeats of a question apart.
        key: draws the workers on offer (``draw_pool``); "": all workers.
        previous: the round before, in recursion.
    """

    problem: Problem
    completion: Completion
    sample: int
    key: str = ""
    previous: Round | None = None


class Sample(NamedTuple):
    """A completion as trackers show it; a reward of None is masked."""

    question: str
    completion: str
    reward: float | None


def keeps_calls(config: TrainConfig, pool: WorkerPool) -> bool:
    """Return True if the workers' calls are worth a record.

    They are if they have a limit, or if a repeated call may be answered differently.
    """
    limited = config.budget != BudgetConfig()
    return limited or not all(worker.resolved.repeatable for _, worker in pool)


class Scorer:
    """Plays, grades and rewards completions, under the budget of the whole training.

    Args:
        config: the recipe.
        pool: the workers.
        grader: the judge of the final answers.
        journal: gets a record of each completion, and of the workers' calls (``keeps_calls``).
        traces: records the spans of each rollout. None: nobody does.

    Raises:
        ConfigError: a price is needed that a worker lacks, or ``reward`` is wrong.
    """

    def __init__(
        self,
        config: TrainConfig,
        pool: WorkerPool,
        grader: Grader,
        journal: Store,
        traces: Traces | None = None,
    ) -> None:
        self._config = config
        self._pool = pool
        self._journal = journal
        limits = Budget(dollars=config.budget.dollars, calls=config.budget.calls)
        budget = None
        if limits != Budget():
            budget = open_run_budget(limits, journal.totals().counted)
        self._context = CallContext(budget=budget, unreachable_s=RUN_UNREACHABLE_S)
        for _, worker in pool:
            check_price(budget, worker)
            if config.reward.dollars and worker.price is None:
                raise ConfigError(
                    f"reward.dollars: worker {worker.name!r} of the pool has no price"
                )
        judge = None
        if config.reward.judge:
            calls = journal if traces is None else FanOut(journal, traces.named("judge"))
            judge = PoolJudge(pool, config.reward.judge, journal, self._context, calls)
        rollouts = None if traces is None else traces.named("rollout")
        kept = journal if keeps_calls(config, pool) else None
        sinks = [sink for sink in (kept, rollouts) if sink is not None]
        grader = settled(grader, undecided=config.reward.undecided, judge=judge)
        self._reward = RewardFunction(
            pool,
            _Remembering(grader),
            prompt=config.prompt.options(),
            max_steps=config.rollout.max_steps,
            trailing=config.reward.trailing_text == "accepted",
            grade_timeout_s=config.reward.grade_timeout_s,
            on_event=FanOut(*sinks) if sinks else None,
            value=reward_value(config),
        )
        # One loop for the whole run, so that connections stay open between iterations.
        self._runner = asyncio.Runner()

    def score(self, sampled: Sequence[Sampled], *, phase: str) -> list[Scored]:
        """Score completions at the same time; ``phase`` names them in the journal.

        Raises:
            BudgetExceeded: the training's budget is spent.
            ConfigError, AuthFailed, TaskError, JournalError: nothing that follows can succeed.
        """
        scoring = gather_or_cancel(map(self._score, sampled))
        scored = self._runner.run(scoring)
        for place, (attempt, result) in enumerate(zip(sampled, scored, strict=True)):
            record = self._record(attempt, result, phase)
            self._journal.put_record(f"{phase}/{place}", record)
        self._journal.flush()
        return scored

    def close(self) -> None:
        """Close the workers' connections."""
        self._runner.run(self._pool.aclose())
        self._runner.close()

    async def _score(self, sampled: Sampled) -> Scored:
        offered = draw_pool(self._config, self._pool, sampled.key)
        return await self._reward(
            sampled.problem,
            sampled.completion,
            context=replace(self._context, sample=sampled.sample),
            pool=offered,
            previous=sampled.previous,
        )

    def _record(self, sampled: Sampled, scored: Scored, phase: str) -> dict[str, object]:
        error = scored.episode.error
        return {
            "training": phase,
            "problem": sampled.problem.id,
            "question": sampled.problem.question[:QUESTION_EXCERPT],
            "round": len(scored.episode.rounds) - 1,
            "offered": draw_pool(self._config, self._pool, sampled.key).ordinals,
            "completion": sampled.completion.text,
            "invalid": error.reason.value if isinstance(error, WorkflowError) else None,
            "error": None if error is None else str(error),
            "answer": scored.episode.answer,
            "undecided": is_undecided(scored),
            "correct": scored.correct,
            "reward": scored.reward,
        }


async def gather_or_cancel(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Return all results, in order. If one raises, cancel the others and wait for their end."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def check_masked(scored: Sequence[Scored]) -> None:
    """Check that enough was decided; what a recipe's own reward masks counts as decided.

    Raises:
        TrainingStopped: more than ``MASKED`` of the rewards are masked; the message says why.
    """
    masked = [result for result in scored if result.correct is None]
    if len(masked) <= MASKED * len(scored):
        return
    reasons = Counter(_why_masked(result) for result in masked)
    ((reason, count),) = reasons.most_common(1)
    raise TrainingStopped(
        f"{len(masked)} of {len(scored)} rewards are masked, expected at most {MASKED:.0%}; the "
        f"most frequent reason ({count} times): {reason}. Mend it, then go on with --resume"
    )


def _why_masked(scored: Scored) -> str:
    if scored.episode.error is not None:
        return str(scored.episode.error) or "no reason was given"
    note = scored.grade.note if scored.grade else ""
    return note or "no reason was given"


# ── rewards and graders as the recipe wants them ──────────────────────────────────────────────────
def reward_value(config: TrainConfig) -> RewardValue | None:
    """Return the function that a recipe's ``reward.function`` names; None: it names none.

    Raises:
        ConfigError: the name is unknown, or does not take a problem, an episode and a grade.
    """
    if not config.reward.function:
        return None
    value: Any = load_registered({}, config.reward.function, what="reward")
    try:
        inspect.signature(value).bind(None, None, None)
    except TypeError as error:
        raise ConfigError(
            f"reward.function: {error}; expected one of (problem, episode, grade)"
        ) from error
    return value


class _Remembering:
    """A grader that remembers its verdicts, unless it could not decide.

    A training meets the same answers often where they are short or recorded.
    """

    def __init__(self, inner: Grader) -> None:
        self._inner = inner
        self._verdicts: dict[bytes, Grade] = {}

    async def grade(self, problem: Problem, answer: str) -> Grade:
        # The files of two splits may have one id for two questions.
        parts = f"{problem.task}\0{problem.id}\0{problem.question}\0{answer}"
        key = blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        grade = self._verdicts.get(key)
        if grade is None:
            grade = await self._inner.grade(problem, answer)
            if grade.correct is not None:
                self._verdicts[key] = grade
        return grade


# ── the rewards of an iteration ───────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class Rewards:
    """Scores and records the completions of an iteration, in the first process.

    Attributes:
        setup: of the run.
        problems: the problems that the rows' ``problem`` is an index into.
        curve: gets the record of each iteration.
        clock: when the last iteration was recorded.
        alarm: the warnings of the curve in this process.
        pace: of the iterations.
        pending: the record of an iteration until ``record`` completes it; None: all are recorded.
        samples: completions of the last iteration, one of each of some questions.
    """

    setup: Setup
    problems: Sequence[Problem]
    curve: Curve
    clock: float = field(default_factory=time.perf_counter)
    alarm: str = ""
    pace: Pace = field(default_factory=Pace)
    pending: Record | None = None
    samples: list[Sample] = field(default_factory=list[Sample])

    def score(
        self, sampled: Sequence[Sampled], iteration: int, *, round_number: int | None = None
    ) -> list[Scored]:
        """Score completions of an iteration, in recursion those of one round; each once."""
        assert self.setup.scorer is not None
        phase = f"iteration {iteration}"
        if round_number is not None:
            phase += f", round {round_number}"
        return self.setup.scorer.score(sampled, phase=phase)

    def finish(
        self,
        scored: Sequence[Scored],
        kinds: Sequence[str],
        keys: Sequence[str],
        iteration: int,
        *,
        group: int,
        phase: str = "grpo",
    ) -> list[float | None]:
        """Measure an iteration and return its rewards, broken by a control if the recipe has one.

        ``record`` writes what was measured. A round of imitation is recorded at once, an iteration
        of GRPO behind its update.

        Args:
            scored: the completions, as they were scored.
            kinds: the kind of each completion's question.
            keys: draw the workers of each completion's question.
            iteration: its number.
            group: neighbours that belong to one question.
            phase: ``imitate`` learns from what was graded right; a recipe's own reward only masks.

        Raises:
            TrainingStopped: too many rewards are masked.
        """
        config = self.setup.config
        now = time.perf_counter()
        pools = [number_pool(config, self.setup.pool, key) for key in keys]
        measured = measure(kinds, scored, pools, group=group)
        seconds = now - self.clock
        self.pending = {"iteration": iteration, "phase": phase, "seconds": seconds, **measured}
        self.clock = now
        self.samples = [_sample(result) for result in scored[::group][:_SHOWN]]
        try:
            check_masked(scored)
        except TrainingStopped:
            self.record()
            raise
        rewards = [result.reward for result in scored]
        if phase == "imitate":
            self.record()
            rewards = [graded_reward(result) for result in scored]
        elif config.reward.priced:
            rewards = []
            for start in range(0, len(scored), group):
                members = scored[start : start + group]
                rewards += self.price(members)
        if config.reward.control == "flipped":
            return [None if reward is None else 1.0 - reward for reward in rewards]
        if config.reward.control == "shuffled":
            rng = random.Random(f"shuffled/{config.seed}/{iteration}")
            rng.shuffle(rewards)
        return rewards

    def price(self, group: Sequence[Scored]) -> list[float | None]:
        """Return the rewards of one question's completions, less what right answers cost."""
        prices = self.setup.config.reward
        return priced_rewards(
            group,
            dollars=prices.dollars,
            seconds=prices.seconds,
            answers=prices.answers,
            free_answers=prices.free_answers,
            merging=[ordinal for ordinal, worker in self.setup.pool if worker.resolved.merges],
        )

    def record(self, **update: float | None) -> Record:
        """Append the pending record to the curve, and tell its warnings and figures.

        Args:
            **update: what is known of the optimiser's step: entropy, norm of the gradient.

        Returns:
            The record; {}: none is pending.
        """
        if self.pending is None:
            return {}
        record: Record = self.pending | update
        self.pending = None
        config, say = self.setup.config, self.setup.say
        iteration = record["iteration"]
        for warning in self.curve.append(record):
            alarm = f"iteration {iteration}: {warning}"
            self.alarm = f"{self.alarm}; {alarm}" if self.alarm else alarm
            say(f"warning: {alarm}")
        name, last = "iteration", self.curve.after + config.rollout.iterations
        if record["phase"] == "imitate":
            name, last = "imitation, round", config.imitate.rounds
        finish = self.pace.finish(iteration, last)
        if record["phase"] == "imitate" or iteration % REPORT_EVERY == 0:
            say(
                f"{name} {iteration} of {last}: accuracy {record['accuracy']:.3f}, "
                f"validity {record['validity']:.3f}, "
                f"routing entropy {record['routing_entropy_bits']:.2f} bits, "
                f"{record['completion_tokens']:.0f} tokens a completion{finish}"
            )
        return record


def _sample(scored: Scored) -> Sample:
    completion = scored.episode.rounds[-1].completion if scored.episode.rounds else None
    text = "" if completion is None else completion.text
    return Sample(text_of(scored.episode.question), text, scored.reward)


def graded_reward(scored: Scored) -> float | None:
    """Return the reward that the grader's verdict is worth, whatever a recipe's own reward says."""
    if scored.reward is None:
        return None
    return episode_reward(scored.episode, scored.grade)


# ── processes ─────────────────────────────────────────────────────────────────────────────────────
def on_first(function: Callable[[], T]) -> T:
    """Run a function in the first process; return its result in every process.

    Raises:
        TrainingStopped: the function failed, in the other processes.
    """
    state = PartialState()
    if state.num_processes == 1:
        return function()
    shared: list[Any] = [None, ""]
    if state.is_main_process:
        try:
            shared[0] = function()
        except BaseException as error:  # its words are shared: not every error can be pickled
            broadcast_object_list([None, f"{type(error).__name__}: {error}"])
            raise
    broadcast_object_list(shared)
    result, failure = shared
    if failure:
        raise TrainingStopped(f"the first process stopped: {failure}")
    return cast("T", result)


def gathered(local: list[T]) -> list[T]:
    """Return the items of all processes, in the order of the batch."""
    if PartialState().num_processes == 1:
        return local
    return cast("list[T]", gather_object(local))
