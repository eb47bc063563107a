"""A worker: a provider with the settings of its calls, and policies, bills and replays around it.

Limits and circuits belong to what is behind a name: there is one of each in the whole process.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakValueDictionary

from openconductor.calls.cards import Calibration, describe, read_card
from openconductor.calls.limits import CallLimits, Throttle
from openconductor.calls.meter import Meter, outcome_of
from openconductor.calls.options import guess_tokens, with_options
from openconductor.calls.policies import Circuit, Policies
from openconductor.errors import ConfigError, WorkerError, WorkerTimeout
from openconductor.events import CallEnded
from openconductor.protocols import CallContext, OnText, Provider, SupportsComplete
from openconductor.providers import ProviderLike, resolve
from openconductor.types import Call, Completion, Message, Price, Question, Sampling, Usage

if TYPE_CHECKING:
    from openconductor.store import CallClaims, CompletionStore

REMOTE_RETRIES = 2

Wrapper = Callable[[SupportsComplete], SupportsComplete]
Recall = Callable[[Sequence[Message], Sampling, CallContext], Completion | None]
"""Returns the answer to a call that was paid for before; None: the call has to be made."""

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Worker:
    """A provider with a name and what its calls need.

    Attributes:
        provider: a Provider, a ``"provider:model"`` string, a checkpoint folder, an Orchestrator,
            or a plain function ``(list[Message]) -> str``; a Provider once the worker is made.
        name: the name in pools, errors and tables; shown to the Conductor only on full cards.
        description: what it is good at; shown to the Conductor only where cards are on.
        calibrations: by task, what was measured of it; shown after the description.
        price: US dollars a million tokens (a Price, or a mapping with its fields); None: unknown,
            never free.
        tags: free words to choose workers by.
        sampling: how each call samples.
        timeout_s: total deadline of one attempt, in seconds from when it is sent.
        read_timeout_s: the longest silence of its server, in seconds, for a provider that is made
            here and takes one.
        retries: further attempts at a call that failed in a way that may heal; None: 2 for a
            worker behind a network, else 0.
        max_concurrency: calls at once; further ones wait.
        rpm: calls begun in any minute; further ones wait.
        tpm: tokens of the calls begun in any minute; further ones wait.
        wrappers: further wrappers around all of this, the innermost first.
        recalls: answer calls that were paid for before (set by ``recalling``).

    Limits hold over the whole process, and so does the circuit of a worker behind a network.
    Workers of one name share both if the same thing is behind them (their providers' ``identity``,
    or else one provider object), and share limits only if these are equal.

    Raises:
        ConfigError: a value is out of its range, or the provider cannot be made.
    """

    provider: ProviderLike
    _: KW_ONLY
    name: str
    description: str = ""
    calibrations: Mapping[str, Calibration] = field(default_factory=dict[str, Calibration])
    price: Price | None = None
    tags: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    timeout_s: float | None = None
    read_timeout_s: float | None = None
    retries: int | None = None
    max_concurrency: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    wrappers: tuple[Wrapper, ...] = field(default=(), repr=False)
    recalls: tuple[Recall, ...] = field(default=(), repr=False)
    _chain: SupportsComplete = field(init=False, repr=False)
    _circuit: Circuit = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.name), str) or not self.name.strip():
            raise ConfigError(f"worker: name {self.name!r}, expected a name that is not blank")
        limits = (self.max_concurrency, self.rpm, self.tpm)
        try:
            self._check_settings()
            provider = resolve(
                self.provider, timeout_s=self.timeout_s, read_timeout_s=self.read_timeout_s
            )
            price = _make_price(self.price)
            if price is not None and provider.prices_itself:
                raise ConfigError("a price, but an orchestrator costs what its workers cost")
            if provider.nests and any(limits):
                # It could wait for itself, where its pool holds it again.
                raise ConfigError("a limit, but an orchestrator is limited by its workers' limits")
        except ConfigError as error:
            raise ConfigError(f"worker {self.name!r}: {error}") from error

        key = (self.name, provider.identity or id(provider))  # an id is unique while it is held
        circuit = Circuit(opens=False)
        retries = self.retries or 0
        if provider.remote:
            circuit = _share(key, Circuit)
            retries = REMOTE_RETRIES if self.retries is None else self.retries
        chain: SupportsComplete = Meter(
            provider, name=self.name, price=price, timeout_s=self.timeout_s
        )
        if provider.remote or retries or any(limits):  # else the meter is enough
            account = ("throttle", provider.identity or id(provider), provider.api_key_env)
            throttle = _share(account, Throttle)
            shared = _share((*key, *limits), lambda: CallLimits(*limits, throttle=throttle))
            chain = Policies(chain, retries=retries, limits=shared, circuit=circuit)
        for wrap in self.wrappers:
            chain = wrap(chain)

        made = {
            "provider": provider,
            "price": price,
            "tags": tuple(self.tags),
            "_circuit": circuit,
            "_chain": chain,
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def _check_settings(self) -> None:
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

        ``timeout_s`` is the deadline of one attempt, and begins when the attempt is sent.
        ``call.deadline`` is that of the whole question. Waits for a limit or for a retry end by it.

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
        sampling = with_options(self.sampling, call)
        try:
            return await self._chain.complete(messages, sampling, call=call, on_text=on_text)
        except WorkerError as error:
            if not error.worker:
                error.worker = self.name
            raise

    async def ask(self, question: Question) -> Completion:
        """Ask the worker one question, without a plan; raise as ``complete``.

        Args:
            question: a text, or a chat whose last turn is the user's.
        """
        messages = question
        if isinstance(question, str):
            messages = (Message("user", question),)
        return await self.complete(cast("Sequence[Message]", messages), call=CallContext())

    def ask_sync(self, question: Question) -> Completion:
        """Run ``ask`` without ``await``; beside a running event loop (notebooks) in a thread."""
        return run_blocking(lambda: self.ask(question))

    @property
    def resolved(self) -> Provider:
        """The provider, which is a Provider once the worker is made."""
        return cast(Provider, self.provider)

    async def reach(self) -> None:
        """Connect to the server, which costs nothing; one that recalls its answers needs none.

        Raises:
            WorkerError: it cannot be reached.
        """
        if self.recalls:
            return
        try:
            await self.resolved.reach()
        except WorkerError as error:
            error.worker = error.worker or self.name
            raise

    @property
    def healthy(self) -> bool:
        """True if a call would be sent now, because the worker's circuit is closed."""
        return self._circuit.closed

    @property
    def card(self) -> str:
        """The description and what was measured, in one line."""
        measured = describe(self.calibrations)
        if self.description and measured:
            return f"{self.description.rstrip(' .')}; {measured}"
        return self.description or measured

    @property
    def full_card(self) -> str:
        """The card with tags and price. "": nothing is known of the worker.

        >>> Worker("openai:x", name="w", description="Good at law.", tags=("quick",)).full_card
        'Good at law; tags: quick'
        """
        facts = [self.card.rstrip(" .")] if self.card else []
        if self.tags:
            facts.append(f"tags: {', '.join(self.tags)}")
        if self.price is not None:
            price = self.price
            facts.append(f"${price.input} read and ${price.output} written per million tokens")
        return "; ".join(facts)

    @property
    def rates(self) -> dict[str, float]:
        """The shares that it gets right, by task, or by category as its description says."""
        if not self.calibrations:
            return read_card(self.description)
        return {task: calibration.least_rate for task, calibration in self.calibrations.items()}

    @property
    def identity(self) -> str:
        """The identity of the worker's provider. "": unknown."""
        return self.resolved.identity

    def most(self, messages: Sequence[Message], call: CallContext) -> Usage:
        """Return the tokens and dollars that one call can use, as far as that is known.

        What the call reads is guessed from its text. Without a token limit no tokens are known, and
        the dollars are those of reading and of one written token, so that a call is rejected if not
        even these are left. The workers of an orchestrator reserve for themselves.
        """
        if self.resolved.nests:
            return Usage()
        read, written = guess_tokens(messages, with_options(self.sampling, call))
        if written:
            usage = Usage(read, 0, written)
        else:
            usage = Usage(max(read, 1), 0, 1)
        dollars = Decimal(0) if self.price is None else self.price.dollars(usage)
        return replace(usage, dollars=dollars) if written else Usage(dollars=dollars)

    def wrapped(self, wrap: Wrapper) -> Worker:
        """Return the worker with one more wrapper around it; limits and circuit stay shared."""
        return replace(self, wrappers=(*self.wrappers, wrap))

    def replaying(self, journal: CompletionStore) -> Worker:
        """Return the worker answering from a journal what was paid for before.

        The key of a call is its messages and sampling, its worker, and its place in the question
        with the sample number, so repeats of a question stay different calls. A call of a worker
        that is an orchestrator is replayed as a whole. If it had not ended, it is made again. Where
        several processes share the journal, a call that another one makes is waited for.
        """
        recall = partial(_find_completion, journal, self)
        return self.recalling(recall, _claims_of(journal, self))

    def recalling(self, recall: Recall, claims: CallClaims | None = None) -> Worker:
        """Return the worker with these answers to calls that were paid for before.

        Args:
            recall: returns an answer.
            claims: answers in place of ``recall``, and claims the calls that are made.
        """
        wrap = partial(Replay, recall=recall, worker=self, claims=claims)
        return replace(self, wrappers=(*self.wrappers, wrap), recalls=(*self.recalls, recall))

    def knows(self, messages: Sequence[Message], call: CallContext) -> bool:
        """Return True if this call was paid for before, so that it costs nothing.

        Raises:
            JournalError: the journal cannot be read.
        """
        sampling = with_options(self.sampling, call)
        return any(recall(messages, sampling, call) is not None for recall in self.recalls)


@dataclass(frozen=True, slots=True)
class Replay:
    """Answers what was paid for before, and calls a worker's wrappers for the rest.

    Two equal calls at the same time are both made, because each is a sample of its own; with
    ``claims`` one is made, and the other waits for its answer. A replayed call is reported
    (``CallEnded``) with what it cost when it was made, marked as replayed. ``on_text`` gets its
    text in one piece.
    """

    provider: SupportsComplete
    recall: Recall
    worker: Worker
    claims: CallClaims | None = None

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Return the earlier completion of this call, or else the worker's.

        Raises:
            JournalError: the journal cannot be read.
            WorkerError: as the worker raises it, or the deadline passed while another process made
                this call.
        """
        make = partial(self.provider.complete, messages, sampling, call=call, on_text=on_text)
        if self.claims is None:
            completion = self.recall(messages, sampling, call)
            if completion is None:
                return await make()
        else:
            key = _key_of(self.worker, messages, sampling, call)
            completion = await _claim(self.claims, key, call)
            if completion is None:
                try:
                    return await make()
                finally:
                    self.claims.release(key)
        self._report(completion, messages, sampling, call)
        if on_text is not None and completion.text:
            on_text(completion.text)
        return completion

    def _report(
        self,
        completion: Completion,
        messages: Sequence[Message],
        sampling: Sampling,
        call: CallContext,
    ) -> None:
        """Charge a replayed call, and send its event."""
        worker = self.worker
        if call.budget is not None:
            call.budget.charge_replay(completion.usage)
        if call.on_event is not None:
            now = asyncio.get_running_loop().time() - call.origin
            record = Call(
                worker=worker.name,
                outcome=outcome_of(completion),
                messages=tuple(messages),
                sampling=sampling,
                completion=completion,
                attempt=call.attempt,
                usage=completion.usage,
                price=worker.price,
                started=now,
                identity=worker.identity,
                nested=worker.resolved.nests,
                replayed=True,
            )
            call.on_event(CallEnded(call.episode, call.round, now, call.step, record))


async def _claim(claims: CallClaims, key: str, call: CallContext) -> Completion | None:
    """Claim a call until its deadline; return its completion if it was made before."""
    try:
        async with asyncio.timeout_at(call.deadline):
            return await claims.claim(key)
    except TimeoutError:
        message = "the deadline passed while the same call was being made elsewhere"
        raise WorkerTimeout(message) from None


def _claims_of(journal: CompletionStore, worker: Worker) -> CallClaims | None:
    """Return the journal if calls are to be claimed in it.

    The calls of an orchestrator are claimed one by one instead.
    """
    from openconductor.store import CallClaims

    claims = isinstance(journal, CallClaims) and not worker.resolved.nests
    return cast("CallClaims", journal) if claims else None


def _key_of(
    worker: Worker, messages: Sequence[Message], sampling: Sampling, call: CallContext
) -> str:
    from openconductor.store import call_key

    return call_key(worker.name, worker.identity, messages, sampling, call)


def _find_completion(
    journal: CompletionStore,
    worker: Worker,
    messages: Sequence[Message],
    sampling: Sampling,
    call: CallContext,
) -> Completion | None:
    return journal.find_completion(_key_of(worker, messages, sampling, call))


_shared: WeakValueDictionary[tuple[object, ...], object] = WeakValueDictionary()
_shared_lock = threading.Lock()


def _share(key: tuple[object, ...], make: Callable[[], S]) -> S:
    """Return the object of this key that the workers of the process share."""
    with _shared_lock:
        shared = cast("S | None", _shared.get(key))
        if shared is None:
            _shared[key] = shared = make()
        return shared


def waiting_calls() -> dict[str, int]:
    """Return how many calls wait for their turn at each worker of the process, by its name."""
    with _shared_lock:
        shared = [(key[0], value) for key, value in _shared.items()]
    waiting: dict[str, int] = {}
    for name, limits in shared:
        if isinstance(limits, CallLimits) and limits.waiting:
            waiting[str(name)] = waiting.get(str(name), 0) + limits.waiting
    return waiting


def _make_price(given: object) -> Price | None:
    """Return a checked Price, made of a Price or of a mapping with its fields."""
    if given is None:
        return None
    fields: Mapping[str, object]
    with suppress(TypeError, InvalidOperation):  # other keys; not a number
        if isinstance(given, Price):
            fields = asdict(given)
        else:
            fields = dict(cast("Mapping[str, object]", given))
        amounts = {name: Decimal(str(value)) for name, value in fields.items() if value is not None}
        if all(amount.is_finite() and amount >= 0 for amount in amounts.values()):
            return Price(**amounts)
    expected = "US dollars a million tokens, from 0, as input, output and, if it differs, cached"
    raise ConfigError(f"price {given!r}, expected {expected}")


def run_blocking(ask: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run a coroutine in an event loop of its own, in a thread if a loop already runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(ask())
    tasks: list[asyncio.Task[T]] = []

    async def run_cancellable() -> T:
        tasks.append(asyncio.ensure_future(ask()))
        return await tasks[0]

    with ThreadPoolExecutor(1, thread_name_prefix="openconductor-ask") as thread:
        future = thread.submit(contextvars.copy_context().run, asyncio.run, run_cancellable())
        try:
            return future.result()
        except KeyboardInterrupt:
            if not future.done():  # else leaving would wait for the whole episode
                for task in tasks:
                    task.get_loop().call_soon_threadsafe(task.cancel)
            raise
