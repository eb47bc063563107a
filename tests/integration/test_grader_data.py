"""The graders on public data: each disagreement with another grader is listed here.

The reasons are in docs/graders.md. The data lie beside the checkout on some machines
(``shared_data``) and are not copied here.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from openconductor.graders import grade_answer
from openconductor.graders.choice import LETTERS, extract_choice
from openconductor.graders.math import MathGrader
from openconductor.types import Problem

ROOT = Path(__file__).resolve().parents[2]

UNMARKED = "no answer is marked, only prose"
NO_VALUE = "the marked line states no value"
OTHER_BOX = "the last box is the answer, and it holds something else"
FAR_BOXES = "boxes that no list joins are not one answer"
NOT_EQUAL = "the two are not equal"
EQUAL = "the two are equal"
BROKEN = "the reference is cut off"
CHAIN = "the chain contradicts itself"
COMMA = "in a reference a comma parts a list, and is no decimal point"

# Rows of math_verify_cases where our verdict is not the one that Math-Verify's own suite expects.
CASES: dict[int, str] = (
    dict.fromkeys(
        [7, 13, 14, 15, 16, 88, 89, 90, 91, 92, 95, *range(119, 125), 141, 142, 143, 163], UNMARKED
    )
    | {156: NO_VALUE, 172: OTHER_BOX}
    | dict.fromkeys([182, 191, 238, 251], FAR_BOXES)
    | dict.fromkeys([6, 17], COMMA)
    | dict.fromkeys([35, 98, 100, 101, 104, 109, 114, 115], CHAIN)
    | {187: EQUAL, 218: BROKEN, 254: NOT_EQUAL, 264: NOT_EQUAL}
)

# Rows of math_model_answers that a careful reading calls wrong; all others it calls right.
READ_AS_WRONG = {
    "gpt-166": r"\frac2707 lost its braces, and three fractions are possible",
    "gpt-264": "14/5 is not nine fifths",
}
# Rows on which Math-Verify itself says something else than that reading, always "wrong" where it is
# right.
MATH_VERIFY_ERRS = {
    *("gpt-0", "gpt-17", "gpt-53", "gpt-228", "gpt-274", "gpt-279"),  # pi without a backslash
    *("gpt-99", "gpt-205", "gpt-248", "gpt-298"),  # \beginpmatrix
    *("gpt-73", "gpt-146", "gpt-181"),  # \frac without braces around a root
    *("gpt-96", "gpt-257"),  # \pm*sqrt(19); \mboxinches
}


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of one data set."""
    lines = (folder / name / "data.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def verdicts(pairs: Sequence[tuple[str, str, float | None]]) -> list[bool | None]:
    """Return our verdict on each reference and answer; an invalid reference is undecided."""

    async def judge(reference: str, answer: str, tolerance: float | None) -> bool | None:
        problem = Problem("p", "", reference, "t")
        return (await grade_answer(MathGrader(tolerance), problem, answer)).correct

    return await asyncio.gather(*(judge(*pair) for pair in pairs))


async def test_every_case_of_math_verifys_suite_agrees_or_is_listed(shared_data: Path) -> None:
    pytest.importorskip("sympy")
    cases = [row["params"] for row in rows(shared_data, "math_verify_cases")]
    # Where a case asks for fewer than the usual six places, the same is a tolerance here.
    pairs: list[tuple[str, str, float | None]] = []
    for case in cases:
        precision = case.get("precision", 6)
        pairs.append((case["gold"], case["pred"], 10.0**-precision if precision < 6 else None))
    assert len(cases) == 269
    differing: set[int] = set()
    accepted: set[int] = set()
    for place, ours in enumerate(await verdicts(pairs)):
        case = cases[place]
        expected = case["expected"] if "expected" in case else case["result"]
        if ours is not bool(expected):
            differing.add(place)
            if ours:
                accepted.add(place)
    assert differing == set(CASES)
    # The only pair that we accept and the suite does not is equal.
    assert accepted == {place for place in CASES if CASES[place] == EQUAL}


async def test_every_model_answer_is_graded_as_a_careful_reading_does(shared_data: Path) -> None:
    pytest.importorskip("sympy")
    answers = rows(shared_data, "math_model_answers")
    ours = await verdicts([(row["gold"], row["prediction"], None) for row in answers])
    assert len(answers) == 300
    names = [row["id"] for row in answers]
    assert ours == [name not in READ_AS_WRONG for name in names]
    assert READ_AS_WRONG.keys() <= set(names)


def test_our_extraction_of_mmlu_pro_outputs_differs_only_where_nothing_is_stated(
    shared_data: Path,
) -> None:
    outputs = rows(shared_data, "mmlu_pro_outputs")
    kinds: Counter[str] = Counter()
    for row in outputs:
        ours = extract_choice(row["generated_text"], LETTERS)
        theirs = extract_choice(row["generated_text"], LETTERS, style="mmlu-pro")
        if ours == row["official_pred"]:
            kinds["same"] += 1
        elif ours is None and theirs is None and row["official_pred"] == "G":
            kinds["nothing found: theirs is the letter that a seed draws"] += 1
        elif ours is None and theirs == row["official_pred"]:
            assert not re.search(r"answer|correct|option", row["generated_text"][-200:])
            kinds["a lone capital of a formula"] += 1
        else:
            kinds[f"unexplained: {row['question_id']}"] += 1
    assert kinds == {
        "same": 278,
        "nothing found: theirs is the letter that a seed draws": 18,
        "a lone capital of a formula": 4,
    }
    assert sum(extract_choice(row["generated_text"]) == row["answer"] for row in outputs) == 127
    assert sum(row["official_pred"] == row["answer"] for row in outputs) == 130


def test_the_page_lists_each_disagreement_that_the_tests_know() -> None:
    page = (ROOT / "docs" / "graders.md").read_text("utf-8")
    table = page.partition("## Math-Verify's own cases")[2].partition("\n## ")[0]
    listed: set[int] = set()
    for numbers in re.findall(r"^\| ([\d, –]+) \|", table, re.MULTILINE):
        for part in numbers.split(", "):
            first, _, last = part.partition("–")
            listed |= set(range(int(first), int(last or first) + 1))
    assert listed == set(CASES)
    assert set(re.findall(r"gpt-\d+", page)) == MATH_VERIFY_ERRS | set(READ_AS_WRONG)
