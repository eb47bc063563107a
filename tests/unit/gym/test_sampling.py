"""Random workflows: valid, readable, and ignorant of who is good at what."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from openconductor.gym.questions import draw_questions
from openconductor.gym.sampling import random_workflow, write_thought
from openconductor.gym.world import asks_to_compare, find_operations
from openconductor.parser import parse_workflow, validate_workflow
from openconductor.prompt import render_workflow

QUESTIONS = draw_questions("train", 40, seed=0)


@given(seed=st.integers(), question=st.sampled_from(QUESTIONS), subset=st.sets(st.integers(0, 7), min_size=1))
def test_a_random_workflow_is_valid_and_survives_being_written_and_read(
    seed: int, question: object, subset: set[int]
) -> None:
    workflow = random_workflow(random.Random(seed), question, sorted(subset))  # type: ignore[arg-type]
    validate_workflow(workflow, subset, max_steps=5)
    assert parse_workflow(render_workflow(workflow, write_thought(workflow)), subset) == workflow


@given(seed=st.integers(), question=st.sampled_from(QUESTIONS))
def test_every_subtask_names_operations_of_the_question_or_asks_to_compare(seed: int, question: object) -> None:
    names = set(question.composition)  # type: ignore[attr-defined]
    for step in random_workflow(random.Random(seed), question, range(8)):  # type: ignore[arg-type]
        found = {operation.name for operation, _ in find_operations(step.subtask)}
        assert found <= names
        assert bool(found) != asks_to_compare(step.subtask)


def test_the_number_of_steps_and_the_workers_are_uniform_whatever_is_asked_of_them() -> None:
    rng = random.Random(0)
    drawn = [random_workflow(rng, question, range(8)) for question in QUESTIONS for _ in range(250)]
    lengths = Counter(map(len, drawn))
    assert all(abs(lengths[size] / len(drawn) - 0.2) < 0.02 for size in range(1, 6))
    by_skill: dict[str, Counter[int]] = {}
    for workflow in drawn:
        for step in workflow:
            skills = {operation.skill for operation, _ in find_operations(step.subtask)} or {"compare"}
            for skill in skills:
                by_skill.setdefault(skill, Counter())[step.worker] += 1
    assert set(by_skill) == {"order", "sums", "units", "writing", "compare"}
    for counts in by_skill.values():
        shares = [counts[worker] / counts.total() for worker in range(8)]
        assert max(abs(share - 1 / 8) for share in shares) < 0.04
