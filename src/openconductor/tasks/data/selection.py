"""Chooses few problems of many: hard ones, and unlike each other.

Two steps, both depending on the seed and on ids alone, never on the order of the items:

1. **Difficulty.** Problems with a measured pass rate come first, the lower the harder. Those that
   nobody solved come after those without a measurement (a group whose answers are all wrong teaches
   nothing, and its reference may be wrong), those that everybody solved last. Without a measurement
   the difficulty that the data state counts; without either all are alike. The hardest ``POOL``
   times as many as wanted go on. So do all that tie with the last of them, up to ``LARGEST_POOL``
   times as many.
2. **Diversity.** Subjects take turns. Each gives the problem that is least like those it gave
   before (farthest point over TF-IDF, cosine); its first is drawn. So no subject crowds out
   another, and near duplicates come last.

TF-IDF is 25 lines of plain Python here, which spares a library.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from openconductor.measures import group_by
from openconductor.tasks.data.items import Item, draw_key

POOL = 4
LARGEST_POOL = 10

Vector = Mapping[str, float]
_WORD = re.compile(r"[^\W\d_]+|\d+")
_NUMBER = "0"


def select(
    items: Sequence[Item], count: int, *, seed: int, pass_rates: Mapping[str, float] | None = None
) -> list[Item]:
    """Return the items to learn from, in the order in which they were chosen.

    Args:
        items: with ids of their own.
        count: the number of items to choose; all, if there are no more.
        seed: draws what difficulty and diversity leave open.
        pass_rates: measured, by id: the fraction of answers that were right, 0 to 1.
    """
    rates = pass_rates or {}
    hardness = {item.problem.id: _hardness(item, rates) for item in items}

    def rank(item: Item) -> tuple[tuple[int, float], bytes]:
        name = item.problem.id
        return hardness[name], draw_key(seed, name)

    ordered = sorted(items, key=rank, reverse=True)
    if len(ordered) > POOL * count:
        least = hardness[ordered[POOL * count - 1].problem.id]
        hardest = [item for item in ordered if hardness[item.problem.id] >= least]
        ordered = hardest[: LARGEST_POOL * count]
    return _spread(ordered, count, seed)


def _hardness(item: Item, pass_rates: Mapping[str, float]) -> tuple[int, float]:
    """Return a key that sorts items; the hardest is the greatest."""
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
    """Let subjects take turns, each giving the item that is least like what it gave before."""
    names = [item.problem.id for item in items]
    texts = [item.problem.question for item in items]
    vectors = dict(zip(names, tf_idf(texts), strict=True))
    likeness = dict.fromkeys(names, 0.0)

    def rank(item: Item) -> tuple[float, bytes]:
        name = item.problem.id
        return likeness[name], draw_key(seed, name)

    subjects = group_by(items, lambda item: item.subject)
    turns = deque(sorted(subjects, key=lambda subject: draw_key(seed, subject)))
    chosen: list[Item] = []
    while len(chosen) < count and turns:
        subject = turns.popleft()
        left = subjects[subject]
        item = min(left, key=rank)
        chosen.append(item)
        left.remove(item)
        given = vectors[item.problem.id]
        for other in left:
            name = other.problem.id
            likeness[name] = max(likeness[name], cosine(vectors[name], given))
        if left:
            turns.append(subject)
    return chosen


def tf_idf(texts: Sequence[str]) -> list[Vector]:
    """Return each text as weights of its words, of length 1.

    A weight is (1 + log of the count) times log of the rarity. All numbers are one word, for a
    problem with other numbers is the same problem again.
    """
    counts = [_count_words(text) for text in texts]
    known_in = Counter(word for count in counts for word in count)
    total = 1 + len(texts)
    vectors: list[Vector] = []
    for count in counts:
        weights: dict[str, float] = {}
        for word, times in count.items():
            rarity = math.log(total / (1 + known_in[word]))
            weights[word] = (1 + math.log(times)) * rarity
        length = math.sqrt(sum(weight * weight for weight in weights.values()))
        vectors.append({word: weight / length for word, weight in weights.items() if weight})
    return vectors


def _count_words(text: str) -> Counter[str]:
    words = _WORD.findall(text.casefold())
    return Counter(_NUMBER if word[0].isdecimal() else word for word in words)


def cosine(left: Vector, right: Vector) -> float:
    """Return the cosine of two vectors of length 1; 0 if one is empty."""
    return math.fsum(left[word] * right[word] for word in left.keys() & right.keys())
