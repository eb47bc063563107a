"""What kind of plan a workflow is: strategies by structure and by what the subtasks say, with one documented rule set.

In: a Workflow. Out: its strategy, and its pattern: the same plan whatever the workers are called.

Only steps that reach the answer count; what was paid for in vain is looked at apart (``measures.unused_steps``). Who
sees whom is taken without what is implied (``measures.direct_access``), so ``"all"`` and index lists are alike. A step
that sees nothing is an *attempt*. The first rule that fits:

1. ``accept``: no step.
2. ``abdication``: a step only passes on what it sees, or is told to see to everything itself (to plan, to delegate).
3. ``single``: one step.
4. ``debate``: after two or more attempts, two steps each reply to the same two or more; or two authors of attempts each
   reply to the other's; or a step that sees another is told to argue with it.
5. ``planner-executor``: a step is told to plan, and a later one sees it.
6. ``best-of-n``: two or more attempts at the same thing, then one step that sees them all, and what follows in line.
   ``divide``: the same, but the attempts are at different things.
7. ``verify-refine``: a step that sees earlier work is told to check, correct or improve it.
8. ``chain``: each step goes on from the one before.
9. ``tree``: branches that run to one root.
10. ``graph``: everything else.

What subtasks say is read by English words; a workflow in another language is classified by its structure alone. The
words are patterns, not understanding: ``tests/unit/evaluation`` holds golden cases, right and wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Literal, get_args

from openconductor.measures import direct_access, topology, unused_steps
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


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})", re.IGNORECASE)


_EARLIER = r"(?:(?:previous|prior|earlier|above|given|preceding|last|first|other)\s+)"
_RESULT = r"(?:answer|response|result|output|solution|step|message|work|text)s?\b"
_PASSES_ON = re.compile(
    rf"^\W*(?:please\s+|simply\s+|just\s+|only\s+)*(?:repeat|forward|copy|echo|pass(?:\s+on|\s+along)?|relay|return|output"
    rf"|restate|reproduce)\b\W+(?:\w+\W+){{0,3}}?{_EARLIER}?{_RESULT}"
    rf"(?:\W+(?:as\s+(?:it\s+)?is|as\s+the\s+final\s+answer|unchanged|verbatim|exactly|without\s+(?:any\s+)?(?:change|"
    rf"modification|addition)s?|above|you\s+(?:see|saw|received|were\s+given)|from\s+step\s+\d+|of\s+step\s+\d+))*\W*$",
    re.IGNORECASE,
)
_DELEGATES = _words(
    r"delegate\b",
    r"orchestrate\b",
    r"coordinate (?:the )?(?:other|workers|models|agents)",
    r"(?:do|handle|take care of|see to|manage) (?:everything|(?:it|this) all|all of (?:it|this))\b",
    r"(?:do|handle|take care of|see to|manage) the (?:whole|entire) (?:task|thing|job|process)\b",
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
    r"(?:double-?|cross-?)?check\b",
    r"verif(?:y|ication)\b",
    r"validate\b",
    r"review\b",
    r"audit\b",
    r"critique\b",
    r"criticise\b|criticize\b",
    r"proof-?read\b",
    r"inspect\b",
    r"(?:find|look for|spot|identify|fix|correct|point out) "
    r"(?:\w+ ){0,4}?(?:errors?|mistakes?|flaws?|bugs?|gaps?|slips?)\b",
    r"try to break\b",
    r"refine\b",
    r"improve\b",
    r"revise\b",
    r"correct (?:it|them|any|the|this|that|what)\b",
    r"polish\b",
    r"rewrite\b",
)
_ARGUES = _words(
    r"debate\b",
    r"argue\b",
    r"rebut(?:tal)?\b",
    r"refute\b",
    r"defend (?:your|the|its)\b",
    r"counter-?arguments?\b",
    r"counter (?:the|their|its)\b",
    r"opposing (?:view|side|position)\b",
    r"devil'?s advocate\b",
    r"persuade\b",
)
_WHOLE = _words(
    r"(?:solve|answer|attempt|tackle|work on|work through) (?:\w+ ){0,3}?(?:question|problem|task|exercise|it|this)\b",
    r"final answer\b",
    r"(?:your|an?) (?:own )?(?:independent )?(?:answer|solution|attempt)\b",
)
_PART = _words(
    r"(?:one|the first|the second|the other|either) half\b",
    r"part (?:[0-9a-d]|one|two|three)\b",
    r"(?:sub-?problem|sub-?question|sub-?task)\b",
    r"only (?:the|on)\b(?! (?:\w+ )?(?:answer|result|letter|number|option|value|choice)s?\b)",
    r"case (?:[0-9a-d]|one|two|three)\b",
)
_TOKEN = re.compile(r"\w+")


def strategy(workflow: Workflow) -> Strategy:
    """The strategy of a workflow, by the rules above.

    >>> strategy(Workflow([Step(0, "Solve the problem."), Step(1, "Solve the problem."), Step(2, "Vote.", "all")]))
    'best-of-n'
    """
    if not workflow.steps:
        return "accept"
    kept = useful_part(workflow)
    steps, sees = kept.steps, direct_access(kept)
    if any(_abdicates(step, bool(seen)) for step, seen in zip(steps, sees, strict=True)):
        return "abdication"
    if len(steps) == 1:
        return "single"
    if _is_debate(steps, sees):
        return "debate"
    if any(index in kept.visible(later) and _PLANS.search(steps[index].subtask) for index, later in _pairs(len(steps))):
        return "planner-executor"
    attempts = _merged_attempts(sees)
    if attempts:
        return "best-of-n" if _alike([steps[index].subtask for index in range(attempts)]) else "divide"
    if any(seen and _CHECKS.search(step.subtask) for step, seen in zip(steps, sees, strict=True)):
        return "verify-refine"
    shape = topology(kept)
    return "chain" if shape == "chain" else "tree" if shape in ("tree", "aggregate") else "graph"


def useful_part(workflow: Workflow) -> Workflow:
    """The workflow without the steps whose response cannot reach the answer; accesses are numbered anew."""
    unused = set(unused_steps(workflow))
    if not unused:
        return workflow
    kept = [index for index in range(len(workflow)) if index not in unused]
    place = {index: new for new, index in enumerate(kept)}
    return Workflow(
        tuple(
            Step(
                workflow.steps[index].worker,
                workflow.steps[index].subtask,
                tuple(place[seen] for seen in workflow.visible(index)),
            )
            for index in kept
        )
    )


def pattern(workflow: Workflow) -> str:
    """A workflow's shape up to the names of its workers: letters in the order of their first step, and who is seen.

    >>> pattern(Workflow([Step(7, "Try."), Step(2, "Try."), Step(7, "Vote.", "all")]))
    'A · B · A(1,2)'
    """
    letters: dict[int, str] = {}
    for step in workflow:
        letters.setdefault(step.worker, chr(ord("A") + len(letters) % 26))
    sees = direct_access(workflow)
    parts = [
        letters[step.worker] + (f"({','.join(str(one + 1) for one in sorted(seen))})" if seen else "")
        for step, seen in zip(workflow.steps, sees, strict=True)
    ]
    return " · ".join(parts) or "accept"


def _pairs(size: int) -> Iterable[tuple[int, int]]:
    return combinations(range(size), 2)


def _abdicates(step: Step, sees: bool) -> bool:
    return bool((sees and _PASSES_ON.search(step.subtask.strip())) or _DELEGATES.search(step.subtask))


def _is_debate(steps: Sequence[Step], sees: Sequence[frozenset[int]]) -> bool:
    attempts = [index for index, seen in enumerate(sees) if not seen]
    replies = [index for index, seen in enumerate(sees) if seen]
    if any(_ARGUES.search(steps[index].subtask) for index in replies):
        return True
    if len(attempts) < 2:
        return False
    if any(len(sees[one] & sees[other]) > 1 for one, other in combinations(replies, 2)):
        return True
    authors = {steps[index].worker: index for index in attempts}
    crossed = {
        (steps[reply].worker, steps[seen].worker)
        for reply in replies
        for seen in sees[reply]
        if seen in attempts and steps[reply].worker in authors and steps[reply].worker != steps[seen].worker
    }
    return any((theirs, ours) in crossed for ours, theirs in crossed)


def _merged_attempts(sees: Sequence[frozenset[int]]) -> int:
    """How many attempts stand first, all merged by the next step, with the rest in line; 0 is another shape."""
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


def strategy_counts(workflows: Iterable[Workflow]) -> dict[Strategy, int]:
    """How many workflows there are of each strategy that there is, in the order of the rules."""
    counts = Counter(strategy(workflow) for workflow in workflows)
    return {name: counts[name] for name in STRATEGIES if counts[name]}
