"""What a block of code defines, needs and does, read off its syntax tree. Nothing is run."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from openconductor.syntax import parse_program

LONGEST = 100_000
"""Characters of the longest block that is parsed."""
BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
FAILURES = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Errors of Python's parser."""

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_SHOWS = {"print", "input", "exit", "quit"}
_RUNS = {"unittest.main", "doctest.testmod", "pytest.main", "sys.exit"}
_READS = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0|\bfileinput\b|\bos\.read\s*\(\s*0")
_ESCAPE = re.compile(r"\\([^\n\\'\"])")


class Names(NamedTuple):
    """The names that a module binds, those of them that it imports, and those that it lacks."""

    bound: set[str]
    imported: set[str]
    lacking: set[str]


@dataclass(frozen=True)
class Snippet:
    """A text that is Python.

    Attributes:
        text: the text.
        place: the number of its block in the reply, from 1; 0: it is in no block.
        tree: its syntax tree.
    """

    text: str
    place: int
    tree: ast.Module

    @cached_property
    def lines(self) -> frozenset[str]:
        """Its lines, as ``lines_of`` gives them."""
        return lines_of(self.text)

    @cached_property
    def names(self) -> Names:
        """The names of the module; none if Python's compiler refuses it."""
        try:
            return names_of(_without_escapes(self.text))
        except FAILURES:
            return Names(set(), set(), set())

    @cached_property
    def functions(self) -> dict[str, ast.stmt]:
        """The functions and classes at the top of the module, by name; of several, the last."""
        statements = top_statements(self.tree.body)
        return {node.name: node for node in statements if isinstance(node, DEFINITIONS)}

    @property
    def state(self) -> set[str]:
        """Names of data of the module that its functions use."""
        used = names_in(*self.functions.values())
        return (used & self.names.bound) - self.functions.keys() - self.names.imported

    def text_of(self, node: ast.stmt) -> str:
        """Return the lines of a statement."""
        return "\n".join(self.text.split("\n")[node.lineno - 1 : node.end_lineno])

    def definition(self, entry: str) -> ast.stmt | None:
        """Return the last statement that defines the entry point; None: there is none."""
        owner, _, method = entry.rpartition(".")
        definition: ast.stmt | None = None
        for node in top_statements(self.tree.body):
            if isinstance(node, ast.ClassDef) and node.name == (owner or "Solution"):
                names = [item.name for item in node.body if isinstance(item, FUNCTIONS)]
                if method in names or owner:
                    definition = node
            elif not owner and _binds(node, entry):
                definition = node
        return definition

    def reached_from(self, names: set[str]) -> set[str]:
        """Return the names of functions that code with these names may call, directly or not."""
        reached: set[str] = set()
        waiting = names & self.functions.keys()
        while waiting:
            reached |= waiting
            used = names_in(*(self.functions[name] for name in waiting))
            waiting = (used & self.functions.keys()) - reached
        return reached


def names_of(program: str) -> Names:
    """Return the names of a module.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is no valid program.
    """
    bound: set[str] = set()
    imported: set[str] = set()
    loaded: set[str] = set()
    waiting = [symtable.symtable(program, "program", "exec")]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() != "module" and not symbol.is_global():
                continue
            name = symbol.get_name()
            if symbol.is_imported():
                imported.add(name)
            if symbol.is_assigned():
                bound.add(name)
            if symbol.is_referenced():
                loaded.add(name)
    bound |= imported
    return Names(bound, imported, loaded - bound - BUILTINS)


def read_snippet(text: str, place: int = 0) -> Snippet | None:
    """Return a text as a snippet; None: it is not Python, or too long to tell."""
    for candidate in dict.fromkeys((text, textwrap.dedent(text))):
        tree = _parse(candidate)
        if tree is not None:
            return Snippet(candidate, place, tree) if tree.body else None
    return None


def top_statements(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements and those inside of their ``if``, ``try`` and ``with``."""
    waiting = list(reversed(statements))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and "__name__" in names_in(node.test):
            continue
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            for field in ("finalbody", "orelse", "body"):
                waiting += reversed(getattr(node, field, []))


def names_in(*nodes: ast.AST) -> set[str]:
    """Return all names that stand in some nodes."""
    names: set[str] = set()
    for node in nodes:
        names |= {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return names


def is_complete(definition: ast.AST) -> bool:
    """Return False if a definition is an import, a stub, or leaves a part out (``...``)."""
    if isinstance(definition, IMPORTS):
        return False
    complete = not isinstance(definition, DEFINITIONS)
    waiting = [definition]
    while waiting:
        node = waiting.pop()
        for field in _BLOCKS:
            waiting += getattr(node, field, ())
        match node:
            case ast.Expr(ast.Constant(value)):
                if value is ...:
                    return False
            case ast.Raise() if "NotImplementedError" in names_in(node):
                pass
            case ast.Pass() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case ast.stmt():
                complete = True
            case _:
                pass
    return complete


def ends(node: ast.stmt) -> bool:
    """Return True if a definition cannot go on: its last statement returns or raises."""
    if not isinstance(node, DEFINITIONS):
        return True
    return isinstance(node.body[-1], (ast.Return, ast.Raise))


def is_code(text: str) -> bool:
    """Return True if a text is Python that does or defines anything: "Note: this" is Python."""
    snippet = read_snippet(text)
    if snippet is None:
        return False
    plain = (ast.Name, ast.Constant, ast.Tuple, ast.BinOp, ast.Compare, ast.List, ast.Set)
    for node in snippet.tree.body:
        if isinstance(node, ast.AnnAssign) and node.value is None:
            continue
        if not isinstance(node, ast.Expr) or not isinstance(node.value, plain):
            return True
    return False


def lines_of(text: str) -> frozenset[str]:
    """Return the lines of a text without their indentation; blank ones do not count."""
    return frozenset(line.strip() for line in text.split("\n")) - {""}


def without_usage(snippet: Snippet, entry: str | None, parts: Sequence[Snippet]) -> str:
    """Return a text without the statements that only show or try what it defines.

    The other lines stay where they are.

    Args:
        snippet: the module.
        entry: the function under test; None: there is none.
        parts: the modules that become one program. Statements with names that one of them lacks
            are kept.
    """
    statements = snippet.tree.body
    others = [node for node in statements if not isinstance(node, (*DEFINITIONS, *IMPORTS))]
    if not others:
        return snippet.text
    kept = snippet.state.union(*(part.names.lacking for part in parts))
    calls = _calls_of_usage(snippet, entry)
    usage: set[ast.stmt] = set()
    for node in others:
        shows = _shows(node, calls) and not names_in(node) & kept
        if shows or isinstance(node, ast.Assert) or _is_tag(node):
            usage.add(node)
    lines = snippet.text.split("\n")
    needed = _line_numbers(node for node in statements if node not in usage)
    dropped = _line_numbers(usage) - needed
    if not dropped:
        return snippet.text
    for number in dropped:
        lines[number - 1] = ""
    return "\n".join(lines).rstrip("\n") + "\n"


def _calls_of_usage(snippet: Snippet, entry: str | None) -> set[str]:
    """Return the names of functions that usage calls; a method's name begins with a dot."""
    owner, _, method = (entry or "").rpartition(".")
    calls = {*_SHOWS, method, f".{method}"}
    used = snippet.reached_from({owner, method, "Solution"})
    for name, function in snippet.functions.items():
        if name not in used and isinstance(function, FUNCTIONS) and _shows(function, calls):
            calls.add(name)
    return calls


def _shows(node: ast.AST, calls: set[str]) -> bool:
    """Return True if a node calls one of some functions, or a runner of tests."""
    for call in ast.walk(node):
        match call:
            case ast.Call(ast.Name(name)) if name in calls:
                return True
            case ast.Call(ast.Attribute(ast.Name(owner), name)) if f"{owner}.{name}" in _RUNS:
                return True
            case ast.Call(ast.Attribute(_, name)) if f".{name}" in calls:
                return True
            case _:
                pass
    return False


def _line_numbers(nodes: Iterable[ast.stmt]) -> set[int]:
    """Return the numbers of the lines of some statements."""
    numbers: set[int] = set()
    for node in nodes:
        numbers.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return numbers


def is_test(snippet: Snippet) -> bool:
    """Return True if a module only tests: it has test cases, or feeds its own standard input."""
    for node in ast.walk(snippet.tree):
        match node:
            case ast.Import(names) if {name.name for name in names} & {"unittest", "pytest"}:
                return True
            case ast.Attribute(ast.Name("sys"), "stdin", ast.Store()):
                return True
            case _:
                pass
    return False


def reads_input(snippet: Snippet) -> bool:
    """Return True if a module reads standard input when it runs, also by its functions."""
    statements = snippet.tree.body
    running = [node for node in statements if not isinstance(node, (*DEFINITIONS, *IMPORTS))]
    called = snippet.reached_from(names_in(*running))
    running += [snippet.functions[name] for name in called]
    return any(_READS.search(snippet.text_of(node)) for node in running)


def acts(snippet: Snippet) -> bool:
    """Return True if a module does anything but define, assert and show values."""
    blocks = (ast.For, ast.While, ast.If, ast.With, ast.Try)
    for node in snippet.tree.body:
        match node:
            case ast.Expr(ast.Call() | ast.ListComp() | ast.Await()):
                return True
            case _ if isinstance(node, blocks):
                return True
            case _:
                pass
    return False


def _parse(text: str) -> ast.Module | None:
    if len(text) > LONGEST:
        return None
    try:
        tree = parse_program(_without_escapes(text))
    except FAILURES:
        return None
    if any(isinstance(node, ast.Return) for node in top_statements(tree.body)):
        return None  # a part of a function
    return tree


def _without_escapes(text: str) -> str:
    """Return a text without escapes that Python would warn of; its lines stay where they are."""
    return _ESCAPE.sub(r"\\\\\1", text) if "\\" in text else text


def _binds(node: ast.stmt, entry: str) -> bool:
    match node:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return name == entry
        case ast.Import(names) | ast.ImportFrom(names=names):
            return any((alias.asname or alias.name) == entry for alias in names)
        case ast.Assign([ast.Name(name)], value):
            callables = (ast.Lambda, ast.Name, ast.Attribute, ast.Call)
            return name == entry and isinstance(value, callables) and entry not in names_in(value)
        case _:
            return False


def _is_tag(node: ast.stmt) -> bool:
    """Return True for a name that stands alone, as in a line ``[BEGIN]``."""
    match node:
        case ast.Expr(ast.Name() | ast.List([ast.Name()])):
            return True
        case _:
            return False
