"""The ledger: the bill of an episode, by attempt, step, round and worker, wasted attempts included.

Attempts add up to their step (or to the Conductor's planning), these to their round, rounds to the
episode: to the token and to the last digit of a dollar. A call whose price is unknown is counted,
never taken for free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from openconductor.types import Call, Completion, Episode, Sampling, Usage

CONDUCTOR = "conductor"
"""The name of the planner in a ledger."""


class Attempt(NamedTuple):
    """A call; wasted if it failed, was cancelled, or another worker's answer replaced its own."""

    call: Call
    wasted: bool


class Entry(NamedTuple):
    """The cost of one step, or of one planning.

    Attributes:
        round: 0-based round.
        step: 0-based step; None: the Conductor's planning.
        asked: the ordinal of the worker; None: the Conductor.
        attempts: in the order in which they ended.
    """

    round: int
    step: int | None
    asked: int | None
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
        wasted: the part of the total of wasted attempts.
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
    by_round = [Usage() for _ in episode.rounds]
    by_worker: dict[str, Usage] = {}
    planning: list[Attempt] = []
    working: list[Attempt] = []
    for entry in entries:
        by_round[entry.round] += entry.usage
        (planning if entry.step is None else working).extend(entry.attempts)
        for call, _ in entry.attempts:
            worker = CONDUCTOR if entry.step is None else call.worker
            by_worker[worker] = by_worker.get(worker, Usage()) + call.usage
    attempts = [attempt for entry in entries for attempt in entry.attempts]
    return Ledger(
        entries=entries,
        rounds=tuple(by_round),
        conductor=_sum(planning),
        workers=_sum(working),
        total=_sum(attempts),
        wasted=_sum(attempt for attempt in attempts if attempt.wasted),
        replayed=_sum(attempt for attempt in attempts if attempt.call.replayed),
        by_worker=MappingProxyType(by_worker),
    )


def draw_entries(episode: Episode) -> tuple[Entry, ...]:
    """Return the entries of an episode's ledger, without the sums."""
    entries: list[Entry] = []
    for index, played in enumerate(episode.rounds):
        planning = _attempts(played.calls, played.completion, played.planning, CONDUCTOR)
        if planning:
            entries.append(Entry(index, None, None, planning))
        results = () if played.transcript is None else played.transcript.results
        for step, result in enumerate(results):
            worker = f"worker {result.asked}"
            attempts = _attempts(result.calls, result.completion, result.usage, worker)
            entries.append(Entry(index, step, result.asked, attempts))
    return tuple(entries)


def _attempts(
    calls: Sequence[Call], completion: Completion | None, usage: Usage, worker: str
) -> tuple[Attempt, ...]:
    """Return the attempts at one completion; usage without a call on record is one attempt."""
    if not calls and (completion is not None or usage != Usage()):
        outcome = "failed" if completion is None else "answered"
        calls = (Call(worker, outcome, (), Sampling(), usage=usage),)
    useful: Call | None = None
    if completion is not None:
        answers = [call for call in calls if call.outcome in ("answered", "cut")]
        useful = answers[-1] if answers else None
    return tuple(Attempt(call, call is not useful) for call in calls)


def _sum(attempts: Iterable[Attempt]) -> Usage:
    return sum((attempt.call.usage for attempt in attempts), Usage())
