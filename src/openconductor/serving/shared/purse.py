"""The money of one key in one period: all of it in this process, or shared with other replicas.

Where replicas share a store, the store holds the account. Each replica reserves slices of what is
left, and spends them without a round trip; it gives back what it does not need as soon as another
one wants it. So a request is refused only if its call does not fit into what all of them leave.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal

from openconductor.calls.budget import RunBudget
from openconductor.errors import JournalError
from openconductor.store import Accounts
from openconductor.types import Budget, Usage

_POLL_S = 0.1  # between two looks at what others want, or leave
_SETTLE_S = 5.0  # between two looks for dead replicas
_TRUSTED_S = 15.0  # for which a slice counts as ours since it was last seen: half of its lease


class Purse:
    """The money of a key that one process has for itself.

    Attributes:
        end: of the period, in seconds since 1970.
        budget: pays for calls; None: unlimited.
    """

    def __init__(self, end: float, spent: Decimal, limit: Decimal | None) -> None:
        self.end = end
        self._spent = spent
        self.budget: RunBudget | None = None
        if limit is not None:
            self.budget = RunBudget(Budget(dollars=limit))
            self.budget.add(dollars=spent)

    @property
    def spent(self) -> Decimal:
        """US dollars that were spent, as far as this process knows."""
        return self._spent

    def add(self, dollars: Decimal) -> None:
        """Add what a call cost."""
        self._spent += dollars

    def book(self, episode: str, total: Decimal, *, closed: bool = False) -> None:
        """Book what an episode cost until now, where other processes have to know."""


class SharedPurse(Purse):
    """The money of a key that replicas share.

    Args:
        end: of the period, in seconds since 1970.
        account: names the key and its period.
        limit: US dollars that all replicas may spend.
        teller: gets the money.
    """

    def __init__(self, end: float, account: str, limit: Decimal, teller: Teller) -> None:
        super().__init__(end, Decimal(0), None)
        self._account = account
        self._accounts = teller.accounts
        self._shared = SharedBudget(account, limit, teller)
        self.budget = self._shared

    @property
    def spent(self) -> Decimal:
        """US dollars that all replicas had spent when this one last asked for more."""
        return self._shared.spent

    def add(self, dollars: Decimal) -> None:
        """Add what a call cost."""
        self._shared.booked += dollars

    def book(self, episode: str, total: Decimal, *, closed: bool = False) -> None:
        """Charge the account."""
        self._accounts.charge(self._account, episode, total, closed=closed)


class SharedBudget(RunBudget):
    """The budget of a key that replicas share. Its limit is what this replica has reserved.

    Args:
        account: names the key and its period.
        limit: US dollars that all replicas may spend.
        teller: gets the money.

    Attributes:
        spent: what all have spent, when it was last heard of.
        booked: what this replica has charged the account. It is less than ``used`` while a call
            runs whose own calls have ended: an orchestrator's, which is charged as a whole.
    """

    def __init__(self, account: str, limit: Decimal, teller: Teller) -> None:
        super().__init__(Budget(dollars=Decimal(0)))
        self.spent = Decimal(0)
        self.booked = Decimal(0)
        self.account = account
        self._limit = limit
        self._teller = teller
        self._granted = Decimal(0)
        self._seen = -_TRUSTED_S  # by the monotonic clock, when the slice was there
        self._asking = asyncio.Lock()

    async def make_room(self, most: Usage = Usage()) -> None:  # noqa: B008 - it is frozen
        """Reserve a larger slice if a call needs it, and wait for what other calls may leave.

        Raises:
            JournalError: the store failed.
        """
        if self._limit == 0:  # it pays for what is free
            return
        if self._has_room(most):
            return
        while not self._has_room(most):
            # What is granted is taken in, even if the request is cancelled meanwhile.
            asking = asyncio.create_task(self._ask_in_turn(most))
            asking.add_done_callback(_take_note)
            if not await asyncio.shield(asking):
                return

    def has_room_for(self, calls: Sequence[Usage]) -> bool:
        """Return True if these calls may fit, as far as is known here."""
        together = sum((most.dollars for most in calls), Decimal(0))
        return self.spent + together <= self._limit

    def _has_room(self, most: Usage) -> bool:
        if time.monotonic() - self._seen > _TRUSTED_S:
            self.forfeit()
        return self._idle >= most.dollars and self._granted > self.used["dollars"]

    @property
    def _idle(self) -> Decimal:
        """Dollars that are reserved for no call."""
        return self._granted - self.used["dollars"] - self.reserved["dollars"]

    async def _ask_in_turn(self, most: Usage) -> bool:
        async with self._asking:
            return self._has_room(most) or await self._ask(most)

    async def _ask(self, most: Usage) -> bool:
        """Ask for room for a call, or wait a while for it. Return False if there will be none."""
        accounts = self._teller.accounts
        began = time.monotonic()
        needed = max(Decimal(0), most.dollars - self._idle)
        try:
            balance = await asyncio.to_thread(accounts.reserve, self.account, self._limit, needed)
        finally:  # it may have been granted though it failed: then it is given back when wanted
            self._teller.watch(self)
        self.spent = balance.spent
        if balance.granted:
            self._seen = began
            self._grant(balance.granted)
            return True
        await self._give_back()  # or two replicas would keep what each of them needs
        left = self._limit - balance.spent
        if left <= 0 or left < most.dollars:
            return False
        await self._teller.settle_dead()
        await asyncio.sleep(_POLL_S)
        return True

    def _grant(self, dollars: Decimal) -> None:
        self._granted += dollars
        self.budget = Budget(dollars=self._granted)

    async def give_back(self) -> None:
        """Give back what is reserved for no call."""
        async with self._asking:
            await self._give_back()

    async def _give_back(self) -> None:
        self.forfeit()
        kept = self._granted - self.booked
        await asyncio.to_thread(self._teller.accounts.keep, self.account, kept)

    def see(self, at: float) -> None:
        """Note that the slice was there, at a time by the monotonic clock."""
        self._seen = max(self._seen, at)

    def forfeit(self) -> None:
        """Forget what is reserved for no call: others may have it, as if this replica were dead."""
        if self._idle > 0:
            self._grant(-self._idle)


def _take_note(asking: asyncio.Task[bool]) -> None:
    """Look at an error, which asyncio reports if who asked has left."""
    if not asking.cancelled():
        asking.exception()


class Teller:
    """Gets money for the keys of this replica, and gives back what others want.

    Args:
        accounts: the accounts that replicas share.
        cost: returns what the stored calls of an episode cost.
    """

    def __init__(self, accounts: Accounts, cost: Callable[[str], Decimal]) -> None:
        self.accounts = accounts
        self._cost = cost
        self._watched: dict[str, SharedBudget] = {}
        self._task: asyncio.Task[None] | None = None
        self._settled = -_SETTLE_S  # by the monotonic clock

    def watch(self, budget: SharedBudget) -> None:
        """Give back what a budget does not need, from now on, when others want it."""
        self._watched[budget.account] = budget
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def settle_dead(self) -> None:
        """Charge the episodes of dead replicas, and take back their money, every few seconds."""
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
        for account, budget in list(self._watched.items()):
            if account not in wanted:
                budget.forfeit()
                continue
            budget.see(began)
            if wanted[account]:
                await budget.give_back()
