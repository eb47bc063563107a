"""What visitors may ask of the server behind the page, and in which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, Protocol

from openconductor.store import StoredEpisode
from openconductor.types import Access, Budget, Message, StepResult


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """A question that a visitor asks.

    Attributes:
        turns: the conversation.
        model: who answers; "": the first on offer.
        workers: the names of those that may be asked; empty: all.
        dollars: what the answer may cost; None: no limit but the key's.
    """

    turns: Sequence[Message]
    model: str
    workers: Sequence[str] = ()
    dollars: Decimal | None = None


@dataclass(frozen=True, slots=True)
class EditedStep:
    """A step of a round that is played again.

    Attributes:
        source: its place in the round before.
        worker: the name of its worker.
        subtask: its text.
        access: the new places of the steps that it sees, or "all".
        anew: True to call the worker even if its answer is recorded.
    """

    source: int
    worker: str
    subtask: str
    access: Access
    anew: bool = False


@dataclass(frozen=True, slots=True)
class EpisodeChange:
    """An episode that is asked again, changed.

    Attributes:
        stored: the episode, with its texts.
        round: the round that is played again; None: the question is planned anew.
        steps: the steps of that round.
    """

    stored: StoredEpisode
    round: int | None = None
    steps: tuple[EditedStep, ...] = ()


class CallPrice(NamedTuple):
    """The price of a call, or of several.

    Attributes:
        who: makes them.
        what: the calls, in words.
        is_recorded: True if the answer is recorded, so that nobody is called.
        about: US dollars, if it goes as before; None: unknown.
        most: what is reserved; None: unknown.
    """

    who: str
    what: str
    is_recorded: bool = False
    about: Decimal | None = Decimal(0)
    most: Decimal | None = Decimal(0)


class Quote(NamedTuple):
    """The price of a change.

    Attributes:
        change: what differs, in words, without texts.
        prices: of each call.
        budget: one with room for them.
    """

    change: str
    prices: Sequence[CallPrice]
    budget: Budget


class Asker(Protocol):
    """Answers what visitors ask, within the limits of their keys.

    Methods raise PageProblem where something is rejected.

    Attributes:
        example: a question that its workers can answer; "": any.
    """

    example: str

    def models(self, key: str | None) -> list[str]:
        """Return the models that a key may ask."""
        ...

    def workers(self, key: str | None) -> list[str]:
        """Return the names of the workers that a key may use."""
        ...

    async def ask(self, key: str | None, question: PageQuestion) -> str:
        """Begin to answer; return the id of the episode, which the store has from now on."""
        ...

    def quote(self, key: str | None, model: str | None, change: EpisodeChange) -> Quote:
        """Return the price of a change, to an episode that a model answered."""
        ...

    async def ask_again(
        self, key: str | None, model: str | None, change: EpisodeChange, budget: Budget
    ) -> str:
        """Begin to answer again; the budget pays for what is not recorded."""
        ...

    def stop(self, key: str | None, episode: str) -> None:
        """Stop an episode of the key, if it is running."""
        ...

    async def keep(self, name: str, record: Mapping[str, object]) -> None:
        """Keep a record without texts in the store."""
        ...


def results_of(stored: StoredEpisode, number: int) -> tuple[StepResult, ...]:
    """Return the results of a round; one without a workflow has none."""
    transcript = stored.rounds[number].transcript
    return () if transcript is None else transcript.results
