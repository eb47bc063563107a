"""The baselines: every one an Orchestrator, in the events and errors that the Conductor has."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from openconductor.baselines import BASELINES
from openconductor.baselines.planned import PlannedOrchestrator
from openconductor.baselines.random_workflow import RandomWorkflows
from openconductor.baselines.single import SingleWorker
from openconductor.errors import (
    AuthFailed,
    BudgetExceeded,
    ConfigError,
    Refused,
    WorkflowError,
    WorkflowReason,
)
from openconductor.events import Answered, Event, RoundEnded, StepEnded, StepStarted
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import gym_pool
from openconductor.gym.world import asks_to_compare, find_operations
from openconductor.parser import validate_workflow
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.protocols import Orchestrator
from openconductor.registry import load_registered
from openconductor.types import Budget, Message, Question, Step, Workflow

CHAIN = Workflow((Step(0, "First."), Step(1, "Second.", (0,))))


def echo(messages: list[Message]) -> str:
    return " | ".join(f"{message.role}: {message.content}" for message in messages)


def pool_of(*functions: object) -> WorkerPool:
    return WorkerPool([Worker(function, name=f"worker {index}") for index, function in enumerate(functions)])  # type: ignore[arg-type]


def every_baseline(pool: WorkerPool) -> list[Orchestrator]:
    return [SingleWorker(pool, 1), PlannedOrchestrator(pool, lambda _: CHAIN), RandomWorkflows(pool)]


def test_every_registered_baseline_is_an_orchestrator() -> None:
    assert set(BASELINES) == {"planned", "random", "single"}
    for name in BASELINES:
        baseline = load_registered(BASELINES, name, what="baseline")
        assert callable(getattr(baseline, "ask", None))


@pytest.mark.parametrize("index", range(3))
async def test_a_baseline_answers_with_one_round_and_tells_what_happens(index: int) -> None:
    events: list[Event] = []
    episode = await every_baseline(pool_of(echo, echo))[index].ask("What is 6 * 7?", on_event=events.append)
    assert episode.error is None
    assert len(episode.rounds) == 1
    assert episode.rounds[0].completion is None
    transcript = episode.rounds[0].transcript
    assert transcript is not None
    assert episode.answer == transcript.answer
    assert episode.usage == transcript.usage
    steps = len(transcript.results)
    assert Counter(type(event) for event in events)[StepStarted] == steps
    assert Counter(type(event) for event in events)[StepEnded] == steps
    assert [type(event) for event in events[-2:]] == [RoundEnded, Answered]
    assert isinstance(events[-1], Answered) and events[-1].outcome == episode
    assert {event.episode for event in events} == {episode.id}


@pytest.mark.parametrize("index", range(3))
async def test_a_failed_worker_ends_the_episode(index: int) -> None:
    def refuse(messages: list[Message]) -> str:
        raise Refused("no")

    episode = await every_baseline(pool_of(refuse, refuse))[index].ask("What is 6 * 7?")
    assert episode.answer is None
    assert isinstance(episode.error, Refused)


@pytest.mark.parametrize("index", range(3))
async def test_an_error_that_stops_is_raised_with_its_episode(index: int) -> None:
    def locked(messages: list[Message]) -> str:
        raise AuthFailed("the key is wrong")

    events: list[Event] = []
    with pytest.raises(AuthFailed) as caught:
        await every_baseline(pool_of(locked, locked))[index].ask("What is 6 * 7?", on_event=events.append)
    assert caught.value.episode is not None
    assert caught.value.episode.answer is None
    assert isinstance(events[-1], Answered)


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("question", ["", "  \n", [], [Message("assistant", "Hello.")]])
async def test_a_question_that_cannot_be_asked_is_refused(index: int, question: Question) -> None:
    with pytest.raises(ConfigError, match="the question"):
        await every_baseline(pool_of(echo, echo))[index].ask(question)


@pytest.mark.parametrize("index", range(3))
async def test_a_dollar_budget_over_a_worker_without_a_price_is_refused(index: int) -> None:
    with pytest.raises(ConfigError, match="price"):
        await every_baseline(pool_of(echo, echo))[index].ask("Hello?", budget=Budget(dollars=Decimal(1)))


async def test_a_budget_of_calls_stops_a_plan_of_more_steps() -> None:
    orchestrator = PlannedOrchestrator(pool_of(echo, echo), lambda _: CHAIN)
    with pytest.raises(BudgetExceeded) as caught:
        await orchestrator.ask("Hello?", budget=Budget(calls=1))
    episode = caught.value.episode
    assert episode is not None and episode.rounds[0].transcript is not None
    assert episode.rounds[0].transcript.results[0].completion is not None
    assert episode.rounds[0].transcript.results[1].completion is None


@pytest.mark.parametrize("error", [ValueError("sink"), WorkflowError(WorkflowReason.NO_STEPS, "sink"), Refused("sink")])
async def test_what_the_event_sink_raises_comes_out_unchanged(error: Exception) -> None:
    def sink(event: Event) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await SingleWorker(pool_of(echo), 0).ask("Hello?", on_event=sink)
    assert caught.value is error


# ── one worker alone ─────────────────────────────────────────────────────────────────────────────────────────────────
async def test_a_single_worker_is_sent_nothing_but_the_question() -> None:
    assert (await SingleWorker(pool_of(echo), 0).ask("What is 6 * 7?")).answer == "user: What is 6 * 7?"


async def test_a_single_worker_is_sent_a_chat_as_it_is() -> None:
    chat = [Message("system", "Be brief."), Message("user", "6?"), Message("assistant", "Six."), Message("user", "7?")]
    episode = await SingleWorker(pool_of(echo), 0).ask(chat)
    assert episode.answer == "system: Be brief. | user: 6? | assistant: Six. | user: 7?"


def test_a_single_worker_must_be_in_the_pool() -> None:
    with pytest.raises(ConfigError, match="not in the pool"):
        SingleWorker(pool_of(echo), 3)


# ── planned workflows ────────────────────────────────────────────────────────────────────────────────────────────────
async def test_a_plan_is_made_for_the_question_and_executed() -> None:
    asked: list[Question] = []

    def plan(question: Question) -> Workflow:
        asked.append(question)
        return CHAIN

    episode = await PlannedOrchestrator(pool_of(lambda _: "one", echo), plan).ask("Hello?")
    assert asked == ["Hello?"]
    assert episode.answer == "user: Hello?\n\nFirst. | assistant: one | user: Second."


@pytest.mark.parametrize(
    ("workflow", "reason"),
    [
        (Workflow((Step(7, "First."),)), WorkflowReason.UNKNOWN_WORKER),
        (Workflow((Step(0, "First.", (0,)),)), WorkflowReason.FORWARD_ACCESS),
        (Workflow((Step(0, " "),)), WorkflowReason.BAD_SUBTASK),
        (Workflow(()), WorkflowReason.NO_STEPS),
        (Workflow((Step(0, "Again."),) * 3), WorkflowReason.TOO_MANY_STEPS),
    ],
)
async def test_an_invalid_plan_ends_the_episode_before_anybody_is_asked(
    workflow: Workflow, reason: WorkflowReason
) -> None:
    def never(messages: list[Message]) -> str:
        raise AssertionError("asked")

    episode = await PlannedOrchestrator(pool_of(never), lambda _: workflow, max_steps=2).ask("Hello?")
    assert isinstance(episode.error, WorkflowError) and episode.error.reason == reason
    assert episode.answer is None
    assert episode.rounds[0].transcript is None


# ── random workflows ─────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_random_workflow_is_keyed_by_seed_question_and_sample() -> None:
    pool = gym_pool()
    questions = [question.text for question in draw_questions("test", 30, seed=0)]

    def drawn(seed: int, sample: int) -> list[Workflow]:
        return [RandomWorkflows(pool, seed=seed).workflow(question, sample=sample) for question in questions]

    assert drawn(0, 0) == drawn(0, 0)
    assert drawn(0, 0) != drawn(1, 0)
    assert drawn(0, 0) != drawn(0, 1)


def test_random_workflows_name_the_operations_of_a_question_of_the_gym() -> None:
    baseline = RandomWorkflows(gym_pool().subset([1, 4, 6]), seed=3, max_steps=4)
    for question in draw_questions("test", 60, seed=0):
        workflow = baseline.workflow(question.text)
        validate_workflow(workflow, (1, 4, 6), max_steps=4)
        assert all(find_operations(step.subtask) or asks_to_compare(step.subtask) for step in workflow)


def test_random_workflows_over_any_other_question_are_valid_and_uniform() -> None:
    baseline = RandomWorkflows(gym_pool(), seed=0)
    drawn = [baseline.workflow("What is 6 * 7?", sample=sample) for sample in range(3000)]
    for workflow in drawn:
        validate_workflow(workflow, range(8), max_steps=5)
    assert {step.subtask for workflow in drawn for step in workflow} == {SOLVE_SUBTASK}
    lengths = Counter(map(len, drawn))
    assert all(abs(lengths[size] / len(drawn) - 0.2) < 0.03 for size in range(1, 6))
    workers = Counter(step.worker for workflow in drawn for step in workflow)
    assert all(abs(workers[worker] / workers.total() - 1 / 8) < 0.02 for worker in range(8))
    seconds = Counter(workflow.visible(1) for workflow in drawn if len(workflow) > 1)
    assert abs(seconds[0,] / seconds.total() - 0.5) < 0.04


def test_a_chat_gets_a_random_workflow_too() -> None:
    chat = [Message("user", "6?"), Message("assistant", "Six."), Message("user", "7?")]
    baseline = RandomWorkflows(gym_pool())
    assert baseline.workflow(chat) == baseline.workflow(list(chat))
    validate_workflow(baseline.workflow(chat), range(8), max_steps=5)


def test_random_workflows_need_room_for_a_step() -> None:
    with pytest.raises(ConfigError, match="max_steps: got 0"):
        RandomWorkflows(gym_pool(), max_steps=0)
