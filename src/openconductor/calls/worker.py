"""A worker: a provider with what its calls need: sampling, price, deadlines, retries, limits, a circuit.

In: whatever can be called, and a name. Out: a Worker, whose every attempt is billed in one place,
so that each is priced, or counted as not priced. What belongs to the thing behind a name (limits,
circuit) is one in the whole process.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import KW_ONLY, asdict, dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakValueDictionary

from openconductor.calls.meter import Meter, outcome_of
from openconductor.calls.policies import CallLimits, Circuit, Policies, most_tokens, wished
from openconductor.errors import ConfigError, WorkerError
from openconductor.events import CallEnded
from openconductor.protocols import CallContext, OnText, Provider, SupportsComplete
from openconductor.providers import ProviderLike, resolve
from openconductor.types import Call, Completion, Message, Price, Sampling, Usage

if TYPE_CHECKING:
    from openconductor.store import CompletionStore

REMOTE_RETRIES = 2

S = TypeVar("S")


@dataclass(frozen=True, slots=True, eq=False)
class Worker:
    """A provider with a name and what its calls need.

    Attributes:
        provider: a Provider, a ``"provider:model"`` string, a checkpoint folder, an Orchestrator,
            or a plain function ``(list[Message]) -> str``; a Provider once the worker is made.
        name: how pools, errors and tables call it; not shown to the Conductor.
        description: what it is good at; shown to the Conductor only where cards are on.
        price: US dollars a million tokens (a Price, or a mapping with its fields); None is not
            known, never free.
        tags: free words to choose workers by.
        sampling: how each call samples.
        timeout_s: total deadline of one attempt, in seconds from when it is sent.
        read_timeout_s: the longest silence of its server, in seconds, for a provider that is made
            here and takes one.
        retries: further attempts at a call that failed in a way that may heal; None is 2 for a
            worker behind a network, else none.
        max_concurrency: calls at once; further ones wait.
        rpm: calls begun in any minute; further ones wait.
        tpm: tokens of the calls begun in any minute; further ones wait.

    Limits hold over the whole process, and so does the circuit that a worker behind a network has:
    workers of one name share both where the same thing is behind them (their providers'
    ``identity``, or else one provider object), the limits where these are the same, too.

    Raises:
        ConfigError: a value is out of its range, or the provider cannot be made.
    """

    provider: ProviderLike
    _: KW_ONLY
    name: str
    description: str = ""
    price: Price | None = None
    tags: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    timeout_s: float | None = None
    read_timeout_s: float | None = None
    retries: int | None = None
    max_concurrency: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    _chain: SupportsComplete = field(init=False, repr=False)
    _circuit: Circuit = field(init=False, repr=False)
    _journal: CompletionStore | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.name), str) or not self.name.strip():
            raise ConfigError(f"worker: name {self.name!r}, expected a name that is not blank")
        limits = (self.max_concurrency, self.rpm, self.tpm)
        try:
            self._check()
            provider = resolve(
                self.provider, timeout_s=self.timeout_s, read_timeout_s=self.read_timeout_s
            )
            price = _price(self.price)
            if price is not None and provider.prices_itself:
                raise ConfigError("a price, but an orchestrator costs what its workers cost")
            if provider.nests and any(limits):
                # It could wait for itself, where its pool holds it again.
                raise ConfigError("a limit, but an orchestrator is limited by its workers' limits")
        except ConfigError as error:
            raise ConfigError(f"worker {self.name!r}: {error}") from error
        thing = (
            self.name,
            provider.identity or id(provider),
        )  # an id is its own while it is held
        remote = provider.remote
        circuit = _shared(thing, Circuit) if remote else Circuit(opens=False)
        retries = self.retries if self.retries is not None else REMOTE_RETRIES if remote else 0
        chain: SupportsComplete = Meter(
            provider, name=self.name, price=price, timeout_s=self.timeout_s
        )
        if remote or retries or any(limits):  # else the meter is enough
            shared = _shared((*thing, *limits), lambda: CallLimits(*limits))
            chain = Policies(chain, retries=retries, limits=shared, circuit=circuit)
        made = {
            "provider": provider,
            "price": price,
            "tags": tuple(self.tags),
            "_circuit": circuit,
            "_chain": chain,
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def _check(self) -> None:
        for name in ("timeout_s", "read_timeout_s"):
            seconds: float | None = getattr(self, name)
            if seconds is not None and not 0 < seconds < math.inf:
                raise ConfigError(f"{name} {seconds!r}, expected seconds above 0")
        for name, least in (("max_concurrency", 1), ("rpm", 1), ("tpm", 1), ("retries", 0)):
            value: object = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise ConfigError(f"{name} {value!r}, expected a whole number from {least}")
        if isinstance(self.tags, str):
            raise ConfigError(f"tags {self.tags!r}, expected a sequence of strings")

    async def complete(
        self, messages: Sequence[Message], *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        """Ask the worker, with its sampling, within its limits and deadlines.

        The deadline ``timeout_s`` begins when an attempt is sent, with each attempt anew;
        ``call.deadline`` is that of the whole question: waits for a limit or for a further attempt
        end by it, too.

        Returns:
            The completion, with ``usage.seconds`` and either ``usage.dollars`` or
            ``usage.unpriced_calls`` filled in.

        Raises:
            WorkerError: as the provider raises it, with this worker's name where it names none.
            WorkerTimeout: a deadline passed.
            EmptyResponse: no text, no tool call, and no token limit reached.
            CircuitOpen: the worker has failed too often just now; nothing was sent.
            BudgetExceeded: the budget has no room for a further attempt.
        """
        sampling = wished(self.sampling, last=call.last)
        try:
            return await self._chain.complete(messages, sampling, call=call, on_text=on_text)
        except WorkerError as error:
            if not error.worker:
                error.worker = self.name
            raise

    @property
    def resolved(self) -> Provider:
        """The provider, which is a Provider once the worker is made."""
        return cast(Provider, self.provider)

    @property
    def healthy(self) -> bool:
        """Whether a call would be sent now: whether the worker's circuit is closed."""
        return self._circuit.closed

    @property
    def identity(self) -> str:
        """The identity of the worker's provider. "": unknown."""
        return self.resolved.identity

    def most(self, messages: Sequence[Message], *, last: bool = False) -> Usage:
        """The tokens and dollars that one call can use, as far as that is known; what it reads is guessed.

        Without a token limit that is no token, and the dollars that reading and one written token
        cost: what no budget is left for is refused before it is sent.
        """
        if self.resolved.nests:  # an orchestrator's workers reserve for themselves
            return Usage()
        read, written = most_tokens(messages, wished(self.sampling, last=last))
        least = Usage(read, 0, written) if written else Usage(max(read, 1), 0, 1)
        dollars = Decimal(0) if self.price is None else self.price.dollars(least)
        return Usage(read, 0, written, dollars=dollars) if written else Usage(dollars=dollars)

    def wrapped(self, wrap: Callable[[SupportsComplete], SupportsComplete]) -> Worker:
        """The same worker with one more wrapper around all that it has; limits and circuit stay shared."""
        other = copy(self)
        object.__setattr__(other, "_chain", wrap(self._chain))
        return other

    def replaying(self, journal: CompletionStore) -> Worker:
        """The same worker, answering from a journal what stands there: paid for before, and not again.

        A call of a worker that is an orchestrator is replayed as a whole; one that had not ended is
        made again.
        """
        other = self.wrapped(lambda chain: Replay(chain, journal, self))
        object.__setattr__(other, "_journal", journal)
        return other

    def knows(self, messages: Sequence[Message], call: CallContext) -> bool:
        """Whether a journal answers this call, so that it costs nothing.

        Raises:
            JournalError: the journal cannot be read.
        """
        sampling = wished(self.sampling, last=call.last)
        return (
            self._journal is not None
            and _find(self._journal, self, messages, sampling, call) is not None
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """Answers from a journal what stands there, and calls a worker's wrappers for the rest.

    A call's key is what was asked, of whom, and where in the question it stands, its sample among
    it: repeats of a question stay different calls. Two equal calls at the same time are both made:
    each is a sample of its own. A replayed call is reported (``CallEnded``) with what it cost when
    it was made, marked as replayed; ``on_text`` gets its text in one piece.
    """

    _chain: SupportsComplete
    _journal: CompletionStore
    _worker: Worker

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """The journal's completion of this call, or else the worker's.

        Raises:
            JournalError: the journal cannot be read.
            WorkerError: as the worker raises it.
        """
        worker = self._worker
        said = _find(self._journal, worker, messages, sampling, call)
        if said is None:
            return await self._chain.complete(messages, sampling, call=call, on_text=on_text)
        if call.on_event is not None:
            at = asyncio.get_running_loop().time() - call.origin
            nests = worker.resolved.nests
            asked = worker.name, outcome_of(said), tuple(messages), sampling, said
            billed = None, call.attempt, said.usage, worker.price
            record = Call(*asked, *billed, at, worker.identity, nests, replayed=True)
            call.on_event(CallEnded(call.episode, call.round, at, call.step, record))
        if on_text is not None and said.text:
            on_text(said.text)
        return said


def _find(
    journal: CompletionStore,
    worker: Worker,
    messages: Sequence[Message],
    sampling: Sampling,
    call: CallContext,
) -> Completion | None:
    from openconductor.store import call_key

    return journal.find_completion(call_key(worker.name, worker.identity, messages, sampling, call))


_states: WeakValueDictionary[tuple[object, ...], object] = WeakValueDictionary()
_states_lock = threading.Lock()


def _shared(key: tuple[object, ...], make: Callable[[], S]) -> S:
    """The one state of this key in the process, made where no worker holds it."""
    with _states_lock:
        state = cast("S | None", _states.get(key))
        if state is None:
            _states[key] = state = make()
        return state


def _price(given: object) -> Price | None:
    """A checked Price, of a Price or a mapping with its fields."""
    if given is None:
        return None
    with suppress(TypeError, InvalidOperation):  # other keys; no number
        fields = (
            asdict(given) if isinstance(given, Price) else dict(cast("Mapping[str, object]", given))
        )
        amounts = {name: Decimal(str(value)) for name, value in fields.items() if value is not None}
        if all(amount.is_finite() and amount >= 0 for amount in amounts.values()):
            return Price(**amounts)
    expected = "US dollars a million tokens, from 0, as input, output and, if it differs, cached"
    raise ConfigError(f"price {given!r}, expected {expected}")
