"""What a completion is worth, and which failures may not change that."""

from __future__ import annotations

import asyncio
import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from openconductor import errors
from openconductor.evaluation import Outcome
from openconductor.events import Answered, Event
from openconductor.prompt import SOLVE_SUBTASK, PromptOptions, render_workflow
from openconductor.reward import (
    RewardFunction,
    Scored,
    count_answers,
    episode_correct,
    episode_reward,
    group_advantages,
    priced_rewards,
    waited_seconds,
)
from openconductor.testing import pool_of
from openconductor.types import (
    Budget,
    Completion,
    Episode,
    Grade,
    Message,
    Problem,
    Round,
    Step,
    StepResult,
    Transcript,
    Usage,
    Workflow,
)

PROBLEM = Problem("p1", "What is 6 * 7?", "42", "sums")
PLAN = Workflow([Step(0, "Answer.")])
ACCEPT = "model_id = []\nsubtasks = []\naccess_list = []"


def ended(answer: str | None, error: errors.OpenConductorError | None = None) -> Episode:
    return Episode("What is 6 * 7?", (), answer, error, Usage(), 0.0)


class Exact:
    """Right if the answer is the reference; fails, hangs or hesitates where it is told to."""

    def __init__(self, verdict: object = None) -> None:
        self._verdict = verdict
        self.graded: list[str] = []

    async def grade(self, problem: Problem, answer: str) -> Grade:
        self.graded.append(answer)
        if isinstance(self._verdict, BaseException):
            raise self._verdict
        if isinstance(self._verdict, Grade):
            return self._verdict
        if self._verdict == "hang":
            await asyncio.Event().wait()
        return Grade(answer == problem.reference)


async def score(
    *answers: str | Exception,
    completion: Completion | str | None = None,
    grader: Exact | None = None,
    **options: object,
) -> Scored:
    function = RewardFunction(pool_of(*answers or ("42",)), grader or Exact(), **options)  # type: ignore[arg-type]
    return await function(PROBLEM, render_workflow(PLAN) if completion is None else completion)


# ── the rule ──────────────────────────────────────────────────────────────────────────────────────
def budget_spent(limit: str) -> errors.BudgetExceeded:
    return errors.BudgetExceeded("spent", limit=limit)


@pytest.mark.parametrize(
    ("error", "reward"),
    [
        *((errors.WorkflowError(reason, "no"), 0.0) for reason in errors.WorkflowReason),
        (errors.ContextTooLong("too long"), 0.5),
        (errors.Refused("no"), 0.5),
        (errors.EmptyResponse("all of it was reasoning", retryable=False), 0.5),
        (errors.EmptyResponse("blank"), None),
        (errors.RateLimited("slow down"), None),
        (errors.AuthFailed("no key"), None),
        (errors.SandboxError("no bwrap"), None),
        (budget_spent("calls"), 0.5),
        (budget_spent("tokens"), 0.5),
        (budget_spent("dollars"), 0.5),
        (budget_spent("seconds"), None),
    ],
)
def test_an_episode_that_failed_is_worth_what_its_cause_says(
    error: errors.OpenConductorError, reward: float | None
) -> None:
    assert episode_reward(ended(None, error), None) == reward
    assert episode_reward(ended(None, error), Grade(True)) == reward


@pytest.mark.parametrize(
    ("error", "grade", "correct"),
    [
        (None, Grade(True), True),
        (None, Grade(False), False),
        (None, Grade(None), None),
        (None, None, None),
        (errors.WorkflowError(errors.WorkflowReason.NO_STEPS, "no"), None, False),
        (errors.Refused("no"), None, False),
        (errors.RateLimited("slow down"), None, None),
        (budget_spent("seconds"), None, None),
    ],
)
def test_an_episode_is_right_or_wrong_or_undecided(error, grade, correct) -> None:
    episode = ended(None if error else "42", error)
    assert episode_correct(episode, grade) is correct
    assert Outcome(PROBLEM, episode, grade).correct is correct


# ── scoring one completion ────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("answer", "reward"),
    [("42", 1.0), ("41", 0.5), (errors.Refused("no"), 0.5), (errors.RateLimited("slow"), None)],
)
async def test_an_answer_is_worth_its_grade(answer: str | Exception, reward: float | None) -> None:
    scored = await score(answer, "42")  # the second worker is never asked instead
    assert scored.reward == reward and scored.episode.rounds[0].workflow == PLAN
    failed = isinstance(answer, Exception)
    assert scored.episode.answer == (None if failed else answer)
    assert (scored.grade is None) == failed


@pytest.mark.parametrize(
    "completion",
    [Completion(render_workflow(PLAN), finish_reason="length"), ACCEPT, "I think it is 42."],
)
async def test_what_is_no_workflow_is_worth_nothing_and_nobody_is_asked(
    completion: Completion | str,
) -> None:
    scored = await score(errors.WorkerError("never called"), completion=completion)
    assert scored.reward == 0.0 and scored.grade is None
    assert isinstance(scored.episode.error, errors.WorkflowError)
    assert scored.episode.rounds[0].transcript is None


async def test_what_is_raised_closes_its_episode_first_and_carries_it() -> None:
    heard: list[Event] = []
    two = render_workflow(Workflow([Step(0, "Think."), Step(1, "Answer.", "all")]))
    pool = pool_of("6 times 7", errors.AuthFailed("no key"))
    with pytest.raises(errors.AuthFailed) as raised:
        await RewardFunction(pool, Exact(), on_event=heard.append)(PROBLEM, two)
    last = heard[-1]
    assert isinstance(last, Answered)
    assert last.outcome is raised.value.episode
    transcript = last.outcome.rounds[0].transcript
    assert transcript.results[0].completion is not None, (
        "what was paid for before is in the episode"
    )


async def test_a_spent_budget_of_the_run_is_raised() -> None:
    with pytest.raises(errors.BudgetExceeded):
        await score(budget_spent("dollars"), budget=Budget(calls=10))


@pytest.mark.parametrize(
    "failure",
    [
        errors.GradingError("undecided"),
        errors.SandboxError("no bwrap"),
        KeyError("bug"),
        TimeoutError(),
        asyncio.CancelledError(),
    ],
)
async def test_a_grader_that_fails_masks_the_reward_and_says_why(failure: BaseException) -> None:
    scored = await score(grader=Exact(failure))
    assert scored.reward is None and scored.episode.answer == "42"
    assert scored.grade is not None and scored.grade.correct is None and scored.grade.note


@pytest.mark.parametrize(
    ("value", "answer", "expected"),
    [
        (0.25, "41", (0.25, False)),
        (None, "42", (None, True)),
        (math.nan, "42", "got nan, expected a finite float or None"),
        (1e19, "42", r"got 1e\+19"),
        ("much", "42", "problem p1: got 'much'"),
        (KeyError("bug"), "42", "problem p1: KeyError: 'bug'"),
        (KeyError("never asked"), errors.RateLimited("slow"), (None, None)),
    ],
)
async def test_a_value_of_ones_own_is_the_reward_and_right_stays_what_the_grader_says(
    value, answer, expected
) -> None:
    def own(problem: Problem, episode: Episode, grade: Grade | None) -> object:
        if isinstance(value, Exception):
            raise value
        return asyncio.sleep(0, value) if answer == "41" else value

    if isinstance(expected, str):
        with pytest.raises(errors.ConfigError, match=expected):
            await score(answer, value=own)
    else:
        scored = await score(answer, value=own)
        assert (scored.reward, scored.correct) == expected


def test_a_grader_that_hangs_masks_the_reward(in_virtual_time: Callable) -> None:
    scored = in_virtual_time(score(grader=Exact("hang"), grade_timeout_s=5.0))
    assert scored.reward is None and "within 5.0 s" in scored.grade.note


@pytest.mark.parametrize(
    "error", [errors.ConfigError("extra missing"), errors.TaskError("data gone")]
)
async def test_a_grader_that_can_never_work_stops_the_run(error: errors.OpenConductorError) -> None:
    with pytest.raises(type(error)):
        await score(grader=Exact(error))


async def test_cancelling_a_grading_cancels() -> None:
    task = asyncio.create_task(score(grader=Exact("hang")))
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_question_may_offer_a_subset() -> None:
    function = RewardFunction(pool_of("41", "42"), Exact())
    subset = function.pool.subset([1])
    for worker, reward in ((1, 1.0), (0, 0.0)):
        completion = render_workflow(Workflow([Step(worker, "Answer.")]))
        assert (await function(PROBLEM, completion, pool=subset)).reward == reward


async def test_without_subtasks_every_step_gets_the_neutral_one() -> None:
    scored = await score(prompt=PromptOptions(subtasks=False))
    assert scored.episode.rounds[0].workflow == Workflow([Step(0, SOLVE_SUBTASK)])


# ── a later round ─────────────────────────────────────────────────────────────────────────────────
async def first_round(answer: str | Exception) -> Round:
    return (await score(answer)).episode.rounds[0]


@pytest.mark.parametrize(("answer", "reward"), [("42", 1.0), ("41", 0.5)])
async def test_accepting_is_worth_what_the_accepted_answer_is_worth(
    answer: str, reward: float
) -> None:
    function = RewardFunction(pool_of("7"), Exact())
    scored = await function(PROBLEM, ACCEPT, previous=await first_round(answer))
    assert (scored.reward, scored.episode.answer, len(scored.episode.rounds)) == (reward, answer, 2)


@pytest.mark.parametrize(
    ("answer", "completion"), [("42", "no lists"), (errors.RateLimited("slow down"), ACCEPT)]
)
async def test_a_later_round_that_is_no_workflow_or_accepts_nothing_is_worth_nothing(
    answer, completion
) -> None:
    function = RewardFunction(pool_of("42"), Exact())
    assert (await function(PROBLEM, completion, previous=await first_round(answer))).reward == 0.0


async def test_a_later_round_is_judged_by_its_own_answer_and_sees_the_one_before() -> None:
    function = RewardFunction(pool_of("42"), Exact())
    completion = render_workflow(Workflow([Step(0, "Revise.", "all")]))
    scored = await function(PROBLEM, completion, previous=await first_round("41"))
    assert scored.reward == 1.0
    transcript = scored.episode.rounds[1].transcript
    assert transcript is not None and Message("assistant", "41") in transcript.results[0].messages


# ── advantages ────────────────────────────────────────────────────────────────────────────────────
def test_advantages_are_centred_and_scaled_by_the_sample_deviation() -> None:
    assert group_advantages([0.0, 0.5, 1.0], eps=0.0) == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "rewards", [[], [None], [1.0], [None, 0.5, None], [0.1] * 7, [None, 0.3, 0.3]]
)
def test_a_group_that_tells_nothing_apart_has_no_advantage(rewards: list[float | None]) -> None:
    assert group_advantages(rewards) == [0.0] * len(rewards)


@pytest.mark.parametrize("reward", [-0.1, 1.1, math.nan, math.inf])
def test_a_reward_outside_its_range_is_rejected(reward: float) -> None:
    with pytest.raises(ValueError, match=r"rewards_G\[1\]"):
        group_advantages([0.5, reward])


@given(st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0])), max_size=64))
def test_advantages_add_up_to_nothing_and_keep_the_order(rewards: list[float | None]) -> None:
    pairs = list(zip(rewards, group_advantages(rewards), strict=True))
    assert abs(math.fsum(advantage for _, advantage in pairs)) < 1e-9
    assert all(advantage == 0.0 for reward, advantage in pairs if reward is None)
    known = [pair for pair in pairs if pair[0] is not None]
    for (reward, advantage), (other, its_advantage) in itertools.pairwise(sorted(known)):
        assert (reward < other) == (advantage < its_advantage)
    if len({reward for reward, _ in known}) > 1:
        assert statistics.stdev(pair[1] for pair in known) == pytest.approx(1.0, abs=1e-2)


# ── what a right answer may lose for its price ────────────────────────────────────────────────────
def paid(
    reward: float | None, *steps: tuple[str, float], access: str | tuple[int, ...] = ()
) -> Scored:
    """A completion whose steps cost dollars and took seconds; later ones have this ``access``."""
    wasted = Usage(dollars=Decimal(50), seconds=50)  # by attempts that failed
    results: list[StepResult] = []
    for dollars, seconds in steps:
        step = Step(0, "Do it.", access if results else ())
        used = Usage(dollars=Decimal(dollars), seconds=seconds)
        results.append(StepResult(step, Completion("a", usage=used), usage=used + wasted))
    workflow = Workflow([result.step for result in results])
    played = Round(None, workflow, Transcript(workflow, tuple(results)))
    return Scored(reward, Episode("q", (played,), "a", None, Usage(), 0.0), Grade(reward == 1))


def test_of_right_answers_the_cheaper_is_worth_more_and_nothing_else_changes() -> None:
    others = [paid(0.5, ("20", 1)), paid(0.0, ("20", 1)), paid(None, ("20", 1))]
    group = [paid(1.0, ("1", 1)), paid(1.0, ("3", 1)), *others]
    rewards = priced_rewards(group, dollars=0.2, seconds=0.0)
    assert rewards == pytest.approx([0.95, 0.85, 0.5, 0.0, None])
    assert priced_rewards(others, dollars=0.2, seconds=0.2) == [0.5, 0.0, None]


def test_what_is_waited_for_is_the_longest_line_of_steps_not_their_sum() -> None:
    side_by_side, chain = paid(1.0, ("1", 2), ("1", 2)), paid(1.0, ("1", 2), ("1", 2), access=(0,))
    assert (waited_seconds(side_by_side.episode), waited_seconds(chain.episode)) == (2, 4)
    both = [side_by_side, chain]
    assert priced_rewards(both, dollars=0.0, seconds=0.3) == pytest.approx([0.9, 0.8])
    assert priced_rewards(both, dollars=0.3, seconds=0.0) == pytest.approx([0.85, 0.85])


def test_answers_of_all_rounds_are_counted_but_for_those_of_workers_that_merge() -> None:
    first, second = paid(1.0, ("1", 1), ("1", 1)), paid(1.0, ("1", 1))
    rounds = (*first.episode.rounds, *second.episode.rounds)
    both = Scored(1.0, replace(first.episode, rounds=rounds), first.grade)
    assert count_answers(both.episode) == 3
    assert count_answers(both.episode, merging=[0]) == 0
    assert priced_rewards([both, second], answers=0.1) == pytest.approx([0.7, 0.9])
    group = [both, second, paid(0.5, ("1", 1))]
    assert priced_rewards(group, answers=0.1, free_answers=2) == pytest.approx([0.9, 1.0, 0.5])


def test_a_right_answer_is_worth_more_than_a_wrong_one_whatever_it_cost() -> None:
    group = [paid(1.0, ("100", 100)), *[paid(1.0, ("0", 0))] * 7]
    assert priced_rewards(group, dollars=0.24, seconds=0.24)[0] == pytest.approx(0.52)
    assert priced_rewards(group[:1], dollars=0.3, answers=0.4)[0] == pytest.approx(0.51)
    free = [paid(1.0, ("0", 0))] * 2
    assert priced_rewards(free, dollars=0.4, seconds=0.0) == [1.0, 1.0]
