"""The gym's questions: drawn by seed, and read back from their text.

Splits never overlap. A chain of operations belongs to one split by its hash, so the chains of the
test split are never trained on; so does the text of a question of one operation.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import permutations, product
from typing import Literal, cast, get_args

from openconductor.errors import ConfigError
from openconductor.gym.world import (
    OPERATIONS,
    WORDINGS,
    Operation,
    Value,
    Wording,
    find_operations,
    perform,
    write_value,
)
from openconductor.types import Problem

Kind = Literal["single", "pair", "triple", "smudged"]
Split = Literal["train", "validation", "test"]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""From easy to hard, by the oracle's expected accuracy."""
SPLITS: tuple[Split, ...] = get_args(Split)
EQUAL_MIX: Mapping[Kind, float] = dict.fromkeys(KINDS, 1.0)

OPENERS: tuple[str, ...] = ("Take", "Start with", "Here is")
JOINERS: tuple[str, ...] = (", then ", ", next ", " and then ")
SMUDGED = "the smudged list"
LARGEST = 99
EXAMPLE = "Take 4 17 9, sort the list, then double every number."
_LENGTHS = (3, 4, 5)
_KIND_OF_LENGTH: Mapping[int, Kind] = {1: "single", 2: "pair", 3: "triple"}
_LENGTH_OF_KIND: Mapping[Kind, int] = {"single": 1, "pair": 2, "triple": 3, "smudged": 1}
_SHARES: Mapping[Split, range] = {
    "train": range(14),
    "validation": range(14, 17),
    "test": range(17, 20),
}


@dataclass(frozen=True, slots=True)
class GymQuestion:
    """A question of the gym, with everything that its text says.

    Attributes:
        text: the question as it is asked.
        value: the list that it starts from.
        operations: the operations, in order, each in the wording of the text.
        smudged: True if the list is hard to read (most readings fail, unnoticed).
    """

    text: str
    value: Value
    operations: tuple[tuple[Operation, Wording], ...]
    smudged: bool

    @property
    def kind(self) -> Kind:
        """The kind of question."""
        if self.smudged:
            return "smudged"
        return _KIND_OF_LENGTH[len(self.operations)]

    @property
    def answer(self) -> Value:
        """The right answer."""
        value = self.value
        for operation, _ in self.operations:
            value = operation.apply(value)
        return value

    @property
    def composition(self) -> tuple[str, ...]:
        """The names of the operations, in order."""
        return tuple(operation.name for operation, _ in self.operations)

    def problem(self) -> Problem:
        """Return the question with its reference answer; the id is a hash of the text."""
        digest = blake2b(self.text.encode(), digest_size=8).hexdigest()
        return Problem(
            id=f"gym-{digest}",
            question=self.text,
            reference=write_value(self.answer),
            task="gym",
            kind=self.kind,
        )


_NUMBERS = re.compile(r"[0-9]+(?: [0-9]+)+")


UNREADABLE = (
    "the gym's simulated workers cannot read this question. They know only lists of numbers and a "
    f"small English, such as: {EXAMPLE}"
)


def is_readable(text: str) -> bool:
    """Return True if the first paragraph of a text is a question that the workers can read."""
    return read_question(text.split("\n\n", 1)[0]) is not None


@lru_cache(maxsize=65536)
def read_question(text: str) -> GymQuestion | None:
    """Return the question that a text asks. None: the gym does not understand it.

    >>> read_question("Take 4 17 9, reverse the list, then double every number.").answer
    ('18', '34', '8')
    """
    numbers = _NUMBERS.search(text)
    operations = find_operations(text)
    if numbers is None or not 1 <= len(operations) <= 3:
        return None
    value = tuple(numbers.group().split())
    longest = max(len(item) for item in value)
    if len(value) > 2 * max(_LENGTHS) or longest > 6:
        return None
    skills = [operation.skill for operation, _ in operations]
    if "writing" in skills[:-1]:
        return None
    return GymQuestion(text, value, operations, SMUDGED in text)


def split_of(kind: Kind, composition: tuple[str, ...], text: str) -> Split:
    """Return the one split that a question belongs to."""
    key = " ".join(composition) if kind in ("pair", "triple") else text
    digest = blake2b(key.encode(), digest_size=4, person=b"gym-split").digest()
    share = int.from_bytes(digest, "big") % 20
    return next(split for split, shares in _SHARES.items() if share in shares)


@lru_cache
def compositions(length: int, split: Split) -> tuple[tuple[str, ...], ...]:
    """Return the chains of 1 to 3 operations that a split may ask for.

    The operations of a chain are of different skills, and writing comes last.
    """
    chains: list[tuple[str, ...]] = []
    for names in product(OPERATIONS, repeat=length):
        skills = [OPERATIONS[name].skill for name in names]
        if len(set(skills)) < length or "writing" in skills[:-1]:
            continue
        if length == 1 or split_of(_KIND_OF_LENGTH[length], names, "") == split:
            chains.append(names)
    return tuple(chains)


@lru_cache
def reading_chains(length: int) -> tuple[tuple[str, ...], ...]:
    """Return the chains of 2 or more different operations, in any order, to learn reading from.

    They need not be possible. None is held out, and none has three in a row that are.
    """
    held_out: set[tuple[str, ...]] = set()
    for size, split in product((2, 3), ("validation", "test")):
        held_out.update(compositions(size, cast("Split", split)))
    chains: list[tuple[str, ...]] = []
    for names in permutations(OPERATIONS, length):
        parts = {names[start : start + 3] for start in range(max(1, length - 2))}
        if parts.isdisjoint(held_out):
            chains.append(names)
    return tuple(chains)


def draw_reading(length: int, rng: random.Random) -> GymQuestion:
    """Draw a question of ``reading_chains``, which is only read: it may have no answer."""
    return _draw(rng.choice(reading_chains(length)), rng)


def _draw(names: Sequence[str], rng: random.Random, *, smudged: bool = False) -> GymQuestion:
    """Draw a question that asks for these operations."""
    numbers = rng.sample(range(2, LARGEST + 1), rng.choice(_LENGTHS))
    value = tuple(str(number) for number in numbers)
    operations: list[tuple[Operation, Wording]] = []
    for name in names:
        operations.append((OPERATIONS[name], rng.choice(WORDINGS)))
    phrases = [operation.phrase(wording) for operation, wording in operations]
    joiner = rng.choice(JOINERS)
    subject = write_value(value)
    if smudged:
        subject = f"{SMUDGED} {subject}"
    opener = rng.choice(OPENERS)
    text = f"{opener} {subject}, {joiner.join(phrases)}."
    return GymQuestion(text, value, tuple(operations), smudged)


def draw_question(split: Split, kind: Kind, rng: random.Random) -> GymQuestion:
    """Draw one question; the same state of ``rng`` draws the same question."""
    while True:
        names = rng.choice(compositions(_LENGTH_OF_KIND[kind], split))
        question = _draw(names, rng, smudged=kind == "smudged")
        same_split = split_of(kind, names, question.text) == split
        if same_split and _every_operation_matters(question):
            return question


def _every_operation_matters(question: GymQuestion) -> bool:
    """Return True if no fewer of its operations lead to the answer, in whatever order."""
    operations = [operation for operation, _ in question.operations]
    for size in range(len(operations)):
        for part in permutations(operations, size):
            if perform(part, question.value) == question.answer:
                return False
    return True


def draw_questions(
    split: Split, count: int, *, seed: int, mix: Mapping[Kind, float] = EQUAL_MIX, start: int = 0
) -> list[GymQuestion]:
    """Draw ``count`` questions; question ``i`` depends only on (split, seed, i, mix).

    Kinds are dealt in proportion to ``mix`` by a low-discrepancy sequence, so that any stretch is
    balanced.
    """
    if split not in SPLITS:
        raise ConfigError(f"gym split: got {split!r}, expected one of {', '.join(SPLITS)}")
    questions: list[GymQuestion] = []
    for index in range(start, start + count):
        rng = random.Random(f"{split}/{seed}/{index}")
        questions.append(draw_question(split, _kind_at(index, mix), rng))
    return questions


def _kind_at(index: int, mix: Mapping[Kind, float]) -> Kind:
    # The golden ratio spreads any stretch of indices evenly.
    total = sum(mix.values())
    point = (index * 0.6180339887498949) % 1.0 * total
    for kind in KINDS:
        point -= mix.get(kind, 0.0)
        if point < 0:
            return kind
    # Rounding may leave a rest.
    return next(kind for kind in reversed(KINDS) if mix.get(kind, 0.0) > 0)
