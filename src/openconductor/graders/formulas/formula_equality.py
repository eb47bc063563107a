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

from openconductor.graders.formulas.formula_groups import (
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
"""Significant digits of a decimal that may stand for a number, as in ``numerals``."""
LARGE = 10**9
"""The size from which a number inside a formula could bring two values close by design."""

_UNORDERED = {"list", "set"}
_CONSTANT = re.compile(r"C|c|K|k|A|B|D|const(?:ant)?|[CcK]_\d")
_INTEGRATION = re.compile(r"C|c|const(?:ant)?|[CcK]_\d")
_INDEX = re.compile(r"_\d$")
_DERIVATIVE = re.compile(r"\\frac\{d([a-z])\}\{d[a-z]\}")
_DRESS = re.compile(r"[|{}]|\\(?:overline|text)")
_AND_SO_ON = letter("ldots")
_PARAMETERS = [letter(name) for name in "nkm"]
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


def _same_as_single(group: Group, other, tolerance: float | None) -> bool:
    """Compare a Group with a value that is none: its only member, a ratio's quotient, a column."""
    if group.kind in _UNORDERED and len(group.items) == 1:
        return same(group.items[0], other, tolerance)
    if group.kind == "ratio" and len(group.items) == 2:
        return same(group.items[0] / group.items[1], other, tolerance)
    if not isinstance(other, sympy.MatrixBase):
        return False
    if group.kind == "()" and other.cols == 1:
        return _same_items(group, Group("()", tuple(other)), tolerance)
    rows = [Group(group.kind, tuple(other.row(place))) for place in range(other.rows)]
    return group.kind[-1] in ")]" and _same_items(group, Group(group.kind, tuple(rows)), tolerance)


def _same_items(gold: Group, answer: Group, tolerance: float | None) -> bool:
    kinds = (gold.kind, answer.kind)
    unordered = kinds in (("union", "union"), ("union", "list")) or _UNORDERED.issuperset(kinds)
    if unordered and _AND_SO_ON not in gold.items:
        return _same_unordered(gold, answer, tolerance)
    if len(gold.items) != len(answer.items):
        return False
    if kinds == ("ratio", "ratio"):
        first, other = gold.items[0], answer.items[0]
        pairs = zip(gold.items, answer.items, strict=True)
        return all(same(wanted * other, got * first, tolerance) for wanted, got in pairs)
    if kinds == ("list", "()"):
        # Names may stand for the places of a tuple ("x=1, y=2").
        names = {item.name for item in gold.items if isinstance(item, Relation)}
        comparable = len(names - {""}) == len(gold.items)
    elif kinds == ("()", "list"):
        names = [item.name for item in answer.items if isinstance(item, Relation)]
        comparable = names == sorted(names)
    else:
        comparable = gold.kind == answer.kind
    if not comparable:
        return False
    pairs = zip(gold.items, answer.items, strict=True)
    return all(same(wanted, got, tolerance) for wanted, got in pairs)


def _same_unordered(gold: Group, answer: Group, tolerance: float | None) -> bool:
    """Return True if each item of one is the same as some item of the other."""
    missing = [item for item in gold.items if item not in answer.items]
    for wanted in missing:
        if not any(_same_member(wanted, got, tolerance) for got in answer.items):
            return False
    extra = [item for item in answer.items if item not in gold.items]
    for got in extra:
        if not any(_same_member(wanted, got, tolerance) for wanted in gold.items):
            return False
    return True


def _same_member(gold, answer, tolerance: float | None) -> bool:
    """Compare two members; a set is none of its own members there."""
    kinds = [getattr(item, "kind", "") for item in (gold, answer)]
    return kinds.count("set") != 1 and same(gold, answer, tolerance)


def _same_name(name: str, other: str) -> bool:
    """Return True if two names may be one: an index may be missing, and y may be f(x)."""
    name, other = (_DRESS.sub("", _DERIVATIVE.sub(r"\1'", text)) for text in (name, other))
    if name == other or ("y" in (name, other) and {name, other} & {"f(x)", "g(x)", "f^-1(x)"}):
        return True
    bare, other_bare = _INDEX.sub("", name), _INDEX.sub("", other)
    return bare == other_bare and (bare == name) != (other_bare == other)


def _same_relation(gold, answer, tolerance: float | None) -> bool:
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return _same_relations(gold, answer, tolerance)
    if isinstance(gold, Relation):
        if not _is_equation(gold) or not _states_value(gold):
            return False
        return any(same(value, answer, tolerance) for value in _values(gold))
    if not _is_equation(answer):
        return False
    values = _values(answer)
    if not answer.name and (values[-1] == 0 or len(_letters(answer.members[0])) == 1):
        return False
    if not any(same(gold, value, tolerance) for value in values):
        return False
    numbers = [value for value in values if _is_number(value)]
    return all(_rounds(gold, number) for number in numbers) if _is_number(gold) else True


def _is_equation(relation: Relation) -> bool:
    return {"=", r"\approx"}.issuperset(relation.marks)


def _letters(node) -> set:
    """Return what is unknown in a formula: its letters and functions."""
    if node is None:
        return set()
    if isinstance(node, Group | Relation):
        items = node.items if isinstance(node, Group) else node.members
        return set().union(*map(_letters, items))
    return node.free_symbols | node.atoms(sympy.core.function.AppliedUndef)


def _states_value(relation: Relation) -> bool:
    """Return True if an equation gives a value: its left side is a name or a number.

    ``AB=5`` gives one, ``PV=nRT`` and ``7=a+b`` do not.
    """
    left = relation.members[0]
    loose = any(_letters(value) for value in _values(relation))
    if left is None or isinstance(left, sympy.Symbol | sympy.core.function.AppliedUndef):
        return bool(relation.name)
    if not _letters(left):
        return not loose
    product = isinstance(left, sympy.Mul) and "(" not in relation.name
    return bool(relation.name) and not (product and loose)


def _values(relation: Relation) -> list:
    """Return the members that state the value: all but a left side with letters or a name."""
    left = relation.members[0]
    if left is None or _letters(left):
        return [value for value in relation.members[1:] if value is not None]
    return [value for value in relation.members if value is not None]


def _rounds(number, other) -> bool:
    """Return True if two numbers are equal, or one is the other's decimal with three digits."""
    if _same_numbers(number, other):
        return True
    for decimal, exact in ((number, other), (other, number)):
        places = _decimal_places(decimal)
        if places is None:
            continue
        digits = len(str(abs(decimal.p) * 10**places // decimal.q))
        size = abs(exact.evalf(DIGITS)) * 10**places
        steps = abs(decimal) * 10**places
        if digits >= 3 and steps in (sympy.floor(size), sympy.floor(size + sympy.Rational(1, 2))):
            return exact.is_negative == decimal.is_negative
    return False


def _same_relations(gold: Relation, answer: Relation, tolerance: float | None) -> bool:
    if gold.members[0] is not None and not _letters(gold.members[0]):
        return any(same(gold_value, answer, tolerance) for gold_value in _values(gold))
    if gold.name and answer.name and _same_name(gold.name, answer.name):
        return any(same(gold_value, answer, tolerance) for gold_value in _values(gold))
    if len(gold.members) != 2 or len(answer.members) != 2:
        return False
    if gold.members[0] is None or answer.members[0] is None:
        return False
    if not all(isinstance(side, sympy.Expr) for side in (*gold.members, *answer.members)):
        return False
    wanted = gold.members[0] - gold.members[1]
    got = answer.members[0] - answer.members[1]
    if not _letters(wanted) or wanted.free_symbols != got.free_symbols:
        return False
    if _is_equation(gold) and _is_equation(answer):
        wanted = sympy.fraction(sympy.together(wanted))[0]
        got = sympy.fraction(sympy.together(got))[0]
        factor = _constant_ratio(wanted, got)
        return factor is not None and factor != 0
    if gold.marks != answer.marks:
        return False
    factor = _constant_ratio(wanted, got)
    return factor is not None and factor > 0


def _constant_ratio(wanted, got):
    """Return the factor between two formulas if it is one number everywhere, else None."""
    ratio = sympy.cancel(wanted / got)
    if ratio.is_number:
        return ratio
    ratio = sympy.simplify(ratio)
    return ratio if ratio.is_number else None


def _same_formula(gold, answer, tolerance: float | None) -> bool:
    matrices = isinstance(gold, sympy.MatrixBase), isinstance(answer, sympy.MatrixBase)
    if all(matrices):
        pairs = zip(gold, answer, strict=False)
        return gold.shape == answer.shape and all(_same_formula(*pair, tolerance) for pair in pairs)
    if any(matrices):
        return False
    if gold == answer:
        return True
    if _is_number(gold) and _is_number(answer):
        if _same_numbers(gold, answer):
            return True
        return tolerance is not None and not gold.is_Integer and _near(gold, answer, tolerance)
    for candidate in _renamed(gold, answer):
        if _same_function(gold, candidate):
            return True
    return False


def _is_number(formula) -> bool:
    return isinstance(formula, sympy.Expr) and formula.is_number


def _near(gold, answer, tolerance: float) -> bool:
    size = abs(gold.evalf(DIGITS))
    return bool(abs((gold - answer).evalf(DIGITS)) <= sympy.Rational(str(tolerance)) * size)


def _same_numbers(gold, answer) -> bool:
    if gold == answer:
        return True
    if gold.is_Rational and answer.is_Rational:
        return False
    if not gold.is_finite or not answer.is_finite:
        return False
    if not _agree(gold.evalf(DIGITS), answer.evalf(DIGITS)):
        return False
    return not (_is_delicate(gold) or _is_delicate(answer)) or _is_proven(gold, answer)


def _agree(wanted, got) -> bool:
    if not wanted.is_number or not got.is_number or wanted.has(sympy.nan, sympy.zoo):
        return False
    return bool(abs(wanted - got) <= SAME * abs(wanted))


def _is_delicate(formula) -> bool:
    """Return True if a formula holds a number that could make it almost equal to another one."""
    for number in formula.atoms(sympy.Rational):
        if abs(number.p) > LARGE or number.q > LARGE:
            return True
    return any(abs(power.exp) > 30 for power in formula.atoms(sympy.Pow) if power.exp.is_Rational)


def _is_proven(gold, answer) -> bool:
    return sympy.simplify(gold - answer) == 0


def _renamed(gold, answer) -> list:
    """Return the answer, and the answer with its constants and parameters named as the gold's."""
    candidates = [answer]
    if WHOLE in gold.free_symbols and WHOLE not in answer.free_symbols:
        loose = [symbol for symbol in _PARAMETERS if symbol in answer.free_symbols]
        if len(loose) == 1:
            return [rename(answer, {loose[0]: WHOLE})]
    if gold.is_Symbol or answer.is_Symbol:
        return candidates
    wanted = _constants(gold)
    got = _constants(answer)
    if len(wanted) != len(got) or len(wanted) > 3 or (wanted == got and len(wanted) == 1):
        return candidates
    if not _holds_integration_constants(gold, answer, wanted, got):
        return candidates
    for order in itertools.permutations(wanted):
        candidates.append(answer.subs(dict(zip(got, order, strict=True)), simultaneous=True))
    return candidates


def _constants(formula) -> list:
    letters = sorted(formula.free_symbols, key=str)
    return [symbol for symbol in letters if _CONSTANT.fullmatch(symbol.name)]


def _holds_integration_constants(gold, answer, wanted: list, got: list) -> bool:
    """Return True if the letters that differ are constants of integration on either side."""
    if sorted(str(symbol) for symbol in (*wanted, *got)) == ["C", "c"]:
        return True
    for formula, letters in ((gold, wanted), (answer, got)):
        for symbol in letters:
            if not _INTEGRATION.fullmatch(symbol.name):
                continue
            slope = sympy.diff(formula, symbol)
            if slope == 1 or slope.has(sympy.exp, sympy.sin, sympy.cos) or "_" in symbol.name:
                return True
    return False


def _same_function(gold, answer) -> bool:
    """Return True if two formulas agree at several points where both are real."""
    letters = sorted(gold.free_symbols | answer.free_symbols, key=str)
    unknown = gold.atoms(sympy.core.function.AppliedUndef)
    if unknown or answer.atoms(sympy.core.function.AppliedUndef):
        return _is_proven(gold, answer)
    positive = _positive_letters(gold) | _positive_letters(answer)
    comparable = 0
    for number, signs in enumerate(_SIGNS_AT):
        point = {}
        for place, symbol in enumerate(letters):
            value = sympy.Rational(17 + 6 * place + 11 * number, 11 + 2 * place + 7 * number % 13)
            if number >= 5:  # whole numbers, for factorials and (-1)^n
                value = sympy.Integer(4 + 3 * place + number * (place + 1) % 5)
            point[symbol] = value if symbol in positive else signs[place % 3] * value
        wanted = gold.subs(point).evalf(DIGITS)
        got = answer.subs(point).evalf(DIGITS)
        complex_allowed = gold.has(sympy.I) or answer.has(sympy.I)
        if not complex_allowed and not (wanted.is_real and got.is_real):
            continue
        if not (wanted.is_number and got.is_number) or not (wanted.is_finite and got.is_finite):
            continue
        if not _agree(wanted, got):
            return False
        comparable += 1
    if comparable < 2:
        return _is_proven(gold, answer)
    return not (_is_delicate(gold) or _is_delicate(answer)) or _is_proven(gold, answer)


def _positive_letters(formula) -> set:
    """Return the letters that are factors under a root or a logarithm."""
    letters = set()
    roots = [power.base for power in formula.atoms(sympy.Pow) if not power.exp.is_integer]
    for inside in (*roots, *(logarithm.args[0] for logarithm in formula.atoms(sympy.log))):
        for factor in sympy.Mul.make_args(inside):
            base = factor.as_base_exp()[0]
            if base.is_Symbol:
                letters.add(base)
    return letters


def stands_for(number, decimal) -> bool:
    """Return True if a long decimal begins a number that has no end as a decimal."""
    if not _is_number(number) or not _is_number(decimal) or _decimal_places(number) is not None:
        return False
    places = _decimal_places(decimal)
    if places is None or len(str(abs(decimal.p) * 10**places // decimal.q)) < ENOUGH_DIGITS:
        return False
    return bool(abs((number - decimal).evalf(DIGITS)) < sympy.Rational(1, 10**places))


def _decimal_places(number) -> int | None:
    """Return the decimal places of a quotient that has an end as a decimal, else None."""
    if not isinstance(number, sympy.Rational):
        return None
    for places in range(100):
        if 10**places % number.q == 0:
            return places
    return None
