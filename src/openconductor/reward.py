"""The reward of a completion, which is played, graded and rewarded 0, 0.5 or 1, or masked.

- 0: not a workflow (WorkflowError).
- 0.5: an answer that is graded wrong; or a failure that the plan itself caused: a refusal, a
  context too long, a token limit spent before any text came, the question's own budget of calls,
  tokens or dollars spent.
- 1: an answer that is graded right.
- None, masked: any other failure (transport, provider, time, sandbox, grader), and an undecided
  grade.

Cost and latency do not count, as in the paper. A recipe may add ``priced_rewards``, or replace the
reward by a ``RewardValue``. Errors whose fate is *stop* are raised, because no later reward could
be earned either.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from typing import cast

from openconductor.config import shorten
from openconductor.episode import LiveEpisode
from openconductor.errors import (
    ConfigError,
    WorkflowError,
    caused_by_plan,
)
from openconductor.graders import grade_answer
from openconductor.pool import WorkerPool
from openconductor.prompt import PromptOptions
from openconductor.protocols import CallContext, Grader, OnEvent
from openconductor.types import Budget, Completion, Episode, Grade, Problem, Round

RewardValue = Callable[[Problem, Episode, Grade | None], float | Awaitable[float | None] | None]
"""The worth of an episode whose reward is not masked. The Grade is None if there was no answer."""
LARGEST = 1e18
"""The largest size of a reward; its square is still a float32."""


def episode_correct(episode: Episode, grade: Grade | None) -> bool | None:
    """Return True if an episode counts as right; None: undecided.

    A text that is not a workflow and a failure that the plan caused (a refusal, its budget spent)
    count as wrong. A failure of transport, provider or grader is undecided, because infrastructure
    never changes a score.

    >>> from openconductor.types import Usage
    >>> episode = Episode("What is 6 * 7?", (), "42", None, Usage(), 0.0)
    >>> [episode_correct(episode, grade) for grade in (Grade(True), Grade(False), None)]
    [True, False, None]
    """
    error = episode.error
    if error is not None:
        is_wrong = isinstance(error, WorkflowError) or caused_by_plan(error)
        return False if is_wrong else None
    if episode.answer is None or grade is None:
        return None
    return grade.correct


def episode_reward(episode: Episode, grade: Grade | None) -> float | None:
    """Return the reward of one episode (paper, section 3).

    Args:
        episode: how it went.
        grade: the verdict on its answer. None: it was not graded.

    Returns:
        0.0, 0.5 or 1.0; None: masked.

    >>> from openconductor.types import Usage
    >>> episode = Episode("What is 6 * 7?", (), "42", None, Usage(), 0.0)
    >>> [episode_reward(episode, grade) for grade in (Grade(True), Grade(False), None)]
    [1.0, 0.5, None]
    """
    if isinstance(episode.error, WorkflowError):
        return 0.0
    correct = episode_correct(episode, grade)
    if correct is None:
        return None
    return 1.0 if correct else 0.5


def group_advantages(rewards_G: Sequence[float | None], *, eps: float = 1e-4) -> list[float]:  # noqa: N803
    """Centre and scale the rewards of one question's rollouts (GRPO, paper eq. 2).

    Args:
        rewards_G: one reward in [0, 1] a rollout; None: masked.
        eps: added to the sample standard deviation, in units of reward.

    Returns:
        One advantage a rollout: mean 0 over the unmasked, exactly 0 for the masked, for groups
        without spread and for groups with fewer than two unmasked rollouts.

    Raises:
        ValueError: a reward outside [0, 1] or not finite.

    >>> [round(a, 2) for a in group_advantages([0.0, 0.5, 1.0])]
    [-1.0, 0.0, 1.0]
    """
    known: list[float] = []
    for index, reward in enumerate(rewards_G):
        if reward is None:
            continue
        if not 0.0 <= reward <= 1.0:  # NaN, too
            raise ValueError(
                f"rewards_G[{index}]: got {reward!r}, expected a number in [0, 1] or None"
            )
        known.append(reward)
    if len(known) < 2 or min(known) == max(known):
        return [0.0] * len(rewards_G)
    mean = statistics.fmean(known)
    spread = statistics.stdev(known, mean) + eps
    return [0.0 if reward is None else (reward - mean) / spread for reward in rewards_G]


@dataclass(frozen=True, slots=True)
class Scored:
    """One completion, played and judged.

    Attributes:
        reward: 0.0, 0.5 or 1.0, or what a RewardValue says; None: masked.
        episode: its ``usage`` and ``seconds`` leave out the round that was played before.
        grade: the verdict on the answer; undecided, with a note, if the grader failed; None: there
            was no answer to grade.
    """

    reward: float | None
    episode: Episode
    grade: Grade | None

    @property
    def correct(self) -> bool | None:
        """True if it counts as right; None: undecided (``episode_correct``)."""
        return episode_correct(self.episode, self.grade)


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """Plays and grades completions of a Conductor, as many at once as you like.

    Attributes:
        pool: the workers on offer; a call may offer a subset.
        grader: the judge of the final answers.
        prompt: how the Conductor was asked; only ``subtasks`` matters here.
        max_steps: the most steps of a workflow.
        trailing: False: a text that goes on after the three lists is not a workflow.
        budget: what one completion's steps may cost.
        grade_timeout_s: the longest that one answer is graded; after that the reward is masked.
        on_event: gets every event of every episode; a journal makes an episode durable before its
            reward is known.
        value: replaces the rewards 0, 0.5 and 1; None: these.
    """

    pool: WorkerPool
    grader: Grader
    _: KW_ONLY
    prompt: PromptOptions = field(default_factory=PromptOptions)
    max_steps: int = 5
    trailing: bool = True
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
        if isinstance(completion, str):
            completion = Completion(completion)
        live = LiveEpisode(
            pool or self.pool,
            problem.question,
            context=context,
            on_event=self.on_event,
            spent="data",  # the end of a run's budget is raised
            previous=previous,
        )
        async with live.play(self.budget):
            live.begin_round()
            await live.follow(
                completion,
                max_steps=self.max_steps,
                subtasks=self.prompt.subtasks,
                trailing=self.trailing,
            )
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
            reward = await _call_value(self.value, problem, episode, grade)
        return Scored(reward, episode, grade)


async def _call_value(
    value: RewardValue, problem: Problem, episode: Episode, grade: Grade | None
) -> float | None:
    """Return the worth of an episode by a function of the user's.

    Raises:
        ConfigError: the function failed, or returned something else than a finite number or None.
    """
    try:
        worth = value(problem, episode, grade)
        if isinstance(worth, Awaitable):
            worth = await worth
    except Exception as error:  # a user's own function may raise anything
        message = f"reward: problem {problem.id}: {type(error).__name__}: {error}"
        raise ConfigError(message) from error
    if worth is None:
        return None
    if not isinstance(cast(object, worth), int | float) or not abs(worth) <= LARGEST:  # NaN, too
        raise ConfigError(
            f"reward: problem {problem.id}: got {shorten(worth)}, expected a finite float or None"
        )
    return worth


_MOST_LOST = 0.49  # of a right answer's reward of 1; a wrong one has 0.5


def priced_rewards(
    group: Sequence[Scored],
    *,
    dollars: float = 0.0,
    seconds: float = 0.0,
    answers: float = 0.0,
    free_answers: int = 0,
    merging: Container[int] = (),
) -> list[float | None]:
    """Return the rewards of one question's completions; right answers lose by what they cost.

    Dollars and seconds take half their weight at the mean of the right answers, and all of it from
    twice the mean on. Workers' answers take the same each. A right answer loses less than a half in
    all, so it is worth more than a wrong one.

    Args:
        group: completions of one question.
        dollars: the weight of what the workers cost, without failed attempts
            (``answered_dollars``).
        seconds: the weight of how long the steps took that waited for each other
            (``waited_seconds``).
        answers: what each answer of a worker takes (``count_answers``).
        free_answers: how many of them take nothing.
        merging: the workers whose answers are not counted.
    """
    costs: list[tuple[float, Callable[[Episode], float]]] = [
        (dollars, answered_dollars),
        (seconds, waited_seconds),
    ]
    rewards = [scored.reward for scored in group]
    right = [place for place, reward in enumerate(rewards) if reward == 1]
    if not right:
        return rewards
    lost = dict.fromkeys(right, 0.0)
    for weight, cost_of in costs:
        cost = {place: cost_of(group[place].episode) for place in right}
        mean = statistics.fmean(cost.values())
        for place in right:
            lost[place] += weight * _cost_share(cost[place], mean)
    for place in right:
        paid = count_answers(group[place].episode, merging) - free_answers
        lost[place] += answers * max(0, paid)
        rewards[place] = 1 - min(lost[place], _MOST_LOST)
    return rewards


def _cost_share(cost: float, mean: float) -> float:
    """Return the share of a weight that a cost takes, 0 to 1: a half at the mean."""
    return min(1.0, cost / mean / 2) if mean > 0 else 0.0


def answered_dollars(episode: Episode) -> float:
    """Return the dollars of the last round's answers; failed attempts do not lower a reward."""
    dollars = Decimal(0)
    transcript = episode.rounds[-1].transcript if episode.rounds else None
    if transcript is not None:
        for result in transcript.results:
            if result.completion is not None:
                dollars += result.completion.usage.dollars
    return float(dollars)


def count_answers(episode: Episode, merging: Container[int] = ()) -> int:
    """Return how many answers of workers an episode took, over all rounds.

    Those of the workers ``merging`` are not counted: they only make one answer of others.
    """
    count = 0
    for played in episode.rounds:
        results = () if played.transcript is None else played.transcript.results
        for result in results:
            count += result.completion is not None and result.asked not in merging
    return count


def waited_seconds(episode: Episode) -> float:
    """Return the seconds along the longest line of steps that waited for each other.

    They are those of the last round's answers, without failed attempts, and vary with the load of
    the workers.
    """
    transcript = episode.rounds[-1].transcript if episode.rounds else None
    if transcript is None:
        return 0.0
    ends: list[float] = []
    for index, result in enumerate(transcript.results):
        end = max((ends[seen] for seen in transcript.workflow.visible(index)), default=0.0)
        if result.completion is not None:
            end += result.completion.usage.seconds
        ends.append(end)
    return max(ends, default=0.0)
