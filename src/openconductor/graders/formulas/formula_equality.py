r"""Decides if two values that ``formula_groups`` has read are the same.

Quotients are compared exactly. Other numbers must agree to 50 digits; numbers with long digits or
large powers of their own, which could come that close without being equal, must also have a
difference that sympy proves to be 0. Formulas with letters must agree, to as many digits, at all of
several points where both are real, so that ``\ln(ab)`` is ``\ln a+\ln b`` while ``|x|`` is not
``x``. Equations are the same if their sides' difference is, up to a factor. Only math workers
import this module.
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

from openconductor.graders.formulas.formula_groups import (
    EQUATED,
    NATURAL,
    WHOLE,
    Group,
    Relation,
    as_set,
    is_range,
    rename,
)
from openconductor.graders.formulas.formula_reader import letter

DIGITS = 50
SAME = sympy.Rational(1, 10**40)
ENOUGH_DIGITS = 10
"""Significant digits of a decimal that may stand for a number without an end as a decimal."""
ROUNDED_DIGITS = 3
"""Significant digits of a decimal that may stand beside its number in one chain."""
LARGE_EXPONENT = 30
LARGE = 10**9
"""The size from which a number inside a formula could bring two values close by design."""

_UNORDERED = {"list", "set"}
_CONSTANT = re.compile(r"C|c|K|k|A|B|D|const(?:ant)?|[CcK]_\d")
_ADDED = re.compile(r"C|const(?:ant)?")
_INTEGRATION = re.compile(r"C|c|const(?:ant)?|[CcK]_\d")
_INDEX = re.compile(r"_\d$")
_OF_X = re.compile(r"^[fg](?:\^-1)?('*)\(x\)$")
_DERIVATIVE = re.compile(r"\\frac\{d([a-z])\}\{d[a-z]\}")
_DRESS = re.compile(r"[|{}]|\\(?:overline|text)")
_AND_SO_ON = letter("ldots")
_PARAMETERS = {letter(name) for name in "nkm"}
# Factors of the letters' values at the points where formulas are compared, signs included.
_SIGNS_AT = ((1, 1, 1), (1, 1, 1), (-1, -1, -1), (1, -1, 1), (-1, 1, -1), (1, 1, 1), (1, 1, 1))


def same(gold, answer, tolerance: float | None = None) -> bool:
    """Return True if two values mean the same.

    The tolerance is relative to the gold's numbers; None: exact.
    """
    if gold is None or answer is None:
        return False
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _same_relation(gold, answer, tolerance)
    if isinstance(gold, Group | sympy.Set) or isinstance(answer, Group | sympy.Set):
        return _same_group(gold, answer, tolerance)
    return _same_formula(gold, answer, tolerance)


def _same_group(gold, answer, tolerance: float | None) -> bool:
    if isinstance(gold, Group) and isinstance(answer, Group):
        if gold.name and answer.name and not _same_name(gold.name, answer.name):
            return False
        if _same_items(gold, answer, tolerance):
            return True
    elif isinstance(gold, Group) and not isinstance(answer, sympy.Set):
        return _same_as_single(gold, answer, tolerance)
    elif isinstance(answer, Group) and not isinstance(gold, sympy.Set):
        return _same_as_single(answer, gold, tolerance)
    if not (is_range(gold) or is_range(answer)):
        return False
    gold_set = as_set(gold)
    answer_set = as_set(answer)
    if gold_set is None or answer_set is None:
        return False
    return gold_set == answer_set or gold_set.symmetric_difference(answer_set).is_empty is True


def _same_as_single(group: Group, value, tolerance: float | None) -> bool:
    """Compare a Group with a value that is none: its only member, a ratio's quotient, a matrix."""
    if group.kind in _UNORDERED and len(group.items) == 1:
        return same(group.items[0], value, tolerance)
    if group.kind == "ratio" and len(group.items) == 2:
        return same(group.items[0] / group.items[1], value, tolerance)
    if not isinstance(value, sympy.MatrixBase) or group.kind[-1] not in ")]":
        return False
    if group.kind == "()" and value.cols == 1:
        items = tuple(value)
    else:
        items = tuple(Group(group.kind, tuple(row)) for row in value.tolist())
    return _same_items(group, Group(group.kind, items), tolerance)


def _same_items(gold: Group, answer: Group, tolerance: float | None) -> bool:
    kinds = (gold.kind, answer.kind)
    unordered = kinds in (("union", "union"), ("union", "list")) or _UNORDERED.issuperset(kinds)
    if unordered and _AND_SO_ON not in gold.items:
        return _same_unordered(gold.items, answer.items, tolerance)
    answer_items = answer.items
    if kinds == ("list", "()"):
        # Names may stand for the places of a tuple ("x=1, y=2").
        names = {item.name for item in gold.items if isinstance(item, Relation)}
        if len(names - {""}) < len(gold.items):
            return False
    elif kinds == ("()", "list"):
        answer_items = sorted(answer.items, key=lambda item: getattr(item, "name", ""))
    elif gold.kind != answer.kind:
        return False
    if len(gold.items) != len(answer_items):
        return False
    pairs = zip(gold.items, answer_items, strict=True)
    return all(same(wanted, got, tolerance) for wanted, got in pairs)


def _same_unordered(gold: tuple, answer: tuple, tolerance: float | None) -> bool:
    """Return True if each item of one is the same as some item of the other."""
    for wanted in set(gold) - set(answer):
        if not any(_same_member(wanted, got, tolerance) for got in answer):
            return False
    for got in set(answer) - set(gold):
        if not any(_same_member(wanted, got, tolerance) for wanted in gold):
            return False
    return True


def _same_member(gold, answer, tolerance: float | None) -> bool:
    """Compare two members; a set is none of its own members there."""
    kinds = [getattr(item, "kind", "") for item in (gold, answer)]
    return kinds.count("set") != 1 and same(gold, answer, tolerance)


def _same_name(name: str, other: str) -> bool:
    """Return True if two names may be one: an index may be missing, and y may be f(x)."""
    name, other = (_DRESS.sub("", _DERIVATIVE.sub(r"\1'", text)) for text in (name, other))
    for first, second in ((name, other), (other, name)):
        if second in (first, _INDEX.sub("", first), _OF_X.sub(r"y\1", first)):
            return True
    return False


def _same_relation(gold, answer, tolerance: float | None) -> bool:
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return _same_relations(gold, answer, tolerance)
    if isinstance(gold, Relation):
        return _states_value(gold) and _is_any_value(gold, answer, tolerance)
    if not _is_equation(answer):
        return False
    values = _values(answer)
    unknowns = _letters(answer.items[0])
    if not answer.name and (values[-1] == 0 or len(unknowns) == 1):
        return False
    if not any(same(gold, value, tolerance) for value in values):
        return False
    if not _is_number(gold):
        return True
    return all(_agree_in_chain(gold, value) for value in values if _is_number(value))


def _is_equation(relation: Relation) -> bool:
    return EQUATED.issuperset(relation.marks)


def _letters(node) -> set:
    """Return what is unknown in a formula: its letters and functions."""
    if node is None:
        return set()
    if isinstance(node, Group | Relation):
        return set().union(*map(_letters, node.items))
    return node.free_symbols | node.atoms(AppliedUndef)


def _states_value(relation: Relation) -> bool:
    """Return True if an equation gives a value: its left side is a name or a number.

    ``AB=5`` gives one, ``PV=nRT`` and ``7=a+b`` do not.
    """
    if not _is_equation(relation):
        return False
    left = relation.items[0]
    if left is None or isinstance(left, sympy.Symbol | AppliedUndef):
        return bool(relation.name)
    loose = any(_letters(value) for value in _values(relation))
    if not _letters(left):
        return not loose
    product = isinstance(left, sympy.Mul) and "(" not in relation.name
    return bool(relation.name) and not (product and loose)


def _values(relation: Relation) -> list:
    """Return the members that state the value: all but a left side with letters or a name."""
    left = relation.items[0]
    skipped = 1 if left is None or _letters(left) else 0
    return [value for value in relation.items[skipped:] if value is not None]


def _is_any_value(gold: Relation, answer, tolerance: float | None) -> bool:
    return any(same(value, answer, tolerance) for value in _values(gold))


def _agree_in_chain(number, other) -> bool:
    """Return True if two numbers are equal, or one is the other's decimal with three digits."""
    if _same_numbers(number, other):
        return True
    return _shortens(number, other, ROUNDED_DIGITS) or _shortens(other, number, ROUNDED_DIGITS)


def _same_relations(gold: Relation, answer: Relation, tolerance: float | None) -> bool:
    left = gold.items[0]
    if left is not None and not _letters(left):
        return _is_any_value(gold, answer, tolerance)
    if gold.name and answer.name and _same_name(gold.name, answer.name):
        return _is_any_value(gold, answer, tolerance)
    if len(gold.items) != 2 or len(answer.items) != 2:
        return False
    if not all(isinstance(side, sympy.Expr) for side in (*gold.items, *answer.items)):
        return False
    wanted = gold.items[0] - gold.items[1]
    got = answer.items[0] - answer.items[1]
    if not _letters(wanted) or wanted.free_symbols != got.free_symbols:
        return False
    equations = _is_equation(gold) and _is_equation(answer)
    if equations:
        wanted, got = (sympy.fraction(sympy.together(side))[0] for side in (wanted, got))
    elif gold.marks != answer.marks:
        return False
    factor = sympy.cancel(wanted / got)
    if not factor.is_number:
        factor = sympy.simplify(factor)
    return factor.is_number and (equations or factor > 0)


def _same_formula(gold, answer, tolerance: float | None) -> bool:
    matrices = [isinstance(value, sympy.MatrixBase) for value in (gold, answer)]
    if any(matrices):
        if not all(matrices) or gold.shape != answer.shape:
            return False
        pairs = zip(gold, answer, strict=True)
        return all(_same_formula(wanted, got, tolerance) for wanted, got in pairs)
    if gold == answer:
        return True
    if not (_is_number(gold) and _is_number(answer)):
        return _same_family(_with_whole(gold, answer), _with_whole(answer, gold))
    if _same_numbers(gold, answer):
        return True
    return tolerance is not None and not gold.is_Integer and _near(gold, answer, tolerance)


def _is_number(formula) -> bool:
    return isinstance(formula, sympy.Expr) and formula.is_number


def _near(gold, answer, tolerance: float) -> bool:
    error = abs((gold - answer).evalf(DIGITS))
    size = abs(gold.evalf(DIGITS))
    return bool(error <= sympy.Rational(str(tolerance)) * size)


def _same_numbers(gold, answer) -> bool:
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
    if not _is_number(number) or _decimal_places(number) is not None:
        return False
    return _shortens(number, decimal, ENOUGH_DIGITS)


def _shortens(number, decimal, digits: int) -> bool:
    """Return True if a decimal of so many digits is a number, rounded or cut off."""
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
