"""Batches of events as rows to add: the part of writing that every store shares.

For the writer's thread alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from openconductor.events import Answered, Asked, CallEnded, Event, RoundEnded, StepEnded
from openconductor.privacy import Privacy
from openconductor.store import rows
from openconductor.store.rows import Row, SharedText, TextPolicy
from openconductor.store.serialisation import compact
from openconductor.store.store import StoredRecord
from openconductor.types import Message


class Together(NamedTuple):
    """The events of one episode, which are kept in one commit."""

    events: Sequence[Event]


class Removal(NamedTuple):
    """The removal of an episode's texts, and of all records of some keys."""

    episode: str
    records: Sequence[str]


class Release(NamedTuple):
    """The end of the claim of a call."""

    key: str


class Charge(NamedTuple):
    """The charge of an episode to an account, in all until now (``Accounts.charge``)."""

    account: str
    episode: str
    dollars: Decimal
    closed: bool


Item = (
    Asked
    | CallEnded
    | StepEnded
    | RoundEnded
    | Answered
    | StoredRecord
    | Together
    | Removal
    | Release
    | Charge
)

ADDED = {
    "episode starts": "episodes",
    "whole episodes": "episodes",
    "calls": "calls",
    "steps": "steps",
    "rounds": "rounds",
    "episode ends": "episodes",
    "texts": "texts",
    "messages": "messages",
    "records": "outcomes",
}
"""The table that each kind of row is added to, in the order of writing."""
EPISODE_END = (
    "ON CONFLICT (id) DO UPDATE SET (outcome, seconds, usage, error, answer) = "
    "(excluded.outcome, excluded.seconds, excluded.usage, excluded.error, excluded.answer)"
)
"""The clause by which the end of an episode completes the row of its start."""
KEPT = Asked | CallEnded | StepEnded | RoundEnded | Answered
"""The events that are kept."""
REMOVALS = (
    "UPDATE episodes SET question = NULL, answer = NULL, error = NULL WHERE id = ?",
    "UPDATE episodes SET only_step = NULL WHERE id = ?",
    "UPDATE rounds SET text = NULL, workflow = NULL, error = NULL WHERE episode = ?",
    "UPDATE steps SET subtask = NULL, error = NULL WHERE episode = ?",
    "UPDATE calls SET request = NULL, response = NULL, body_sent = NULL WHERE episode = ?",
    "UPDATE calls SET replayable = FALSE, error = NULL WHERE episode = ?",
)
"""The statements that remove the texts of an episode; its numbers stay."""
_REMEMBERED = 16_384  # messages whose numbers are kept, until all are forgotten
_HELD = 50_000_000  # characters of texts that are remembered, until all are forgotten


@dataclass(slots=True)
class RowBatch:
    """What a batch of items changes in a store.

    Attributes:
        rows: those to add, by their kind (``ADDED``).
        removals: what is removed after that.
        releases: keys of claimed calls that are given back.
        charges: the last charge of each episode.
    """

    rows: defaultdict[str, list[Row]] = field(default_factory=lambda: defaultdict(list[Row]))
    removals: list[Removal] = field(default_factory=list[Removal])
    releases: list[str] = field(default_factory=list[str])
    charges: dict[str, Charge] = field(default_factory=dict[str, Charge])


class RowBuilder:
    """Turns batches of items into rows. It knows which messages and texts a store holds already.

    Args:
        privacy: cleans every text.
        content: whether texts are written at all; hashes and numbers always are.
        next_number: returns a number that no message and no text in the store has.
    """

    def __init__(self, privacy: Privacy, *, content: bool, next_number: Callable[[], int]) -> None:
        self._privacy = privacy
        self._texts = TextPolicy(privacy, content)
        self._no_texts = TextPolicy(privacy, content=False)
        self._next_number = next_number
        self._without_texts: set[str] = set()  # episodes that have not ended
        self._samples: dict[str, int] = {}  # by the id of an episode that has not ended
        self._numbers: dict[str | Message, int] = {}  # of messages that are in the store
        self._texts_held: dict[str, SharedText] = {}  # that are in the store
        self._characters = 0  # of both
        self._shared: dict[str, list[SharedText]] = {}  # of the question, by the episode's id
        self._ended: list[str] = []  # episodes that end with the batch
        self._batch = RowBatch()
        self._rows = self._batch.rows

    def build(self, items: Sequence[tuple[Item, float]]) -> RowBatch:
        """Return what items change, each of which has its time (seconds since 1970).

        The same items can be built again, until ``end_batch``.

        Raises:
            JournalError: the user's redaction failed.
        """
        is_full = len(self._numbers) > _REMEMBERED or self._characters > _HELD
        if self._privacy.refresh() or is_full:
            self.forget()
        self._batch = RowBatch()
        self._rows = self._batch.rows
        self._ended.clear()
        for item, now in items:
            self._add(item, now)
        return self._batch

    def end_batch(self) -> None:
        """Forget the episodes that ended with the batch, once it is durable."""
        for episode in self._ended:
            self._samples.pop(episode, None)
            self._shared.pop(episode, None)
            self._without_texts.discard(episode)

    def _add(self, item: Item, now: float) -> None:
        """Add the rows of an item to those of the batch."""
        if isinstance(item, Together):
            self._add_together(item.events, now)
            return
        if isinstance(item, Removal):
            self._batch.removals.append(item)
            return
        if isinstance(item, Release):
            self._batch.releases.append(item.key)
            return
        if isinstance(item, Charge):
            self._batch.charges[item.episode] = item
            return
        texts = self._policy(item)
        if isinstance(item, CallEnded):
            self._rows["calls"].append(self._call_row(item, texts))
        elif isinstance(item, StepEnded):
            row = rows.step_row(item.episode, item.round, item.step, item.result, texts)
            self._rows["steps"].append(row)
        elif isinstance(item, RoundEnded):
            self._rows["rounds"].append(rows.round_row(item, texts))
            self._rows["steps"] += rows.silent_step_rows(item, texts)
        elif isinstance(item, Answered):
            self._ended.append(item.episode)
            self._rows["episode ends"].append(rows.episode_end(item, texts))
        elif isinstance(item, Asked):
            self._samples[item.episode] = item.sample
            turns = self._turns(item, texts)
            self._rows["episode starts"].append(rows.episode_start(item, now, turns, texts))
        else:
            self._rows["records"].append(rows.record_row(item, texts))

    def _add_together(self, events: Sequence[Event], now: float) -> None:
        """Add the rows of an episode's events, the last of which happened at ``now``."""
        only_step = rows.only_step_row(events, self._policy(events[0]))
        for event in events:
            if only_step is not None and isinstance(event, StepEnded | RoundEnded):
                continue
            if isinstance(event, KEPT):
                self._add(event, now - (events[-1].at - event.at))
        if only_step is not None:
            start = self._rows["episode starts"].pop()
            end = self._rows["episode ends"].pop()
            whole = {**start, **end, "only_step": compact(only_step)}
            self._rows["whole episodes"].append(whole)

    def _policy(self, item: Event | StoredRecord) -> TextPolicy:
        """Return which texts of an item are kept."""
        if isinstance(item, StoredRecord):
            return self._texts
        if isinstance(item, Asked) and not item.keep_texts:
            self._without_texts.add(item.episode)
        return self._no_texts if item.episode in self._without_texts else self._texts

    def _turns(self, event: Asked, texts: TextPolicy) -> list[int] | None:
        """Return the numbers of a question's messages; None: it is a text, or not kept.

        Their long texts are shared with the messages of the episode's calls.
        """
        if not texts.content:
            return None
        shared = self._shared[event.episode] = []
        if isinstance(event.question, str):
            question = Message("user", event.question)
            shared += self._share(rows.long_texts(question, self._texts))
            return None
        numbers: list[int] = []
        for message in event.question:
            own = self._share(rows.long_texts(message, self._texts))
            numbers.append(self._number(message, own))
            shared += own
        return numbers

    def _call_row(self, event: CallEnded, texts: TextPolicy) -> Row:
        call = event.call
        shared: list[SharedText] = []
        numbers: list[int] = []
        if texts.content:
            shared += self._shared.get(event.episode, ())
            numbers = [self._number(message, shared) for message in call.messages]
            if call.sampling.body:
                shared += self._share(rows.long_settings(call.sampling, self._texts))
        sample = self._samples.get(event.episode)
        return rows.call_row(event, sample, numbers, texts, shared)

    def _number(self, message: Message, shared: Sequence[SharedText]) -> int:
        """Return the number of a message, which is written with this batch if it is new."""
        known_as = compact(message) if message.parts else message  # parts cannot be hashed
        number = self._numbers.get(known_as)
        if number is None:
            self._numbers[known_as] = number = self._next_number()
            self._characters += len(message.content)
            self._rows["messages"].append(rows.message_row(number, message, self._texts, shared))
        return number

    def _share(self, texts: Sequence[str]) -> list[SharedText]:
        """Return texts with their numbers; those that are new are written with this batch."""
        shared: list[SharedText] = []
        for text in texts:
            held = self._texts_held.get(text)
            if held is None:
                number = self._next_number()
                self._texts_held[text] = held = (text, number)
                self._characters += len(text)
                self._rows["texts"].append({"number": number, "text": text})
            shared.append(held)
        return shared

    def forget(self) -> None:
        """Forget which messages and texts are in the store: they are written again."""
        self._numbers.clear()
        self._texts_held.clear()
        self._shared.clear()
        self._characters = 0
