"""The gym's questions: drawn by seed, read back from their text.

In: a split, a seed and an index, or a text. Out: a ``GymQuestion``. Splits never overlap: a chain
of operations belongs to one split by its hash (so the chains of the test split are never trained
on), and so does the text of a question of one operation.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import permutations, product
from typing import Literal, get_args

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
_LENGTHS = (3, 4, 5)
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
        operations: what to do, in order, each in the wording of the text.
        smudged: whether the list is hard to read (most readings fail, unnoticed).
    """

    text: str
    value: Value
    operations: tuple[tuple[Operation, Wording], ...]
    smudged: bool

    @property
    def kind(self) -> Kind:
        """The kind of question."""
        return "smudged" if self.smudged else ("single", "pair", "triple")[len(self.operations) - 1]

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
        """The question with its reference answer, as a task's problem; the id is a hash of the text."""
        digest = blake2b(self.text.encode(), digest_size=8).hexdigest()
        return Problem(
            id=f"gym-{digest}",
            question=self.text,
            reference=write_value(self.answer),
            task="gym",
            kind=self.kind,
        )


_NUMBERS = re.compile(r"[0-9]+(?: [0-9]+)+")


@lru_cache(maxsize=65536)
def read_question(text: str) -> GymQuestion | None:
    """The question that a text asks; None where the gym does not understand it.

    >>> read_question("Take 4 17 9, reverse the list, then double every number.").answer
    ('18', '34', '8')
    """
    numbers = _NUMBERS.search(text)
    operations = find_operations(text)
    if numbers is None or not 1 <= len(operations) <= 3:
        return None
    value = tuple(numbers.group().split())
    if len(value) > 2 * max(_LENGTHS) or any(len(item) > 6 for item in value):
        return None
    if any(operation.skill == "writing" for operation, _ in operations[:-1]):
        return None
    return GymQuestion(text, value, operations, SMUDGED in text)


def split_of(kind: Kind, composition: tuple[str, ...], text: str) -> Split:
    """The one split that a question belongs to."""
    key = " ".join(composition) if kind in ("pair", "triple") else text
    share = (
        int.from_bytes(blake2b(key.encode(), digest_size=4, person=b"gym-split").digest(), "big")
        % 20
    )
    return next(split for split, shares in _SHARES.items() if share in shares)


@lru_cache
def compositions(length: int, split: Split) -> tuple[tuple[str, ...], ...]:
    """The chains of a length (1 to 3) that a split may ask for; the operations of a chain are of different skills."""
    kind: Kind = ("single", "pair", "triple")[length - 1]
    chains = (
        names
        for names in product(OPERATIONS, repeat=length)
        if len({OPERATIONS[name].skill for name in names}) == length
        and all(OPERATIONS[name].skill != "writing" for name in names[:-1])
    )
    return tuple(names for names in chains if length == 1 or split_of(kind, names, "") == split)


def draw_question(split: Split, kind: Kind, rng: random.Random) -> GymQuestion:
    """Draw one question; the same state of ``rng`` draws the same question."""
    while True:
        length = {"single": 1, "pair": 2, "triple": 3, "smudged": 1}[kind]
        names = rng.choice(compositions(length, split))
        value = tuple(
            str(number) for number in rng.sample(range(2, LARGEST + 1), rng.choice(_LENGTHS))
        )
        wordings: list[Wording] = [rng.choice(WORDINGS) for _ in names]
        phrases = [
            OPERATIONS[name].phrase(wording) for name, wording in zip(names, wordings, strict=True)
        ]
        joiner = rng.choice(JOINERS)
        subject = f"{SMUDGED} {write_value(value)}" if kind == "smudged" else write_value(value)
        text = f"{rng.choice(OPENERS)} {subject}, {joiner.join(phrases)}."
        question = read_question(text)
        assert question is not None, text
        if (
            _every_operation_matters(question)
            and split_of(kind, question.composition, text) == split
        ):
            return question


def _every_operation_matters(question: GymQuestion) -> bool:
    """Whether no fewer of its operations, in whatever order, lead to the answer."""
    operations = [operation for operation, _ in question.operations]
    return all(
        perform(part, question.value) != question.answer
        for size in range(len(operations))
        for part in permutations(operations, size)
    )


def draw_questions(
    split: Split, count: int, *, seed: int, mix: Mapping[Kind, float] = EQUAL_MIX, start: int = 0
) -> list[GymQuestion]:
    """Draw ``count`` questions; question ``i`` depends only on (split, seed, i, mix), not on how many are drawn.

    Kinds are dealt in proportion to ``mix`` by a low-discrepancy sequence, so that any stretch is
    balanced.
    """
    if split not in SPLITS:
        raise ConfigError(f"gym split: got {split!r}, expected one of {', '.join(SPLITS)}")
    return [
        draw_question(split, _kind_at(index, mix), random.Random(f"{split}/{seed}/{index}"))
        for index in range(start, start + count)
    ]


def _kind_at(index: int, mix: Mapping[Kind, float]) -> Kind:
    total = sum(mix.values())
    point = (
        (index * 0.6180339887498949) % 1.0 * total
    )  # the golden ratio spreads any stretch of indices evenly
    for kind in KINDS:
        point -= mix.get(kind, 0.0)
        if point < 0:
            return kind
    return next(kind for kind in reversed(KINDS) if mix.get(kind, 0.0) > 0)
