"""Who cost what: every attempt, the wasted ones too, added up. In: an Episode. Out: a Ledger whose sums agree.

Attempts add up to their step (or to the Conductor's planning), these to their round, rounds to the episode: to the
token and to the last digit of a dollar. A call whose price is not known is counted, never taken for free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from openconductor.types import Call, Completion, Episode, Round, Sampling, Usage

CONDUCTOR = "conductor"
"""Who plans, in a ledger."""

_ANSWERS = ("answered", "cut")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call.

    Attributes:
        worker: the worker's name.
        outcome: as in ``Call``.
        number: 0-based attempt at this call, at this worker.
        usage: what it used.
        wasted: whether nothing came of it: it failed, was cancelled, or its answer was replaced by another worker's.
        replayed: whether it came out of a journal: paid for before, and not again.
        nested: whether it was an orchestrator's, whose usage is that of an episode of its own.
    """

    worker: str
    outcome: str
    number: int
    usage: Usage
    wasted: bool
    replayed: bool
    nested: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """What one step cost, or one planning.

    Attributes:
        round: 0-based round.
        step: 0-based step; None is the Conductor's planning.
        usage: the sum over the attempts.
        attempts: in the order in which they ended.
    """

    round: int
    step: int | None
    usage: Usage
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The bill of an episode.

    Attributes:
        entries: each round's planning, then its steps.
        rounds: the sum of each round.
        conductor, workers: the sums over all planning and over all steps.
        total: everything.
        wasted: the part of the total of which nothing came.
        replayed: the part of the total that was paid for before.
        by_worker: the sum of each worker, in order of appearance; the Conductor's planning stands under ``conductor``.
    """

    entries: tuple[Entry, ...]
    rounds: tuple[Usage, ...]
    conductor: Usage
    workers: Usage
    total: Usage
    wasted: Usage
    replayed: Usage
    by_worker: Mapping[str, Usage]


def draw_up(episode: Episode) -> Ledger:
    """Draw up the ledger of an episode, a stopped one too."""
    by_round = [tuple(_entries(index, one)) for index, one in enumerate(episode.rounds)]
    entries = tuple(entry for of_one in by_round for entry in of_one)
    rounds = tuple(_sum(entry.usage for entry in of_one) for of_one in by_round)
    attempts = [attempt for entry in entries for attempt in entry.attempts]
    by_worker: dict[str, Usage] = {}
    for entry in entries:
        for attempt in entry.attempts:
            who = CONDUCTOR if entry.step is None else attempt.worker
            by_worker[who] = by_worker.get(who, Usage()) + attempt.usage
    return Ledger(
        entries=entries,
        rounds=rounds,
        conductor=_sum(entry.usage for entry in entries if entry.step is None),
        workers=_sum(entry.usage for entry in entries if entry.step is not None),
        total=_sum(rounds),
        wasted=_sum(attempt.usage for attempt in attempts if attempt.wasted),
        replayed=_sum(attempt.usage for attempt in attempts if attempt.replayed),
        by_worker=MappingProxyType(by_worker),
    )


def _entries(index: int, one: Round) -> Iterator[Entry]:
    planning = _attempts(one.calls, one.completion, one.planning, CONDUCTOR)
    if planning:
        yield Entry(index, None, one.planning, planning)
    for number, result in enumerate(one.transcript.results if one.transcript is not None else ()):
        asked = result.step.worker if result.worker is None else result.worker
        attempts = _attempts(result.calls, result.completion, result.usage, f"worker {asked}")
        yield Entry(index, number, _sum(attempt.usage for attempt in attempts), attempts)


def _attempts(calls: Sequence[Call], said: Completion | None, usage: Usage, worker: str) -> tuple[Attempt, ...]:
    """The attempts at one completion; where no call is on record but something was used, that is one attempt."""
    if not calls and (said is not None or usage != Usage()):
        calls = (Call(worker, "failed" if said is None else "answered", (), Sampling(), usage=usage),)
    answering = [number for number, call in enumerate(calls) if call.outcome in _ANSWERS and said is not None]
    return tuple(
        Attempt(
            call.worker, call.outcome, call.attempt, call.usage, [number] != answering[-1:], call.replayed, call.nested
        )
        for number, call in enumerate(calls)
    )


def _sum(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())
