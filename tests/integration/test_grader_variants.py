"""Real references turned into wrong answers, all refused, and rewritten ones, all accepted.

``golden/math_variants.jsonl`` holds other brackets and ends of intervals, moved parts of tuples,
other units, other derivatives. ``golden/math_pairs.jsonl`` holds right and wrong answers over each
rule of the math grader; where the verdict is another one today, it stands in ``graded``.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from openconductor.graders.math import MathGrader
from openconductor.types import Problem

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def read_rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text("utf-8").splitlines()]


VARIANTS = read_rows("math_variants.jsonl")
PAIRS = read_rows("math_pairs.jsonl")


@pytest.mark.parametrize("kind", ["brackets", "tuples", "units", "derivatives"])
async def test_only_variants_of_the_same_value_are_accepted(kind: str) -> None:
    pytest.importorskip("sympy")
    variants = [variant for variant in VARIANTS if variant["of"] == kind]
    problems = [Problem("p", "", variant["reference"], "t") for variant in variants]
    answers = [rf"\boxed{{{variant['answer']}}}" for variant in variants]
    grades = await asyncio.gather(*map(MathGrader().grade, problems, answers))
    assert len(grades) >= 130
    for variant, grade in zip(variants, grades, strict=True):
        assert grade.correct is variant["correct"], (variant, grade)


@pytest.mark.parametrize("rule", sorted({pair["of"] for pair in PAIRS}))
async def test_pairs_of_each_rule_are_graded_as_they_are_written_down(rule: str) -> None:
    pytest.importorskip("sympy")
    pairs = [pair for pair in PAIRS if pair["of"] == rule]
    problems = [Problem("p", "", pair["reference"], "t") for pair in pairs]
    grades = await asyncio.gather(*map(MathGrader().grade, problems, [p["answer"] for p in pairs]))
    for pair, grade in zip(pairs, grades, strict=True):
        assert grade.correct is pair.get("graded", pair["correct"]), (pair, grade)


def test_no_wrong_pair_is_known_to_be_accepted_and_few_right_ones_are_not() -> None:
    known = [pair for pair in PAIRS if "graded" in pair]
    assert not [pair for pair in known if pair["graded"] is True]
    assert len(known) <= 12
    assert min(Counter(pair["of"] for pair in PAIRS).values()) >= 60
