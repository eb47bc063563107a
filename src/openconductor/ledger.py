"""Who cost what: every attempt, the wasted ones too, added up. In: an Episode. Out: a Ledger whose sums agree.

Attempts add up to their step (or to the Conductor's planning), these to their round, rounds to the
episode: to the token and to the last digit of a dollar. A call whose price is not known is counted,
never taken for free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from openconductor.types import Call, Completion, Episode, Round, Sampling, Usage

CONDUCTOR = "conductor"
"""Who plans, in a ledger."""


class Attempt(NamedTuple):
    """A call, and whether nothing came of it: it failed, was cancelled, or another worker's answer replaced its own."""

    call: Call
    wasted: bool


class Entry(NamedTuple):
    """What one step cost, or one planning.

    Attributes:
        round: 0-based round.
        step: 0-based step; None is the Conductor's planning.
        attempts: in the order in which they ended.
    """

    round: int
    step: int | None
    attempts: tuple[Attempt, ...]

    @property
    def usage(self) -> Usage:
        """The sum over the attempts."""
        return _sum(self.attempts)


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
        by_worker: the sum of each worker, in order of appearance; the Conductor's planning stands
            under ``conductor``.
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
    entries = draw_entries(episode)
    by_round = [
        [entry.usage for entry in entries if entry.round == index]
        for index in range(len(episode.rounds))
    ]
    planning = [attempt for entry in entries if entry.step is None for attempt in entry.attempts]
    working = [attempt for entry in entries if entry.step is not None for attempt in entry.attempts]
    made = [attempt for entry in entries for attempt in entry.attempts]
    by_worker: dict[str, Usage] = {}
    for entry in entries:
        for call, _ in entry.attempts:
            who = CONDUCTOR if entry.step is None else call.worker
            by_worker[who] = by_worker.get(who, Usage()) + call.usage
    return Ledger(
        entries=entries,
        rounds=tuple(sum(usages, Usage()) for usages in by_round),
        conductor=_sum(planning),
        workers=_sum(working),
        total=_sum(made),
        wasted=_sum(attempt for attempt in made if attempt.wasted),
        replayed=_sum(attempt for attempt in made if attempt.call.replayed),
        by_worker=MappingProxyType(by_worker),
    )


def draw_entries(episode: Episode) -> tuple[Entry, ...]:
    """Its entries alone, for who needs no sums."""
    return tuple(
        entry for index, one in enumerate(episode.rounds) for entry in _entries(index, one)
    )


def _entries(index: int, one: Round) -> Iterator[Entry]:
    if planning := _attempts(one.calls, one.completion, one.planning, CONDUCTOR):
        yield Entry(index, None, planning)
    for number, result in enumerate(one.transcript.results if one.transcript is not None else ()):
        yield Entry(
            index,
            number,
            _attempts(result.calls, result.completion, result.usage, f"worker {result.asked}"),
        )


def _attempts(
    calls: Sequence[Call], said: Completion | None, usage: Usage, worker: str
) -> tuple[Attempt, ...]:
    """The attempts at one completion; where no call is on record but something was used, that is one attempt."""
    if not calls and (said is not None or usage != Usage()):
        calls = (
            Call(worker, "failed" if said is None else "answered", (), Sampling(), usage=usage),
        )
    answers = [call for call in calls if said is not None and call.outcome in ("answered", "cut")]
    return tuple(Attempt(call, call is not (answers or [None])[-1]) for call in calls)


def _sum(attempts: Iterable[Attempt]) -> Usage:
    return sum((attempt.call.usage for attempt in attempts), Usage())
