"""Choosing few problems of many: hard ones, and unlike each other. In: Items and a count. Out: the Items chosen.

Two steps, both depending on the seed and on ids alone, never on the order of the items:

1. **Difficulty.** Problems with a measured pass rate come first, the lower the harder; those that nobody solved come
   after those without a measurement (a group whose answers are all wrong teaches nothing, and its reference may be
   wrong), those that everybody solved last. Without a measurement the difficulty that the data state counts; without
   either all are alike. The hardest ``POOL`` times as many as wanted go on, all that tie with the last of them too, up
   to ``LARGEST_POOL`` times as many.
2. **Diversity.** Subjects take turns. Each gives the problem that is least like those it gave before (farthest point
   over TF-IDF, cosine); its first is drawn. So no subject crowds out another, and near duplicates come last.

TF-IDF is written out here, in 25 lines of plain Python: it is all that is needed of a library of
its size.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from openconductor.measures import group_by
from openconductor.tasks.items import Item, draw_key

POOL = 4
LARGEST_POOL = 10

Vector = Mapping[str, float]
_WORD = re.compile(r"[^\W\d_]+|\d+")
_NUMBER = "0"


def select(
    items: Sequence[Item], count: int, *, seed: int, pass_rates: Mapping[str, float] | None = None
) -> list[Item]:
    """The ``count`` items to learn from, in the order in which they were chosen.

    Args:
        items: with ids of their own.
        count: how many; all, where there are no more.
        seed: draws what difficulty and diversity leave open.
        pass_rates: measured, by id: the fraction of answers that were right, 0 to 1.
    """
    hardness = {item.problem.id: _hardness(item, pass_rates or {}) for item in items}
    ordered = sorted(
        items,
        key=lambda item: (hardness[item.problem.id], draw_key(seed, item.problem.id)),
        reverse=True,
    )
    if len(ordered) > POOL * count:
        least = hardness[ordered[POOL * count - 1].problem.id]
        ordered = [item for item in ordered if hardness[item.problem.id] >= least][
            : LARGEST_POOL * count
        ]
    return _spread(ordered, count, seed)


def _hardness(item: Item, pass_rates: Mapping[str, float]) -> tuple[int, float]:
    """What to sort by, the hardest the greatest."""
    match pass_rates.get(item.problem.id):
        case None:
            return 2, 0.5 if item.difficulty is None else item.difficulty
        case 0:
            return 1, 0.0
        case 1:
            return 0, 0.0
        case rate:
            return 3, 1 - rate


def _spread(items: Sequence[Item], count: int, seed: int) -> list[Item]:
    """Take turns among subjects, each giving what is least like what it gave before."""
    vectors = dict(
        zip(map(_id, items), tf_idf([item.problem.question for item in items]), strict=True)
    )
    likeness = dict.fromkeys(vectors, 0.0)
    subjects = group_by(items, lambda item: item.subject)
    turns = deque(sorted(subjects, key=lambda subject: draw_key(seed, subject)))
    chosen: list[Item] = []
    while len(chosen) < count and turns:
        subject = turns.popleft()
        left = subjects[subject]
        chosen.append(min(left, key=lambda item: (likeness[_id(item)], draw_key(seed, _id(item)))))
        left.remove(chosen[-1])
        for name in map(_id, left):
            likeness[name] = max(likeness[name], cosine(vectors[name], vectors[_id(chosen[-1])]))
        if left:
            turns.append(subject)
    return chosen


def _id(item: Item) -> str:
    return item.problem.id


def tf_idf(texts: Sequence[str]) -> list[Vector]:
    """Each text as weights of its words, of length 1: (1 + log of how often) times log of how rare.

    All numbers are one word, for a problem with other numbers is the same problem again.
    """
    counts = [
        Counter(_NUMBER if word[0].isdecimal() else word for word in _WORD.findall(text.casefold()))
        for text in texts
    ]
    known_in = Counter(word for count in counts for word in count)
    vectors: list[Vector] = []
    for count in counts:
        weights = {
            word: (1 + math.log(often)) * math.log((1 + len(texts)) / (1 + known_in[word]))
            for word, often in count.items()
        }
        length = math.sqrt(sum(weight * weight for weight in weights.values()))
        vectors.append({word: weight / length for word, weight in weights.items() if weight})
    return vectors


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of two vectors of length 1; 0 where one is empty."""
    return math.fsum(one[word] * other[word] for word in one.keys() & other.keys())
