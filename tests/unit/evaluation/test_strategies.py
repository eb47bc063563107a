"""Golden workflows with their strategy; patterns, diversity.

Whether plans depend on the question.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
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
    return flow(*((place, text, "all" if place else ()) for place, text in enumerate(subtasks)))


# words that only look like those of a rule, checks and plans that nobody sees, other languages
GOLDEN = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "golden/strategies.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_workflows_have_their_strategy_however_they_are_written(case: Any) -> None:
    workflow = flow(*case["steps"])
    assert strategies.strategy(workflow) == case["strategy"], strategies.pattern(workflow)
    other = [
        Step(step.worker + 3, step.subtask, workflow.visible(index))
        for index, step in enumerate(workflow)
    ]
    assert strategies.strategy(Workflow(other)) == case["strategy"]
    assert strategies.pattern(Workflow(other)) == strategies.pattern(workflow)


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
    assert found[0].accuracy is not None
    assert found[1].accuracy is None
    assert found[0].accuracy.value == 0.5
    assert found[0].accuracy.problems == 2


def test_no_more_than_the_first_fifty_are_opened_but_later_ones_of_theirs_count() -> None:
    flows = [
        flow((0, "x", ()), *((bits >> place & 1, "x", "all") for place in range(6)))
        for bits in range(64)
    ]
    found = strategies.first_patterns(
        strategies.TimedPlan(one) for one in (*flows, flows[0], flows[63])
    )
    assert len(found) == 50
    assert found[0].count == 2
    assert sum(one.count for one in found) == 51


def test_diversity_is_the_effective_number_of_kinds_at_each_place() -> None:
    plans = [(ONE, 0, True), (TWO, 0, False), (ONE, 1), (SAME, 1), (flow(), 2)]
    first, second = strategies.diversity(strategies.TimedPlan(*one) for one in plans)
    assert first.place == 0
    assert first.workflows == 2
    assert first.strategies == 2.0
    assert first.patterns == 2.0
    assert first.accuracy == 0.5
    assert second.place == 1
    assert second.strategies == 1.0
    assert second.accuracy is None


# ── plan and question ─────────────────────────────────────────────────────────────────────────────
def record(problem: str, workers: Sequence[int], *, sample: int = 0, task: str = "t") -> Record:
    rounds = (RoundRecord(Workflow([Step(worker, "x") for worker in workers]), True),)
    return rows_of.record("+", problem, sample, task=task, kind="", rounds=rounds)


def test_a_workflow_for_each_kind_holds_all_bits_of_the_kind() -> None:
    found = strategies.dependence(["a", "b", "c", "d"] * 10, [[plan] for plan in [0, 1, 2, 3] * 10])
    assert found.bits == pytest.approx(2.0)
    assert found.p == 0.001
    assert found.problems == 40
    assert found.labels == 4
    assert found.workflows == 4


@pytest.mark.parametrize("repeats", [1, 8])
def test_workflows_drawn_at_random_seldom_seem_to_depend_and_repeats_are_not_more_questions(
    repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategies, "PERMUTATIONS", 99)
    seeming = 0
    for seed in range(100):
        rng = random.Random(seed)
        groups = [[rng.randrange(6)] * repeats for _ in range(24)]
        seeming += strategies.dependence(["a", "b"] * 12, groups, seed=seed).p <= 0.05
    assert seeming <= 12, "5 are expected"


def test_without_kinds_repeats_tell_whether_questions_get_their_own_workflow() -> None:
    own = strategies.routing_dependence(
        [record(f"q{n}", [n % 4], sample=k) for n in range(40) for k in range(3)]
    )
    assert own.on == "question"
    assert own.p == 0.001
    assert own.problems == 40
    rng = random.Random(0)
    drawn = [record(f"q{n}", [rng.randrange(4)], sample=k) for n in range(40) for k in range(3)]
    found = strategies.routing_dependence(drawn)
    assert found is not None
    assert found.p > 0.05


def test_the_task_is_part_of_the_kind() -> None:
    found = strategies.routing_dependence(
        [record(f"q{n}", [n % 2], task=f"task{n % 2}") for n in range(40)]
    )
    assert found.on == "kind"
    assert found.labels == 2


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
