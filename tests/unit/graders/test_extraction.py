"""Finding the answer of a reply: the corners (the golden cases of math hold the rules)."""

from __future__ import annotations

from typing import get_args

import pytest

from openconductor.graders.choice import LETTERS, Style, extract_choice
from openconductor.graders.extraction import braced, find_answer, find_boxed, strip_thoughts
from openconductor.graders.freeform import FreeFormAnswer, FreeFormGrader
from openconductor.types import Problem

THOUGHTS = {
    "no thoughts": "no thoughts",
    "<THINK>a</Think>b": "b",
    "a</think>b": "b",
    "b<think>a": "b",
    "<thinking>a</thinking>b<reasoning>c</reasoning>d": "bd",
    "<think>a</think>b</think>": "b",
    "<think>a<think>b</think>c": "c",
    "a < think > b": "a ",
}


def test_thoughts_are_stripped_also_where_a_tag_is_missing() -> None:
    assert {reply: strip_thoughts(reply) for reply in THOUGHTS} == THOUGHTS


BOXES = {
    r"\boxed{1}, \boxed{2} \text{ and } \boxed{3}": ("1", "2", "3"),
    r"$\boxed{1}$ and $\boxed{2}$": ("1", "2"),
    r"\boxed{1},\quad\boxed{2}": ("1", "2"),
    r"\boxed{5}, \boxed{5}": ("5",),
    r"$x = \boxed{1}$ and $y_{2} = \boxed{2}$": ("1", "2"),
    r"\boxed{x = \boxed{5}}": ("5",),
    r"\boxedthing{7}": None,
}
ALONE = (r"\boxed{1}, so y = ", r"\boxed{1} ", r"\boxed{1}. Then ", r"\boxed{1, ", r"\boxed{}, ")


@pytest.mark.parametrize("text", BOXES)
def test_only_boxes_that_one_list_joins_are_one_answer(text: str) -> None:
    boxes = find_boxed(text)
    assert (boxes and boxes.items) == BOXES[text]


@pytest.mark.parametrize("text", ALONE)
def test_a_box_behind_other_words_is_the_answer_alone(text: str) -> None:
    boxes = find_boxed(text + r"\boxed{2}")
    assert boxes is not None and boxes.items == ("2",)


def test_braces_balance_and_escaped_ones_do_not_count() -> None:
    contents = {"{a{b}c}": "a{b}c", r"{\{}": r"\{", "{a": None, "a}": None, r"{\\}": r"\\"}
    assert {text: braced(text, 0) for text in contents} == contents


MARKED = {
    "The final answer is $28 \\%$. I hope it is correct.": "28 \\%",
    'The final answer is "$12 $ and $13 $". Good.': "12, 13",
    "Answer: $5$ cm": "5 cm",
    "So the answer is $x=5$ where x is nice.": "x=5",
    "The answer is 3.14.": "3.14",
    "the answer: x = 3": "x = 3",
    "The answer to the question is therefore 5": "5",
    "Answer \\[ \n 9 \n \\]": "9",
    "**7**": "**7**",
    "Evelyn": "Evelyn",
}


def test_the_line_that_is_marked_as_the_answer_is_read() -> None:
    assert {reply: find_answer(reply).text for reply in MARKED} == MARKED
    for reply in ("Answer:", "Answer: $\n", "I will answer this. It is 5, or 6.", "Perhaps Evelyn"):
        answer = find_answer(reply)
        assert answer.text is None and answer.reason


PIECES = r"""answer is |answer: $|$|$$|\[|\(|\boxed{|\boxed{1},|<think>|</think>|
|*|{|answer: |A |option |(|Answer: A or |a B. A|9"""


@pytest.mark.timeout(60)  # quadratic searches would take minutes here; the limit is the test's own
@pytest.mark.parametrize("piece", PIECES.split("|"))
async def test_a_hostile_reply_is_read_in_a_moment(piece: str) -> None:
    reply = piece * (400_000 // len(piece))
    find_answer(reply)
    for style in get_args(Style):
        assert (extract_choice(reply, style=style) or "A").upper() in LETTERS
    for answer in (reply, rf"\boxed{{{reply}}}"):
        await FreeFormGrader().grade(Problem("p", "", FreeFormAnswer("water", "text"), "t"), answer)


async def test_a_number_of_twenty_megabytes_is_not_read() -> None:
    grade = await FreeFormGrader().grade(
        Problem("p", "", FreeFormAnswer("42"), "t"), rf"\boxed{{{'9' * 20_000_000}}}"
    )
    assert (grade.correct, grade.note) == (False, "unreadable: longer than 4000 characters")
