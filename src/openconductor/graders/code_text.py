"""Finds the program in an answer; holds the lines that LiveCodeBench puts before a program.

Nothing is parsed or repaired: a program that does not compile is wrong.
"""

from __future__ import annotations

import re

from openconductor.graders.extraction import strip_thoughts

FENCE = re.compile(
    r"^[ \t]*((`|~)\2{2,})[ \t]*(?P<language>[\w+.#-]*)[^\n]*\n"
    r"(?P<block>.*?)(?:^[ \t]*\1\2*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
STARTS_A_PROGRAM = re.compile(
    r"(?:#|@|\"\"\"|'''|[A-Za-z_][\w., ]*\s*=[^=]"
    r"|(?:async\s+def|def|class|import|from|for|while|if|try|with|return|print)\b)"
)
FUTURE = re.compile(r"^from[ \t]+__future__[ \t]+import[^\n]*\n?", re.MULTILINE)
PYTHON = {"", "py", "python", "python3", "python2", "py3", "pypy", "pypy3"}

_MODULES = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools "
    "operator io sys json"
)
PREAMBLE = (
    "".join(f"from {name} import *\n" for name in [*_MODULES.split(), "builtins", "typing"])
    + "".join(f"import {name}\n" for name in _MODULES.split())
    + "sys.setrecursionlimit(50000)\n"
)
"""The imports and the setting that LiveCodeBench's runner gives every program (commit 28fef95)."""


def program_of(answer: str) -> str | None:
    """Return the program in an answer, or None.

    It is the last fenced block that is Python or names no language. Without fences it is the whole
    text, if that begins like a program. Thoughts do not count (``strip_thoughts``). A fence that is
    never closed ends with the text.
    """
    answer = strip_thoughts(answer)
    fences = list(FENCE.finditer(answer))
    if not fences:
        return answer if STARTS_A_PROGRAM.match(answer.lstrip()) else None
    for fence in reversed(fences):
        if fence["language"].lower() in PYTHON and fence["block"].strip():
            return fence["block"]
    return None


def with_preamble(program: str) -> str:
    """Return a program with LiveCodeBench's imports before it, ``from __future__`` first."""
    return "".join(FUTURE.findall(program)) + PREAMBLE + FUTURE.sub("\n", program)
