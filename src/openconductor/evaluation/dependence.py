"""Does the workflow depend on the question? Mutual information with a permutation test.

In: for each question its label and the workflows that it got. Out: bits, and how likely chance alone gives as many.

A constant workflow has 0 bits, however well it does. One that is drawn at random has a few by chance: the labels are
dealt out anew among the questions to see how many, so nothing is assumed about how many workflows or labels there are.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain

from openconductor.evaluation.records import Record
from openconductor.types import Workflow

PERMUTATIONS = 999


@dataclass(frozen=True, slots=True)
class Dependence:
    """How much a workflow says about its question.

    Attributes:
        on: what of the question was looked at: its ``kind``, or which ``question`` it is.
        bits: mutual information of that and the workflow (who works, who sees whom).
        excess: the same less what chance gives on average; at least 0.
        p: how often chance gives as much.
        problems: how many questions it rests on.
        labels, workflows: how many different ones there are.
    """

    on: str
    bits: float
    excess: float
    p: float
    problems: int
    labels: int
    workflows: int


def structure(workflow: Workflow) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Who works and who sees whom; ``"all"`` and its index form are the same, and subtasks play no part."""
    return tuple(step.worker for step in workflow), tuple(workflow.visible(index) for index in range(len(workflow)))


def routing_dependence(
    records: Sequence[Record], *, seed: int = 0, permutations: int = PERMUTATIONS
) -> Dependence | None:
    """Whether the first workflow of each record depends on the question.

    It is looked for by the question's kind (its task included) where there are several kinds, with two questions each
    on average at least: if each question is of its own kind, labels dealt out anew are as good as the true ones. Else
    it is looked for by the question itself, where questions were asked repeatedly.

    Returns:
        None where neither can be told apart: one kind or too many, and no repeats.
    """
    by_question: dict[tuple[str, str], list[Hashable]] = {}
    kinds: dict[tuple[str, str], str] = {}
    for record in records:
        if record.workflows:
            key = (record.task, record.problem)
            by_question.setdefault(key, []).append(structure(record.workflows[0]))
            kinds.setdefault(key, f"{record.task}\0{record.kind}")
    groups, labels = list(by_question.values()), list(kinds.values())
    if 1 < len(set(labels)) <= len(labels) / 2:
        return dependence(labels, groups, on="kind", seed=seed, permutations=permutations)
    repeated = [group for group in groups if len(group) > 1]
    if len(repeated) < 2:
        return None
    answers = list(chain.from_iterable(repeated))
    names = [str(index) for index, group in enumerate(repeated) for _ in group]
    found = dependence(names, [[one] for one in answers], on="question", seed=seed, permutations=permutations)
    return Dependence("question", found.bits, found.excess, found.p, len(repeated), len(repeated), found.workflows)


def dependence(
    labels: Sequence[str],
    groups: Sequence[Sequence[Hashable]],
    *,
    on: str = "kind",
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Dependence:
    """Mutual information of labels and what each labelled group holds; labels are dealt out anew group by group.

    Args:
        labels: one a group.
        groups: what each question got, repeats together, so that these do not count as more questions.
        on: what the labels are.
        seed: of the permutations.
        permutations: how many.
    """
    numbers: dict[Hashable, int] = {}
    flat = [(index, numbers.setdefault(one, len(numbers))) for index, group in enumerate(groups) for one in group]
    names = {label: place * len(numbers) for place, label in enumerate(dict.fromkeys(labels))}
    counted = Counter(one for _, one in flat)
    apart = _bits(counted) if counted else 0.0
    alike = len({len(group) for group in groups}) < 2  # then dealing out labels does not change how many there are
    of_labels = _bits(Counter(labels[index] for index, _ in flat)) if counted else 0.0

    def shared(dealt: Sequence[int]) -> float:
        """Entropy of the labels and of the contents, less that of both together."""
        own = of_labels if alike else _bits(Counter(dealt[index] for index, _ in flat))
        return own + apart - _bits(Counter([dealt[index] + one for index, one in flat]))

    dealt = [names[label] for label in labels]
    if len(counted) < 2 or len(names) < 2:
        return Dependence(on, 0.0, 0.0, 1.0, len(groups), len(names), len(counted))
    observed = max(0.0, shared(dealt))
    rng = random.Random(f"dependence/{seed}")
    total, reached = 0.0, 0
    for _ in range(permutations):
        dealt.sort(key=lambda _: rng.random())  # a shuffle, several times as quick as the library's
        by_chance = shared(dealt)
        total += by_chance
        reached += by_chance >= observed - 1e-9
    excess = max(0.0, observed - total / permutations)
    p = (reached + 1) / (permutations + 1)
    return Dependence(on, observed, excess, p, len(groups), len(names), len(counted))


def _bits(counts: Counter[int] | Counter[str]) -> float:
    """Entropy of what is counted; quicker than ``measures.entropy_bits``, for it is computed a thousand times."""
    total = counts.total()
    return math.log2(total) - sum(count * math.log2(count) for count in counts.values()) / total
