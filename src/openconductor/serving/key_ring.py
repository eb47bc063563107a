"""Who may ask what, how often, and for how much: API keys and their purses.

In: the keys of a ServeConfig, a journal that says what was spent before, the headers of a request.
Out: a Tenant, and a Tab for each request; a RequestFailed for those that may not.

- **Keys.** Only hashes are kept, and none is ever shown.
- **Money.** The requests of a key share a purse: each call reserves the most that it may cost, and settles when it has
  ended. A call that was broken off, and whose cost nobody reports, is charged the most that it could have cost: else
  breaking off would be a way to work for nothing.
- **Periods.** A request belongs to the period in which it began. Time does not run backwards here: where the clock
  does, time stands still until the clock has come back, so that no purse is filled twice. What earlier processes spent
  counts from its period on, and before it, too: where the clock was set back meanwhile, nothing is given back.

Not covered: several processes on one journal; calls that were under way when a process was killed;
what a broken-off call wrote where neither its worker nor its request has a limit of tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from openconductor.calls.budget import RunBudget
from openconductor.calls.options import guess_tokens
from openconductor.errors import OpenConductorError
from openconductor.events import CallEnded, Event
from openconductor.serving.apis.wire import Control, RequestFailed, failed, invalid, least
from openconductor.serving.serve_config import DIRECT, KeyTable
from openconductor.store import StoredEpisode, StoreReader
from openconductor.types import Budget, Call, Usage

SERVED = "serve/"
"""How the journal's key of a served episode begins; its id follows."""
LIMITS = ("max_steps", "max_rounds", "max_calls", "max_tokens", "max_dollars", "max_seconds")
"""What a key may limit of each request, under the names that requests have for it."""
_MINUTE_S = 60.0
_SOON_S = 1.0  # when a request may have ended that is in the way

Past = tuple[float, Decimal]
"""What an earlier request cost, and when it began, in seconds since 1970."""
Clock = Callable[[], float]


def new_key() -> tuple[str, str]:
    """A new key, and the hash of it that a config holds."""
    key = f"oc-{secrets.token_urlsafe(32)}"
    return key, hash_key(key)


def hash_key(key: str) -> str:
    """What is kept of a key."""
    return f"sha256:{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()}"


def cost_of(call: Call) -> Decimal:
    """What a key is charged for a call, in US dollars: its price, or the most that it could be where nobody says."""
    if call.replayed:
        return Decimal(0)
    if not call.usage.unpriced_calls or call.price is None:
        return call.usage.dollars
    read, written = guess_tokens(call.messages, call.sampling)
    return call.usage.dollars + call.price.dollars(Usage(read, 0, written))


def past_charges(
    journal: StoreReader, since: Mapping[str, float]
) -> Iterator[tuple[str, float, Decimal]]:
    """What requests of these keys have cost that began at these times (seconds since 1970) or later.

    A request that never ended, because its process was killed, costs what its calls in the journal
    do.

    Returns:
        The key's name, when the request began, and its dollars, for each.
    """
    for key, record in (
        (one.key, one.value) for one in journal.records() if one.key.startswith(SERVED)
    ):
        name, began, charged = record["key"], record["began"], record["charged"]
        if name in since and began >= since[name]:
            calls = (
                () if charged is not None else _calls_of(journal.episode(key.removeprefix(SERVED)))
            )
            yield name, began, Decimal(charged or 0) + sum(map(cost_of, calls), Decimal(0))


def _calls_of(episode: StoredEpisode | None) -> Iterator[Call]:
    for played in () if episode is None else episode.rounds:
        yield from played.calls
        for result in () if played.transcript is None else played.transcript.results:
            yield from result.calls


def period_at(now: float, key: KeyTable) -> tuple[float, float]:
    """When the period of a key began that ``now`` is in, and when it ends; all in seconds since 1970."""
    if key.period == "total":
        return -math.inf, math.inf
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if key.period == "day":
        return day.timestamp(), (day + timedelta(days=1)).timestamp()
    month = day.replace(day=1)
    return month.timestamp(), (month + timedelta(days=32)).replace(day=1).timestamp()


@dataclass(slots=True, eq=False)
class _Account:
    """The money of one period: until when it counts, what is spent of it, and who guards it (None: nobody)."""

    end: float
    spent: Decimal
    budget: RunBudget | None


class Tab:
    """What one request is charged; hand it every event, for as long as it runs.

    Attributes:
        key: the table of the key.
        began: when it began, in seconds since 1970: to be kept with ``charged``, for it names the
            period.
        budget: pays for its calls (``CallContext.budget``); None: nothing limits it.
        charged: US dollars until now.
    """

    def __init__(self, key: KeyTable, account: _Account, began: float) -> None:
        self.began = began
        self.budget = account.budget
        self.charged = Decimal(0)
        self.key = key
        self._account = account

    def hear(self, event: Event) -> None:
        """Charge the call that has ended, if one has.

        Of one that is an orchestrator itself nothing but its own end is ever told, so nothing
        counts twice.
        """
        if isinstance(event, CallEnded) and not event.call.replayed:
            dollars = cost_of(event.call)
            self.charged += dollars
            self._account.spent += dollars
            if self.budget is not None:  # which has been charged what is known
                self.budget.add(dollars=dollars - event.call.usage.dollars)

    def failed(self, error: OpenConductorError) -> RequestFailed:
        """The failure that an error of the episode is, for the client: the end of the key's money among them."""
        if self.budget is not None and self.budget.ended_in(error):
            return _no_money(self.key, self._account)
        return failed(error)


class Tenant:
    """A key and what it may do, for all its requests together.

    Args:
        key: its table.
        past: what its earlier requests cost, from the beginning of the period on.
        clock: seconds since 1970.
        ticks: seconds that never jump.
    """

    def __init__(self, key: KeyTable, past: Iterable[Past], clock: Clock, ticks: Clock) -> None:
        self._key = key
        self._clock = clock
        self._ticks = ticks
        self._recent: deque[float] = deque()  # the beginnings of the last minute's requests
        self._inside = 0
        self._now = clock()
        self._later = list(past)
        self._account = self._open_account()

    @property
    def name(self) -> str:
        """The key's; "" where the server asks for no key."""
        return self._key.name

    def may_ask(self, model: str) -> bool:
        """Whether the key allows a model, and the worker that it is."""
        models, workers = self._key.models, self._key.workers
        hidden = (
            workers is not None
            and model.startswith(DIRECT)
            and model.removeprefix(DIRECT) not in workers
        )
        return not hidden and (models is None or model in models)

    def limited(self, control: Control) -> Control:
        """What a request says of its orchestration within the key's limits: of two limits the lower, and no others.

        Raises:
            RequestFailed: it asks only for workers that the key does not allow.
        """
        told: dict[str, object] = {
            name: least(getattr(self._key, name), getattr(control, name)) for name in LIMITS
        }
        if (allowed := self._key.workers) is not None:
            wanted = allowed if control.workers is None else control.workers
            told["workers"] = [name for name in allowed if name in wanted]
            if not told["workers"]:
                raise invalid(
                    "conductor.workers", f"got {wanted}, expected some of {', '.join(allowed)}"
                )
        return control.model_copy(update=told)

    @contextmanager
    def enter(self) -> Generator[Tab]:
        """Take a place for one request, for as long as it runs.

        Raises:
            RequestFailed: the key's money is spent, or it has too many requests, at once or in the
                last minute.
        """
        self._now = max(self._now, self._clock())
        if self._now >= self._account.end:
            self._account = self._open_account()
        key, account, now = self._key, self._account, self._ticks()
        if (
            key.dollars and account.spent >= key.dollars
        ):  # of no dollars at all, calls that are free are made
            raise _no_money(key, account)
        while self._recent and self._recent[0] <= now - _MINUTE_S:
            self._recent.popleft()
        if key.rpm is not None and len(self._recent) >= key.rpm:
            raise _too_many(f"{key.rpm} requests a minute", self._recent[0] + _MINUTE_S - now)
        if key.concurrency is not None and self._inside >= key.concurrency:
            raise _too_many(f"{key.concurrency} requests at once", _SOON_S)
        if key.rpm is not None:
            self._recent.append(now)
        self._inside += 1
        try:
            yield Tab(key, account, self._now)
        finally:
            self._inside -= 1

    def _open_account(self) -> _Account:
        """That of the period that it is now."""
        dollars, (start, end) = self._key.dollars, period_at(self._now, self._key)
        spent = sum((cost for began, cost in self._later if began >= start), Decimal(0))
        self._later = [
            one for one in self._later if one[0] >= end
        ]  # from where the clock was before it was set back
        budget = None
        if dollars is not None:
            budget = RunBudget(Budget(dollars=dollars))
            budget.add(dollars=spent)
        return _Account(end, spent, budget)


class KeyRing:
    """All keys of a server.

    Args:
        keys: their tables; none lets everyone in, as the tenant "".
        journal: where earlier requests are kept; None is nowhere.
        clock: seconds since 1970.
        ticks: seconds that never jump.

    Raises:
        JournalError: the journal cannot be read.
    """

    def __init__(
        self,
        keys: Sequence[KeyTable],
        journal: StoreReader | None = None,
        *,
        clock: Clock = time.time,
        ticks: Clock = time.monotonic,
    ) -> None:
        now, past = clock(), defaultdict[str, list[Past]](list)
        since = {key.name: period_at(now, key)[0] for key in keys if key.dollars is not None}
        for name, began, dollars in (
            past_charges(journal, since) if journal is not None and since else ()
        ):
            past[name].append((began, dollars))
        self._tenants = [(key.hash, Tenant(key, past[key.name], clock, ticks)) for key in keys]
        self._anyone = None if keys else Tenant(KeyTable("", ""), (), clock, ticks)

    def find(self, headers: Mapping[str, str]) -> Tenant:
        """Whose key a request brings, as ``Authorization: Bearer`` or as ``x-api-key``.

        Args:
            headers: by their names in lower case.

        Raises:
            RequestFailed: it brings none that is known.
        """
        if self._anyone is not None:
            return self._anyone
        scheme, _, bearer = headers.get("authorization", "").strip().partition(" ")
        brought = (
            bearer.strip() if scheme.lower() == "bearer" else "",
            headers.get("x-api-key", "").strip(),
        )
        found: Tenant | None = None
        for digest in map(hash_key, filter(None, brought)):
            for known, tenant in self._tenants:  # all of them, so that the time says nothing
                if hmac.compare_digest(known, digest):
                    found = found or tenant
        if found is None:
            expected = (
                "expected a key of this server, as `Authorization: Bearer KEY` or `x-api-key: KEY`"
            )
            raise RequestFailed(
                401, "invalid_api_key", f"no API key, or not a valid one (not shown); {expected}"
            )
        return found


def _no_money(key: KeyTable, account: _Account) -> RequestFailed:
    ends = ""
    if account.end < math.inf:
        ends = f"; the next {key.period or 'month'} begins at {datetime.fromtimestamp(account.end, UTC).isoformat()}"
    spent = f"${account.spent:f} of ${key.dollars:f} are spent, and what is left is less than a call may cost"
    if key.dollars is not None and account.spent >= key.dollars:
        spent = f"${account.spent:f} of ${key.dollars:f} are spent"
    return RequestFailed(
        402, "insufficient_quota", f"the budget of the key {key.name!r}: {spent}{ends}"
    )


def _too_many(limit: str, after: float) -> RequestFailed:
    message = f"this key has more requests than its limit of {limit}; try again in {after:.1f} s"
    return RequestFailed(429, "rate_limit_exceeded", message, retry_after=after)
