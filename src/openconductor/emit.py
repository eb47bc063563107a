"""How an episode is told of: its beginning, its events handed to the caller's sink, and what is heard from below it.

In: an episode's call, events. Out: the same events at the sink, as long as that does not fail; each attempt at a call
kept for the ledger and charged to its budget.
"""

from __future__ import annotations

import uuid

from openconductor.budget import PaidCall
from openconductor.events import Answered, Asked, CallEnded, Event, StepText
from openconductor.protocols import CallContext, OnEvent
from openconductor.providers.orchestrator import working_for
from openconductor.types import Call, Question


def open_call(*, origin: float, sample: int = 0, round: int = 0) -> CallContext:  # noqa: A002 - the field's name
    """The context of a new episode's calls: its id is unique everywhere (32 hexadecimal digits).

    Args:
        origin: the event loop's time at which the episode begins.
        sample: tells repeats of the same question apart.
        round: the round that it begins with.
    """
    above = working_for()
    episode = uuid.uuid4().hex
    if above is None:
        return CallContext(episode, round, sample=sample, origin=origin)
    path = (*above.path, (above.round, above.step))
    return CallContext(episode, round, sample=sample, origin=origin, depth=above.depth + 1, path=path)


def asked(call: CallContext, question: Question) -> Asked:
    """The event that an episode begins with."""
    above = working_for()
    upper = above.episode if above is not None else ""
    return Asked(call.episode, call.round, 0.0, question, call.sample, call.path, upper)


class Emitter:
    """Hands events to the caller's sink until that fails; what it raised is kept, and raised, as it was."""

    __slots__ = ("_on_event", "_wants_nested", "failure", "wants_text")

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._wants_nested = _wants_nested(on_event)
        self.wants_text = _wants_text(on_event)
        self.failure: BaseException | None = None

    def nested(self, event: Event) -> None:
        """Hand on an event of an episode below this one, to a sink that wants these."""
        if self._wants_nested:
            self(event)

    async def settle(self) -> None:
        """Wait until the sink has made durable what it was handed, where it can say that.

        Raises:
            BaseException: what the sink raised, where it has failed.
        """
        self.check()
        await _settle(self._on_event)

    def check(self) -> None:
        """Raise what the sink raised, where it has failed: nobody may take for told what was dropped."""
        if self.failure is not None:
            raise self.failure

    def __call__(self, event: Event) -> None:
        """Hand one event on, or drop it where the sink has failed."""
        if self.failure is not None:
            return
        try:
            self._on_event(event)
        except BaseException as error:
            self.failure = error
            raise


class FanOut:
    """Several sinks as one: each gets, in the order given, the events that it wants. The first that fails ends it.

    >>> seen = []
    >>> both = FanOut(seen.append, print)
    >>> both.wants_text, both.wants_nested
    (True, False)
    """

    __slots__ = ("_sinks", "_under_way", "wants_nested", "wants_text")

    def __init__(self, *sinks: OnEvent) -> None:
        self._sinks = [(sink, _wants_text(sink), _wants_nested(sink)) for sink in sinks]
        self._under_way: dict[str, bool] = {}  # the episodes heard of, and whether they are below another of them
        self.wants_text = any(text for _, text, _ in self._sinks)
        self.wants_nested = any(nested for _, _, nested in self._sinks)

    def __call__(self, event: Event) -> None:
        """Hand one event to each sink that wants its kind."""
        if isinstance(event, Asked):
            self._under_way[event.episode] = event.above in self._under_way
        nested = self._under_way.get(event.episode, False)
        for sink, wants_text, wants_nested in self._sinks:
            if (wants_nested or not nested) and (wants_text or not isinstance(event, StepText)):
                sink(event)
        if isinstance(event, Answered):
            self._under_way.pop(event.episode, None)

    async def wait_durable(self) -> None:
        """Wait until every sink that can say so has made durable what it was handed."""
        for sink, _, _ in self._sinks:
            await _settle(sink)


class Hearing:
    """Hears what happens below one call: keeps and charges each attempt, and hands everything on."""

    __slots__ = ("_calls", "_emit", "_episode", "_paid")

    def __init__(self, episode: str, calls: list[Call], paid: PaidCall | None, emit: Emitter | None) -> None:
        self._episode = episode
        self._calls = calls
        self._paid = paid
        self._emit = emit

    def __call__(self, event: Event) -> None:
        """Take in one event from below."""
        if event.episode != self._episode:
            if self._emit is not None:
                self._emit.nested(event)
            return
        if isinstance(event, CallEnded):
            self._calls.append(event.call)
            if self._paid is not None:
                self._paid.charge(event.call.usage)
        if self._emit is not None:
            self._emit(event)


def _wants_text(sink: OnEvent) -> bool:
    return bool(getattr(sink, "wants_text", True))


def _wants_nested(sink: OnEvent) -> bool:
    return bool(getattr(sink, "wants_nested", False))


async def _settle(sink: OnEvent) -> None:
    wait = getattr(sink, "wait_durable", None)
    if wait is not None:
        await wait()
