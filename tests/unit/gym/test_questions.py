"""The gym's questions: drawn by seed, read back from their text, and never in two splits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from openconductor.gym.questions import (
    KINDS,
    SPLITS,
    Kind,
    Split,
    compositions,
    draw_question,
    draw_questions,
    draw_reading,
    read_question,
    split_of,
)


@given(seed=st.integers(0, 2**32), split=st.sampled_from(SPLITS), kind=st.sampled_from(KINDS))
def test_a_drawn_question_is_read_back_from_its_text_and_is_of_its_kind_and_split(
    seed: int, split: Split, kind: Kind
) -> None:
    question = draw_question(split, kind, random.Random(seed))
    assert read_question(question.text) == question
    assert question.kind == kind
    assert split_of(kind, question.composition, question.text) == split
    assert question.smudged == ("smudged" in question.text)


def test_the_same_seed_draws_the_same_questions_however_many_are_drawn_and_from_where_on() -> None:
    many = draw_questions("train", 60, seed=7)
    assert draw_questions("train", 20, seed=7) == many[:20]
    assert draw_questions("train", 20, seed=7, start=40) == many[40:]
    assert draw_questions("train", 60, seed=8) != many
    assert all(14 <= [question.kind for question in many].count(kind) <= 16 for kind in KINDS)


@pytest.mark.parametrize("length", [2, 3])
def test_the_chains_of_a_split_are_held_out_from_the_others(length: int) -> None:
    chains = [set(compositions(length, split)) for split in SPLITS]
    assert all(chains)
    assert sum(map(len, chains)) == len(set.union(*chains))
    drawn = {
        question.composition
        for question in draw_questions("test", 400, seed=0, mix={KINDS[length - 1]: 1.0})
    }
    assert drawn <= set(compositions(length, "test"))


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_an_exercise_in_reading_is_not_held_out_and_has_no_three_in_a_row_that_are(
    length: int,
) -> None:
    rng = random.Random(length)
    held_out: set[tuple[str, ...]] = set()
    for size in (2, 3):
        held_out.update(compositions(size, "validation"), compositions(size, "test"))
    drawn = {draw_reading(length, rng).composition for _ in range(1000)}
    assert drawn.isdisjoint(held_out)
    for names in drawn:
        assert len(set(names)) == length
        for start in range(length - 2):
            assert names[start : start + 3] not in held_out
    assert len(drawn) > len(compositions(min(length, 3), "train"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "What is 6 * 7?",
        "Take 4 17 9.",
        "Sort the list.",
        "Take 4 17 9, spell every digit, then double every number.",
        "Take 4 17 9, sort the list, double every number, add one to each, reverse the list.",
        "Take 1234567 4, sort the list.",
        "Take 1 2 3 4 5 6 7 8 9 10 11, sort the list.",
    ],
)
def test_what_the_gym_does_not_understand_is_no_question(text: str) -> None:
    assert read_question(text) is None
