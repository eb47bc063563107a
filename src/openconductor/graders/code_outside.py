"""Decides which test programs are judged outside of the answer's process, before any answer.

A test program is judged outside (``drivers.tests``) if it needs nothing of the answer but calls of
its entry point. It must not patch the answer's modules, run or load what the answer could have
written, or use a name that neither the test program nor the problem's text defines.
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
from collections.abc import Iterator

from openconductor.syntax import parse_program

REACHES_IN = {
    # into the modules and objects of the answer
    *("mock", "patch", "MagicMock", "Mock", "monkeypatch", "freeze_time", "freezegun", "importlib"),
    *("inspect", "gc", "globals", "tracemalloc", "signal", "settrace", "setprofile", "modules"),
    # what the answer's process shows only there
    *("assertWarns", "assertWarnsRegex", "assertLogs", "assertNoLogs", "catch_warnings", "logging"),
    *("environ", "getenv", "putenv", "stdin", "stderr", "threading", "asyncio", "socket"),
    # programs that the answer could have written, or could reach while they run
    *("subprocess", "multiprocessing", "system", "popen", "fork", "exec", "eval", "compile"),
    *("__import__", "runpy", "pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve"),
    *("marshal", "read_pickle", "read_hdf", "allow_pickle", "ctypes"),
}
"""Names that a test program which is judged outside does not use."""
LIBRARIES = {
    *(
        "numpy",
        "pandas",
        "matplotlib",
        "mpl_toolkits",
        "seaborn",
        "scipy",
        "sklearn",
        "statsmodels",
    ),
    *("pytz", "dateutil", "faker", "bs4", "lxml", "regex", "nltk", "sympy", "openpyxl", "xlrd"),
    *("docx", "PIL", "cv2", "skimage", "Levenshtein", "wordcloud", "rsa", "psutil", "requests"),
    *("texttable", "prettytable", "natsort", "holidays", "chardet", "yaml", "cryptography"),
}
"""Packages whose objects can be read through handles, beside those of the standard library."""


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)


@functools.lru_cache(maxsize=4096)
def is_judged_outside(tests: str, given: str, entry_point: str | None) -> bool:
    """Return True if a test program can be judged outside of the answer's process.

    Args:
        tests: the test program.
        given: what the problem's text defines beside the function under test.
        entry_point: the function under test.
    """
    # The methods of a class would be called with the tests' own values.
    if not entry_point or "." in entry_point or entry_point[0].isupper():
        return False
    try:
        tree = parse_program(tests)
        given_tree = parse_program(given)
    except SyntaxError:
        return False
    used = set(_names_in(tree))
    if used & REACHES_IN:
        return False
    for module in _imported(tree) | _imported(given_tree):
        if module not in sys.stdlib_module_names and module not in LIBRARIES:
            return False
    known = {*_bound(tree), *_bound(given_tree), *dir(builtins), "__file__", entry_point}
    return all(name in known for name in _loaded(tree))


def given_by(prompt: str, entry_point: str) -> str:
    """Return what a problem's text defines beside the function under test; "" if it is no Python.

    Args:
        prompt: the beginning of a program, up to the function's docstring.
        entry_point: the function.
    """
    try:
        tree = parse_program(prompt)
    except SyntaxError:
        return ""
    tree.body = [node for node in tree.body if getattr(node, "name", "") != entry_point]
    return ast.unparse(tree)


def modules_of(tests: str, given: str) -> list[str]:
    """Return the packages that a test program and the problem's text import."""
    return sorted(_imported(parse_program(tests)) | _imported(parse_program(given)))


def _names_in(tree: ast.AST) -> Iterator[str]:
    """Yield all names of a program: variables, attributes, keywords and modules."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield from (name, *name.split("."))
        if isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")


def _imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def _loaded(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id


def _bound(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a program binds, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.split(".")[0]
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, _NAMED):
            yield node.name or ""
