"""Chat replies to programming problems, written for these tests, with the problems' tests.

``programs/replies.txt`` and ``programs/replies_held_out.txt`` hold a reply behind each line
``%%%% PROBLEM right|wrong NAME``. The held-out ones were written before the rules were tried on
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from openconductor.graders.code_tests import CodeTests, IoTest, from_asserts

HEAD = re.compile(r"^%%%% (\w+) (right|wrong) (.+)\n", re.MULTILINE)

ASSERTIONS = {
    "double_evens": (
        "assert double_evens([1, 2, 3, 4]) == [1, 4, 3, 8]\nassert double_evens([]) == []"
    ),
    "count_vowels": (
        "assert count_vowels('Education') == 5\nassert count_vowels('AAx') == 2\n"
        "assert count_vowels('') == 0"
    ),
    "running_max": (
        "assert running_max([1, 3, 2, 5, 4]) == [1, 3, 3, 5, 5]\nassert running_max([]) == []\n"
        "assert running_max([-2, -3]) == [-2, -2]"
    ),
    "is_leap": (
        "assert is_leap(2000)\nassert not is_leap(1900)\nassert is_leap(2024)\n"
        "assert not is_leap(2023)"
    ),
    "caesar": (
        "assert caesar('abc', 2) == 'cde'\nassert caesar('xyz', 3) == 'abc'\n"
        "assert caesar('Hello, World!', 3) == 'Khoor, Zruog!'"
    ),
    "digit_sum": (
        "assert digit_sum(123) == 6\nassert digit_sum(-45) == 9\nassert digit_sum(0) == 0"
    ),
    "nth_prime": "assert nth_prime(1) == 2\nassert nth_prime(6) == 13",
}
PROBLEMS: dict[str, CodeTests] = {
    name: from_asserts(source, name) for name, source in ASSERTIONS.items()
}
PROBLEMS["sum_input"] = CodeTests((IoTest("3\n1 2 3\n", "6\n"), IoTest("2\n-5 4\n", "-1\n")))


@dataclass(frozen=True)
class Reply:
    """A reply: to which problem, whether it is right, and the style that it is in."""

    problem: str
    right: bool
    name: str
    text: str


def read_replies(name: str) -> list[Reply]:
    text = Path(__file__).with_name("programs").joinpath(f"{name}.txt").read_text("utf-8")
    _, *parts = HEAD.split(text)
    groups = zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True)
    return [
        Reply(problem, verdict == "right", name, body) for problem, verdict, name, body in groups
    ]
