"""Mutants of a program, and a plain, trusted run that says which of them give other outputs.

    python code_mutants.py < work.json

The input is a list of {canonical, mutant, entry_point, calls, program}; it prints verdicts.

``calls`` are [arguments, keywords] pairs as Python literals; ``program`` is a test program that
asserts, or "". A verdict is null where the mutant gave the same as the canonical solution, else
what was different. Nothing here needs pytest, and nothing of the graders is used.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import resource
import sys
from typing import Any

PAIRS = [
    (ast.Add, ast.Sub),
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.And, ast.Or),
]
PAIRS += [(ast.In, ast.NotIn), (ast.Mult, ast.Add), (ast.Div, ast.Mult), (ast.FloorDiv, ast.Mult)]
PAIRS += [(ast.Mod, ast.Add), (ast.Pow, ast.Mult)]
SWAPS: dict[type[ast.AST], type[ast.AST]] = {second: first for first, second in PAIRS[:6]} | dict(
    PAIRS
)


def mutants(source: str) -> list[str]:
    """Every program that differs from this one in one constant or one operator."""
    tree = ast.parse(source)
    texts = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # documentation
    found: list[str] = []
    for node in ast.walk(tree):
        others: list[tuple[str, Any]] = []
        if isinstance(node, ast.Constant) and id(node) not in texts:
            others.append(("value", _other(node.value)))
        if type(operator := getattr(node, "op", None)) in SWAPS:
            others.append(("op", SWAPS[type(operator)]()))
        for index, operator in enumerate(operators := getattr(node, "ops", [])):
            if type(operator) in SWAPS:
                others.append(
                    ("ops", [*operators[:index], SWAPS[type(operator)](), *operators[index + 1 :]])
                )
        for field, other in others:
            before = getattr(node, field)
            if other is not before:
                setattr(node, field, other)
                found.append(ast.unparse(tree))
                setattr(node, field, before)
    return found


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return (
        value + (1 if isinstance(value, (int, float)) else "x")
        if isinstance(value, (int, float, str))
        else value
    )


def outcome(work: dict[str, Any]) -> str | None:
    """What is different, found in this process."""
    spaces: list[dict[str, Any]] = [{"__name__": "program"} for _ in range(2)]
    for space, text in zip(spaces, (work["canonical"], work["mutant"]), strict=True):
        exec(text, space)
    function, mutant = (space[work["entry_point"]] for space in spaces)
    for number, (arguments, keywords) in enumerate(ast.literal_eval(work["calls"])):
        wanted = function(*copy.deepcopy(arguments), **copy.deepcopy(keywords))
        got = mutant(*copy.deepcopy(arguments), **copy.deepcopy(keywords))
        if type(got) is not type(wanted) and not isinstance(got, (int, float)):
            return f"output {number}"
        if (
            isinstance(wanted, (type(None), bool, int, float, complex, str, list, tuple, set, dict))
            and got != wanted
        ):
            return f"output {number}"
    if work["program"]:
        exec(work["program"], spaces[1])
        spaces[1]["check"](mutant)
    return None


def judged(work: dict[str, Any]) -> str | None:
    """``outcome`` in a process of its own, with one second."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open("/dev/null", os.O_RDWR), 1)
        resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        try:
            said = outcome(work)
        except BaseException as error:  # noqa: BLE001 - whatever a mutant raises
            said = f"raised {type(error).__name__}"
        os.write(writer, json.dumps(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "ended without an answer"


if __name__ == "__main__":
    json.dump([judged(work) for work in json.load(sys.stdin)], sys.stdout)
