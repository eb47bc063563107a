"""What a step is shown."""

from __future__ import annotations

from openconductor.execution import join_turns, open_context, step_context
from openconductor.types import Message, Step, Workflow

TREE = Workflow(
    [
        Step(0, "Solve by algebra."),
        Step(1, "Solve by geometry."),
        Step(2, "Check the algebra.", [0]),
        Step(0, "Check the geometry.", [1]),
        Step(1, "Decide.", [3, 2]),
    ]
)
RESPONSES = ["x = 2", "x = 3", "right", "wrong", ""]


def turns(*pairs: tuple[str, str]) -> tuple[Message, ...]:
    return tuple(Message(role, content) for role, content in pairs)  # type: ignore[arg-type]


def test_a_step_without_access_sees_the_question_and_its_subtask_as_one_turn() -> None:
    assert step_context(TREE, 1, open_context("What is x?"), RESPONSES) == turns(
        ("user", "What is x?\n\nSolve by geometry.")
    )


def test_visible_steps_come_in_step_order_as_subtask_and_response() -> None:
    assert step_context(TREE, 4, open_context("What is x?"), RESPONSES) == turns(
        ("user", "What is x?\n\nCheck the algebra."),
        ("assistant", "right"),
        ("user", "Check the geometry."),
        ("assistant", "wrong"),
        ("user", "Decide."),
    )


def test_nothing_is_shown_that_the_access_list_does_not_grant() -> None:
    shown = step_context(TREE, 2, open_context("What is x?"), RESPONSES, previous="x = 9")
    assert shown == turns(
        ("user", "What is x?\n\nSolve by algebra."), ("assistant", "x = 2"), ("user", "Check the algebra.")
    )


def test_all_also_shows_the_previous_answer_right_after_the_question() -> None:
    workflow = Workflow([Step(0, "Revise."), Step(1, "Decide.", "all")])
    assert step_context(workflow, 1, open_context("What is x?"), ["x = 4", ""], previous="x = 9") == turns(
        ("user", "What is x?"),
        ("assistant", "x = 9"),
        ("user", "Revise."),
        ("assistant", "x = 4"),
        ("user", "Decide."),
    )


def test_all_shows_the_previous_answer_to_a_first_step_too() -> None:
    workflow = Workflow([Step(0, "Revise.", "all")])
    assert step_context(workflow, 0, open_context("What is x?"), [""], previous="x = 9") == turns(
        ("user", "What is x?"), ("assistant", "x = 9"), ("user", "Revise.")
    )


def test_an_index_list_that_names_every_step_does_not_show_the_previous_answer() -> None:
    workflow = Workflow([Step(0, "Revise."), Step(1, "Decide.", [0])])
    shown = step_context(workflow, 1, open_context("What is x?"), ["x = 4", ""], previous="x = 9")
    assert all("x = 9" not in turn.content for turn in shown)


def test_a_chat_opens_the_context_whole() -> None:
    chat = turns(("system", "Be brief."), ("user", "Hello."), ("assistant", "Hello."), ("user", "What is x?"))
    assert step_context(TREE, 0, open_context(chat), RESPONSES) == (
        *chat[:3],
        Message("user", "What is x?\n\nSolve by algebra."),
    )


def test_neighbouring_turns_of_one_role_in_the_chat_are_joined() -> None:
    chat = turns(("user", "Look at this."), ("user", "What is x?"))
    assert open_context(chat) == turns(("user", "Look at this.\n\nWhat is x?"))


def test_joined_turns_keep_all_parts_in_order() -> None:
    image, sound = {"type": "image_url"}, {"type": "input_audio"}
    joined = join_turns([Message("user", "See.", (image,)), Message("user", "", (sound,)), Message("user", "Say.")])
    assert joined == (Message("user", "See.\n\nSay.", (image, sound)),)


def test_results_of_tools_stay_apart() -> None:
    results = turns(("tool", "1"), ("tool", "2"))
    assert join_turns(results) == results
