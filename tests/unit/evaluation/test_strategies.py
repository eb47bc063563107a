"""Strategies on a golden list: every class, right and wrong wordings, shapes in binary and index access."""

from __future__ import annotations

from collections import Counter

import pytest

from openconductor.evaluation.strategies import STRATEGIES, Strategy, pattern, strategy, strategy_counts, useful_part
from openconductor.types import Access, Step, Workflow

SOLVE = "Solve the problem."
Line = tuple[int, str, Access]


def flow(*steps: Line) -> Workflow:
    return Workflow([Step(*step) for step in steps])


def told(*subtasks: str) -> Workflow:
    """A chain of different workers."""
    return flow(*((place, text, "all" if place else ()) for place, text in enumerate(subtasks)))


def merged(last: str, *subtasks: str) -> Workflow:
    """Attempts side by side, and a step that sees them all."""
    return flow(*((place, text, ()) for place, text in enumerate(subtasks)), (9, last, "all"))


GOLDEN: list[tuple[Strategy, Workflow]] = [
    ("accept", flow()),
    # single
    ("single", told(SOLVE)),
    ("single", told("Check the claim and answer.")),
    ("single", told("Write a plan, then carry it out.")),
    ("single", told("Return the answer as a number.")),
    ("single", flow((0, SOLVE, "all"))),
    ("single", flow((0, SOLVE, ()), (1, SOLVE, ()))),  # the first is for nothing
    # chain
    ("chain", told("Sort the list.", "Add up what you see.")),
    ("chain", told("Extract the numbers.", "Convert the units.", "State the final answer.")),
    ("chain", told("Translate the question.", "Answer it.")),
    ("chain", flow((0, "Sort.", ()), (1, "Double.", (0,)), (2, "Add up.", (1,)))),
    ("chain", flow((0, "Sort.", ()), (0, "Double.", (0,)), (0, "Add up.", (0, 1)))),
    ("chain", told("Derive the formula.", "Substitute the values and solve it.")),
    ("chain", told(SOLVE, "Give the final answer in one line.")),
    # best-of-n
    ("best-of-n", merged("Choose the best answer.", SOLVE, SOLVE)),
    ("best-of-n", merged("Take the majority.", SOLVE, SOLVE, SOLVE)),
    ("best-of-n", merged("Combine the answers.", "Solve the problem step by step.", "Answer the question.")),
    ("best-of-n", merged("Decide.", "Give your own answer.", "Attempt the exercise with algebra.")),
    ("best-of-n", flow((0, SOLVE, ()), (1, SOLVE, ()), (2, "Vote.", (0, 1)))),
    ("best-of-n", flow((0, SOLVE, ()), (1, SOLVE, ()), (2, "Vote.", "all"), (3, "Format it.", (2,)))),
    ("best-of-n", flow((5, SOLVE, ()), (5, SOLVE, ()), (5, SOLVE, ()), (5, SOLVE, ()), (5, "Compare them.", "all"))),
    ("best-of-n", merged("Verify the candidates and pick one.", SOLVE, SOLVE)),
    ("best-of-n", merged("Vote.", "Solve the problem. Give only the final answer.", "Answer it; only the letter.")),
    # divide
    ("divide", merged("Put the parts together.", "Compute the perimeter.", "Find the colour of the roof.")),
    ("divide", merged("Add the two results.", "Solve only the first half.", "Solve only the second half.")),
    ("divide", merged("Sum up.", "Solve the problem for case 1.", "Solve the problem for case 2, where x < 0.")),
    ("divide", merged("Merge.", "List facts about acids.", "Estimate the temperature.", "Look up the constant.")),
    # verify-refine
    ("verify-refine", told(SOLVE, "Check the answer.")),
    ("verify-refine", told(SOLVE, "Double-check every step and correct mistakes.")),
    ("verify-refine", told("Draft a proof.", "Find the errors in it.", "Rewrite the proof.")),
    ("verify-refine", told("Write a program.", "Review the program for bugs.")),
    ("verify-refine", told(SOLVE, "Improve the solution above.")),
    ("verify-refine", told(SOLVE, "VERIFY the result.", "State it.")),
    ("verify-refine", told("Write the code.", "Try to break the code.", "Fix the bugs that were found.")),
    ("verify-refine", flow((0, SOLVE, ()), (1, "Critique it.", (0,)), (2, "Revise it.", (0, 1)))),
    ("verify-refine", told(SOLVE, "Proofread and polish.")),
    # planner-executor
    ("planner-executor", told("Make a plan.", "Carry out the plan.")),
    ("planner-executor", told("Outline the approach to this problem; do not solve it.", SOLVE)),
    ("planner-executor", told("Break the problem down into steps.", "Do the steps.", "Check the answer.")),
    ("planner-executor", told("Decompose the question.", "Answer each part.")),
    ("planner-executor", told("Devise a detailed strategy.", "Follow it.")),
    ("planner-executor", told("List the key steps.", "Execute them.")),
    ("planner-executor", flow((0, "Write a short plan.", ()), (1, SOLVE, (0,)), (2, SOLVE, (0,)), (3, "Vote.", (1,)))),
    ("planner-executor", told("Propose a solution strategy without solving.", "Solve.")),
    # debate
    (
        "debate",
        flow((0, SOLVE, ()), (1, SOLVE, ()), (0, "Reply.", (0, 1)), (1, "Reply.", (0, 1)), (2, "Judge.", "all")),
    ),
    ("debate", flow((0, SOLVE, ()), (1, SOLVE, ()), (0, "Respond.", (1,)), (1, "Respond.", (0,)), (2, "End.", (2, 3)))),
    ("debate", told(SOLVE, "Argue against the answer.", "Decide who is right.")),
    ("debate", told(SOLVE, "Play devil's advocate.", "Settle it.")),
    ("debate", told("Take a position.", "Refute it.")),
    ("debate", told("State a thesis.", "Give counterarguments.", "Conclude.")),
    ("debate", merged("Debate the two answers and settle on one.", SOLVE, SOLVE)),
    # abdication
    ("abdication", told(SOLVE, "Repeat the previous answer.")),
    ("abdication", told(SOLVE, "Return the answer as is.")),
    ("abdication", told(SOLVE, "Simply forward the response above unchanged.")),
    ("abdication", told(SOLVE, "Copy the result.")),
    ("abdication", told("Delegate this to whoever can do it.")),
    ("abdication", told("Take care of everything.")),
    ("abdication", told("Handle the entire task.")),
    ("abdication", told("Ask another model for help.", "Answer.")),
    ("abdication", told("Coordinate the other workers.", "Finish.")),
    ("abdication", told(SOLVE, "Output the final answer from step 1 verbatim.")),
    # tree
    ("tree", flow((0, "A.", ()), (1, "B.", (0,)), (2, "C.", ()), (3, "D.", (2,)), (4, "E.", (1, 3)))),
    ("tree", flow((0, "Sort.", ()), (1, "Add.", ()), (2, "Multiply.", (1,)), (3, "Join.", (0, 2)))),
    ("tree", flow((0, "A.", ()), (1, "B.", ()), (2, "C.", (0,)), (3, "D.", (1, 2)))),
    # graph
    ("graph", flow((0, "A.", ()), (1, "B.", (0,)), (2, "C.", (0,)), (3, "D.", (1, 2)))),
    ("graph", flow((0, "A.", ()), (1, "B.", ()), (2, "C.", (0,)), (3, "D.", (0,)), (4, "E.", (1, 2, 3)))),
    ("graph", flow((0, "Sum.", ()), (1, "Sort.", (0,)), (2, "Turn.", (0,)), (3, "Cut.", (1,)), (4, "Join.", (2, 3)))),
]
LIKE_BUT_NOT: list[tuple[Strategy, Workflow]] = [
    # words that only look like those of a rule
    ("chain", told("Read the blueprints.", "Compute the area.")),
    ("chain", told("Explain the planet's orbit.", "Compute the period.")),
    ("chain", told("Return to the definition of a limit.", "Compute it.")),
    ("chain", told("Sort the list.", "Return the sum of the answer's digits as a number.")),
    ("chain", told("Compute the checkered area.", "Halve the previewed figure.")),
    ("chain", told("Count the arguments of the function.", "Add one.")),
    # a check that sees nothing checks nothing; a plan that nobody sees is none
    ("single", flow((0, SOLVE, ()), (1, "Check the answer.", ()))),
    ("single", flow((0, "Make a plan.", ()), (1, SOLVE, ()))),
    # other languages go by their structure
    ("chain", told("Löse die Aufgabe.", "Prüfe die Antwort.")),
    ("best-of-n", merged("Wähle die beste.", "Löse die Aufgabe.", "Löse die Aufgabe.")),
]


@pytest.mark.parametrize(("name", "workflow"), GOLDEN + LIKE_BUT_NOT)
def test_golden_workflows_have_their_strategy(name: Strategy, workflow: Workflow) -> None:
    assert strategy(workflow) == name, pattern(workflow)


def test_the_golden_list_is_long_and_covers_every_class() -> None:
    counts = Counter(name for name, _ in GOLDEN)
    assert len(GOLDEN) >= 60
    assert set(counts) == set(STRATEGIES)
    assert all(count >= 3 for name, count in counts.items() if name != "accept")


@pytest.mark.parametrize(("name", "workflow"), GOLDEN)
def test_index_lists_and_all_are_alike_and_workers_names_play_no_part(name: Strategy, workflow: Workflow) -> None:
    steps = [Step(step.worker + 3, step.subtask, workflow.visible(at)) for at, step in enumerate(workflow)]
    other = Workflow(steps)
    assert strategy(other) == name
    assert pattern(other) == pattern(workflow)


def test_a_pattern_has_letters_for_workers_and_numbers_for_what_is_seen() -> None:
    assert pattern(flow()) == "accept"
    assert pattern(flow((7, "a", ()), (2, "b", "all"), (7, "c", (0,)))) == "A · B(1) · A(1)"
    assert pattern(flow((0, "a", ()), (1, "b", (0,)), (2, "c", (0, 1)))) == "A · B(1) · C(2)", (
        "what is implied is left out"
    )


def test_steps_that_cannot_reach_the_answer_are_left_out_and_the_rest_numbered_anew() -> None:
    kept = useful_part(flow((0, "in vain", ()), (1, "first", ()), (2, "last", (1,))))
    assert [(step.worker, step.access) for step in kept] == [(1, ()), (2, (0,))]
    whole = told(SOLVE, SOLVE)
    assert useful_part(whole) is whole


def test_counts_are_in_the_order_of_the_rules() -> None:
    found = strategy_counts([told(SOLVE), told(SOLVE, "Check it."), told(SOLVE), flow()])
    assert list(found.items()) == [("accept", 1), ("single", 2), ("verify-refine", 1)]
