"""Compares a program's outputs with the expected ones, outside of the sandbox.

``wrong_output`` and ``wrong_value`` return "" if they agree, else the fault. There are two modes:

``strict``      Lines are compared without the blanks at their ends. A token that is a number equals
                one of the same value (``3.0`` and ``3``). The gaps between the tokens of a line
                must be the same unless all are numbers. Values compare as their test says
                (``CallTest.equality``).
``lcb-compat``  The rules of LiveCodeBench's runner: lines are the same text or, token by token, the
                same decimals. Values are equal as Python says, and a returned tuple is a list.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Literal

from openconductor.config import shorten
from openconductor.graders.code_expressions import FAILURES, evaluate
from openconductor.graders.code_tests import HOLE, CallTest, IoTest
from openconductor.sandboxes.encoding import NotPlain, canonical, decode, encode

Mode = Literal["strict", "lcb-compat"]

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
TUPLE = '{"tuple": '


def wrong_output(test: IoTest, stdout: str, mode: Mode) -> str:
    """Return what is wrong with the printed text; "" if it is right."""
    lines = _lines(stdout)
    expected = _lines(test.expected)
    if len(lines) != len(expected):
        return f"wrong output: {len(lines)} lines, expected {len(expected)}"
    same = _same_line if mode == "strict" else _same_line_as_livecodebench
    for number, (line, expected_line) in enumerate(zip(lines, expected, strict=True), start=1):
        if line != expected_line and not same(line, expected_line):
            return f"wrong output: line {number} is {shorten(line)}"
    return ""


def wrong_value(test: CallTest, reply: str, mode: Mode) -> str:
    """Return what is wrong with a returned value, as tagged JSON; "" if it is right."""
    try:
        if test.condition is None:
            right = _same_value(test, reply, mode)
        else:
            right = bool(evaluate(test.condition, {HOLE: decode(reply)}))
    except NotPlain as error:
        return f"wrong value: {error}"
    except (*FAILURES, RecursionError):
        right = False  # as the assertion itself would have failed
    return "" if right else "wrong value"


def _same_value(test: CallTest, reply: str, mode: Mode) -> bool:
    by_value = test.equality == "python" or mode == "lcb-compat"
    if mode == "lcb-compat" and test.equality == "typed" and reply.startswith(TUPLE):
        # LiveCodeBench turns the value itself into a list, not the tuples within.
        reply = reply[len(TUPLE) : -1]
    expected = encode(test.expected)
    if reply == expected:
        return True
    return canonical(reply, by_value=by_value) == canonical(expected, by_value=by_value)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_line(line: str, expected: str) -> bool:
    tokens = line.split()
    expected_tokens = expected.split()
    if len(tokens) != len(expected_tokens):
        return False
    if not all(map(_same_token, tokens, expected_tokens)):
        return False
    if all(NUMBER.fullmatch(token) for token in expected_tokens):
        return True
    return re.findall(r"\s+", line) == re.findall(r"\s+", expected)


def _same_token(token: str, expected: str) -> bool:
    if token == expected:
        return True
    if not NUMBER.fullmatch(token) or not NUMBER.fullmatch(expected):
        return False
    try:
        return Decimal(token) == Decimal(expected)
    except InvalidOperation:  # an exponent that no decimal can have
        return False


def _same_line_as_livecodebench(line: str, expected: str) -> bool:
    try:
        return _decimals(line) == _decimals(expected)
    except (InvalidOperation, ValueError):
        return False


def _decimals(line: str) -> list[Decimal]:
    return [Decimal(token) for token in line.split()]
