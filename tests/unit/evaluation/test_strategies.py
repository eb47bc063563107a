"""Golden workflows with their strategy; patterns, diversity.

Whether plans depend on the question.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import rows_of

from openconductor.conductor import Conductor
from openconductor.evaluation import strategies
from openconductor.evaluation.records import Record, RoundRecord
from openconductor.gym.workers import gym_pool
from openconductor.prompt import render_workflow
from openconductor.store import Journal
from openconductor.types import Access, Step, Workflow

SOLVE = "Solve the problem."


def flow(*steps: tuple[int, str, Access]) -> Workflow:
    return Workflow([Step(*step) for step in steps])


def told(*subtasks: str) -> Workflow:
    """A chain of different workers."""
    steps = [Step(place, text, "all" if place else ()) for place, text in enumerate(subtasks)]
    return Workflow(steps)


# words that only look like those of a rule, checks and plans that nobody sees, other languages
GOLDEN = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "golden/strategies.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_workflows_have_their_strategy_however_they_are_written(case: Any) -> None:
    workflow = flow(*case["steps"])
    assert strategies.strategy(workflow) == case["strategy"], strategies.pattern(workflow)
    steps: list[Step] = []
    for index, step in enumerate(workflow):
        steps.append(Step(step.worker + 3, step.subtask, workflow.visible(index)))
    other = Workflow(steps)
    assert strategies.strategy(other) == case["strategy"]
    assert strategies.pattern(other) == strategies.pattern(workflow)


@pytest.mark.parametrize(
    ("steps", "pattern"),
    [
        ([(7, "a", ()), (2, "b", "all"), (7, "c", (0,))], "A · B(1) · A(1)"),
        ([(0, "a", ()), (1, "b", (0,)), (2, "c", (0, 1))], "A · B(1) · C(2)"),
    ],
)
def test_a_pattern_has_letters_for_workers_and_leaves_out_what_is_implied(steps, pattern) -> None:
    assert strategies.pattern(flow(*steps)) == pattern


# ── many ──────────────────────────────────────────────────────────────────────────────────────────
ONE, SAME = told(SOLVE), flow((4, "Another wording.", ()))
TWO, CHECK = told("Sort.", "Add."), told("Sort.", "Check it.")


def test_patterns_come_in_the_order_of_their_first_workflow_with_all_that_are_like_it() -> None:
    plans = [
        strategies.TimedPlan(TWO, 0, True, "a"),
        strategies.TimedPlan(ONE, 1),
        strategies.TimedPlan(SAME, 2),
        strategies.TimedPlan(CHECK, 3),
        strategies.TimedPlan(TWO, 4, False, "b"),
    ]
    chain, single, refine = strategies.first_patterns(plans)
    assert (chain.pattern, chain.strategy, chain.count, chain.first) == ("A · B(1)", "chain", 2, 0)
    assert (single.pattern, single.strategy, single.count, single.first) == ("A", "single", 2, 1)
    assert (refine.strategy, refine.count, refine.first) == ("verify-refine", 1, 3)
    assert single.example == ONE, "the first one"
    assert single.accuracy is None
    assert (chain.accuracy.value, chain.accuracy.problems) == (0.5, 2)


def test_no_more_than_the_first_fifty_are_opened_but_later_ones_of_theirs_count() -> None:
    flows: list[Workflow] = []
    for bits in product((0, 1), repeat=6):
        later = [Step(worker, "x", "all") for worker in bits]
        flows.append(Workflow([Step(0, "x"), *later]))
    plans = [strategies.TimedPlan(workflow) for workflow in (*flows, flows[0], flows[63])]
    patterns = strategies.first_patterns(plans)
    assert len(patterns) == 50
    assert patterns[0].count == 2
    assert sum(pattern.count for pattern in patterns) == 51


def test_diversity_is_the_effective_number_of_kinds_at_each_place() -> None:
    plans = [
        strategies.TimedPlan(ONE, 0, True),
        strategies.TimedPlan(TWO, 0, False),
        strategies.TimedPlan(ONE, 1),
        strategies.TimedPlan(SAME, 1),
        strategies.TimedPlan(flow(), 2),
    ]
    first, second = strategies.diversity(plans)
    assert (first.place, first.workflows) == (0, 2)
    assert first.strategies == first.patterns == 2.0
    assert first.accuracy == 0.5
    assert (second.place, second.strategies, second.accuracy) == (1, 1.0, None)


# ── plan and question ─────────────────────────────────────────────────────────────────────────────
def record(problem: str, workers: Sequence[int], *, sample: int = 0, task: str = "t") -> Record:
    rounds = (RoundRecord(Workflow([Step(worker, "x") for worker in workers]), True),)
    return rows_of.record("+", problem, sample, task=task, kind="", rounds=rounds)


def test_a_workflow_for_each_kind_holds_all_bits_of_the_kind() -> None:
    found = strategies.dependence(["a", "b", "c", "d"] * 10, [[plan] for plan in [0, 1, 2, 3] * 10])
    assert found.bits == pytest.approx(2.0)
    assert found.p == 0.001
    assert (found.problems, found.labels, found.workflows) == (40, 4, 4)


def test_without_kinds_repeats_tell_whether_questions_get_their_own_workflow() -> None:
    rng = random.Random(0)
    own: list[Record] = []
    drawn: list[Record] = []
    for number, sample in product(range(40), range(3)):
        own.append(record(f"q{number}", [number % 4], sample=sample))
        drawn.append(record(f"q{number}", [rng.randrange(4)], sample=sample))
    found = strategies.routing_dependence(own)
    assert (found.on, found.p, found.problems) == ("question", 0.001, 40)
    assert strategies.routing_dependence(drawn).p > 0.05


def test_the_task_is_part_of_the_kind() -> None:
    records = [record(f"q{n}", [n % 2], task=f"task{n % 2}") for n in range(40)]
    found = strategies.routing_dependence(records)
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
