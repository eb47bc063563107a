"""The protocol that every store conforms to, and the values that it returns.

A store has three roles. It takes in the events of episodes (``EventSink``), it finds completions
that were paid for (``CompletionStore``), and it keeps records by key (``RecordReader`` and
``Store.put_record``). What it took in is read back as episodes and sums (``EpisodeReader``).
``Store`` is all of them together; ``StoreReader`` is a store that is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

from openconductor.errors import RateLimited
from openconductor.events import Event
from openconductor.types import Call, Completion, Episode, Usage, Workflow

if TYPE_CHECKING:
    from openconductor.store.overview import EpisodeFilter, EpisodeLine, WorkerLine

SUCCESSES = frozenset({"answered", "cut", "refused"})
"""Outcomes of a call whose completion arrived, so that it need not be paid for again."""

LATEST_CALLS = 1_000
"""The calls that a worker's health is told by."""

SERVED = "serve/"
"""Prefix of the key of a served episode's record; its id follows."""

SHOWN = "response/"
"""Prefix of the record with what else was shown of an episode; the id follows. Both go together."""

EpisodeOutcome = Literal["answered", "failed", "unfinished"]


# ── values ────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class StoredCall(Call):
    """An attempt at a call, with its place. Without content it has no messages and no completion.

    Attributes:
        episode: the episode's id.
        round: 0-based round.
        step: 0-based step; None: the Conductor's own call.
        key: names the call (``call_key``); None: the beginning of its episode was not stored.
        request_hash: the digest of messages and sampling.
    """

    _: KW_ONLY
    episode: str
    round: int
    step: int | None
    key: str | None
    request_hash: str


@dataclass(frozen=True, slots=True)
class StoredEpisode(Episode):
    """An episode as a store returns it. Without content its texts are empty or None.

    An unfinished episode is still running, or its process was killed or its asking cancelled. The
    round that was open then holds the calls that have ended, and a workflow of the steps that they
    belong to (worker -1: unknown).

    Attributes:
        sample: tells repeats of the same question apart.
        started: seconds since 1970; None: its beginning was not stored.
        outcome: ``answered``, ``failed`` or ``unfinished``.
        workers: the names of its workers, by ordinal.
    """

    _: KW_ONLY
    sample: int = 0
    started: float | None = None
    outcome: EpisodeOutcome = "unfinished"
    workers: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def calls(self) -> list[Call]:
        """All attempts, round by round: at the planning, then at each step."""
        calls: list[Call] = []
        for played in self.rounds:
            calls += played.calls
            if played.transcript is not None:
                for result in played.transcript.results:
                    calls += result.calls
        return calls


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A value that was kept under a key.

    Attributes:
        key: names the record; of several under one key the last counts.
        value: JSON's own types; tuples come back as lists.
        written: seconds since 1970.
    """

    key: str
    value: Mapping[str, Any]
    written: float


@dataclass(frozen=True, slots=True)
class Spending:
    """A number of calls, and their usage."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.calls + other.calls, self.usage + other.usage)


@dataclass(frozen=True, slots=True)
class Totals:
    """Spending: all, by the worker's name, and by the call's outcome; without replayed calls."""

    spent: Spending
    by_worker: Mapping[str, Spending]
    by_outcome: Mapping[str, Spending]

    @property
    def counted(self) -> Spending:
        """All spending; attempts that a server rejected for their rate are not counted as calls."""
        rejected = self.by_outcome.get(RateLimited.outcome, Spending())
        return Spending(self.spent.calls - rejected.calls, self.spent.usage)


# ── roles ─────────────────────────────────────────────────────────────────────────────────────────
class EventSink(Protocol):
    """Takes in the events of episodes; it is passed as ``on_event``."""

    def __call__(self, event: Event) -> None:
        """Take in an event, without waiting for a disk or a network.

        Raises:
            JournalError: the store has failed, or is closed.
        """
        ...

    async def wait_durable(self) -> None:
        """Wait until everything that was handed over before is durable.

        Raises:
            JournalError: that failed, or the store is closed.
        """
        ...


class CompletionStore(Protocol):
    """Finds the completions of calls that were paid for."""

    def find_completion(self, key: str) -> Completion | None:
        """Return the completion of the first call of this key that succeeded. None: unknown.

        Only a completion that is kept exactly as it came is returned, and none that was itself
        replayed.
        """
        ...


@runtime_checkable
class CallClaims(Protocol):
    """Gives each call to one caller at a time; a store that several processes share has it."""

    async def claim(self, key: str) -> Completion | None:
        """Return the completion of this key, or None: the caller makes the call, then releases it.

        While another caller makes the call, it waits for the answer.

        Raises:
            JournalError: the store has failed, or is closed.
        """
        ...

    def release(self, key: str) -> None:
        """Give a claimed call back, once what was handed over before is durable."""
        ...


class ClaimedRecords(NamedTuple):
    """The answer to a claim of records: the keys that were claimed, and those of kept records."""

    claimed: Sequence[str]
    kept: Sequence[str]


@runtime_checkable
class RecordClaims(Protocol):
    """Gives each record to one process to make; a store that several processes share has it."""

    def claim_records(self, keys: Sequence[str], limit: int) -> ClaimedRecords:
        """Claim records that nobody has kept and no other living process makes.

        A claim ends with ``release``, with the store, or some time after its process was last
        heard of.

        Args:
            keys: of the records, in the order in which they are wanted.
            limit: the most claims.

        Raises:
            JournalError: the store has failed, or is closed.
        """
        ...

    def release(self, key: str) -> None:
        """Give a claimed record back, once what was handed over before is durable."""
        ...


class Balance(NamedTuple):
    """The state of an account, in US dollars.

    Attributes:
        granted: what this process was granted just now; 0: there was not enough.
        spent: what was charged, by all processes.
    """

    granted: Decimal
    spent: Decimal


class Accounts(Protocol):
    """Keeps the money of accounts that several processes spend.

    A process reserves a slice of what is left, and spends it without asking again. What it does not
    need it gives back when another one wants it. The slices of a dead process come back.
    """

    def open(self, account: str, spent: Decimal) -> None:
        """Open an account of which so much was spent before; one that is there stays as it is."""
        ...

    def reopen(self, account: str, spent: Callable[[], Decimal]) -> None:
        """Open an account of which so much was spent before, unless a living process spends it.

        One that is there and that nobody spends is set to that amount.

        Args:
            account: the account.
            spent: returns the amount; meanwhile nobody can reserve anything.
        """
        ...

    def spent(self, account: str) -> Decimal | None:
        """Return what was charged to an account. None: there is none."""
        ...

    def reserve(self, account: str, limit: Decimal, dollars: Decimal) -> Balance:
        """Reserve a slice of at least ``dollars``; if there is none, ask the others for theirs.

        Args:
            account: the account.
            limit: what may be charged and reserved together.
            dollars: the least that is needed.
        """
        ...

    def keep(self, account: str, dollars: Decimal) -> None:
        """Keep at most ``dollars`` of this process's slice, and give back the rest.

        Not before what was charged until now is durable. What was granted and never heard of,
        because the connection was lost, is given back, too.
        """
        ...

    def watch(self, accounts: Sequence[str]) -> Mapping[str, bool]:
        """Return the accounts of which this process has a slice: True if others want some of it."""
        ...

    def charge(self, account: str, episode: str, total: Decimal, *, closed: bool) -> None:
        """Charge an episode ``total`` US dollars in all; durable as events are.

        If this process dies before it is closed, the episode is charged at least what its calls in
        the store cost (``settle_dead``). What was charged is never refunded.
        """
        ...

    def settle_dead(self, cost: Callable[[str], Decimal]) -> None:
        """Charge the open episodes of dead processes, and take back their slices.

        Args:
            cost: returns what the stored calls of an episode cost.
        """
        ...

    def count_request(self, account: str, limit: int) -> float:
        """Count a request, unless ``limit`` of them were counted in the last minute.

        Returns:
            0.0 if it was counted, or else the seconds until the next one may be.
        """
        ...


@runtime_checkable
class AccountStore(Protocol):
    """A store with accounts, because several processes share it.

    Its methods and those of ``accounts`` raise JournalError.
    """

    @property
    def accounts(self) -> Accounts:
        """The accounts in the store."""
        ...


class RecordReader(Protocol):
    """Reads the records that were kept by key."""

    def find_record(self, key: str) -> Mapping[str, Any] | None:
        """Return the last value of this key. None: unknown."""
        ...

    def find_history(self, key: str) -> Sequence[Mapping[str, Any]]:
        """Return all values of this key, the last one last."""
        ...

    def records(self, *, history: bool = False) -> Iterator[StoredRecord]:
        """Return the last record of each key, in the order of writing; with ``history`` all."""
        ...


RecordChange = Callable[[Mapping[str, Any] | None], Mapping[str, object]]
"""Returns the new value of a record; it gets the one before, or None if there is none."""


@runtime_checkable
class RecordStore(RecordReader, Protocol):
    """Keeps records that any process may change, beside the one that writes the store."""

    def change_record(self, key: str, change: RecordChange) -> None:
        """Replace a record by what ``change`` makes of it, in one step among all processes.

        It holds no content, and is durable when this returns. What ``change`` raises is raised, and
        the record stays.

        Raises:
            JournalError: the store cannot be written.
        """
        ...


class EpisodeReader(Protocol):
    """Reads the episodes that were taken in, and sums over their calls."""

    def episodes(
        self,
        *,
        before: str | None = None,
        limit: int | None = 50,
        outcome: EpisodeOutcome | None = None,
        text: str | None = None,
    ) -> Sequence[StoredEpisode]:
        """Return episodes, the latest first.

        Args:
            before: the id of an episode; only those that began before it.
            limit: the most episodes; None: all.
            outcome: only those with this outcome.
            text: only those whose question or answer contains this text (ASCII in any case).
        """
        ...

    def episode(self, identifier: str, *, rounds: bool = True) -> StoredEpisode | None:
        """Return the episode of this id. None: unknown.

        Without ``rounds`` it has none, which spares reading its steps and calls.
        """
        ...

    def lines(
        self, chosen: EpisodeFilter | None = None, *, offset: int = 0, limit: int = 50
    ) -> Sequence[EpisodeLine]:
        """Return a page of a list of episodes, a line for each.

        Args:
            chosen: chooses and sorts the episodes; None: all, the latest first.
            offset: how many episodes come before the page.
            limit: the most lines.
        """
        ...

    def workers(self, *, latest: int = LATEST_CALLS) -> Sequence[WorkerLine]:
        """Return a line for each worker that the latest calls were made of."""
        ...

    def workflows(self) -> Iterator[tuple[int, int, Workflow]]:
        """Return the valid workflows that have steps, in the order of their episodes.

        Each comes with its episode's number (from 1, in the order in which they began) and the last
        episode's. Without content there are none.
        """
        ...

    def totals(self) -> Totals:
        """Add up what was paid for, to the token and to the last digit of a dollar."""
        ...


class StoreReader(CompletionStore, RecordReader, EpisodeReader, Protocol):
    """A store that is only read; a context manager. Methods raise JournalError."""

    def close(self) -> None:
        """Release what the store holds; closing twice is allowed."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: object, /
    ) -> bool | None: ...


class Store(EventSink, StoreReader, Protocol):
    """A store that is written and read. Reading returns what is durable.

    Attributes:
        keeps_texts: False: no content is kept.
    """

    keeps_texts: bool

    def put_episode(self, events: Sequence[Event]) -> None:
        """Take in all events of an episode at once, as ``__call__`` takes each.

        Raises:
            JournalError: the store has failed, or is closed.
        """
        ...

    def put_record(self, key: str, value: Mapping[str, object], *, texts: bool = True) -> None:
        """Keep a value under a key; it is durable after ``wait_durable`` or ``flush``.

        Args:
            key: names the record; a later record of the same key replaces this one.
            value: JSON's own types.
            texts: False: the value holds no content, so it is kept even where content is not.

        Raises:
            JournalError: the store has failed, is closed, or keeps no content and was given some.
        """
        ...

    def remove_texts(self, episode: str, *, records: Sequence[str] = ()) -> None:
        """Remove the texts of an episode, and all records of some keys. Its numbers stay.

        Raises:
            JournalError: the store has failed, or is closed.
        """
        ...

    def flush(self) -> None:
        """Wait as ``wait_durable`` does, blocking the thread.

        Raises:
            JournalError: that failed, or the store is closed.
        """
        ...


@runtime_checkable
class SharedStore(Store, RecordClaims, Protocol):
    """A store that several processes write, which share the making of its records."""
