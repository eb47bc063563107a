"""A question's budget, metered: reserved before every call, settled after it, shared by everything that it pays for.

In: a Budget, and the Usage of calls. Out: BudgetExceeded when a limit is passed, and the deadline for calls in flight.

One meter serves the Conductor's calls and the steps of all rounds. An orchestrator that works for another one finds the
call that pays for it in a context variable: what it spends is charged to both meters as it is spent, and the outer
call's own bill is then lessened by it, so that nothing counts twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar, Token
from decimal import Decimal
from types import TracebackType
from typing import Literal, Protocol

from openconductor.errors import BudgetExceeded, CircuitOpen, ConfigError
from openconductor.types import Budget, Usage

Limit = Literal["calls", "tokens", "dollars", "seconds"]

_NO_LIMITS = Budget()
_NOTHING = Usage()
_NO_DOLLARS = Decimal(0)
_CLOCK_SLACK_S = 0.001  # event loops call their timers a little early


class BudgetMeter:
    """What one question has used, against what it may use.

    Calls are counted before they are made, so their limit is exact. Of tokens and dollars a call reserves the most that
    it is known to be able to use; it waits for calls in flight where only what they hold is in its way, and is refused
    where it does not fit at all: a limit holds where every worker has a ``max_tokens`` and reads no more than the guess
    (``Worker.most``). What other calls use is known afterwards only: the call that passes a limit is kept and ends the
    episode.
    """

    __slots__ = (
        "_budget",
        "_calls",
        "_dollars",
        "_errors",
        "_parent",
        "_reserved_dollars",
        "_reserved_tokens",
        "_started",
        "_tokens",
        "_waiters",
        "deadline",
    )

    def __init__(self, budget: Budget, *, now: float, parent: PaidCall | None = None) -> None:
        _check(budget)
        self._budget = budget
        self._started = now
        self._parent = parent
        self._calls = 0
        self._tokens = 0
        self._dollars = Decimal(0)
        self._reserved_tokens = 0
        self._reserved_dollars = Decimal(0)
        self._waiters: list[asyncio.Future[None]] = []
        inherited = parent.meter.deadline if parent is not None else None
        own = None if budget.seconds is None else now + budget.seconds
        self.deadline = min((d for d in (own, inherited) if d is not None), default=None)
        """The event loop's time at which the budget's seconds end; None is never."""
        self._errors: list[BudgetExceeded] = []

    @property
    def limits_dollars(self) -> bool:
        """Whether this budget, or one that pays for it, limits dollars."""
        return self._budget.dollars is not None or (self._parent is not None and self._parent.meter.limits_dollars)

    @property
    def bounded(self) -> bool:
        """Whether anything at all is limited, here or by a budget that pays for this one."""
        return self._budget != _NO_LIMITS or (self._parent is not None and self._parent.meter.bounded)

    async def call(self, most: Usage = _NOTHING) -> PaidCall:
        """Count one call, and reserve for it; waits where nothing but what calls in flight hold is in its way.

        Args:
            most: the tokens and dollars that the call is known to be able to use.

        Raises:
            BudgetExceeded: a limit is used up, or what is left is less than ``most``.
        """
        while (crowded := self._crowded(most.tokens, most.dollars)) is not None:
            waiter = asyncio.get_running_loop().create_future()
            crowded._waiters.append(waiter)
            await waiter
        self._check_room(most.tokens, most.dollars)
        self.add_calls(1)
        self.reserve(most.tokens, most.dollars)
        return PaidCall(self, most)

    def count_call(self) -> None:
        """Count one more attempt at a call that has its reservation, or refuse it.

        Raises:
            BudgetExceeded: a limit is used up.
        """
        self._check_room(0, _NO_DOLLARS)
        self.add_calls(1)

    def reserve(self, tokens: int, dollars: Decimal) -> None:
        """Hold tokens and dollars for a call in flight; negative ones give them back."""
        self._reserved_tokens += tokens
        self._reserved_dollars += dollars
        if self._parent is not None:
            self._parent.meter.reserve(tokens, dollars)
        if tokens < 0 or dollars < 0:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    def charge(self, usage: Usage) -> None:
        """Add what was used; never refuses (``check`` does), for what is used is used."""
        self._tokens += usage.tokens
        self._dollars += usage.dollars
        if self._parent is not None:
            self._parent.charge_inner(usage)

    def check(self) -> None:
        """Stop where a limit has been passed.

        Raises:
            BudgetExceeded: more is used than was allowed.
        """
        if self._parent is not None:
            self._parent.meter.check()
        budget = self._budget
        if budget.tokens is not None and self._tokens > budget.tokens:
            raise self.exceeded("tokens")
        if budget.dollars is not None and self._dollars > budget.dollars:
            raise self.exceeded("dollars")

    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and asyncio.get_running_loop().time() + _CLOCK_SLACK_S >= self.deadline

    def exceeded(self, limit: Limit, *, wanted: object = 0) -> BudgetExceeded:
        """The error for one limit, remembered as ours; ``wanted`` is what a call that was refused may use."""
        used: dict[Limit, object] = {
            "calls": self._calls,
            "tokens": self._tokens,
            "dollars": self._dollars,
            "seconds": f"{asyncio.get_running_loop().time() - self._started:.3f}",
        }
        allowed: object = getattr(self._budget, limit)
        whose = "the question's budget" if allowed is not None else "the budget of the question above"
        unit = limit[:-1] if used[limit] == 1 else limit
        message = f"{whose} is spent: {used[limit]} {unit} used" + (
            f", {allowed} allowed" if allowed is not None else ""
        )
        if wanted:
            message += f"; the next call may use {wanted} {limit}"
        error = BudgetExceeded(message, limit=limit)
        self._errors.append(error)
        return error

    def ended_in(self, error: BaseException) -> bool:
        """Whether an error is this budget's end, and not another one's; steps side by side may each meet it."""
        return any(error is one for one in self._errors)

    def _crowded(self, tokens: int, dollars: Decimal, inside: Usage = _NOTHING) -> BudgetMeter | None:
        """The meter, this one or one above, that lacks no more room than calls in flight hold.

        ``inside`` is what the call that this one works for holds itself: a call inside it is paid from that.
        """
        if self._parent is not None:
            above = self._parent.meter._crowded(tokens, dollars, self._parent.reserved)
            if above is not None:
                return above
        budget = self._budget
        if budget.tokens is not None:
            used = self._tokens + tokens
            if used <= budget.tokens < used + self._reserved_tokens - inside.tokens:
                return self
        if budget.dollars is not None:
            spent = self._dollars + dollars
            if spent <= budget.dollars < spent + self._reserved_dollars - inside.dollars:
                return self
        return None

    def _check_room(self, tokens: int, dollars: Decimal) -> None:
        if self._parent is not None:
            self._parent.meter._check_room(tokens, dollars)
        budget = self._budget
        if budget.calls is not None and self._calls >= budget.calls:
            raise self.exceeded("calls")
        if budget.tokens is not None:
            if self._tokens >= budget.tokens:
                raise self.exceeded("tokens")
            if self._tokens + tokens > budget.tokens:
                raise self.exceeded("tokens", wanted=tokens)
        if budget.dollars is not None:
            # A limit of no dollars at all still pays for workers that are free.
            if self._dollars >= budget.dollars > 0:
                raise self.exceeded("dollars")
            if self._dollars + dollars > budget.dollars:
                raise self.exceeded("dollars", wanted=dollars)
        if self.out_of_time():
            raise self.exceeded("seconds")

    def add_calls(self, count: int) -> None:
        """Count so many calls, without a look at the limit; a negative count takes back what was not sent."""
        self._calls += count
        if self._parent is not None:
            self._parent.meter.add_calls(count)


class PaidCall:
    """One reserved call, as a context manager around it: budgets opened inside are charged to this one, too.

    One that was not sent, because a circuit is open, is counted no more.
    """

    __slots__ = ("_inner", "_sent", "_token", "meter", "reserved")

    def __init__(self, meter: BudgetMeter, reserved: Usage = _NOTHING) -> None:
        self.meter = meter
        self.reserved = reserved
        self._inner = Usage()
        self._sent = False
        self._token: Token[PaidCall | None] | None = None

    def __enter__(self) -> PaidCall:
        self._token = _paying.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            _paying.reset(self._token)
        self.meter.reserve(-self.reserved.tokens, -self.reserved.dollars)
        if isinstance(error, CircuitOpen) and not self._sent:
            self.meter.add_calls(-1)

    def charge(self, usage: Usage) -> None:
        """Charge the bill of one attempt, less what was already charged from inside it."""
        self._sent = True
        inner, self._inner = self._inner, Usage()
        self.meter.charge(
            Usage(
                input_tokens=max(0, usage.input_tokens - inner.input_tokens),
                output_tokens=max(0, usage.output_tokens - inner.output_tokens),
                dollars=max(Decimal(0), usage.dollars - inner.dollars),
            )
        )

    def charge_inner(self, usage: Usage) -> None:
        """Charge what a budget opened inside this call has used."""
        self._sent = True
        self._inner += usage
        self.meter.charge(usage)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_paying: ContextVar[PaidCall | None] = ContextVar("openconductor_paying", default=None)


def open_meter(budget: Budget | None, *, now: float) -> BudgetMeter | None:
    """A meter for one question; None where nothing limits it: no budget, and no metered call that it works for."""
    parent = _paying.get()
    if budget is None and parent is None:
        return None
    return BudgetMeter(budget or _NO_LIMITS, now=now, parent=parent)


def count_attempt() -> None:
    """Count one further attempt at the call under way; for whoever repeats a call (a retry).

    Raises:
        BudgetExceeded: a limit is used up.
    """
    paid = _paying.get()
    if paid is not None:
        paid.meter.count_call()


@asynccontextmanager
async def time_limit(meter: BudgetMeter | None) -> AsyncGenerator[None]:
    """Cancel what runs inside when the budget's seconds end.

    Raises:
        BudgetExceeded: they ended.
    """
    if meter is None or meter.deadline is None:
        yield
        return
    scope = asyncio.timeout_at(meter.deadline)
    try:
        async with scope:
            yield
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise meter.exceeded("seconds") from error


class _Priced(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def price(self) -> object | None: ...
    @property
    def provider(self) -> object: ...


def check_price(meter: BudgetMeter | None, worker: _Priced) -> None:
    """Refuse to spend dollars, under a dollar budget, at an unknown price.

    An orchestrator as a worker has no price of its own: its workers are checked when it is asked.

    Raises:
        ConfigError: the worker has no price.
    """
    if meter is None or not meter.limits_dollars or getattr(worker.provider, "prices_itself", False):
        return
    if worker.price is None:
        raise ConfigError(
            f"worker {worker.name!r} has no price, and the budget limits dollars: expected price = {{input, output}} "
            "in US dollars a million tokens (0 for a worker that is free)"
        )


def _check(budget: Budget) -> None:
    for name in ("calls", "tokens", "dollars", "seconds"):
        value: object = getattr(budget, name)
        if value is not None and not _is_amount(value):
            raise ConfigError(f"Budget.{name}: got {value!r}, expected a number of at least 0, or None for no limit")


def _is_amount(value: object) -> bool:
    if isinstance(value, Decimal):
        return not value.is_nan() and value >= 0  # a Decimal that is no number cannot even be compared
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
