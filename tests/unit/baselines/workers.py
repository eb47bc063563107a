"""Workers by definition: whether they are right is a chance, or hangs on the question.

On what they see or are told.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import cache

from planted import PRICE, Planted, Say, asked, attempts
from topics import topic_of

from openconductor.baselines.collaboration import ROLES
from openconductor.pool import Worker, WorkerPool
from openconductor.tasks.instructions import MERGE, STANDS
from openconductor.types import Completion, Message, Sampling

RIGHT, WRONG = "Answer: yes", "Answer: no"


def noisy(share: float) -> Say:
    """Right with a chance, in each call anew."""
    return lambda messages, rng: RIGHT if rng.random() < share else WRONG


def fixed(share: float) -> Say:
    """Right on a share of the questions, the same whoever is asked and however often.

    Perfectly correlated.
    """
    return lambda messages, rng: RIGHT if random.Random(asked(messages)).random() < share else WRONG


def uneven(easy: float, hard: float) -> Say:
    """Right with one chance on half of the questions and with another on the rest."""

    def say(messages: Sequence[Message], rng: random.Random) -> str:
        share = easy if random.Random(asked(messages)).random() < 0.5 else hard
        return RIGHT if rng.random() < share else WRONG

    return say


def revising(first: float, mends: float, breaks: float, content: Sequence[str] = ()) -> Say:
    """Right at first with a chance; a revision mends a wrong attempt, or breaks a right one.

    With others.

    It says of an attempt that it is ``content`` with that it stands.
    """

    def say(messages: Sequence[Message], rng: random.Random) -> str:
        before = attempts(messages)
        if before and before[-1] in content:
            return STANDS
        chance = first if not before else 1 - breaks if before[-1] == RIGHT else mends
        return RIGHT if rng.random() < chance else WRONG

    return say


def merging(propose: Say, merge: Callable[[list[str], random.Random], str]) -> Say:
    """Proposes in one way, and merges what it sees in another."""

    def say(messages: Sequence[Message], rng: random.Random) -> str:
        seen = references(messages)
        return merge(seen, rng) if seen else propose(messages, rng)

    return say


def references(messages: Sequence[Message]) -> list[str]:
    """The numbered proposals of a system prompt, in order."""
    system = "".join(message.content for message in messages if message.role == "system")
    return [line.partition(". ")[2] for line in system.partition(MERGE)[2].split("\n") if line]


def by_count(votes: list[str], rng: random.Random) -> str:
    return RIGHT if votes.count(RIGHT) > len(votes) / 2 else WRONG


def by_chance(votes: list[str], rng: random.Random) -> str:
    return rng.choice(votes)


class Thinker(Planted):
    """Right if the tokens that a question takes it, drawn from an exponential distribution.

    Are within its limit.
    """

    def __init__(self, mean: float) -> None:
        super().__init__("thinker", noisy(0))
        self._mean = mean

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        completion = await super().complete(messages, sampling, call=call, on_text=on_text)
        takes = random.Random(f"thinker/{asked(messages)}").expovariate(1 / self._mean)
        limit = math.inf if sampling.max_tokens is None else sampling.max_tokens
        return Completion(RIGHT if takes <= limit else WRONG, usage=completion.usage)


def limited_pool(provider: Planted, max_tokens: int) -> WorkerPool:
    return WorkerPool(
        [Worker(provider, name="a", price=PRICE, sampling=Sampling(max_tokens=max_tokens))]
    )


# ── who knows which topic ─────────────────────────────────────────────────────────────────────────
@cache
def truth(question: str) -> str:
    rng = random.Random(f"truth/{question}")
    return "Answer: " + " ".join(str(rng.randrange(1000)) for _ in range(4))


def knowing(*shares: float) -> Say:
    """Right with a chance that depends on the topic, else wrong in a way of its own."""

    def say(messages: Sequence[Message], rng: random.Random) -> str:
        question = asked(messages)
        right = rng.random() < shares[topic_of(question) % len(shares)]
        return truth(question if right else f"{rng.random()}")

    return say


def lying(messages: Sequence[Message], rng: random.Random) -> str:
    """Always wrong, and as all other liars are."""
    return truth(f"not {asked(messages)}")


# ── who works in a team ───────────────────────────────────────────────────────────────────────────
def soloist(easy: float) -> Say:
    """Knows topic 0, if nobody says how."""

    def say(messages: Sequence[Message], rng: random.Random) -> str:
        question = asked(messages)
        free = messages[-1].content == question
        return RIGHT if free and topic_of(question) == 0 and rng.random() < easy else WRONG

    return say


def opening(messages: Sequence[Message], rng: random.Random) -> str:
    return "the first part" if messages[-1].content.endswith(ROLES["opener"]) else WRONG


def closing(composite: float) -> Say:
    """Ends what was begun, on questions of topic 1."""

    def say(messages: Sequence[Message], rng: random.Random) -> str:
        begun = "the first part" in attempts(messages) and messages[-1].content.endswith(
            ROLES["closer"]
        )
        return (
            RIGHT
            if begun and topic_of(asked(messages)) == 1 and rng.random() < composite
            else WRONG
        )

    return say
