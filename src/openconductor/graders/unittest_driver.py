"""Runs a test program beside the answer that it tests, in one process of the sandbox. The weaker way to judge code.

In: the answer, a test program (unittest, ``check(candidate)`` or plain assertions). Out: a report, which ``code``
believes only if its nonce is right, it names every test that the test program's text holds, and nothing failed, was
skipped or was tampered with. This file is sent into the sandbox as the program; ``scan`` reads the answer and ``check``
runs the tests, each in a process of its own.

What is done against cheats: the tests have a unittest and builtins of their own, loaded before the answer and out of
its sight; the other modules that they import are put back as they were once the answer has been imported, and compared
after every test; tests are called by name, and skips and expected failures count as failures; tests do not see names
of the answer that hide builtins; ``check(candidate)`` and plain assertions get plain values from the answer's
functions; an answer that ends the process has no verdict. ``scan`` finds what only cheats need, before any of the
answer is run, and ``code`` refuses such an answer.

What it cannot stop, for answer and tests share a process: an answer that hides from ``scan`` (names put together from
pieces, code from strings) can walk the stack to the nonce and forge the report; returned objects whose comparison
lies, where ``scan`` does not see it, pass unittest's assertions; a module other than unittest and builtins that is
patched while a test runs and put back before it ends; tests that take helpers from the answer believe them. In
training, use tasks with inputs and outputs.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SUSPICIOUS_NAMES = {
    *("_getframe", "_current_frames", "currentframe", "f_back", "f_locals", "f_globals", "f_builtins", "tb_frame"),
    *("gi_frame", "cr_frame", "ag_frame", "settrace", "setprofile", "get_objects", "get_referrers", "get_referents"),
    *("__subclasses__", "__builtins__", "__build_class__", "ctypes", "_ctypes"),
}
SUSPICIOUS_MODULES = {"gc", "ctypes", "_ctypes", "faulthandler", "pdb", "bdb"}
COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__"}
PYTHON_TYPE = 1 << 9
"""The flag of classes that Python code has made: those of C cannot be changed."""
CODE = (FunctionType, BuiltinFunctionType, type, classmethod, staticmethod, property)
ATOMS: dict[type, Callable[[Any], object]] = {
    bool: bool,
    int: lambda value: int.__add__(value, 0),
    float: float.__float__,
    complex: complex.__pos__,
    str: lambda value: str.__getitem__(value, slice(None)),
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}
ITEMS: Any = dict.items  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
MANY: tuple[Any, ...] = (list, tuple, set, frozenset)
WHOLE, CHECK = "the whole program", "check(candidate)"
"""The names of the one test of a program that holds no unittest classes."""


def scan(candidate: str) -> list[str]:
    """What an answer's text holds that only cheats need; nothing of it is run."""
    try:
        nodes = list(ast.walk(ast.parse(candidate)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # it will fail by itself
    judges = {"unittest", "builtins", "__builtins__", *_names_from_unittest(nodes)}
    return sorted({fault for node in nodes for fault in _faults(node, judges)})


def _names_from_unittest(nodes: list[ast.AST]) -> set[str]:
    imports = [
        node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unittest")
    ]
    aliases = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    return names | {
        alias.asname for alias in aliases if alias.asname and alias.name.split(".")[0] in {"unittest", "builtins"}
    }


def _faults(node: ast.AST, judges: set[str]) -> list[str]:
    found: list[str] = []
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        found += [f"imports {name}" for name in names if name.split(".")[0] in SUSPICIOUS_MODULES]
    for field in ("attr", "id", "name"):
        if getattr(node, field, None) in SUSPICIOUS_NAMES:
            found.append(f"uses {getattr(node, field)}")
    if isinstance(node, ast.Attribute) and ast.unparse(node) in {"inspect.stack", "inspect.trace"}:
        found.append(f"uses {ast.unparse(node)}")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        parts = node.value.split(".")
        if node.value in SUSPICIOUS_NAMES | COMPARISONS or (
            parts[0] in {"unittest", "builtins"} and len(parts) > 1 and " " not in node.value
        ):
            found.append(f"names {node.value!r}")
    if isinstance(node, ast.FunctionDef) and node.name in COMPARISONS and _always_true(node):
        found.append(f"{node.name} is always true")
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        found += [f"{name} is a lambda" for name in _targets(node) if name in COMPARISONS]
    if (
        isinstance(node, (ast.Attribute, ast.Subscript))
        and isinstance(node.ctx, (ast.Store, ast.Del))
        and _root(node) in judges
    ):
        found.append(f"writes to {_root(node)}")
    if isinstance(node, ast.Call) and _root(node.func) in {"setattr", "delattr"} and node.args:
        found += [f"writes to {root}" for root in (_root(node.args[0]),) if root in judges]
    return found


def _targets(node: ast.Assign) -> list[str]:
    return [str(getattr(target, "id", getattr(target, "attr", ""))) for target in node.targets]


def _always_true(function: ast.FunctionDef) -> bool:
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return bool(returns) and all(isinstance(value, ast.Constant) and bool(value.value) for value in returns)


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def check(
    candidate: str, tests: str, entry_point: str, wanted: list[str], imports: list[str], nonce: str
) -> dict[str, object]:
    """Look at the answer's text, import it, run the tests, report. Where the text is suspicious, nothing of it is run.

    Args:
        candidate: the answer's text.
        tests: the test program's text.
        entry_point: the function that ``check(candidate)`` is given.
        wanted: the tests that the program holds, by name.
        imports: the modules that it imports.
        nonce: goes into the report.
    """
    report: dict[str, object] = {"nonce": nonce, "ran": wanted, "failed": [], "tampered": []}
    suspicious = scan(candidate)
    if suspicious:
        return {**report, "suspicious": suspicious}
    own_builtins = dict(builtins.__dict__)
    by_hand = wanted in ([WHOLE], [CHECK])
    import_all(imports if by_hand else ["unittest", *imports])
    judges = take_away("unittest")
    others = Pristine({name: sys.modules[name] for name in imports if name in sys.modules})

    answer = ModuleType("__test__")
    answer.__dict__.update(__builtins__=builtins, __file__="__test__.py", sys=sys, os=os, environ=os.environ)
    sys.modules["__test__"] = answer
    execute(candidate, answer.__dict__)
    others.restore()
    space = {name: value for name, value in answer.__dict__.items() if name not in own_builtins}
    space.update(__builtins__=own_builtins, __name__="__test__")
    if by_hand:
        space.update({name: plainly(value) for name, value in space.items() if isinstance(value, FunctionType)})
        failed, tampered = run_assertions(space, tests, wanted == [CHECK], entry_point), others.changed()
    else:
        failed, tampered = run_cases(space, tests, wanted, judges, others)
    return {**report, "failed": failed, "tampered": tampered}


def execute(text: str, space: dict[str, Any]) -> None:
    """Run a program's text in a namespace, without this file's ``from __future__``."""
    exec(compile(text, "program.py", "exec", dont_inherit=True), space)  # noqa: S102 - what a sandbox is for


def import_all(names: list[str]) -> None:
    """Import what a test program will import, before the answer can get between."""
    for name in names:
        try:
            __import__(name)
        except ImportError:
            continue  # the tests will say so themselves


def take_away(package: str) -> dict[str, ModuleType]:
    """Remove a package from sys.modules, so that whoever imports it next gets another copy."""
    taken = {name: module for name, module in sys.modules.items() if name.split(".")[0] == package}
    for name in taken:
        del sys.modules[name]
    return taken


def is_code(value: object) -> bool:
    """Whether a module's or class's attribute is a function, a class or a descriptor of Python code."""
    return isinstance(value, CODE)


class Pristine:
    """The functions and classes of modules, and the functions of these classes, as they are now."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self._modules = modules
        self._attributes: list[tuple[ModuleType | type[Any], str, object]] = []
        self._owned: list[tuple[type[Any], set[str]]] = []
        for module in modules.values():
            self._attributes += [(module, name, value) for name, value in vars(module).items() if is_code(value)]
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == module.__name__ and value.__flags__ & PYTHON_TYPE:
                    self._owned.append((value, set(vars(value))))
                    self._attributes += [(value, key, item) for key, item in vars(value).items() if is_code(item)]

    def changed(self) -> list[str]:
        """The names of what is not as it was."""
        found = [
            f"{owner.__name__}.{name}" for owner, name, value in self._attributes if vars(owner).get(name) is not value
        ]
        return sorted({*found, *(f"{owner.__name__}.{name}" for owner, name in self._added())})

    def restore(self) -> None:
        """Put everything back."""
        sys.modules.update(self._modules)
        for owner, name, value in self._attributes:
            if vars(owner).get(name) is not value:
                setattr(owner, name, value)
        for owner, name in self._added():
            delattr(owner, name)

    def _added(self) -> list[tuple[type, str]]:
        new = [(owner, name) for owner, names in self._owned for name in set(vars(owner)) - names]
        return [(owner, name) for owner, name in new if is_code(vars(owner)[name])]


def run_cases(
    space: dict[str, Any], tests: str, wanted: list[str], judges: dict[str, ModuleType], others: Pristine
) -> tuple[list[str], list[str]]:
    """Run unittest's tests by name; (what failed, what was tampered with)."""
    failed: list[str] = []
    tampered: set[str] = set()
    theirs = take_away("unittest")
    sys.modules.update(judges)
    execute(tests, space)
    judges = take_away("unittest")
    sys.modules.update(theirs)
    unittest = judges["unittest"]
    own = Pristine(judges)
    _fixture(space.get("setUpModule"))
    for class_name in dict.fromkeys(name.split(".")[0] for name in wanted):
        case = space[class_name]
        case.setUpClass()
        for name in wanted:
            if name.split(".")[0] != class_name:
                continue
            result = unittest.TestResult()
            case(name.split(".")[1]).run(result)
            faults = [*result.failures, *result.errors, *result.skipped, *result.expectedFailures]
            if faults or result.unexpectedSuccesses or result.testsRun != 1:
                failed.append(f"{name}: {faults[0][1][-300:] if faults else 'not run'}")
            tampered.update(own.changed(), others.changed())
        case.tearDownClass()
        case.doClassCleanups()
    _fixture(space.get("tearDownModule"))
    return failed, sorted(tampered)


def _fixture(function: object) -> None:
    if isinstance(function, FunctionType):
        function()


def plainly(function: FunctionType) -> Callable[..., object]:
    """A function whose returned values are plain builtins; it raises a TypeError where they cannot be."""

    def called(*arguments: object, **keywords: object) -> object:
        return plain(function(*arguments, **keywords), 0)

    return called


def plain(value: Any, depth: int) -> object:
    """A value made anew of builtins, by the methods of these alone: whatever a subclass says of itself is lost."""
    kind: type[object] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if value is None or kind in ATOMS:
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


def run_assertions(space: dict[str, Any], tests: str, checks: bool, entry_point: str) -> list[str]:
    """Run a program of assertions, and its ``check`` with the entry point if it ``checks``; what failed."""
    try:
        execute(tests, space)
        if checks:
            space["check"](space[entry_point])
    except BaseException as error:  # noqa: BLE001 - a user's own function, which may also raise SystemExit
        return [f"{type(error).__name__}: {error}"[:300]]
    return []
