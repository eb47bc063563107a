"""A planner that follows the prompt by rule: an instrument for testing prompt ablations.

It writes three lists, made only of the turns that a Conductor is asked with in the full template:

1. It copies the workers and the flow (who sees whom) of the worked example whose question shares
   the largest part of its words with the question at hand; without examples it writes one step by
   the first worker listed.
2. A worker that the pool does not list is replaced by the first one listed; a flow longer than the
   limit is cut.
3. If the prompt dictates one instruction, it gives that one. Else a step that sees none before it
   gets everything that the question asks for, and one that sees others gets ``check the answers``;
   in a chain the question's operations are dealt out in order.
4. It accepts a response that is an answer; else each step goes to the worker listed behind the one
   that had it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from openconductor.errors import WorkflowError
from openconductor.gym.questions import read_question
from openconductor.gym.world import COMPARE, read_value
from openconductor.parser import parse_workflow
from openconductor.prompt import render_workflow
from openconductor.protocols import Provider
from openconductor.types import Access, Completion, Message, Step, Usage, Workflow

CHECK = COMPARE[1]

_STEPS = re.compile(r"^A workflow has (?:between 1 and (\d+) steps|exactly one step)", re.MULTILINE)
_ACCESS = re.compile(r"^- access_list holds, .*: (.*)\.$", re.MULTILINE)
_DICTATED = re.compile(r'^- subtasks holds, .*, word for word: "(.*)"$', re.MULTILINE)
_WORKER = re.compile(r"^Model (\d+)(?::.*)?$", re.MULTILINE)
_EXAMPLE = re.compile(
    r"^### Example \d+\n\nQuestion:\n(.*?)\n\nYou write:\n(.*?)(?=\n\n### Example |\Z)",
    re.MULTILINE | re.DOTALL,
)
_LATER = re.compile(r"\n\n---\nYou have already written a plan for this question\.\n")
_RESPONSE = re.compile(r"<response>\n(.*)\n</response>", re.DOTALL)
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"[0-9]+")
_MOST_STEPS = 1000  # of an example, which may be longer than what is asked for


@dataclass(frozen=True, slots=True)
class Asked:
    """The demands of a prompt; ``later``: a plan was written before, which led to ``response``."""

    question: str
    workers: tuple[int, ...]
    max_steps: int
    binary: bool
    dictated: str | None
    examples: tuple[tuple[str, Workflow], ...]
    later: bool = False
    response: str | None = None


class ScriptedPlanner(Provider):
    """The rules as a Provider; the same turns always get the same text."""

    prices_itself = True  # it runs here, and costs nothing

    def __init__(self, model: str) -> None:
        self.identity = f"scripted planner {model}"

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        """Write a plan as the turns ask for it; tokens are words."""
        text = plan_text(read_prompt(messages))
        read = sum(len(message.content.split()) for message in messages)
        return Completion(text, usage=Usage(input_tokens=read, output_tokens=len(text.split())))


def read_prompt(messages: Sequence[Message]) -> Asked:
    """What the turns of the full template (``prompt.render_prompt``) ask for."""
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    users = [message.content for message in messages if message.role == "user"]
    rules, _, shown = system.partition("\n\n## Examples\n\n")
    steps, access = _STEPS.search(rules), _ACCESS.search(rules)
    workers = tuple(int(number) for number in _WORKER.findall(rules))
    assert steps is not None and access is not None and workers and users, (
        "expected the full template"
    )
    dictated = _DICTATED.search(rules)
    question, *later = _LATER.split(users[-1], maxsplit=1)
    response = _RESPONSE.search(later[0]) if later else None
    return Asked(
        question=question,
        workers=workers,
        max_steps=int(steps[1] or 1),
        binary='"all"' in access[1],
        dictated=None if dictated is None else dictated[1],
        examples=tuple(_read_examples(shown)),
        later=bool(later),
        response=None if response is None else response[1],
    )


def plan_text(asked: Asked) -> str:
    """The completion: a thought that names the example, and the three lists."""
    if asked.later and asked.response is not None and read_value(asked.response) is not None:
        return render_workflow(Workflow(()), "The response is an answer.")
    if not asked.examples:
        return render_workflow(plan(asked, None), "No example: the first worker does it all.")
    place = max(
        range(len(asked.examples)),
        key=lambda index: likeness(asked.question, asked.examples[index][0]),
    )
    return render_workflow(plan(asked, asked.examples[place][1]), f"As in example {place + 1}.")


def plan(asked: Asked, example: Workflow | None) -> Workflow:
    """The workflow for a question, in the flow of an example; in one step where there is none."""
    flow = Workflow((Step(asked.workers[0], ""),)) if example is None else example
    size = min(len(flow), asked.max_steps)
    sees = [tuple(flow.visible(index)) for index in range(size)]
    workers = [
        step.worker if step.worker in asked.workers else asked.workers[0]
        for step in flow.steps[:size]
    ]
    if asked.later:
        places = [asked.workers.index(worker) for worker in workers]
        workers = [asked.workers[(place + 1) % len(asked.workers)] for place in places]
    subtasks = (
        [asked.dictated] * size if asked.dictated is not None else _subtasks(asked.question, sees)
    )
    accesses: list[Access] = [("all" if seen else ()) if asked.binary else seen for seen in sees]
    return Workflow(tuple(map(Step, workers, subtasks, accesses)))


def likeness(one: str, other: str) -> float:
    """Jaccard's index of the words of two texts: 1 for the same words, 0 for none in common."""
    ours, theirs = (set(_WORD.findall(text.lower())) for text in (one, other))
    return len(ours & theirs) / len(ours | theirs) if ours | theirs else 0.0


def _read_examples(shown: str) -> Iterator[tuple[str, Workflow]]:
    """Questions and workflows; an example that shows no workflow cannot be copied."""
    for question, written in _EXAMPLE.findall(shown):
        workers = {
            int(number) for number in _NUMBER.findall(written)
        }  # any: one that is not on offer is replaced
        with suppress(WorkflowError):
            yield question, parse_workflow(written, workers, max_steps=_MOST_STEPS)


def _subtasks(text: str, sees: Sequence[Sequence[int]]) -> list[str]:
    """What each step is told, where the planner says it itself."""
    question = read_question(text)
    if question is None:
        return [CHECK if seen else text for seen in sees]
    phrases = [operation.phrase(wording) for operation, wording in question.operations]
    if len(sees) > 1 and all(index - 1 in sees[index] for index in range(1, len(sees))):
        # A chain: the phrases in order, as evenly as they go; the first steps get what is left
        # over.
        each, over = divmod(len(phrases), len(sees))
        ends = [step * each + min(step, over) for step in range(len(sees) + 1)]
        return [", then ".join(phrases[begin:end]) or CHECK for begin, end in pairwise(ends)]
    return [CHECK if seen else ", then ".join(phrases) for seen in sees]
