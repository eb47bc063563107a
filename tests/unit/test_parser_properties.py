"""Properties of the parser: only WorkflowError is raised, rendered workflows are read back."""

from __future__ import annotations

import ast
import json
import warnings
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings, strategies as st

from openconductor import parser
from openconductor.errors import WorkflowError
from openconductor.parser import parse_workflow, validate_workflow
from openconductor.prompt import render_workflow
from openconductor.types import Step, Workflow

CASES: Any = json.loads(Path(__file__).with_name("parser_cases.json").read_text("ascii"))
WORKERS = (0, 2, 5)

FRAGMENTS = st.sampled_from([*CASES["fragments"], "9" * 5000])
ASSEMBLED = st.lists(FRAGMENTS, max_size=60).map("".join)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)
PROSE = st.one_of(ASSEMBLED, ANY_TEXT)
SUBTASK = st.one_of(
    ASSEMBLED, st.text(max_size=60), st.text(alphabet="'\"\\ \n\ra[]#=", max_size=30)
).filter(lambda text: text.strip() and not any("\ud800" <= char <= "\udfff" for char in text))


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    steps: list[Step] = []
    for index in range(draw(st.integers(1, 5))):
        earlier = st.lists(st.integers(0, index - 1), max_size=6) if index else st.just([])
        access = draw(st.one_of(earlier, st.just("all"), st.just(["all"])))
        steps.append(Step(draw(st.sampled_from(WORKERS)), draw(SUBTASK), access))
    return Workflow(tuple(steps))


def read(text: str) -> Workflow | None:
    """The workflow; None: there is none. Any other exception or warning fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return parse_workflow(text, WORKERS, accept_allowed=True)
        except WorkflowError as error:
            refused = error
    assert str(refused).encode()
    assert len(refused.message) < 600
    return None


@given(PROSE)
@settings(max_examples=400)
def test_any_text_is_a_valid_workflow_or_a_workflow_error(text: str) -> None:
    workflow = read(text)
    if workflow is not None and workflow.steps:
        validate_workflow(workflow, WORKERS, max_steps=5)


@given(workflows(), st.integers(0, 10_000), st.integers(0, 5), FRAGMENTS)
@settings(max_examples=400)
def test_a_damaged_workflow_is_a_valid_workflow_or_a_workflow_error(
    workflow: Workflow, where: int, cut: int, insert: str
) -> None:
    text = render_workflow(workflow)
    where %= len(text)
    damaged = read(text[:where] + insert + text[where + cut :])
    if damaged is not None and damaged.steps:
        validate_workflow(damaged, WORKERS, max_steps=5)


@given(workflows(), st.one_of(st.just(""), PROSE))
@settings(max_examples=600)
@example(Workflow((Step(0, "'''"),)), "model_id = ['''")
@example(Workflow((Step(0, "''''''"),)), "subtasks = ['''")
@example(Workflow((Step(0, '"""'),)), 'subtasks = ["""')
@example(Workflow((Step(0, "don't"),)), "model_id = ['\\")
@example(Workflow((Step(0, "a"),)), "model_id =")
@example(Workflow((Step(0, "\U000f0000"),)), "\ud800")
@example(Workflow((Step(0, "a"),)), "access_list = [ # \\")
def test_what_is_rendered_is_read_back_whatever_the_thought(
    workflow: Workflow, thought: str
) -> None:
    assert read(render_workflow(workflow, thought)) == workflow


LITERAL_PIECES = st.sampled_from(CASES["literal pieces"])


@given(st.lists(LITERAL_PIECES, max_size=8).map("".join))
@settings(max_examples=1500)
@example("-1e-5-2e-3j")
def test_every_list_that_python_reads_is_read_to_the_same_value(body: str) -> None:
    source = f"[{body}]"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected: object = ast.literal_eval(source)
        except (ValueError, TypeError, SyntaxError):
            expected = None
    if not isinstance(expected, list):
        return
    found = parser._find_lists(f"Don't. subtasks = {source} don't")["subtasks"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(parser._read_value(found)) == repr(expected)
