"""Decides which test programs are judged outside of the answer's process, before any answer.

A test program is judged outside (``drivers.tests``) if it needs nothing of the answer but calls of
its entry point. It must not patch the answer's modules, run or load what the answer could have
written, or use a name that neither the test program nor the problem's text defines.
"""

from __future__ import annotations

import ast
import functools
import sys

from openconductor.graders.drivers.cases import imported_by
from openconductor.graders.reading.snippet import FAILURES, names_of
from openconductor.syntax import parse_program

_REACHES_IN = (
    # into the modules and objects of the answer
    "mock patch MagicMock Mock monkeypatch freeze_time freezegun importlib inspect gc globals "
    "tracemalloc signal settrace setprofile modules "
    # what the answer's process shows only there
    "assertWarns assertWarnsRegex assertLogs assertNoLogs catch_warnings logging environ getenv "
    "putenv stdin stderr threading asyncio socket "
    # programs that the answer could have written, or could reach while they run
    "subprocess multiprocessing system popen fork exec eval compile __import__ runpy pickle "
    "cPickle dill cloudpickle joblib shelve marshal read_pickle read_hdf allow_pickle ctypes"
)
REACHES_IN = set(_REACHES_IN.split())
"""Names that a test program which is judged outside does not use."""
_LIBRARIES = (
    "numpy pandas matplotlib mpl_toolkits seaborn scipy sklearn statsmodels pytz dateutil faker "
    "bs4 lxml regex nltk sympy openpyxl xlrd docx PIL cv2 skimage Levenshtein wordcloud rsa psutil "
    "requests texttable prettytable natsort holidays chardet yaml cryptography"
)
LIBRARIES = set(_LIBRARIES.split())
"""Packages whose objects can be read through handles, beside those of the standard library."""


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
        words = _words_of(parse_program(tests))
        packages = {module.split(".")[0] for module in modules_of(tests, given)}
        lacking = names_of(tests).lacking - names_of(given).bound
    except FAILURES:
        return False
    if not REACHES_IN.isdisjoint(words):
        return False
    return lacking <= {entry_point} and LIBRARIES.union(sys.stdlib_module_names).issuperset(
        packages
    )


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
    """Return the modules that a test program and the problem's text import."""
    return [*imported_by(parse_program(given)), *imported_by(parse_program(tests))]


def _words_of(tree: ast.AST) -> set[str]:
    """Return all names of a program: variables, attributes, keywords and modules."""
    words: set[str] = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "module"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                words.update(name.split("."))
    return words
