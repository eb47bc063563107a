r"""Compares an answer and a reference as mathematical values.

References are texts (``\frac{1}{2}``, ``x=5``, ``\text{even}``, or a solution with its boxes). The
grade holds the extracted answer and the reason.

1. ``extraction`` finds the answer: the last box, the line marked as the answer, or a reply that is
   only an answer. A reply without one is wrong, with a note that begins with "unparsed".
2. ``math_text`` brings both into one form. The same text is right; words are compared as words.
3. ``numerals`` compares plain numbers exactly, in this process.
4. ``math_workers`` read and compare the rest with sympy, in processes that can be killed.

Integers are always exact; so is everything else unless the task gives a tolerance, which is
relative to the reference.

**Faults.** An answer that is a bomb (CPU time spent, out of memory twice, a crash twice) is *wrong*
by its own doing; masking it would reward writing one. A *reference* that cannot be
read, or is a bomb itself, leaves the answer undecided. Workers that do not start or get no CPU time
raise a GradingError, which masks the reward, because infrastructure never changes one.

Not covered: proofs, whether a form was asked for ("in simplest form": 2/4 is 1/2 here), which
variable a list belongs to (``a=1, b=2`` answered ``2, 1``), and ``\log`` without a base, which is
taken to be decimal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from openconductor.errors import ConfigError, GradingError
from openconductor.graders.extraction import find_answer, find_boxed
from openconductor.graders.formulas.clock import read_time, same_time
from openconductor.graders.formulas.math_text import normalise, same_text, split_unit, words_of
from openconductor.graders.formulas.math_workers import MathWorkers, shared_workers
from openconductor.graders.numerals import Numeral, equal_numerals, read_numeral
from openconductor.graders.reading.wording import plain_number
from openconductor.graders.units import Unit, ratio
from openconductor.types import Grade, Problem

LONGEST = 4000
"""Characters of the longest answer that is read."""

Decision = tuple[bool | None, str]
"""Right, wrong or undecided (None), and the note."""

_TEXT_ONLY = re.compile(r"\\text\s*\{[^{}]*\}|\([A-Z]\)")
_CHOICE = re.compile(r"(?:\\text\s*\{\s*)?\(([A-Z])\)")
_IN_BASE = re.compile(r"\d\s*_\s*\{?\d")


class MathGrader:
    """Compares mathematical values.

    Args:
        tolerance: the largest error of a number, relative to the reference; None: exact.
            References written as integers are exact in any case.
        workers: the processes that read formulas; None: the pool that all graders of this process
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
            ConfigError: sympy is needed and not installed.
        """
        reference = problem.reference
        if not isinstance(reference, str) or not reference.strip():
            raise GradingError(
                f"problem {problem.id}: got the reference {reference!r}, expected a text"
            )
        found = find_answer(answer)
        if not found.items:
            return Grade(False, note=f"unparsed: {found.reason}")
        try:
            return await self.compare(reference, found.items)
        except GradingError as error:
            raise GradingError(f"problem {problem.id}: {error}") from error

    async def compare(self, reference: str, items: Sequence[str]) -> Grade:
        """Grade an extracted answer, as the items of one list.

        Raises:
            GradingError: the reference has no value, or the workers failed.
            ConfigError: sympy is needed and not installed.
        """
        extracted = ", ".join(items)
        if len(extracted) > LONGEST:
            note = f"unreadable: longer than {LONGEST} characters"
            return Grade(False, extracted[:LONGEST], note)
        gold = normalise(_value_of(reference))
        answers = [normalise(item) for item in items]
        number = read_numeral(gold)
        decision = self._decide(gold, number, ", ".join(answers))
        if decision is None:
            decision = await self._ask_workers(gold, number, answers)
        correct, note = decision
        return Grade(correct, extracted, note)

    def _decide(self, gold: str, number: Numeral | None, answer: str) -> Decision | None:
        """Decide without reading formulas; None: formulas must be read."""
        if same_text(gold, answer):
            return True, "same text"
        time = read_time(gold)
        answered_time = read_time(answer)
        if time is not None and answered_time is not None:
            return same_time(time, answered_time), "time of day"
        words = words_of(gold)
        if words is not None:
            choice = _CHOICE.match(answer)
            if words == words_of(answer) or (choice is not None and words == choice[1]):
                return True, "same words"
            if _TEXT_ONLY.fullmatch(gold):
                return False, "other words"
        if time is not None and (number is None or not answer.isdigit()):
            return False, "another time"
        if number is not None and number.base is not None:
            return _is_in_base(number, answer), "number in a base"
        has_unit = number is not None and number.unit is not None
        answered = read_numeral(answer, comma=True, letters=has_unit)
        if number is not None and answered is None:
            answered = read_numeral(plain_number(words_of(answer) or ""))
        if number is not None and answered is not None:
            return equal_numerals(number, answered, tolerance=self.tolerance), "number"
        if _IN_BASE.search(gold) or _IN_BASE.search(answer):
            return False, "numbers in a base are compared as they are written"
        if number is None and len(gold) > LONGEST:
            return None, f"undecided: the reference cannot be read: {gold[:80]}"
        return None

    async def _ask_workers(
        self, gold: str, number: Numeral | None, answers: Sequence[str]
    ) -> Decision:
        """Let a worker read the formulas.

        Raises:
            GradingError: the workers failed.
        """
        formula, unit = _gold_formula(gold, number)
        answer_formulas: list[str] = []
        for answer in answers:
            answer_formula = _formula_in_unit(answer, unit)
            if answer_formula is None:
                return False, "another kind of unit"
            answer_formulas.append(answer_formula)
        workers = self._workers or shared_workers()
        verdict, gold_read = await workers.judge(formula, answer_formulas, self.tolerance)
        if verdict == "starved":
            raise GradingError("math workers: got no CPU time, expected an idler machine")
        if verdict in {"equal", "different"}:
            return verdict == "equal", "formula"
        if verdict == "error":
            return None, "undecided: the comparison failed"
        if verdict == "unread answer" or (verdict == "unread gold" and number is not None):
            return False, "unreadable: the answer is no formula"
        if verdict == "unread gold":
            return None, f"undecided: the reference cannot be read: {gold}"
        limit = {"cpu": "timeout", "memory": "out of memory"}.get(verdict, verdict)
        if gold_read:
            return False, f"{limit}: reading the answer took all of it"
        return None, f"undecided: {limit} while the reference was read"


def _is_in_base(gold: Numeral, answer: str) -> bool:
    """Return True if an answer has the digits of a reference, in its base or in none."""
    answered = read_numeral(answer)
    if answered is None or answered.base is None:
        answered = read_numeral(f"{answer}_{{{gold.base}}}")
    return answered is not None and equal_numerals(gold, answered)


def _gold_formula(gold: str, number: Numeral | None) -> tuple[str, Unit | None]:
    """Return the reference as a formula, and its unit."""
    formula, unit = split_unit(gold)
    if number is not None and not number.percent:
        unit = number.unit
        value = number.value
        formula = str(value)
        if value.denominator != 1:
            formula = rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    return formula.removeprefix("$"), unit


def _formula_in_unit(answer: str, unit: Unit | None) -> str | None:
    """Return an answer as a formula in the reference's unit; None: its unit is of another kind."""
    formula, answer_unit = split_unit(answer)
    formula = formula.removeprefix("$")
    size = ratio(unit, answer_unit)
    if size is None:
        return None
    if size == 1:
        return formula
    return rf"({formula}) \cdot \frac{{{size.numerator}}}{{{size.denominator}}}"


def _value_of(reference: str) -> str:
    """Return the marked answer of a reference that is a whole solution; else the reference."""
    found = find_answer(reference)
    if found.reason and find_boxed(reference) is not None:
        raise GradingError(f"got a reference without a value ({found.reason}), expected one")
    return found.text or reference
