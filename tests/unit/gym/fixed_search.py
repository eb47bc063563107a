"""The accuracy of fixed workflows over the gym, and a step of the search for the best one.

Run it when the world has changed: it climbs from ``BEST_FIXED`` by single changes (minutes).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, product

from openconductor.gym.exact import ALL
from openconductor.gym.levels import BEST_FIXED, Constant, Shape, fixed_accuracy, shape_of
from openconductor.gym.questions import (
    KINDS,
    OPENERS,
    SMUDGED,
    SPLITS,
    GymQuestion,
    compositions,
    read_question,
)
from openconductor.gym.world import OPERATIONS

MAX_STEPS = 5


def mean_accuracy(constant: Constant, *, at_least: float = 0.0) -> float:
    """Return the expected accuracy: kinds weigh the same, as do the compositions of each.

    Where it comes out below ``at_least``, the summing may stop early, with some number below that.
    """
    total, rest = 0.0, 1.0
    for question, weight in representatives():
        total += weight * fixed_accuracy(question, constant)
        rest -= weight
        if total + rest < at_least:
            break
    return total


@lru_cache
def representatives() -> tuple[tuple[GymQuestion, float], ...]:
    """Return a question of each shape that the gym asks with its share, the heaviest first."""
    value = "17 4 62 9 35"
    weights: dict[Shape, tuple[GymQuestion, float]] = {}
    for kind in KINDS:
        length = 1 if kind == "smudged" else ("single", "pair", "triple").index(kind) + 1
        asked = {names for split in SPLITS for names in compositions(length, split)}
        subject = f"{SMUDGED} {value}" if kind == "smudged" else value
        for names in sorted(asked):
            phrases = ", then ".join(OPERATIONS[name].formal for name in names)
            question = read_question(f"{OPENERS[0]} {subject}, {phrases}.")
            assert question is not None
            first, weight = weights.get(shape_of(question), (question, 0.0))
            weights[shape_of(question)] = (first, weight + 1 / len(KINDS) / len(asked))
    return tuple(sorted(weights.values(), key=lambda entry: -entry[1]))


def climb(constant: Constant) -> tuple[Constant, float]:
    """Return the local optimum that single changes lead to, and its accuracy."""
    accuracy = mean_accuracy(constant)
    for change in neighbours(constant):
        if mean_accuracy(change, at_least=accuracy) > accuracy + 1e-9:
            return climb(change)
    return constant, accuracy


def neighbours(constant: Constant) -> Iterator[Constant]:
    """Yield every constant that is one change away: another worker or access, or a last step."""
    workers, access = constant.workers, constant.access
    size = len(workers)
    for index in range(size):
        for worker in ALL:
            if worker != workers[index]:
                yield Constant((*workers[:index], worker, *workers[index + 1 :]), access)
        for seen in _subsets(index):
            if seen != access[index]:
                yield Constant(workers, (*access[:index], seen, *access[index + 1 :]))
    if size > 1:
        yield Constant(workers[:-1], access[:-1])
    if size < MAX_STEPS:
        for worker, seen in product(ALL, _subsets(size)):
            yield Constant((*workers, worker), (*access, seen))


def _subsets(size: int) -> list[tuple[int, ...]]:
    return [seen for count in range(size + 1) for seen in combinations(range(size), count)]


if __name__ == "__main__":
    print(climb(BEST_FIXED))
