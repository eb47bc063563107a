"""Measures of strategy (the shape of a workflow, the spread of work), and of long work's pace."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Literal, TypeVar

from openconductor.types import Workflow

Topology = Literal["accept", "single", "chain", "parallel", "aggregate", "tree", "dag"]
"""The shapes that ``topology`` tells apart."""

Key = TypeVar("Key", int, Topology)
T = TypeVar("T")
G = TypeVar("G", bound=Hashable)

MOST_MASKED = 0.03
"""The share of answers that may be undecided without a mark at the share of right ones."""

DAY_SECONDS = 86_400


class Pace:
    """Estimates when work will be done, from its speed since this was made."""

    def __init__(self) -> None:
        self._begun = time.time()
        self._before: int | None = None  # done by an earlier command, which says nothing of speed

    def finish(self, done: int, total: int) -> str:
        """Return the time of day when all will be done, ``, done at about 15:42:10``; "": unknown.

        Call it after each piece of work.
        """
        if self._before is None:
            self._before = max(0, done - 1)
        done_here = done - self._before
        if done_here <= 0 or done >= total:
            return ""
        now = time.time()
        left = (now - self._begun) / done_here * (total - done)
        form = "%H:%M:%S" if left < DAY_SECONDS else "%Y-%m-%d %H:%M"
        moment = time.strftime(form, time.localtime(now + left))
        return f", done at about {moment}"


def topology(workflow: Workflow) -> Topology:
    """Return the shape of a workflow, by which step sees which; workers, subtasks do not count.

    Implied access does not count (a step that sees another one sees, in effect, what that one saw),
    so ``"all"`` and the index form of the same flow have the same name. The first rule that fits:

    1. ``accept``: no step.
    2. ``single``: one step.
    3. ``chain``: each step sees the one before it.
    4. ``parallel``: no step sees another (the last alone answers).
    5. ``aggregate``: independent attempts, and a last step that sees them all (two or more).
    6. ``tree``: every step but the last feeds exactly one later step.
    7. ``dag``: everything else, workflows with loose ends among them.

    >>> from openconductor.types import Step
    >>> def shape(*accesses):
    ...     return topology(Workflow([Step(0, "Do it.", access) for access in accesses]))
    >>> shape([]), shape([], [0], "all"), shape([], []), shape([], [], [0, 1])
    ('single', 'chain', 'parallel', 'aggregate')
    >>> shape([], [], [0], [1], [2, 3]), shape([], [0], [0])
    ('tree', 'dag')
    """
    size = len(workflow)
    if size == 0:
        return "accept"
    if size == 1:
        return "single"
    sees = direct_access(workflow)
    if all(index - 1 in sees[index] for index in range(1, size)):
        return "chain"
    if not any(sees):
        return "parallel"
    if not any(sees[:-1]) and len(sees[-1]) == size - 1:
        return "aggregate"
    feeds = Counter(seen for step in sees for seen in step)
    if all(feeds[index] == 1 for index in range(size - 1)):
        return "tree"
    return "dag"


def direct_access(workflow: Workflow) -> list[frozenset[int]]:
    """Return for each step the steps that it sees and no other step that it sees has seen.

    This is the transitive reduction of the access lists.
    """
    reached: list[frozenset[int]] = []  # all that a step sees, directly or through others
    direct: list[frozenset[int]] = []
    for index in range(len(workflow)):
        visible = frozenset(workflow.visible(index))
        implied = frozenset[int]().union(*(reached[seen] for seen in visible))
        direct.append(visible - implied)
        reached.append(visible | implied)
    return direct


def unused_steps(workflow: Workflow) -> tuple[int, ...]:
    """Return the steps whose response cannot reach the answer."""
    if not workflow.steps:
        return ()
    useful = {len(workflow) - 1}
    for index in reversed(range(len(workflow))):
        if index in useful:
            useful.update(workflow.visible(index))
    return tuple(index for index in range(len(workflow)) if index not in useful)


def worker_shares(workflows: Iterable[Workflow]) -> dict[int, float]:
    """Return each worker's share of all steps, by ordinal in order."""
    return shares(_count_steps(workflows))


def topology_shares(workflows: Iterable[Workflow]) -> dict[Topology, float]:
    """Return each shape's share of all workflows, by name in order."""
    return shares(Counter(topology(workflow) for workflow in workflows))


def mean_steps(workflows: Iterable[Workflow]) -> float | None:
    """Return the mean number of steps a workflow; None: no workflows."""
    lengths = [len(workflow) for workflow in workflows]
    return sum(lengths) / len(lengths) if lengths else None


def routing_entropy_bits(workflows: Iterable[Workflow]) -> float:
    """Return the entropy of the workers' shares over steps, in bits.

    0 is one worker for all steps, log2(n) an even spread over n workers.
    """
    return entropy_bits(_count_steps(workflows).values())


def _count_steps(workflows: Iterable[Workflow]) -> Counter[int]:
    """Return each worker's number of steps, by ordinal."""
    return Counter(step.worker for workflow in workflows for step in workflow)


def entropy_bits(counts: Iterable[float]) -> float:
    """Return the entropy of counts, in bits; they need not add up to 1, and no counts are 0 bits.

    >>> entropy_bits([2, 1, 1])
    1.5
    """
    counts = [count for count in counts if count]
    total = math.fsum(counts)
    # Not -log2(count / total), which gives -0.0 if one count is everything.
    return math.fsum(count / total * math.log2(total / count) for count in counts)


def group_by(items: Iterable[T], group: Callable[[T], G]) -> dict[G, list[T]]:
    """Return the items of each group, both in the order in which they first come.

    >>> group_by(["one", "two", "three"], len)
    {3: ['one', 'two'], 5: ['three']}
    """
    groups: dict[G, list[T]] = {}
    for item in items:
        groups.setdefault(group(item), []).append(item)
    return groups


def shares(counts: Mapping[Key, int]) -> dict[Key, float]:
    """Return each key's share of the total, by key in order; empty if the total is 0."""
    total = sum(counts.values())
    if not total:
        return {}
    return {key: counts[key] / total for key in sorted(counts)}
