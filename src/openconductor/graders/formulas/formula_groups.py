r"""Reads texts that hold several formulas: lists, sets, intervals, relations, ratios.

``read`` takes a normalised text apart and gives the single formulas to ``formula_reader``.
Only math workers import this module.
"""

from __future__ import annotations

# sympy carries no types.
# pyright: basic, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false
import re
from dataclasses import replace

import sympy

from openconductor.graders.formulas.formula_reader import Unreadable, letter, parse
from openconductor.graders.formulas.formula_sets import (
    EQUATED,
    NATURAL,
    WHOLE,
    Group,
    Relation,
    is_range,
    join,
    join_ranges,
    read_inequality,
    rename,
)

_MARK = re.compile(r"\\[{}\\]|\\[A-Za-z]+|[(){}\[\],;:<>=|]")
_OPENING = {"(", "[", "{", r"\{", r"\langle", r"\begin"}
_CLOSING = {")", "]", "}", r"\}", r"\rangle", r"\end"}
_RELATIONS = {"=", "<", ">", r"\le", r"\ge", r"\ne", r"\in", r"\approx"}
_THOUSANDS = re.compile(r"(?<![\d.])[1-9]\d{0,2}(?:,\d{3})+(?!\d)")
_SIGNS = re.compile(r"\\(pm|mp)(?![A-Za-z])")
_POINT_NAME = re.compile(r"([A-Z](?:_\{?\w\}?|')?|\(x,\s*y(?:,\s*z)?\))\s*(?=\()")
_DECLARED = re.compile(r"\(?\s*([a-z])\s*\\in\s*(\\mathbb\{[ZN]\}(?:\^\+|_\+)?)\s*\)?")
_CONGRUENCE = re.compile(
    r"(?:([a-z])\s*\\equiv\s*)?((?:(?!mod|\\equiv).)+?)\s*\(?\\?[pb]?mod(?![a-z])\s*\{?\s*(\d+)\s*\}?\)?"
)
_BUILDER = re.compile(r"(.+?)\s*(?:\\mid(?![a-z])|\||:)\s*(.+)", re.DOTALL)
_BARE_BUILDER = re.compile(r"\s*[a-z]\s*(?:\\mid(?![a-z])|\||:)")
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
_OPERATORS = {
    r"\lor": "union", r"\land": "and", r"\cup": "union", r"\setminus": "minus", r"\cap": "and",
}  # fmt: skip
_SET_OPERATORS = {r"\cup", r"\cap", r"\setminus"}
# A left side that is more than the name of a value: sums, products, powers, numbers.
_NO_NAME = re.compile(
    r"[+*/!]|(?<!\{)-|\\(?:cdot|times|sqrt|binom|sum|int|frac(?!\{(?:d|\\partial)))|\^(?!\{-1\})|^\d"
    r"|(?<![\\A-Za-z])[a-z]\s*[a-z](?![A-Za-z])"
)
_INSIDE = re.compile(
    r"\\frac\{(?:(?:d|\\partial)[^{}]*\}\{(?:d|\\partial)[^{}]*|[A-Z]{1,2}\}\{[A-Z]{1,2})\}"
    r"|\([^()]*\)|\\text\{[^{}]*\}"
)
_SUBSCRIPT = re.compile(r"_\{(?:[^{}]|\{[^{}]*\})*\}|_\w")


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
    congruence = _CONGRUENCE.fullmatch(text)
    if congruence is not None:
        return _read_congruence(congruence)
    for mark in (";", ","):
        pieces = _split(text, mark)
        if len(pieces) > 1:
            return _read_list(pieces)
    if _SIGNS.search(text) and r"\{" not in text:
        return Group("list", (_read(_with_sign(text, "+-")), _read(_with_sign(text, "-+"))))
    marks = _outer_marks(text)
    relations = [mark for mark in marks if mark[0] in _RELATIONS]
    for mark, kind in _OPERATORS.items():
        pieces = _split(text, mark)
        if len(pieces) > 1 and not (relations and mark in _SET_OPERATORS):
            return join(kind, [_read(piece) for piece in pieces])
    if relations:
        return _read_relation(text, relations)
    point = _POINT_NAME.match(text)
    if point is not None:
        coordinates = text[point.end() :]
        brackets, _ = _split_brackets(coordinates)
        value = _read(coordinates) if brackets == "()" else None
        if isinstance(value, Group):
            return replace(value, name=point[1])
    bracketed = _read_brackets(text)
    if bracketed is not None:
        return bracketed
    parts = [_read_formula(part) for part in _split(text, ":")]
    if len(parts) == 1:
        return parts[0]
    if 0 in parts:
        raise Unreadable("a ratio with 0")
    first = parts[0]
    return Group("ratio", tuple(part / first for part in parts))


def _read_congruence(match: re.Match[str]) -> Group:
    modulus = sympy.Integer(match[3])
    residues = _read_items(_split(match[2], ","))
    items = [Group("mod", (residue % modulus, modulus), match[1] or "") for residue in residues]
    return items[0] if len(items) == 1 else Group("list", tuple(items))


def _read_brackets(text: str):
    """Read a set, a tuple, an interval or braces; None of a text that is no such thing."""
    brackets, inner = _split_brackets(text)
    if brackets == "{}" and _BARE_BUILDER.match(inner) is None:
        return _read(inner)
    if brackets in (r"\{\}", "{}"):
        return _read_set(inner)
    items = _split_items(inner) if brackets else []
    if len(items) > 2 or brackets == r"\langle\rangle":
        brackets = "()"
    return Group(brackets, tuple(map(_read, items))) if len(items) > 1 else None


def _read_formula(text: str):
    if "(" not in text:
        text = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)
    return _as_vector(parse(text))


def _as_vector(formula):
    r"""Return ``3\vec{i}+4\vec{j}`` as the tuple of its parts, and other formulas as they are."""
    vectors = [letter("vec i"), letter("vec j"), letter("vec k")]
    if letter("j") in formula.free_symbols and formula.has(sympy.I):
        plain = (sympy.I, letter("j"), letter("k"))
        formula = formula.xreplace(dict(zip(plain, vectors, strict=True)))
    if not formula.free_symbols.intersection(vectors):
        return formula
    expanded = sympy.expand(formula)
    parts = [expanded.coeff(vector) for vector in vectors]
    if expanded.xreplace(dict.fromkeys(vectors, sympy.S.Zero)) != 0:
        return formula
    if parts[2] == 0:
        parts.pop()
    return Group("()", tuple(parts))


def _with_sign(text: str, signs: str) -> str:
    r"""Replace ``\pm`` by the first sign, and ``\mp`` by the second."""
    first, second = signs
    return _SIGNS.sub(lambda sign: first if sign[1] == "pm" else second, text)


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
    thousands = []
    if mark == ",":
        thousands = [range(*number.span()) for number in _THOUSANDS.finditer(text)]
    pieces = []
    start = 0
    for match in _outer_marks(text):
        place = match.start()
        separates = not any(place in number for number in thousands)
        if match[0] == mark and separates:
            pieces.append(text[start:place])
            start = match.end()
    return [*pieces, text[start:]]


def _split_items(text: str) -> list[str]:
    """Split the text between two brackets into items.

    ``100,200`` are two, unless blanks elsewhere show that its comma parts thousands.
    """
    if not text.strip():
        return []
    pieces = _split(text, ";")
    if len(pieces) > 1:
        return pieces
    return _split(text if ", " in text else text.replace(",", " , "), ",")


def _split_brackets(text: str) -> tuple[str, str]:
    """Return the brackets that enclose a whole text, and the text inside; "" without brackets."""
    outer = _outer_marks(text)
    opening = _MARK.match(text)
    if opening is None or opening[0] not in _OPENING - {r"\begin"}:
        return "", text
    if len(outer) != 1 or outer[0].end() < len(text):
        return "", text
    return opening[0] + outer[0][0], text[opening.end() : outer[0].start()]


def _read_list(texts: list[str]):
    """Read the members of a list; declarations of whole numbers join the rest of it."""
    declarations = [_DECLARED.fullmatch(text.strip()) for text in texts]
    declared = dict(_declare(match) for match in declarations if match is not None)
    members = [text for text, match in zip(texts, declarations, strict=True) if match is None]
    items: list = [rename(item, declared) for item in _read_items(members)]
    if len(items) == 1 and declared:
        return items[0]
    if all(is_range(item) and item.name for item in items):
        return join_ranges(items)
    return Group("list", tuple(items))


def _declare(declaration: re.Match[str]) -> tuple[sympy.Symbol, sympy.Symbol]:
    """Return a declared letter, and the letter that stands for any number of its kind."""
    return letter(declaration[1]), WHOLE if declaration[2] == r"\mathbb{Z}" else NATURAL


def _read_items(texts: list[str]) -> list:
    r"""Read the members of a list or a set; ``1\pm 2`` is two of them."""
    items: list = []
    for text in texts:
        item = _read(text)
        if isinstance(item, Group) and item.kind == "list" and _SIGNS.search(text):
            items += item.items
        else:
            items.append(item)
    return items


def _read_set(text: str):
    """Read the text between two braces: a condition or a list."""
    builder = _BUILDER.fullmatch(text)
    if builder is None or builder[1].startswith(r"\{"):
        items = _read_items(_split_items(text))
        return Group("set", tuple(items))
    member, condition = builder[1].strip(), builder[2].strip()
    declaration = _DECLARED.fullmatch(condition)
    if declaration is not None and not member.startswith("("):
        image = rename(_read(member), dict([_declare(declaration)]))
        return Group("image", (image,), declaration[2])
    unknown, _, domain = member.partition(r"\in")
    value = _read(condition)
    if isinstance(value, Group):
        if value.name not in ("", unknown.strip()):
            raise Unreadable("a condition on another unknown")
        value = replace(value, name="")
    if domain.strip() in ("", r"\mathbb{R}"):
        return value
    return Group("and", (value, _read(domain)))


def _read_relation(text: str, marks: list[re.Match[str]]):
    """Read a chain of equations or inequalities around the given marks."""
    texts = []
    start = 0
    for mark in marks:
        texts.append(text[start : mark.start()].strip())
        start = mark.end()
    texts.append(text[start:].strip())
    signs = tuple(mark[0] for mark in marks)
    name = "".join(texts[0].split())
    bare = _INSIDE.sub("", _SUBSCRIPT.sub("", name))
    if _NO_NAME.search(bare):
        name = ""
    if signs == (r"\in",):
        if not name:
            raise Unreadable("a part of an unknown in a set")
        return _named(_read(texts[1]), name)
    if not EQUATED.issuperset(signs):
        return read_inequality(tuple(map(_read, texts)), signs)
    last = _read(texts[-1])
    if isinstance(last, Group) and name:
        return _named(last, name)
    return Relation((*map(read, texts[:-1]), last), signs, name)


def _named(value, name: str):
    return replace(value, name=name) if isinstance(value, Group) else value
