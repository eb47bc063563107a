"""Finds the program in an answer; holds the lines that LiveCodeBench puts before a program."""

from __future__ import annotations

import re

from openconductor.graders.extraction import strip_thoughts
from openconductor.graders.reading.program import FUTURE, Program, find_program

LONGEST = 1_000_000
"""Characters of a reply that are searched for a program, from its end."""
STARTS_A_PROGRAM = re.compile(
    r"(?:#|@|\"\"\"|'''|[A-Za-z_][\w., ]{0,200}=[^=]"
    r"|(?:async\s+def|def|class|import|from|for|while|if|try|with|return|print)\b)"
)

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


def read_program(answer: str, entry_point: str | None = None) -> Program | None:
    """Return the program in an answer, or None.

    Thoughts do not count. ``reading.program`` has the rules for blocks. An answer without blocks is
    the program if it begins like one.

    Args:
        answer: the whole answer.
        entry_point: the function under test; None: the program reads standard input.
    """
    answer = strip_thoughts(answer)[-LONGEST:]
    program = find_program(answer, entry_point)
    if program is None and STARTS_A_PROGRAM.match(answer.lstrip()):
        return Program(answer)
    return program


def official_program(answer: str) -> Program | None:
    """Return the program as LiveCodeBench's script does: the lines between the last two fences."""
    lines = answer.split("\n")
    fences = [number for number, line in enumerate(lines) if "```" in line]
    if len(fences) < 2:
        return None
    first, last = fences[-2:]
    return Program("\n".join(lines[first + 1 : last]) + "\n")


def with_preamble(program: str) -> str:
    """Return a program with LiveCodeBench's imports before it, ``from __future__`` first."""
    return "".join(FUTURE.findall(program)) + PREAMBLE + FUTURE.sub("\n", program)
