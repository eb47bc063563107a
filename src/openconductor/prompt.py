"""The prompt: ``render_prompt`` writes the turns that the Conductor is asked with.

``render_workflow`` goes the other way, and writes a workflow as the completion that ``parser``
reads. Only this module and the parser know the wire words ``model_id``, ``subtasks`` and
``access_list``.
"""

from __future__ import annotations

import json
import re
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal, cast

from openconductor.errors import ConfigError
from openconductor.parser import strip_thought
from openconductor.types import Message, Question, Round, Step, Workflow

ExampleSet = Literal["none", "in_distribution", "mixed", "out_of_distribution"]
ExampleName = Literal["none", "in", "mixed", "out"]
"""A set of worked examples, as the command line and recipes name it."""
PreviousName = Literal["last", "answers"]
"""What a later round is shown of the round before: its last response, or each step's."""
Template = Literal["brief", "full"]
"""A template for models that are only prompted."""

SOLVE_SUBTASK = "Solve the question and state the final answer clearly."
"""The instruction of every step if the Conductor writes no subtasks (the paper's ablation)."""

QUESTION_LIMIT = 1_000_000
"""The longest question, in characters, all turns of a chat together."""

PREVIOUS_LIMIT = 8_000
"""The most characters of the previous round's final response, and of the responses of its other
steps together; the middle of a longer one is left out."""

_UNSENDABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How the Conductor is asked. The defaults are the paper's main setting.

    Attributes:
        template: ``full`` is the paper's, which models are trained with; ``brief`` is for models
            that are only prompted; ``compact`` is for tiny ones, without instructions, to which
            the fields from ``examples`` to ``subtasks`` mean nothing.
        examples: the worked examples: four of tasks that are not trained on, four of those trained
            on, two of each, or none.
        access: whether steps see nothing or all, or what a list of step numbers names.
        subtasks: whether the Conductor writes an instruction for each step, or every step gets
            ``SOLVE_SUBTASK``.
        cards: whether the workers' descriptions are shown. ``brief`` adds their names.
        answer_forms: texts at the end of a question that ask for a form of the answer. They are
            for the workers, and the Conductor is not shown them.
        previous: the responses that a later round is shown beside the plan of the round before.
    """

    template: Literal["full", "brief", "compact"] = "full"
    examples: ExampleSet = "out_of_distribution"
    access: Literal["binary", "index"] = "binary"
    subtasks: bool = True
    cards: bool = False
    answer_forms: tuple[str, ...] = ()
    previous: PreviousName = "last"


EXAMPLES: dict[ExampleName, ExampleSet] = {
    "none": "none",
    "in": "in_distribution",
    "mixed": "mixed",
    "out": "out_of_distribution",
}


def check_question(question: object) -> tuple[Message, ...]:
    """Return the turns of a question that can be asked.

    Raises:
        ConfigError: its type is wrong (``check_turns``); it is blank, longer than
            ``QUESTION_LIMIT`` characters, or holds a NUL or a lone surrogate (neither can be sent
            to every provider); or it is a chat without turns, or one that ends with calls of tools.
    """
    turns = check_turns(question)
    if not turns:
        raise ConfigError("the question: got a chat without turns, expected at least one")
    last = turns[-1]
    if any("tool_calls" in part for part in last.parts):
        raise ConfigError("the question, last turn: got calls of tools, expected their results")
    if not last.content.strip() and not last.parts:
        raise ConfigError("the question: got a blank text, expected a question")
    length = sum(len(turn.content) for turn in turns)
    if length > QUESTION_LIMIT:
        raise ConfigError(
            f"the question: got {length} characters, expected at most {QUESTION_LIMIT}"
        )
    for index, turn in enumerate(turns):
        match = _UNSENDABLE.search(turn.content)
        if match is not None:
            where = "the question" if isinstance(question, str) else f"the question, turn {index}"
            what = "a NUL" if match[0] == "\0" else f"the lone surrogate U+{ord(match[0]):04X}"
            place = match.start()
            raise ConfigError(f"{where}: got {what} at character {place}, expected text without it")
    return turns


def check_turns(question: object) -> tuple[Message, ...]:
    """Return the turns of a question whose type is right.

    Raises:
        ConfigError: it is neither a text nor a sequence of Messages.
    """
    if isinstance(question, str):
        return (Message("user", question),)
    if not isinstance(question, Sequence) or isinstance(question, (bytes, bytearray)):
        got = type(question).__name__
        raise ConfigError(f"the question: got {got}, expected a text or a list of Messages")
    turns = tuple(cast("Sequence[Message]", question))
    for index, turn in enumerate(turns):
        if not (
            isinstance(cast(object, turn), Message) and isinstance(cast(object, turn.content), str)
        ):
            raise ConfigError(
                f"the question, turn {index}: got {type(turn).__name__}, "
                'expected a Message whose content is a text: oc.Message("user", "…")'
            )
    return turns


def drop_answer_form(question: str, forms: Sequence[str]) -> str:
    r"""Return a question without the form of the answer that it asks for at its end.

    >>> drop_answer_form("What is 6 times 7?\n\nAnswer with a number.", ["Answer with a number."])
    'What is 6 times 7?'
    """
    form = find_answer_form(question, forms)
    return question.removesuffix(form).rstrip() if form else question


def find_answer_form(question: str, forms: Sequence[str]) -> str:
    """Return the form of the answer that a question asks for at its end; "": none."""
    for form in forms:
        if question.endswith(form) and question.strip() != form:
            return form
    return ""


def render_prompt(
    question: Question,
    ordinals: Sequence[int],
    *,
    options: PromptOptions = PromptOptions(),
    max_steps: int = 5,
    cards: Mapping[int, str] | None = None,
    names: Mapping[int, str] | None = None,
    previous: Round | None = None,
) -> tuple[Message, ...]:
    """Return the turns that the Conductor is asked with: a system and a user message.

    The compact template has only a user message. The system message is the same for all questions
    and rounds of a pool, so that providers can cache it.

    Args:
        question: a text, or a chat whose last turn is the question; all parts (images) go with the
            user message.
        ordinals: the workers on offer, at least one, in the order in which they are listed.
        options: how to ask.
        max_steps: the most steps that are asked for, at least 1.
        cards: descriptions by ordinal, shown if ``options.cards``; a worker may have none.
        names: the workers' names by ordinal, shown with the cards of the brief template.
        previous: the round before, in recursion.

    Raises:
        ConfigError: the question cannot be asked.
    """
    turns = [_without_form(turn, options) for turn in check_question(question)]
    if not options.cards:
        cards = None
    if not options.cards or options.template != "brief":
        names = None
    workers = _worker_lines(ordinals, cards or {}, names or {})
    conversation = _conversation(turns)
    media = tuple(part for turn in turns for part in turn.media)
    if options.template == "compact":
        return (Message("user", _compact(workers, conversation, previous, options), media),)
    if previous is not None:
        conversation += "\n\n" + _later_round(previous, options)
    system = _system(workers, tuple(ordinals), options, max_steps)
    return Message("system", system), Message("user", conversation, media)


def count_steps(steps: int) -> str:
    """Return the words with which a thought says how many steps it plans."""
    return "1 step" if steps == 1 else f"{steps} steps"


def render_workflow(workflow: Workflow, thought: str = "") -> str:
    r"""Write a workflow as a completion: the thought, then the three lists, one on each line.

    ``parse_workflow`` reads a valid workflow back as it was, whatever the thought.

    >>> from openconductor.types import Step
    >>> workflow = Workflow((Step(3, "Add."), Step(1, 'Say "ok".', "all")))
    >>> print(render_workflow(workflow, "Two steps."))
    Two steps.
    model_id = [3, 1]
    subtasks = ["Add.", "Say \"ok\"."]
    access_list = [[], "all"]
    """
    ids = ", ".join(str(step.worker) for step in workflow)
    subtasks = ", ".join(_quoted(step.subtask) for step in workflow)
    accesses = ", ".join(
        '"all"' if step.access == "all" else str(list(step.access)) for step in workflow
    )
    lists = f"model_id = [{ids}]\nsubtasks = [{subtasks}]\naccess_list = [{accesses}]"
    return f"{thought}\n{lists}" if thought else lists


def worked_examples(
    ordinals: Sequence[int], options: PromptOptions, *, max_steps: int
) -> Iterator[tuple[str, str, Workflow]]:
    """Yield the examples of a set (``prompt_examples.toml``): question, thought, workflow.

    The file names slots (0, 1, …) instead of workers. Slots are dealt out in turn over the workers
    on offer, from a start that is a checksum of the ordinals. So the same pool always gets the same
    examples, and over many pools no worker is favoured.

    Args:
        ordinals: the workers on offer, at least one.
        options: which examples, and whether they show their own subtasks, and ``"all"`` or step
            numbers.
        max_steps: no workflow is longer.
    """
    texts = _example_texts()
    offered = sorted(ordinals)
    turn = zlib.crc32(",".join(str(ordinal) for ordinal in offered).encode())
    for name in texts["sets"][options.examples]:
        example = texts["examples"][name]
        plan = next(plan for plan in example["plans"] if len(plan["steps"]) <= max_steps)
        steps: list[Step] = []
        for step in plan["steps"]:
            worker = offered[(turn + int(step["slot"])) % len(offered)]
            subtask = step["subtask"] if options.subtasks else SOLVE_SUBTASK
            access: list[int] | Literal["all"] = step.get("sees", [])
            if access and options.access == "binary":
                access = "all"
            steps.append(Step(worker, subtask, access))
        slots = len({step["slot"] for step in plan["steps"]})
        turn += slots
        if slots % len(offered) == 0:  # else the next example would begin with the same worker
            turn += 1
        thought = plan["thought" if options.subtasks else "plain"]
        yield example["question"], thought, Workflow(tuple(steps))


@cache
def _example_texts() -> dict[str, Any]:
    return tomllib.loads(files("openconductor").joinpath("prompt_examples.toml").read_text("utf-8"))


# ── pieces ────────────────────────────────────────────────────────────────────────────────────────
def _quoted(text: str) -> str:
    """Return a text as a double-quoted string on one line; JSON's escapes are Python's, too."""
    # A thought may open a ''' string that it never closes. A subtask must not close it, and so hide
    # our lists.
    return json.dumps(text, ensure_ascii=False).replace("'''", "''\\'")


def tools_as_text(turns: Sequence[Message]) -> tuple[Message, ...]:
    r"""Return the turns with calls of tools and results as text, for workers without the tools.

    >>> call = {"id": "1", "function": {"name": "add", "arguments": "[6, 7]"}}
    >>> calls = Message("assistant", "", ({"tool_calls": [call]},))
    >>> result = Message("tool", "13", ({"tool_call_id": "1"},))
    >>> [turn.content for turn in tools_as_text([calls, result])]
    ['[calls add([6, 7])]', '[result]\n13']
    """
    as_text: list[Message] = []
    for turn in turns:
        if turn.role != "tool" and not turn.tool_calls:
            as_text.append(turn)
            continue
        role = turn.role
        lines = [turn.content] if turn.content else []
        if role == "tool":
            role = "user"
            lines.insert(0, "[result]")
        for call in turn.tool_calls:
            function = call.get("function", {})
            lines.append(f"[calls {function.get('name')}({function.get('arguments', '')})]")
        as_text.append(Message(role, "\n".join(lines), turn.media))
    return tuple(as_text)


def _without_form(turn: Message, options: PromptOptions) -> Message:
    """Return a turn as the Conductor is shown it."""
    if turn.role != "user":
        return turn
    return replace(turn, content=drop_answer_form(turn.content, options.answer_forms))


def _conversation(turns: Sequence[Message]) -> str:
    """Return the question's text, between the chat before it and what was said since."""
    users = [index for index, turn in enumerate(turns) if turn.role == "user"]
    asked_at = users[-1] if users else len(turns) - 1
    shown = [f"[{turn.role}]\n{turn.content or '(an attachment)'}" for turn in tools_as_text(turns)]
    before = "\n\n".join(shown[:asked_at])
    after = "\n\n".join(shown[asked_at + 1 :])
    text = turns[asked_at].content
    if before:
        text = f"{_BEFORE}\n\n{before}\n\nThe question:\n\n{text}"
    if after:
        has_results = any(turn.role == "tool" for turn in turns[asked_at + 1 :])
        text += f"\n\n{_DONE_SINCE if has_results else _SAID_SINCE}\n\n{after}"
    return text


_BEFORE = "The conversation so far, which every worker sees too:"
_DONE_SINCE = "What was done about it since, with the user's tools:"
_SAID_SINCE = "What was said since, from which the answer goes on:"


def _worker_lines(
    ordinals: Iterable[int], cards: Mapping[int, str], names: Mapping[int, str]
) -> str:
    """Return one line a worker; line breaks in a name or a description become spaces."""
    lines: list[str] = []
    for ordinal in ordinals:
        line = f"Model {ordinal}"
        if ordinal in names:
            line += f" ({' '.join(names[ordinal].split())})"
        card = " ".join(cards.get(ordinal, "").split())
        if card:
            line += f": {card}"
        lines.append(line)
    return "\n".join(lines)


def _excerpt(text: str, limit: int = PREVIOUS_LIMIT) -> str:
    """Return the beginning and the end of a response, at most ``limit`` characters of it."""
    text = _UNSENDABLE.sub("\ufffd", text)
    left_out = len(text) - limit
    if left_out <= 0:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"


def _earlier_responses(previous: Round, options: PromptOptions) -> list[tuple[int, str]]:
    """Return number and response of each step before the last, where ``options`` shows them."""
    if options.previous == "last" or previous.transcript is None:
        return []
    *earlier, _ = previous.transcript.results
    responses: list[tuple[int, str]] = []
    for number, result in enumerate(earlier):
        if result.completion is not None:
            response = _excerpt(result.completion.text, PREVIOUS_LIMIT // len(earlier))
            responses.append((number, response))
    return responses


def _compact(workers: str, question: str, previous: Round | None, options: PromptOptions) -> str:
    """Return the compact prompt; an invalid round, or one without an answer, reads ``none``."""
    prompt = f"{workers}\nQuestion: {question}\n"
    if previous is None:
        return prompt
    before = "none"
    answer = "none"
    if previous.workflow is not None:
        before = render_workflow(previous.workflow)
    if previous.transcript is not None and previous.transcript.answer is not None:
        answer = _excerpt(previous.transcript.answer)
    responses = _earlier_responses(previous, options)
    earlier = "".join(f"Step {number}: {response}\n" for number, response in responses)
    return f"{prompt}Before:\n{before}\n{earlier}Answer: {answer}\n"


# ── the full and the brief template ───────────────────────────────────────────────────────────────
# It is the same for all questions of a pool, and the worked examples take a millisecond to write.
@lru_cache(maxsize=64)
def _system(workers: str, ordinals: tuple[int, ...], options: PromptOptions, max_steps: int) -> str:
    if options.template == "brief":
        pool = _KNOWN_POOL if options.cards else _POOL
        sections = [_brief(ordinals, options, max_steps), f"{pool}\n\n{workers}"]
    else:
        sight = _SIGHT_BINARY if options.access == "binary" else _SIGHT_INDEX
        sections = [_TASK, _format(options, max_steps), sight, f"{_POOL}\n\n{workers}"]
    for number, example in enumerate(worked_examples(ordinals, options, max_steps=max_steps), 1):
        question, thought, workflow = example
        if number == 1:
            sections.append(_EXAMPLES)
        written = render_workflow(workflow, thought)
        sections.append(f"### Example {number}\n\nQuestion:\n{question}\n\nYou write:\n{written}")
    return "\n\n".join(sections)


_TASK = """\
You lead a team of AI workers. You do not answer the user's question yourself: you plan how the \
team answers it. Your plan is a workflow, a sequence of steps in each of which one worker carries \
out one instruction. The response of the last step goes to the user as it is, and your plan is \
judged by nothing but whether that response is right."""


def _count_allowed(max_steps: int) -> str:
    return "exactly one step" if max_steps == 1 else f"between 1 and {max_steps} steps"


def _format(options: PromptOptions, max_steps: int) -> str:
    steps = _count_allowed(max_steps)
    if options.subtasks:
        subtasks = (
            "- subtasks holds, for each step, the instruction to its worker: a text in double "
            "quotes, on one line. Say what to do, what to watch out for, and what to hand on. The "
            "last instruction must ask for the complete final answer, in the form that the "
            "question demands."
        )
    else:
        subtasks = (
            "- subtasks holds, for each step, always the same instruction, word for word: "
            f'"{SOLVE_SUBTASK}"'
        )
    access = (
        '[] or "all"' if options.access == "binary" else "a list of the numbers of earlier steps"
    )
    return f"""\
## What you write

Think first, briefly and in plain words: what does the question demand, where is an answer likely \
to go wrong, and which division of labour guards against it? Do not work out the answer. Then \
write the workflow as three Python lists of equal length, each on a line of its own; entry by \
entry they describe the steps in order:

model_id = [...]
subtasks = [...]
access_list = [...]

- model_id holds, for each step, the number of the worker that does it. A worker may do several \
steps.
{subtasks}
- access_list holds, for each step, what its worker sees of the steps before: {access}.

A workflow has {steps}; use only as many as help. Write plain literals only: no variables, no \
code. Inside a text, write \\" for a double quote, \\\\ for a backslash and \\n for a line break. \
Lists that cannot be read this way are worth nothing."""


_SIGHT_BINARY = """\
## What a worker sees

Every worker gets the user's question and the instruction of its step. It knows neither your \
thoughts nor the other workers. With [] it sees nothing more, so that its work is independent. \
With "all" it also sees the instructions and responses of all earlier steps, in order, so that it \
can build on them, compare them or check them. The first step has nothing before it: give it \
[]."""

_SIGHT_INDEX = """\
## What a worker sees

Every worker gets the user's question and the instruction of its step. It knows neither your \
thoughts nor the other workers. Of the earlier steps it sees the instructions and responses of \
exactly those whose numbers its entry lists; the first step has number 0. With [] it sees nothing \
more, so that its work is independent; with [0, 2] it can build on, compare or check the first and \
the third step. A step can name only steps before it: the first has []."""


def _brief(ordinals: tuple[int, ...], options: PromptOptions, max_steps: int) -> str:
    """Return the instructions of the brief template, with a workflow of two steps as the form."""
    subtasks = ("Solve ...", "Check ...")
    if options.subtasks:
        written = (
            "the instruction to the worker, in double quotes on one line. The last one asks for "
            "the complete final answer, in the form that the question demands"
        )
    else:
        subtasks = (SOLVE_SUBTASK, SOLVE_SUBTASK)
        written = "always this same instruction, word for word"
    sees: Sequence[int] | Literal["all"] = "all"
    sight = '[] for nothing, or "all" for the instructions and responses of all of them'
    if options.access == "index":
        sees = [0]
        sight = "the numbers, from 0, of those whose instructions and responses it sees"
    steps = [Step(ordinals[0], subtasks[0]), Step(ordinals[-1], subtasks[1], sees)]
    form = render_workflow(Workflow(tuple(steps[:max_steps])))
    return f"""\
You lead a team of AI workers. Do not answer the user's question: plan how the team answers it. \
The response of the last step goes to the user as it is, and only its being right counts.

Think first, in a sentence or two: what does the question demand, who is best at it, and where is \
an answer likely to go wrong? Then write the plan as three Python lists of equal length, each on \
a line of its own, with an entry for each step. Their form:

{form}

- model_id: the number of the worker. A worker may do several steps.
- subtasks: {written}. A worker sees the user's question and its instruction, not your thoughts.
- access_list: what the worker sees of earlier steps: {sight}. The first step has [].

Write {_count_allowed(max_steps)}, only as many as help. Often the best worker alone is enough; \
where mistakes are likely, have independent attempts compared or an answer checked. Write plain \
literals: no variables, no code, no bold type. Inside a text write \\" for a double quote, \\\\ \
for a backslash and \\n for a line break. A plan in another form is worth nothing."""


_KNOWN_POOL = """\
## The workers

These are the workers on offer, by number, with what is known of each. Choose by it."""

_POOL = """\
## The workers

These are the workers on offer. Their numbers only tell them apart: they say nothing about who is \
good at what."""

_EXAMPLES = """\
## Examples

They show the form. Which workers and how many steps are best depends on the question at hand."""


def _later_round(previous: Round, options: PromptOptions) -> str:
    """Return what the Conductor is told about the round before, and what it may do."""
    answer = previous.transcript.answer if previous.transcript is not None else None
    reason = "" if previous.error is None else f": {_excerpt(str(previous.error))}"
    lines = ["---", "You have already written a plan for this question."]
    if previous.workflow is None:
        reason = reason or ": it could not be read"
        lines.append(f"It was not a valid workflow, so no worker was asked{reason}")
        if previous.completion is not None:
            text = _excerpt(strip_thought(previous.completion.text))
            lines += ["", "You wrote:", "", "<plan>", text, "</plan>"]
    else:
        lines += ["Your workflow was:", "", render_workflow(previous.workflow), ""]
        for number, response in _earlier_responses(previous, options):
            opening = f'<response step="{number}">'
            lines += [f"The response of step {number} was:", "", opening, response]
            lines += ["</response>", ""]
        if answer is None:
            lines.append(f"It failed before its last step had answered{reason}")
    if answer is None:
        lines += ["", "There is no response that could stand, so write a new workflow."]
        return "\n".join(lines)
    sight = 'a step with "all"'
    if options.access == "index":
        sight = 'a step whose entry is "all" instead of a list'
    lines += [
        "Its final response was:",
        "",
        "<response>",
        _excerpt(answer),
        "</response>",
        "",
        "Think about whether this response is complete and right. Then do one of two things:",
        (
            f"- If it can be improved, write a new workflow. In it {sight} (even the first) also "
            "sees this response."
        ),
        "- If it should go to the user as it is, write the three lists empty:",
        "",
        render_workflow(Workflow(())),
    ]
    return "\n".join(lines)
