from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

import pytest

from openconductor.errors import ConfigError, WorkerTimeout, WorkflowError, WorkflowReason
from openconductor.parser import parse_workflow
from openconductor.prompt import (
    PREVIOUS_LIMIT,
    QUESTION_LIMIT,
    SOLVE_SUBTASK,
    ExampleSet,
    PromptOptions,
    check_question,
    render_prompt,
    render_workflow,
    worked_examples,
)
from openconductor.types import Completion, Message, Round, Step, StepResult, Transcript, Workflow

COMPACT = PromptOptions(template="compact")
TWO_STEPS = Workflow((Step(3, "a"), Step(1, "b", "all")))


def answered(answer: str, workflow: Workflow = TWO_STEPS) -> Round:
    results = [StepResult(step, Completion("first")) for step in workflow.steps]
    results[-1] = replace(results[-1], completion=Completion(answer))
    return Round(Completion("..."), workflow, Transcript(workflow, tuple(results)))


def system(ordinals: Any = range(3), **options: Any) -> str:
    max_steps = options.pop("max_steps", 5)
    options = PromptOptions(**options)
    return render_prompt("Q?", ordinals, options=options, max_steps=max_steps)[0].content


def later(previous: Round) -> str:
    """The user message of the round after this one."""
    return render_prompt("Q?", [0], previous=previous)[-1].content


def shown_completions(text: str) -> list[str]:
    return re.findall(r"You write:\n(.*?)(?=\n\n### Example|\Z)", text, re.DOTALL)


# ── rendering a workflow ──────────────────────────────────────────────────────────────────────────
def test_a_workflow_is_rendered_with_exactly_this_spelling() -> None:
    expected = 'model_id = [3, 1]\nsubtasks = ["a", "b"]\naccess_list = [[], "all"]'
    assert render_workflow(TWO_STEPS) == expected
    assert render_workflow(TWO_STEPS, "Think.") == "Think.\n" + expected


def test_index_access_and_accept_have_their_spelling_too() -> None:
    workflow = Workflow((Step(0, "a"), Step(0, "b", [0]), Step(0, "c", [1, 0])))
    assert render_workflow(workflow).endswith("access_list = [[], [0], [0, 1]]")
    assert render_workflow(Workflow(())) == "model_id = []\nsubtasks = []\naccess_list = []"


@pytest.mark.parametrize(
    ("subtask", "spelt"),
    [
        ('say "hi"', r'"say \"hi\""'),
        ("don't", '"don\'t"'),
        ("a\\b", r'"a\\b"'),
        ("a\nb\r\tc", r'"a\nb\r\tc"'),
        ("\0\x1b\r\U000e0001", '"\\u0000\\u001b\\r\U000e0001"'),
        ("é 計算 🧮", '"é 計算 🧮"'),
        ("'''", r'''"''\'"'''),
    ],
)
def test_a_subtask_is_escaped_only_where_it_must_be(subtask: str, spelt: str) -> None:
    workflow = Workflow((Step(0, subtask),))
    text = render_workflow(workflow)
    assert text.split("\n")[1] == f"subtasks = [{spelt}]"
    assert parse_workflow(text, {0}) == workflow


# ── the question ──────────────────────────────────────────────────────────────────────────────────
CALLS = {"tool_calls": [{"function": {"name": "add"}}]}


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("", "blank"),
        (" \n", "blank"),
        ("a\0b", "a NUL at character 1"),
        ("ab\ud800", "U+D800 at character 2"),
        ("x" * (QUESTION_LIMIT + 1), "got 1000001 characters"),
        ([], "without turns"),
        ([Message("user", "a"), Message("assistant", "b", (CALLS,))], "got calls of tools"),
        ([Message("user", "a"), Message("assistant", " ")], "blank"),
        ([Message("system", "a\0"), Message("user", "b")], "turn 0: got a NUL"),
        ([Message("user", "x" * QUESTION_LIMIT), Message("user", "b")], "got 1000001 characters"),
        ([Message("user", " ")], "blank"),
        (None, "got NoneType, expected a text or a list of Messages"),
        (b"bytes", "got bytes"),
        ([Message("user", "a"), "b"], "turn 1: got str, expected a Message"),
        ([Message("user", None)], "turn 0"),  # type: ignore[arg-type]
    ],
)
def test_a_question_that_cannot_be_asked_is_a_config_error_that_says_where(
    question: Any, says: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        check_question(question)
    assert str(caught.value).encode()
    with pytest.raises(ConfigError):
        render_prompt(question, [0])


@pytest.mark.parametrize(
    ("chat", "shown"),
    [
        ("system: Be brief.", "Be brief."),
        ("user: A?|system: Be brief.", "A?\n\n{since}\n\n[system]\nBe brief."),
        ("user: C?|assistant: {", "{asked}"),
        (
            "user: A?|assistant: B.|user: C?|assistant: {",
            "{before}\n\n[user]\nA?\n\n[assistant]\nB.\n\nThe question:\n\n{asked}",
        ),
    ],
)
def test_a_chat_may_end_with_any_turn(chat: str, shown: str) -> None:
    turns: list[Message] = []
    for line in chat.split("|"):
        role, _, text = line.partition(": ")
        turns.append(Message(role, text))  # type: ignore[arg-type]
    since = "What was said since, from which the answer goes on:"
    before = "The conversation so far, which every worker sees too:"
    expected = shown.replace("{asked}", "C?\n\n{since}\n\n[assistant]\n{")
    expected = expected.replace("{since}", since).replace("{before}", before)
    assert render_prompt(turns, [0])[-1].content == expected


def test_a_planner_is_not_shown_the_form_of_the_answer_that_workers_are_asked_for() -> None:
    form = "Answer in one word."
    asked = f"Why?\n\n{form}"
    chat = [Message("user", asked), Message("assistant", form), Message("user", asked)]
    for options in (COMPACT, PromptOptions()):
        knowing = replace(options, answer_forms=(form,))
        bare = [render_prompt("Why?", [0], options=each) for each in (options, knowing)]
        assert render_prompt(asked, [0], options=knowing) == bare[0] == bare[1]
        (*_, turn) = render_prompt(chat, [0], options=knowing)
        assert turn.content.count(form) == 1, "what others said stays"
        (*_, turn) = render_prompt(form, [0], options=knowing)
        assert form in turn.content, "a question is never blank"


def test_a_later_round_may_be_shown_each_steps_response() -> None:
    options = PromptOptions(previous="answers")
    text = render_prompt("Q?", [0], options=options, previous=answered("It is 5."))[-1].content
    first = 'The response of step 0 was:\n\n<response step="0">\nfirst\n</response>\n'
    assert text.index(first) < text.index("Its final response was:\n\n<response>\nIt is 5.")
    assert "The response of step" not in later(answered("It is 5."))

    compact = replace(COMPACT, previous="answers")
    text = render_prompt("Q?", [0], options=compact, previous=answered("It is 5."))[0].content
    assert text.endswith("Step 0: first\nAnswer: It is 5.\n")


def test_long_responses_of_earlier_steps_share_their_room() -> None:
    steps = [Step(0, "Solve.") for _ in range(5)]
    results = [StepResult(step, Completion("x" * 10_000)) for step in steps]
    workflow = Workflow(tuple(steps))
    before = Round(Completion("..."), workflow, Transcript(workflow, tuple(results)))
    options = PromptOptions(previous="answers")
    text = render_prompt("Q?", [0], options=options, previous=before)[-1].content
    assert text.count("[... 8000 characters left out ...]") == 4
    assert text.count("x") <= 2 * PREVIOUS_LIMIT + 10


# ── whole prompts ─────────────────────────────────────────────────────────────────────────────────
FAILED = Transcript(TWO_STEPS, tuple(StepResult(step) for step in TWO_STEPS))
UNKNOWN = WorkflowError(WorkflowReason.UNKNOWN_WORKER, "model_id, step 0: got 9")
TIMEOUT = WorkerTimeout("no answer in 60 s", worker="w")
ROUNDS = {
    "answered": answered("It is 5."),
    "invalid": Round(Completion("?"), error=UNKNOWN),
    "failed": Round(Completion("?"), TWO_STEPS, FAILED, TIMEOUT),
    "without a workflow": Round(Completion("?")),
    "without an answer": Round(Completion("?"), TWO_STEPS),
}
PROMPTS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("prompts.json").read_text("utf-8")
)


def by_ordinal(texts: dict[str, str]) -> dict[int, str]:
    return {int(ordinal): text for ordinal, text in texts.items()}


@pytest.mark.parametrize("case", PROMPTS, ids=itemgetter("case"))
def test_a_prompt_is_to_the_letter_what_it_was(case: dict[str, Any]) -> None:
    """Compare with the prompts that Conductors are trained on."""
    question = case["question"]
    if not isinstance(question, str):
        question = [Message(role, content, tuple(parts)) for role, content, *parts in question]
    messages = render_prompt(
        question,
        case["ordinals"],
        options=PromptOptions(**case["options"]),
        max_steps=case.get("max_steps", 5),
        cards=by_ordinal(case.get("cards", {})),
        names=by_ordinal(case.get("names", {})),
        previous=ROUNDS.get(case.get("previous")),
    )
    rendered = [[turn.role, turn.content.split("\n"), *turn.parts] for turn in messages]
    assert rendered == case["messages"]


# ── the pool ──────────────────────────────────────────────────────────────────────────────────────


# ── the options ───────────────────────────────────────────────────────────────────────────────────
def test_without_subtasks_every_step_is_to_get_the_same_text_and_the_examples_do_so() -> None:
    text = system(subtasks=False)
    assert f'word for word: "{SOLVE_SUBTASK}"' in text
    for completion in shown_completions(text):
        assert {step.subtask for step in parse_workflow(completion, range(3))} == {SOLVE_SUBTASK}


@pytest.mark.parametrize("access", ["binary", "index"])
@pytest.mark.parametrize("subtasks", [True, False])
def test_the_form_that_the_brief_template_shows_is_valid(access: Any, subtasks: bool) -> None:
    for max_steps, ordinals in itertools.product([1, 2, 5], OFFERS):
        options = {"template": "brief", "access": access, "subtasks": subtasks}
        text = system(ordinals, max_steps=max_steps, **options)
        form = text.partition("Their form:\n\n")[2].partition("\n\n")[0]
        assert render_workflow(parse_workflow(form, ordinals, max_steps=max_steps)) == form
        instructions = text.partition("\n\nModel ")[0]
        assert len(instructions) <= 1_600, "500 tokens of SmolLM2, at 3.7 characters each"


# ── the examples ──────────────────────────────────────────────────────────────────────────────────
OFFERS = [
    [0],
    [7],
    [0, 1],
    [3, 9],
    [0, 1, 2],
    [1, 4, 6],
    list(range(7)),
    [2, 3, 5, 7, 11, 13, 17, 19, 23],
]


@pytest.mark.parametrize("template", ["full", "brief"])
@pytest.mark.parametrize("examples", get_args(ExampleSet))
@pytest.mark.parametrize("access", ["binary", "index"])
@pytest.mark.parametrize("subtasks", [True, False])
def test_every_example_is_valid_under_the_options_chosen(
    template: Any, examples: Any, access: Any, subtasks: bool
) -> None:
    options = {"template": template, "examples": examples, "access": access, "subtasks": subtasks}
    for max_steps, ordinals in itertools.product([1, 2, 3, 4, 5, 9], OFFERS):
        completions = shown_completions(system(ordinals, max_steps=max_steps, **options))
        assert len(completions) == (0 if examples == "none" else 4)
        for completion in completions:
            workflow = parse_workflow(completion, ordinals, max_steps=max_steps)
            lists = render_workflow(workflow)
            assert completion.endswith(lists)
            assert len(completion) > len(lists) + 20  # a thought comes first
            accesses = {step.access for step in workflow}
            assert accesses <= {(), "all"} if access == "binary" else "all" not in accesses


def shown(
    which: ExampleSet, offer: Sequence[int], max_steps: int = 5, access: str = "binary"
) -> list:
    options = PromptOptions(examples=which, access=access)
    return list(worked_examples(offer, options, max_steps=max_steps))


def topology(workflow: Workflow) -> tuple[tuple[int, ...], ...]:
    return tuple(workflow.visible(index) for index in range(len(workflow)))


@pytest.mark.parametrize("examples", ["in_distribution", "mixed", "out_of_distribution"])
@pytest.mark.parametrize("access", ["binary", "index"])
def test_a_set_shows_a_single_step_a_parallel_plan_with_a_merge_and_a_check(
    examples, access
) -> None:
    shapes = {topology(workflow) for _, _, workflow in shown(examples, range(7), access=access)}
    assert {((),), ((), (0,))} <= shapes
    assert any(shape[:3] == ((), (), (0, 1)) for shape in shapes)


def test_mixed_is_two_examples_of_each_kind_whatever_the_order_of_the_offer() -> None:
    questions = {
        which: {question for question, _, _ in shown(which, [0])} for which in get_args(ExampleSet)
    }
    assert len(questions["mixed"] & questions["in_distribution"]) == 2
    assert len(questions["mixed"] & questions["out_of_distribution"]) == 2
    assert shown("mixed", [5, 1, 8]) == shown("mixed", [8, 5, 1])


def test_over_many_offers_no_worker_is_favoured_in_the_examples() -> None:
    uses: Counter[int] = Counter()
    first: Counter[int] = Counter()
    offers = list(itertools.combinations(range(9), 4))
    for offer in offers:
        examples = shown("out_of_distribution", offer)
        uses.update(step.worker for _, _, workflow in examples for step in workflow)
        first[examples[0][2].steps[0].worker] += 1
    assert set(uses) == set(range(9))
    assert max(uses.values()) < 1.5 * min(uses.values())
    assert max(first.values()) < 0.3 * len(offers)


def test_in_one_example_different_parts_go_to_different_workers_where_the_pool_allows() -> None:
    for offer in itertools.combinations(range(6), 3):
        examples = shown("out_of_distribution", offer, 3)
        assert all(len({step.worker for step in one}) == len(one) for _, _, one in examples)


# ── later rounds ──────────────────────────────────────────────────────────────────────────────────


def test_a_response_within_the_limit_is_shown_whole_and_a_longer_one_without_its_middle() -> None:
    whole = "a" * PREVIOUS_LIMIT
    assert "a\ufffdb\ufffdc" in later(answered("a\0b\ud800c"))
    assert whole in later(answered(whole))
    text = later(answered(f"BEGIN{whole}END"))
    half = "a" * (PREVIOUS_LIMIT // 2 - 5)
    assert f"BEGIN{half}\n[... 8 characters left out ...]\n" in text and "aaEND\n" in text
    assert len(text) < PREVIOUS_LIMIT + 1_500
