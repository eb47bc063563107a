"""A question's budget, metered: reserved before every call, settled after it, shared by everything that it pays for.

In: a Budget, and the Usage of calls. Out: BudgetExceeded when a limit is passed, and the deadline
for calls in flight.

One meter serves the Conductor's calls and the steps of all rounds. An orchestrator that works for
another one finds the call that pays for it in a context variable: what it spends is charged to both
meters as it is spent, and the outer call's own bill is then lessened by it, so that nothing counts
twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, Token
from copy import copy
from dataclasses import fields
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from openconductor.errors import BudgetExceeded, CircuitOpen, ConfigError
from openconductor.types import Budget, Usage

if TYPE_CHECKING:
    from openconductor.calls.worker import Worker

Limit = Literal["calls", "tokens", "dollars", "seconds"]
Amount = int | Decimal

_NOTHING = Usage()
_CLOCK_SLACK_S = 0.001  # event loops call their timers a little early


class BudgetMeter:
    """What one question has used, against what it may use.

    Calls are counted before they are made, so their limit is exact. Of tokens and dollars a call
    reserves the most that it is known to be able to use; it waits for calls in flight where only
    what they hold is in its way, and is refused where it does not fit at all: a limit holds where
    every worker has a ``max_tokens`` and reads no more than the guess (``Worker.most``). What other
    calls use is known afterwards only: the call that passes a limit is kept and ends the episode.

    Args:
        budget: the limits.
        now: the event loop's time at which the seconds begin.
        parent: the call that this question works for.
        purse: it pays for many questions, and not for calls that a journal answers: an earlier run
            has. The budget of a question counts these, so that its end comes where it came before.
    """

    def __init__(
        self, budget: Budget, *, now: float, parent: PaidCall | None = None, purse: bool = False
    ) -> None:
        for field in fields(budget):
            value, good = getattr(budget, field.name), False
            with suppress(
                TypeError, ArithmeticError
            ):  # a text; a Decimal that is not a number cannot be compared
                good = value is None or (not isinstance(value, bool) and value >= 0)
            if not good:
                expected = "a number of at least 0, or None for no limit"
                raise ConfigError(f"Budget.{field.name}: got {value!r}, expected {expected}")
        self._budget = budget
        self._started = now
        self._parent = parent
        self._purse = purse
        self._meters: tuple[BudgetMeter, ...] = (
            (self,) if parent is None else (*parent.meter._meters, self)
        )
        self._used: dict[Limit, Amount] = {"calls": 0, "tokens": 0, "dollars": Decimal(0)}
        self._held: dict[Limit, Amount] = {"tokens": 0, "dollars": Decimal(0)}
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        ends = [
            one._started + one._budget.seconds
            for one in self._meters
            if one._budget.seconds is not None
        ]
        self.deadline = min(ends, default=None)
        """The event loop's time at which the budget's seconds end; None is never."""

    def limits(self, *names: Limit) -> bool:
        """Whether one of these is limited, here or by a budget that pays for this one."""
        return any(
            getattr(meter._budget, name) is not None for meter in self._meters for name in names
        )

    async def call(
        self, most: Usage = _NOTHING, *, known: Callable[[], bool] = lambda: False
    ) -> PaidCall:
        """Count one call, and reserve for it; waits where nothing but what calls in flight hold is in its way.

        Args:
            most: the tokens and dollars that the call is known to be able to use.
            known: whether a journal answers it.

        Raises:
            BudgetExceeded: a limit is used up, or what is left is less than ``most``.
        """
        while True:
            paying = self._paying(
                known()
            )  # after each wait anew: the call may have been made meanwhile
            crowded = [meter for meter in paying._meters if meter._is_crowded(most)]
            if not crowded:
                break
            waiter = asyncio.Event()
            crowded[0]._waiters.append((asyncio.get_running_loop(), waiter))
            await waiter.wait()
        paying.count_call(most)
        return PaidCall(paying, most)

    def _paying(self, known: bool) -> BudgetMeter:
        """The same meter, without the purses above it where the call is known."""
        if not known:
            return self
        other = copy(self)  # what is used and held stays one
        other._meters = tuple(meter for meter in self._meters if not meter._purse)
        return other

    def count_call(self, most: Usage = _NOTHING, *, again: bool = False) -> None:
        """Count one call, or one more attempt (``again``) at a call that holds ``most``.

        The attempt before may have been billed: another one has to fit beside all that is held.

        Raises:
            BudgetExceeded: a limit is used up, or what is left is less than ``most``.
        """
        for meter in self._meters:
            for name, limit in meter._limits("calls", "tokens", "dollars"):
                used, wanted = meter._used[name], 0 if name == "calls" else getattr(most, name)
                beside = meter._held[name] - wanted if again and name != "calls" else 0
                # A limit of no dollars at all still pays for workers that are free.
                if used >= limit and (limit > 0 or name != "dollars"):
                    raise meter.exceeded(name)
                if used + beside + wanted > limit:
                    raise meter.exceeded(name, wanted=wanted)
            if meter.out_of_time():
                raise meter.exceeded("seconds")
        self.add(calls=1)

    def add(self, *, calls: int = 0, tokens: int = 0, dollars: Decimal = Decimal(0)) -> None:
        """Add to what is used, without a look at the limits; what is negative is taken back."""
        for meter in self._meters:
            meter._used["calls"] += calls
            meter._used["tokens"] += tokens
            meter._used["dollars"] += dollars

    def hold(self, most: Usage, sign: int) -> None:
        """Hold (1) tokens and dollars for a call in flight, or give them back (-1)."""
        for meter in self._meters:
            meter._held["tokens"] += sign * most.tokens
            meter._held["dollars"] += sign * most.dollars
            waiters, meter._waiters = meter._waiters, []
            for loop, waiter in waiters:
                loop.call_soon_threadsafe(waiter.set)

    def charge(self, usage: Usage) -> None:
        """Add what was used; never refuses (``check`` does), for what is used is used."""
        self.add(tokens=usage.tokens, dollars=usage.dollars)
        paid = self._parent
        while paid is not None:
            paid.inside += usage
            paid = paid.meter._parent

    def check(self) -> None:
        """Stop where a limit has been passed.

        Raises:
            BudgetExceeded: more is used than was allowed.
        """
        for meter in self._meters:
            for name, limit in meter._limits("tokens", "dollars"):
                if meter._used[name] > limit:
                    raise meter.exceeded(name)

    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return (
            self.deadline is not None
            and asyncio.get_running_loop().time() + _CLOCK_SLACK_S >= self.deadline
        )

    def exceeded(self, limit: Limit, *, wanted: object = 0) -> BudgetExceeded:
        """The error for one limit; ``wanted`` is what a call that was refused may use."""
        used: object = self._used.get(limit)
        if limit == "seconds":
            used = f"{asyncio.get_running_loop().time() - self._started:.3f}"
        allowed: object = getattr(self._budget, limit)
        whose = (
            "the question's budget" if allowed is not None else "the budget of the question above"
        )
        whose = "the run's budget" if self._purse else whose
        message = f"{whose} is spent: {used} {limit[:-1] if used == 1 else limit} used"
        message += f", {allowed} allowed" if allowed is not None else ""
        message += f"; the next call may use {wanted} {limit}" if wanted else ""
        return BudgetExceeded(message, limit=limit, meter=self)

    def ended_in(self, error: BaseException) -> bool:
        """Whether an error is this budget's end, and not another one's."""
        return isinstance(error, BudgetExceeded) and error.meter is self

    @asynccontextmanager
    async def time_limit(self) -> AsyncGenerator[None]:
        """Cancel what runs inside when the budget's seconds end.

        Raises:
            BudgetExceeded: they ended.
        """
        scope = asyncio.timeout_at(self.deadline)
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise self.exceeded("seconds") from error

    def _limits(self, *names: Limit) -> list[tuple[Limit, Amount]]:
        """Those that this budget has."""
        limits: list[tuple[Limit, Amount | None]] = [
            (name, getattr(self._budget, name)) for name in names
        ]
        return [(name, limit) for name, limit in limits if limit is not None]

    def _is_crowded(self, most: Usage) -> bool:
        """Whether this meter lacks no more room for a call than calls in flight hold."""
        for name, limit in self._limits("tokens", "dollars"):
            used: Amount = self._used[name] + getattr(most, name)
            if used <= limit < used + self._held[name]:
                return True
        return False


class PaidCall:
    """One reserved call, as a context manager around it: budgets opened inside are charged to this one, too.

    One that was not sent, because a circuit is open, is counted no more.

    Attributes:
        meter: what it is charged to.
        held: what it has reserved there.
        inside: what budgets opened inside were charged, and the bill of this call has not yet been
            lessened by.
    """

    def __init__(self, meter: BudgetMeter, most: Usage = _NOTHING) -> None:
        self.meter = meter
        self.inside = _NOTHING
        self.held = most
        self._sent = False
        self._token: Token[PaidCall | None] | None = None
        if most is not _NOTHING:
            meter.hold(most, 1)

    def __enter__(self) -> PaidCall:
        self._token = _paying.set(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._token is not None:
            _paying.reset(self._token)
        self.release()
        if isinstance(error, CircuitOpen) and not self._sent and self.inside == _NOTHING:
            self.meter.add(calls=-1)

    def release(self) -> None:
        """Give back what is held: the call has ended, or what is asked inside of it holds for itself."""
        held, self.held = self.held, _NOTHING
        if held is not _NOTHING:
            self.meter.hold(held, -1)

    def charge(self, usage: Usage) -> None:
        """Charge the bill of one attempt, less what was already charged from inside it."""
        self._sent = True
        inside, self.inside = self.inside, _NOTHING
        tokens = max(0, usage.tokens - inside.tokens)
        self.meter.charge(Usage(tokens, dollars=max(Decimal(0), usage.dollars - inside.dollars)))


_paying: ContextVar[PaidCall | None] = ContextVar("openconductor_paying", default=None)


def open_meter(budget: Budget | None, *, now: float) -> BudgetMeter | None:
    """A meter for one question; None where nothing limits it: neither its own budget nor a call that it works for."""
    parent = _paying.get()
    if parent is not None:
        parent.release()
    elif budget is None or budget == Budget():
        return None
    return BudgetMeter(budget or Budget(), now=now, parent=parent)


def count_attempt() -> None:
    """Count one further attempt at the call under way; for whoever repeats a call (a retry).

    Raises:
        BudgetExceeded: a limit is used up.
    """
    if (paid := _paying.get()) is not None:
        paid.meter.count_call(paid.held, again=True)


def check_price(meter: BudgetMeter | None, worker: Worker) -> None:
    """Refuse to spend dollars, under a dollar budget, at an unknown price.

    An orchestrator as a worker has no price of its own: its workers are checked when it is asked.

    Raises:
        ConfigError: the worker has no price.
    """
    if meter is None or not meter.limits("dollars") or worker.resolved.prices_itself:
        return
    if worker.price is None:
        raise ConfigError(
            f"worker {worker.name!r} has no price, and the budget limits dollars: expected price = {{input, output}} "
            "in US dollars a million tokens (0 for a worker that is free)"
        )
