"""Plain expressions of test programs, evaluated with nothing but literals, operators and a few pure functions.

In: an expression and the values of its names. Out: its value, or a NotPlainExpression where it
holds anything else. What a program under test returned may be among the values: it is a plain
builtin by then, and whatever could make one of these operations slow or large is refused. The tree
is held against a list of what is allowed before Python's ``eval`` sees it, without builtins.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from openconductor.sandboxes.encoding import MAX_HASHED

MAX_ITEMS = 1_000_000
MAX_BITS = 100_000
MAX_DIGITS = 1_000

ALLOWED = (
    *(
        ast.Constant,
        ast.Name,
        ast.Load,
        ast.List,
        ast.Tuple,
        ast.Set,
        ast.Dict,
        ast.UnaryOp,
        ast.unaryop,
        ast.BinOp,
    ),
    *(
        ast.Add,
        ast.Sub,
        ast.Div,
        ast.FloorDiv,
        ast.BitAnd,
        ast.BitOr,
        ast.BitXor,
        ast.Mult,
        ast.Pow,
        ast.Mod,
    ),
    *(
        ast.BoolOp,
        ast.boolop,
        ast.Compare,
        ast.cmpop,
        ast.IfExp,
        ast.Subscript,
        ast.Slice,
        ast.keyword,
    ),
)
METHODS = {"join", "lower", "split", "strip", "upper"}
"""Of a text that is in the expression."""


class NotPlainExpression(ValueError):
    """The expression holds what is not evaluated here; the message says what."""


FAILURES = (NotPlainExpression, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""What evaluating a plain expression over unsuitable values raises, as an assertion over them would."""


def _refuse(what: str) -> NoReturn:
    raise NotPlainExpression(what)


def _range(*bounds: int) -> list[int]:
    return (
        list(range(*bounds))
        if len(range(*bounds)) <= MAX_ITEMS
        else _refuse("a range of a million numbers")
    )


def _hashed(kind: Callable[..., Any], *items: Any) -> Any:
    """A set or dict of at most ``MAX_HASHED`` items: values chosen to collide would take it quadratic time."""
    large = items and hasattr(items[0], "__len__") and len(items[0]) > MAX_HASHED
    return _refuse(f"a {kind.__name__} of {len(items[0])} items") if large else kind(*items)


def _round(number: Any, ndigits: int | None = None) -> Any:
    return (
        round(number, ndigits) if abs(ndigits or 0) <= MAX_DIGITS else _refuse(f"{ndigits} digits")
    )


def _times(left: Any, right: Any) -> Any:
    for items, times in ((left, right), (right, left)):
        if isinstance(times, int) and hasattr(items, "__len__") and len(items) * times > MAX_ITEMS:
            _refuse("a sequence of more than a million items")
    return left * right


def _power(left: Any, right: Any) -> Any:
    if (
        isinstance(left, int)
        and isinstance(right, int)
        and abs(right) * max(1, left.bit_length()) > MAX_BITS
    ):
        _refuse(f"a power with the exponent {right}")
    return left**right


def _modulo(left: Any, right: Any) -> Any:
    return (
        _refuse("a text that formats") if isinstance(left, (str, bytes)) else left % right
    )  # to any width


_BUILTINS = (
    "abs all any bool complex float int isinstance len list max min repr sorted str sum tuple"
)
_MATH = "ceil fabs floor isclose isinf isnan sqrt e inf nan pi"
_HASHED = (dict, frozenset, set)
_FUNCTIONS: dict[str, Any] = {
    **{name: getattr(builtins, name) for name in _BUILTINS.split()},
    **{kind.__name__: functools.partial(_hashed, kind) for kind in _HASHED},
    **{f"math.{name}": getattr(math, name) for name in _MATH.split()},
    "range": _range,
    "round": _round,
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "Mult": _times,
    "Pow": _power,
    "Mod": _modulo,
}
_NAMES = {
    **_FUNCTIONS,
    **{
        kind.__name__: kind for kind in _HASHED
    },  # not called, but the second argument of ``isinstance``
    **{f"{name}()": function for name, function in _FUNCTIONS.items()},
}
"""What the names of a compiled expression are; a function that is called has another one."""


def evaluate(expression: ast.expr | str, names: Mapping[str, object]) -> object:
    """The value of an expression, a tree or the text of one of a data set.

    Raises:
        NotPlainExpression: it holds what is not evaluated here.
        TypeError, ValueError, ArithmeticError, LookupError, AttributeError: as Python raises them,
        of values that do not fit.
    """
    tree = (
        ast.parse(expression, mode="eval").body
        if isinstance(expression, str)
        else copy.deepcopy(expression)
    )
    tree = ast.fix_missing_locations(ast.Expression(_Plain(names).visit(tree)))
    return eval(compile(tree, "condition", "eval"), {**_NAMES, **names, "__builtins__": {}})  # noqa: S307 - see above


class _Plain(ast.NodeTransformer):
    """Refuses what is not allowed; calls and the operators that can be slow become calls of ``_FUNCTIONS``."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ALLOWED) or (isinstance(node, ast.Dict) and None in node.keys):
            _refuse(f"{type(node).__name__}: {ast.unparse(node)[:80]}")
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        known = node.id in self._names or node.id in _FUNCTIONS
        return node if known else _refuse(f"the name {node.id!r}")

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        dotted = ast.unparse(node)
        return (
            ast.Name(dotted, ast.Load())
            if dotted in _FUNCTIONS
            else _refuse(f"the attribute {dotted[:80]}")
        )

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        slow = type(node.op).__name__
        return (
            ast.Call(ast.Name(f"{slow}()", ast.Load()), [node.left, node.right], [])
            if slow in _FUNCTIONS
            else node
        )

    def visit_Call(self, node: ast.Call) -> ast.AST:
        dotted = ast.unparse(node.func)
        match node.func:
            case ast.Attribute(ast.Constant(str()), method) if method in METHODS:
                function = node.func
            case _ if callable(_FUNCTIONS.get(dotted)) and dotted not in self._names:
                function = ast.Name(f"{dotted}()", ast.Load())
            case _:
                _refuse(f"a call of {dotted[:80]}")
        for keyword in node.keywords:
            if keyword.arg is None or callable(_FUNCTIONS.get(ast.unparse(keyword.value))):
                _refuse(ast.unparse(node)[:80])
        return ast.Call(
            function,
            [self.visit(item) for item in node.args],
            [self.visit(k) for k in node.keywords],
        )
