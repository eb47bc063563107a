"""Runs a test program beside the answer that it tests, in one module of one process. The weaker way to judge code.

In: the answer, a test program (unittest, ``check(candidate)`` or plain assertions). Out: a report,
which ``code`` believes only if its nonce is right and it names no fault. This file is sent into the
sandbox as the program; ``scan`` reads the answer and ``check`` runs the tests, each in a process of
its own.

What is done against cheats. ``scan`` finds what only cheats need, before any of the answer is run.
The functions and classes of builtins, unittest and every module that the tests import are put back
as they were once the answer has been imported, and compared after every test. Tests are called by
the names that their text holds; skips and expected failures count as failures. Where the answer
hides a builtin, the tests see the builtin. ``check(candidate)`` and plain assertions get plain
values from the answer's functions. An answer that ends the process has no verdict.

What it cannot hold, for answer and tests share a process: an answer that hides from ``scan`` (names
put together from pieces, code from strings, other ways to a frame or to a mock) can walk the stack
to the nonce and forge the report; returned objects whose comparison lies, where ``scan`` does not
see it, pass unittest's assertions; what is patched while a test runs and put back before it ends;
tests that take helpers from the answer believe them. In training, use tasks with inputs and
outputs.
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

SUSPICIOUS_NAMES = {
    *(
        "_getframe",
        "_current_frames",
        "currentframe",
        "f_back",
        "f_locals",
        "f_globals",
        "f_builtins",
        "tb_frame",
    ),
    *(
        "gi_frame",
        "cr_frame",
        "ag_frame",
        "settrace",
        "setprofile",
        "get_objects",
        "get_referrers",
        "get_referents",
    ),
    *("walk_stack", "walk_tb", "getargvalues", "getouterframes", "getinnerframes"),
    *("__subclasses__", "__builtins__", "__build_class__", "ctypes", "_ctypes"),
}
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
"""How a value of each type, or of a subclass, is made anew: by a method of the type itself."""
MANY: tuple[Any, ...] = (list, tuple, set, frozenset)
ITEMS: Any = dict.items  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
SEEN = "__seen__"


def scan(candidate: str) -> list[str]:
    """What an answer's text holds that only cheats need; nothing of it is run."""
    try:
        nodes = list(ast.walk(ast.parse(candidate)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # it will fail by itself
    judges = set(JUDGES)
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if (getattr(node, "module", None) or alias.name).split(".")[0] in judges:
                    judges.add(alias.asname or alias.name)
    return sorted({fault for node in nodes for fault in _faults(node, judges)})


def _faults(node: ast.AST, judges: set[str]) -> Iterator[str]:  # noqa: C901, PLR0912 - a list of rules
    """What is suspicious of one node; ``judges`` are the names of builtins and of what unittest gave."""
    for name in {getattr(node, field, None) for field in ("attr", "id", "name")} & SUSPICIOUS_NAMES:
        yield f"uses {name}"
    match node:
        case ast.Import(names) | ast.ImportFrom(names=names):
            imported = {alias.name for alias in names}
            module = getattr(node, "module", None) or ""
            for name in [module] if isinstance(node, ast.ImportFrom) else imported:
                if name.split(".")[0] in SUSPICIOUS_MODULES:
                    yield f"imports {name}"
            if module.endswith("mock") and imported & {"ANY", "*"}:
                yield "imports ANY"
        case ast.Constant(str(text)):
            head, *behind = text.split(".")
            in_a_judge = head in JUDGES and behind and " " not in text
            if in_a_judge or text in SUSPICIOUS_NAMES or head in COMPARISONS:
                yield f"names {text!r}"
        case ast.FunctionDef(name=name) if name in COMPARISONS and _is_always_true(node):
            yield f"{name} is always true"
        case ast.Assign(targets, ast.Lambda()):
            yield from (f"sets {name}" for name in map(_root, targets) if name in COMPARISONS)
        case ast.Attribute() | ast.Subscript() if (
            isinstance(node.ctx, (ast.Store, ast.Del)) and _root(node) in judges
        ):
            yield f"writes to {_root(node)}"
        case ast.Attribute(ast.Attribute(attr=name)) if (
            name in COMPARISONS
        ):  # a mock's: ``m.__eq__.return_value``
            yield f"sets {name}"
        case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()) | ast.keyword(name) if (
            name in COMPARISONS
        ):
            yield f"sets {name}"
        case ast.Attribute(attr=name) if ast.unparse(node) in {
            "inspect.stack",
            "inspect.trace",
        } or (name == "ANY" and _root(node) in judges):
            yield f"uses {ast.unparse(node)}"
        case ast.Call(ast.Name("setattr" | "delattr"), [changed, *_]) if _root(changed) in judges:
            yield f"writes to {_root(changed)}"
        case _:
            pass


def _is_always_true(function: ast.FunctionDef) -> bool:
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return bool(returns) and all(
        isinstance(value, ast.Constant) and bool(value.value) for value in returns
    )


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
    judges = (
        ("unittest", "unittest.mock") if cases or "unittest" in tests else ()
    )  # half the time of a short check
    pristine = Pristine({"builtins", "os", "os.path", "sys", *judges, *imported_by(tree)})
    answer = sys.modules["__test__"] = ModuleType("__test__")
    space = answer.__dict__
    space.update(__builtins__=builtins, __file__="__test__.py", sys=sys, os=os, environ=os.environ)
    execute(ast.parse(candidate), space)
    pristine.restore()
    functions = {
        name: plainly(value) for name, value in space.items() if isinstance(value, FunctionType)
    }
    seen: dict[str, Any] = {} if cases else functions
    for name in space:
        if hasattr(builtins, name) and name != entry_point and not name.startswith("__"):
            seen[name] = getattr(builtins, name)
    space.update({"__builtins__": builtins, SEEN: seen})
    fault = ""
    try:
        execute(Seeing(tree, seen).visit(tree), space)
        if not cases and isinstance(space.get("check"), FunctionType) and "def check" in tests:
            space["check"](seen.get(entry_point) or space[entry_point])
    except BaseException as error:  # noqa: BLE001 - a user's own function, which may also raise SystemExit
        fault = f"failed {type(error).__name__}: {error}"[:300]
    return {"nonce": nonce, "fault": fault or run_cases(space, cases, pristine)}


def execute(program: ast.Module, space: dict[str, Any]) -> None:
    """Run a program in a namespace, without this file's ``from __future__``."""
    code = compile(ast.fix_missing_locations(program), "program.py", "exec", dont_inherit=True)
    exec(code, space)  # noqa: S102


def tests_of(tree: ast.Module) -> list[tuple[str, str]]:
    """(class, method) of each test of unittest, in its order; empty for programs of assertions."""
    methods: dict[str, set[str]] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [ast.unparse(base) for base in node.bases]
        if any(base.endswith("TestCase") or base in methods for base in bases):
            own = {
                item.name
                for item in node.body
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
            }
            methods[node.name] = own.union(*(methods.get(base, ()) for base in bases))
    return [
        (name, method)
        for name, found in methods.items()
        for method in sorted(found)
        if method[:4] == "test"
    ]


def imported_by(tree: ast.Module) -> list[str]:
    """The modules that import statements name, and those above them."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module
            and not node.level
            and node.module != "__future__"
        ):
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


class Seeing(ast.NodeTransformer):
    """Has the tests take some names from ``SEEN`` where they read them, unless the tests themselves bind these."""

    def __init__(self, tree: ast.Module, seen: dict[str, Any]) -> None:
        nodes = list(ast.walk(tree))
        stored = {
            node.id
            for node in nodes
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        }
        named = {
            getattr(node, field, None) for node in nodes for field in ("asname", "name", "arg")
        }
        self._seen = set(seen) - stored - named

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The name itself, or where it is seen."""
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
        self._modules = {
            name: module
            for name, module in sys.modules.items()
            if name in names or name.split(".")[0] == "unittest"
        }
        self._code: list[tuple[ModuleType | type[Any], dict[str, object]]] = []
        for module in self._modules.values():
            self._code.append((module, _code_of(module)))
            for value in vars(module).values():
                if (
                    isinstance(value, type)
                    and value.__module__ == module.__name__
                    and value.__flags__ & PYTHON_TYPE
                ):
                    self._code.append((value, _code_of(value)))

    def changed(self) -> list[tuple[ModuleType | type[Any], str, object]]:
        """(owner, name, what it was, if anything) of all that is not as it was; a module may get new names."""
        return [
            (owner, name, code.get(name))
            for owner, code in self._code
            for name in code.keys() | (_code_of(owner).keys() if isinstance(owner, type) else ())
            if vars(owner).get(name) is not code.get(name)
        ]

    def restore(self) -> None:
        """Put everything back."""
        sys.modules.update(self._modules)
        for owner, name, value in self.changed():
            delattr(owner, name) if value is None else setattr(owner, name, value)


def _code_of(owner: ModuleType | type[Any]) -> dict[str, object]:
    """The functions, classes and descriptors of a module or a class."""
    return {name: value for name, value in vars(owner).items() if isinstance(value, CODE)}


def run_cases(space: dict[str, Any], cases: list[tuple[str, str]], pristine: Pristine) -> str:
    """Run unittest's tests by name, if there are any; the first fault."""
    changed, result = pristine.changed(), None
    if cases:
        unittest: Any = __import__(
            "unittest"
        )  # an import statement would have it imported for every program

        class Watched(unittest.TestResult):
            def stopTest(self, test: object) -> None:  # noqa: N802 - unittest's name
                changed.extend(pristine.changed())

        result = Watched()
        unittest.TestSuite(space[class_name](method) for class_name, method in cases).run(result)
    if changed:
        return f"suspicious: changed {', '.join(sorted({f'{owner.__name__}.{name}' for owner, name, _ in changed}))}"
    if result is None:
        return ""
    faults = [*result.failures, *result.errors, *result.skipped, *result.expectedFailures]
    faults += [(test, "not expected to pass") for test in result.unexpectedSuccesses]
    if faults:
        return f"failed {faults[0][0].id()}: {faults[0][1][-300:]}"
    return "" if result.testsRun == len(cases) else "failed: a test was not run"


def plainly(function: FunctionType) -> Callable[..., object]:
    """A function whose returned values are plain builtins; it raises a TypeError where they cannot be."""
    return lambda *arguments, **keywords: plain(function(*arguments, **keywords))


def plain(value: Any) -> object:
    """A value made anew of builtins, by the methods of these alone: whatever a subclass says of itself is lost."""
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
