"""Random workflows: valid, readable, and ignorant of who is good at what."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from openconductor.calls.cards import read_card
from openconductor.gym.questions import KINDS, draw_questions
from openconductor.gym.sampling import (
    COMPARES,
    draw_categories,
    random_round,
    random_workflow,
    write_thought,
)
from openconductor.gym.workers import LOST, gym_pool
from openconductor.gym.world import asks_to_compare, find_operations, write_value
from openconductor.parser import parse_workflow, validate_workflow
from openconductor.prompt import render_workflow
from openconductor.tasks.gym import GYM
from openconductor.types import Workflow

QUESTIONS = draw_questions("train", 40, seed=0)


@given(
    seed=st.integers(),
    question=st.sampled_from(QUESTIONS),
    subset=st.sets(st.integers(0, 7), min_size=1),
)
def test_a_random_workflow_is_valid_and_survives_being_written_and_read(
    seed: int, question: object, subset: set[int]
) -> None:
    workflow = random_workflow(random.Random(seed), question, sorted(subset))  # type: ignore[arg-type]
    validate_workflow(workflow, subset, max_steps=5)
    for step in workflow:
        names = {operation.name for operation, _ in find_operations(step.subtask)}
        assert names <= set(question.composition)  # type: ignore[attr-defined]
        assert bool(names) != asks_to_compare(step.subtask)
    written = render_workflow(workflow, write_thought(workflow, question))
    assert parse_workflow(written, subset) == workflow


def test_a_thought_with_cards_names_what_the_chosen_worker_is_listed_for() -> None:
    rng, cards = random.Random(3), gym_pool().cards
    seen = Counter[str]()
    for question in QUESTIONS:
        workflow = random_workflow(rng, question, range(8))
        categories = draw_categories(rng, workflow, cards)
        seen.update(categories)
        thought = write_thought(workflow, question, categories)
        for category, step in zip(categories, workflow, strict=True):
            assert category in read_card(cards[step.worker])
            assert f"; {step.subtask} ({category}): {step.worker}" in thought
        assert parse_workflow(render_workflow(workflow, thought), range(8)) == workflow
    assert len(seen) > 4


def assert_uniform(counts: Counter[object], values: Iterable[object], room: float) -> None:
    assert set(counts) == set(values)
    for value in counts:
        assert counts[value] / counts.total() == pytest.approx(1 / len(counts), abs=room), value


def compares(workflow: Workflow) -> bool:
    return asks_to_compare(workflow.steps[-1].subtask)


def test_each_choice_is_uniform() -> None:
    rng = random.Random(1)
    by_kind: dict[str, list[Workflow]] = {kind: [] for kind in KINDS}
    for question in QUESTIONS:
        by_kind[question.kind] += [random_workflow(rng, question, range(8)) for _ in range(400)]
    for workflows in by_kind.values():
        workers = Counter(step.worker for workflow in workflows for step in workflow)
        assert_uniform(workers, range(8), 0.02)
        share = sum(map(compares, workflows)) / len(workflows)
        assert share == pytest.approx(COMPARES, abs=0.03)
    attempts = Counter(len(workflow) - 1 for workflow in by_kind["single"] if compares(workflow))
    assert_uniform(attempts, (1, 2, 3, 4), 0.04)
    chains = [workflow for workflow in by_kind["triple"] if not compares(workflow)]
    assert_uniform(Counter(len(workflow) for workflow in chains), (1, 2, 3), 0.04)
    pairs = [workflow for workflow in by_kind["pair"] if len(workflow) == 2]
    access = Counter(workflow.steps[1].access for workflow in pairs if not compares(workflow))
    assert_uniform(access, ((), (0,), "all"), 0.05)


def test_a_round_to_follow_says_nothing_about_its_workflow() -> None:
    rng, answers = random.Random(5), Counter[str]()
    for question in QUESTIONS * 30:
        before = random_round(rng, question, range(8))
        assert before.workflow is not None and before.answer is not None
        validate_workflow(before.workflow, range(8), max_steps=5)
        right = write_value(question.answer)
        if before.answer in (right, LOST):
            answers["right" if before.answer == right else "lost"] += 1
        else:
            assert before.answer.count(" ") == right.count(" ")
            answers["wrong"] += 1
    assert_uniform(answers, ("right", "wrong", "lost"), 0.04)


def test_one_plan_in_five_of_a_cold_start_names_a_chain_of_any_length_in_its_order() -> None:
    rng, pool, workers, lengths = random.Random(7), gym_pool(), Counter[object](), Counter[object]()
    for index in range(4, 2000, 5):
        plan = GYM.draw_plan(rng, index, pool, max_steps=5, rounds=1, cards=False)
        asked = [operation for operation, _ in find_operations(plan.question)]
        planned = [find_operations(step.subtask) for step in plan.workflow]
        assert [operation for ((operation, _),) in planned] == asked
        workers.update(step.worker for step in plan.workflow)
        lengths[len(asked)] += 1
    assert_uniform(workers, range(8), 0.04)
    assert_uniform(lengths, (2, 3, 4, 5), 0.05)


def test_no_plan_of_a_cold_start_skips_an_operation() -> None:
    rng, pool, steps = random.Random(9), gym_pool(), Counter[int]()
    for index in range(2000):
        plan = GYM.draw_plan(rng, index, pool, max_steps=5, rounds=1, cards=False)
        asked = [operation for operation, _ in find_operations(plan.question)]
        planned = [find_operations(step.subtask) for step in plan.workflow]
        if all(len(named) == 1 for named in planned):
            assert [operation for ((operation, _),) in planned] == asked[: len(planned)]
            steps[len(planned)] += 1
    assert set(steps) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("max_steps", [1, 2, 3, 4, 5])
def test_a_cold_start_reads_no_longer_chain_than_a_plan_has_steps(max_steps: int) -> None:
    rng, pool = random.Random(8), gym_pool()
    lengths: set[int] = set()
    for index in range(200):
        plan = GYM.draw_plan(rng, index, pool, max_steps=max_steps, rounds=2, cards=True)
        assert len(plan.workflow) <= max_steps
        lengths.add(len(find_operations(plan.question)))
    assert max(lengths) == max(max_steps, 3)
