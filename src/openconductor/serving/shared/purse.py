"""The money of a key in one period: all of it in this process, or shared with other replicas.

Where replicas share a store, the store holds the account of the key (``calls.shared_budget``).
"""

from __future__ import annotations

from decimal import Decimal

from openconductor.calls.budget import RunBudget
from openconductor.calls.shared_budget import SharedBudget, Teller
from openconductor.types import Budget


class Purse:
    """The money of a key that one process has for itself.

    Args:
        account: names the key and its period.
        end: of the period, in seconds since 1970.
        spent: US dollars that were spent before.
        limit: US dollars that may be spent; None: as many as one likes.

    Attributes:
        account, end: as in the arguments.
        budget: pays for calls; None: unlimited.
    """

    def __init__(self, account: str, end: float, spent: Decimal, limit: Decimal | None) -> None:
        self.account = account
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

    def allow(self, limit: Decimal) -> None:
        """Change what may be spent; calls under way are paid from it, too."""
        if self.budget is not None:
            self.budget.budget = Budget(dollars=limit)

    def add(self, dollars: Decimal) -> None:
        """Add what a call cost."""
        self._spent += dollars

    def book(self, episode: str, total: Decimal, *, closed: bool = False) -> None:
        """Book what an episode cost until now, where other processes have to know."""


class SharedPurse(Purse):
    """The money of a key that replicas share.

    Args:
        account: names the key and its period.
        end: of the period, in seconds since 1970.
        spent: US dollars that were spent before there was an account.
        limit: US dollars that all replicas may spend.
        teller: gets the money.
    """

    def __init__(
        self, account: str, end: float, spent: Decimal, limit: Decimal, teller: Teller
    ) -> None:
        super().__init__(account, end, spent, None)
        self._accounts = teller.accounts
        budget = SharedBudget(Budget(dollars=limit), account, teller)
        self._slice = budget.slices["dollars"]
        self._slice.spent = spent
        self.budget = budget
        teller.open_later(account, spent)

    @property
    def spent(self) -> Decimal:
        """US dollars that all replicas had spent when this one last asked for more."""
        return self._slice.spent

    def allow(self, limit: Decimal) -> None:
        """Change what may be spent; calls under way are paid from it, too."""
        self._slice.limit = limit

    def add(self, dollars: Decimal) -> None:
        """Add what a call cost."""
        self._slice.booked += dollars

    def book(self, episode: str, total: Decimal, *, closed: bool = False) -> None:
        """Charge the account."""
        self._accounts.charge(self.account, episode, total, closed=closed)


class Purses:
    """Keeps the money of all keys of a process, by their names.

    A new key of a name that was revoked has what the old one left.

    Args:
        teller: gets the money where replicas share it. None: this process has all.
    """

    def __init__(self, teller: Teller | None = None) -> None:
        self.teller = teller
        self._purses: dict[str, Purse] = {}  # the last of each key, by its name

    def is_open(self, key: str, account: str) -> bool:
        """Return True if this process holds the account of a key."""
        return key in self._purses and self._purses[key].account == account

    def open(
        self, key: str, account: str, end: float, spent: Decimal, limit: Decimal | None
    ) -> Purse:
        """Return the money of a key, by its name; the other arguments are those of a purse."""
        if limit is None:
            return Purse(account, end, spent, None)
        if self.is_open(key, account):
            purse = self._purses[key]
            purse.allow(limit)
        elif self.teller is None:
            purse = Purse(account, end, spent, limit)
        else:
            purse = SharedPurse(account, end, spent, limit, self.teller)
        self._purses[key] = purse
        return purse
