"""What kind of plan a workflow is, which plans there were, and whether they depend on the question.

In: Workflows, with when they came and whether they were right. Out: strategies, patterns (the same
plan whatever the workers are called), diversity over a training, mutual information of plan and
question.

Only steps that reach the answer count. Who sees whom is taken without what is implied
(``measures.direct_access``), so ``"all"`` and index lists are alike. A step that sees nothing is an
*attempt*. The first rule that fits:

1. ``accept``: no step.
2. ``single``: one step.
3. ``debate``: two steps reply to the same two or more attempts, or a step that sees another is told to argue with it.
4. ``planner-executor``: a step is told to plan, and a later one sees it.
5. ``best-of-n``: two or more attempts side by side, then one step that sees them all, and what follows in line. Whether
   they try the same thing, or parts of it, is not looked at.
6. ``verify-refine``: a step that sees earlier work is told to check, correct or improve it.
7. ``chain``: each step works on from the one before.
8. ``tree``: branches that run to one root.
9. ``graph``: everything else.

What subtasks say is read by English words; a workflow in another language is classified by its
structure alone. The words are patterns, not understanding: ``tests/unit/evaluation`` holds golden
cases, right and wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Literal, get_args

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate, Key, estimate, grouped
from openconductor.measures import (
    Topology,
    direct_access,
    entropy_bits,
    group_by,
    topology,
    unused_steps,
)
from openconductor.store import read_store
from openconductor.types import Workflow

Strategy = Literal[
    "accept",
    "single",
    "debate",
    "planner-executor",
    "best-of-n",
    "verify-refine",
    "chain",
    "tree",
    "graph",
]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
FIRST_PATTERNS = 50
"""How many distinct patterns are looked at, in the order in which they first came."""
PLACES = 10
"""The parts that a training's journal is cut into: it does not say which iteration an episode was of."""
PERMUTATIONS = 999


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})", re.IGNORECASE)


_PLANS = _words(
    r"plan(?:s)? (?:the|a|an|how|out|your|each|for)\b",
    r"(?:make|write|draft|devise|create|give|produce|outline|propose|lay out|design|develop) "
    r"(?:\w+ ){0,4}?(?:plan|outline|strategy|roadmap|approach|decomposition)\b",
    r"outline (?:the|a|an|how|your)\b",
    r"break (?:\w+ ){0,4}?(?:down|into|up)\b",
    r"decompose\b",
    r"(?:list|identify) the (?:\w+ ){0,2}?(?:steps|sub-?tasks|sub-?problems)\b",
    r"(?:do not|don't|without) (?:yet )?(?:solve|solving|answer|answering)\b",
)
_CHECKS = _words(
    r"(?:(?:double-?|cross-?)?check|verify|verification|validate|review|audit|critique|critici[sz]e|proof-?read)\b",
    r"(?:inspect|try to break|refine|improve|revise|polish|rewrite)\b",
    r"(?:find|look for|spot|identify|fix|correct|point out) "
    r"(?:\w+ ){0,4}?(?:errors?|mistakes?|flaws?|bugs?|gaps?|slips?)\b",
    r"correct (?:it|them|any|the|this|that|what)\b",
)
_ARGUES = _words(
    r"(?:debate|argue|rebut(?:tal)?|refute|counter-?arguments?|devil'?s advocate|persuade)\b",
    r"(?:defend (?:your|the|its)|counter (?:the|their|its)|opposing (?:view|side|position))\b",
)


# ── one workflow ──────────────────────────────────────────────────────────────────────────────────
def strategy(workflow: Workflow) -> Strategy:
    """The strategy of a workflow, by the rules above.

    >>> from openconductor.types import Step
    >>> strategy(Workflow([Step(0, "Solve the problem."), Step(1, "Solve the problem."), Step(2, "Vote.", "all")]))
    'best-of-n'
    """
    kept = useful_part(workflow)
    if len(kept) < 2:
        return "single" if kept.steps else "accept"
    sees = direct_access(kept)
    replies = [step.subtask for step, seen in zip(kept, sees, strict=True) if seen]
    attempts = {index for index, seen in enumerate(sees) if not seen}
    shared = any(len(one & other & attempts) > 1 for one, other in combinations(sees, 2))
    if shared or any(map(_ARGUES.search, replies)):
        return "debate"
    seen_later = {seen for index in range(len(kept)) for seen in kept.visible(index)}
    if any(_PLANS.search(kept.steps[index].subtask) for index in seen_later):
        return "planner-executor"
    merge = len(attempts)
    in_line = [frozenset((index - 1,)) for index in range(merge + 1, len(kept))]
    if merge > 1 and sees[merge:] == [frozenset(range(merge)), *in_line]:
        return "best-of-n"
    if any(map(_CHECKS.search, replies)):
        return "verify-refine"
    shape = topology(kept)
    return "chain" if shape == "chain" else "tree" if shape in ("tree", "aggregate") else "graph"


def pattern(workflow: Workflow) -> str:
    """A workflow's shape up to the names of its workers: letters in the order of their first step, and who is seen.

    >>> from openconductor.types import Step
    >>> pattern(Workflow([Step(7, "Try."), Step(2, "Try."), Step(7, "Vote.", "all")]))
    'A · B · A(1,2)'
    """
    letters: dict[int, str] = {}
    for step in workflow:
        letters.setdefault(step.worker, chr(ord("A") + len(letters) % 26))
    parts = [
        letters[step.worker]
        + (f"({','.join(str(one + 1) for one in sorted(seen))})" if seen else "")
        for step, seen in zip(workflow.steps, direct_access(workflow), strict=True)
    ]
    return " · ".join(parts) or "accept"


def useful_part(workflow: Workflow) -> Workflow:
    """The workflow without the steps whose response cannot reach the answer; accesses are numbered anew."""
    unused = unused_steps(workflow)
    place = {
        old: new
        for new, old in enumerate(index for index in range(len(workflow)) if index not in unused)
    }
    return Workflow(
        tuple(
            replace(
                workflow.steps[index], access=tuple(place[seen] for seen in workflow.visible(index))
            )
            for index in place
        )
    )


# ── many workflows ────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class TimedPlan:
    """A workflow that was planned.

    Attributes:
        place: when: an iteration of the training, a tenth of it, or 0.
        correct: whether its answer was right; None where that is not known.
        problem: what was asked, so that repeats are told from questions.
    """

    workflow: Workflow
    place: int = 0
    correct: bool | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Workflows of one pattern and strategy: the first of them, where it came, how many, the share of right ones."""

    pattern: str
    strategy: Strategy
    topology: Topology
    example: Workflow
    first: int
    count: int
    accuracy: Estimate | None


@dataclass(frozen=True, slots=True)
class Diversity:
    """How many kinds of plan there are at one place: effective numbers, 2 to the power of the entropy in bits."""

    place: int
    workflows: int
    strategies: float
    patterns: float
    accuracy: float | None


def first_patterns(planned: Iterable[TimedPlan]) -> tuple[Pattern, ...]:
    """The first distinct patterns, in the order in which they came, with all workflows of theirs, later ones too."""
    groups: dict[tuple[str, Strategy], list[TimedPlan]] = {}
    for one in planned:
        key = (pattern(one.workflow), strategy(one.workflow))
        if one.workflow.steps and (key in groups or len(groups) < FIRST_PATTERNS):
            groups.setdefault(key, []).append(one)
    found: list[Pattern] = []
    for (name, kind), of_one in groups.items():
        scores = grouped((("", one.problem), one.correct) for one in of_one)
        first, right = of_one[0], estimate(scores) if scores else None
        found.append(
            Pattern(
                name,
                kind,
                topology(first.workflow),
                first.workflow,
                first.place,
                len(of_one),
                right,
            )
        )
    return tuple(found)


def diversity(planned: Iterable[TimedPlan]) -> tuple[Diversity, ...]:
    """The diversity at each place, in order."""
    places = group_by((one for one in planned if one.workflow.steps), lambda one: one.place)
    found: list[Diversity] = []
    for place, of_one in sorted(places.items()):
        kinds = Counter(strategy(one.workflow) for one in of_one)
        shapes = Counter(pattern(one.workflow) for one in of_one)
        decided = [one.correct for one in of_one if one.correct is not None]
        right = sum(decided) / len(decided) if decided else None
        strategies, patterns = 2 ** entropy_bits(kinds.values()), 2 ** entropy_bits(shapes.values())
        found.append(Diversity(place, len(of_one), strategies, patterns, right))
    return tuple(found)


# ── plan and question ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Dependence:
    """How much a workflow says about its question.

    Attributes:
        on: what of the question was looked at: its ``kind``, or which ``question`` it is.
        bits: mutual information of that and the workflow: who works, who sees whom, in what reaches
            the answer.
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


def routing_dependence(records: Sequence[Record], *, seed: int = 0) -> Dependence | None:
    """Whether the first workflow of each record depends on the question; None where that cannot be told.

    It is looked for by the question's kind (its task included) where there are several, with two
    questions each on average at least, and by the question itself, where questions were asked
    repeatedly. Of both the clearer one is given, its p-value doubled.
    """
    plans: dict[Key, list[Hashable]] = {}
    kinds: dict[Key, str] = {}
    numbers: dict[Hashable, int] = {}
    for record in records:
        if record.workflows:
            flow, key = record.workflows[0], (record.task, record.problem)
            plans.setdefault(key, []).append(_plan(flow, numbers))
            kinds.setdefault(key, f"{record.task}\0{record.kind}")
    found: list[Dependence] = []
    if 1 < len(set(kinds.values())) <= len(kinds) / 2:
        found.append(dependence(list(kinds.values()), list(plans.values()), seed=seed))
    repeated = [group for group in plans.values() if len(group) > 1]
    if len(repeated) > 1:
        each = [(str(index), [one]) for index, group in enumerate(repeated) for one in group]
        one = dependence([name for name, _ in each], [group for _, group in each], seed=seed)
        found.append(replace(one, on="question", problems=len(repeated), labels=len(repeated)))
    clearest = min(found, key=lambda one: (one.p, -one.excess), default=None)
    return None if clearest is None else replace(clearest, p=min(1.0, len(found) * clearest.p))


def _plan(workflow: Workflow, numbers: dict[Hashable, int]) -> int:
    """A number for who works and who sees whom in what reaches the answer; order and subtasks play no part.

    Equal plans have equal numbers where ``numbers``, which grows, is the same.
    """
    found: list[int] = []
    for index, step in enumerate(workflow):
        seen = tuple(sorted(found[one] for one in workflow.visible(index)))
        found.append(numbers.setdefault((step.worker, seen), len(numbers)))
    return found[-1]


def dependence(
    labels: Sequence[str],
    groups: Sequence[Sequence[Hashable]],
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Dependence:
    """Mutual information of the questions' labels and what each question got; labels are dealt out anew to see chance.

    Repeats of a question are one group, so that they do not count as more questions.
    """
    import numpy as np

    names, plans = (
        list(dict.fromkeys(labels)),
        list(dict.fromkeys(one for group in groups for one in group)),
    )
    if len(plans) < 2 or len(names) < 2:
        return Dependence("kind", 0.0, 0.0, 1.0, len(groups), len(names), len(plans))
    question = np.array([index for index, group in enumerate(groups) for _ in group])
    number = {one: index for index, one in enumerate(plans)}
    got = np.array([number[one] for group in groups for one in group])
    dealt = np.array([names.index(label) for label in labels])
    generator = np.random.default_rng(seed)
    shared: list[float] = []  # first as it is, then by chance
    for _ in range(1 + permutations):
        pairs = dealt[question] * len(plans) + got
        table = np.bincount(pairs, minlength=len(names) * len(plans)).reshape(
            len(names), len(plans)
        )
        by_label, by_plan, both = (
            entropy_bits(of.tolist()) for of in (table.sum(1), table.sum(0), table.ravel())
        )
        shared.append(max(0.0, by_label + by_plan - both))
        dealt = generator.permutation(dealt)
    bits, *by_chance = shared
    p = (sum(one >= bits - 1e-9 for one in by_chance) + 1) / (permutations + 1)
    excess = max(0.0, bits - sum(by_chance) / permutations)
    return Dependence("kind", bits, excess, p, len(groups), len(names), len(plans))


# ── a training's journal ──────────────────────────────────────────────────────────────────────────
def journaled_plans(path: Path) -> Iterator[TimedPlan]:
    """Every valid workflow of a journal in the order of its episodes; whether it was right is not known there.

    Raises:
        JournalError: the file cannot be read, or is no journal.
    """
    with read_store(path) as journal:
        for number, last, workflow in journal.workflows():
            yield TimedPlan(workflow, (number - 1) * PLACES // last)
