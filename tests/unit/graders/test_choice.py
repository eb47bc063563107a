"""Multiple choice: prompts, orders, and what the golden cases do not hold; and the exact grader."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from openconductor.errors import ConfigError, GradingError
from openconductor.graders.choice import (
    LETTERS,
    ChoiceGrader,
    Style,
    choice_prompt,
    extract_choice,
    shuffled,
)
from openconductor.graders.exact import ExactGrader
from openconductor.types import Problem

OBEDIENT = {
    "ours": "So.\nAnswer: {}",
    "simple-evals": "So.\nAnswer: {}",
    "mmlu-pro": "So. The answer is ({}).",
}


@pytest.mark.parametrize(("style", "obedient"), OBEDIENT.items())
def test_a_reply_that_obeys_the_prompt_is_read_by_the_extractor_of_its_style(
    style: Style, obedient: str
) -> None:
    for count in (2, 4, 10):
        prompt = choice_prompt(
            "Which one?", [f"number {place}" for place in range(count)], style=style
        )
        assert all(f"number {place}" in prompt for place in range(count))
        for letter in (letters := LETTERS[:count]):
            assert extract_choice(obedient.format(letter), letters, style=style) == letter


def test_the_prompt_of_mmlu_pro_names_the_subject_where_there_is_one() -> None:
    assert "(with answers) about law. Think" in choice_prompt(
        "Q?", ["a", "b"], style="mmlu-pro", subject="law"
    )
    assert "(with answers). Think" in choice_prompt("Q?", ["a", "b"], style="mmlu-pro")


def test_a_prompt_has_two_choices_to_ten() -> None:
    for count in (0, 1, 11):
        with pytest.raises(ValueError, match=f"choices: got {count}"):
            choice_prompt("Which one?", ["x"] * count)


def test_the_order_of_choices_depends_on_the_key_alone_and_loses_none() -> None:
    choices = ["a", "b", "c", "d"]
    orders = {tuple(shuffled(choices, f"key {number}")[0]) for number in range(300)}
    assert len(orders) == 24  # every order turns up
    for number in range(20):
        mixed, places = shuffled(choices, f"key {number}")
        assert (mixed, places) == shuffled(choices, f"key {number}")
        assert sorted(mixed) == choices
        assert [choices[place] for place in places] == mixed
        assert mixed[places.index(2)] == "c"


def test_the_right_choice_is_nowhere_more_often_than_by_chance() -> None:
    places = [shuffled("abcd", f"seed 0, problem {number}")[1].index(0) for number in range(4000)]
    assert all(
        900 < places.count(place) < 1100 for place in range(4)
    )  # 1000 and 3.6 standard deviations


async def test_a_reference_of_another_kind_is_the_graders_failure() -> None:
    for reference in (None, 0, "K", "", "AB", "b"):
        with pytest.raises(GradingError, match="problem p: got the reference"):
            await ChoiceGrader().grade(Problem("p", "", reference, "t"), "Answer: A")
    for reference in (8, None, ["8", "34"]):
        with pytest.raises(GradingError, match="problem p: got a reference of type"):
            await ExactGrader().grade(Problem("p", "", reference, "t"), "8 34")


@pytest.mark.parametrize("answer", ["8 34", "  8 34\n", "8   34", "8\t34"])
async def test_an_exact_answer_is_right_however_many_blanks_it_has(answer: str) -> None:
    grade = await ExactGrader().grade(Problem("p", "", "8 34", "gym"), answer)
    assert (grade.correct, grade.extracted) == (True, "8 34")


@pytest.mark.parametrize(
    "answer", ["", "34 8", "8 34 8", "8,34", "834", "The answer is 8 34", "８ 34"]
)
async def test_anything_else_is_not_exact(answer: str) -> None:
    assert (await ExactGrader().grade(Problem("p", "", "8 34", "gym"), answer)).correct is False


def test_letters_and_style_are_checked() -> None:
    with pytest.raises(ConfigError, match="letters"):
        ChoiceGrader("abc")
    with pytest.raises(ConfigError, match="style"):
        ChoiceGrader(style="theirs")  # type: ignore[arg-type]


@given(st.text(), st.sampled_from(["ours", "mmlu-pro", "simple-evals"]))
def test_whatever_is_written_is_read_as_a_letter_or_as_none(text: str, style: Style) -> None:
    for reply in (text, f"Answer: {text}", rf"\boxed{{{text}}}"):
        letter = extract_choice(reply, "ABCD", style=style)
        assert letter is None or letter.upper() in "ABCD"
