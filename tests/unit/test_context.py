"""What a step is shown."""

from __future__ import annotations

import itertools

import pytest

from openconductor.context import join_turns, step_context
from openconductor.types import Message, Step, Workflow

CHECK = "Check the algebra."
TREE = Workflow(
    [
        Step(0, "Solve by algebra."),
        Step(1, "Solve by geometry."),
        Step(2, CHECK, [0]),
        Step(0, "Check the geometry.", [1]),
        Step(1, "Decide.", [3, 2]),
    ]
)
PAIR = Workflow([Step(0, "Revise.", "all"), Step(1, "Decide.", "all")])
RESPONSES = ["x = 2", "x = 3", "right", "wrong", ""]


def turns(*texts: str) -> tuple[Message, ...]:
    """Return the user's and the assistant's turns, by turns."""
    roles = itertools.cycle(["user", "assistant"])
    return tuple(Message(role, text) for role, text in zip(roles, texts, strict=False))


SHOWN = [
    (TREE, 1, ["What is x?\n\nSolve by geometry."]),  # neighbouring turns of one role are one
    # In step order, whatever the order of the list; a list does not show the previous answer.
    (TREE, 4, [f"What is x?\n\n{CHECK}", "right", "Check the geometry.", "wrong", "Decide."]),
    # "all": the previous answer right after the question.
    (PAIR, 0, ["What is x?", "x = 9", "Revise."]),
    (PAIR, 1, ["What is x?", "x = 9", "Revise.", "x = 2", "Decide."]),
]


@pytest.mark.parametrize(("workflow", "step", "shown"), SHOWN)
def test_a_step_sees_the_question_what_its_access_grants_and_its_subtask(
    workflow: Workflow, step: int, shown: list[str]
) -> None:
    opening = turns("What is x?")
    assert step_context(workflow, step, opening, RESPONSES, "x = 9") == turns(*shown)


def test_a_chat_opens_the_context_whole_and_its_turns_of_one_role_are_joined() -> None:
    system = Message("system", "Be brief.")
    chat = (system, *turns("Hello.", "Hello.", "Look at this."), Message("user", "What is x?"))
    shown = turns("Hello.", "Hello.", "Look at this.\n\nWhat is x?\n\nSolve by algebra.")
    assert step_context(TREE, 0, join_turns(chat), RESPONSES) == (system, *shown)


def test_the_beginning_of_the_answer_stays_at_the_end_for_the_last_step() -> None:
    opening = turns("What is x?", "x =")
    assert step_context(PAIR, 0, opening, RESPONSES, begun=True) == turns(
        "What is x?", "x =", "Revise."
    )
    shown = turns("What is x?\n\nRevise.", "x = 2", "Decide.", "x =")
    assert step_context(PAIR, 1, opening, RESPONSES, begun=True) == shown
    assert step_context(PAIR, 1, opening, RESPONSES)[-1].content == "Decide."


def test_joined_turns_keep_all_parts_in_order_and_results_of_tools_stay_apart() -> None:
    image = {"type": "image_url"}
    sound = {"type": "input_audio"}
    see = Message("user", "See.", (image,))
    hear = Message("user", "", (sound,))
    joined = join_turns([see, hear, Message("user", "Say.")])
    assert joined == (Message("user", "See.\n\nSay.", (image, sound)),)
    calls = [Message("assistant", "", ({"tool_calls": [{"id": name}]},)) for name in "ab"]
    assert join_turns(calls)[0].parts == ({"tool_calls": [{"id": "a"}, {"id": "b"}]},)
    results = (Message("tool", "1"), Message("tool", "2"))
    assert join_turns(results) == results
