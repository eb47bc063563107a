"""Decides if two values that ``formula_groups`` has read are the same.

Groups are compared item by item, ranges as sets. Equations are the same if their sides' difference
is, up to a factor. ``formula_values`` compares single formulas. Only math workers import this
module.
"""

from __future__ import annotations

# sympy carries no types.
# pyright: basic, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false
import re

import sympy
from sympy.core.function import AppliedUndef

from openconductor.graders.formulas.formula_reader import letter
from openconductor.graders.formulas.formula_sets import (
    EQUATED,
    Group,
    Relation,
    as_set,
    is_range,
)
from openconductor.graders.formulas.formula_values import (
    is_number,
    same_formula,
    same_numbers,
    shortens,
)

ROUNDED_DIGITS = 3
"""Significant digits of a decimal that may stand beside its number in one chain."""
_UNORDERED = {"list", "set"}
_INDEX = re.compile(r"_\d$")
_OF_X = re.compile(r"^[fg](?:\^-1)?('*)\(x\)$")
_DERIVATIVE = re.compile(r"\\frac\{d([a-z])\}\{d[a-z]\}")
_DRESS = re.compile(r"[|{}]|\\(?:overline|text)")
_AND_SO_ON = letter("ldots")


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
    return same_formula(gold, answer, tolerance)


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
    if not is_number(gold):
        return True
    return all(_agree_in_chain(gold, value) for value in values if is_number(value))


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
    if same_numbers(number, other):
        return True
    return shortens(number, other, ROUNDED_DIGITS) or shortens(other, number, ROUNDED_DIGITS)


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
