"""What kind of plan a workflow is, which plans there were, and whether they depend on the question.

In: Workflows, with when they came and whether they were right. Out: strategies, patterns (the same plan whatever the
workers are called), diversity over a training, mutual information of plan and question.

Only steps that reach the answer count. Who sees whom is taken without what is implied (``measures.direct_access``), so
``"all"`` and index lists are alike. A step that sees nothing is an *attempt*. The first rule that fits:

1. ``accept``: no step.
2. ``abdication``: a step only passes on what it sees, or is told to see to everything itself (to plan, to delegate).
3. ``single``: one step.
4. ``debate``: after two or more attempts, two steps each reply to the same two or more; or two authors of attempts each
   reply to the other's; or a step that sees another is told to argue with it.
5. ``planner-executor``: a step is told to plan, and a later one sees it.
6. ``best-of-n``: two or more attempts at the same thing, then one step that sees them all, and what follows in line.
   ``divide``: the same, but the attempts are at different things.
7. ``verify-refine``: a step that sees earlier work is told to check, correct or improve it.
8. ``chain``: each step works on from the one before.
9. ``tree``: branches that run to one root.
10. ``graph``: everything else.

What subtasks say is read by English words; a workflow in another language is classified by its structure alone. The
words are patterns, not understanding: ``tests/unit/evaluation`` holds golden cases, right and wrong.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from pathlib import Path
from typing import Literal, get_args

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate, Key, estimate, grouped
from openconductor.journal import Journal
from openconductor.measures import Topology, direct_access, entropy_bits, topology, unused_steps
from openconductor.types import Step, Workflow

Strategy = Literal[
    "accept",
    "abdication",
    "single",
    "debate",
    "planner-executor",
    "best-of-n",
    "divide",
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


_PASSES_ON = re.compile(
    r"^\W*(?:(?:please|simply|just|only)\s+)*(?:repeat|forward|copy|echo|pass(?:\s+on|\s+along)?|relay|return|output|"
    r"restate|reproduce)\b\W+(?:\w+\W+){0,3}?(?:(?:previous|prior|earlier|above|given|preceding|last|first|other)\s+)?"
    r"(?:answer|response|result|output|solution|step|message|work|text)s?\b"
    r"(?:\W+(?:as\s+(?:it\s+)?is|as\s+the\s+final\s+answer|unchanged|verbatim|exactly|without\s+(?:any\s+)?(?:change|"
    r"modification|addition)s?|above|you\s+(?:see|saw|received|were\s+given)|(?:from|of)\s+step\s+\d+))*\W*$",
    re.IGNORECASE,
)
_TAKES = r"(?:do|handle|take care of|see to|manage)"
_DELEGATES = _words(
    r"(?:delegate|orchestrate)\b",
    r"coordinate (?:the )?(?:other|workers|models|agents)",
    _TAKES + r" (?:everything|(?:it|this) all|all of (?:it|this)|the (?:whole|entire) (?:task|thing|job|process))\b",
    r"(?:ask|call|use|consult) (?:another|other|any other|whichever) (?:workers?|models?|agents?|assistants?)\b",
    r"(?:decide|figure out|choose) (?:by )?yourself (?:how|what|who)\b",
    r"plan (?:and|,) (?:then )?(?:execute|carry out|do) (?:everything|it all|all)\b",
)
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
_WHOLE = _words(
    r"(?:solve|answer|attempt|tackle|work on|work through) (?:\w+ ){0,3}?(?:question|problem|task|exercise|it|this)\b",
    r"(?:final answer|(?:your|an?) (?:own )?(?:independent )?(?:answer|solution|attempt))\b",
)
_PART = _words(
    r"(?:one|the first|the second|the other|either) half\b",
    r"(?:part|case) (?:[0-9a-d]|one|two|three)\b",
    r"sub-?(?:problem|question|task)\b",
    r"only (?:the|on)\b(?! (?:\w+ )?(?:answer|result|letter|number|option|value|choice)s?\b)",
)
_TOKEN = re.compile(r"\w+")


# ── one workflow ─────────────────────────────────────────────────────────────────────────────────────────────────────
def strategy(workflow: Workflow) -> Strategy:
    """The strategy of a workflow, by the rules above.

    >>> strategy(Workflow([Step(0, "Solve the problem."), Step(1, "Solve the problem."), Step(2, "Vote.", "all")]))
    'best-of-n'
    """
    kept = _useful_part(workflow)
    steps, sees = kept.steps, direct_access(kept)
    replies = [step.subtask for step, seen in zip(steps, sees, strict=True) if seen]
    if not steps:
        return "accept"
    if any(_PASSES_ON.search(text.strip()) for text in replies) or any(_DELEGATES.search(one.subtask) for one in steps):
        return "abdication"
    if len(steps) == 1:
        return "single"
    if any(map(_ARGUES.search, replies)) or _is_debate(steps, sees):
        return "debate"
    seen_later = {seen for index in range(len(steps)) for seen in kept.visible(index)}
    if any(_PLANS.search(steps[index].subtask) for index in seen_later):
        return "planner-executor"
    if attempts := _merged_attempts(sees):
        return "best-of-n" if _alike([steps[index].subtask for index in range(attempts)]) else "divide"
    if any(map(_CHECKS.search, replies)):
        return "verify-refine"
    shape = topology(kept)
    return "chain" if shape == "chain" else "tree" if shape in ("tree", "aggregate") else "graph"


def pattern(workflow: Workflow) -> str:
    """A workflow's shape up to the names of its workers: letters in the order of their first step, and who is seen.

    >>> pattern(Workflow([Step(7, "Try."), Step(2, "Try."), Step(7, "Vote.", "all")]))
    'A · B · A(1,2)'
    """
    letters: dict[int, str] = {}
    for step in workflow:
        letters.setdefault(step.worker, chr(ord("A") + len(letters) % 26))
    parts = [
        letters[step.worker] + (f"({','.join(str(one + 1) for one in sorted(seen))})" if seen else "")
        for step, seen in zip(workflow.steps, direct_access(workflow), strict=True)
    ]
    return " · ".join(parts) or "accept"


def structure(workflow: Workflow) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Who works and who sees whom; ``"all"`` and its index form are the same, and subtasks play no part."""
    return tuple(step.worker for step in workflow), tuple(workflow.visible(index) for index in range(len(workflow)))


def _useful_part(workflow: Workflow) -> Workflow:
    """The workflow without the steps whose response cannot reach the answer; accesses are numbered anew."""
    unused = unused_steps(workflow)
    place = {old: new for new, old in enumerate(index for index in range(len(workflow)) if index not in unused)}
    return Workflow(
        tuple(
            replace(workflow.steps[index], access=tuple(place[seen] for seen in workflow.visible(index)))
            for index in place
        )
    )


def _is_debate(steps: Sequence[Step], sees: Sequence[frozenset[int]]) -> bool:
    attempts = [index for index, seen in enumerate(sees) if not seen]
    replies = [index for index, seen in enumerate(sees) if seen]
    if len(attempts) < 2:
        return False
    if any(len(sees[one] & sees[other]) > 1 for one, other in combinations(replies, 2)):
        return True
    authors = {steps[index].worker for index in attempts}
    crossed = {
        (steps[reply].worker, steps[seen].worker)
        for reply in replies
        for seen in sees[reply]
        if seen in attempts and steps[reply].worker in authors and steps[reply].worker != steps[seen].worker
    }
    return any((theirs, ours) in crossed for ours, theirs in crossed)


def _merged_attempts(sees: Sequence[frozenset[int]]) -> int:
    """How many attempts come first, all merged by the next step, with the rest in line; 0 is another shape."""
    count = next((index for index, seen in enumerate(sees) if seen), len(sees))
    if count < 2 or count == len(sees) or sees[count] != frozenset(range(count)):
        return 0
    return count if all(sees[index] == frozenset((index - 1,)) for index in range(count + 1, len(sees))) else 0


def _alike(subtasks: Sequence[str]) -> bool:
    """Whether the subtasks ask for the same thing: none for a part, and all for the whole or in mostly shared words."""
    words = [frozenset(word.lower() for word in _TOKEN.findall(text)) for text in subtasks]
    if len(set(words)) == 1:
        return True
    if any(_PART.search(text) for text in subtasks):
        return False
    shared = all(len(one & other) * 2 >= len(one | other) for one, other in combinations(words, 2))
    return shared or all(map(_WHOLE.search, subtasks))


# ── many workflows ───────────────────────────────────────────────────────────────────────────────────────────────────
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
        found.append(Pattern(name, kind, topology(first.workflow), first.workflow, first.place, len(of_one), right))
    return tuple(found)


def diversity(planned: Iterable[TimedPlan]) -> tuple[Diversity, ...]:
    """The diversity at each place, in order."""
    places: dict[int, list[TimedPlan]] = {}
    for one in planned:
        if one.workflow.steps:
            places.setdefault(one.place, []).append(one)
    found: list[Diversity] = []
    for place, of_one in sorted(places.items()):
        kinds = Counter(strategy(one.workflow) for one in of_one)
        shapes = Counter(pattern(one.workflow) for one in of_one)
        decided = [one.correct for one in of_one if one.correct is not None]
        right = sum(decided) / len(decided) if decided else None
        strategies, patterns = 2 ** entropy_bits(kinds.values()), 2 ** entropy_bits(shapes.values())
        found.append(Diversity(place, len(of_one), strategies, patterns, right))
    return tuple(found)


# ── plan and question ────────────────────────────────────────────────────────────────────────────────────────────────
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


def routing_dependence(records: Sequence[Record], *, seed: int = 0) -> Dependence | None:
    """Whether the first workflow of each record depends on the question; None where that cannot be told.

    It is looked for by the question's kind (its task included) where there are several, with two questions each on
    average at least; else by the question itself, where questions were asked repeatedly.
    """
    by_question: dict[Key, list[Hashable]] = {}
    kinds: dict[Key, str] = {}
    for record in records:
        if record.workflows:
            key = (record.task, record.problem)
            by_question.setdefault(key, []).append(structure(record.workflows[0]))
            kinds.setdefault(key, f"{record.task}\0{record.kind}")
    groups, labels = list(by_question.values()), list(kinds.values())
    if 1 < len(set(labels)) <= len(labels) / 2:
        return dependence(labels, groups, seed=seed)
    repeated = [group for group in groups if len(group) > 1]
    if len(repeated) < 2:
        return None
    names = [str(index) for index, group in enumerate(repeated) for _ in group]
    found = dependence(names, [[one] for one in chain.from_iterable(repeated)], seed=seed)
    return replace(found, on="question", problems=len(repeated), labels=len(repeated))


def dependence(
    labels: Sequence[str], groups: Sequence[Sequence[Hashable]], *, seed: int = 0, permutations: int = PERMUTATIONS
) -> Dependence:
    """Mutual information of the questions' labels and what each question got; labels are dealt out anew to see chance.

    Repeats of a question are one group, so that they do not count as more questions.
    """
    numbers: dict[Hashable, int] = {}
    flat = [(index, numbers.setdefault(one, len(numbers))) for index, group in enumerate(groups) for one in group]
    names = {label: place * len(numbers) for place, label in enumerate(dict.fromkeys(labels))}
    counted = Counter(one for _, one in flat)
    if len(counted) < 2 or len(names) < 2:
        return Dependence("kind", 0.0, 0.0, 1.0, len(groups), len(names), len(counted))
    apart = _bits(counted)

    def shared(dealt: Sequence[int]) -> float:
        """Entropy of the labels and of the contents, less that of both together."""
        return _bits(Counter(dealt[i] for i, _ in flat)) + apart - _bits(Counter(dealt[i] + one for i, one in flat))

    dealt = [names[label] for label in labels]
    observed = max(0.0, shared(dealt))
    rng = random.Random(f"dependence/{seed}")
    total, reached = 0.0, 0
    for _ in range(permutations):
        dealt.sort(key=lambda _: rng.random())  # a shuffle, several times as quick as the library's
        by_chance = shared(dealt)
        total += by_chance
        reached += by_chance >= observed - 1e-9
    excess, p = max(0.0, observed - total / permutations), (reached + 1) / (permutations + 1)
    return Dependence("kind", observed, excess, p, len(groups), len(names), len(counted))


def _bits(counts: Counter[int]) -> float:
    """Entropy of what is counted; quicker than ``measures.entropy_bits``, for it is computed a thousand times."""
    total = counts.total()
    return math.log2(total) - sum(count * math.log2(count) for count in counts.values()) / total


# ── a training's journal ─────────────────────────────────────────────────────────────────────────────────────────────
def journaled_plans(path: Path) -> Iterator[TimedPlan]:
    """Every valid workflow of a journal in the order of its episodes; whether it was right is not known there.

    Raises:
        JournalError: the file cannot be read, or is no journal.
    """
    with Journal.reading(path) as journal:
        for number, last, workflow in journal.workflows():
            yield TimedPlan(workflow, (number - 1) * PLACES // last)
