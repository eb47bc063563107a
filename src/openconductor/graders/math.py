r"""The math grader: whether an answer and a reference are the same mathematical value.

In: a problem whose reference is a text (``\frac{1}{2}``, ``x=5``, ``\text{even}``, or a solution
with its boxes). Out:
right, wrong or undecided, with what was read off the answer and why.

1. ``extraction`` finds the answer: the last box, the line marked as the answer, or a reply that is nothing else. Where
   there is none, the answer is wrong, with a note that begins with "unparsed".
2. ``math_text`` brings both into one form. The same text is right; words are compared as words.
3. ``numerals`` compares plain numbers exactly, here in this process.
4. ``math_workers`` ask math-verify about the rest, in processes that can be killed.

Integers are exact, always; so is everything else unless the task gives a tolerance, which is
relative to the reference.

**Whose fault is it?** An answer that is a bomb (CPU time spent, out of memory twice, a crash twice)
is *wrong*, for that is the answer's own doing, and masking it would reward writing one. A
*reference* that cannot be read, or is a bomb itself, leaves the answer undecided. Workers that do
not start or get no CPU time raise a GradingError, which masks the reward: infrastructure never
changes one.

Not covered: proofs, whether a form was asked for ("in simplest form": 2/4 is 1/2 here), which
variable a list belongs to (``a=1, b=2`` answered ``2, 1``), and ``\log`` without a base, which is
taken to be decimal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from openconductor.errors import ConfigError, GradingError
from openconductor.graders.extraction import find_answer, find_boxed
from openconductor.graders.math_text import normalise, same_text, split_unit, words_of
from openconductor.graders.math_workers import MathWorkers, shared_workers
from openconductor.graders.numerals import Numeral, equal_numerals, read_numeral
from openconductor.graders.units import ratio
from openconductor.types import Grade, Problem

LONGEST = 4000
"""Characters of the longest answer that is looked at."""

_TEXT_ONLY = re.compile(r"\\text\s*\{[^{}]*\}|\([A-Z]\)")
_FULL_HOUR = re.compile(r"\d{1,2}:00")  # read as a ratio, it is a division by zero
_IN_BASE = re.compile(r"\d\s*_\s*\{?\d")
_SPACED_DIGITS = re.compile(r"\d\s+\d")


class MathGrader:
    """Compares mathematical values.

    Args:
        tolerance: the largest error of a number, relative to the reference; None is exact.
            References written as integers are exact in any case.
        workers: the processes that read formulas; None is the pool that all graders of this process
            share.

    Raises:
        ConfigError: the tolerance is not at least 0 and below 1.
    """

    def __init__(
        self, tolerance: float | None = None, *, workers: MathWorkers | None = None
    ) -> None:
        if tolerance is not None and not 0 <= tolerance < 1:
            raise ConfigError(
                f"math grader: got the tolerance {tolerance!r}, expected 0 to below 1, or None"
            )
        self.tolerance = tolerance
        self._workers = workers

    async def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade one answer.

        Raises:
            GradingError: the reference is no text or blank, or the workers failed.
            ConfigError: math-verify is needed and not installed.
        """
        if not isinstance(problem.reference, str) or not problem.reference.strip():
            raise GradingError(
                f"problem {problem.id}: got the reference {problem.reference!r}, expected a text"
            )
        found = find_answer(answer)
        if not found.items:
            return Grade(False, note=f"unparsed: {found.why}")
        try:
            return await self.compare(problem.reference, found.items)
        except GradingError as error:
            raise GradingError(f"problem {problem.id}: {error}") from error

    async def compare(self, reference: str, items: Sequence[str]) -> Grade:
        """Grade an answer that has been found already, as the items of one list.

        Raises:
            GradingError: the reference has no value, or the workers failed.
            ConfigError: math-verify is needed and not installed.
        """
        extracted = ", ".join(items)
        if len(extracted) > LONGEST:
            return Grade(
                False, extracted[:LONGEST], f"unreadable: longer than {LONGEST} characters"
            )
        gold = normalise(_value_of(reference))
        answers = [normalise(item) for item in items]
        whole = ", ".join(answers)
        number = read_numeral(gold)
        decided = self._decided(gold, number, whole)
        if decided is not None:
            return Grade(decided[0], extracted, decided[1])
        if number is None and (_SPACED_DIGITS.search(gold) or len(gold) > LONGEST):
            return Grade(None, extracted, f"undecided: the reference cannot be read: {gold[:80]}")
        formulas = _formulas(gold, number, answers)
        if formulas is None:
            return Grade(False, extracted, "another kind of unit")
        workers = self._workers or shared_workers()
        verdict, gold_read = await workers.judge(formulas[0], formulas[1:], self.tolerance)
        if verdict == "starved":
            raise GradingError("math workers: got no CPU time, expected an idler machine")
        if verdict in {"equal", "different"}:
            return Grade(verdict == "equal", extracted, "math-verify")
        if verdict == "unread answer" or (verdict == "unread gold" and number is not None):
            return Grade(False, extracted, "unreadable: the answer is no formula")
        if verdict == "unread gold":
            return Grade(None, extracted, f"undecided: the reference cannot be read: {gold}")
        what = {"cpu": "timeout", "memory": "out of memory"}.get(verdict, verdict)
        if gold_read:
            return Grade(False, extracted, f"{what}: reading the answer took all of it")
        return Grade(None, extracted, f"undecided: {what} while the reference was read")

    def _decided(self, gold: str, number: Numeral | None, answer: str) -> tuple[bool, str] | None:
        """What can be said without reading formulas."""
        words, answered = words_of(gold), read_numeral(answer, comma=True)
        if same_text(gold, answer):
            return True, "same text"
        if words is not None and words == words_of(answer):
            return True, "same words"
        if words is not None and _TEXT_ONLY.fullmatch(gold):
            return False, "other words"
        if _FULL_HOUR.fullmatch(gold):
            return False, "another time"
        if number is not None and answered is not None:
            return equal_numerals(number, answered, tolerance=self.tolerance), "number"
        if _IN_BASE.search(gold) or _IN_BASE.search(answer):
            return False, "numbers in a base are compared as they are written"
        if _SPACED_DIGITS.search(answer) and (
            number is not None or not _SPACED_DIGITS.search(gold)
        ):
            return False, "unreadable: digits with blanks between them"
        return None


def _formulas(gold: str, number: Numeral | None, answers: Sequence[str]) -> list[str] | None:
    """The reference and the answers as formulas in the reference's unit; None where one has another kind of unit."""
    formula, unit = split_unit(gold)
    if number is not None and not number.percent:
        formula, unit = (
            rf"\frac{{{number.value.numerator}}}{{{number.value.denominator}}}",
            number.unit,
        )
        formula = str(number.value) if number.value.denominator == 1 else formula
    formulas = [formula.removeprefix("$")]
    for answer in answers:
        answered, answered_unit = split_unit(answer)
        answered = answered.removeprefix("$")
        size = ratio(unit, answered_unit)
        if size is None:
            return None
        if size != 1:
            answered = rf"({answered}) \cdot \frac{{{size.numerator}}}{{{size.denominator}}}"
        formulas.append(answered)
    return formulas


def _value_of(reference: str) -> str:
    """What a reference marks as its answer, if it is a whole solution; else the reference itself."""
    found = find_answer(reference)
    if found.why and find_boxed(reference) is not None:
        raise GradingError(f"got a reference without a value ({found.why}), expected one")
    return found.text or reference
