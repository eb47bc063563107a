"""Multiple choice: prompts, orders, and what the golden cases do not hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openconductor.errors import ConfigError, GradingError
from openconductor.graders.choice import LETTERS, ChoiceGrader, Style, choice_prompt, extract_choice, shuffled
from openconductor.types import Problem


@pytest.mark.parametrize(
    ("style", "obedient"),
    [
        ("ours", "Because.\nAnswer: {}"),
        ("simple-evals", "Because.\nAnswer: {}"),
        ("mmlu-pro", "Because. The answer is ({})."),
    ],
)
def test_a_reply_that_obeys_the_prompt_is_read_by_the_extractor_of_its_style(style: Style, obedient: str) -> None:
    for count in (2, 4, 10):
        prompt = choice_prompt("Which one?", [f"number {place}" for place in range(count)], style=style)
        assert all(f"number {place}" in prompt for place in range(count))
        for letter in (letters := LETTERS[:count]):
            assert extract_choice(obedient.format(letter), letters, style=style) == letter


def test_the_prompt_of_mmlu_pro_names_the_subject_where_there_is_one() -> None:
    assert "(with answers) about law. Think" in choice_prompt("Q?", ["a", "b"], style="mmlu-pro", subject="law")
    assert "(with answers). Think" in choice_prompt("Q?", ["a", "b"], style="mmlu-pro")


@pytest.mark.parametrize("count", [0, 1, 11])
def test_a_prompt_has_two_choices_to_ten(count: int) -> None:
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
    assert all(900 < places.count(place) < 1100 for place in range(4))  # 1000 and 3.6 standard deviations


@pytest.mark.parametrize("reference", [None, 0, "K", "", "AB", "b"])
async def test_a_reference_that_is_no_letter_is_the_graders_failure(reference: object) -> None:
    with pytest.raises(GradingError, match="problem p: got the reference"):
        await ChoiceGrader().grade(Problem("p", "", reference, "t"), "Answer: A")


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
