"""Random workflows: valid, readable, and ignorant of who is good at what."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, strategies as st

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
from openconductor.pool import read_card
from openconductor.prompt import render_workflow
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
        found = {operation.name for operation, _ in find_operations(step.subtask)}
        assert found <= set(question.composition)  # type: ignore[attr-defined]
        assert bool(found) != asks_to_compare(step.subtask)
    assert (
        parse_workflow(render_workflow(workflow, write_thought(workflow, question)), subset)
        == workflow
    )


def test_a_thought_with_cards_names_what_the_chosen_worker_is_listed_for() -> None:
    rng, cards = random.Random(3), gym_pool().cards
    seen = Counter[str]()
    for question in QUESTIONS:
        workflow = random_workflow(rng, question, range(8))
        said = draw_categories(rng, workflow, cards)
        assert all(
            category in read_card(cards[step.worker])
            for category, step in zip(said, workflow, strict=True)
        )
        seen.update(said)
        thought = write_thought(workflow, question, said)
        for category, step in zip(said, workflow, strict=True):
            assert f"; {step.subtask} ({category}): {step.worker}" in thought
        assert parse_workflow(render_workflow(workflow, thought), range(8)) == workflow
    assert len(seen) > 4


def test_each_choice_is_uniform() -> None:
    rng = random.Random(1)
    by_kind: dict[str, list[Workflow]] = {kind: [] for kind in KINDS}
    for question in QUESTIONS:
        by_kind[question.kind] += [random_workflow(rng, question, range(8)) for _ in range(400)]
    for kind, drawn in by_kind.items():
        workers = Counter(step.worker for one in drawn for step in one)
        assert all(
            abs(workers[ordinal] / workers.total() - 1 / 8) < 0.02 for ordinal in range(8)
        ), kind
        compared = [one for one in drawn if asks_to_compare(one.steps[-1].subtask)]
        assert abs(len(compared) / len(drawn) - COMPARES) < 0.03, kind
    attempts = Counter(
        len(one) - 1 for one in by_kind["single"] if asks_to_compare(one.steps[-1].subtask)
    )
    assert set(attempts) == {1, 2, 3, 4}
    assert all(abs(count / attempts.total() - 0.25) < 0.04 for count in attempts.values())
    named = Counter(
        len(one) for one in by_kind["triple"] if not asks_to_compare(one.steps[-1].subtask)
    )
    assert set(named) == {1, 2, 3}
    assert all(abs(count / named.total() - 1 / 3) < 0.04 for count in named.values())
    access = Counter(
        one.steps[1].access
        for one in by_kind["pair"]
        if len(one) == 2 and not asks_to_compare(one.steps[-1].subtask)
    )
    assert set(access) == {(), (0,), "all"}
    assert all(abs(count / access.total() - 1 / 3) < 0.05 for count in access.values())


def test_a_round_to_follow_says_nothing_about_its_workflow() -> None:
    rng, answers = random.Random(5), Counter[str]()
    for _ in range(30):
        for question in QUESTIONS:
            before = random_round(rng, question, range(8))
            assert before.workflow is not None
            validate_workflow(before.workflow, range(8), max_steps=5)
            right = write_value(question.answer)
            wrong = before.answer is not None and before.answer.count(" ") == right.count(" ")
            answers[
                "right"
                if before.answer == right
                else "lost"
                if before.answer == LOST
                else f"{wrong}"
            ] += 1
    assert set(answers) == {"right", "lost", "True"}
    assert all(abs(count / answers.total() - 1 / 3) < 0.04 for count in answers.values())
