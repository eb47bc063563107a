"""What is read off the text of a test program: the tests that it holds, and what it imports. Nothing of it is run.

In: a test program of a data set. Out: names, which ``unittest_driver`` is told and whose report is held against them.
"""

from __future__ import annotations

import ast
import functools

from openconductor.graders.unittest_driver import CHECK, WHOLE


@functools.lru_cache(maxsize=1024)
def tests_of(program: str) -> tuple[str, ...]:
    """``Class.method`` for each test, in unittest's order; without classes of tests, ``CHECK`` or ``WHOLE`` alone."""
    methods: dict[str, set[str]] = {}
    whole = WHOLE
    for node in ast.parse(program).body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args:
            whole = CHECK
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [ast.unparse(base) for base in node.bases]
        if any(base.endswith("TestCase") or base in methods for base in bases):
            own = {item.name for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
            inherited = set[str]().union(*(methods.get(base, set()) for base in bases))
            methods[node.name] = {name for name in own if name.startswith("test")} | inherited
    return tuple(f"{name}.{method}" for name, found in methods.items() for method in sorted(found)) or (whole,)


@functools.lru_cache(maxsize=1024)
def imported_by(program: str) -> tuple[str, ...]:
    """The modules that import statements name, and those above them; ``os`` and ``sys`` are there in any case."""
    nodes = list(ast.walk(ast.parse(program)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    names += [name.rsplit(".", count)[0] for name in names for count in range(1, name.count(".") + 1)]
    return tuple(name for name in dict.fromkeys(["os", "os.path", "sys", *names]) if not name.startswith("__future__"))
