"""Plain expressions of test programs: literals, operators and a few pure functions.

``evaluate`` compares the tree of an expression with ``ALLOWED`` before Python's ``eval`` sees it,
without builtins. The values may include one that a program under test returned. It is a plain
builtin by then, and ``evaluate`` refuses operations that a value could make slow or large.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from openconductor.sandboxes.encoding import MAX_HASHED
from openconductor.syntax import parse_expression

MAX_ITEMS = 1_000_000
MAX_BITS = 100_000
MAX_DIGITS = 1_000

_SYNTAX = (
    "Constant Name Load List Tuple Set Dict Subscript Slice "
    "UnaryOp unaryop BoolOp boolop Compare cmpop IfExp keyword "
    "BinOp Add Sub Mult Div FloorDiv Mod Pow BitAnd BitOr BitXor"
)
ALLOWED: tuple[type[ast.AST], ...] = tuple(getattr(ast, name) for name in _SYNTAX.split())
METHODS = {"join", "lower", "split", "strip", "upper"}
"""Methods that may be called on a text literal."""


class NotPlainExpression(ValueError):
    """An expression that is not evaluated here; the message names the part."""


FAILURES = (NotPlainExpression, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""The errors of a plain expression over unsuitable values; an assertion would raise the same."""


def _range(*bounds: int) -> list[int]:
    numbers = range(*bounds)
    if len(numbers) > MAX_ITEMS:
        raise NotPlainExpression("a range of a million numbers")
    return list(numbers)


def _hashed(kind: Callable[..., Any], *items: Any) -> Any:
    """Make a set or dict of few items, because values chosen to collide take quadratic time."""
    if items and hasattr(items[0], "__len__") and len(items[0]) > MAX_HASHED:
        raise NotPlainExpression(f"a {kind.__name__} of {len(items[0])} items")
    return kind(*items)


def _round(number: Any, ndigits: int | None = None) -> Any:
    if abs(ndigits or 0) > MAX_DIGITS:
        raise NotPlainExpression(f"{ndigits} digits")
    return round(number, ndigits)


def _times(left: Any, right: Any) -> Any:
    for items, times in ((left, right), (right, left)):
        if isinstance(times, int) and hasattr(items, "__len__") and len(items) * times > MAX_ITEMS:
            raise NotPlainExpression("a sequence of more than a million items")
    return left * right


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        bits = abs(right) * max(1, left.bit_length())
        if bits > MAX_BITS:
            raise NotPlainExpression(f"a power with the exponent {right}")
    return left**right


def _modulo(left: Any, right: Any) -> Any:
    if isinstance(left, (str, bytes)):
        raise NotPlainExpression("a text that formats")  # to any width
    return left % right


_BUILTINS = (
    "abs all any bool complex float int isinstance len list max min repr sorted str sum tuple"
)
_MATH = "ceil fabs floor isclose isinf isnan sqrt e inf nan pi"
_HASHED = {kind.__name__: kind for kind in (dict, frozenset, set)}
_FUNCTIONS: dict[str, Any] = {
    **{name: getattr(builtins, name) for name in _BUILTINS.split()},
    **{f"math.{name}": getattr(math, name) for name in _MATH.split()},
    **{name: functools.partial(_hashed, kind) for name, kind in _HASHED.items()},
    "range": _range,
    "round": _round,
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "Mult": _times,
    "Pow": _power,
    "Mod": _modulo,
}
"""By dotted name or by the name of an operator; the constants of ``math`` are among them."""
_CALLED = {f"{name}()": function for name, function in _FUNCTIONS.items()}
# Where a class is not called, it is an argument of ``isinstance``.
_NAMES = _FUNCTIONS | _HASHED | _CALLED


def evaluate(expression: ast.expr | str, names: Mapping[str, object]) -> object:
    """Return the value of an expression, given as a tree or as text.

    Raises:
        NotPlainExpression: it holds a part that is not evaluated here.
        TypeError, ValueError, ArithmeticError, LookupError, AttributeError: as Python raises them
            for unsuitable values.
    """
    if isinstance(expression, str):
        tree = parse_expression(expression)
    else:
        tree = copy.deepcopy(expression)
    checked = ast.Expression(_Plain(names).visit(tree))
    code = compile(ast.fix_missing_locations(checked), "condition", "eval")
    return eval(code, {**_NAMES, **names, "__builtins__": {}})  # noqa: S307 - checked by _Plain


class _Plain(ast.NodeTransformer):
    """Refuses what is not allowed; turns calls and slow operators into calls of ``_CALLED``."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        unpacks = isinstance(node, ast.Dict) and None in node.keys
        if unpacks or not isinstance(node, ALLOWED):
            raise NotPlainExpression(f"{type(node).__name__}: {ast.unparse(node)[:80]}")
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self._names and node.id not in _FUNCTIONS:
            raise NotPlainExpression(f"the name {node.id!r}")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        dotted = ast.unparse(node)
        if dotted not in _FUNCTIONS:
            raise NotPlainExpression(f"the attribute {dotted[:80]}")
        return _name(dotted)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        operator = type(node.op).__name__
        if operator not in _FUNCTIONS:
            return node
        return ast.Call(_name(f"{operator}()"), [node.left, node.right], [])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = self._function(node.func)
        for keyword in node.keywords:
            # A function as an argument (``key=abs``) would be called where nothing checks it.
            if keyword.arg is None or callable(_FUNCTIONS.get(ast.unparse(keyword.value))):
                raise NotPlainExpression(ast.unparse(node)[:80])
        arguments = [self.visit(argument) for argument in node.args]
        keywords = [self.visit(keyword) for keyword in node.keywords]
        return ast.Call(function, arguments, keywords)

    def _function(self, function: ast.expr) -> ast.expr:
        dotted = ast.unparse(function)
        match function:
            case ast.Attribute(ast.Constant(str()), method) if method in METHODS:
                return function
            case _ if callable(_FUNCTIONS.get(dotted)) and dotted not in self._names:
                return _name(f"{dotted}()")
            case _:
                raise NotPlainExpression(f"a call of {dotted[:80]}")


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())
