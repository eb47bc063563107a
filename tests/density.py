"""Measures of Python code that do not change when it is broken into other lines.

``measure`` counts the syntax nodes of a file (how much there is to understand) and how tightly its
statements are packed (how easily it is read). Docstrings and type annotations count for nothing.
A statement is a simple one as a whole, or the header of a compound one (the test of an ``if``);
imports and the headers of functions and classes are left out.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NOT_COUNTED = (ast.Import, ast.ImportFrom, *FUNCTIONS, ast.ClassDef)
BLOCKS = {"body", "orelse", "finalbody", "handlers", "cases"}
NESTING = (
    *COMPREHENSIONS,
    ast.Await,
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.IfExp,
    ast.JoinedStr,
    ast.Lambda,
    ast.NamedExpr,
    ast.Subscript,
    ast.UnaryOp,
)
DEEP = 5
RIDDLES = set("what who whom whose where whether how of that which why when".split())  # noqa: SIM905


@dataclass
class Density:
    """Counts of some code; ``+=`` adds those of more code."""

    nodes: int = 0
    sizes: list[int] = field(default_factory=list)  # nodes of each statement
    deep: int = 0  # statements whose expressions nest five deep or deeper
    conditionals: int = 0
    walruses: int = 0
    nested: int = 0  # comprehensions that hold a comprehension
    docstrings: int = 0
    riddles: int = 0  # docstrings that begin with a question word

    def __iadd__(self, other: Density) -> Density:
        self.nodes += other.nodes
        self.sizes += other.sizes
        self.deep += other.deep
        self.conditionals += other.conditionals
        self.walruses += other.walruses
        self.nested += other.nested
        self.docstrings += other.docstrings
        self.riddles += other.riddles
        return self

    @property
    def mean(self) -> float:
        """Nodes a statement."""
        return sum(self.sizes) / max(len(self.sizes), 1)

    @property
    def ninetieth(self) -> int:
        """The ninetieth percentile of nodes a statement."""
        ordered = sorted(self.sizes) or [0]
        return ordered[int(0.9 * (len(ordered) - 1))]

    def per_thousand(self, count: int) -> float:
        """Return a count for each thousand statements."""
        return 1000 * count / max(len(self.sizes), 1)


def measure_all(paths: Iterable[Path]) -> Density:
    """Measure several files together."""
    total = Density()
    for path in paths:
        total += measure(path)
    return total


@functools.cache
def measure(path: Path) -> Density:
    """Measure one file."""
    tree = ast.parse(path.read_text("utf-8"))
    _remove_annotations(tree)
    density = Density(nodes=_count_nodes(tree))
    for node in ast.walk(tree):
        docstring = _docstring(node)
        if docstring is not None:
            density.docstrings += 1
            density.nodes -= 2  # the expression and its text
            density.riddles += _first_word(docstring) in RIDDLES
        if isinstance(node, ast.IfExp):
            density.conditionals += 1
        elif isinstance(node, ast.NamedExpr):
            density.walruses += 1
        elif isinstance(node, COMPREHENSIONS):
            density.nested += _holds_comprehension(node)
        elif _is_statement(node):
            parts = list(_own_parts(node))
            density.sizes.append(1 + sum(_count_nodes(part) for part in parts))
            density.deep += max((_depth(part) for part in parts), default=0) >= DEEP
    return density


def statements_of(function: ast.AST) -> int:
    """Return the number of statements in a function, those of its inner functions among them."""
    return sum(_is_statement(node) for node in ast.walk(function))


def _remove_annotations(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, FUNCTIONS):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)


def _count_nodes(tree: ast.AST) -> int:
    return sum(not isinstance(node, ast.expr_context) for node in ast.walk(tree))


def _is_statement(node: ast.AST) -> bool:
    if not isinstance(node, ast.stmt) or isinstance(node, NOT_COUNTED):
        return False
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return not is_text


def _own_parts(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a statement without the blocks below it."""
    for name, value in ast.iter_fields(statement):
        if name in BLOCKS and isinstance(value, list):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield part


def _depth(node: ast.AST) -> int:
    below = max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)
    return below + isinstance(node, NESTING)


def _holds_comprehension(node: ast.AST) -> bool:
    below = (inner for inner in ast.walk(node) if inner is not node)
    return any(isinstance(inner, COMPREHENSIONS) for inner in below)


def _docstring(node: ast.AST) -> str | None:
    if not isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)):
        return None
    return ast.get_docstring(node)


def _first_word(text: str) -> str:
    words = text.split()
    return words[0].strip("`,.:").lower() if words else ""
