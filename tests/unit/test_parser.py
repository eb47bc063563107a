from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openconductor import parser
from openconductor.errors import WorkflowError, WorkflowReason
from openconductor.parser import MAX_TEXT, parse_workflow, validate_workflow
from openconductor.types import Step, Workflow

CASES: Any = json.loads(Path(__file__).with_name("parser_cases.json").read_text("ascii"))
GOOD = 'model_id = [0]\nsubtasks = ["a"]\naccess_list = [[]]'


def reason_of(
    text: str, workers: frozenset[int] = frozenset({0, 1, 2}), **options: int
) -> WorkflowReason:
    with pytest.raises(WorkflowError) as caught:
        parse_workflow(text, workers, **options)
    return caught.value.reason


def message_of(text: str) -> str:
    with pytest.raises(WorkflowError) as caught:
        parse_workflow(text, {0, 1, 2})
    return caught.value.message


# ── length and time ───────────────────────────────────────────────────────────────────────────────
def test_a_text_one_character_longer_is_too_long_even_if_it_is_valid() -> None:
    assert reason_of(GOOD + " " * (MAX_TEXT - len(GOOD) + 1)) is WorkflowReason.TOO_LONG


class CountingPattern:
    """A compiled pattern that counts the tokens that it hands out, and the characters in them."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        self.starts: list[int] = []
        self.characters = 0

    def finditer(self, text: str, position: int) -> Iterator[re.Match[str]]:
        for match in self.pattern.finditer(text, position):
            self.starts.append(match.start())
            self.characters += len(match[0])
            yield match


@pytest.mark.parametrize("unit", CASES["hostile"])
@pytest.mark.timeout(60)  # all leads take well under a second; quadratic time would take minutes
def test_a_hostile_text_is_refused_in_one_forward_pass(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lead in CASES["leads"]:
        for tail in ("", "]"):
            counting = CountingPattern(parser._TOKEN)
            monkeypatch.setattr(parser, "_TOKEN", counting)
            body = unit * (MAX_TEXT // len(unit))
            text = (lead + body)[: MAX_TEXT - len(tail)] + tail
            reason_of(text)
            monkeypatch.setattr(parser, "_TOKEN", counting.pattern)
            # A head that breaks a list is read twice, as a token and as the next list's head: never
            # more.
            assert counting.characters <= 2 * len(text)
            assert counting.starts == sorted(counting.starts)


@pytest.mark.parametrize(
    "nested", ["[" * 60 + "]" * 60, "(" * 60 + "0" + ")" * 60, "-" * 60 + "1", "0" + "[0]" * 60]
)
def test_what_could_exhaust_pythons_parser_is_refused_before_it(
    nested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_asked(source: str) -> object:
        raise AssertionError(f"asked for {source!r}")

    monkeypatch.setattr(parser.ast, "literal_eval", not_asked)
    text = f"subtasks = ['a']\naccess_list = [[]]\nmodel_id = [{nested}]"
    assert reason_of(text) is WorkflowReason.NOT_A_LITERAL


# ── warnings ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("literal", "value"),
    CASES["escapes"],
)
@pytest.mark.parametrize("filter_", ["error", "ignore"])
def test_an_unknown_escape_is_read_as_python_reads_it_and_never_warns(
    filter_: str, literal: str, value: str
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always" if filter_ == "ignore" else "error")
        workflow = parse_workflow(
            f"model_id = [0]\naccess_list = [[]]\nsubtasks = [{literal}]", {0}
        )
    assert workflow.steps[0].subtask == value
    assert not caught


# ── messages ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("text", "parts"),
    CASES["messages"],
)
def test_a_message_says_where_what_was_got_and_what_was_expected(
    text: str, parts: list[str]
) -> None:
    message = message_of(text)
    assert [part for part in parts if part not in message] == [], message


def test_a_long_value_is_shortened_in_the_message() -> None:
    assert len(message_of(GOOD + f"\naccess_list = ['{'x' * 5_000}']")) < 250
    assert len(message_of(GOOD + f"\nmodel_id = [[{'0, ' * 5_000}]]")) < 250
    assert len(message_of(GOOD + f"\nmodel_id = [{'q' * 5_000}]")) < 250


@pytest.mark.parametrize(
    "where", ["subtasks = ['\ud800']", "model_id = ['\ud800']", "access_list = [\ud800]"]
)
def test_a_message_about_a_lone_surrogate_can_be_printed(where: str) -> None:
    assert message_of(f"{GOOD}\n{where}").encode()


def test_a_surrogate_is_found_although_the_text_holds_private_characters_already() -> None:
    private = "\U000f0000\U000f0001"
    for spelt in (private, "\\U000f0000\\U000F0001"):
        workflow = parse_workflow(GOOD.replace('"a"', f'"{spelt}"') + "\ud800", {0})
        assert workflow.steps[0].subtask == private
    assert reason_of(GOOD.replace('"a"', f'"{private}\ud800"')) is WorkflowReason.BAD_SUBTASK


# ── hand-built workflows ──────────────────────────────────────────────────────────────────────────
def test_a_hand_built_workflow_that_keeps_the_rules_is_valid() -> None:
    accesses = [], [0], "all", ["all"], (2, 0, 0)
    workflow = Workflow([Step(1, "a", access) for access in accesses])
    validate_workflow(workflow, {0, 1}, max_steps=5)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((), "no_steps"),
        ((Step(True, "a"),), "unknown_worker"),
        ((Step("0", "a"),), "unknown_worker"),  # type: ignore[arg-type]
        ((Step(0, None),), "bad_subtask"),  # type: ignore[arg-type]
        ((Step(0, "\udc00"),), "bad_subtask"),
        ((Step(0, "a", [0]),), "forward_access"),
        ((Step(0, "a", "none"),), "bad_access"),
        ((Step(0, "a", None),), "bad_access"),  # type: ignore[arg-type]
        ((Step(0, "a", ["all", "all"]), Step(0, "a", ["all", 0])), "bad_access"),  # type: ignore[list-item]
        ((Step(0, "a"), Step(0, "b", [True])), "bad_access"),
    ],
)
def test_a_hand_built_workflow_is_held_to_the_same_rules(
    steps: tuple[Step, ...], reason: str
) -> None:
    with pytest.raises(WorkflowError) as caught:
        validate_workflow(Workflow(steps), {0, 1})
    assert caught.value.reason == reason
