"""The ledger: its sums agree at every level, every attempt is in it, unknown is not zero."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, strategies as st

from openconductor.conductor import Conductor
from openconductor.errors import WorkerTimeout
from openconductor.ledger import draw_up
from openconductor.testing import Scripted, pool_of
from openconductor.types import (
    Call,
    Completion,
    Episode,
    Price,
    Round,
    Sampling,
    Step,
    StepResult,
    Transcript,
    Usage,
    Workflow,
)

OUTCOMES = ("answered", "cut", "rate_limited", "timeout", "cancelled", "empty")

# Seconds in quarters, so that their sums are exact in whatever order; dollars in the billionths
# that prices come in.
usages = st.builds(
    Usage,
    input_tokens=st.integers(0, 10**7),
    cached_tokens=st.integers(0, 10**6),
    output_tokens=st.integers(0, 10**6),
    reasoning_tokens=st.integers(0, 10**6),
    dollars=st.integers(0, 10**13).map(lambda n: Decimal(n).scaleb(-9)),
    unpriced_calls=st.integers(0, 1),
    seconds=st.integers(0, 400).map(lambda n: n / 4),
)
calls = st.builds(
    Call,
    worker=st.sampled_from(("ada", "bob", "eve")),
    outcome=st.sampled_from(OUTCOMES),
    messages=st.just(()),
    sampling=st.just(Sampling()),
    attempt=st.integers(0, 3),
    usage=usages,
    replayed=st.booleans(),
)


def total(usages_) -> Usage:
    return sum(usages_, Usage())


def completed(made: list[Call]) -> Completion | None:
    for call in made:
        if call.outcome in ("answered", "cut"):
            return Completion("yes")
    return None


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    planning = tuple(draw(st.lists(calls, max_size=3)))
    plan = completed(planning)
    if plan is None or draw(st.booleans()):
        return Round(plan, calls=planning)
    steps = tuple(Step(index, "Say yes.") for index in range(draw(st.integers(1, 5))))
    results = []
    for step in steps:
        made = tuple(draw(st.lists(calls, max_size=4)))
        usage = total(call.usage for call in made)
        results.append(StepResult(step, completed(made), worker=0, usage=usage, calls=made))
    workflow = Workflow(steps)
    return Round(plan, workflow, Transcript(workflow, tuple(results)), calls=planning)


@given(st.lists(rounds(), max_size=3))
def test_the_sums_agree_at_every_level_to_the_token_and_the_last_digit(played: list[Round]) -> None:
    episode = Episode("Yes?", tuple(played), None, None, total(one.usage for one in played), 1.0)
    ledger = draw_up(episode)
    made: list[Call] = []
    for one in played:
        made += one.calls
        for result in one.transcript.results if one.transcript else ():
            made += result.calls
    assert ledger.total == episode.usage
    assert ledger.total == total(call.usage for call in made)
    assert ledger.rounds == tuple(one.usage for one in played)
    assert total(ledger.rounds) == ledger.total
    assert total(entry.usage for entry in ledger.entries) == ledger.total
    assert ledger.conductor + ledger.workers == ledger.total
    assert total(ledger.by_worker.values()) == ledger.total
    for entry in ledger.entries:
        assert entry.usage == total(attempt.call.usage for attempt in entry.attempts)
        assert sum(not attempt.wasted for attempt in entry.attempts) <= 1
    attempts = [attempt for entry in ledger.entries for attempt in entry.attempts]
    assert len(attempts) == len(made)
    assert ledger.wasted == total(attempt.call.usage for attempt in attempts if attempt.wasted)
    assert ledger.replayed == total(call.usage for call in made if call.replayed)
    assert ledger.total.unpriced_calls == sum(call.usage.unpriced_calls for call in made)


YES = Completion("yes", usage=Usage(10, output_tokens=4))
PRICE = Price(Decimal(1), Decimal(2))


def asked(*script: Completion | WorkerTimeout, price: Price | None = None) -> Episode:
    plan = Workflow((Step(0, "Say yes."),))
    pool = pool_of(Scripted(list(script)), price=price)
    return Conductor(Scripted(plan), pool=pool).ask_sync("Yes?")


def test_a_price_that_is_not_known_is_counted_and_is_not_zero() -> None:
    ledger = draw_up(asked(YES))
    assert (ledger.workers.dollars, ledger.workers.unpriced_calls) == (0, 1)
    failed = asked(WorkerTimeout("slow"), YES, price=PRICE)
    assert draw_up(failed).wasted.unpriced_calls == 1  # a timeout may have cost anything


def test_results_without_calls_on_record_are_one_attempt_each() -> None:
    workflow = Workflow((Step(3, "Say yes."), Step(1, "Again.")))
    used = Usage(5, output_tokens=1)
    first, second = workflow.steps
    answered = StepResult(first, Completion("yes"), worker=3, usage=used)
    transcript = Transcript(workflow, (answered, StepResult(second)))
    one = Round(Completion("plan", usage=used), workflow, transcript)
    ledger = draw_up(Episode("Yes?", (one,), "yes", None, one.usage, 1.0))
    assert ledger.by_worker == {"conductor": used, "worker 3": used}
    assert [entry.usage for entry in ledger.entries] == [used, used, Usage()]
    assert ledger.total == one.usage
