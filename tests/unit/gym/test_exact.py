"""The exact levels against the simulation that they describe, and against each other."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from openconductor.episode import LiveEpisode, execute
from openconductor.gym.exact import (
    ALL,
    alone_accuracy,
    answer_chances,
    expected_accuracy,
    oracle_workflow,
)
from openconductor.gym.levels import fixed_accuracy
from openconductor.gym.questions import GymQuestion, draw_questions, read_question
from openconductor.gym.workers import PROFILES, REFUSES, gym_pool
from openconductor.gym.world import COMPARE, WORDINGS, read_value, write_value
from openconductor.protocols import CallContext
from openconductor.types import Step, Workflow

SAMPLES = 800
POOL = gym_pool(11)


def question_of(text: str) -> GymQuestion:
    question = read_question(text)
    assert question is not None
    return question


SINGLE = question_of("Take 44 17 93 8, spell every digit.")
PAIR = question_of("Take 44 17 93 8, put it in order and then double every number.")
TRIPLE = question_of(
    "Start with 44 17 93 8, turn it around, next convert hours to minutes, next write in binary."
)
SMUDGED = question_of("Here is the smudged list 44 17 93 8, add one to each.")

QUESTIONS = [SINGLE, PAIR, TRIPLE, SMUDGED]


def attempts(worker: int, subtask: str, count: int, judge: int = 4) -> Workflow:
    return Workflow((*[Step(worker, subtask)] * count, Step(judge, COMPARE[0], "all")))


SORT, DOUBLE = "sort the list", "make each twice as big"
SORTED = question_of("Take 44 17 93 8, sort the list.")
TWICE, SPELL, ADD = "double every number", "spell every digit", "add one to each"
CASES: dict[str, tuple[GymQuestion, Workflow]] = {
    "one step": (SINGLE, Workflow([Step(5, SPELL)])),
    "chain of two": (PAIR, Workflow([Step(3, SORT), Step(1, DOUBLE, "all")])),
    "referee over 2": (SMUDGED, attempts(1, ADD, 2)),
    "votes without a referee": (SMUDGED, attempts(1, ADD, 4, judge=6)),
    "nothing that anybody understands": (
        PAIR,
        Workflow([Step(3, "think hard"), Step(3, SORT, "all"), Step(1, TWICE)]),
    ),
    "referee over what is not finished": (TRIPLE, attempts(3, "reverse the list", 2)),
    "an operation done again on what may be a mistake": (
        SORTED,
        Workflow([Step(6, SORT), Step(3, SORT, (0,)), Step(3, SORT), Step(4, COMPARE[0], "all")]),
    ),
    "branches that share their beginning": (
        PAIR,
        Workflow(
            [Step(6, SORT), Step(1, TWICE, [0]), Step(0, TWICE, [0]), Step(4, COMPARE[0], [1, 2])]
        ),
    ),
}
QUICK = tuple(CASES)[:5]


def phrases_of(question: GymQuestion) -> list[str]:
    """Return every wording of the question's operations."""
    operations = [operation for operation, _ in question.operations]
    return [operation.phrase(wording) for operation in operations for wording in WORDINGS]


def odd_case(number: int) -> tuple[GymQuestion, Workflow]:
    """Draw a workflow that nobody would write: any worker, wording, operation and access."""
    rng = random.Random(number)
    question = QUESTIONS[number % 4]
    texts = [*phrases_of(question) * 2, *COMPARE]
    steps: list[Step] = []
    for place in range(rng.randint(2, 5)):
        access = [earlier for earlier in range(place) if rng.random() < 0.6]
        steps.append(Step(rng.choice((3, 1, 5, 7, 4, 0)), rng.choice(texts), access))
    return question, Workflow(tuple(steps))


CASES |= {f"odd {number}": odd_case(number) for number in range(8)}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in QUICK]


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
async def test_the_expected_accuracy_is_what_the_executor_finds(name: str) -> None:
    question, workflow = CASES[name]
    expected = expected_accuracy(question, workflow)
    right = 0
    for sample in range(SAMPLES):
        context = CallContext(sample=sample)
        transcript = await execute(workflow, POOL, question.text, context=context)
        right += transcript.answer == write_value(question.answer)
    # The additional 1 in SAMPLES keeps chances near 0 and 1 from leaving no room at all.
    variance = max(expected * (1 - expected), 1 / SAMPLES)
    room = 4 * math.sqrt(variance / SAMPLES)
    assert right / SAMPLES == pytest.approx(expected, abs=room)


async def test_in_a_second_round_mistakes_of_the_first_one_are_no_majority() -> None:
    question = question_of("Take the smudged list 41 17 93, sort the list.")
    first = Workflow([Step(3, SORT)])
    again = attempts(3, SORT, 1)
    right = played = 0
    for sample in range(2 * SAMPLES):
        live = LiveEpisode(POOL, question.text, context=CallContext(sample=sample))
        async with live.play():
            previous = await live.answer_by(first)
            live.answer = answer = await live.answer_by(again, previous=previous)
        if previous is not None and read_value(previous) not in (None, question.answer):
            played += 1
            right += answer == write_value(question.answer)
    answers = answer_chances(question, first)
    (wrong,) = set(answers) - {None, question.answer}
    chances = answer_chances(question, again, before=(wrong,))
    expected = (1 - REFUSES) ** len(again) * chances[question.answer]
    assert abs(right / played - expected) <= 4 * math.sqrt(expected * (1 - expected) / played)


def single_changes(workflow: Workflow, question: GymQuestion) -> Iterator[Workflow]:
    """Yield every workflow that differs in one worker, one access or one subtask."""
    phrases = phrases_of(question)
    texts = [*phrases, ", then ".join(phrases[::2]), *COMPARE]
    for index, step in enumerate(workflow):
        changes = [replace(step, worker=worker) for worker in ALL]
        changes += [replace(step, subtask=text) for text in texts]
        for count in range(index + 1):
            for access in combinations(range(index), count):
                changes.append(replace(step, access=access))
        for change in changes:
            yield Workflow((*workflow.steps[:index], change, *workflow.steps[index + 1 :]))


@pytest.mark.parametrize(
    "question", [SINGLE, PAIR, TRIPLE, SMUDGED], ids=lambda question: question.kind
)
def test_no_single_change_improves_the_oracle(question: GymQuestion) -> None:
    workflow, accuracy = oracle_workflow(question)
    assert expected_accuracy(question, workflow) == pytest.approx(accuracy)
    for changed in single_changes(workflow, question):
        assert expected_accuracy(question, changed) <= accuracy + 1e-9, changed


def test_the_oracle_is_at_least_a_worker_alone_a_fixed_workflow_and_the_best_of_fewer() -> None:
    few = {ordinal: ALL[ordinal] for ordinal in (0, 2, 6)}
    for question in draw_questions("test", 30, seed=9):
        _, oracle = oracle_workflow(question)
        assert all(alone_accuracy(question, profile) <= oracle for profile in PROFILES)
        assert fixed_accuracy(question) <= oracle + 1e-9
        smaller, accuracy = oracle_workflow(question, few)
        assert accuracy <= oracle
        assert {step.worker for step in smaller} <= set(few)
