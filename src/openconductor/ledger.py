"""Who cost what: every attempt, the wasted ones too, added up. In: an Episode. Out: a Ledger whose sums agree.

Attempts add up to their step (or to the Conductor's planning), these to their round, rounds to the episode: to the
token and to the last digit of a dollar. A call whose price is not known is counted, never taken for free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from openconductor.types import Call, Completion, Episode, Round, StepResult, Usage

CONDUCTOR = "conductor"
"""Who plans, in a ledger."""

_ANSWERS = ("answered", "cut")
_NOTHING = Usage()


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
    wasted: bool = False
    replayed: bool = False
    nested: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """What one step cost, or one planning.

    Attributes:
        round: 0-based round.
        step: 0-based step; None is the Conductor's planning.
        who: the worker that answered (``conductor`` for planning); where none did, the one that was asked last, or ""
            where the step was not reached.
        usage: the sum over the attempts.
        attempts: in the order in which they ended.
    """

    round: int
    step: int | None
    who: str
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
    by_worker: tuple[tuple[str, Usage], ...]

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every attempt of every entry."""
        return tuple(attempt for entry in self.entries for attempt in entry.attempts)


def draw_up(episode: Episode) -> Ledger:
    """Draw up the ledger of an episode, a stopped one too."""
    entries: list[Entry] = []
    rounds: list[Usage] = []
    for index, one in enumerate(episode.rounds):
        mine = list(_entries(index, one))
        entries += mine
        rounds.append(_sum(entry.usage for entry in mine))
    attempts = [attempt for entry in entries for attempt in entry.attempts]
    return Ledger(
        entries=tuple(entries),
        rounds=tuple(rounds),
        conductor=_sum(entry.usage for entry in entries if entry.step is None),
        workers=_sum(entry.usage for entry in entries if entry.step is not None),
        total=_sum(rounds),
        wasted=_sum(attempt.usage for attempt in attempts if attempt.wasted),
        replayed=_sum(attempt.usage for attempt in attempts if attempt.replayed),
        by_worker=_by_worker(entries),
    )


def _entries(index: int, one: Round) -> Iterable[Entry]:
    planning = _attempts(one.calls, one.completion, one.planning, CONDUCTOR)
    if planning:
        yield Entry(index, None, CONDUCTOR, one.planning, planning)
    for number, result in enumerate(one.transcript.results if one.transcript is not None else ()):
        attempts = _attempts(result.calls, result.completion, result.usage, _asked(result))
        useful = [attempt.worker for attempt in attempts if not attempt.wasted]
        who = useful[-1] if useful else attempts[-1].worker if attempts else ""
        yield Entry(index, number, who, _sum(attempt.usage for attempt in attempts), attempts)


def _attempts(calls: Sequence[Call], said: Completion | None, usage: Usage, worker: str) -> tuple[Attempt, ...]:
    """The attempts at one completion; where no call is on record but something was used, that is one attempt."""
    if not calls:
        if said is None and usage == _NOTHING:
            return ()
        return (Attempt(worker, "answered" if said is not None else "failed", 0, usage, wasted=said is None),)
    answering = [number for number, call in enumerate(calls) if call.outcome in _ANSWERS]
    useful = answering[-1] if answering and said is not None else None
    return tuple(
        Attempt(call.worker, call.outcome, call.attempt, call.usage, number != useful, call.replayed, call.nested)
        for number, call in enumerate(calls)
    )


def _asked(result: StepResult) -> str:
    return f"worker {result.step.worker if result.worker is None else result.worker}"


def _by_worker(entries: Sequence[Entry]) -> tuple[tuple[str, Usage], ...]:
    sums: dict[str, Usage] = {}
    for entry in entries:
        for attempt in entry.attempts:
            who = CONDUCTOR if entry.step is None else attempt.worker
            sums[who] = sums.get(who, _NOTHING) + attempt.usage
    return tuple(sums.items())


def _sum(usages: Iterable[Usage]) -> Usage:
    return sum(usages, _NOTHING)
