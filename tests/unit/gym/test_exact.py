"""The exact levels against the simulation that they describe, and against each other."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

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
from openconductor.gym.sampling import random_workflow
from openconductor.gym.workers import PROFILES, REFUSES, gym_pool
from openconductor.gym.world import COMPARE, WORDINGS, read_value
from openconductor.protocols import CallContext
from openconductor.types import Step, Workflow

SAMPLES = 800
POOL = gym_pool(11)


def asked(text: str) -> GymQuestion:
    question = read_question(text)
    assert question is not None
    return question


SINGLE = asked("Take 44 17 93 8, spell every digit.")
PAIR = asked("Take 44 17 93 8, put it in order and then double every number.")
TRIPLE = asked(
    "Start with 44 17 93 8, turn it around, next convert hours to minutes, next write in binary."
)
SMUDGED = asked("Here is the smudged list 44 17 93 8, add one to each.")


def attempts(worker: int, subtask: str, count: int, judge: int = 4) -> Workflow:
    return Workflow(
        (*(Step(worker, subtask) for _ in range(count)), Step(judge, COMPARE[0], "all"))
    )


SORTED = Step(6, "sort the list")
CASES: list[tuple[str, GymQuestion, Workflow]] = [
    ("one step", SINGLE, Workflow([Step(5, "spell every digit")])),
    ("one step on a smudged list", SMUDGED, Workflow([Step(1, "add one to each")])),
    (
        "chain of two",
        PAIR,
        Workflow([Step(3, "sort the list"), Step(1, "make each twice as big", "all")]),
    ),
    (
        "commuted",
        PAIR,
        Workflow([Step(1, "make each twice as big"), Step(3, "sort the list", (0,))]),
    ),
    ("all in one step", PAIR, Workflow([Step(0, "sort the list, then double every number")])),
    *(
        (f"referee over {count}", SMUDGED, attempts(1, "add one to each", count))
        for count in (1, 2, 3, 4)
    ),
    ("referee over weak attempts", SINGLE, attempts(2, "spell every digit", 3)),
    ("votes without a referee", SMUDGED, attempts(1, "add one to each", 4, judge=6)),
    ("referee over what is not finished", TRIPLE, attempts(3, "reverse the list", 2)),
    (
        "an operation done again on what may be a mistake",
        asked("Take 44 17 93 8, sort the list."),
        Workflow(
            [
                SORTED,
                Step(3, "sort the list", (0,)),
                Step(3, "sort the list"),
                Step(4, COMPARE[0], "all"),
            ]
        ),
    ),
    (
        "branches that share their beginning",
        PAIR,
        Workflow(
            [
                SORTED,
                *(Step(one, "double every number", (0,)) for one in (1, 0)),
                Step(4, COMPARE[0], (1, 2)),
            ]
        ),
    ),
    (
        "nothing that anybody understands",
        PAIR,
        Workflow(
            [Step(3, "think hard"), Step(3, "sort the list", "all"), Step(1, "double every number")]
        ),
    ),
]


def mixed_up() -> Iterator[tuple[str, GymQuestion, Workflow]]:
    """Workflows that nobody would write: any worker, any wording, any operation, any access."""
    rng = random.Random(5)
    questions = [SINGLE, PAIR, TRIPLE, SMUDGED]
    for index in range(8):
        question = questions[index % 4]
        phrases = [
            operation.phrase(wording)
            for operation, _ in question.operations
            for wording in WORDINGS
        ]
        steps = [
            Step(
                rng.choice((3, 1, 5, 7, 4, 0)),
                rng.choice((*phrases, *phrases, *COMPARE)),
                [earlier for earlier in range(place) if rng.random() < 0.6],
            )
            for place in range(rng.randint(2, 5))
        ]
        yield f"mixed up {index}", question, Workflow(tuple(steps))


QUICK = (
    "one step",
    "chain of two",
    "referee over 2",
    "votes without a referee",
    "nothing that anybody understands",
)


@pytest.mark.parametrize(
    ("question", "workflow"),
    [
        pytest.param(*case, id=name, marks=[] if name in QUICK else pytest.mark.slow)
        for name, *case in (*CASES, *mixed_up())
    ],
)
async def test_the_expected_accuracy_is_what_the_executor_finds(
    question: GymQuestion, workflow: Workflow
) -> None:
    expected = expected_accuracy(question, workflow)
    right = 0
    for sample in range(SAMPLES):
        transcript = await execute(
            workflow, POOL, question.text, context=CallContext(sample=sample)
        )
        right += transcript.answer is not None and transcript.answer.split() == list(
            question.answer
        )
    # The additional 1 in SAMPLES keeps chances near 0 and 1 from leaving no room at all.
    room = 4 * math.sqrt(max(expected * (1 - expected), 1 / SAMPLES) / SAMPLES)
    assert abs(right / SAMPLES - expected) <= room, (
        f"{right / SAMPLES:.4f} is not {expected:.4f} ± {room:.4f}"
    )


@pytest.mark.parametrize("attempts_again", [1, pytest.param(3, marks=pytest.mark.slow)])
async def test_in_a_second_round_mistakes_of_the_first_one_are_no_majority(
    attempts_again: int,
) -> None:
    question = asked("Take the smudged list 41 17 93, sort the list.")
    first = Workflow((Step(3, "sort the list"),))
    steps = [Step(3, "sort the list")] * attempts_again
    again = Workflow((*steps, Step(4, COMPARE[0], "all")))
    right = played = 0
    for sample in range(2 * SAMPLES):
        live = LiveEpisode(POOL, question.text, context=CallContext(sample=sample))
        async with live.play():
            previous = await live.answer_by(first)
            live.answer = answer = await live.answer_by(again, previous=previous)
        if previous is not None and read_value(previous) not in (None, question.answer):
            played += 1
            right += answer is not None and answer.split() == list(question.answer)
    answers = answer_chances(question, first)
    (wrong,) = set(answers) - {None, question.answer}
    chances = answer_chances(question, again, before=(wrong,))
    expected = (1 - REFUSES) ** len(again) * chances[question.answer]
    assert abs(right / played - expected) <= 4 * math.sqrt(expected * (1 - expected) / played)


def single_changes(workflow: Workflow, question: GymQuestion) -> Iterator[Workflow]:
    """Every workflow that differs in one worker, one access or one subtask."""
    phrases = [
        operation.phrase(wording) for operation, _ in question.operations for wording in WORDINGS
    ]
    for index, step in enumerate(workflow):
        changes = [Step(worker, step.subtask, step.access) for worker in ALL]
        changes += [
            Step(step.worker, text, step.access)
            for text in (*phrases, ", then ".join(phrases[::2]), *COMPARE)
        ]
        changes += [
            Step(
                step.worker,
                step.subtask,
                [earlier for earlier in range(index) if mask >> earlier & 1],
            )
            for mask in range(2**index)
        ]
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


def test_the_oracle_is_at_least_every_other_level_on_each_question() -> None:
    rng = random.Random(1)
    for question in draw_questions("test", 60, seed=9):
        _, oracle = oracle_workflow(question)
        assert all(alone_accuracy(question, profile) <= oracle for profile in PROFILES)
        assert fixed_accuracy(question) <= oracle + 1e-9
        smaller, accuracy = oracle_workflow(
            question, {ordinal: ALL[ordinal] for ordinal in (0, 2, 6)}
        )
        assert accuracy <= oracle
        assert {step.worker for step in smaller} <= {0, 2, 6}
        for _ in range(5):
            assert (
                expected_accuracy(question, random_workflow(rng, question, tuple(ALL)))
                <= oracle + 1e-9
            )
