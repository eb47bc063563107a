"""Runs a test program beside its answer, in one process: the weaker way to judge code.

``code`` sends this file into the sandbox as the program and calls ``check``. It believes a report
only if the nonce is right. Test programs are classes of unittest, ``check(candidate)`` or plain
assertions.

Defences against cheats. ``scan`` finds what only cheats need, before any of the answer is run.
After the answer has been imported, ``Pristine`` puts back the functions and classes of builtins,
unittest and every module that the tests import, and it compares them after every test. Tests are
called by the names in their text; skips and expected failures count as failures. Where the answer
hides a builtin, the tests see the builtin. ``check(candidate)`` and plain assertions get plain
values from the answer's functions. An answer that ends the process has no verdict.

Known gaps, because answer and tests share a process. An answer that hides from ``scan`` (names put
together from pieces, code from strings, other ways to a frame or to a mock) can walk the stack to
the nonce and forge the report. Returned objects whose comparison lies, unseen by ``scan``, pass
unittest's assertions. A patch that is undone before its test ends goes unseen. Tests that take
helpers from the answer believe them. In training, use tasks with inputs and outputs.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType

__builtins__ = dict(vars(builtins))  # this file's own: an answer may change those of everybody else
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from openconductor.graders.drivers.cases import (
        execute,
        imported_by,
        run_cases,
        run_plain_tests,
        tests_of,
    )

_NAMES = (
    "_getframe _current_frames currentframe f_back f_locals f_globals f_builtins tb_frame "
    "gi_frame cr_frame ag_frame settrace setprofile get_objects get_referrers get_referents "
    "walk_stack walk_tb getargvalues getouterframes getinnerframes "
    "__subclasses__ __builtins__ __build_class__ ctypes _ctypes"
)
SUSPICIOUS_NAMES = set(_NAMES.split())
SUSPICIOUS_MODULES = {"gc", "ctypes", "_ctypes", "faulthandler", "pdb", "bdb"}
COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__"}
JUDGES = {"unittest", "builtins", "__builtins__"}
PYTHON_TYPE = 1 << 9
"""The flag of classes that Python code has made: those of C cannot be changed."""
CODE = (FunctionType, BuiltinFunctionType, type, classmethod, staticmethod, property)
ATOMS: dict[type, Callable[[Any], object]] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: bytes.__bytes__,
}
"""The method of each type that makes a value of it, or of a subclass, anew."""
MANY: tuple[Any, ...] = (list, tuple, set, frozenset)
ITEMS: Any = dict.items  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
SEEN = "__seen__"


def scan(candidate: str) -> list[str]:
    """Return what an answer's text holds that only cheats need; nothing of it is run."""
    try:
        nodes = list(ast.walk(ast.parse(candidate)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # it will fail by itself
    judges = set(JUDGES)
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                module = getattr(node, "module", None) or alias.name
                if module.split(".")[0] in judges:
                    judges.add(alias.asname or alias.name)
    faults = {fault for node in nodes for fault in _faults(node, judges)}
    return sorted(faults)


def _faults(node: ast.AST, judges: set[str]) -> Iterator[str]:  # noqa: C901, PLR0912 - rules
    """Yield what is suspicious of one node.

    Args:
        node: of the answer.
        judges: the names of builtins and of all that came from unittest.
    """
    for field in ("attr", "id", "name"):
        name = getattr(node, field, None)
        if name in SUSPICIOUS_NAMES:
            yield f"uses {name}"
    match node:
        case ast.Import(names):
            for alias in names:
                if alias.name.split(".")[0] in SUSPICIOUS_MODULES:
                    yield f"imports {alias.name}"
        case ast.ImportFrom(str(module), names):
            if module.split(".")[0] in SUSPICIOUS_MODULES:
                yield f"imports {module}"
            if module.endswith("mock") and any(alias.name in {"ANY", "*"} for alias in names):
                yield "imports ANY"
        case ast.Constant(str(text)):
            head, dot, _ = text.partition(".")
            in_a_judge = head in JUDGES and dot and " " not in text
            if in_a_judge or text in SUSPICIOUS_NAMES or head in COMPARISONS:
                yield f"names {text!r}"
        case ast.FunctionDef(name=name) if name in COMPARISONS and _is_always_true(node):
            yield f"{name} is always true"
        case ast.Assign(targets, ast.Lambda()):
            for name in map(_root, targets):
                if name in COMPARISONS:
                    yield f"sets {name}"
        case ast.Attribute() | ast.Subscript() if _is_changed(node) and _root(node) in judges:
            yield f"writes to {_root(node)}"
        case ast.Attribute(ast.Attribute(attr=name)) if name in COMPARISONS:
            yield f"sets {name}"  # of a mock: ``m.__eq__.return_value``
        case ast.Attribute(attr=name) if _is_changed(node) and name in COMPARISONS:
            yield f"sets {name}"
        case ast.keyword(name) if name in COMPARISONS:
            yield f"sets {name}"
        case ast.Attribute(attr=name):
            dotted = ast.unparse(node)
            is_any = name == "ANY" and _root(node) in judges
            if is_any or dotted in {"inspect.stack", "inspect.trace"}:
                yield f"uses {dotted}"
        case ast.Call(ast.Name("setattr" | "delattr"), [changed, *_]) if _root(changed) in judges:
            yield f"writes to {_root(changed)}"
        case _:
            pass


def _is_always_true(function: ast.FunctionDef) -> bool:
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    constant = (isinstance(value, ast.Constant) and bool(value.value) for value in returns)
    return bool(returns) and all(constant)


def _is_changed(node: ast.Attribute | ast.Subscript) -> bool:
    return isinstance(node.ctx, (ast.Store, ast.Del))


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def check(candidate: str, tests: str, entry_point: str, nonce: str) -> dict[str, str]:
    """Scan the answer's text, import it, run the tests and report. A suspicious text is not run.

    Args:
        candidate: the answer's text.
        tests: the test program's text.
        entry_point: the function that ``check(candidate)`` is given.
        nonce: goes into the report, beside the ``fault``, which is "" if there is none.
    """
    suspicious = scan(candidate)
    if suspicious:
        return {"nonce": nonce, "fault": f"suspicious: {', '.join(suspicious)}"}
    return {"nonce": nonce, "fault": run_tests(candidate, tests, entry_point)}


def run_tests(candidate: str, tests: str, entry_point: str) -> str:
    """Import the answer and run the tests; return the first fault, or ""."""
    tree = ast.parse(tests)
    cases = tests_of(tree)
    guarded = {"builtins", "contextlib", "os", "os.path", "sys", *imported_by(tree)}
    if cases or "unittest" in tests:  # importing it takes half the time of a short check
        guarded |= {"unittest", "unittest.mock"}
    pristine = Pristine(guarded)
    answer = sys.modules["__test__"] = ModuleType("__test__")
    space = answer.__dict__
    space.update(__builtins__=builtins, __file__="__test__.py", sys=sys, os=os, environ=os.environ)
    execute(candidate, space)
    pristine.restore()
    seen: dict[str, Any] = {}
    if not cases:
        functions = {name: f for name, f in space.items() if isinstance(f, FunctionType)}
        seen = {name: plainly(function) for name, function in functions.items()}
    for name in space:
        if hasattr(builtins, name) and name != entry_point and not name.startswith("__"):
            seen[name] = getattr(builtins, name)
    space.update({"__builtins__": builtins, SEEN: seen})
    try:
        execute(ast.fix_missing_locations(Seeing(tree, seen).visit(tree)), space)
        run_plain_tests(tree, space)
        if not cases and "def check" in tests and isinstance(space.get("check"), FunctionType):
            space["check"](seen.get(entry_point) or space[entry_point])
    except BaseException as error:  # noqa: BLE001 - also SystemExit of the answer
        return f"failed {type(error).__name__}: {error}"[:300]
    return run_watched(space, cases, pristine)


class Seeing(ast.NodeTransformer):
    """Makes the tests read some names from ``SEEN``, unless the tests bind these names."""

    def __init__(self, tree: ast.Module, seen: dict[str, Any]) -> None:
        bound: set[str | None] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
            bound |= {getattr(node, field, None) for field in ("asname", "name", "arg")}
        self._seen = set(seen) - bound

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Return the name itself, or its place in ``SEEN``."""
        if node.id not in self._seen:
            return node
        return ast.Subscript(ast.Name(SEEN, ast.Load()), ast.Constant(node.id), ast.Load())


class Pristine:
    """The functions and classes of modules, and the functions of these classes, as they are now."""

    def __init__(self, names: set[str]) -> None:
        for name in names:
            try:
                __import__(name)
            except ImportError:
                continue  # the tests will say so themselves
        self._modules: dict[str, ModuleType] = {}
        for name, module in sys.modules.items():
            if name in names or name.split(".")[0] == "unittest":
                self._modules[name] = module
        self._code: list[tuple[ModuleType | type[Any], dict[str, object]]] = []
        self._bodies: list[tuple[FunctionType, object]] = []
        for module in self._modules.values():
            self._code.append((module, _code_of(module)))
            for value in vars(module).values():
                own = isinstance(value, type) and value.__module__ == module.__name__
                if own and value.__flags__ & PYTHON_TYPE:
                    self._code.append((value, _code_of(value)))
        for _, code in self._code:
            functions = (value for value in code.values() if isinstance(value, FunctionType))
            self._bodies += [(function, function.__code__) for function in functions]

    def changed(self) -> list[tuple[Any, str, object]]:
        """Return (owner, name, its value before) of each change; None: it was not there.

        A module may get new names, a class may not.
        """
        changes: list[tuple[Any, str, object]] = []
        for owner, code in self._code:
            names = set(code)
            if isinstance(owner, type):
                names |= _code_of(owner).keys()
            values = vars(owner)
            for name in names:
                before = code.get(name)
                if values.get(name) is not before:
                    changes.append((owner, name, before))
        for function, body in self._bodies:
            if function.__code__ is not body:
                changes.append((function, "__code__", body))
        return changes

    def restore(self) -> None:
        """Put everything back."""
        sys.modules.update(self._modules)
        for owner, name, value in self.changed():
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _code_of(owner: ModuleType | type[Any]) -> dict[str, object]:
    """Return the functions, classes and descriptors of a module or a class."""
    return {name: value for name, value in vars(owner).items() if isinstance(value, CODE)}


def run_watched(space: dict[str, Any], cases: list[tuple[str, str]], pristine: Pristine) -> str:
    """Run unittest's tests by name, if there are any; return the first fault, or ""."""
    changed = pristine.changed()
    fault = ""
    if cases:
        fault = run_cases(space, cases, lambda: changed.extend(pristine.changed()))
    if changed:
        names = {f"{owner.__name__}.{name}" for owner, name, _ in changed}
        return f"suspicious: changed {', '.join(sorted(names))}"
    return fault


def plainly(function: FunctionType) -> Callable[..., object]:
    """Return a function that returns the same values as plain builtins, or raises a TypeError."""
    return lambda *arguments, **keywords: plain(function(*arguments, **keywords))


def plain(value: Any) -> object:
    """Make a value anew of builtins, by their methods alone: those of subclasses are not used."""
    kind: type[object] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if value is None or kind is bool:
        return value
    for base, anew in ATOMS.items():
        if issubclass(kind, base):
            return anew(value)
    if issubclass(kind, dict):
        return {plain(key): plain(item) for key, item in ITEMS(value)}
    for many in MANY:
        if issubclass(kind, many):
            return many(map(plain, many.__iter__(value)))
    raise TypeError(f"the answer returned a value of type {kind.__name__}")
