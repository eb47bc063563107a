"""The baselines: every one an Orchestrator, in the events.

Bills and errors that the Conductor has.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

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
    "cascade": {},
    "consensus": {"worker": "w1", "n": 3},
    "context": {"worker": "w1", "max_tokens": 100},
    "early_vote": {"worker": "w1", "n": 3},
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
@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("single", "worker"),
        ("consensus", "worker"),
        ("reflection", "worker"),
        ("moa", "aggregator"),
    ],
)
def test_a_worker_is_named_or_numbered(name: str, option: str) -> None:
    pool = pool_of(echo, echo, echo)
    by_name: Any = make_baseline(name, pool, **{option: "w2"})
    by_ordinal: Any = make_baseline(name, pool, **{option: 2})
    assert by_name.name == by_ordinal.name
    with pytest.raises(errors.ConfigError, match="nearest is 'w"):
        make_baseline(name, pool, **{option: "w7"})
    with pytest.raises(errors.ConfigError, match="not in the pool"):
        make_baseline(name, pool, **{option: 7})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("concensus", {}, "nearest: 'consensus'"),
        ("consensus", {"wroker": "w0"}, "nearest: 'worker'"),
        ("consensus", {"n": 3}, "missing worker"),
        ("consensus", {"worker": "w0", "n": "5"}, r"Consensus\.n: got '5'"),
    ],
)
def test_an_unknown_baseline_or_option_names_the_nearest(name, options, message) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        make_baseline(name, pool_of(echo), **options)


def three() -> WorkerPool:
    """Workers of which two say 4 and one says 5."""
    return planted_pool(w0=four, w1=five, w2=four)


# ── what all have in common ───────────────────────────────────────────────────────────────────────
# ── what all have in common ───────────────────────────────────────────────────────────────────────
@EVERY
async def test_a_baseline_answers_and_tells_what_happens_as_the_conductor_does(name: str) -> None:
    events: list[Event] = []
    pool = three()
    episode = await made(name, pool).ask("What is the sum?", on_event=events.append)
    assert episode.error is None
    assert episode.answer in {"4", "5"}
    assert all(one.completion is None for one in episode.rounds)
    kinds = Counter(type(event) for event in events)
    calls = calls_of(pool)
    assert kinds[StepStarted] == kinds[StepEnded] == kinds[CallEnded] == calls
    assert kinds[Asked] == kinds[Answered] == 1
    assert isinstance(events[0], Asked)
    assert isinstance(events[-1], Answered)
    assert events[-1].outcome == episode
    assert {event.episode for event in events} == {episode.id}
    ended = [event.round for event in events if isinstance(event, RoundEnded)]
    assert ended == list(range(len(episode.rounds)))
    # The bill: what the calls used, at their workers' price, and nothing else.
    per_call = PRICE.dollars(Usage(input_tokens=10, output_tokens=5))
    assert episode.usage.tokens == 15 * calls
    assert episode.usage.dollars == per_call * calls
    assert draw_up(episode).total == episode.usage


@EVERY
async def test_a_baseline_replays_what_a_journal_holds(name: str, tmp_path: Path) -> None:
    after = three()
    with Journal(tmp_path / "journal.sqlite") as journal:
        first = await made(name, three()).ask("Who wrote the song?", on_event=journal)
        system = made(name, after.replaying(journal))
        again = await system.ask("Who wrote the song?", on_event=journal)
    assert again.answer == first.answer
    assert again.usage.dollars == first.usage.dollars
    assert calls_of(after) == 0


BUDGETS = [Budget(calls=0), Budget(dollars=Decimal("0.000001")), Budget(seconds=0.05)]


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
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
async def test_a_budget_of_calls_dollars_or_seconds_stops_it_with_its_bill(
    name: str, budget: Budget
) -> None:
    pool = three()
    if budget.seconds is not None:
        pool = WorkerPool([Worker(hang, name=f"w{index}") for index in range(3)])
    with pytest.raises(errors.BudgetExceeded) as caught:
        await made(name, pool).ask("Hello?", budget=budget)
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
    stranger = Workflow([Step(3, "Again.")])
    episode = await PlannedOrchestrator(three(), lambda _: stranger).ask("Hello?")
    assert episode.error.reason == errors.WorkflowReason.UNKNOWN_WORKER
    assert episode.answer is None
    assert episode.rounds[0].transcript is None


# ── random workflows ──────────────────────────────────────────────────────────────────────────────


# ── random workflows ──────────────────────────────────────────────────────────────────────────────
def test_random_workflows_over_any_other_question_are_valid_and_uniform() -> None:
    baseline = RandomWorkflows(gym_pool(), seed=0)
    drawn = [baseline.workflow("What is 6 * 7?", sample=sample) for sample in range(3000)]
    workers = Counter[int]()
    for workflow in drawn:
        validate_workflow(workflow, range(8), max_steps=5)
        assert {step.subtask for step in workflow} == {SOLVE_SUBTASK}
        workers.update(step.worker for step in workflow)
    lengths = Counter(map(len, drawn))
    assert all(abs(lengths[size] / 3000 - 0.2) < 0.03 for size in range(1, 6))
    assert all(abs(workers[worker] / workers.total() - 1 / 8) < 0.02 for worker in range(8))
    seconds = [workflow.visible(1) for workflow in drawn if len(workflow) > 1]
    assert abs(seconds.count((0,)) / len(seconds) - 0.5) < 0.04


# ── the gym's heuristic ───────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("world", "ordinals"), [(0, range(8)), (7, range(8)), (0, (0, 1, 2, 6))], ids=str
)
def test_the_heuristic_is_worth_what_the_oracle_is(world: int, ordinals: Sequence[int]) -> None:
    """In other worlds and with fewer workers, too."""
    heuristic = Heuristic(gym_pool(world=world).subset(ordinals))
    offered = {ordinal: profiles_of(world)[ordinal] for ordinal in ordinals}
    worth = best = 0.0
    for question in draw_questions("test", 100, seed=0):
        worth += expected_accuracy(question, heuristic.workflow(question.text), offered)
        best += oracle_workflow(question, offered)[1]
    assert worth == pytest.approx(best)


def test_the_heuristic_is_for_the_gym_alone() -> None:
    with pytest.raises(errors.ConfigError, match="expected a question of a simulated task"):
        Heuristic(gym_pool()).workflow("What is 6 * 7?")
    with pytest.raises(errors.ConfigError, match="expected a simulated pool"):
        make_baseline("heuristic", three())


# ── the gym's heuristic ───────────────────────────────────────────────────────────────────────────


# ── options out of their range ────────────────────────────────────────────────────────────────────
OUT_OF_RANGE = """
consensus      → n = 0               → Consensus.n: got 0
consensus      → n = true            → Consensus.n: got True
consensus      → key = "upper"       → Consensus.key
cascade        → n = 2               → Cascade.n: got 2
early_vote     → n = 2               → EarlyVote.n: got 2
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
    with pytest.raises(errors.ConfigError, match=f"{message}.*expected"):
        make_baseline(name, three(), **options)


def test_a_sentence_encoder_that_is_not_installed_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    message = r"pip install sentence-transformers\); the offline encoders are"
    with pytest.raises(errors.ConfigError, match=message):
        make_baseline("routerdc-lite", three(), observations=SEEN, encoder="all-mpnet-base-v2")
