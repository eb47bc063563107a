"""Real references turned into wrong answers, all refused, and rewritten ones, all accepted.

There are two hundred wrong ones and more for each of unions, tuples, units and derivatives.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from openconductor.graders.formulas.math_text import normalise
from openconductor.graders.math import MathGrader
from openconductor.types import Problem

Pairs = set[tuple[str, str]]
"""References, each with an answer."""

INTERVAL = re.compile(r"([(\[])([^()\[\],]+),([^()\[\],]+)([)\]])")
FLIPPED = str.maketrans("([)]", "[(])")
NUMBER = re.compile(r"(?<![\w.{\\])\d+(?![\w.}])")
UNITS = (
    "m cm cm^2 cm^3 km inches inches^2 feet miles kg g hours minutes days "
    "km/h h/km m/s m/s^2 degrees radians dollars liters"
)
UNIT = re.compile(r"^(.*[\d}]) *(?:\\(?:text|mbox)\{ *([a-z]+) *\}(\^\d)?|(\^\\circ))$")
QUOTIENT = re.compile(r"\\frac\{d(\w)\}\{d(\w)\}")


@pytest.fixture(scope="module")
def golds(shared_data: Path) -> list[str]:
    """The references of all mathematical data sets, in one form."""
    texts: list[str] = []
    for name in ("math500", "math_model_answers", "math_verify_cases"):
        for line in (shared_data / name / "data.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            row = row.get("params", row)
            texts.append(row.get("answer") or row["gold"])
    short = [text for text in texts if len(text) < 120 and "boxed" not in text]
    return sorted(set(map(normalise, short)))


async def check(wrong: Pairs, right: Pairs) -> None:
    """Check that enough wrong pairs are refused, and all right ones accepted."""
    assert len(wrong) >= 200
    assert await misjudged(wrong, correct=False) == []
    assert await misjudged(right, correct=True) == []


async def misjudged(pairs: Pairs, *, correct: bool) -> list[str]:
    """Return the pairs that are not graded as they should, each with its grade."""
    ordered = sorted(pairs)
    problems = [Problem("p", "", gold, "t") for gold, _ in ordered]
    answers = [rf"\boxed{{{answer}}}" for _, answer in ordered]
    grades = await asyncio.gather(*map(MathGrader().grade, problems, answers))
    judged = zip(ordered, grades, strict=True)
    return [f"{pair}: {grade}" for pair, grade in judged if grade.correct is not correct]


def raised(text: str) -> Iterator[str]:
    """Yield a text with each of its whole numbers one larger, or of another sign."""
    for number in NUMBER.finditer(text):
        others = [str(int(number[0]) + 1)]
        if int(number[0]):
            others.append(f"-{number[0]}")
        for other in others:
            yield f"{text[: number.start()]}{other}{text[number.end() :]}".replace("--", "")


def other_brackets(text: str) -> Iterator[str]:
    """Yield an interval or a union with each choice of other brackets, and as sets."""
    places: list[int] = []
    for interval in INTERVAL.finditer(text):
        places += [interval.start(1), interval.start(4)]
    for count in range(1, len(places) + 1):
        for flipped in itertools.combinations(places, count):
            other = list(text)
            for place in flipped:
                other[place] = other[place].translate(FLIPPED)
            yield "".join(other)
    yield INTERVAL.sub(r"\\{\2,\3\\}", text)
    yield text.replace(r"\cup", r"\cap") if r"\cup" in text else INTERVAL.sub(r"(\3,\2)", text)


@pytest.mark.slow
async def test_no_union_or_interval_with_other_brackets_or_ends_is_accepted(
    golds: list[str],
) -> None:
    known = [
        "(-3,2) \\cup [5,10)",
        "(0,5) \\cup [8,13)",
        "(1,7) \\cup [10,15)",
        "(4,9) \\cup [12,17)",
    ]
    for gold in golds:
        interval = gold.partition(r"\in")[2] or gold
        if r"\cup" in gold or INTERVAL.fullmatch(interval):
            known.append(gold)
    wrong: Pairs = set()
    right: Pairs = {
        (r"(-\infty,2) \cup [3,\infty)", r"x<2 \text{ or } x\ge 3"),
        (r"[2,5)", r"2\le x<5"),
        ("x>3", r"(3,\infty)"),
    }
    for gold in known:
        wrong |= {(gold, other) for other in (*other_brackets(gold), *raised(gold))}
        unicode = gold.replace("(", r"\left( ").replace(r"\cup", "∪").replace(r"\infty", "∞")
        right.add((gold, unicode))
        parts = gold.split(r"\cup")
        if len(parts) > 1:
            wrong |= {(gold, part) for part in parts}
            right.add((gold, r"\cup".join(reversed(parts))))
    await check(wrong, right)


Point = list[str]


def moved(points: list[Point]) -> Iterator[list[Point]]:
    """Yield points with parts moved, added or left out."""
    for n, point in enumerate(points):
        yield [*points[:n], point[1:] + point[:1], *points[n + 1 :]]
    first, *others = points
    yield [[*first, "0"], *others]
    yield [first[:-1], *others]
    if others:
        yield others
        yield [*points, ["9"] * len(first)]
        same_length = all(len(point) == len(first) for point in points)
        if same_length:  # the first parts are passed on to the next point
            firsts = [point[0] for point in (*others, first)]
            yield [[part, *point[1:]] for part, point in zip(firsts, points, strict=True)]


async def test_no_tuple_or_list_of_tuples_with_moved_parts_is_accepted(golds: list[str]) -> None:
    wrong: Pairs = set()
    right: Pairs = set()
    for gold in golds:
        if not re.fullmatch(r"(?:,? ?\([-\d, ;]+\))+", gold):
            continue
        points = [re.split(r"\s*[,;]\s*", inner) for inner in re.findall(r"\(([^)]*)\)", gold)]
        same = set(map(tuple, points))
        wrong |= {(gold, other) for other in raised(gold)}
        for others in moved(points):
            if set(map(tuple, others)) != same:
                wrong.add((gold, ",".join(f"({','.join(point)})" for point in others)))
        wrong.add((gold, rf"\{{{','.join(points[0])}\}}"))
        right.add((gold, gold.replace("(", r"\left(").replace(",", " , ")))
        right.add((gold, ", ".join(f"({', '.join(point)})" for point in reversed(points))))
    await check(wrong, right)


async def test_no_other_unit_is_accepted(golds: list[str]) -> None:
    wrong: Pairs = set()
    right: Pairs = set()
    for gold in (*golds, r"12\text{ cm}", r"30\text{ minutes}"):
        quantity = UNIT.match(gold)
        if quantity is None or quantity[2] == "yuan":
            continue
        number = quantity[1]
        unit = "degrees" if quantity[4] else f"{quantity[2]}{quantity[3] or ''}"
        for other in UNITS.split():
            name, caret, power = other.partition("^")
            pair = (gold, rf"{number} \text{{ {name}}}{caret}{power}")
            (right if other == unit else wrong).add(pair)
        right |= {(gold, number), (gold, gold.replace("mbox", "text"))}
    await check(wrong, right)


@pytest.mark.slow
async def test_no_other_derivative_is_accepted(golds: list[str]) -> None:
    known = [gold for gold in golds if re.fullmatch(r"[-+\d\\{}/^ ]*x[-+\d\\{}x/^ ]*", gold)]
    sides = [rf"\frac{{dy}}{{dx}}={gold}" for gold in (*known, "x", "3x^{2}")]
    sides += [r"7\frac{dx}{dt}=14", r"7\frac{dx}{dt}=21"]
    sides += [rf"{n}\frac{{dr}}{{dt}}+{n}" for n in range(2, 22)]
    others = ("0", "y", r"\frac{dx}{dy}", r"\frac{y}{x}", "1")
    wrong: Pairs = {(r"\frac{dy}{dx}", other) for other in others}
    right: Pairs = {
        ("f'(x)", r"f^{\prime}(x)"),
        ("2x", r"\frac{d}{dx}(x^2)"),
        (r"\frac{dy}{dx}", r"\frac{d y}{d x}"),
    }
    for side in sides:
        bare = QUOTIENT.sub(r"\1", side)
        turned = QUOTIENT.sub(r"\\frac{d\2}{d\1}", side)
        doubled = side.replace(r"\frac{d", r"2\frac{d", 1)
        by_another = re.sub(r"\{d\w\}(?=[=+])", "{ds}", side)
        wrong |= {(side, other) for other in (bare, "0", f"{side}+1", turned, doubled, by_another)}
        wrong |= {(bare, side), (QUOTIENT.sub(r"\1'", side), bare)}
        right.add((side, side.replace(r"\frac{d", r"\dfrac{d ")))
        if "=" in side:
            right.add((side, r"2\cdot " + side.replace("=", "=2(") + ")"))
    await check({(gold, answer) for gold, answer in wrong if gold != answer}, right)
