"""What the verbs print as JSON, frozen: a redesign changes nothing of it unless CHANGELOG says so.

``tests/golden/output/<name>.json`` holds what each command printed, with clocks, ids, places and
the list of figures replaced. To draw one up again after an intended change, delete the file and run
this test: it writes the file, and fails once.
"""

from __future__ import annotations

import io
import json
import math
import re
import sys
from pathlib import Path

import pytest

from openconductor import cli

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "output"
VARIES = re.compile(
    r"^(figures|seconds|started|ended|id|episode|at|date|folder|path|run|out|latency.*|.*_seconds|seconds_.*)$"
)
QUESTION = "Take 4 17 9, sort the list, then double every number."
ANSWERS = {
    "math": [
        {"id": "1", "answer": r"so \boxed{\frac{1}{2}}", "reference": "0.5"},
        {"id": "2", "answer": r"\boxed{(1,2)}", "reference": "(2,1)"},
        {"id": "3", "answer": "no answer at all", "reference": r"x^2"},
    ],
    "choice": [
        {
            "id": "1",
            "answer": "The answer is (B).",
            "reference": "B",
            "choices": ["one", "two", "three"],
        },
        {"id": "2", "answer": "I cannot tell", "reference": 0, "choices": ["one", "two", "three"]},
    ],
    "freeform": [
        {"id": "1", "answer": "The answer is 12 km.", "reference": "12 km"},
        {"id": "2", "answer": "Paris", "reference": "paris"},
    ],
}
COMMANDS: dict[str, tuple[str, ...]] = {
    **{
        f"demo-{seed}": ("demo", "--json", "--questions", "40", "--seed", str(seed))
        for seed in range(4)
    },
    "ask": ("ask", QUESTION, "--json"),
    "ask-seed-2-rounds": ("ask", QUESTION, "--json", "--seed", "3", "--rounds", "2"),
    "gym-question": ("gym", "question", "--json", "--seed", "2", "--kind", "pair"),
    "gym-questions": ("gym", "questions", "--json", "--count", "8"),
    "gym-worker": ("gym", "worker", "--json"),
    "gym-oracle": ("gym", "oracle", "--json", "--kind", "smudged"),
    "task-list": ("task", "list", "--json"),
    "task-show": ("task", "show", "gym", "--json"),
    "task-check": ("task", "check", "gym", "--json"),
    "headroom": ("pool", "headroom", "--json", "--limit", "24", "--out", "{tmp}/headroom"),
    "eval": (
        "eval",
        "conductor",
        "workers",
        "random",
        "best_fixed",
        "--json",
        "--limit",
        "24",
        "--out",
        "{tmp}/eval",
    ),
}


def masked(value: object, place: str) -> object:
    """The value without clocks, ids and places."""
    if isinstance(value, dict):
        return {
            key: "<varies>"
            if VARIES.match(key) and (key == "figures" or not isinstance(item, dict | list))
            else masked(item, place)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [masked(item, place) for item in value]
    return value.replace(place, "<tmp>") if isinstance(value, str) else value


def differences(got: object, expected: object, where: str = "$") -> list[str]:
    """Where two JSON values differ; floats may differ by rounding."""
    if isinstance(got, dict) and isinstance(expected, dict):
        keys = (
            [f"{where}: keys {sorted(got)} instead of {sorted(expected)}"]
            if list(got) != list(expected)
            else []
        )
        return keys + [
            text
            for key in got.keys() & expected.keys()
            for text in differences(got[key], expected[key], f"{where}.{key}")
        ]
    if isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected):
        return [
            text
            for index, pair in enumerate(zip(got, expected, strict=True))
            for text in differences(*pair, f"{where}[{index}]")
        ]
    if (
        isinstance(got, float)
        and isinstance(expected, float)
        and math.isclose(got, expected, rel_tol=1e-9)
    ):
        return []
    return (
        []
        if got == expected and type(got) is type(expected)
        else [f"{where}: {got!r} instead of {expected!r}"]
    )


def check(name: str, printed: str, place: str) -> None:
    got = (
        [masked(json.loads(line), place) for line in printed.splitlines()]
        if name.startswith("grade")
        else masked(json.loads(printed), place)
    )
    golden = GOLDEN / f"{name}.json"
    if not golden.is_file():
        golden.write_text(json.dumps(got, indent=1, ensure_ascii=False) + "\n", "utf-8")
        pytest.fail(f"{golden.name} was not there and has been written")
    assert differences(got, json.loads(golden.read_text("utf-8"))) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_verb_prints_what_it_printed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [argument.replace("{tmp}", str(tmp_path)) for argument in COMMANDS[name]]
    assert cli.main(arguments) == 0
    check(name, capsys.readouterr().out, str(tmp_path))
    if name == "eval":
        assert cli.main(["report", f"{tmp_path}/eval", "--counterfactual", "12", "--json"]) == 0
        check("report", capsys.readouterr().out, str(tmp_path))


@pytest.mark.parametrize("grader", ANSWERS)
def test_grade_prints_what_it_printed(grader, capsys, monkeypatch) -> None:
    lines = "".join(json.dumps(answer) + "\n" for answer in ANSWERS[grader])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    cli.main(["grade", "--grader", grader])
    check(f"grade-{grader}", capsys.readouterr().out, "/nowhere")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_demo_of_400_questions_prints_what_it_printed(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "--json", "--questions", "400", "--seed", str(seed)]) == 0
    printed = re.sub(r'"seconds": [0-9.e-]+', '"seconds": 0', capsys.readouterr().out)
    assert printed == (GOLDEN / f"demo-400-{seed}.txt").read_text("utf-8")
