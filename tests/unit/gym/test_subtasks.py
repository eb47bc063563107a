"""The best subtasks of given workers and accesses."""

from __future__ import annotations

import random
from itertools import product

import pytest

from openconductor.gym.exact import ALL, expected_accuracy
from openconductor.gym.questions import GymQuestion, draw_questions, read_question
from openconductor.gym.subtasks import NOTHING, best_subtasks, shape_of
from openconductor.gym.workers import PROFILES
from openconductor.gym.world import COMPARE, WORDINGS, find_operations
from openconductor.types import Step, Workflow


def asked(text: str) -> GymQuestion:
    question = read_question(text)
    assert question is not None
    return question


QUESTIONS = [
    asked("Take 44 17 93 8, spell every digit."),
    asked("Take 44 17 93 8, put it in order and then double every number."),
    asked("Take the smudged list 44 17 93 8, add one to each."),
]


def random_pattern(rng: random.Random, size: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    workers = tuple(rng.choice((4, rng.randrange(8))) for _ in range(size))
    access = tuple(tuple(seen for seen in range(index) if rng.random() < 0.6) for index in range(size))
    return workers, access


def test_the_accuracy_is_that_of_the_workflow_with_these_subtasks() -> None:
    rng = random.Random(0)
    for question in draw_questions("test", 40, seed=1):
        workers, access = random_pattern(rng, rng.randint(1, 5))
        subtasks, accuracy = best_subtasks(question, [ALL[worker] for worker in workers], access)
        workflow = Workflow(tuple(map(Step, workers, subtasks, access)))
        assert expected_accuracy(question, workflow) == pytest.approx(accuracy), workflow


@pytest.mark.parametrize(
    ("text", "workers", "subtasks"),
    [
        ("put it in order and then double every number", (1, 3), ("make each twice as big", "sort the list")),
        ("add one to each and then say the hours in minutes", (1, 7), ("add one to each", "say the hours in minutes")),
    ],
    ids=["operations that commute may change places", "others keep theirs"],
)
def test_a_chain_is_told_what_each_worker_does_best(
    text: str, workers: tuple[int, ...], subtasks: tuple[str, ...]
) -> None:
    question = asked(f"Take 44 17 93 8, {text}.")
    told, accuracy = best_subtasks(question, [ALL[worker] for worker in workers], ((), (0,)))
    assert (told, accuracy > 0.8) == (subtasks, True)
    backwards = best_subtasks(question, [ALL[worker] for worker in reversed(workers)], ((), (0,)))[1]
    assert (backwards < 0.1) == (workers == (1, 7))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.kind)
def test_no_other_subtasks_do_better(question: GymQuestion) -> None:
    """Against every combination of texts, for patterns of up to three steps."""
    operations = [operation for operation, _ in question.operations]
    texts = [operation.phrase(wording) for operation in operations for wording in WORDINGS]
    texts += [", then ".join(pair) for pair in product(texts, texts)] if len(operations) > 1 else []
    rng = random.Random(4)
    for size in (1, 2, 2, 3):
        workers, access = random_pattern(rng, size)
        _, accuracy = best_subtasks(question, [ALL[worker] for worker in workers], access)
        for subtasks in product((*texts[: 8 if size == 3 else None], COMPARE[0], NOTHING), repeat=size):
            workflow = Workflow(tuple(map(Step, workers, subtasks, access)))
            assert expected_accuracy(question, workflow) <= accuracy + 1e-9, workflow


def test_a_step_that_cannot_help_is_told_nothing() -> None:
    subtasks, _ = best_subtasks(QUESTIONS[0], [PROFILES[1], PROFILES[5]], ((), ()))
    assert subtasks == (NOTHING, "spell every digit")
    assert not find_operations(NOTHING)


def test_questions_that_differ_in_numbers_and_in_operations_of_one_skill_have_one_shape() -> None:
    assert shape_of(QUESTIONS[0]) == shape_of(asked("Here is 5 60 7, use only zeros and ones."))
    assert shape_of(QUESTIONS[0]) != shape_of(asked("Here is the smudged list 5 60 7, use only zeros and ones."))
