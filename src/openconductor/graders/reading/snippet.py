"""What a block of code defines, needs and does, read off its syntax tree. Nothing is run."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from openconductor.syntax import parse_program

LONGEST = 100_000
"""Characters of the longest block that is parsed."""
BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)

_SHOWS = {"print", "input", "exit", "quit"}
_RUNS = {"unittest.main", "doctest.testmod", "pytest.main", "sys.exit"}
_READS = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0|\bfileinput\b|\bos\.read\s*\(\s*0")
_ESCAPE = re.compile(r"\\([^\n\\'\"])")


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
    def numbered(self) -> list[str]:
        """Its lines in their order."""
        return self.text.split("\n")

    @cached_property
    def lines(self) -> frozenset[str]:
        """Its lines, as ``lines_of`` gives them."""
        return lines_of(self.text)

    @cached_property
    def names(self) -> tuple[frozenset[str], frozenset[str]]:
        """The names that the module binds, and those that it needs from elsewhere."""
        bound: set[str] = set()
        loaded: set[str] = set()
        for table in _tables(self.text):
            for symbol in table.get_symbols():
                if table.get_type() != "module" and not symbol.is_global():
                    continue
                if symbol.is_assigned() or symbol.is_imported():
                    bound.add(symbol.get_name())
                if symbol.is_referenced():
                    loaded.add(symbol.get_name())
        return frozenset(bound), frozenset(loaded - bound - BUILTINS)

    @cached_property
    def functions(self) -> dict[str, ast.stmt]:
        """The functions and classes at the top of the module, by name; of several, the last."""
        statements = top_statements(self.tree.body)
        return {node.name: node for node in statements if isinstance(node, DEFINITIONS)}

    @cached_property
    def state(self) -> frozenset[str]:
        """Names of data of the module that its functions use."""
        used: set[str] = set()
        for function in self.functions.values():
            used |= names_in(function)
        imported = {
            (alias.asname or alias.name).split(".")[0]
            for node in ast.walk(self.tree)
            if isinstance(node, IMPORTS)
            for alias in node.names
        }
        return frozenset(used & self.names[0]) - self.functions.keys() - imported

    def text_of(self, node: ast.stmt) -> str:
        """Return the lines of a statement."""
        return "\n".join(self.numbered[node.lineno - 1 : node.end_lineno])

    def definition(self, entry: str) -> ast.stmt | None:
        """Return the statement that defines the entry point; None: there is none."""
        owner, _, method = entry.rpartition(".")
        found: ast.stmt | None = None
        for node in top_statements(self.tree.body):
            if isinstance(node, ast.ClassDef) and node.name == (owner or "Solution"):
                names = [item.name for item in node.body if isinstance(item, FUNCTIONS)]
                if method in names or owner:
                    found = node
            elif not owner and _binds(node, entry):
                found = node
        return found


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


def names_in(node: ast.AST) -> set[str]:
    """Return all names that stand in a node."""
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}


def is_complete(definition: ast.AST) -> bool:
    """Return False if a definition is an import, a stub, or leaves a part out (``...``)."""
    if isinstance(definition, IMPORTS):
        return False
    statements = [node for node in ast.walk(definition) if isinstance(node, ast.stmt)]
    if any(_is_constant(node, Ellipsis) for node in statements):
        return False
    if not isinstance(definition, DEFINITIONS):
        return True
    return any(
        not isinstance(node, (ast.Pass, *DEFINITIONS)) and not _is_text(node) and not _refuses(node)
        for node in statements
    )


def ends(node: ast.stmt) -> bool:
    """Return True if a definition cannot go on: its last statement returns or raises."""
    if not isinstance(node, DEFINITIONS):
        return True
    return isinstance(node.body[-1], (ast.Return, ast.Raise))


def is_code(text: str) -> bool:
    """Return True if a text is Python that does or defines anything: "Note: this" is Python."""
    snippet = read_snippet(text)
    plain = (ast.Name, ast.Constant, ast.Tuple, ast.BinOp, ast.Compare, ast.List, ast.Set)
    for node in snippet.tree.body if snippet else ():
        if isinstance(node, ast.AnnAssign) and node.value is None:
            continue
        if not isinstance(node, ast.Expr) or not isinstance(node.value, plain):
            return True
    return False


def lines_of(text: str) -> frozenset[str]:
    """Return the lines of a text without their indentation; blank ones do not count."""
    return frozenset(line.strip() for line in text.split("\n")) - {""}


class _Usage:
    """Tells the statements that only show or try what a module defines.

    Args:
        snippet: the module.
        entry: the function under test; None: there is none.
    """

    def __init__(self, snippet: Snippet, entry: str | None) -> None:
        owner, _, self._method = (entry or "").rpartition(".")
        self._calls = _SHOWS | {self._method}
        used = _reached(snippet, {owner, self._method, "Solution"})
        for name, function in snippet.functions.items():
            if name not in used and isinstance(function, FUNCTIONS) and self._shows(function):
                self._calls = self._calls | {name}

    def is_usage(self, node: ast.stmt, kept: frozenset[str]) -> bool:
        """Return True if a statement at the top is usage, and touches none of the kept names."""
        if isinstance(node, (*DEFINITIONS, *IMPORTS)):
            return False
        if isinstance(node, ast.Assert) or _is_tag(node):
            return True
        return not names_in(node) & kept and self._shows(node)

    def _shows(self, node: ast.AST) -> bool:
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            match call.func:
                case ast.Name(name) if name in self._calls:
                    return True
                case ast.Attribute(ast.Name(owner), name) if f"{owner}.{name}" in _RUNS:
                    return True
                case ast.Attribute(_, name) if name == self._method:
                    return True
                case _:
                    pass
        return False


def without_usage(snippet: Snippet, entry: str | None, kept: frozenset[str]) -> str:
    """Return the text of a snippet without its usage; the other lines stay where they are.

    Args:
        snippet: the module.
        entry: the function under test; None: there is none.
        kept: names that other blocks need of it.
    """
    usage = _Usage(snippet, entry)
    needed: set[int] = set()
    dropped: set[int] = set()
    for node in snippet.tree.body:
        numbers = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        is_usage = usage.is_usage(node, kept | snippet.state)
        (dropped if is_usage else needed).update(numbers)
    dropped -= needed
    if not dropped:
        return snippet.text
    kept_lines = [
        "" if number in dropped else line for number, line in enumerate(snippet.numbered, 1)
    ]
    return "\n".join(kept_lines).rstrip("\n") + "\n"


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
    waiting: list[ast.stmt] = []
    for node in snippet.tree.body:
        if not isinstance(node, (*DEFINITIONS, *IMPORTS)):
            waiting.append(node)
    seen: set[str] = set()
    while waiting:
        node = waiting.pop()
        if _READS.search(snippet.text_of(node)):
            return True
        new = (names_in(node) & snippet.functions.keys()) - seen
        seen |= new
        waiting += [snippet.functions[name] for name in new]
    return False


def acts(snippet: Snippet) -> bool:
    """Return True if a module does anything but define, assert and show values."""
    for node in snippet.tree.body:
        match node:
            case ast.Expr(ast.Call()) | ast.For() | ast.While() | ast.If() | ast.With() | ast.Try():
                return True
            case ast.Expr(ast.ListComp() | ast.Await()):
                return True
            case _:
                pass
    return False


def _tables(text: str) -> Iterator[symtable.SymbolTable]:
    try:
        waiting = [symtable.symtable(_without_escapes(text), "program", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    while waiting:
        table = waiting.pop()
        yield table
        waiting += table.get_children()


def _parse(text: str) -> ast.Module | None:
    if len(text) > LONGEST:
        return None
    try:
        tree = parse_program(_without_escapes(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    fragment = any(isinstance(node, ast.Return) for node in top_statements(tree.body))
    return None if fragment else tree


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


def _reached(snippet: Snippet, names: set[str]) -> set[str]:
    """Return the names of functions that code with these names may call, directly or not."""
    reached: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        function = snippet.functions.get(name)
        if function is not None and name not in reached:
            reached.add(name)
            waiting += names_in(function)
    return reached


def _is_tag(node: ast.stmt) -> bool:
    """Return True for a name that stands alone, as in a line ``[BEGIN]``."""
    match node:
        case ast.Expr(ast.Name()) | ast.Expr(ast.List([ast.Name()])):
            return True
        case _:
            return False


def _is_constant(node: ast.AST, value: object) -> bool:
    match node:
        case ast.Expr(ast.Constant(found)):
            return found is value
        case _:
            return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _refuses(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and "NotImplementedError" in names_in(node)
