r"""Values that hold several others: groups, relations, and the sets of numbers that they stand for.

An inequality in one letter becomes its interval or union at once, so that ``x>3``, ``(3,\infty)``
and ``\{x : x>3\}`` are one value. Only math workers import this module.
"""

from __future__ import annotations

# sympy carries no types.
# pyright: basic, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false
from dataclasses import dataclass, replace
from typing import Any

import sympy

from openconductor.graders.formulas.formula_reader import Unreadable, letter

_MIRRORED = {">": "<", r"\ge": r"\le"}
_SET_OPERATIONS = {
    "union": sympy.Union, "and": sympy.Intersection, "minus": sympy.Complement
}  # fmt: skip
_CONDITIONS = {"<": sympy.Lt, r"\le": sympy.Le, r"\ne": sympy.Ne}
EQUATED = {"=", r"\approx"}
WHOLE = letter("any whole number")
"""The letter that a declaration such as ``k \\in \\mathbb{Z}`` names."""
NATURAL = letter("any natural number")


@dataclass(frozen=True, slots=True)
class Group:
    """Several values.

    Attributes:
        kind: ``list`` (no brackets), ``set``, ``union``, ``and``, ``minus``, ``ratio``, ``image``
            (of the whole numbers), ``mod`` or brackets, such as "()" or "[)".
        items: the values.
        name: the letter or point that has this value; "": none is named.
    """

    kind: str
    items: tuple[Any, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain of equations, or an inequality in several letters.

    Attributes:
        items: the sides; None for a name that is no formula.
        marks: the signs between them.
        name: the left side, if it only names the others; "": it does not.
    """

    items: tuple[Any, ...]
    marks: tuple[str, ...]
    name: str = ""


def rename(node, letters: dict):
    """Return a value with other letters."""
    if not letters or node is None:
        return node
    if isinstance(node, Group | Relation):
        return replace(node, items=tuple(rename(item, letters) for item in node.items))
    return node.xreplace(letters)


def is_range(node) -> bool:
    """Return True if a value is an interval, or made of some."""
    if isinstance(node, Group):
        return node.kind in _SET_OPERATIONS or node.kind[-1] in ")]"
    return isinstance(node, sympy.Set)


def join_ranges(items: list):
    r"""Join inequalities without *and* or *or*: those that overlap are conditions, others a union.

    ``x\ne 1, x\ne 2`` are conditions, too.
    """
    name = items[0].name
    if any(item.name != name for item in items):
        return Group("list", tuple(items))
    shapes = [as_set(item) for item in items]
    apart = None not in shapes and sympy.Intersection(*shapes) == sympy.S.EmptySet
    return Group("union" if apart else "and", tuple(items), name)


def join(kind: str, items: list):
    """Return the union, intersection or difference of ranges; of other values their list."""
    if not any(map(is_range, items)):
        return Group("list", tuple(items))
    names = {getattr(item, "name", "") for item in items}
    if len(names - {""}) > 1:
        raise Unreadable("conditions on several unknowns")
    parts = []
    for item in items:
        if isinstance(item, sympy.Expr):
            raise Unreadable("a number in a union")
        parts.append(Group("set", item.items[1:]) if isinstance(item, Relation) else item)
    return Group(kind, tuple(parts), names.pop() if len(names) == 1 else "")


def read_inequality(members: tuple, signs: tuple[str, ...]):
    """Read an inequality; those in one letter become the interval or union of their solutions."""
    if _MIRRORED.keys() >= set(signs):
        members = members[::-1]
        signs = tuple(_MIRRORED[sign] for sign in reversed(signs))
    if not _CONDITIONS.keys() >= set(signs):
        raise Unreadable("an inequality in two directions")
    interval = None
    if r"\ne" not in signs and sum(map(_is_unknown, members)) == 1:
        interval = _read_interval(members, signs)
    return interval or _solve(members, signs)


def _is_unknown(member) -> bool:
    return isinstance(member, sympy.Symbol | sympy.core.function.AppliedUndef)


def _read_interval(members: tuple, signs: tuple[str, ...]) -> Group | None:
    """Return the interval of a letter between two bounds or beside one number; None: another."""
    if len(members) == 2 and members[1].is_number:
        members, signs = (-sympy.oo, *members), ("<", *signs)
    elif len(members) == 2 and members[0].is_number:
        members, signs = (*members, sympy.oo), (*signs, "<")
    if len(members) != 3 or not _is_unknown(members[1]):
        return None
    start, unknown, end = members
    if unknown in start.free_symbols | end.free_symbols:
        return None
    opening = "(" if signs[0] == "<" or start == -sympy.oo else "["
    closing = ")" if signs[1] == "<" or end == sympy.oo else "]"
    return Group(opening + closing, (start, end), str(unknown))


def _solve(members: tuple, signs: tuple[str, ...]):
    """Return the solutions of inequalities in one letter; those in several stay a Relation."""
    letters = set().union(*(member.free_symbols for member in members))
    if len(letters) != 1:
        return Relation(members, signs)
    unknown = letters.pop()
    solutions = sympy.S.Reals
    for left, sign, right in zip(members, signs, members[1:], strict=False):
        condition = _CONDITIONS[sign](left, right)
        solutions &= sympy.solveset(condition, unknown, sympy.S.Reals)
    return Group("and", (solutions, sympy.S.Reals), str(unknown))


def as_set(node) -> sympy.Set | None:
    """Return the set of numbers that a value stands for; None of anything else."""
    if not isinstance(node, Group):
        return node if isinstance(node, sympy.Set) else None
    try:
        return _group_as_set(node)
    except (ValueError, TypeError, AttributeError, NotImplementedError):
        return None


def _group_as_set(group: Group) -> sympy.Set | None:
    operation = _SET_OPERATIONS.get(group.kind)
    if operation is not None:
        parts = [as_set(item) for item in group.items]
        return None if None in parts else operation(*parts)
    if group.kind in ("set", "list"):
        return sympy.FiniteSet(*map(sympy.simplify, group.items))
    start, end = map(sympy.simplify, group.items)
    shape = sympy.Interval(start, end, group.kind[0] == "(", group.kind[1] == ")")
    # sympy opens the brackets at infinity, which belongs to no interval.
    left = "(" if shape.left_open else "["
    right = ")" if shape.right_open else "]"
    return shape if start < end and group.kind == left + right else None
