"""The program in an answer, and the imports before it."""

from __future__ import annotations

import pytest

from openconductor.graders.code_text import program_of, with_preamble

FENCE = "```"


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        (f"Here:\n{FENCE}python\nx = 1\n{FENCE}\nDone.", "x = 1\n"),
        (f"{FENCE}\nx = 1\n{FENCE}", "x = 1\n"),
        (f"{FENCE}py\na\n{FENCE}\nthen\n{FENCE}Python3\nb\n{FENCE}", "b\n"),
        (f"{FENCE}python\na\n{FENCE}\n{FENCE}text\n7\n{FENCE}", "a\n"),
        (f"{FENCE}python\na\n{FENCE}\n{FENCE}\n\n{FENCE}", "a\n"),
        (f"{FENCE}python\nnever closed\nx", "never closed\nx"),
        (f"{FENCE}{FENCE}python\ns = '''\n{FENCE}\n'''\n{FENCE}{FENCE}", f"s = '''\n{FENCE}\n'''\n"),
        (f"  {FENCE}python title=x\n  a\n  {FENCE}", "  a\n"),
        (f"Perhaps\n{FENCE}python\nno\n{FENCE}\n</think>\n{FENCE}python\nyes\n{FENCE}", "yes\n"),
        ("~~~python\na\n~~~", "a\n"),
        (f"<think>\n{FENCE}python\nno\n{FENCE}\n</think>\n{FENCE}python\nyes\n{FENCE}", "yes\n"),
        ("def f():\n    return 1", "def f():\n    return 1"),
        ("\nimport sys\nprint(1)", "\nimport sys\nprint(1)"),
        ("x = int(input())", "x = int(input())"),
        ("a, b = map(int, input().split())", "a, b = map(int, input().split())"),
    ],
)
def test_the_last_python_block_is_the_program(answer: str, program: str) -> None:
    assert program_of(answer) == program


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I do not know.",
        f"{FENCE}cpp\nint main;\n{FENCE}",
        "<think>def f(): pass</think>",
        "<think>def f(): pass",
        f"Perhaps\n{FENCE}python\nno\n{FENCE}\n</think>\nI do not know.",
        f"{FENCE}\n{FENCE}",
    ],
)
def test_an_answer_without_a_program_has_none(answer: str) -> None:
    assert program_of(answer) is None


def test_livecodebenchs_imports_stand_behind_the_future_and_before_the_rest() -> None:
    text = with_preamble("from __future__ import annotations\nx: Undefined = sqrt(gcd(16, 48))\ny = deque([inf])\n")
    assert text.startswith("from __future__ import annotations\n")
    space: dict[str, object] = {}
    exec(text, space)
    assert space["x"] == 4.0 and repr(space["y"]) == "deque([inf])"
