"""Real references turned into wrong answers, none of which the math grader accepts, and rewritten ones, which it does.

Two hundred wrong ones and more for each of unions, tuples, units and derivatives.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from openconductor.graders.math import MathGrader
from openconductor.graders.math_text import normalise
from openconductor.types import Problem

Pairs = set[tuple[str, str]]
"""References, each with an answer."""

INTERVAL = re.compile(r"([(\[])([^()\[\],]+),([^()\[\],]+)([)\]])")
NUMBER = re.compile(r"(?<![\w.{\\])\d+(?![\w.}])")
UNITS = (
    *(
        "m",
        "cm",
        "cm^2",
        "cm^3",
        "km",
        "inches",
        "inches^2",
        "feet",
        "miles",
        "kg",
        "g",
        "hours",
        "minutes",
        "days",
    ),
    *("km/h", "h/km", "m/s", "m/s^2", "degrees", "radians", "dollars", "liters"),
)
UNIT = re.compile(r"^(.*[\d}]) *(?:\\(?:text|mbox)\{ *([a-z]+) *\}(\^\d)?|(\^\\circ))$")


@pytest.fixture(scope="module")
def golds(shared_data: Path) -> list[str]:
    """The references of all mathematical data sets, in one form."""
    rows = [
        json.loads(line)
        for name in ("math500", "math_model_answers", "math_verify_cases")
        for line in (shared_data / name / "data.jsonl").read_text("utf-8").splitlines()
    ]
    texts = (
        row["params"]["gold"] if "params" in row else row.get("answer") or row["gold"]
        for row in rows
    )
    return sorted({normalise(text) for text in texts if len(text) < 120 and "boxed" not in text})


async def notes_of(pairs: Pairs, *, correct: bool) -> list[str]:
    """The pairs that are not graded as they should, each with its grade."""
    grader = MathGrader()

    async def one(gold: str, answer: str) -> str:
        grade = await grader.grade(Problem("p", "", gold, "t"), rf"\boxed{{{answer}}}")
        return "" if grade.correct is correct else f"{gold} | {answer}: {grade}"

    return sorted(filter(None, await asyncio.gather(*(one(*pair) for pair in pairs))))


def raised(text: str) -> Iterator[str]:
    """A text with each of its whole numbers one larger, or of another sign."""
    for number in NUMBER.finditer(text):
        for other in (str(int(number[0]) + 1), f"-{number[0]}"):
            if int(number[0]) or other != "-0":
                yield f"{text[: number.start()]}{other}{text[number.end() :]}".replace("--", "")


def brackets(text: str) -> Iterator[str]:
    """An interval or a union with each choice of other brackets, and as sets."""
    places = [
        place for found in INTERVAL.finditer(text) for place in (found.start(1), found.start(4))
    ]
    for flipped in itertools.product((False, True), repeat=len(places)):
        other = list(text)
        for place, flip in zip(places, flipped, strict=True):
            other[place] = (
                other[place].translate(str.maketrans("([)]", "[(])")) if flip else other[place]
            )
        if any(flipped):
            yield "".join(other)
    yield INTERVAL.sub(r"\\{\2,\3\\}", text)
    yield text.replace(r"\cup", r"\cap") if r"\cup" in text else INTERVAL.sub(r"(\3,\2)", text)


@pytest.mark.slow
async def test_no_union_or_interval_with_other_brackets_or_ends_is_accepted(
    golds: list[str],
) -> None:
    known = [
        gold
        for gold in golds
        if r"\cup" in gold or re.fullmatch(INTERVAL, gold.partition(r"\in")[2] or gold)
    ]
    ends = ((-3, 2), (0, 5), (1, 7), (4, 9))
    known += [rf"({low},{high}) \cup [{high + 3},{high + 8})" for low, high in ends]
    wrong: Pairs = {(gold, other) for gold in known for other in (*brackets(gold), *raised(gold))}
    parts = {gold: gold.split(r"\cup") for gold in known if r"\cup" in gold}
    wrong |= {(gold, part) for gold in parts for part in parts[gold]}
    assert len(wrong) >= 200
    assert await notes_of(wrong, correct=False) == []
    right: Pairs = {(gold, r"\cup".join(reversed(parts[gold]))) for gold in parts}
    right |= {
        (gold, gold.replace("(", r"\left( ").replace(r"\cup", "∪").replace(r"\infty", "∞"))
        for gold in known
    }
    right |= {
        (r"(-\infty,2) \cup [3,\infty)", r"x<2 \text{ or } x\ge 3"),
        (r"[2,5)", r"2\le x<5"),
        ("x>3", r"(3,\infty)"),
    }
    assert await notes_of(right, correct=True) == []


async def test_no_tuple_or_list_of_tuples_with_moved_parts_is_accepted(golds: list[str]) -> None:
    known = [gold for gold in golds if re.fullmatch(r"(?:,? ?\([-\d, ;]+\))+", gold)]
    wrong: Pairs = {(gold, other) for gold in known for other in raised(gold)}
    right: Pairs = set()
    for gold in known:
        points = [re.split(r"\s*[,;]\s*", inner) for inner in re.findall(r"\(([^)]*)\)", gold)]
        moved = [
            [*points[:n], points[n][1:] + points[n][:1], *points[n + 1 :]]
            for n in range(len(points))
        ]
        if len(points) > 1:
            columns = [list(column) for column in zip(*points, strict=False)]
            moved += [points[1:], [*points, ["9"] * len(points[0])]]
            if len(columns) == len(points[0]):
                moved.append(
                    [
                        list(point)
                        for point in zip(columns[0][1:] + columns[0][:1], *columns[1:], strict=True)
                    ]
                )
            right.add((gold, ", ".join(f"({', '.join(point)})" for point in reversed(points))))
        moved += [[[*points[0], "0"], *points[1:]], [points[0][:-1], *points[1:]]]
        same = {tuple(point) for point in points}
        wrong |= {
            (gold, ",".join(f"({','.join(point)})" for point in others))
            for others in moved
            if {tuple(point) for point in others} != same
        }
        wrong.add((gold, rf"\{{{','.join(points[0])}\}}"))
        right.add((gold, gold.replace("(", r"\left(").replace(",", " , ")))
    assert len(wrong) >= 200
    assert await notes_of(wrong, correct=False) == []
    assert await notes_of(right, correct=True) == []


async def test_no_other_unit_is_accepted(golds: list[str]) -> None:
    known = {
        gold: found
        for gold in golds
        if (found := UNIT.match(gold)) is not None and found[2] != "yuan"
    }
    known |= {
        f"{n}\\text{{ {unit}}}": UNIT.match(f"{n}\\text{{ {unit}}}")
        for n, unit in ((12, "cm"), (30, "minutes"))
    }
    wrong: Pairs = set()
    right: Pairs = set()
    for gold, found in known.items():
        assert found is not None
        unit = "degrees" if found[4] else (found[2] or "") + (found[3] or "")
        for other in UNITS:
            name, _, power = other.partition("^")
            answer = rf"{found[1]} \text{{ {name}}}" + (f"^{power}" if power else "")
            (right if other == unit else wrong).add((gold, answer))
        right |= {(gold, found[1]), (gold, gold.replace("mbox", "text"))}
    assert len(wrong) >= 200
    assert await notes_of(wrong, correct=False) == []
    assert await notes_of(right, correct=True) == []


@pytest.mark.slow
async def test_no_other_derivative_is_accepted(golds: list[str]) -> None:
    known = [gold for gold in golds if re.fullmatch(r"[-+\d\\{}/^ ]*x[-+\d\\{}x/^ ]*", gold)] + [
        "x",
        "3x^{2}",
    ]
    sides = [rf"\frac{{dy}}{{dx}}={gold}" for gold in known]
    sides += [rf"7\frac{{dx}}{{dt}}={n}" for n in (14, 21)] + [
        rf"{n}\frac{{dr}}{{dt}}+{n}" for n in range(2, 22)
    ]
    wrong: Pairs = {
        (r"\frac{dy}{dx}", other) for other in ("0", "y", r"\frac{dx}{dy}", r"\frac{y}{x}", "1")
    }
    right: Pairs = {
        ("f'(x)", r"f^{\prime}(x)"),
        ("2x", r"\frac{d}{dx}(x^2)"),
        (r"\frac{dy}{dx}", r"\frac{d y}{d x}"),
    }
    for side in sides:
        bare = re.sub(r"\\frac\{d(\w)\}\{d\w\}", r"\1", side)
        wrong |= {
            (side, other)
            for other in (
                bare,
                "0",
                f"{side}+1",
                re.sub(r"\\frac\{d(\w)\}\{d(\w)\}", r"\\frac{d\2}{d\1}", side),
            )
        }
        wrong |= {
            (side, side.replace(r"\frac{d", r"2\frac{d", 1)),
            (side, re.sub(r"\{d\w\}(?=[=+])", "{ds}", side)),
        }
        wrong |= {(bare, side), (re.sub(r"\\frac\{d(\w)\}\{d\w\}", r"\1'", side), bare)}
        if "=" in side:
            right.add((side, r"2\cdot " + side.replace("=", "=2(") + ")"))
        right.add((side, side.replace(r"\frac{d", r"\dfrac{d ")))
    wrong = {(gold, answer) for gold, answer in wrong if gold != answer}
    assert len(wrong) >= 200
    assert await notes_of(wrong, correct=False) == []
    assert await notes_of(right, correct=True) == []
