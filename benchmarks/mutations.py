"""Small changes of a Python program that its tests should notice.

``statements`` lists what may be changed, ``mutations_of`` the changes of one statement, and
``mutate`` makes one of them. Data tables, docstrings, f-strings, annotations, decorators and
imports are left alone.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
BUILTINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "type_params"}


@dataclass(frozen=True)
class Mutation:
    """One change of one statement.

    Attributes:
        operator: the kind of change.
        node: the place of the changed node in ``ast.walk`` over the module.
        variant: which of the node's changes.
        line: the first line of the changed node.
        last_line: its last line.
    """

    operator: str
    node: int
    variant: int
    line: int
    last_line: int


def statements(module: ast.Module) -> list[ast.stmt]:
    """Return the statements that may be changed, in the order of the file."""
    return list(_eligible(module.body, at_top=True))


def mutations_of(module: ast.Module, statement: ast.stmt) -> list[Mutation]:
    """Return the changes of a statement, without those of the statements inside it."""
    places = {id(node): place for place, node in enumerate(ast.walk(module))}
    mutations: list[Mutation] = []
    for node in _own_nodes(statement):
        for variant, (operator, _) in enumerate(_replacements(node)):
            line = getattr(node, "lineno", statement.lineno)
            last_line = getattr(node, "end_lineno", line)
            if isinstance(node, ast.stmt):
                last_line = header_end(node)
            mutations.append(Mutation(operator, places[id(node)], variant, line, last_line))
    return mutations


def mutate(source: str, mutation: Mutation) -> tuple[str, str, str]:
    """Make a change; return the statement before, the statement after, and the whole new source."""
    module = ast.parse(source)
    node = list(ast.walk(module))[mutation.node]
    _, replacement = _replacements(node)[mutation.variant]
    statement = _statement_around(module, node)
    before = header_text(statement)
    if node is statement:
        after = header_text(replacement)
    else:
        after = header_text(_Swap(node, replacement).visit(copy.copy(statement)))
    changed = _Swap(node, replacement).visit(module)
    return before, after, ast.unparse(ast.fix_missing_locations(changed)) + "\n"


def header_end(statement: ast.stmt) -> int:
    """Return the last line of a statement, without the statements inside it."""
    inner = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
    if inner:
        return max(statement.lineno, inner[0].lineno - 1)
    return statement.end_lineno or statement.lineno


def header_text(statement: ast.AST) -> str:
    """Return a statement in one line, without decorators and without the statements inside it."""
    shown = copy.copy(statement)
    for name, value in ast.iter_fields(statement):
        if name == "decorator_list":
            setattr(shown, name, [])
        elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            setattr(shown, name, [ast.Pass()] if name == "body" else [])
    text = ast.unparse(ast.fix_missing_locations(shown))
    return " ".join(text.removesuffix("pass").split()) if "body" in shown._fields else text


# ── what may be changed ───────────────────────────────────────────────────────────────────────────
def _eligible(body: list[ast.stmt], *, at_top: bool = False) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _eligible(statement.body)
        elif at_top and not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if _is_number(statement):
                yield statement
        elif not isinstance(
            statement, ast.Import | ast.ImportFrom | ast.Pass | ast.Assert | ast.Global
        ):
            if not _is_docstring(statement):
                yield statement
            yield from _eligible(_inner_statements(statement))


def _inner_statements(statement: ast.stmt) -> list[ast.stmt]:
    inner: list[ast.stmt] = []
    for node in ast.iter_child_nodes(statement):
        if isinstance(node, ast.stmt):
            inner.append(node)
        elif isinstance(node, ast.ExceptHandler | ast.match_case):
            inner += node.body
    return inner


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_number(statement: ast.stmt) -> bool:
    """Return True for a module's constant that is a number; all else there is a table of data."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return False
    parts = list(ast.walk(statement.value))
    numbers = [part for part in parts if isinstance(part, ast.Constant)]
    arithmetic = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return all(isinstance(part, arithmetic) for part in parts) and all(
        isinstance(number.value, int | float) for number in numbers
    )


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, without those of the statements inside it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in SKIPPED_FIELDS:
                continue
            for child in value if isinstance(value, list) else [value]:
                skipped = (ast.stmt, ast.JoinedStr, ast.ExceptHandler, ast.match_case)
                if isinstance(child, ast.AST) and not isinstance(child, skipped):
                    waiting.append(child)


def _statement_around(module: ast.Module, wanted: ast.AST) -> ast.stmt:
    for statement in statements(module):
        if any(node is wanted for node in _own_nodes(statement)):
            return statement
    raise LookupError("the node is in no statement that may be changed")


class _Swap(ast.NodeTransformer):
    """Copies a tree as far as needed to put one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old = old
        self.new = new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.old:
            return self.new
        return self.generic_visit(copy.copy(node))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                items = [self.visit(item) if isinstance(item, ast.AST) else item for item in value]
                setattr(node, name, items)
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node


# ── the changes ───────────────────────────────────────────────────────────────────────────────────
def _replacements(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """Return the changes of a node by itself: the name of the operator and the new node."""
    if isinstance(node, ast.stmt):
        return _statement_changes(node)
    match node:
        case ast.Compare():
            return _comparisons(node)
        case ast.BoolOp():
            swapped = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            return [("and/or", _with(node, op=swapped))]
        case ast.UnaryOp(op=ast.Not()):
            return [("negation", node.operand)]
        case ast.IfExp():
            return [("negation", _with(node, test=_negated(node.test)))]
        case ast.comprehension():
            return _filters(node)
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            return [("arithmetic", _with(node, op=ARITHMETIC[type(node.op)]()))]
        case ast.Constant(value=bool() | int() | float()):
            return [("constant", ast.Constant(value)) for value in _other_numbers(node.value)]
        case ast.Subscript(slice=ast.Constant(value=str(text))):
            return [("constant", _with(node, slice=ast.Constant(_other_text(text))))]
        case ast.Slice():
            return _slices(node)
        case ast.Call(func=ast.Name(id=name)) if name in BUILTINS:
            function = ast.Name(BUILTINS[name], ast.Load())
            return [("built-in", _with(node, func=function))]
        case _:
            return []


def _statement_changes(node: ast.stmt) -> list[tuple[str, ast.AST]]:
    match node:
        case ast.If() | ast.While():
            return [("negation", _with(node, test=_negated(node.test)))]
        case ast.AugAssign() if type(node.op) in ARITHMETIC:
            changed = _with(node, op=ARITHMETIC[type(node.op)]())
            return [("arithmetic", changed), ("drop statement", ast.Pass())]
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            return [("return None", ast.Return(ast.Constant(None)))]
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Delete():
            return [("drop statement", ast.Pass())]
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return [("drop statement", ast.Pass())]
        case ast.Break():
            return [("break/continue", ast.Continue())]
        case ast.Continue():
            return [("break/continue", ast.Break())]
        case _:
            return []


def _with(node: ast.AST, **changes: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)


def _comparisons(node: ast.Compare) -> list[tuple[str, ast.AST]]:
    changes: list[tuple[str, ast.AST]] = []
    for place, operator in enumerate(node.ops):
        for other in COMPARISONS[type(operator)]:
            operators = [*node.ops[:place], other(), *node.ops[place + 1 :]]
            changes.append(("comparison", _with(node, ops=operators)))
    for place, operand in enumerate(node.comparators):
        if isinstance(operand, ast.Constant) and isinstance(operand.value, str):
            text = ast.Constant(_other_text(operand.value))
            operands = [*node.comparators[:place], text, *node.comparators[place + 1 :]]
            changes.append(("constant", _with(node, comparators=operands)))
    return changes


def _filters(node: ast.comprehension) -> list[tuple[str, ast.AST]]:
    changes: list[tuple[str, ast.AST]] = []
    for place, test in enumerate(node.ifs):
        tests = [*node.ifs[:place], _negated(test), *node.ifs[place + 1 :]]
        changes.append(("negation", _with(node, ifs=tests)))
    return changes


def _slices(node: ast.Slice) -> list[tuple[str, ast.AST]]:
    ends = ("lower", "upper")
    return [("slice", _with(node, **{end: None})) for end in ends if getattr(node, end) is not None]


def _other_numbers(value: float) -> tuple[float, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, value - 1)
    return (value * 2,) if value else (1.0,)


def _other_text(text: str) -> str:
    return f"{text}_changed"


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
