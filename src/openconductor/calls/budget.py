"""The budget of a question, of a run or of an API key: reserved before a call, charged after it.

``BudgetMeter`` is the budget of one question: it serves the Conductor's calls and the steps of all
rounds. ``RunBudget`` pays for many questions. Each call makes a ``Reservation``, which charges
every budget that pays for it.

A question may be asked to answer a call of another question. What it uses is charged to the budgets
of both as it is used, and the bill of that call is reduced by it, so that nothing counts twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from openconductor.errors import BudgetExceeded, CircuitOpen, ConfigError
from openconductor.types import Budget, Usage

if TYPE_CHECKING:
    from openconductor.calls.worker import Worker

Limit = Literal["calls", "tokens", "dollars", "seconds"]
Amount = int | Decimal

_COUNTED: tuple[Limit, ...] = ("calls", "tokens", "dollars")
_LIMITS: tuple[Limit, ...] = (*_COUNTED, "seconds")
_NOTHING = Usage()
_CLOCK_SLACK_S = 0.001  # event loops call their timers a little early


class Account:
    """One budget with what was used of it, and what is reserved for calls in flight.

    Args:
        budget: the limits.
        now: the event loop's time at which the seconds begin.

    Raises:
        ConfigError: it is not a Budget, or a limit is not a number of at least 0.
    """

    owner = "the question's budget"
    option = "--budget-{limit} (conductor.max_{limit} of a request)"
    pays_for_replays = True

    def __init__(self, budget: Budget, *, now: float = 0.0) -> None:
        if not isinstance(cast(object, budget), Budget):
            raise ConfigError(f"budget: got {budget!r}, expected an oc.Budget(calls=…, dollars=…)")
        for name in _LIMITS:
            _check_limit(name, getattr(budget, name))
        self.budget = budget
        self.used: dict[Limit, Amount] = dict.fromkeys(_COUNTED, 0)
        self.reserved: dict[Limit, Amount] = dict.fromkeys(_COUNTED, 0)
        self.end = None if budget.seconds is None else now + budget.seconds
        self._started = now
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def add(self, *, calls: int = 0, tokens: int = 0, dollars: Decimal = Decimal(0)) -> None:
        """Add to what was used, without a look at the limits; a negative amount is taken back."""
        self.used["calls"] += calls
        self.used["tokens"] += tokens
        self.used["dollars"] += dollars

    def reserve(self, most: Usage) -> None:
        """Reserve the tokens and dollars that a call can use."""
        self.reserved["tokens"] += most.tokens
        self.reserved["dollars"] += most.dollars

    def release(self, most: Usage) -> None:
        """End a reservation, and wake the calls that wait for room."""
        self.reserved["tokens"] -= most.tokens
        self.reserved["dollars"] -= most.dollars
        waiting = self._waiting
        self._waiting = []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    async def make_room(self, most: Usage = _NOTHING) -> None:
        """Get hold of what a call may use, where a budget is shared with other processes.

        This one has all of its money; so nothing is to be done. Whether there is room is checked
        afterwards.
        """

    async def wait_for_release(self) -> None:
        """Wait until a reservation ends."""
        event = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), event))
        await event.wait()

    def has_room_later(self, most: Usage) -> bool:
        """Return True if a call does not fit now, but would without the calls in flight."""
        for name, limit in self._limits("tokens", "dollars"):
            needed: Amount = self.used[name] + getattr(most, name)
            if needed <= limit < needed + self.reserved[name]:
                return True
        return False

    def has_room_for(self, calls: Sequence[Usage]) -> bool:
        """Return True if these calls fit one after the other, without those in flight."""
        together = sum(calls, Usage())
        for name, limit in self._limits("calls", "tokens", "dollars"):
            wanted = len(calls) if name == "calls" else getattr(together, name)
            if self.used[name] + wanted > limit:
                return False
        return True

    def check_call(self, most: Usage = _NOTHING, *, worker: str = "", retry: bool = False) -> None:
        """Check that one more call fits.

        Args:
            most: the tokens and dollars that the call can use.
            worker: the name of the worker that is called.
            retry: True if the call has reserved ``most`` already. The attempt before it may have
                been billed, so the next one has to fit beside everything that is reserved.

        Raises:
            BudgetExceeded: a limit is reached, or what is left is less than ``most``.
        """
        for name, limit in self._limits("calls", "tokens", "dollars"):
            used = self.used[name]
            wanted = 0 if name == "calls" else getattr(most, name)
            needed = self.reserved[name] if retry else wanted
            # A limit of 0 dollars still pays for workers that are free.
            if used >= limit and (limit > 0 or name != "dollars"):
                raise self.exceeded(name)
            if used + needed > limit:
                reserved_by_others = needed - wanted
                left = max(0, limit - used - reserved_by_others)
                raise self._lacks_room(name, most, left, worker)
        if _has_passed(self.end):
            raise self.exceeded("seconds")

    def check_used(self) -> None:
        """Check that no more is used than is allowed.

        Raises:
            BudgetExceeded: more tokens or dollars were used.
        """
        for name, limit in self._limits("tokens", "dollars"):
            if self.used[name] > limit:
                raise self.exceeded(name)

    def exceeded(self, limit: Limit) -> BudgetExceeded:
        """Return the error for a limit that is reached."""
        allowed: object = getattr(self.budget, limit)
        used: object = self.used.get(limit)
        if limit == "seconds":
            used = f"{asyncio.get_running_loop().time() - self._started:.3f}"
        owner = self.owner if allowed is not None else "the budget of the question above"
        unit = limit[:-1] if used == 1 else limit
        message = f"{owner} is spent: {used} {unit} used"
        if allowed is not None:
            message += f", {allowed} allowed"
        return BudgetExceeded(message, limit=limit, meter=self)

    def _lacks_room(self, limit: Limit, most: Usage, left: Amount, worker: str) -> BudgetExceeded:
        """Return the error for a call that may use more than is ``left`` of a limit."""
        reserves = _amount_text(limit, getattr(most, limit))
        allowed = _amount_text(limit, getattr(self.budget, limit))
        rest = _amount_text(limit, left)
        fix = f"raise {self.option.format(limit=limit)}"
        if most.output_tokens:
            reserves += f" (max_tokens {most.output_tokens})"
            fix = f"lower its max_tokens in the pool file, or {fix}"
        message = (
            f"{self.owner} has no room for the next call: worker {worker!r} reserves {reserves}, "
            f"and of {allowed} only {rest} are left; {fix}"
        )
        return BudgetExceeded(message, limit=limit, meter=self)

    def ended_in(self, error: BaseException) -> bool:
        """Return True if an error is the end of this budget, and not of another one."""
        return isinstance(error, BudgetExceeded) and error.meter is self

    def _limits(self, *names: Limit) -> list[tuple[Limit, Amount]]:
        """Return the limits that this budget sets, of those named."""
        limits: list[tuple[Limit, Amount]] = []
        for name in names:
            limit: Amount | None = getattr(self.budget, name)
            if limit is not None:
                limits.append((name, limit))
        return limits


class RunBudget(Account):
    """The budget of many questions: of an evaluation, a training or an API key.

    A call that a journal answers was paid for by an earlier run, so this budget does not count it.
    The budget of a question does, so that it ends at the same call as before.
    """

    owner = "the run's budget"
    option = "--budget-{limit} (budget.{limit} of a recipe)"
    pays_for_replays = False

    @property
    def accounts(self) -> tuple[Account, ...]:
        """The budgets that pay."""
        return (self,)

    def charge(self, usage: Usage) -> None:
        """Add what a call used."""
        self.add(tokens=usage.tokens, dollars=usage.dollars)

    def charge_replay(self, usage: Usage) -> None:
        """Add nothing: who made the call has paid for it."""

    async def count_attempt(self) -> None:
        """Count one more attempt at a call.

        Raises:
            BudgetExceeded: a limit is reached.
        """
        await self.make_room()
        self.check_call()
        self.add(calls=1)


class BudgetMeter(Account):
    """The budget of one question, and the budgets of what the question works for.

    Calls are counted before they are made, so their limit is exact. Of tokens and dollars a call
    reserves the most that it can use, as far as that is known (``Worker.most``). A call waits where
    it would fit without the calls in flight, and is rejected where it does not fit at all. So these
    limits hold if every worker has a ``max_tokens`` and reads no more than is guessed. Otherwise
    the call that passes a limit is kept, and ends the episode.

    Args:
        budget: the question's own limits.
        now: the event loop's time at which the seconds begin.
        payer: pays for the question: a run's budget, or the call that the question works for.
    """

    def __init__(self, budget: Budget, *, now: float, payer: Payer | None = None) -> None:
        super().__init__(budget, now=now)
        self.accounts: tuple[Account, ...] = (self,)
        self._above: Reservation | None = None
        if payer is not None:
            self.accounts = (*payer.accounts, self)
        if isinstance(payer, Reservation):
            self._above = payer
            payer.release()  # the calls of this question reserve for themselves
        ends = [account.end for account in self.accounts if account.end is not None]
        self.deadline = min(ends, default=None)
        """The event loop's time at which the first of the budgets ends; None: never."""

    @property
    def is_limited(self) -> bool:
        """True if anything is limited, here or by a budget that pays for this one."""
        return any(account.budget != Budget() for account in self.accounts)

    async def reserve_call(
        self,
        most: Usage = _NOTHING,
        *,
        worker: str = "",
        is_replay: Callable[[], bool] = lambda: False,
    ) -> Reservation:
        """Count one call and reserve for it, once there is room beside the calls in flight.

        Args:
            most: the tokens and dollars that the call can use, as far as that is known.
            worker: the name of the worker that is called.
            is_replay: tells whether a journal answers the call. It is asked again after each wait,
                because another call may have been made and kept meanwhile.

        Raises:
            BudgetExceeded: a limit is reached, or what is left is less than ``most``.
        """
        while True:
            accounts = self.accounts
            if is_replay():
                accounts = tuple(account for account in accounts if account.pays_for_replays)
            for account in accounts:
                await account.make_room(most)
            crowded = [account for account in accounts if account.has_room_later(most)]
            if not crowded:
                return Reservation(accounts, most, worker=worker, above=self._above)
            await crowded[0].wait_for_release()

    def check_limits(self) -> None:
        """Check that no budget is overspent.

        Raises:
            BudgetExceeded: more tokens or dollars were used than are allowed.
        """
        for account in self.accounts:
            account.check_used()

    def out_of_time(self) -> bool:
        """Return True if the deadline has passed."""
        return _has_passed(self.deadline)

    @asynccontextmanager
    async def time_limit(self) -> AsyncGenerator[None]:
        """Cancel what runs inside at the deadline.

        Raises:
            BudgetExceeded: the deadline passed.
        """
        scope = asyncio.timeout_at(self.deadline)
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise self.exceeded("seconds") from error


class Reservation:
    """One call, counted and reserved for; a context manager around the call.

    A question that is asked to answer the call is paid by it, too (``BudgetMeter``'s ``payer``).

    Args:
        accounts: the budgets that pay for the call.
        most: the tokens and dollars that it can use.
        worker: the name of the worker that is called.
        above: the call that the question of this call works for.

    Raises:
        BudgetExceeded: a limit is reached, or what is left is less than ``most``.
    """

    def __init__(
        self,
        accounts: tuple[Account, ...],
        most: Usage,
        *,
        worker: str = "",
        above: Reservation | None = None,
    ) -> None:
        self.accounts = accounts
        self._worker = worker
        self._above = above
        self._most = most
        self._sent = False
        self._used_inside = _NOTHING  # by questions asked inside; the call's bill is reduced by it
        self._count(retry=False)
        for account in accounts:
            account.reserve(most)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.release()
        if isinstance(error, CircuitOpen) and not self._sent and self._used_inside == _NOTHING:
            for account in self.accounts:  # nothing was sent
                account.add(calls=-1)

    def release(self) -> None:
        """End the reservation: the call has ended, or a question inside it reserves for itself."""
        most = self._most
        self._most = _NOTHING
        if most is not _NOTHING:
            for account in self.accounts:
                account.release(most)

    async def count_attempt(self) -> None:
        """Count one more attempt at the call.

        Raises:
            BudgetExceeded: a limit is reached.
        """
        for account in self.accounts:
            await account.make_room()
        self._count(retry=True)

    def charge(self, usage: Usage) -> None:
        """Charge the bill of one attempt, less what was already charged from inside it."""
        self._sent = True
        inside = self._used_inside
        self._used_inside = _NOTHING
        tokens = max(0, usage.tokens - inside.tokens)
        dollars = max(Decimal(0), usage.dollars - inside.dollars)
        for account in self.accounts:
            account.add(tokens=tokens, dollars=dollars)
        self._tell_above(tokens, dollars)

    def charge_replay(self, usage: Usage) -> None:
        """Charge a call that a journal answered.

        An account that does not pay for replays is here only if another process made the call
        meanwhile; it takes back that the call was counted.
        """
        for account in self.accounts:
            if account.pays_for_replays:
                account.add(tokens=usage.tokens, dollars=usage.dollars)
            else:
                account.add(calls=-1)
        self._tell_above(usage.tokens, usage.dollars)

    def _tell_above(self, tokens: int, dollars: Decimal) -> None:
        """Reduce the bills of the calls that this one works for by what it used."""
        above = self._above
        while above is not None:
            above._used_inside += Usage(tokens, dollars=dollars)
            above = above._above

    def _count(self, *, retry: bool) -> None:
        for account in self.accounts:
            account.check_call(self._most, worker=self._worker, retry=retry)
        for account in self.accounts:
            account.add(calls=1)


Payer: TypeAlias = RunBudget | Reservation
"""Pays for a call or a question."""


def open_meter(
    budget: Budget | None, *, now: float, payer: Payer | None = None
) -> BudgetMeter | None:
    """Return a meter for one question; None: neither its own budget nor a payer limits it."""
    if payer is None and (budget is None or budget == Budget()):
        return None
    return BudgetMeter(budget or Budget(), now=now, payer=payer)


def check_price(budget: BudgetMeter | RunBudget | None, worker: Worker) -> None:
    """Check that a worker has a price if dollars are limited.

    An orchestrator as a worker has no price of its own: its workers are checked when it is asked.

    Raises:
        ConfigError: the worker has no price.
    """
    if budget is None or worker.price is not None or worker.resolved.prices_itself:
        return
    if any(account.budget.dollars is not None for account in budget.accounts):
        raise ConfigError(
            f"worker {worker.name!r} has no price, and the budget limits dollars: expected "
            "price = {input, output} in US dollars a million tokens (0 for a worker that is free)"
        )


def _amount_text(limit: Limit, amount: Amount) -> str:
    """Return an amount with its unit."""
    if limit == "dollars":
        return f"${Decimal(amount).normalize():f}"
    return f"{amount} {limit}"


def _check_limit(name: Limit, value: Any) -> None:
    """Raise ConfigError if a limit is neither None nor a number of at least 0."""
    try:
        valid = value is None or (not isinstance(value, bool) and bool(value >= 0))
    except (TypeError, ArithmeticError):  # a text; a Decimal that is not a number
        valid = False
    if not valid:
        raise ConfigError(
            f"Budget.{name}: got {value!r}, expected a number of at least 0, or None for no limit"
        )


def _has_passed(deadline: float | None) -> bool:
    """Return True if a time of the running event loop has passed."""
    if deadline is None:
        return False
    return asyncio.get_running_loop().time() + _CLOCK_SLACK_S >= deadline
