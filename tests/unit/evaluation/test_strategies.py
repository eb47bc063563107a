"""Strategies on a golden list, the first distinct patterns, and whether plans depend on their question."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from openconductor.conductor import Conductor
from openconductor.evaluation.records import Record, RoundRecord
from openconductor.evaluation.strategies import (
    Strategy,
    TimedPlan,
    dependence,
    diversity,
    first_patterns,
    journaled_plans,
    pattern,
    routing_dependence,
    strategy,
)
from openconductor.gym.workers import gym_pool
from openconductor.journal import Journal
from openconductor.prompt import render_workflow
from openconductor.types import Access, Message, Step, Usage, Workflow

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
    ("debate", told(SOLVE, "Argue against the answer.", "Decide who is right.")),
    ("debate", told(SOLVE, "Play devil's advocate.", "Settle it.")),
    ("debate", told("Take a position.", "Refute it.")),
    ("debate", told("State a thesis.", "Give counterarguments.", "Conclude.")),
    ("debate", merged("Debate the two answers and settle on one.", SOLVE, SOLVE)),
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


# ── patterns ─────────────────────────────────────────────────────────────────────────────────────────────────────────
ONE = Workflow([Step(0, "Solve the problem.")])
SAME = Workflow([Step(4, "Another wording.")])
TWO = Workflow([Step(0, "Sort."), Step(1, "Add.", (0,))])
CHECK = Workflow([Step(0, "Sort."), Step(1, "Check it.", (0,))])


def test_patterns_come_in_the_order_of_their_first_workflow_with_all_that_are_like_it() -> None:
    planned = [
        TimedPlan(TWO, 1, True, "a"),
        TimedPlan(ONE, 2),
        TimedPlan(SAME, 3),
        TimedPlan(CHECK, 4),
        TimedPlan(TWO, 5, False, "b"),
    ]
    found = first_patterns(planned)
    assert [(one.pattern, one.strategy, one.count, one.first) for one in found] == [
        ("A · B(1)", "chain", 2, 1),
        ("A", "single", 2, 2),
        ("A · B(1)", "verify-refine", 1, 4),
    ]
    assert found[1].example == ONE, "the first one"
    assert found[1].accuracy is None
    assert found[0].accuracy is not None
    assert (found[0].accuracy.value, found[0].accuracy.problems) == (0.5, 2)


def test_no_more_than_the_first_fifty_are_opened_but_later_ones_of_theirs_count() -> None:
    def alternating(bits: int) -> Workflow:
        """A chain of seven steps by two workers: 64 different ones, the first step being A."""
        return Workflow([Step(0, "x"), *(Step(bits >> place & 1, "x", "all") for place in range(6))])

    planned = [TimedPlan(alternating(bits), bits) for bits in (*range(64), 0, 63)]
    found = first_patterns(planned)
    assert len(found) == 50
    assert found[0].count == 2
    assert sum(one.count for one in found) == 51


def test_diversity_is_the_effective_number_of_kinds_at_each_place() -> None:
    planned = [
        TimedPlan(ONE, 0, True),
        TimedPlan(TWO, 0, False),
        TimedPlan(ONE, 1),
        TimedPlan(SAME, 1),
        TimedPlan(Workflow([]), 2),
    ]
    first, second = diversity(planned)
    assert (first.place, first.workflows, first.strategies, first.patterns, first.accuracy) == (0, 2, 2.0, 2.0, 0.5)
    assert (second.place, second.strategies, second.accuracy) == (1, 1.0, None)


# ── plan and question ────────────────────────────────────────────────────────────────────────────────────────────────
def record(problem: str, workers: Sequence[int], *, kind: str = "", sample: int = 0, task: str = "t") -> Record:
    flow = Workflow([Step(worker, "x", "all" if place else ()) for place, worker in enumerate(workers)])
    return Record(
        "c", task, problem, sample, kind, True, "graded", "", "", "", (RoundRecord(flow, True),), 1, Usage(), 0
    )


def test_a_workflow_for_each_kind_holds_all_bits_of_the_kind() -> None:
    found = dependence(["a", "b", "c", "d"] * 10, [[kind] for kind in "wxyz" * 10])
    assert found.bits == pytest.approx(2.0)
    assert found.p == 0.001
    assert (found.problems, found.labels, found.workflows) == (40, 4, 4)


def test_workflows_drawn_at_random_seem_to_depend_one_time_in_twenty() -> None:
    seeming = 0
    for seed in range(150):
        rng = random.Random(seed)
        groups = [[rng.randrange(12)] for _ in range(40)]
        seeming += dependence(["a", "b", "c", "d"] * 10, groups, seed=seed, permutations=99).p <= 0.05
    assert 1 <= seeming <= 16, "7 or 8 are expected of 150"


def test_repeats_of_one_question_do_not_count_as_more_questions() -> None:
    """Each question has one workflow of its own, whatever its kind: repeats must not make that a sign of the kind."""
    seeming = 0
    for seed in range(100):
        rng = random.Random(seed)
        groups = [[rng.randrange(6)] * 8 for _ in range(24)]
        seeming += dependence(["a", "b"] * 12, groups, seed=seed, permutations=99).p <= 0.05
    assert seeming <= 12


def test_without_kinds_repeats_tell_whether_questions_get_their_own_workflow() -> None:
    own = [record(f"q{n}", [n % 4], sample=k) for n in range(40) for k in range(3)]
    found = routing_dependence(own)
    assert found is not None
    assert (found.on, found.p, found.problems) == ("question", 0.001, 40)
    rng = random.Random(0)
    drawn = [record(f"q{n}", [rng.randrange(4)], sample=k) for n in range(40) for k in range(3)]
    found = routing_dependence(drawn)
    assert found is not None
    assert found.p > 0.05


def test_the_task_is_part_of_the_kind() -> None:
    records = [record(f"q{n}", [n % 2], task=f"task{n % 2}") for n in range(40)]
    found = routing_dependence(records)
    assert found is not None
    assert (found.on, found.labels) == ("kind", 2)


# ── a training's journal ─────────────────────────────────────────────────────────────────────────────────────────────
ASKED = "Take 4 17 9, sort the list, then double every number."
CHAIN = Workflow((Step(3, 'sort "the" list'), Step(1, "make each twice as big", (0,)), Step(0, "check", "all")))


async def written(path: Path, texts: list[str]) -> None:
    """A journal of one episode a text, in which a planner wrote it."""
    with Journal(path) as journal:
        for text in texts:

            def plan(messages: list[Message], text: str = text) -> str:
                return text

            await Conductor(plan, pool=gym_pool()).ask(ASKED, on_event=journal)
        await journal.wait_durable()


async def test_every_valid_workflow_comes_back_as_it_was_planned_with_its_place(tmp_path: Path) -> None:
    texts = [render_workflow(CHAIN) if number % 2 == 0 else "no workflow" for number in range(20)]
    await written(tmp_path / "journal.sqlite", texts)
    plans = list(journaled_plans(tmp_path / "journal.sqlite"))
    assert [plan.workflow for plan in plans] == [CHAIN] * 10
    assert [plan.place for plan in plans] == list(range(10))
    assert {plan.correct for plan in plans} == {None}
