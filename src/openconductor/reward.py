"""What a completion was worth: played, graded and rewarded 0, 0.5, 1 or masked, without any learning engine.

In: a Problem and what a Conductor wrote about it; or an Episode and its Grade. Out: a reward, or
None; advantages.

- 0: no workflow (WorkflowError).
- 0.5: an answer, graded wrong; or a failure that the plan itself caused: a refusal, a context too long, a token limit
  spent before any text came, the question's own budget of calls, tokens or dollars spent.
- 1: an answer, graded right.
- None, masked: any other failure (transport, provider, time, sandbox, grader), and an undecided grade.

Cost and latency are no part of it, as in the paper; ``priced_rewards`` is what a recipe may add, a
``RewardValue`` what it may put in its place. Right is only what the grader calls right. Not
covered: whether the grader is right, what a Conductor was thinking, and errors whose fate is
*stop*, which are raised because no later reward could be earned either.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from typing import cast

from openconductor.config import shorten
from openconductor.episode import LiveEpisode
from openconductor.errors import (
    ConfigError,
    GradingError,
    OpenConductorError,
    WorkflowError,
    caused_by_plan,
    stops,
)
from openconductor.pool import WorkerPool
from openconductor.prompt import PromptOptions
from openconductor.protocols import CallContext, Grader, OnEvent
from openconductor.types import Budget, Completion, Episode, Grade, Problem, Round

RewardValue = Callable[[Problem, Episode, Grade | None], float | Awaitable[float | None] | None]
"""What an episode is worth where the paper's reward is not masked; there is no Grade where there was no answer."""
LARGEST = 1e18
"""The largest size of a reward: its square is still a float32."""
GRADE_SECONDS = 600.0
"""After so long a verdict counts as undecided, if nothing else is said; graders have limits of their own, far below."""


def episode_correct(episode: Episode, grade: Grade | None) -> bool | None:
    """Whether an episode counts as right; None is undecided, for infrastructure never changes a score.

    A text that is not a workflow and what a plan caused (a refusal, its budget spent) count as
    wrong. A failure of transport, provider or grader does not count. The scale of the reward plays
    no part.

    >>> from openconductor.types import Usage
    >>> episode = Episode("What is 6 * 7?", (), "42", None, Usage(), 0.0)
    >>> episode_correct(episode, Grade(True)), episode_correct(episode, Grade(False)), episode_correct(episode, None)
    (True, False, None)
    """
    error = episode.error
    if error is not None:
        return False if isinstance(error, WorkflowError) or caused_by_plan(error) else None
    return None if episode.answer is None or grade is None else grade.correct


def episode_reward(episode: Episode, grade: Grade | None) -> float | None:
    """The reward of one episode (paper, section 3; the list above).

    Args:
        episode: how it went.
        grade: the verdict on its answer; None where there is none.

    Returns:
        0.0, 0.5 or 1.0; None where it is masked.

    >>> from openconductor.types import Usage
    >>> episode = Episode("What is 6 * 7?", (), "42", None, Usage(), 0.0)
    >>> episode_reward(episode, Grade(True)), episode_reward(episode, Grade(False)), episode_reward(episode, None)
    (1.0, 0.5, None)
    """
    if isinstance(episode.error, WorkflowError):
        return 0.0
    correct = episode_correct(episode, grade)
    return None if correct is None else 1.0 if correct else 0.5


def group_advantages(rewards_G: Sequence[float | None], *, eps: float = 1e-4) -> list[float]:  # noqa: N803
    """Centre and scale the rewards of one question's rollouts (GRPO, paper eq. 2).

    Args:
        rewards_G: one reward in [0, 1] a rollout; None marks a masked rollout.
        eps: added to the sample standard deviation, in units of reward.

    Returns:
        One advantage a rollout: mean 0 over the unmasked, exactly 0 for the masked, for groups
        without spread and for groups with fewer than two unmasked rollouts.

    Raises:
        ValueError: a reward outside [0, 1] or not finite.

    >>> [round(a, 2) for a in group_advantages([0.0, 0.5, 1.0])]
    [-1.0, 0.0, 1.0]
    """
    known = [reward for reward in rewards_G if reward is not None]
    for index, reward in enumerate(rewards_G):
        if reward is not None and not (math.isfinite(reward) and 0.0 <= reward <= 1.0):
            raise ValueError(
                f"rewards_G[{index}]: got {reward!r}, expected a number in [0, 1] or None"
            )
    if len(known) < 2 or min(known) == max(known):
        return [0.0] * len(rewards_G)
    mean = statistics.fmean(known)
    spread = statistics.stdev(known, mean) + eps
    return [0.0 if reward is None else (reward - mean) / spread for reward in rewards_G]


@dataclass(frozen=True, slots=True)
class Scored:
    """One completion, played and judged.

    Attributes:
        reward: 0.0, 0.5 or 1.0, or what a RewardValue says; None is masked.
        episode: what happened; its ``usage`` and ``seconds`` leave out the round that was played
            before.
        grade: the verdict on the answer; undecided, with a note, where the grader failed; None
            where there was no answer to grade.
    """

    reward: float | None
    episode: Episode
    grade: Grade | None

    @property
    def correct(self) -> bool | None:
        """Whether it counts as right (``episode_correct``)."""
        return episode_correct(self.episode, self.grade)


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """Plays and judges completions that some engine sampled; call it for as many at once as you like.

    Attributes:
        pool: the workers on offer; a call may offer a subset.
        grader: the judge of the final answers.
        prompt: how the Conductor was asked; only ``subtasks`` matters here.
        max_steps: the most steps of a workflow.
        budget: what one completion's steps may cost.
        grade_timeout_s: the longest that one answer is graded; after that the reward is masked.
        on_event: gets every event of every episode; a journal makes an episode durable before its
            reward is known.
        value: what an episode is worth in place of 0, 0.5 and 1; None is these.
    """

    pool: WorkerPool
    grader: Grader
    _: KW_ONLY
    prompt: PromptOptions = field(default_factory=PromptOptions)
    max_steps: int = 5
    budget: Budget | None = None
    grade_timeout_s: float | None = 60.0
    on_event: OnEvent | None = None
    value: RewardValue | None = None

    async def __call__(
        self,
        problem: Problem,
        completion: Completion | str,
        *,
        context: CallContext | None = None,
        pool: WorkerPool | None = None,
        previous: Round | None = None,
    ) -> Scored:
        """Parse, execute, grade and reward one completion; the planner is not called.

        Args:
            problem: the question and its reference answer.
            completion: what the Conductor wrote; one whose ``finish_reason`` is ``length`` is not a
                workflow.
            context: what the completion is played for. Its ``sample`` is the rollout's index in
                its group.
            pool: the workers that this question offered; default: all.
            previous: the round before, in recursion: three empty lists then accept its answer,
                where it has one.

        Raises:
            ConfigError, AuthFailed, TaskError, JournalError: nothing that follows can succeed, or
                ``value`` failed. Every other failure is in the result, and a cancellation cancels
                what runs.
        """
        said = Completion(completion) if isinstance(completion, str) else completion

        live = LiveEpisode(
            pool or self.pool,
            problem.question,
            context=context,
            on_event=self.on_event,
            spent="data",  # of the limits only the completion's own: where a run's is spent, nothing is left to learn
            previous=previous,
        )
        async with live.play(self.budget):
            live.begin_round()
            await live.follow(said, max_steps=self.max_steps, subtasks=self.prompt.subtasks)
            if live.rounds[-1].error is not None:
                live.answer = None
        episode = live.episode
        grade = None
        if episode.answer is not None:
            grade = await grade_answer(
                self.grader, problem, episode.answer, timeout_s=self.grade_timeout_s
            )
        reward = episode_reward(episode, grade)
        if reward is not None and self.value is not None:
            reward = await _asked(self.value, problem, episode, grade)
        return Scored(reward, episode, grade)


async def _asked(
    value: RewardValue, problem: Problem, episode: Episode, grade: Grade | None
) -> float | None:
    """What a function of the user's says that an episode is worth."""
    try:
        found = value(problem, episode, grade)
        worth = await found if isinstance(found, Awaitable) else found
    except Exception as error:  # a user's own function may raise anything
        raise ConfigError(
            f"reward: problem {problem.id}: {type(error).__name__}: {error}"
        ) from error
    if worth is not None and not (
        isinstance(cast(object, worth), int | float) and abs(worth) <= LARGEST
    ):  # or NaN
        raise ConfigError(
            f"reward: problem {problem.id}: got {shorten(worth)}, expected a finite float or None"
        )
    return worth


def priced_rewards(
    group: Sequence[Scored], *, dollars: float, seconds: float
) -> list[float | None]:
    """The rewards of one question's completions, where a right answer loses more the more it cost.

    Of the two weights each takes at most itself: half of it at the right ones' mean cost, all of it
    from twice the mean on. With weights that add up to less than a half, a right answer is worth
    more than a wrong one, whatever it cost.

    Args:
        group: completions of one question.
        dollars: the weight of what the workers cost, failed attempts left out.
        seconds: the weight of how long the steps took that waited for each other
            (``waited_seconds``).
    """
    spent = [(answered_dollars(one.episode), waited_seconds(one.episode)) for one in group]
    right = [each for each, one in zip(spent, group, strict=True) if one.reward == 1]
    means = [statistics.fmean(each) for each in zip(*right, strict=True)] or [0.0, 0.0]

    def lost(one: tuple[float, float]) -> float:
        relative = (own / mean if mean > 0 else 0.0 for own, mean in zip(one, means, strict=True))
        return sum(
            weight * min(1.0, share / 2)
            for weight, share in zip((dollars, seconds), relative, strict=True)
        )

    return [
        one.reward - lost(own) if one.reward == 1 else one.reward
        for one, own in zip(group, spent, strict=True)
    ]


def answered_dollars(episode: Episode) -> float:
    """Dollars of the calls that answered in the last round: no fault of a provider makes an answer worth less."""
    transcript = episode.rounds[-1].transcript if episode.rounds else None
    answered = () if transcript is None else (one.completion for one in transcript.results)
    return float(sum((one.usage.dollars for one in answered if one is not None), Decimal(0)))


def waited_seconds(episode: Episode) -> float:
    """The workers' seconds along the longest line of steps that waited for each other, in the last round.

    They are the answers' own (a failed attempt does not count), and vary with the load of whoever
    answers.
    """
    transcript = episode.rounds[-1].transcript if episode.rounds else None
    if transcript is None:
        return 0.0
    ends: list[float] = []
    for index, result in enumerate(transcript.results):
        before = (ends[seen] for seen in transcript.workflow.visible(index))
        ends.append(
            (result.completion.usage.seconds if result.completion else 0.0)
            + max(before, default=0.0)
        )
    return max(ends, default=0.0)


async def grade_answer(
    grader: Grader, problem: Problem, answer: str, *, timeout_s: float | None = GRADE_SECONDS
) -> Grade:
    """The grader's verdict; whatever it raises but a *stop* is an undecided one that says why.

    Args:
        grader: the judge.
        problem: what was asked.
        answer: what was answered.
        timeout_s: after this many seconds the verdict is undecided; None is no limit.

    Raises:
        ConfigError, TaskError, AuthFailed, BudgetExceeded, JournalError: nothing that follows can
            be graded.
    """
    scope = asyncio.timeout(timeout_s)
    try:
        async with scope:
            return await grader.grade(problem, answer)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        said = "the grader was cancelled from inside"
    except Exception as error:  # the grader call: one of the three places that catch
        if isinstance(error, OpenConductorError) and stops(error):
            raise
        said = str(error) if isinstance(error, GradingError) else f"{type(error).__name__}: {error}"
        if isinstance(error, TimeoutError) and scope.expired():
            said = f"no verdict within {timeout_s} s"
    return Grade(None, note=said)
