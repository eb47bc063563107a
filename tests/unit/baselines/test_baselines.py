"""The baselines: every one an Orchestrator, in the events.

Bills and errors that the Conductor has.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from planted import PRICE, calls_of, hang, planted_pool

from openconductor import errors
from openconductor.baselines import BASELINES, make_baseline
from openconductor.baselines.observed import Observations
from openconductor.baselines.planned import Heuristic, PlannedOrchestrator, RandomWorkflows
from openconductor.events import (
    Answered,
    Asked,
    CallEnded,
    Event,
    RoundEnded,
    StepEnded,
    StepStarted,
)
from openconductor.gym.exact import expected_accuracy, oracle_workflow
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import gym_pool, profiles_of
from openconductor.ledger import draw_up
from openconductor.parser import validate_workflow
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.protocols import Orchestrator
from openconductor.store import Journal
from openconductor.types import Budget, Message, Question, Step, Usage, Workflow

CHAIN = Workflow((Step(0, "First."), Step(1, "Second.", (0,))))
SEEN = Observations(
    ("What is the sum?", "What is the product?", "Who wrote the play?", "Who wrote the song?"),
    ("w0", "w1", "w2"),
    ((1, 0, 0), (1, 0, 0), (0, 1, 0), (0, 1, 0)),
    (("4", "4", "5"), ("6", "6", "7"), ("me", "you", "you"), ("me", "you", "he")),
)
OPTIONS: dict[str, dict[str, object]] = {
    "best_fixed": {"observations": SEEN},
    "consensus": {"worker": "w1", "n": 3},
    "context": {"worker": "w1", "max_tokens": 100},
    "explorer": {},
    "masrouter-lite": {"observations": SEEN},
    "moa": {"aggregator": "w0"},
    "planned": {"plan": lambda _: CHAIN},
    "random": {},
    "reflection": {"worker": "w2", "n": 2},
    "routerdc-lite": {"observations": SEEN},
    "single": {"worker": 1},
    "smoothie-lite": {"observations": SEEN, "mode": "dependent"},
}
EVERY = pytest.mark.parametrize(
    "name", sorted({*BASELINES} - {"heuristic"})
)  # that one answers the gym alone
Function = Callable[[list[Message]], str]


def four(*_: object) -> str:
    return "4"


def five(*_: object) -> str:
    return "5"


def echo(messages: list[Message]) -> str:
    return " | ".join(f"{message.role}: {message.content}" for message in messages)


def pool_of(*functions: Function) -> WorkerPool:
    async def call(messages: list[Message], function: Function) -> str:
        return function(messages)

    def worker(function: Function, index: int) -> Worker:
        return Worker(lambda messages: call(messages, function), name=f"w{index}")

    return WorkerPool([worker(function, index) for index, function in enumerate(functions)])


def made(name: str, pool: WorkerPool) -> Orchestrator:
    return make_baseline(name, pool, **OPTIONS[name])


# ── by name ───────────────────────────────────────────────────────────────────────────────────────
def test_a_worker_is_named_or_numbered() -> None:
    pool = pool_of(echo, echo, echo)
    for name, option in (
        ("single", "worker"),
        ("consensus", "worker"),
        ("reflection", "worker"),
        ("moa", "aggregator"),
    ):
        by_name = make_baseline(name, pool, **{option: "w2"})
        by_ordinal = make_baseline(name, pool, **{option: 2})
        assert by_name.name == by_ordinal.name  # type: ignore[attr-defined]
        with pytest.raises(errors.ConfigError, match="nearest is 'w"):
            make_baseline(name, pool, **{option: "w7"})
        with pytest.raises(errors.ConfigError, match="not in the pool"):
            make_baseline(name, pool, **{option: 7})


def test_an_unknown_baseline_or_option_names_the_nearest() -> None:
    pool = pool_of(echo)
    with pytest.raises(errors.ConfigError, match="nearest: 'consensus'"):
        make_baseline("concensus", pool)
    with pytest.raises(errors.ConfigError, match="nearest: 'worker'"):
        make_baseline("consensus", pool, wroker="w0")
    with pytest.raises(errors.ConfigError, match="missing worker"):
        make_baseline("consensus", pool, n=3)
    with pytest.raises(errors.ConfigError, match=r"Consensus\.n: got '5'"):
        make_baseline("consensus", pool, worker="w0", n="5")


# ── what all have in common ───────────────────────────────────────────────────────────────────────
@EVERY
async def test_a_baseline_answers_and_tells_what_happens_as_the_conductor_does(name: str) -> None:
    events: list[Event] = []
    pool = planted_pool(w0=four, w1=five, w2=four)
    episode = await made(name, pool).ask("What is the sum?", on_event=events.append)
    assert episode.error is None
    assert episode.answer in {"4", "5"}
    assert all(one.completion is None and one.transcript is not None for one in episode.rounds)
    results = [
        result for one in episode.rounds if one.transcript for result in one.transcript.results
    ]
    kinds = Counter(type(event) for event in events)
    assert (
        kinds[StepStarted] == kinds[StepEnded] == kinds[CallEnded] == len(results) == calls_of(pool)
    )
    assert kinds[RoundEnded] == len(episode.rounds)
    assert kinds[Asked] == kinds[Answered] == 1
    assert isinstance(events[0], Asked)
    assert isinstance(events[-1], Answered)
    assert events[-1].outcome == episode
    assert {event.episode for event in events} == {episode.id}
    assert [event.round for event in events if isinstance(event, RoundEnded)] == list(
        range(len(episode.rounds))
    )
    # The bill: what the calls used, at their workers' price, and nothing else.
    per_call = PRICE.dollars(Usage(input_tokens=10, output_tokens=5))
    assert episode.usage.tokens == 15 * len(results)
    assert episode.usage.dollars == per_call * len(results)
    assert draw_up(episode).total == episode.usage


@EVERY
async def test_a_baseline_replays_what_a_journal_holds(name: str, tmp_path: Path) -> None:
    def pool() -> WorkerPool:
        return planted_pool(w0=four, w1=five, w2=four)

    questions = ["What is the sum?", "Who wrote the song?"]
    with Journal(tmp_path / "journal.sqlite") as journal:
        first = [await made(name, pool()).ask(question, on_event=journal) for question in questions]
    after = pool()
    with Journal(tmp_path / "journal.sqlite") as journal:
        system = made(name, after.replaying(journal))
        again = [await system.ask(question, on_event=journal) for question in questions]
        assert [one.answer for one in again] == [one.answer for one in first]
        assert [one.usage.dollars for one in again] == [one.usage.dollars for one in first]
    assert calls_of(after) == 0


@EVERY
@pytest.mark.parametrize("failure", [errors.Refused, errors.ServerFailed])
async def test_workers_that_all_refuse_or_break_end_the_episode(
    name: str, failure: type[errors.WorkerError]
) -> None:
    def fail(messages: list[Message]) -> str:
        raise failure("no")

    episode = await made(name, pool_of(fail, fail, fail)).ask("What is 6 * 7?")
    assert episode.answer is None
    assert type(episode.error) is failure


@EVERY
@pytest.mark.parametrize(
    "budget", [Budget(calls=0), Budget(dollars=Decimal("0.000001")), Budget(seconds=0.05)], ids=str
)
async def test_a_budget_of_calls_dollars_or_seconds_stops_it_with_its_bill(
    name: str, budget: Budget
) -> None:
    pool = planted_pool(w0=four, w1=five, w2=four)
    if budget.seconds is not None:
        pool = WorkerPool([Worker(hang, name=f"w{index}") for index in range(3)])
    with pytest.raises(errors.BudgetExceeded) as caught:
        await made(name, pool).ask("Hello?", budget=budget)
    assert caught.value.episode is not None
    assert caught.value.episode.answer is None
    assert budget.seconds is not None or calls_of(pool) == 0


# ── planned workflows ─────────────────────────────────────────────────────────────────────────────
async def test_a_plan_is_made_for_the_question_and_executed() -> None:
    asked: list[Question] = []

    def plan(question: Question) -> Workflow:
        asked.append(question)
        return CHAIN

    episode = await PlannedOrchestrator(pool_of(lambda _: "one", echo), plan).ask("Hello?")
    assert asked == ["Hello?"]
    assert episode.answer == "user: Hello?\n\nFirst. | assistant: one | user: Second."


async def test_an_invalid_plan_ends_the_episode_before_anybody_is_asked() -> None:
    def never(messages: list[Message]) -> str:
        raise AssertionError("asked")

    stranger = Workflow((Step(3, "Again."),))
    episode = await PlannedOrchestrator(pool_of(never), lambda _: stranger).ask("Hello?")
    assert isinstance(episode.error, errors.WorkflowError)
    assert episode.error.reason == errors.WorkflowReason.UNKNOWN_WORKER
    assert episode.answer is None
    assert episode.rounds[0].transcript is None


# ── random workflows ──────────────────────────────────────────────────────────────────────────────


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


# ── the gym's heuristic ───────────────────────────────────────────────────────────────────────────
def test_the_heuristic_is_worth_what_the_oracle_is_in_other_worlds_and_with_fewer_workers_too() -> (
    None
):
    asked = draw_questions("test", 100, seed=0)
    for world, ordinals in ((0, range(8)), (7, range(8)), (0, (0, 1, 2, 6))):
        pool = gym_pool(world=world).subset(ordinals)
        offered = {ordinal: profiles_of(world)[ordinal] for ordinal in ordinals}
        worth = [
            expected_accuracy(one, Heuristic(pool).workflow(one.text), offered) for one in asked
        ]
        assert sum(worth) == pytest.approx(sum(oracle_workflow(one, offered)[1] for one in asked))
    with pytest.raises(errors.ConfigError, match="expected a question of a simulated task"):
        Heuristic(gym_pool()).workflow("What is 6 * 7?")
    with pytest.raises(errors.ConfigError, match="expected a simulated pool"):
        make_baseline("heuristic", planted_pool(w0=four))


# ── options out of their range ────────────────────────────────────────────────────────────────────
OUT_OF_RANGE = """
consensus      → n = 0               → Consensus.n: got 0
consensus      → n = true            → Consensus.n: got True
consensus      → key = "upper"       → Consensus.key
consensus      → worker = 1.0        → worker 1.0 is not in the pool
context        → times = 0           → LongContext.times
context        → max_tokens = -1     → LongContext.max_tokens
reflection     → n = 2.5             → Reflection.n
moa            → layers = 0          → MixtureOfAgents.layers
random         → max_steps = "3"     → RandomWorkflows.max_steps
random         → seed = "x"          → RandomWorkflows.seed
explorer       → seed = -1           → Explorer.seed
routerdc-lite  → seed = "x"          → RouterDC.seed
routerdc-lite  → encoder = 3         → encoder: got 3
masrouter-lite → encoder = 3         → encoder: got 3
"""


@pytest.mark.parametrize("line", OUT_OF_RANGE.strip().splitlines())
def test_an_option_out_of_its_range_says_where_what_was_got_and_what_was_expected(line) -> None:
    name, option, message = [part.strip() for part in line.split("→")]
    options = OPTIONS[name] | tomllib.loads(option)
    with pytest.raises(errors.ConfigError, match=message) as caught:
        make_baseline(name, planted_pool(w0=four, w1=five, w2=four), **options)
    assert "expected" in str(caught.value)


def test_a_sentence_encoder_that_is_not_installed_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    pool = planted_pool(w0=four, w1=five, w2=four)
    with pytest.raises(
        errors.ConfigError, match=r"pip install sentence-transformers\); the offline encoders are"
    ):
        make_baseline("routerdc-lite", pool, observations=SEEN, encoder="all-mpnet-base-v2")
