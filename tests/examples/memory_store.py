"""A store of another package: everything in memory, for notebooks and tests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import openconductor as oc
from openconductor.store import (
    SERVED,
    SUCCESSES,
    EpisodeFilter,
    EpisodeLine,
    EpisodeOutcome,
    Spending,
    StoredEpisode,
    StoredRecord,
    Totals,
    WorkerLine,
    call_key,
)
from openconductor.store.overview import line_of, worker_lines


class MemoryStore:
    """A Store that is lost with its process. Everything is readable at once, and durable never."""

    keeps_texts = True
    wants_text = False  # no event for each piece of a step's text

    def __init__(self) -> None:
        self._episodes: dict[str, StoredEpisode] = {}
        self._completions: dict[str, oc.Completion] = {}
        self._paid: list[oc.Call] = []
        self._records: list[StoredRecord] = []

    # a sink of events
    def __call__(self, event: oc.Event) -> None:
        match event:
            case oc.Asked():
                self._episodes[event.episode] = StoredEpisode(
                    question=event.question,
                    rounds=(),
                    answer=None,
                    error=None,
                    usage=oc.Usage(),
                    seconds=0.0,
                    id=event.episode,
                    sample=event.sample,
                    started=time.time(),
                    workers=event.workers,
                )
            case oc.CallEnded():
                self._take_call(event)
            case oc.RoundEnded():
                episode = self._episodes[event.episode]
                rounds = (*episode.rounds, event.outcome)
                self._episodes[event.episode] = replace(episode, rounds=rounds)
            case oc.Answered():
                ended = event.outcome
                self._episodes[event.episode] = replace(
                    self._episodes[event.episode],
                    rounds=ended.rounds,
                    answer=ended.answer,
                    error=ended.error,
                    usage=ended.usage,
                    seconds=ended.seconds,
                    outcome="failed" if ended.answer is None else "answered",
                )
            case _:
                pass

    def _take_call(self, event: oc.CallEnded) -> None:
        call = event.call
        if call.replayed:
            return
        self._paid.append(call)
        if call.completion is not None and call.outcome in SUCCESSES:
            sample = self._episodes[event.episode].sample
            place = oc.CallContext(round=event.round, step=event.step, sample=sample)
            key = call_key(call.worker, call.identity, call.messages, call.sampling, place)
            self._completions.setdefault(key, call.completion)

    async def wait_durable(self) -> None:
        pass

    def flush(self) -> None:
        pass

    # completions to replay
    def find_completion(self, key: str) -> oc.Completion | None:
        return self._completions.get(key)

    # records by key
    def put_episode(self, events: Sequence[oc.Event]) -> None:
        for event in events:
            self(event)

    def put_record(self, key: str, value: Mapping[str, object], *, texts: bool = True) -> None:
        self._records.append(StoredRecord(key, value, time.time()))

    def remove_texts(self, episode: str, *, records: Sequence[str] = ()) -> None:
        self._records = [record for record in self._records if record.key not in records]
        kept = self._episodes[episode]
        self._episodes[episode] = replace(kept, question="", rounds=(), answer=None, error=None)

    def find_record(self, key: str) -> Mapping[str, Any] | None:
        values = {record.key: record.value for record in self._records}
        return values.get(key)

    def find_history(self, key: str) -> Sequence[Mapping[str, Any]]:
        return [record.value for record in self._records if record.key == key]

    def records(self, *, history: bool = False) -> Iterator[StoredRecord]:
        last = {record.key: record for record in self._records}
        for record in self._records:
            if history or last[record.key] is record:
                yield record

    # episodes and sums
    def episodes(
        self,
        *,
        before: str | None = None,
        limit: int | None = 50,
        outcome: EpisodeOutcome | None = None,
        text: str | None = None,
    ) -> list[StoredEpisode]:
        identifiers = list(self._episodes)
        if before in self._episodes:
            identifiers = identifiers[: identifiers.index(before)]
        latest = [self._episodes[identifier] for identifier in reversed(identifiers)]
        if outcome is not None:
            latest = [episode for episode in latest if episode.outcome == outcome]
        if text is not None:
            latest = [episode for episode in latest if contains(episode, text)]
        return latest[:limit]

    def episode(self, identifier: str, *, rounds: bool = True) -> StoredEpisode | None:
        return self._episodes.get(identifier)

    def lines(
        self, chosen: EpisodeFilter | None = None, *, offset: int = 0, limit: int = 50
    ) -> list[EpisodeLine]:
        chosen = chosen or EpisodeFilter()
        matching = self.episodes(limit=None, outcome=chosen.outcome, text=chosen.text)
        lines: list[EpisodeLine] = []
        for episode in matching:
            line = line_of(episode, self.find_record(f"{SERVED}{episode.id}"))
            if is_chosen(line, chosen):
                lines.append(line)
        amounts = {
            "dollars": lambda line: line.usage.dollars,
            "tokens": lambda line: line.usage.tokens,
            "seconds": lambda line: line.seconds or 0.0,
        }
        if chosen.order in amounts:
            lines.sort(key=amounts[chosen.order], reverse=True)
        return lines[offset : offset + limit]

    def workflows(self) -> Iterator[tuple[int, int, oc.Workflow]]:
        for number, episode in enumerate(self._episodes.values(), start=1):
            for played in episode.rounds:
                if played.workflow is not None and not played.accepted:
                    yield number, len(self._episodes), played.workflow

    def workers(self, *, latest: int = 1_000) -> list[WorkerLine]:
        return worker_lines(
            (call.worker, call.outcome, call.usage) for call in self._paid[-latest:]
        )

    def totals(self) -> Totals:
        spent = Spending()
        by_worker: dict[str, Spending] = {}
        by_outcome: dict[str, Spending] = {}
        for call in self._paid:
            part = Spending(1, call.usage)
            spent += part
            by_worker[call.worker] = by_worker.get(call.worker, Spending()) + part
            by_outcome[call.outcome] = by_outcome.get(call.outcome, Spending()) + part
        return Totals(spent, by_worker, by_outcome)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def is_chosen(line: EpisodeLine, chosen: EpisodeFilter) -> bool:
    """Return True if the filter takes a line; there are no tasks in memory."""
    wanted = (
        (chosen.identifier, line.id),
        (chosen.error, line.error),
        (chosen.key, line.key),
    )
    if any(value not in (None, actual) for value, actual in wanted):
        return False
    if chosen.worker is not None and chosen.worker not in line.workers:
        return False
    return chosen.since is None or (line.started or 0.0) >= chosen.since


def contains(episode: oc.Episode, text: str) -> bool:
    turns = [episode.question]
    if not isinstance(episode.question, str):
        turns = [turn.content for turn in episode.question]
    found = [str(part).lower() for part in (*turns, episode.answer or "")]
    return any(text.lower() in part for part in found)
