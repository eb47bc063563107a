r"""Decides if two expressions, matrices or numbers are the same.

Quotients are compared exactly. Other numbers must agree to 50 digits; numbers with long digits or
large powers of their own, which could come that close without being equal, must also have a
difference that sympy proves to be 0. Formulas with letters must agree, to as many digits, at all of
several points where both are real, so that ``\ln(ab)`` is ``\ln a+\ln b`` while ``|x|`` is not
``x``. Constants of integration and whole numbers may have other names and begin elsewhere. Only
math workers import this module.
"""

from __future__ import annotations

# sympy carries no types.
# pyright: basic, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false
import itertools
import re

import sympy
from sympy.core.function import AppliedUndef

from openconductor.graders.formulas.formula_reader import letter
from openconductor.graders.formulas.formula_sets import NATURAL, WHOLE, rename

DIGITS = 50
SAME = sympy.Rational(1, 10**40)
ENOUGH_DIGITS = 10
"""Significant digits of a decimal that may stand for a number without an end as a decimal."""
LARGE_EXPONENT = 30
LARGE = 10**9
"""The size from which a number inside a formula could bring two values close by design."""

_CONSTANT = re.compile(r"C|c|K|k|A|B|D|const(?:ant)?|[CcK]_\d")
_ADDED = re.compile(r"C|const(?:ant)?")
_INTEGRATION = re.compile(r"C|c|const(?:ant)?|[CcK]_\d")
_PARAMETERS = {letter(name) for name in "nkm"}
# Factors of the letters' values at the points where formulas are compared, signs included.
_SIGNS_AT = ((1, 1, 1), (1, 1, 1), (-1, -1, -1), (1, -1, 1), (-1, 1, -1), (1, 1, 1), (1, 1, 1))


def same_formula(gold, answer, tolerance: float | None) -> bool:
    """Return True if two expressions or matrices are the same; None as tolerance: exactly."""
    matrices = [isinstance(value, sympy.MatrixBase) for value in (gold, answer)]
    if any(matrices):
        if not all(matrices) or gold.shape != answer.shape:
            return False
        pairs = zip(gold, answer, strict=True)
        return all(same_formula(wanted, got, tolerance) for wanted, got in pairs)
    if gold == answer:
        return True
    if not (is_number(gold) and is_number(answer)):
        return _same_family(_with_whole(gold, answer), _with_whole(answer, gold))
    if same_numbers(gold, answer):
        return True
    return tolerance is not None and not gold.is_Integer and _near(gold, answer, tolerance)


def is_number(formula) -> bool:
    """Return True for an expression without letters."""
    return isinstance(formula, sympy.Expr) and formula.is_number


def _near(gold, answer, tolerance: float) -> bool:
    error = abs((gold - answer).evalf(DIGITS))
    size = abs(gold.evalf(DIGITS))
    return bool(error <= sympy.Rational(str(tolerance)) * size)


def same_numbers(gold, answer) -> bool:
    """Return True if two numbers are exactly the same."""
    if gold.is_Rational and answer.is_Rational:
        return gold == answer
    if not gold.is_finite or not answer.is_finite:
        return False
    return _agree(gold.evalf(DIGITS), answer.evalf(DIGITS)) and _is_certain(gold, answer)


def _agree(wanted, got) -> bool:
    return bool(abs(wanted - got) <= SAME * abs(wanted))


def _is_certain(gold, answer) -> bool:
    """Return True if formulas that agree are the same: none could be close by design, or proven."""
    for formula in (gold, answer):
        numbers = [max(abs(number.p), number.q) for number in formula.atoms(sympy.Rational)]
        powers = formula.atoms(sympy.Pow)
        exponents = [abs(power.exp) for power in powers if power.exp.is_Rational]
        if max(numbers, default=0) > LARGE or max(exponents, default=0) > LARGE_EXPONENT:
            return _is_proven(gold, answer)
    return True


def _is_proven(gold, answer) -> bool:
    return sympy.simplify(gold - answer) == 0


def _with_whole(formula, other):
    """Read the only n, k or m of a formula as the whole number that the other one declares."""
    declared = other.free_symbols & {WHOLE, NATURAL}
    loose = formula.free_symbols & _PARAMETERS
    if not declared or len(loose) != 1 or formula.free_symbols & {WHOLE, NATURAL}:
        return formula
    return rename(formula, {loose.pop(): declared.pop()})


def _same_family(gold, answer) -> bool:
    """Return True if two formulas agree, but for the names and shifts of their constants."""
    if _same_progression(gold, answer) or _same_antiderivatives(gold, answer):
        return True
    return any(_same_function(gold, candidate) for candidate in _renamed(gold, answer))


def _same_progression(gold, answer) -> bool:
    """Return True if two formulas of any whole number run through the same values."""
    step = sympy.diff(gold, WHOLE)
    if step == 0 or not step.is_number:
        return False
    for candidate in (answer, answer.subs(WHOLE, -WHOLE)):
        if sympy.simplify((gold - candidate) / step).is_integer:
            return True
    return False


def _same_antiderivatives(gold, answer) -> bool:
    """Return True if two formulas with a constant of integration differ by a constant."""
    letters = gold.free_symbols | answer.free_symbols
    for formula, names in ((gold, _ADDED), (answer, _CONSTANT)):
        constants = {symbol for symbol in formula.free_symbols if names.fullmatch(symbol.name)}
        if {sympy.diff(formula, symbol) for symbol in constants} != {sympy.S.One}:
            return False
        letters -= constants
    for symbol in letters:
        if not _same_function(sympy.diff(gold, symbol), sympy.diff(answer, symbol)):
            return False
    return bool(letters)


def _renamed(gold, answer) -> list:
    """Return the answer, and the answer with its constants named as the gold's."""
    wanted = _constants(gold)
    got = _constants(answer)
    if gold.is_Symbol or answer.is_Symbol or len(wanted) != len(got) or len(wanted) > 3:
        return [answer]
    arbitrary = _are_arbitrary(gold, wanted) or _are_arbitrary(answer, got)
    if not arbitrary and sorted(map(str, (*wanted, *got))) != ["C", "c"]:
        return [answer]
    orders = [dict(zip(got, order, strict=True)) for order in itertools.permutations(wanted)]
    return [answer, *(answer.subs(order, simultaneous=True) for order in orders)]


def _constants(formula) -> list:
    letters = sorted(formula.free_symbols, key=str)
    return [symbol for symbol in letters if _CONSTANT.fullmatch(symbol.name)]


def _are_arbitrary(formula, letters: list) -> bool:
    """Return True if one of the letters is a constant of integration."""
    for symbol in letters:
        slope = sympy.diff(formula, symbol)
        arbitrary = slope == 1 or slope.has(sympy.exp, sympy.sin, sympy.cos) or "_" in symbol.name
        if arbitrary and _INTEGRATION.fullmatch(symbol.name):
            return True
    return False


def _same_function(gold, answer) -> bool:
    """Return True if two formulas agree at several points where both are real."""
    if gold.has(AppliedUndef) or answer.has(AppliedUndef):
        return _is_proven(gold, answer)
    letters = sorted(gold.free_symbols | answer.free_symbols, key=str)
    positive = _positive_letters(gold) | _positive_letters(answer)
    real = not (gold.has(sympy.I) or answer.has(sympy.I))
    comparable = 0
    for number in range(len(_SIGNS_AT)):
        point = _point(number, letters, positive)
        values = [formula.subs(point).evalf(DIGITS) for formula in (gold, answer)]
        if not all(value.is_number and value.is_finite for value in values):
            continue
        if real and not all(value.is_real for value in values):
            continue
        if not _agree(*values):
            return False
        comparable += 1
    if comparable < 2:
        return _is_proven(gold, answer)
    return _is_certain(gold, answer)


def _point(number: int, letters: list, positive: set) -> dict:
    """Return the values of the letters at the point of a number; the last points are whole."""
    point = {}
    for place, symbol in enumerate(letters):
        top = 17 + 6 * place + 11 * number
        value = sympy.Rational(top, 11 + 2 * place + 7 * number % 13)
        if number >= 5:  # for factorials and (-1)^n
            value = sympy.Integer(4 + 3 * place + number * (place + 1) % 5)
        if symbol not in positive:
            value *= _SIGNS_AT[number][place % 3]
        point[symbol] = value
    return point


def _positive_letters(formula) -> set:
    """Return the letters that are factors under a root or a logarithm."""
    insides = [power.base for power in formula.atoms(sympy.Pow) if not power.exp.is_integer]
    insides += [logarithm.args[0] for logarithm in formula.atoms(sympy.log)]
    factors = [factor for inside in insides for factor in sympy.Mul.make_args(inside)]
    return {factor.as_base_exp()[0] for factor in factors} & formula.free_symbols


def stands_for(number, decimal) -> bool:
    """Return True if a long decimal begins a number that has no end as a decimal."""
    if not is_number(number) or _decimal_places(number) is not None:
        return False
    return shortens(number, decimal, ENOUGH_DIGITS)


def shortens(number, decimal, digits: int) -> bool:
    """Return True if a decimal with at least ``digits`` digits is a number rounded or cut off."""
    places = _decimal_places(decimal)
    if places is None or number.is_negative != decimal.is_negative:
        return False
    steps = abs(decimal) * 10**places
    difference = (abs(number) * 10**places - steps).evalf(DIGITS)
    return steps >= 10 ** (digits - 1) and bool(-1 <= 2 * difference < 2)


def _decimal_places(number) -> int | None:
    """Return the decimal places of a quotient that has an end as a decimal, else None."""
    if not isinstance(number, sympy.Rational):
        return None
    for places in range(100):
        if 10**places % number.q == 0:
            return places
    return None
