"""Runs a test program beside the answer that it tests, in one module of one process. The weaker way to judge code.

In: the answer, a test program (unittest, ``check(candidate)`` or plain assertions). Out: a report, which ``code``
believes only if its nonce is right and it names no fault. This file is sent into the sandbox as the program; ``scan``
reads the answer and ``check`` runs the tests, each in a process of its own.

What is done against cheats. ``scan`` finds what only cheats need, before any of the answer is run. The functions and
classes of builtins, unittest and every module that the tests import are put back as they were once the answer has been
imported, and compared after every test. Tests are called by the names that their text holds; skips and expected
failures count as failures. Where the answer hides a builtin, the tests see the builtin. ``check(candidate)`` and plain
assertions get plain values from the answer's functions. An answer that ends the process has no verdict.

What it cannot hold, for answer and tests share a process: an answer that hides from ``scan`` (names put together from
pieces, code from strings, other ways to a frame or to a mock) can walk the stack to the nonce and forge the report;
returned objects whose comparison lies, where ``scan`` does not see it, pass unittest's assertions; what is patched
while a test runs and put back before it ends; tests that take helpers from the answer believe them. In training, use
tasks with inputs and outputs.
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
    from collections.abc import Callable
    from typing import Any

SUSPICIOUS_NAMES = {
    *("_getframe", "_current_frames", "currentframe", "f_back", "f_locals", "f_globals", "f_builtins", "tb_frame"),
    *("gi_frame", "cr_frame", "ag_frame", "settrace", "setprofile", "get_objects", "get_referrers", "get_referents"),
    *("walk_stack", "walk_tb", "getargvalues", "getouterframes", "getinnerframes"),
    *("__subclasses__", "__builtins__", "__build_class__", "ctypes", "_ctypes"),
}
SUSPICIOUS_MODULES = {"gc", "ctypes", "_ctypes", "faulthandler", "pdb", "bdb"}
COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__"}
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
MANY: tuple[Any, ...] = (list, tuple, set, frozenset)
ITEMS: Any = dict.items  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
SEEN = "__seen__"


def scan(candidate: str) -> list[str]:
    """What an answer's text holds that only cheats need; nothing of it is run."""
    try:
        nodes = list(ast.walk(ast.parse(candidate)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # it will fail by itself
    judges = {"unittest", "builtins", "__builtins__"}
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if (getattr(node, "module", None) or alias.name).split(".")[0] in judges:
                    judges.add(alias.asname or alias.name)
    return sorted({fault for node in nodes for fault in _faults(node, judges)})


def _faults(node: ast.AST, judges: set[str]) -> list[str]:  # noqa: C901 - a list of rules, one after the other
    found: list[str] = []
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        found += [f"imports {name}" for name in names if name.split(".")[0] in SUSPICIOUS_MODULES]
        if names[0].endswith("mock") and {"ANY", "*"} & {alias.name for alias in node.names}:
            found.append("imports ANY")
    for field in ("attr", "id", "name"):
        if getattr(node, field, None) in SUSPICIOUS_NAMES:
            found.append(f"uses {getattr(node, field)}")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        parts = node.value.split(".")
        path = parts[0] in {"unittest", "builtins"} and len(parts) > 1 and " " not in node.value
        if path or node.value in SUSPICIOUS_NAMES or parts[0] in COMPARISONS:
            found.append(f"names {node.value!r}")
    if isinstance(node, ast.FunctionDef) and node.name in COMPARISONS and _always_true(node):
        found.append(f"{node.name} is always true")
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        names = [str(getattr(target, "id", "")) for target in node.targets]
        found += [f"{name} is a lambda" for name in names if name in COMPARISONS]
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        writes = isinstance(node.ctx, (ast.Store, ast.Del))
        if writes and _root(node) in judges:
            found.append(f"writes to {_root(node)}")
        if isinstance(node, ast.Attribute):
            within = getattr(node.value, "attr", "")  # of a mock's comparison, say ``m.__eq__.return_value``
            found += [f"sets {name}" for name in (within, node.attr if writes else "") if name in COMPARISONS]
            dotted = ast.unparse(node)
            if dotted in {"inspect.stack", "inspect.trace"} or (node.attr == "ANY" and _root(node) in judges):
                found.append(f"uses {dotted}")
    if isinstance(node, ast.Call):
        found += [f"sets {keyword.arg}" for keyword in node.keywords if keyword.arg in COMPARISONS]
        if _root(node.func) in {"setattr", "delattr"} and node.args and _root(node.args[0]) in judges:
            found.append(f"writes to {_root(node.args[0])}")
    return found


def _always_true(function: ast.FunctionDef) -> bool:
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return bool(returns) and all(isinstance(value, ast.Constant) and bool(value.value) for value in returns)


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def check(candidate: str, tests: str, entry_point: str, nonce: str) -> dict[str, str]:
    """Look at the answer's text, import it, run the tests, report. Where the text is suspicious, nothing of it is run.

    Args:
        candidate: the answer's text.
        tests: the test program's text.
        entry_point: the function that ``check(candidate)`` is given.
        nonce: goes into the report, beside the ``fault``, which is empty where there is none.
    """
    suspicious = scan(candidate)
    if suspicious:
        return {"nonce": nonce, "fault": f"suspicious: {', '.join(suspicious)}"}
    tree = ast.parse(tests)
    cases = tests_of(tree)
    for name in ("unittest", "unittest.mock", *imported_by(tree)):
        try:
            __import__(name)
        except ImportError:
            continue  # the tests will say so themselves
    pristine = Pristine(tree)
    answer = ModuleType("__test__")
    space = answer.__dict__
    space.update(__builtins__=builtins, __file__="__test__.py", sys=sys, os=os, environ=os.environ)
    sys.modules["__test__"] = answer
    execute(candidate, space)
    pristine.restore()
    hidden = [name for name in space if hasattr(builtins, name) and name != entry_point and name[:2] != "__"]
    seen: dict[str, Any] = {name: getattr(builtins, name) for name in hidden}
    if not cases:
        functions = {name: value for name, value in space.items() if isinstance(value, FunctionType)}
        seen = {**{name: plainly(value) for name, value in functions.items()}, **seen}
    space.update({"__builtins__": builtins, SEEN: seen})
    fault = ""
    try:
        execute(Seeing(tree, seen).visit(tree), space)
        if not cases and isinstance(space.get("check"), FunctionType) and "def check" in tests:
            space["check"](seen.get(entry_point) or space[entry_point])
    except BaseException as error:  # noqa: BLE001 - a user's own function, which may also raise SystemExit
        fault = f"failed {type(error).__name__}: {error}"[:300]
    return {"nonce": nonce, "fault": fault or run_cases(space, cases, pristine)}


def execute(program: str | ast.AST, space: dict[str, Any]) -> None:
    """Run a program in a namespace, without this file's ``from __future__``."""
    if not isinstance(program, str):
        ast.fix_missing_locations(program)
    exec(compile(program, "program.py", "exec", dont_inherit=True), space)  # type: ignore[arg-type]  # noqa: S102


def tests_of(tree: ast.Module) -> list[tuple[str, str]]:
    """(class, method) of each test of unittest, in its order; empty for programs of assertions."""
    methods: dict[str, set[str]] = {}
    for node in tree.body:
        bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.ClassDef) and any(base.endswith("TestCase") or base in methods for base in bases):
            own = {item.name for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
            inherited = set[str]().union(*(methods.get(base, set()) for base in bases))
            methods[node.name] = {name for name in own if name.startswith("test")} | inherited
    return [(name, method) for name, found in methods.items() for method in sorted(found)]


def imported_by(tree: ast.Module) -> list[str]:
    """The modules that import statements name, and those above them."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if not name.startswith("__future__")]


class Seeing(ast.NodeTransformer):
    """Has the tests take some names from ``SEEN`` where they read them, unless the tests themselves bind these."""

    def __init__(self, tree: ast.Module, seen: dict[str, object]) -> None:
        self._seen = set(seen)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.arg, ast.alias, ast.Name)):
                name = getattr(node, "asname", None) or getattr(node, "name", getattr(node, "arg", ""))
                bound = node.id if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) else name
                self._seen.discard(bound)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The name itself, or where it is seen."""
        if node.id not in self._seen:
            return node
        return ast.copy_location(ast.Subscript(ast.Name(SEEN, ast.Load()), ast.Constant(node.id), ast.Load()), node)


class Pristine:
    """The functions and classes of modules, and the functions of these classes, as they are now."""

    def __init__(self, tree: ast.Module) -> None:
        wanted = {"builtins", "os", "os.path", "sys", *imported_by(tree)}
        self._modules = {
            name: module for name, module in sys.modules.items() if name in wanted or name.split(".")[0] == "unittest"
        }
        self._attributes: list[tuple[ModuleType | type[Any], str, object]] = []
        self._owned: list[tuple[type[Any], set[str]]] = []
        for module in self._modules.values():
            self._attributes += [(module, name, value) for name, value in vars(module).items() if _is_code(value)]
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == module.__name__ and value.__flags__ & PYTHON_TYPE:
                    self._owned.append((value, set(vars(value))))
                    self._attributes += [(value, key, item) for key, item in vars(value).items() if _is_code(item)]

    def changed(self) -> list[str]:
        """The names of what is not as it was."""
        found = {f"{owner.__name__}.{name}" for owner, name, _ in self._replaced()}
        return sorted(found | {f"{owner.__name__}.{name}" for owner, name in self._added()})

    def restore(self) -> None:
        """Put everything back."""
        sys.modules.update(self._modules)
        for owner, name, value in self._replaced():
            setattr(owner, name, value)
        for owner, name in self._added():
            delattr(owner, name)

    def _replaced(self) -> list[tuple[ModuleType | type[Any], str, object]]:
        return [entry for entry in self._attributes if vars(entry[0]).get(entry[1]) is not entry[2]]

    def _added(self) -> list[tuple[type, str]]:
        new = [(owner, name) for owner, names in self._owned for name in set(vars(owner)) - names]
        return [(owner, name) for owner, name in new if _is_code(vars(owner)[name])]


def _is_code(value: object) -> bool:
    """Whether a module's or class's attribute is a function, a class or a descriptor of Python code."""
    return isinstance(value, CODE)


def run_cases(space: dict[str, Any], cases: list[tuple[str, str]], pristine: Pristine) -> str:
    """Run unittest's tests by name; the first fault."""
    from unittest import TestResult

    failed: list[str] = []
    tampered = set(pristine.changed())
    if cases and isinstance(space.get("setUpModule"), FunctionType):
        space["setUpModule"]()
    for class_name in dict.fromkeys(name for name, _ in cases):
        case = space[class_name]
        case.setUpClass()
        for method in [method for name, method in cases if name == class_name]:
            result = TestResult()
            case(method).run(result)
            faults = [*result.failures, *result.errors, *result.skipped, *result.expectedFailures]
            if faults or result.unexpectedSuccesses or result.testsRun != 1:
                failed.append(f"failed {class_name}.{method}: {faults[0][1][-300:] if faults else 'not run'}")
            tampered.update(pristine.changed())
        case.tearDownClass()
        case.doClassCleanups()
    if cases and isinstance(space.get("tearDownModule"), FunctionType):
        space["tearDownModule"]()
    return f"suspicious: changed {', '.join(sorted(tampered))}" if tampered else next(iter(failed), "")


def plainly(function: FunctionType) -> Callable[..., object]:
    """A function whose returned values are plain builtins; it raises a TypeError where they cannot be."""
    return lambda *arguments, **keywords: plain(function(*arguments, **keywords), 0)


def plain(value: Any, depth: int) -> object:
    """A value made anew of builtins, by the methods of these alone: whatever a subclass says of itself is lost."""
    kind: type[object] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if value is None or kind is bool:
        return value
    for base, anew in ATOMS.items():
        if issubclass(kind, base):
            return anew(value)
    if depth > 100:
        raise TypeError("the answer returned more than 100 levels")
    if issubclass(kind, dict):
        return {plain(key, depth + 1): plain(item, depth + 1) for key, item in ITEMS(value)}
    for many in MANY:
        if issubclass(kind, many):
            return many(plain(item, depth + 1) for item in many.__iter__(value))
    raise TypeError(f"the answer returned a value of type {kind.__name__}")
