"""API keys: what each may ask, how often, and for how much money.

- **Keys.** Only their hashes are kept; a key is shown once, when it is made.
- **Money.** The requests of a key share a budget. Each call reserves the most that it can cost, and
  settles when it has ended. A worker that claims more tokens than its call can have used is not
  believed. A cancelled call whose usage nobody reports is charged the most that it
  can have cost. Otherwise cancelling would be a way to work for nothing.
- **Periods.** A request belongs to the period in which it began. If the clock is set back, time
  stands still until the clock has caught up, so that no budget is filled twice. The requests of
  earlier processes count from their period on.

Where replicas share a store, they share the money of each key (``purse``). The keys of the config
stay as they are while a server runs; those in the store come and go (``key_book``).

Not covered: calls that were in flight when a process was killed, and the output of a cancelled call
where neither its worker nor its request has a token limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

from openconductor.calls.options import bound_usage, guess_tokens, least
from openconductor.calls.shared_budget import Teller
from openconductor.errors import OpenConductorError
from openconductor.events import CallEnded
from openconductor.serving.apis.wire import (
    Control,
    Json,
    RequestFailed,
    invalid,
    request_failure,
)
from openconductor.serving.serve_config import KeyTable
from openconductor.serving.shared.purse import Purse, Purses
from openconductor.store import SERVED, AccountStore, Store, StoreReader
from openconductor.types import Call, Usage

LIMITS = ("max_steps", "max_rounds", "max_calls", "max_tokens", "max_dollars", "max_seconds")
"""Limits that a key sets for each request, by the names that requests have for them."""
_MINUTE_S = 60.0
_RETRY_S = 1.0  # when a place may be free again

Charge = tuple[float, Decimal]
"""When a request began, in seconds since 1970, and its US dollars."""
Clock = Callable[[], float]


def new_key() -> tuple[str, str]:
    """Return a new key, and its hash, which a config holds."""
    key = f"oc-{secrets.token_urlsafe(32)}"
    return key, hash_key(key)


def hash_key(key: str) -> str:
    """Return the hash of a key."""
    return f"sha256:{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()}"


def cost_of(call: Call) -> Decimal:
    """Return the US dollars that a key is charged for a call.

    It is the price of what the call can have used (``bound_usage``), or the most that it can be if
    nobody reports the usage.
    """
    if call.replayed:
        return Decimal(0)
    dollars = bound_usage(call).dollars
    if not call.usage.unpriced_calls or call.price is None:
        return dollars
    read, written = guess_tokens(call.messages, call.sampling)
    return dollars + call.price.dollars(Usage(read, 0, written))


def past_charges(
    store: StoreReader, since: Mapping[str, float]
) -> Iterator[tuple[str, float, Decimal]]:
    """Return the charges of earlier requests: the key's name, when it began, its dollars.

    A request whose process was killed costs what its stored calls do.

    Args:
        store: holds the requests.
        since: the names of keys, each with a time in seconds since 1970; earlier requests are left
            out.
    """
    for record in store.records():
        if not record.key.startswith(SERVED):
            continue
        name = record.value["key"]
        began = record.value["began"]
        if name not in since or began < since[name]:
            continue
        charged = record.value["charged"]
        if charged is None:
            dollars = stored_cost(store, record.key.removeprefix(SERVED))
        else:
            dollars = Decimal(charged)
        yield name, began, dollars


def charge_killed(store: Store, before: float = math.inf) -> None:
    """Store the charge of each request whose process was killed, before its calls are removed.

    Args:
        store: holds the requests.
        before: requests that began later (seconds since 1970) may be served meanwhile.
    """
    for record in list(store.records()):
        if not record.key.startswith(SERVED) or record.value["began"] >= before:
            continue
        if record.value["charged"] is None:
            charged = str(stored_cost(store, record.key.removeprefix(SERVED)))
            store.put_record(record.key, {**record.value, "charged": charged}, texts=False)
    store.flush()


def stored_cost(store: StoreReader, identifier: str) -> Decimal:
    """Return what a key is charged for the stored calls of an episode."""
    episode = store.episode(identifier)
    calls = () if episode is None else episode.calls
    return sum(map(cost_of, calls), Decimal(0))


def account_of(key: KeyTable, start: float) -> str:
    """Return the name of the account of a key in the period that begins then."""
    if key.period == "total":
        return f"{key.name}/total"
    return f"{key.name}/{key.period or 'month'}/{datetime.fromtimestamp(start, UTC):%Y-%m-%d}"


def period_at(now: float, key: KeyTable) -> tuple[float, float]:
    """Return the beginning and end of the period that holds ``now`` (seconds since 1970)."""
    if key.period == "total":
        return -math.inf, math.inf
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if key.period == "day":
        return day.timestamp(), (day + timedelta(days=1)).timestamp()
    month = day.replace(day=1)
    next_month = (month + timedelta(days=32)).replace(day=1)
    return month.timestamp(), next_month.timestamp()


class Bill:
    """The bill of one request.

    Attributes:
        key: the table of the key.
        began: seconds since 1970. It names the period, so it is stored with ``charged``.
        budget: pays for the calls (``CallContext.budget``); None: unlimited.
        charged: US dollars until now.
    """

    def __init__(self, key: KeyTable, purse: Purse, began: float) -> None:
        self.key = key
        self.began = began
        self.budget = purse.budget
        self.charged = Decimal(0)
        self._purse = purse
        self._episode = ""

    def open(self, episode: str) -> None:
        """Begin to charge an episode."""
        self._episode = episode
        self._purse.book(episode, self.charged)

    def add(self, event: CallEnded) -> None:
        """Charge a call that has ended.

        The calls inside a nested orchestrator send no events here, so nothing counts twice.
        """
        if event.call.replayed:
            return
        dollars = cost_of(event.call)
        self.charged += dollars
        self._purse.add(dollars)
        self._purse.book(self._episode, self.charged)
        if self.budget is not None:  # it was charged the known part already
            self.budget.add(dollars=dollars - event.call.usage.dollars)

    def close(self) -> None:
        """End the bill: the episode has ended."""
        self._purse.book(self._episode, self.charged, closed=True)

    def failure(self, error: OpenConductorError) -> RequestFailed:
        """Return the failure that a client is told of when its episode ends in an error."""
        if self.budget is not None and self.budget.ended_in(error):
            return _out_of_money(self.key, self._purse)
        return request_failure(error)


class Tenant:
    """A key with the limits that all its requests share.

    Args:
        key: its table.
        past: the charges of its earlier requests, from the beginning of the period on.
        clock: seconds since 1970.
        monotonic: seconds that never jump.
        purses: hold its money.

    Attributes:
        key: its table.
    """

    def __init__(
        self,
        key: KeyTable,
        past: Iterable[Charge],
        clock: Clock,
        monotonic: Clock,
        purses: Purses,
    ) -> None:
        self.key = key
        self._purses = purses
        self._teller = purses.teller
        self._clock = clock
        self._monotonic = monotonic
        self._recent: deque[float] = deque()  # when the requests of the last minute began
        self._running = 0
        self._now = clock()
        self._past = list(past)
        self._purse = self._open_purse()

    @property
    def name(self) -> str:
        """The key's name; "": the server needs no key."""
        return self.key.name

    def may_ask(self, model: str, worker: str | None = None) -> bool:
        """Return True if the key allows a model, and its worker if it is one worker alone."""
        key = self.key
        if key.models is not None and model not in key.models:
            return False
        return worker is None or key.workers is None or worker in key.workers

    def limit(self, control: Control) -> Control:
        """Return a request's control within the key's limits: of two limits the lower one.

        Raises:
            RequestFailed: the key allows none of the workers that the request names.
        """
        limits: dict[str, object] = {}
        for name in LIMITS:
            own = getattr(self.key, name)
            if own is not None:
                limits[name] = least(own, getattr(control, name))
        allowed = self.key.workers
        if allowed is not None:
            wanted = allowed if control.workers is None else control.workers
            workers = [name for name in allowed if name in wanted]
            if not workers:
                names = ", ".join(allowed)
                raise invalid("conductor.workers", f"got {wanted}, this key allows {names}")
            limits["workers"] = workers
        return control.model_copy(update=limits) if limits else control

    @contextmanager
    def admit(self) -> Generator[Bill]:
        """Hold a place for one request, for as long as it runs.

        Raises:
            RequestFailed: the key's money is spent, or it has too many requests, at once or in the
                last minute.
        """
        self._now = max(self._now, self._clock())
        if self._now >= self._purse.end:
            self._purse = self._open_purse()
        key = self.key
        purse = self._purse
        # A budget of 0 still allows calls that are free.
        if key.dollars and purse.spent >= key.dollars:
            raise _out_of_money(key, purse)
        if key.rpm is not None and self._teller is None:
            self._check_rate(key.rpm)
        if key.concurrency is not None and self._running >= key.concurrency:
            raise _too_many(f"{key.concurrency} requests at once", _RETRY_S)
        if key.rpm is not None and self._teller is None:
            self._recent.append(self._monotonic())
        self._running += 1
        try:
            yield Bill(key, purse, self._now)
        finally:
            self._running -= 1

    async def count_request(self) -> None:
        """Count an admitted request among those of all replicas, where they share the limit.

        Raises:
            RequestFailed: the key has had too many requests in the last minute.
            JournalError: the store failed.
        """
        rpm = self.key.rpm
        if rpm is None or self._teller is None:
            return
        after = await asyncio.to_thread(self._teller.accounts.count_request, self.name, rpm)
        if after:
            raise _too_many(f"{rpm} requests a minute", after)

    def usage(self) -> Json:
        """Return what the key has spent in its period, and of how much; None: no budget."""
        key = self.key
        page: Json = {"object": "usage", "key": key.name, "spent": None, "limit": None}
        if key.dollars is None:
            return page
        start, end = period_at(max(self._now, self._clock()), key)
        spent: Decimal | None = None
        if self._teller is not None:
            spent = self._teller.accounts.spent(account_of(key, start))
        if spent is None:
            spent = self._purse.spent if end == self._purse.end else Decimal(0)
        page |= {"spent": f"{spent:f}", "limit": f"{key.dollars:f}"}
        page["period"] = key.period or "month"
        if end < math.inf:
            page["ends"] = int(end)
        return page

    def _check_rate(self, rpm: int) -> None:
        now = self._monotonic()
        while self._recent and self._recent[0] <= now - _MINUTE_S:
            self._recent.popleft()
        if len(self._recent) >= rpm:
            raise _too_many(f"{rpm} requests a minute", self._recent[0] + _MINUTE_S - now)

    def _open_purse(self) -> Purse:
        """Return the money of the current period, with what earlier processes spent in it."""
        start, end = period_at(self._now, self.key)
        spent = sum((dollars for began, dollars in self._past if began >= start), Decimal(0))
        # What began later, because the clock was set back since, counts in its own period too.
        self._past = [charge for charge in self._past if charge[0] >= end]
        account = account_of(self.key, start)
        return self._purses.open(self.name, account, end, spent, self.key.dollars)


class KeyRing:
    """All keys of a server.

    Args:
        keys: their tables; without one everybody is the tenant "".
        store: keeps earlier requests; None: there are none.
        clock: seconds since 1970.
        monotonic: seconds that never jump.

    Raises:
        JournalError: the store cannot be read.
    """

    def __init__(
        self,
        keys: Sequence[KeyTable],
        store: StoreReader | None = None,
        *,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        teller = None
        if isinstance(store, AccountStore):
            teller = Teller(store.accounts, partial(stored_cost, store))
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._purses = Purses(teller)
        self._own = self._admit_keys(keys, self.read_past(keys))
        self._added: dict[str, Tenant] = {}
        self._tenants = list(self._own.items())
        self._anyone: Tenant | None = None
        if not keys:
            self._anyone = Tenant(KeyTable("", ""), (), clock, monotonic, self._purses)

    @property
    def is_open(self) -> bool:
        """True if everybody may ask, because there has never been a key."""
        return self._anyone is not None

    def read_past(self, keys: Sequence[KeyTable]) -> dict[str, list[Charge]]:
        """Return the earlier charges of keys, by their names, as far as no account has them.

        Any thread may call it.

        Raises:
            JournalError: the store cannot be read.
        """
        now = self._clock()
        teller = self._purses.teller
        since: dict[str, float] = {}
        for key in keys:
            start, _ = period_at(now, key)
            account = account_of(key, start)
            is_open = self._purses.is_open(key.name, account)
            if teller is not None and not is_open:
                is_open = teller.accounts.spent(account) is not None
            if key.dollars is not None and not is_open:
                since[key.name] = start
        past: defaultdict[str, list[Charge]] = defaultdict(list)
        if self._store is not None and since:
            for name, began, dollars in past_charges(self._store, since):
                past[name].append((began, dollars))
        return past

    def unknown_among(self, added: Sequence[KeyTable]) -> list[KeyTable]:
        """Return the keys that have not been let in, or have other limits now."""
        return [key for key in added if not self._has(key)]

    def _has(self, key: KeyTable) -> bool:
        tenant = self._added.get(key.hash)
        return tenant is not None and tenant.key == key

    def let_in(
        self,
        added: Sequence[KeyTable],
        past: Mapping[str, Sequence[Charge]],
        *,
        is_keyed: bool,
    ) -> None:
        """Let in the keys that are in the store now, and none that were before.

        What is under way ends as it began.

        Args:
            added: their tables. One with the name of a key of the config is left out.
            past: the earlier charges of those that are new (``read_past``).
            is_keyed: True if the store has or had a key: then nobody may ask without one any more.
        """
        if is_keyed:
            self._anyone = None
        own_names = [tenant.name for tenant in self._own.values()]
        added = [key for key in added if key.name not in own_names]
        tenants = {key.hash: self._added[key.hash] for key in added if self._has(key)}
        tenants |= self._admit_keys(self.unknown_among(added), past)
        self._added = tenants
        self._tenants = [*self._own.items(), *tenants.items()]

    def _admit_keys(
        self, keys: Sequence[KeyTable], past: Mapping[str, Sequence[Charge]]
    ) -> dict[str, Tenant]:
        """Return the tenants of keys, by the hash of the key."""
        tenants: dict[str, Tenant] = {}
        for key in keys:
            charges = past.get(key.name, ())
            tenants[key.hash] = Tenant(key, charges, self._clock, self._monotonic, self._purses)
        return tenants

    def named(self, name: str) -> Tenant:
        """Return the tenant of the key of this name; without keys it is everybody's.

        Raises:
            RequestFailed: there is no such key.
        """
        if self._anyone is not None:
            return self._anyone
        for _, tenant in self._tenants:
            if tenant.name == name:
                return tenant
        raise RequestFailed(401, "invalid_api_key", f"key {name!r}: there is no such key any more")

    def usages(self) -> list[Json]:
        """Return what each key has spent in its period (``Tenant.usage``)."""
        return [tenant.usage() for _, tenant in self._tenants]

    def find(self, headers: Mapping[str, str]) -> Tenant:
        """Return the tenant of a request's key (``Authorization: Bearer`` or ``x-api-key``).

        Args:
            headers: by their names in lower case.

        Raises:
            RequestFailed: it brings no known key.
        """
        if self._anyone is not None:
            return self._anyone
        scheme, _, bearer = headers.get("authorization", "").strip().partition(" ")
        keys = [headers.get("x-api-key", "").strip()]
        if scheme.lower() == "bearer":
            keys.insert(0, bearer.strip())
        matching: Tenant | None = None
        for digest in map(hash_key, filter(None, keys)):
            # All keys are compared, so that the time tells nothing about them.
            for known, tenant in self._tenants:
                if hmac.compare_digest(known, digest):
                    matching = matching or tenant
        if matching is None:
            raise RequestFailed(
                401,
                "invalid_api_key",
                "the API key is missing or unknown (not shown); send a key of this server as "
                "`Authorization: Bearer KEY` or `x-api-key: KEY`",
            )
        return matching


def _out_of_money(key: KeyTable, period: Purse) -> RequestFailed:
    message = f"key {key.name!r}: ${period.spent:f} of its budget of ${key.dollars:f} are spent"
    if key.dollars is not None and period.spent < key.dollars:
        message += ", and the rest is less than a call may cost"
    if period.end < math.inf:
        date = datetime.fromtimestamp(period.end, UTC).isoformat()
        message += f"; the next {key.period or 'month'} begins at {date}"
    return RequestFailed(402, "insufficient_quota", message)


def _too_many(limit: str, after: float) -> RequestFailed:
    message = f"this key is limited to {limit}; try again in {after:.1f} s"
    return RequestFailed(429, "rate_limit_exceeded", message, retry_after=after)
