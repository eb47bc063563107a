"""API keys: who is let in, whose limits win, and that no cent is lost or counted twice, whatever
happens.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from openconductor.calls.budget import BudgetMeter
from openconductor.errors import BudgetExceeded, WorkerTimeout
from openconductor.events import Asked, CallEnded
from openconductor.serving.apis.wire import Control, RequestFailed
from openconductor.serving.key_ring import (
    LIMITS,
    SERVED,
    Bill,
    KeyRing,
    Tenant,
    cost_of,
    hash_key,
    new_key,
    past_charges,
)
from openconductor.serving.serve_config import KeyTable
from openconductor.store import Journal
from openconductor.types import Budget, Call, Message, Price, Sampling, Usage

NOON = datetime(2026, 11, 14, 12, tzinfo=UTC).timestamp()
DAY = 86_400.0
PRICE = Price(Decimal(1000), Decimal(10_000))  # $0.001 a token read, $0.01 a token written
MILLE = Decimal("0.001")


class Clock:
    """Both clocks of a ring, set by hand."""

    def __init__(self) -> None:
        self.wall, self.steady = NOON, 100.0

    def ring(self, *keys: KeyTable, journal: Journal | None = None) -> KeyRing:
        return KeyRing(keys, journal, clock=lambda: self.wall, monotonic=lambda: self.steady)

    def tenant(self, *, journal: Journal | None = None, **options: object) -> Tenant:
        table = KeyTable("ann", hash_key("oc-ann"), **options)
        return self.ring(table, journal=journal).find({"x-api-key": "oc-ann"})


def call(read: int, written: int, usage: Usage, **options: object) -> Call:
    """A call with the most tokens that it may read and write, and what it used."""
    asked = (Message("user", "word" * read),), Sampling(max_tokens=written)
    return Call("w", "answered", *asked, usage=usage, price=PRICE, **options)


def priced(read: int, written: int) -> Usage:
    return Usage(read, 0, written, dollars=PRICE.dollars(Usage(read, 0, written)))


def ended(one: Call, episode: str = "e") -> CallEnded:
    return CallEnded(episode, 0, 0.0, 0, one)


def spend(tenant: Tenant, dollars: Decimal | int) -> None:
    with tenant.admit() as bill:
        used = Usage(1, dollars=Decimal(dollars))
        if bill.budget is not None:
            bill.budget.charge(used)
        bill.add(ended(call(1, 1, used)))


def refusal(tenant: Tenant) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught, tenant.admit():
        pass
    return caught.value


# ── who it is ─────────────────────────────────────────────────────────────────────────────────────
def test_a_new_key_opens_and_only_its_hash_is_kept() -> None:
    key, hashed = new_key()
    assert key.startswith("oc-") and len(key) >= 46 and new_key()[0] != key
    ring = KeyRing([KeyTable("ann", hashed), KeyTable("bob", new_key()[1])])
    for headers in (
        {"authorization": f"Bearer {key}"},
        {"authorization": f"bearer  {key} "},
        {"x-api-key": key},
    ):
        assert ring.find(headers).name == "ann"
    assert ring.find({"authorization": "Bearer of something else", "x-api-key": key}).name == "ann"
    assert key not in repr(vars(ring))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer oc-canary"},
        {"authorization": "Basic oc-ann"},
        {"authorization": "oc-ann"},
        {"authorization": "Bearer "},
        {"x-api-key": ""},
        {"x-api-key": "oc-canary\udcff\xe9"},
        {"x-api-key": hash_key("oc-ann")},
    ],
)
def test_whoever_brings_no_valid_key_is_refused_and_never_echoed(headers: dict[str, str]) -> None:
    ring = Clock().ring(KeyTable("ann", hash_key("oc-ann")), KeyTable("nobody", hash_key("")))
    with pytest.raises(RequestFailed) as caught:
        ring.find(headers)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert not any(word in str(caught.value) for word in ("canary", "sha256", "ann"))


def test_without_keys_everyone_is_one_tenant_without_limits() -> None:
    ring = Clock().ring()
    tenant = ring.find({"authorization": "Bearer whatever a client must send"})
    assert tenant is ring.find({}) and tenant.name == ""
    assert tenant.may_ask("direct:w")
    assert tenant.limit(Control(max_steps=3)) == Control(max_steps=3)
    with ExitStack() as stack:
        bills = [stack.enter_context(tenant.admit()) for _ in range(100)]
    assert bills[0].budget is None
    bills[0].add(ended(call(1, 1, priced(1, 1))))
    assert bills[0].charged == 11 * MILLE


# ── what it may ask ───────────────────────────────────────────────────────────────────────────────
def test_a_key_asks_only_the_models_and_workers_that_it_may() -> None:
    tenant = Clock().tenant(models=("conductor", "direct:a", "direct:b"), workers=("a", "c"))
    # No such worker; no such models.
    asked = {"conductor": None, "direct:a": "a", "direct:b": "b", "direct:c": "c", "random": None}
    allowed = [model for model, worker in asked.items() if tenant.may_ask(model, worker)]
    assert allowed == ["conductor", "direct:a"]
    assert Clock().tenant(workers=("a",)).may_ask("random")


limits = st.fixed_dictionaries(
    {
        name: st.none() | st.integers(1, 9).map(Decimal if name == "max_dollars" else int)
        for name in LIMITS
    }
)
workers = st.none() | st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)


@given(limits, limits, workers, workers)
def test_no_request_loosens_a_limit_of_its_key_or_its_own(key, asked, allowed, wanted) -> None:
    tenant = Clock().tenant(**key, workers=None if allowed is None else tuple(allowed))
    control = Control(**asked, workers=wanted, tags=["fast"], seed=3)
    if allowed is not None and wanted is not None and not set(allowed) & set(wanted):
        with pytest.raises(RequestFailed, match=r"conductor\.workers: got") as caught:
            tenant.limit(control)
        assert caught.value.status == 400
        return
    held = tenant.limit(control)
    for name in LIMITS:
        given_ = [one for one in (key[name], asked[name]) if one is not None]
        assert getattr(held, name) == min(given_, default=None)
    for names in (allowed, wanted):
        assert names is None or set(held.workers or ()) <= set(names)
    assert (held.workers is None) == (allowed is None and wanted is None)
    assert (held.tags, held.seed) == (["fast"], 3)
    assert tenant.limit(held) == held


# ── how often ─────────────────────────────────────────────────────────────────────────────────────
def test_a_place_is_free_again_when_its_request_ends_however_it_does() -> None:
    tenant = Clock().tenant(concurrency=2)
    with tenant.admit(), tenant.admit():
        failure = refusal(tenant)
        assert (failure.status, failure.code, failure.retry_after) == (
            429,
            "rate_limit_exceeded",
            1.0,
        )
    for _ in range(3):
        with pytest.raises(KeyError), tenant.admit():
            raise KeyError
    with tenant.admit(), tenant.admit():
        pass


def test_requests_of_any_minute_are_counted_by_a_clock_that_does_not_jump() -> None:
    clock = Clock()
    tenant = clock.tenant(rpm=2)
    for seconds in (0, 20):
        clock.steady += seconds
        with tenant.admit():
            pass
    clock.wall += 3600  # a clock on the wall that was set
    clock.steady += 30
    failure = refusal(tenant)
    assert (failure.status, failure.retry_after) == (429, 10.0)
    clock.steady += 10  # the refused one was not counted
    with tenant.admit():
        pass
    assert refusal(tenant).retry_after == 20.0


# ── what a call costs ─────────────────────────────────────────────────────────────────────────────
def test_a_call_that_was_broken_off_costs_the_most_that_it_could_have() -> None:
    unknown = Usage(unpriced_calls=1)
    for outcome in ("cancelled", "timeout", "answered"):
        assert cost_of(call(8, 5, unknown)) == 58 * MILLE, outcome
    assert cost_of(call(8, 5, Usage())) == 0  # known to be free: it was not even sent
    assert cost_of(call(8, 5, priced(2, 1))) == 12 * MILLE
    assert cost_of(call(8, 5, priced(2, 1), replayed=True)) == 0
    free = Call("w", "cancelled", (Message("user", "Hi"),), Sampling(), usage=unknown)
    assert cost_of(free) == 0  # nobody knows its price: no key with a budget may ask it


BILLION = 10**9


@pytest.mark.parametrize(
    ("claimed", "charged"),
    [
        ((BILLION, 5), 58),  # the prompt that was reserved, and what was written
        ((8, BILLION), 58),
        ((BILLION, BILLION), 58),
        ((400, 5), 450),  # a guess of the prompt is no bound: a token may be a byte
    ],
)
def test_a_key_pays_for_no_more_than_its_call_can_have_used(
    claimed: tuple[int, int], charged: int
) -> None:
    assert cost_of(call(8, 5, priced(*claimed))) == charged * MILLE
    nested = call(8, 5, priced(*claimed), nested=True)
    assert cost_of(nested) == priced(*claimed).dollars, "its own calls were counted"


def test_a_false_claim_does_not_empty_a_key() -> None:
    tenant = Clock().tenant(dollars=Decimal(100))
    claim = priced(BILLION, BILLION)
    with tenant.admit() as bill:
        assert bill.budget is not None
        bill.budget.charge(claim)
        bill.add(ended(call(8, 5, claim)))
        bill.budget.check_used()
        assert bill.charged == 58 * MILLE
        assert bill.budget.used["dollars"] == 58 * MILLE


def test_images_are_read_without_a_limit_of_their_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    seen = Call(
        "w", "answered", (Message("user", "", (image,)),), Sampling(), usage=priced(50_000, 9)
    )
    assert cost_of(seen) == seen.usage.dollars


def test_a_spent_budget_says_so_and_until_when() -> None:
    tenant = Clock().tenant(dollars=Decimal("2.5"))
    spend(tenant, Decimal("2.75"))
    failure = refusal(tenant)
    assert (failure.status, failure.code) == (402, "insufficient_quota")
    assert (
        "$2.75 of its budget of $2.5 are spent; the next month begins at 2026-12-01T00:00:00+00:00"
        in str(failure)
    )
    lasting = Clock().tenant(dollars=Decimal("2.5"), period="total")
    spend(lasting, 3)
    assert str(refusal(lasting)).endswith("$3 of its budget of $2.5 are spent")


def test_a_budget_that_ends_within_a_request_is_the_keys_and_not_the_requests() -> None:
    tenant = Clock().tenant(dollars=Decimal(1), period="day")
    with tenant.admit() as bill:
        assert bill.budget is not None
        with pytest.raises(BudgetExceeded) as caught:
            bill.budget.check_call(Usage(dollars=Decimal(2)))
        failure = bill.failure(caught.value)
        assert (failure.status, failure.code) == (402, "insufficient_quota")
        assert (
            "$0 of its budget of $1 are spent, and the rest is less than a call may cost; "
            "the next day" in str(failure)
        )
        with pytest.raises(BudgetExceeded) as caught:
            BudgetMeter(Budget(calls=0), now=0.0).check_call()
        assert bill.failure(caught.value).code == "budget_exceeded"
        assert bill.failure(WorkerTimeout("late")).status == 504


def test_a_budget_of_no_dollars_pays_for_what_is_free() -> None:
    tenant = Clock().tenant(dollars=Decimal(0))
    with tenant.admit() as bill:
        assert bill.budget is not None
        bill.budget.check_call(Usage(5))
        with pytest.raises(BudgetExceeded):
            bill.budget.check_call(Usage(5, dollars=MILLE))


# ── periods ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("period", "days"), [("day", 0.5), ("month", 16.5), (None, 16.5)])
def test_a_period_ends_with_the_day_or_the_month_in_utc(period, days: float) -> None:
    clock = Clock()
    tenant = clock.tenant(dollars=Decimal(1), period=period)
    spend(tenant, 1)
    clock.wall = NOON + days * DAY - 0.001
    assert refusal(tenant).status == 402
    clock.wall += 0.002
    spend(tenant, 1)
    assert refusal(tenant).status == 402


def outcome(
    journal: Journal, episode: str, began: float, charged: str | None, key: str = "ann"
) -> None:
    record = {"key": key, "began": began, "charged": charged, "model": "conductor"}
    journal.put_record(SERVED + episode, record, texts=False)


@pytest.mark.parametrize("content", ["full", "none"])
def test_what_was_spent_before_a_restart_is_read_from_the_journal(tmp_path: Path, content) -> None:
    with Journal(tmp_path / "j.sqlite", content=content) as journal:
        outcome(journal, "a", NOON, None)
        outcome(journal, "a", NOON, "0.25")
        outcome(journal, "b", NOON, "7", key="bob")
        outcome(journal, "c", 0, "9")
        journal(Asked("killed", 0, 0.0, "Q"))
        outcome(journal, "killed", NOON, None)
        journal(ended(call(8, 5, priced(2, 1)), "killed"))
        journal(ended(call(8, 5, Usage(unpriced_calls=1)), "killed"))
        journal(ended(call(8, 5, priced(8, 5), replayed=True), "killed"))
        journal.put_record("not/ours", {"key": "ann", "began": NOON, "charged": "5"}, texts=False)
        journal.flush()
        killed = (70 if content == "full" else 12) * MILLE  # what cannot be read cannot be guessed
        charges = list(past_charges(journal, {"ann": NOON}))
        assert charges == [("ann", NOON, Decimal("0.25")), ("ann", NOON, killed)]
        spent = Decimal("0.25") + killed
        tenant = Clock().tenant(journal=journal, dollars=spent)
        assert refusal(tenant).status == 402
        lasting = Clock().tenant(journal=journal, dollars=Decimal(9), period="total")
        assert lasting._purse.spent == 9 + spent


def test_a_restart_before_the_clock_is_right_gives_nothing_back(tmp_path: Path) -> None:
    clock = Clock()
    with Journal(tmp_path / "j.sqlite") as journal:
        outcome(journal, "a", NOON, "1")
        journal.flush()
        clock.wall = 0.0  # a machine without a battery
        tenant = clock.tenant(journal=journal, dollars=Decimal(1), period="day")
        assert refusal(tenant).status == 402
        clock.wall = NOON + 1
        assert refusal(tenant).status == 402
        clock.wall = NOON + DAY
        spend(tenant, 1)


# ── whatever happens ──────────────────────────────────────────────────────────────────────────────
reads, writes = st.integers(0, 20), st.integers(1, 12)


class Money(RuleBasedStateMachine):
    """Begin and end requests, make, cancel and lose calls, turn clocks, kill processes."""

    limit = Decimal("0.2")

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.journal = Journal(Path(self.folder.name) / "j.sqlite")
        self.clock = Clock()
        self.costs: dict[str, tuple[float, Decimal]] = {}  # by episode, by our own arithmetic
        self.restart()

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.journal.close()
            self.folder.cleanup()

    @rule()
    def restart(self) -> None:
        self.journal.flush()
        self.tenant = self.clock.tenant(journal=self.journal, dollars=self.limit, period="day")
        self.open: dict[str, tuple[Bill, ExitStack, BudgetMeter]] = {}
        self.calls: list[tuple[str, Any, int, int]] = []
        self.period = self.tenant._purse
        self.spent_before = self.period.spent

    @rule(hours=st.sampled_from((-40, -24, -1, 1, 12, 24, 40)))
    def set_clock(self, hours: int) -> None:
        self.clock.wall += hours * 3600

    @rule()
    def begin(self) -> None:
        stack = ExitStack()
        try:
            bill = stack.enter_context(self.tenant.admit())
        except RequestFailed:
            assert self.tenant._purse.spent >= self.limit
            return
        if self.period is not bill._purse:
            self.period = bill._purse
            self.spent_before = self.period.spent
        episode = f"{len(self.costs):032x}"
        self.open[episode] = bill, stack, BudgetMeter(Budget(), now=0.0, payer=bill.budget)
        self.costs[episode] = bill.began, Decimal(0)
        self.journal(Asked(episode, 0, 0.0, "Q"))
        outcome(self.journal, episode, bill.began, None)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), read=reads, written=writes)
    def send(self, data: st.DataObject, read: int, written: int) -> None:
        episode = data.draw(st.sampled_from(sorted(self.open)))
        question = self.open[episode][2]
        try:
            question.reserve_call(priced(read, written)).send(None)
        except StopIteration as done:
            self.calls.append((episode, done.value, read, written))
        except BudgetExceeded:
            pass
        except RuntimeError:
            pass  # in a loop, it would wait for calls in flight

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), how=st.sampled_from(["answered", "cancelled", "unsent", "replayed"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        place = data.draw(st.integers(0, len(self.calls) - 1))
        episode, paid, read, written = self.calls.pop(place)
        used = priced(read // 2, written // 2)
        cost = used.dollars
        if how == "cancelled":
            used = Usage(unpriced_calls=1)
            cost = priced(read, written).dollars
        elif how == "unsent":
            used = Usage()
            cost = Decimal(0)
        if how != "replayed":
            paid.charge(used)
            began, before = self.costs[episode]
            self.costs[episode] = began, before + cost
        event = ended(call(read, written, used, replayed=how == "replayed"), episode)
        self.journal(event)
        self.open[episode][0].add(event)
        paid.release()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        episode = data.draw(st.sampled_from(sorted(self.open)))
        if episode not in {call[0] for call in self.calls}:
            bill, stack, _ = self.open.pop(episode)
            stack.close()
            outcome(self.journal, episode, bill.began, str(bill.charged))

    @invariant()
    def nothing_is_lost_or_counted_twice(self) -> None:
        if not hasattr(self, "tenant"):
            return
        for episode, (bill, _, _) in self.open.items():
            assert (bill.began, bill.charged) == self.costs[episode]
            assert bill._purse.spent == bill.budget.used["dollars"]
        today = self.tenant._now // DAY * DAY
        costs = [dollars for began, dollars in self.costs.values() if began >= today]
        assert self.tenant._purse.spent == sum(costs)

    @invariant()
    def no_more_is_spent_than_there_is(self) -> None:
        if not hasattr(self, "tenant"):
            return
        budget = self.period.budget
        held = budget.used["dollars"] + budget.reserved["dollars"]
        assert held <= max(self.limit, self.spent_before)


def test_the_money_is_right_whatever_happens() -> None:
    run_state_machine_as_test(Money, settings=settings(max_examples=40, stateful_step_count=40))
