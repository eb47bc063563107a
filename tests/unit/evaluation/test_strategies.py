"""Golden workflows with their strategy; patterns, diversity, and whether plans depend on the question."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from openconductor.conductor import Conductor
from openconductor.evaluation import strategies
from openconductor.evaluation.records import Record, RoundRecord
from openconductor.gym.workers import gym_pool
from openconductor.prompt import render_workflow
from openconductor.store import Journal
from openconductor.types import Access, Step, Usage, Workflow

SOLVE = "Solve the problem."


def flow(*steps: tuple[int, str, Access]) -> Workflow:
    return Workflow([Step(*step) for step in steps])


def told(*subtasks: str) -> Workflow:
    """A chain of different workers."""
    return flow(*((place, text, "all" if place else ()) for place, text in enumerate(subtasks)))


def merged(last: str, *subtasks: str) -> Workflow:
    """Attempts side by side, and a step that sees them all."""
    return flow(*((place, text, ()) for place, text in enumerate(subtasks)), (9, last, "all"))


GOLDEN: list[tuple[strategies.Strategy, Workflow]] = [
    ("accept", flow()),
    ("single", told("Check the claim and answer.")),
    ("single", told("Write a plan, then carry it out.")),
    ("single", flow((0, SOLVE, ()), (1, SOLVE, ()))),  # the first is for nothing
    ("chain", told("Extract the numbers.", "Convert the units.", "State the final answer.")),
    ("chain", flow((0, "Sort.", ()), (0, "Double.", (0,)), (0, "Add up.", (0, 1)))),
    ("best-of-n", merged("Take the majority.", SOLVE, SOLVE, SOLVE)),
    ("best-of-n", merged("Verify the candidates and pick one.", SOLVE, SOLVE)),
    (
        "best-of-n",
        merged("Add the two results.", "Solve only the first half.", "Solve only the second half."),
    ),
    (
        "best-of-n",
        flow((0, SOLVE, ()), (1, SOLVE, ()), (2, "Vote.", "all"), (3, "Format it.", (2,))),
    ),
    ("verify-refine", told(SOLVE, "Double-check every step and correct mistakes.")),
    ("verify-refine", told("Draft a proof.", "Find the errors in it.", "Rewrite the proof.")),
    ("verify-refine", told(SOLVE, "VERIFY the result.", "State it.")),
    ("verify-refine", flow((0, SOLVE, ()), (1, "Critique it.", (0,)), (2, "Revise it.", (0, 1)))),
    ("planner-executor", told("Outline the approach to this problem; do not solve it.", SOLVE)),
    (
        "planner-executor",
        told("Break the problem down into steps.", "Do the steps.", "Check the answer."),
    ),
    ("planner-executor", told("List the key steps.", "Execute them.")),
    (
        "planner-executor",
        flow(
            (0, "Write a short plan.", ()), (1, SOLVE, (0,)), (2, SOLVE, (0,)), (3, "Vote.", (1,))
        ),
    ),
    (
        "debate",
        flow(
            (0, SOLVE, ()),
            (1, SOLVE, ()),
            (0, "Reply.", (0, 1)),
            (1, "Reply.", (0, 1)),
            (2, "End.", "all"),
        ),
    ),
    ("debate", told(SOLVE, "Play devil's advocate.", "Settle it.")),
    ("debate", merged("Debate the two answers and settle on one.", SOLVE, SOLVE)),
    (
        "tree",
        flow((0, "A.", ()), (1, "B.", (0,)), (2, "C.", ()), (3, "D.", (2,)), (4, "E.", (1, 3))),
    ),
    ("tree", flow((0, "A.", ()), (1, "B.", ()), (2, "C.", (0,)), (3, "D.", (1, 2)))),
    ("graph", flow((0, "A.", ()), (1, "B.", (0,)), (2, "C.", (0,)), (3, "D.", (1, 2)))),
    # words that only look like those of a rule
    ("chain", told("Read the blueprints.", "Compute the area.")),
    ("chain", told("Compute the checkered area.", "Halve the previewed figure.")),
    ("chain", told("Count the arguments of the function.", "Add one.")),
    # a check that sees nothing checks nothing; a plan that nobody sees is none
    ("single", flow((0, SOLVE, ()), (1, "Check the answer.", ()))),
    ("single", flow((0, "Make a plan.", ()), (1, SOLVE, ()))),
    # other languages go by their structure
    ("chain", told("Löse die Aufgabe.", "Prüfe die Antwort.")),
    ("best-of-n", merged("Wähle die beste.", "Löse die Aufgabe.", "Löse die Aufgabe.")),
]


@pytest.mark.parametrize(("name", "workflow"), GOLDEN)
def test_golden_workflows_have_their_strategy_however_they_are_written(
    name: strategies.Strategy, workflow: Workflow
) -> None:
    assert strategies.strategy(workflow) == name, strategies.pattern(workflow)
    other = Workflow(
        [Step(one.worker + 3, one.subtask, workflow.visible(at)) for at, one in enumerate(workflow)]
    )
    assert (strategies.strategy(other), strategies.pattern(other)) == (
        name,
        strategies.pattern(workflow),
    )


def test_a_pattern_has_letters_for_workers_and_leaves_out_what_is_implied() -> None:
    assert (
        strategies.pattern(flow((7, "a", ()), (2, "b", "all"), (7, "c", (0,)))) == "A · B(1) · A(1)"
    )
    assert (
        strategies.pattern(flow((0, "a", ()), (1, "b", (0,)), (2, "c", (0, 1))))
        == "A · B(1) · C(2)"
    )


# ── many ──────────────────────────────────────────────────────────────────────────────────────────
ONE, SAME = told(SOLVE), flow((4, "Another wording.", ()))
TWO, CHECK = told("Sort.", "Add."), told("Sort.", "Check it.")


def test_patterns_come_in_the_order_of_their_first_workflow_with_all_that_are_like_it() -> None:
    planned = [
        (TWO, True, "a"),
        (ONE, None, ""),
        (SAME, None, ""),
        (CHECK, None, ""),
        (TWO, False, "b"),
    ]
    found = strategies.first_patterns(
        strategies.TimedPlan(one, place, *more) for place, (one, *more) in enumerate(planned)
    )
    assert [(one.pattern, one.strategy, one.count, one.first) for one in found] == [
        ("A · B(1)", "chain", 2, 0),
        ("A", "single", 2, 1),
        ("A · B(1)", "verify-refine", 1, 3),
    ]
    assert found[1].example == ONE, "the first one"
    assert found[0].accuracy is not None and found[1].accuracy is None
    assert (found[0].accuracy.value, found[0].accuracy.problems) == (0.5, 2)


def test_no_more_than_the_first_fifty_are_opened_but_later_ones_of_theirs_count() -> None:
    flows = [
        flow((0, "x", ()), *((bits >> place & 1, "x", "all") for place in range(6)))
        for bits in range(64)
    ]
    found = strategies.first_patterns(
        strategies.TimedPlan(one) for one in (*flows, flows[0], flows[63])
    )
    assert (len(found), found[0].count, sum(one.count for one in found)) == (50, 2, 51)


def test_diversity_is_the_effective_number_of_kinds_at_each_place() -> None:
    plans = [(ONE, 0, True), (TWO, 0, False), (ONE, 1), (SAME, 1), (flow(), 2)]
    first, second = strategies.diversity(strategies.TimedPlan(*one) for one in plans)
    assert (first.place, first.workflows, first.strategies, first.patterns, first.accuracy) == (
        0,
        2,
        2.0,
        2.0,
        0.5,
    )
    assert (second.place, second.strategies, second.accuracy) == (1, 1.0, None)


# ── plan and question ─────────────────────────────────────────────────────────────────────────────
def record(problem: str, workers: Sequence[int], *, sample: int = 0, task: str = "t") -> Record:
    rounds = (RoundRecord(Workflow([Step(worker, "x") for worker in workers]), True),)
    return Record("c", task, problem, sample, "", True, "graded", "", "", "", rounds, 1, Usage(), 0)


def test_a_workflow_for_each_kind_holds_all_bits_of_the_kind() -> None:
    found = strategies.dependence(["a", "b", "c", "d"] * 10, [[kind] for kind in "wxyz" * 10])
    assert (found.bits, found.p) == (pytest.approx(2.0), 0.001)
    assert (found.problems, found.labels, found.workflows) == (40, 4, 4)


@pytest.mark.parametrize("repeats", [1, 8])
def test_workflows_drawn_at_random_seldom_seem_to_depend_and_repeats_are_not_more_questions(
    repeats: int,
) -> None:
    seeming = 0
    for seed in range(100):
        rng = random.Random(seed)
        groups = [[rng.randrange(6)] * repeats for _ in range(24)]
        seeming += (
            strategies.dependence(["a", "b"] * 12, groups, seed=seed, permutations=99).p <= 0.05
        )
    assert seeming <= 12, "5 are expected"


def test_without_kinds_repeats_tell_whether_questions_get_their_own_workflow() -> None:
    own = strategies.routing_dependence(
        [record(f"q{n}", [n % 4], sample=k) for n in range(40) for k in range(3)]
    )
    assert (own.on, own.p, own.problems) == ("question", 0.001, 40)
    rng = random.Random(0)
    drawn = [record(f"q{n}", [rng.randrange(4)], sample=k) for n in range(40) for k in range(3)]
    found = strategies.routing_dependence(drawn)
    assert found is not None and found.p > 0.05


def test_the_task_is_part_of_the_kind() -> None:
    found = strategies.routing_dependence(
        [record(f"q{n}", [n % 2], task=f"task{n % 2}") for n in range(40)]
    )
    assert (found.on, found.labels) == ("kind", 2)


async def test_every_valid_workflow_comes_back_from_a_journal_with_its_place(
    tmp_path: Path,
) -> None:
    planned = flow(
        (3, 'sort "the" list', ()), (1, "make each twice as big", (0,)), (0, "check", "all")
    )
    texts = iter([render_workflow(planned), "no workflow"] * 10)
    with Journal(tmp_path / "journal.sqlite") as journal:
        for _ in range(20):
            conductor = Conductor(lambda _: next(texts), pool=gym_pool())
            await conductor.ask(
                "Take 4 17 9, sort the list, then double every number.", on_event=journal
            )
    plans = list(strategies.journaled_plans(tmp_path / "journal.sqlite"))
    assert plans == [strategies.TimedPlan(planned, place) for place in range(10)]
