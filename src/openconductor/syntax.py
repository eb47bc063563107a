"""Parsing of Python source, one text at a time.

CPython 3.11 and 3.12 keep the depth of the syntax tree that is being built for a whole interpreter.
Two threads that build one trip each other (``SystemError: AST constructor recursion depth
mismatch``), so all of this package parse here.
"""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.RLock()
"""Reentrant: the collector may run a finaliser that parses while a tree is built."""


def parse_program(source: str) -> ast.Module:
    """Return the syntax tree of a program.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as ``ast.parse``.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source)


def parse_expression(source: str) -> ast.expr:
    """Return the syntax tree of an expression.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as ``ast.parse``.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source, mode="eval").body
