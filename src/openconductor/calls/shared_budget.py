"""Budgets that processes share: the store holds an account for each limit, and all spend from it.

Each process reserves slices of what is left, and spends them without a round trip; it gives back
what it does not need as soon as another one wants it. So a call is refused only if it does not fit
into what all of them leave.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from enum import Enum, auto
from uuid import uuid4

from openconductor.calls.budget import Limit, RunBudget
from openconductor.errors import BudgetExceeded, JournalError
from openconductor.store import Accounts, Balance
from openconductor.types import Budget, Usage

_POLL_S = 0.1  # between two looks at what others want, or leave
_SETTLE_S = 5.0  # between two looks for dead processes
_TRUSTED_S = 15.0  # for which a slice counts as ours since it was last seen: half of its lease
_CALLS_WAIT_S = 40.0  # for calls that others leave: those of a dead process come after its lease


class SliceReply(Enum):
    """The answer to a process that wants more of an account."""

    GRANTED = auto()
    NOT_YET = auto()
    """There is not enough now; what others have reserved may still come back."""
    REFUSED = auto()


class Slice:
    """What a process has reserved of one account.

    Args:
        budget: spends it.
        name: the limit that the account is of.
        account: names the account.
        limit: what all processes may spend.
        teller: gets more, and gives back what others want.

    Attributes:
        limit: as in the arguments.
        spent: what all have spent, when it was last heard of.
        booked: what this process has charged the account. It is less than was used while a call
            runs, and while one runs whose own calls have ended: an orchestrator's, which is charged
            as a whole.
    """

    def __init__(
        self, budget: RunBudget, name: Limit, account: str, limit: Decimal, teller: Teller
    ) -> None:
        self.name: Limit = name
        self.account = account
        self.limit = limit
        self.spent = Decimal(0)
        self.booked = Decimal(0)
        self._booked_then = Decimal(0)  # when ``spent`` was heard of
        self._budget = budget
        self._teller = teller
        self._granted = Decimal(0)
        self._seen = -_TRUSTED_S  # by the monotonic clock, when the slice was there
        self._asking = asyncio.Lock()
        self._grant(Decimal(0))

    def needed_for(self, most: Usage) -> Decimal:
        """Return how much of it one more call needs."""
        return Decimal(1) if self.name == "calls" else most.dollars

    def has_room(self, needed: Decimal) -> bool:
        """Return True if so much is reserved for no call."""
        if self.limit == 0 and self.name == "dollars":  # it pays for what is free
            return True
        if time.monotonic() - self._seen > _TRUSTED_S:
            self.forfeit()
        return self._idle >= needed and self._granted > self._used

    @property
    def _used(self) -> Decimal:
        return Decimal(self._budget.used[self.name])

    @property
    def _idle(self) -> Decimal:
        """What is reserved in the store, and for no call."""
        return self._granted - self._used - self._budget.reserved[self.name]

    def book(self, bill: str, *, closed: bool) -> None:
        """Charge the account what this process has used, calls under way included.

        It is durable no later than what is handed to the store afterwards.
        """
        self.booked = self._used
        bill = f"{bill}/{self.name}"
        self._teller.accounts.charge(self.account, bill, self.booked, closed=closed)

    @property
    def is_passed(self) -> bool:
        """True if more was used than all may, as far as is known here."""
        return self.spent + self._used - self._booked_then > self.limit

    async def ask(self, needed: Decimal) -> SliceReply:
        """Ask for room for a call, or wait a while for what others may leave.

        Raises:
            JournalError: the store failed.
        """
        async with self._asking:
            if self.has_room(needed):  # it came while somebody else asked
                return SliceReply.GRANTED
            balance = await self._reserve(max(Decimal(0), needed - self._idle))
            if balance.granted:
                return SliceReply.GRANTED
            await self._give_back()  # or two processes would keep what each of them needs
            left = self.limit - balance.spent
            if left <= 0 or left < needed:
                return SliceReply.REFUSED
            await self._teller.settle_dead()
            await asyncio.sleep(_POLL_S)
            return SliceReply.NOT_YET

    async def _reserve(self, lacking: Decimal) -> Balance:
        began = time.monotonic()
        try:
            balance = await self._teller.reserve(self.account, self.limit, lacking)
        finally:  # it may have been granted though it failed: then it is given back when wanted
            self._teller.watch(self)
        self.spent = balance.spent
        self._booked_then = self.booked
        if balance.granted:
            self._seen = began
            self._grant(balance.granted)
        return balance

    def _grant(self, amount: Decimal) -> None:
        self._granted += amount
        granted = int(self._granted) if self.name == "calls" else self._granted
        self._budget.budget = replace(self._budget.budget, **{self.name: granted})

    async def give_back(self) -> None:
        """Give back what is reserved for no call."""
        async with self._asking:
            await self._give_back()

    async def _give_back(self) -> None:
        self.forfeit()
        await asyncio.to_thread(
            self._teller.accounts.keep, self.account, self._granted - self.booked
        )

    def see(self, at: float) -> None:
        """Note that the slice was there, at a time by the monotonic clock."""
        self._seen = max(self._seen, at)

    def forfeit(self) -> None:
        """Forget what is reserved for no call: others may have it, as if this process were dead."""
        if self._idle > 0:
            self._grant(-self._idle)


class SharedBudget(RunBudget):
    """A budget of several processes. Its limits are what this process has reserved.

    Args:
        limits: what all processes may spend together: ``dollars``, ``calls`` or both.
        name: names its accounts: that of dollars itself, and ``NAME/calls``.
        teller: gets the money.

    Attributes:
        slices: what this process has of each account.
    """

    def __init__(self, limits: Budget, name: str, teller: Teller) -> None:
        super().__init__(Budget())
        self._bill = uuid4().hex
        accounts: dict[Limit, str] = {"dollars": name, "calls": f"{name}/calls"}
        self.slices: dict[Limit, Slice] = {}
        for limit, account in accounts.items():
            amount = getattr(limits, limit)
            if amount is not None:
                self.slices[limit] = Slice(self, limit, account, Decimal(amount), teller)

    async def make_room(self, most: Usage = Usage()) -> None:  # noqa: B008 - it is frozen
        """Reserve more if a call needs it, and wait for what other calls may leave.

        Raises:
            JournalError: the store failed.
        """
        began = time.monotonic()
        while True:
            lacking = self._find_lacking(most)
            if lacking is None:
                return
            # What is granted is taken in, even if the request is cancelled meanwhile.
            asking = asyncio.create_task(lacking.ask(lacking.needed_for(most)))
            asking.add_done_callback(_take_note)
            reply = await asyncio.shield(asking)
            if reply is SliceReply.REFUSED:
                return
            # A call counts from its beginning, so those under way leave nothing: what is waited for
            # is what others have reserved for later. One of theirs may wait for an answer of ours.
            is_late = time.monotonic() - began > _CALLS_WAIT_S
            if reply is SliceReply.NOT_YET and lacking.name == "calls" and is_late:
                return

    def _find_lacking(self, most: Usage) -> Slice | None:
        """Return a slice without room for a call."""
        for reserved in self.slices.values():
            if not reserved.has_room(reserved.needed_for(most)):
                return reserved
        return None

    def book(self, *, closed: bool = False) -> None:
        """Charge the accounts what this process has used, on one bill (``closed``: for good).

        Keys are charged by the episode instead, which also charges what a cancelled call may cost.
        """
        for reserved in self.slices.values():
            reserved.book(self._bill, closed=closed)

    def check_used(self) -> None:
        """Check that no more is used than all processes may.

        Raises:
            BudgetExceeded: more dollars were used.
        """
        dollars = self.slices.get("dollars")
        if dollars is not None and dollars.is_passed:
            raise self.exceeded("dollars")

    def has_room_for(self, calls: Sequence[Usage]) -> bool:
        """Return True if these calls may fit, as far as is known here."""
        for reserved in self.slices.values():
            needed = sum((reserved.needed_for(most) for most in calls), Decimal(0))
            if reserved.spent + needed > reserved.limit:
                return False
        return True

    def exceeded(self, limit: Limit) -> BudgetExceeded:
        """Return the error for a limit that leaves no room for a call."""
        reserved = self.slices.get(limit)
        if reserved is None:
            return super().exceeded(limit)
        message = (
            f"{self.owner} has no room for another call: all processes together used "
            f"{reserved.spent:f} of {reserved.limit:f} {limit}; raise "
            f"{self.option.format(limit=limit)}"
        )
        return BudgetExceeded(message, limit=limit, meter=self)

    def _lacks_room(
        self, limit: Limit, most: Usage, left: int | Decimal, worker: str
    ) -> BudgetExceeded:
        return self.exceeded(limit)


def _take_note(asking: asyncio.Task[SliceReply]) -> None:
    """Look at an error, which asyncio reports if who asked has left."""
    if not asking.cancelled():
        asking.exception()


class Teller:
    """Gets money for the budgets of this process, and gives back what others want.

    Args:
        accounts: the accounts that processes share.
        cost: returns what the stored calls of an episode cost.
    """

    def __init__(self, accounts: Accounts, cost: Callable[[str], Decimal]) -> None:
        self.accounts = accounts
        self._cost = cost
        self._unopened: dict[str, Decimal] = {}
        self._watched: dict[str, Slice] = {}
        self._task: asyncio.Task[None] | None = None
        self._settled = -_SETTLE_S  # by the monotonic clock

    def open_later(self, account: str, spent: Decimal) -> None:
        """Open an account when it is first used; so much was spent of it before."""
        self._unopened[account] = spent

    async def reserve(self, account: str, limit: Decimal, amount: Decimal) -> Balance:
        """Reserve a slice of at least so much (``Accounts.reserve``).

        Raises:
            JournalError: the store failed.
        """
        spent = self._unopened.get(account)
        if spent is not None:
            await asyncio.to_thread(self.accounts.open, account, spent)
            self._unopened.pop(account, None)
        return await asyncio.to_thread(self.accounts.reserve, account, limit, amount)

    def stop(self) -> None:
        """Look after no slice any more."""
        if self._task is not None:
            self._task.cancel()

    def watch(self, reserved: Slice) -> None:
        """Give back what a slice does not need, from now on, when others want it."""
        self._watched[reserved.account] = reserved
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def settle_dead(self) -> None:
        """Charge the episodes of dead processes, and take back their money, every few seconds."""
        now = time.monotonic()
        if now - self._settled > _SETTLE_S:
            self._settled = now
            await asyncio.to_thread(self.accounts.settle_dead, self._cost)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_POLL_S)
            with suppress(JournalError):  # the next request that needs the store tells of it
                await self._look()
                await self.settle_dead()

    async def _look(self) -> None:
        began = time.monotonic()
        wanted = await asyncio.to_thread(self.accounts.watch, list(self._watched))
        for account, reserved in list(self._watched.items()):
            if account not in wanted:
                reserved.forfeit()
                continue
            reserved.see(began)
            if wanted[account]:
                await reserved.give_back()
