"""Finds and runs the tests of a test program; ``tests`` and ``beside`` have this before their text.

A test counts if its method was seen to return. One that is skipped, is expected to fail, or ends in
any other way does not.
"""

from __future__ import annotations

import ast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

COROUTINE = 0x80  # the flag of the code of an ``async def``


def execute(program: ast.Module | str, space: dict[str, Any]) -> None:
    """Run a program in a namespace, without this file's ``from __future__``."""
    exec(compile(program, "program.py", "exec", dont_inherit=True), space)  # noqa: S102


def tests_of(tree: ast.Module) -> list[tuple[str, str]]:
    """Return (class, method) of each test of unittest, in its order; none for assertions."""
    methods: dict[str, set[str]] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [ast.unparse(base) for base in node.bases]
        if any(base.endswith("TestCase") or base in methods for base in bases):
            methods[node.name] = set()
            for item in node.body:
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    methods[node.name].add(item.name)
            for base in bases:
                methods[node.name] |= methods.get(base, set())
    cases: list[tuple[str, str]] = []
    for class_name, names in methods.items():
        cases += [(class_name, name) for name in sorted(names) if name.startswith("test")]
    return cases


def run_plain_tests(tree: ast.Module, space: dict[str, Any]) -> None:
    """Run pytest's tests: functions without arguments, and methods of classes without a base."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            if node.name.startswith("test") and not node.args.args:
                space[node.name]()
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not node.bases:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name.startswith("test"):
                    getattr(space[node.name](), item.name)()


def imported_by(tree: ast.Module) -> list[str]:
    """Return the modules that import statements name, and those above them."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module
            if module and module != "__future__":
                names += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return names


def run_cases(
    space: dict[str, Any],
    cases: list[tuple[str, str]],
    after_each: Callable[[], None] = lambda: None,
) -> str:
    """Run unittest's tests by name; return the first fault, or "".

    Args:
        space: the namespace of the test program.
        cases: the class and method of each test.
        after_each: called after each test.
    """
    # An import statement would have it imported for every program.
    unittest: Any = __import__("unittest")
    ended: list[str] = []

    class Watched(unittest.TestResult):
        def stopTest(self, test: object) -> None:  # noqa: N802 - unittest's name
            after_each()

    suite = unittest.TestSuite()
    for class_name, method in cases:
        case = space[class_name](method)
        setattr(case, method, ending(method, getattr(case, method), ended))
        suite.addTest(case)
    result: Any = Watched()
    suite.run(result)
    faults = [*result.failures, *result.errors, *result.skipped, *result.expectedFailures]
    faults += [(test, "not expected to pass") for test in result.unexpectedSuccesses]
    if faults:
        test, text = faults[0]
        return f"failed {test.id()}: {text[-300:]}"
    if ended != [method for _, method in cases] or result.testsRun != len(cases):
        return "failed: a test did not run to its end"
    return ""


def ending(name: str, method: Any, ended: list[str]) -> Any:
    """Return a method that does as another one, and notes its name once that has returned."""
    is_coroutine = getattr(getattr(method, "__code__", None), "co_flags", 0) & COROUTINE

    async def run_coroutine() -> None:
        await method()
        ended.append(name)

    def run() -> None:
        method()
        ended.append(name)

    ending_method: Any = run_coroutine if is_coroutine else run
    ending_method.__dict__ |= method.__dict__  # unittest's marks: skip, expected to fail
    return ending_method
