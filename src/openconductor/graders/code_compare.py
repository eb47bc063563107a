"""Whether what a program gave is what a test expects. This runs outside of the sandbox.

In: a test and a run's stdout or encoded reply. Out: an empty text where they agree, else what is
wrong.

Two modes. ``strict``: lines, stripped at both ends of the text and of each line; a token that is a
number equals one of the same value (``3.0`` and ``3``), and the gaps between the tokens of a line
must be the same unless all are numbers; values as their test says (``CallTest.equality``).
``lcb-compat``: the rules of LiveCodeBench's runner: lines are the same text or, token by token, the
same decimals; values are equal as Python says, and a returned tuple is a list.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Literal

from openconductor.graders.code_expressions import FAILURES, evaluate
from openconductor.graders.code_tests import HOLE, CallTest, IoTest
from openconductor.sandboxes.encoding import NotPlain, canonical, decode, encode

Mode = Literal["strict", "lcb-compat"]

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
SHOWN = 60
TUPLE = '{"tuple": '


def wrong_output(test: IoTest, stdout: str, mode: Mode) -> str:
    """What is wrong with the text that came out; empty where nothing is."""
    got, expected = _lines(stdout), _lines(test.expected)
    if len(got) != len(expected):
        return f"wrong output: {len(got)} lines, expected {len(expected)}"
    same = _same_line if mode == "strict" else _same_line_as_livecodebench
    for number, (line, wanted) in enumerate(zip(got, expected, strict=True), start=1):
        if line != wanted and not same(line, wanted):
            shown = line if len(line) <= SHOWN else line[:SHOWN] + "…"
            return f"wrong output: line {number} is {shown!r}"
    return ""


def wrong_value(test: CallTest, reply: str, mode: Mode) -> str:
    """What is wrong with the value that came back, tagged JSON; empty where nothing is."""
    try:
        if test.condition is not None:
            return "" if evaluate(test.condition, {HOLE: decode(reply)}) else "wrong value"
        by_value = test.equality == "python" or mode == "lcb-compat"
        if mode == "lcb-compat" and test.equality == "typed" and reply.startswith(TUPLE):
            reply = reply[
                len(TUPLE) : -1
            ]  # as LiveCodeBench does: the value itself may be a tuple, not those within
        same = canonical(reply, by_value=by_value) == canonical(
            encode(test.expected), by_value=by_value
        )
        return "" if same else "wrong value"
    except NotPlain as error:
        return f"wrong value: {error}"
    except (*FAILURES, RecursionError):
        return "wrong value"  # as the assertion itself would have failed


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_line(got: str, expected: str) -> bool:
    tokens, wanted = got.split(), expected.split()
    if len(tokens) != len(wanted) or not all(map(_same_token, tokens, wanted)):
        return False
    return all(map(NUMBER.fullmatch, wanted)) or re.findall(r"\s+", got) == re.findall(
        r"\s+", expected
    )


def _same_token(got: str, expected: str) -> bool:
    if got == expected:
        return True
    return bool(NUMBER.fullmatch(got) and NUMBER.fullmatch(expected)) and Decimal(got) == Decimal(
        expected
    )


def _same_line_as_livecodebench(got: str, expected: str) -> bool:
    try:
        return [Decimal(token) for token in got.split()] == [
            Decimal(token) for token in expected.split()
        ]
    except (InvalidOperation, ValueError):
        return False
