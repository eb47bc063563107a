"""Plain expressions of test programs, evaluated without Python's ``eval``: literals, operators, a few pure functions.

In: an expression's syntax tree and the values of its names. Out: its value, or a NotPlainExpression where it holds
anything else. What a program under test returned may be among the values: it is a plain builtin by then, and whatever
could make one of these operations slow or large is refused.
"""

from __future__ import annotations

import ast
import copy
import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

from openconductor.sandboxes.encoding import MAX_HASHED

MAX_ITEMS = 1_000_000
MAX_BITS = 100_000
MAX_DIGITS = 1_000

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: operator.mod,
    ast.Pow: lambda left, right: left**right,
    ast.BitAnd: lambda left, right: left & right,
    ast.BitOr: lambda left, right: left | right,
    ast.BitXor: lambda left, right: left ^ right,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}


def _range(*bounds: int) -> list[int]:
    numbers = range(*bounds)
    if len(numbers) > MAX_ITEMS:
        raise NotPlainExpression(f"a range of {len(numbers)} numbers")
    return list(numbers)


def _hashed(kind: Callable[[Any], Any]) -> Callable[..., Any]:
    """A set or dict of at most ``MAX_HASHED`` items: values chosen to collide would take it quadratic time."""

    def made(*items: Any) -> Any:
        if items and hasattr(items[0], "__len__") and len(items[0]) > MAX_HASHED:
            raise NotPlainExpression(f"a {kind.__name__} of {len(items[0])} items")
        return kind(*items)

    return made


def _round(number: Any, digits: int | None = None) -> Any:
    if isinstance(digits, int) and abs(digits) > MAX_DIGITS:
        raise NotPlainExpression(f"{digits} digits")
    return round(number, digits)


def _isinstance(value: object, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds)


_FUNCTIONS: dict[str, Any] = {
    **{
        function.__name__: function
        for function in (abs, all, any, bool, complex, dict, float, frozenset, int, len, list, max, min, round, set)
    },
    **{function.__name__: function for function in (sorted, str, sum, tuple, repr)},
    "range": _range,
    "isinstance": _isinstance,
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "fabs", "floor", "isclose", "isinf", "isnan", "sqrt")},
    **{f"math.{name}": getattr(math, name) for name in ("e", "inf", "nan", "pi")},
}
_GUARDED: dict[str, Any] = {"round": _round, **{kind.__name__: _hashed(kind) for kind in (dict, frozenset, set)}}
"""What is called instead."""
_METHODS = {"join", "lower", "split", "strip", "upper"}


class NotPlainExpression(ValueError):
    """The expression holds what is not evaluated here; the message says what."""


FAILURES = (NotPlainExpression, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""What evaluating a plain expression over unsuitable values raises, as an assertion over them would."""


def evaluate(node: ast.expr, names: Mapping[str, object]) -> object:
    """The value of an expression.

    Raises:
        NotPlainExpression: it holds what is not evaluated here.
        TypeError, ValueError, ArithmeticError, LookupError, AttributeError: as Python raises them, of values that do
        not fit.
    """
    return _Evaluation(names).value(node)


@functools.lru_cache(maxsize=4096)
def parsed(expression: str) -> ast.expr:
    """The tree of an expression that a test program of a data set holds."""
    return ast.parse(expression, mode="eval").body


class _Evaluation:
    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = names

    def value(self, node: ast.expr) -> Any:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise NotPlainExpression(f"{type(node).__name__}: {ast.unparse(node)[:80]}")
        return method(node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self._names and node.id not in _FUNCTIONS:
            raise NotPlainExpression(f"the name {node.id!r}")
        return self._names[node.id] if node.id in self._names else _FUNCTIONS[node.id]

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        return [self.value(node) for node in nodes]

    def _list(self, node: ast.List) -> Any:
        return self._items(node.elts)

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._items(node.elts))

    def _set(self, node: ast.Set) -> Any:
        return set(self._items(node.elts))

    def _dict(self, node: ast.Dict) -> Any:
        if None in node.keys:
            raise NotPlainExpression("a dict that unpacks another")
        return dict(zip(self._items(cast("list[ast.expr]", node.keys)), self._items(node.values), strict=True))

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        return _UNARY[type(node.op)](self.value(node.operand))

    def _binop(self, node: ast.BinOp) -> Any:
        apply = _BINARY.get(type(node.op))
        if apply is None:
            raise NotPlainExpression(ast.unparse(node)[:80])
        left, right = self.value(node.left), self.value(node.right)
        _bounded(node.op, left, right)
        return apply(left, right)

    def _boolop(self, node: ast.BoolOp) -> Any:
        stops = isinstance(node.op, ast.Or)
        value: Any = None
        for operand in node.values:
            value = self.value(operand)
            if bool(value) is stops:
                break
        return value

    def _compare(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        for comparison, operand in zip(node.ops, node.comparators, strict=True):
            right = self.value(operand)
            if not _COMPARE[type(comparison)](left, right):
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self.value(node.body if self.value(node.test) else node.orelse)

    def _subscript(self, node: ast.Subscript) -> Any:
        return self.value(node.value)[self.value(node.slice)]

    def _slice(self, node: ast.Slice) -> Any:
        return slice(*(None if part is None else self.value(part) for part in (node.lower, node.upper, node.step)))

    def _attribute(self, node: ast.Attribute) -> Any:
        dotted = ast.unparse(node)
        if dotted not in _FUNCTIONS:
            raise NotPlainExpression(f"the attribute {dotted[:80]}")
        return _FUNCTIONS[dotted]

    def _call(self, node: ast.Call) -> Any:
        function = self._function(node.func)
        keywords = {keyword.arg: self.value(keyword.value) for keyword in node.keywords}
        if None in keywords or any(callable(value) for value in keywords.values()):
            raise NotPlainExpression(ast.unparse(node)[:80])
        return function(*self._items(node.args), **cast("dict[str, Any]", keywords))

    def _function(self, node: ast.expr) -> Any:
        dotted = ast.unparse(node)
        if dotted in _FUNCTIONS and callable(_FUNCTIONS[dotted]) and dotted not in self._names:
            return _GUARDED.get(dotted, _FUNCTIONS[dotted])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str) and node.attr in _METHODS:
                return getattr(text, node.attr)
        raise NotPlainExpression(f"a call of {dotted[:80]}")


def _bounded(operation: ast.operator, left: Any, right: Any) -> None:
    """Refuse what would take long: large powers and products, and repeated sequences."""
    if isinstance(operation, ast.Mod) and isinstance(left, (str, bytes)):
        raise NotPlainExpression("a text that formats")  # to any width
    if isinstance(operation, ast.Pow) and isinstance(left, int) and isinstance(right, int):
        if abs(right) * max(1, left.bit_length()) > MAX_BITS:
            raise NotPlainExpression(f"a power with the exponent {right}")
    elif isinstance(operation, ast.Mult):
        for items, times in ((left, right), (right, left)):
            repeats = isinstance(items, (str, bytes, list, tuple)) and isinstance(times, int)
            if repeats and len(cast("list[Any]", items)) * cast(int, times) > MAX_ITEMS:
                raise NotPlainExpression("a sequence of more than a million items")
