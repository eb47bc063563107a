"""Real references turned into wrong answers, all refused, and rewritten ones, all accepted.

``golden/math_variants.jsonl`` holds them: other brackets and ends of intervals, moved parts of
tuples, other units, other derivatives.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from openconductor.graders.math import MathGrader
from openconductor.types import Problem

FILE = Path(__file__).resolve().parent.parent / "golden" / "math_variants.jsonl"
VARIANTS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]


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
