r"""Reads texts that hold several formulas: lists, sets, intervals, relations, ratios.

``read`` takes a normalised text apart and gives the single formulas to ``formula_reader``. An
inequality in one letter becomes its interval or union at once, so that ``x>3``, ``(3,\infty)`` and
``\{x : x>3\}`` are one value. Only math workers import this module.
"""

from __future__ import annotations

# sympy carries no types.
# pyright: basic, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false
import re
from dataclasses import dataclass, replace
from typing import Any

import sympy

from openconductor.graders.formulas.formula_reader import Unreadable, letter, parse

_MARK = re.compile(r"\\[{}\\]|\\[A-Za-z]+|[(){}\[\],;:<>=|]")
_OPENING = {"(", "[", "{", r"\{", r"\langle", r"\begin"}
_CLOSING = {")", "]", "}", r"\}", r"\rangle", r"\end"}
_RELATIONS = {"=", "<", ">", r"\le", r"\ge", r"\ne", r"\in", r"\approx"}
_MIRRORED = {">": "<", r"\ge": r"\le"}
_THOUSANDS = re.compile(r"(?<![\d.])[1-9]\d{0,2}(?:,\d{3})+(?!\d)")
_SIGNS = re.compile(r"\\(pm|mp)(?![A-Za-z])")
_POINT_NAME = re.compile(r"([A-Z](?:_\{?\w\}?|')?|\(x,\s*y(?:,\s*z)?\))\s*(?=\()")
_FLIPPED = re.compile(r"([\]\[])(?=[^\[\]()]*,)([^\[\]()]*)([\]\[])")
_DECLARED = re.compile(r"\(?\s*([a-z])\s*\\in\s*(\\mathbb\{[ZN]\}(?:\^\+|_\+)?)\s*\)?")
_BUILDER = re.compile(r"(.+?)\s*(?:\\mid(?![a-z])|\||:)\s*(.+)", re.DOTALL)
_BARE_BUILDER = re.compile(r"\s*[a-z]\s*(?:\\mid(?![a-z])|\||:)")
_MEMBER = re.compile(r"(.+?)\\in\s*(.+)")
_SETS = {
    r"\emptyset": sympy.S.EmptySet,
    r"\mathbb{R}": sympy.S.Reals,
    r"\mathbb{Z}": sympy.S.Integers,
    r"\mathbb{N}": sympy.S.Naturals,
    r"\mathbb{Q}": sympy.S.Rationals,
    r"\mathbb{C}": sympy.S.Complexes,
    r"\mathbb{R}^+": sympy.Interval.open(0, sympy.oo),
    r"\mathbb{R}^*": sympy.S.Reals - sympy.FiniteSet(0),
    r"\mathbb{Z}^+": sympy.S.Naturals,
}
_OPERATORS = {r"\lor": "union", r"\land": "and", r"\cup": "union", r"\setminus": "minus"}
_OPERATORS[r"\cap"] = "and"
_SET_OPERATORS = {r"\cup", r"\cap", r"\setminus"}
# A left side that is more than the name of a value: sums, products, powers, numbers.
_NO_NAME = re.compile(
    r"[+*/!]|(?<!\{)-|\\(?:cdot|times|sqrt|binom|sum|int|frac(?!\{d))|\^(?!\{-1\})|^\d"
    r"|(?<![\\A-Za-z])[a-z]\s*[a-z](?![A-Za-z])"
)
_INSIDE = re.compile(
    r"\\frac\{(?:d[^{}]*\}\{d[^{}]*|[A-Z]{1,2}\}\{[A-Z]{1,2})\}|\([^()]*\)|\\text\{[^{}]*\}"
)
_SUBSCRIPT = re.compile(r"_\{(?:[^{}]|\{[^{}]*\})*\}|_\w")
WHOLE = letter("any whole number")
"""The letter that a declaration such as ``k \\in \\mathbb{Z}`` names."""


@dataclass(frozen=True, slots=True)
class Group:
    """Several values.

    Attributes:
        kind: ``list`` (no brackets), ``set``, ``union``, ``and``, ``minus``, ``ratio``, ``image``
            (of the whole numbers) or brackets, such as "()" or "[)".
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
        members: the sides; None for a name that is no formula.
        marks: the signs between them.
        name: the left side, if it only names the others; "": it does not.
    """

    members: tuple[Any, ...]
    marks: tuple[str, ...]
    name: str = ""


def read(text: str):
    """Return the value of a text: an expression, a matrix, a set, a Group or a Relation.

    None: it cannot be read.
    """
    try:
        return _read(text)
    except (Unreadable, TypeError, ValueError, AttributeError, NotImplementedError, IndexError):
        return None  # sympy's complaints about formulas without a meaning


def _read(text: str):
    text = text.strip()
    if text in _SETS:
        return _SETS[text]
    for mark in (";", ","):
        pieces = _split(text, mark)
        if len(pieces) > 1:
            return _read_list(pieces)
    relates = _relates(text)
    for mark, kind in _OPERATORS.items():
        pieces = _split(text, mark)
        if len(pieces) > 1 and not (relates and mark in _SET_OPERATORS):
            return _join(kind, [_read(piece) for piece in pieces])
    if relates:
        return _read_relation(text)
    point = _POINT_NAME.match(text)
    if point is not None and _split_brackets(text[point.end() :])[0] == "()":
        value = _read(text[point.end() :])
        if isinstance(value, Group):
            return replace(value, name=point[1])
    bracketed = _read_brackets(text)
    if bracketed is not None:
        return bracketed
    ratio = _split(text, ":")
    if len(ratio) > 1:
        parts = tuple(map(_read_formula, ratio))
        if 0 in parts:
            raise Unreadable("a ratio with 0")
        return Group("ratio", parts)
    if _SIGNS.search(text):
        return Group("list", (_read(_with_sign(text, "+-")), _read(_with_sign(text, "-+"))))
    return _read_formula(text)


def _read_brackets(text: str):
    """Read a set, a tuple, an interval or braces; None of a text that is no such thing."""
    brackets, inner = _split_brackets(text)
    if brackets == "{}" and _BARE_BUILDER.match(inner) is None:
        return _read(inner)
    if brackets in (r"\{\}", "{}"):
        return _read_set(inner)
    items = _split_items(inner) if brackets else []
    if len(items) > 1 and _SIGNS.search(inner):
        return Group("list", (_read(_with_sign(text, "+-")), _read(_with_sign(text, "-+"))))
    if len(items) > 2 or (len(items) == 2 and brackets == r"\langle\rangle"):
        return Group("()", tuple(map(_read, items)))
    return Group(brackets, tuple(map(_read, items))) if len(items) == 2 else None


def _read_formula(text: str):
    if "(" not in text:
        text = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)
    return _as_vector(parse(text))


def _as_vector(formula):
    r"""Return ``3\vec{i}+4\vec{j}`` as the tuple of its parts, and other formulas as they are."""
    vectors = [letter("vec i"), letter("vec j"), letter("vec k")]
    if not formula.free_symbols.intersection(vectors):
        if letter("j") not in formula.free_symbols or not formula.has(sympy.I):
            return formula
        formula = formula.xreplace({sympy.I: vectors[0], letter("j"): vectors[1]})
        formula = formula.xreplace({letter("k"): vectors[2]})
    expanded = sympy.expand(formula)
    parts = [expanded.coeff(vector) for vector in vectors]
    rest = expanded - sum(part * vector for part, vector in zip(parts, vectors, strict=True))
    if sympy.expand(rest) != 0:
        return formula
    return Group("()", tuple(parts if parts[2] != 0 else parts[:2]))


def _with_sign(text: str, signs: str) -> str:
    r"""Replace ``\pm`` by the first sign, and ``\mp`` by the second."""
    return _SIGNS.sub(lambda sign: signs[0] if sign[1] == "pm" else signs[1], text)


def _outer_marks(text: str) -> list[re.Match[str]]:
    """Return the marks of a text that are in no brackets, closing ones included."""
    marks = []
    depth = 0
    for mark in _MARK.finditer(text):
        if mark[0] in _OPENING:
            depth += 1
        elif mark[0] in _CLOSING:
            depth -= 1
        if depth <= 0:
            marks.append(mark)
    return [] if depth else marks


def _split(text: str, mark: str) -> list[str]:
    """Split a text at a mark outside of brackets; the commas of thousands do not count."""
    if mark not in text:
        return [text]
    numbers = []
    if mark == ",":
        numbers = [number.span() for number in _THOUSANDS.finditer(text)]
    pieces = []
    start = 0
    for match in _outer_marks(text):
        place = match.start()
        if match[0] == mark and not any(first < place < last for first, last in numbers):
            pieces.append(text[start:place])
            start = match.end()
    return [*pieces, text[start:]]


def _split_items(text: str) -> list[str]:
    """Split the text between two brackets into items.

    ``100,200`` are two, unless blanks elsewhere show that its comma parts thousands.
    """
    pieces = _split(text, ";")
    if len(pieces) > 1:
        return pieces
    if not text.strip():
        return []
    return _split(text if ", " in text else text.replace(",", " , "), ",")


def _split_brackets(text: str) -> tuple[str, str]:
    """Return the brackets that enclose a whole text, and the text inside; "" without brackets."""
    opening = _MARK.match(text)
    outer = _outer_marks(text)
    if opening is None or opening[0] not in _OPENING - {r"\begin"}:
        return "", text
    if len(outer) != 1 or outer[0].end() < len(text):
        return "", text
    closing = outer[0]
    return opening[0] + closing[0], text[opening.end() : closing.start()]


def _read_list(texts: list[str]):
    """Read the members of a list; declarations of whole numbers join the rest of it."""
    declared: list[str] = []
    items: list = []
    for text in texts:
        declaration = _DECLARED.fullmatch(text.strip())
        if declaration is not None:
            declared.append(declaration[1])
            continue
        item = _read(text)
        if isinstance(item, Group) and item.kind == "list" and _SIGNS.search(text):
            items += item.items
        else:
            items.append(item)
    renamed = {letter(name): WHOLE for name in declared}
    items = [rename(item, renamed) for item in items]
    if len(items) == 1 and declared:
        return items[0]
    if all(is_range(item) and item.name for item in items):
        return _join_ranges(items)
    return Group("list", tuple(items))


def rename(node, letters: dict):
    """Return a value with other letters."""
    if not letters or node is None:
        return node
    if isinstance(node, Group):
        return replace(node, items=tuple(rename(item, letters) for item in node.items))
    if isinstance(node, Relation):
        return replace(node, members=tuple(rename(item, letters) for item in node.members))
    return node.xreplace(letters)


def is_range(node) -> bool:
    """Return True if a value is an interval, or made of some."""
    if isinstance(node, Group):
        return node.kind in ("union", "and", "minus") or node.kind[-1:] in ")]"
    return isinstance(node, sympy.Set)


def _join_ranges(items: list):
    r"""Join inequalities without *and* or *or*: those that overlap are conditions, others a union.

    ``x\ne 1, x\ne 2`` are conditions, too.
    """
    name = items[0].name
    if any(item.name != name for item in items):
        return Group("list", tuple(items))
    shapes = [as_set(item) for item in items]
    apart = None not in shapes and sympy.Intersection(*shapes) == sympy.S.EmptySet
    return Group("union" if apart else "and", tuple(items), name)


def _join(kind: str, items: list):
    if not any(map(is_range, items)):
        return Group("list", tuple(items))
    names = {getattr(item, "name", "") for item in items}
    if len(names - {""}) > 1:
        raise Unreadable("conditions on several unknowns")
    if any(isinstance(item, sympy.Expr) for item in items):
        raise Unreadable("a number in a union")
    items = [
        Group("set", item.members[1:]) if isinstance(item, Relation) else item for item in items
    ]
    return Group(kind, tuple(items), names.pop() if len(names) == 1 else "")


def _read_set(text: str):
    """Read the text between two braces: a condition or a list."""
    builder = _BUILDER.fullmatch(text)
    if builder is None or _split_brackets(builder[1])[0] == r"\{\}":
        return Group("set", tuple(_read_items(_split_items(text))))
    member, condition = builder[1].strip(), builder[2].strip()
    declaration = _DECLARED.fullmatch(condition)
    if declaration is not None and not member.startswith("("):
        image = rename(_read(member), {letter(declaration[1]): WHOLE})
        return Group("image", (image,), declaration[2])
    domain = _MEMBER.fullmatch(member)
    value = _read(condition)
    if isinstance(value, Group):
        if value.name not in ("", re.split(r"\\in(?![a-z])", member)[0].strip()):
            raise Unreadable("a condition on another unknown")
        value = replace(value, name="")
    if domain is None or domain[2].strip() == r"\mathbb{R}":
        return value
    return Group("and", (value, _read(domain[2])))


def _read_items(texts: list[str]) -> list:
    items: list = []
    for text in texts:
        item = _read(text)
        if isinstance(item, Group) and item.kind == "list":
            items += item.items
        else:
            items.append(item)
    return items


def _relates(text: str) -> bool:
    return any(mark[0] in _RELATIONS for mark in _outer_marks(text))


def _read_relation(text: str):
    """Read a chain of equations or inequalities."""
    marks = [mark for mark in _outer_marks(text) if mark[0] in _RELATIONS]
    starts = [0, *(mark.end() for mark in marks)]
    ends = [*(mark.start() for mark in marks), len(text)]
    texts = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    signs = tuple(mark[0] for mark in marks)
    left = "".join(texts[0].split())
    name = "" if _NO_NAME.search(_INSIDE.sub("", _SUBSCRIPT.sub("", left))) else left
    if signs == (r"\in",):
        value = _read(texts[1])
        if not name:
            raise Unreadable("a part of an unknown in a set")
        return replace(value, name=name) if isinstance(value, Group) else value
    if not {"=", r"\approx"}.issuperset(signs):
        return _read_inequality(tuple(map(_read, texts)), signs)
    values = [*map(read, texts[1:-1]), _read(texts[-1])]
    last = values[-1]
    if isinstance(last, Group) and last.kind == "list":
        first = _read(texts[0])
        each = [Relation((first, item), ("=",), name) for item in last.items]
        return Group("list", tuple(each))
    if isinstance(last, Group) and name:
        return replace(last, name=name)
    return Relation((read(texts[0]), *values), signs, name)


def _read_inequality(members: tuple, signs: tuple[str, ...]):
    """Read an inequality; those in one letter become the interval or union of their solutions."""
    if all(sign in _MIRRORED for sign in signs):
        members = members[::-1]
        signs = tuple(_MIRRORED[sign] for sign in reversed(signs))
    if "=" in signs or any(sign in _MIRRORED or sign == r"\approx" for sign in signs):
        raise Unreadable("an inequality in two directions")
    letters = [place for place, member in enumerate(members) if _is_unknown(member)]
    if r"\ne" not in signs and len(letters) == 1 and len(members) - 1 <= 2:
        place = letters[0]
        others = [member for member in members if not _is_unknown(member)]
        name = str(members[place])
        if members[place] in set().union(*(other.free_symbols for other in others)):
            return _solve(members, signs)
        if len(members) == 3 and place == 1:
            return _interval(others[0], others[1], signs[0], signs[1], name)
        if len(members) == 2 and not others[0].is_number:
            return _solve(members, signs)
        if len(members) == 2 and place == 0:
            return _interval(-sympy.oo, others[0], "<", signs[0], name)
        if len(members) == 2:
            return _interval(others[0], sympy.oo, signs[0], "<", name)
    return _solve(members, signs)


def _is_unknown(member) -> bool:
    return isinstance(member, sympy.Symbol | sympy.core.function.AppliedUndef)


def _interval(start, end, left: str, right: str, name: str) -> Group:
    opening = "(" if left == "<" or start == -sympy.oo else "["
    closing = ")" if right == "<" or end == sympy.oo else "]"
    return Group(opening + closing, (start, end), name)


def _solve(members: tuple, signs: tuple[str, ...]):
    """Return the solutions of inequalities in one letter; those in several stay a Relation."""
    classes = {"<": sympy.Lt, r"\le": sympy.Le, r"\ne": sympy.Ne}
    letters = set().union(*(member.free_symbols for member in members))
    if len(letters) != 1:
        return Relation(members, signs)
    unknown = letters.pop()
    parts = []
    for place, sign in enumerate(signs):
        condition = classes[sign](members[place], members[place + 1])
        parts.append(sympy.solveset(condition, unknown, sympy.S.Reals))
    solutions = sympy.Intersection(*parts)
    return Group("and", (solutions, sympy.S.Reals), str(unknown))


def as_set(node) -> sympy.Set | None:
    """Return the set of numbers that a value stands for; None of anything else."""
    if isinstance(node, sympy.Set):
        return node
    if not isinstance(node, Group):
        return None
    try:
        return _group_as_set(node)
    except (ValueError, TypeError, AttributeError, NotImplementedError):
        return None


def _group_as_set(group: Group) -> sympy.Set | None:
    if group.kind in ("set", "list"):
        if not all(isinstance(item, sympy.Expr) for item in group.items):
            return None
        return sympy.FiniteSet(*map(sympy.simplify, group.items))
    if group.kind in ("union", "and", "minus"):
        parts = [as_set(item) for item in group.items]
        if None in parts:
            return None
        if group.kind == "union":
            return sympy.Union(*parts)
        if group.kind == "and":
            return sympy.Intersection(*parts)
        return sympy.Complement(*parts)
    start, end = map(sympy.simplify, group.items)
    shape = sympy.Interval(start, end, group.kind[0] == "(", group.kind[1] == ")")
    # sympy opens the brackets at infinity, which belongs to no interval.
    left = "(" if shape.left_open else "["
    right = ")" if shape.right_open else "]"
    return shape if start < end and group.kind == left + right else None
