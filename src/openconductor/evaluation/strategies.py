"""Name the strategy of a plan, and measure how plans vary with the question.

- ``strategy`` names what a workflow does, ``pattern`` its shape up to the names of its workers.
- ``first_patterns`` and ``diversity`` describe many workflows.
- ``routing_dependence`` is the mutual information of plan and question.

Only steps that reach the answer count. Implied accesses are left out (``measures.direct_access``),
so ``"all"`` and index lists are alike. A step that sees nothing is an *attempt*. The first rule
that fits:

1. ``accept``: no step.
2. ``single``: one step.
3. ``debate``: two steps reply to the same two or more attempts, or a step that sees another is told
   to argue with it.
4. ``planner-executor``: a step is told to plan, and a later one sees it.
5. ``best-of-n``: two or more attempts side by side, then one step that sees them all, and what
   follows in line. It does not matter whether they try the same thing.
6. ``verify-refine``: a step that sees earlier work is told to check, correct or improve it.
7. ``chain``: each step works on from the one before.
8. ``tree``: branches that run to one root.
9. ``graph``: everything else.

Subtasks are read by English words; a workflow in another language is classified by its structure
alone. The words are patterns, not understanding: ``tests/unit/evaluation`` holds golden cases,
right and wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from string import ascii_uppercase
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
from openconductor.types import Step, Workflow

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
"""How many distinct patterns are described, in the order in which they first came."""
PLACES = 10
"""The parts that a training's journal is cut into: it does not hold the iteration of an episode."""
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
    r"(?:(?:double-?|cross-?)?check|verify|verification|validate|review|audit)\b",
    r"(?:critique|critici[sz]e|proof-?read)\b",
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
    """Return the strategy of a workflow, by the rules above.

    >>> from openconductor.types import Step
    >>> attempts = [Step(0, "Solve the problem."), Step(1, "Solve the problem.")]
    >>> strategy(Workflow([*attempts, Step(2, "Vote.", "all")]))
    'best-of-n'
    """
    kept = useful_part(workflow)
    if not kept.steps:
        return "accept"
    if len(kept) == 1:
        return "single"
    sees = direct_access(kept)
    attempts = {index for index, seen in enumerate(sees) if not seen}
    replies = [kept.steps[index].subtask for index, seen in enumerate(sees) if seen]
    if _replies_are_shared(sees, attempts) or any(map(_ARGUES.search, replies)):
        return "debate"
    seen_later = {seen for index in range(len(kept)) for seen in kept.visible(index)}
    if any(_PLANS.search(kept.steps[index].subtask) for index in seen_later):
        return "planner-executor"
    if _merges_attempts(sees, len(attempts)):
        return "best-of-n"
    if any(map(_CHECKS.search, replies)):
        return "verify-refine"
    shape = topology(kept)
    if shape == "chain":
        return "chain"
    return "tree" if shape in ("tree", "aggregate") else "graph"


def _replies_are_shared(sees: Sequence[frozenset[int]], attempts: set[int]) -> bool:
    """Return True if two steps see the same two or more attempts."""
    for seen, other in combinations(sees, 2):
        if len(seen & other & attempts) > 1:
            return True
    return False


def _merges_attempts(sees: Sequence[frozenset[int]], attempts: int) -> bool:
    """Return True if attempts come first, then a step that sees them all, then a line."""
    if attempts < 2:
        return False
    line = [frozenset((index - 1,)) for index in range(attempts + 1, len(sees))]
    return sees[attempts:] == [frozenset(range(attempts)), *line]


def pattern(workflow: Workflow) -> str:
    """Return a workflow's shape up to the names of its workers.

    Workers are letters in the order of their first step; behind each is whom it sees.

    >>> from openconductor.types import Step
    >>> pattern(Workflow([Step(7, "Try."), Step(2, "Try."), Step(7, "Vote.", "all")]))
    'A · B · A(1,2)'
    """
    letters: dict[int, str] = {}
    parts: list[str] = []
    for step, seen in zip(workflow.steps, direct_access(workflow), strict=True):
        if step.worker not in letters:
            letters[step.worker] = ascii_uppercase[len(letters) % 26]
        part = letters[step.worker]
        if seen:
            numbers = [str(index + 1) for index in sorted(seen)]
            part += f"({','.join(numbers)})"
        parts.append(part)
    return " · ".join(parts) or "accept"


def useful_part(workflow: Workflow) -> Workflow:
    """Return the workflow without steps that cannot reach the answer."""
    unused = unused_steps(workflow)
    return keep_steps(workflow, [index for index in range(len(workflow)) if index not in unused])


def keep_steps(workflow: Workflow, kept: Sequence[int]) -> Workflow:
    """Return a workflow of some of the steps; accesses are renumbered."""
    place = {old: new for new, old in enumerate(kept)}
    steps: list[Step] = []
    for index in kept:
        seen = [place[earlier] for earlier in workflow.visible(index) if earlier in place]
        steps.append(replace(workflow.steps[index], access=tuple(seen)))
    return Workflow(tuple(steps))


# ── many workflows ────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class TimedPlan:
    """A workflow that was planned.

    Attributes:
        place: an iteration of the training, a tenth of it, or 0.
        correct: True if its answer was right; None: unknown.
        problem: the question, so that repeats are told from questions.
    """

    workflow: Workflow
    place: int = 0
    correct: bool | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Workflows of one pattern and strategy.

    Attributes:
        example: the first of them.
        first: its place.
        count: how many there are.
        accuracy: the share of right answers; None: unknown.
    """

    pattern: str
    strategy: Strategy
    topology: Topology
    example: Workflow
    first: int
    count: int
    accuracy: Estimate | None


@dataclass(frozen=True, slots=True)
class Diversity:
    """The variety of plans at one place.

    ``strategies`` and ``patterns`` are effective numbers: 2 to the power of the entropy in bits.
    """

    place: int
    workflows: int
    strategies: float
    patterns: float
    accuracy: float | None


def first_patterns(planned: Iterable[TimedPlan]) -> tuple[Pattern, ...]:
    """Return the first distinct patterns, in order, each with all its workflows, later ones too."""
    groups: dict[tuple[str, Strategy], list[TimedPlan]] = {}
    for plan in planned:
        if not plan.workflow.steps:
            continue
        key = (pattern(plan.workflow), strategy(plan.workflow))
        if key in groups or len(groups) < FIRST_PATTERNS:
            groups.setdefault(key, []).append(plan)
    patterns: list[Pattern] = []
    for (name, kind), plans in groups.items():
        scores = grouped((("", plan.problem), plan.correct) for plan in plans)
        described = Pattern(
            pattern=name,
            strategy=kind,
            topology=topology(plans[0].workflow),
            example=plans[0].workflow,
            first=plans[0].place,
            count=len(plans),
            accuracy=estimate(scores) if scores else None,
        )
        patterns.append(described)
    return tuple(patterns)


def diversity(planned: Iterable[TimedPlan]) -> tuple[Diversity, ...]:
    """Return the diversity at each place, in order."""
    with_steps = [plan for plan in planned if plan.workflow.steps]
    places = group_by(with_steps, lambda plan: plan.place)
    found: list[Diversity] = []
    for place, plans in sorted(places.items()):
        strategies = Counter(strategy(plan.workflow) for plan in plans)
        patterns = Counter(pattern(plan.workflow) for plan in plans)
        decided = [plan.correct for plan in plans if plan.correct is not None]
        measured = Diversity(
            place=place,
            workflows=len(plans),
            strategies=2 ** entropy_bits(strategies.values()),
            patterns=2 ** entropy_bits(patterns.values()),
            accuracy=sum(decided) / len(decided) if decided else None,
        )
        found.append(measured)
    return tuple(found)


# ── plan and question ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Dependence:
    """The dependence of workflows on their questions.

    Attributes:
        on: the part of the question: its ``kind``, or which ``question`` it is.
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
    """Measure whether the first workflow of each record depends on the question.

    It is measured by the question's kind (its task included) if there are several, with two
    questions each on average at least; and by the question itself, if questions were asked
    repeatedly. The clearer one is returned, its p-value doubled if there are both.

    Returns:
        None if it cannot be told.
    """
    plans: dict[Key, list[int]] = {}
    kinds: dict[Key, str] = {}
    numbers: dict[Hashable, int] = {}
    for record in records:
        if record.workflows:
            plan = _plan_number(record.workflows[0], numbers)
            plans.setdefault(record.key, []).append(plan)
            kinds.setdefault(record.key, f"{record.task}\n{record.kind}")
    measured: list[Dependence] = []
    labels, groups = list(kinds.values()), list(plans.values())
    if 1 < len(set(labels)) <= len(labels) / 2:
        measured.append(dependence(labels, groups, seed=seed))
    repeated = [of_question for of_question in groups if len(of_question) > 1]
    if len(repeated) > 1:
        measured.append(_dependence_on_question(repeated, seed))
    if not measured:
        return None
    clearest = min(measured, key=lambda one: (one.p, -one.excess))
    return replace(clearest, p=min(1.0, len(measured) * clearest.p))


def _dependence_on_question(repeated: Sequence[Sequence[int]], seed: int) -> Dependence:
    """Measure the dependence on the question itself, from the plans of its repeats."""
    labels: list[str] = []
    groups: list[list[int]] = []
    for index, plans in enumerate(repeated):
        groups += [[plan] for plan in plans]
        labels += [str(index)] * len(plans)
    measured = dependence(labels, groups, seed=seed)
    return replace(measured, on="question", problems=len(repeated), labels=len(repeated))


def count_plans(records: Sequence[Record]) -> int:
    """Count the different plans: who is told what, and sees whom, in all rounds.

    The order of steps plays no part.
    """
    numbers: dict[Hashable, int] = {}
    plans: set[tuple[int, ...]] = set()
    for record in records:
        rounds = [_plan_number(workflow, numbers, words=True) for workflow in record.workflows]
        if rounds:
            plans.add(tuple(rounds))
    return len(plans)


def _plan_number(workflow: Workflow, numbers: dict[Hashable, int], *, words: bool = False) -> int:
    """Return a number for who works and who sees whom in what reaches the answer.

    Order plays no part, and subtasks only with ``words``. Equal plans have equal numbers if
    ``numbers``, which grows, is the same.
    """
    of_step: list[int] = []
    for index, step in enumerate(workflow):
        seen = tuple(sorted(of_step[earlier] for earlier in workflow.visible(index)))
        told = step.subtask if words else ""
        of_step.append(numbers.setdefault((step.worker, told, seen), len(numbers)))
    return of_step[-1]


def dependence(
    labels: Sequence[str], groups: Sequence[Sequence[int]], *, seed: int = 0
) -> Dependence:
    """Measure the mutual information of the questions' labels and what each question got.

    Labels are dealt out anew to see chance. Repeats of a question are one group, so that they do
    not count as more questions.

    Args:
        labels: one a question.
        groups: the numbers of the plans that each question got.
        seed: of the deals.
    """
    import numpy as np

    names, dealt = np.unique(labels, return_inverse=True)
    plans, got = np.unique([plan for group in groups for plan in group], return_inverse=True)
    question = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    generator = np.random.default_rng(seed)
    shared: list[float] = []  # the first as it is, then by chance
    for _ in range(1 + PERMUTATIONS):
        pairs = dealt[question] * len(plans) + got
        counts = np.bincount(pairs, minlength=len(names) * len(plans))
        table = counts.reshape(len(names), len(plans))
        by_label = entropy_bits(table.sum(1).tolist())
        by_plan = entropy_bits(table.sum(0).tolist())
        together = entropy_bits(counts.tolist())
        shared.append(max(0.0, by_label + by_plan - together))
        dealt = generator.permutation(dealt)
    bits, *by_chance = shared
    enough = bits - 1e-9
    as_large = sum(one >= enough for one in by_chance)
    mean_by_chance = sum(by_chance) / PERMUTATIONS
    return Dependence(
        on="kind",
        bits=bits,
        excess=max(0.0, bits - mean_by_chance),
        p=(as_large + 1) / (PERMUTATIONS + 1),
        problems=len(groups),
        labels=len(names),
        workflows=len(plans),
    )


# ── a training's journal ──────────────────────────────────────────────────────────────────────────
def journaled_plans(path: Path) -> Iterator[TimedPlan]:
    """Yield every valid workflow of a journal, in the order of its episodes.

    A journal does not hold whether an answer was right.

    Raises:
        JournalError: the file cannot be read, or is no journal.
    """
    with read_store(path) as journal:
        for number, last, workflow in journal.workflows():
            yield TimedPlan(workflow, (number - 1) * PLACES // last)
