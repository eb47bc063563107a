"""What the verbs print as JSON, frozen: a redesign changes nothing of it unless CHANGELOG says so.

``tests/golden/output/<name>.json`` holds what each command printed, with clocks, ids, places and
the list of figures replaced. To draw one up again after an intended change, delete the file and run
this test: it writes the file, and fails once.
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from openconductor import cli

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "output"
SECONDS = re.compile(r"[\d.]+ seconds")
VARIES = re.compile(
    r"^(figures|summary|seconds|started|ended|id|episode|at|date|folder|path|run|out|latency.*|.*_seconds|seconds_.*)$"
)
QUESTION = "Take 4 17 9, sort the list, then double every number."
ANSWERS = json.loads(r"""{
"math": [
    {"answer": "so \\boxed{\\frac{1}{2}}", "reference": "0.5"},
    {"answer": "\\boxed{(1,2)}", "reference": "(2,1)"},
    {"answer": "no answer at all", "reference": "x^2"}
],
"choice": [
    {"answer": "The answer is (B).", "reference": "B", "choices": ["one", "two", "three"]},
    {"answer": "I cannot tell", "reference": 0, "choices": ["one", "two", "three"]}
],
"freeform": [
    {"answer": "The answer is 12 km.", "reference": "12 km"},
    {"answer": "Paris", "reference": "paris"}
]}""")
COMMANDS = """
demo-0: demo --json --questions 40 --seed 0
demo-1: demo --json --questions 40 --seed 1
demo-2: demo --json --questions 40 --seed 2
demo-3: demo --json --questions 40 --seed 3
ask: ask QUESTION --json
ask-seed-2-rounds: ask QUESTION --json --seed 3 --rounds 2
gym-question: gym question --json --seed 2 --kind pair
gym-questions: gym questions --json --count 8
gym-worker: gym worker --json
gym-oracle: gym oracle --json --kind smudged
task-list: task list --json
task-show: task show gym --json
task-check: task check gym --json
headroom: pool headroom --json --limit 24 --out TMP/headroom
eval: eval conductor workers random best_fixed --json --limit 24 --out TMP/eval
"""


def masked(value: Any, place: str) -> Any:
    """Return the value without clocks, ids and places, its numbers rounded."""
    if isinstance(value, dict):
        return {
            key: "<varies>" if varies(key, item) else masked(item, place)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [masked(item, place) for item in value]
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, str):
        return SECONDS.sub("<varies> seconds", value.replace(place, "<tmp>"))
    return value


def varies(key: str, value: object) -> bool:
    return bool(VARIES.match(key)) and (key == "figures" or not isinstance(value, dict | list))


def check(name: str, printed: str, place: str) -> None:
    if name.startswith("grade"):
        printed = f"[{','.join(printed.splitlines())}]"
    got = masked(json.loads(printed), place)
    golden = GOLDEN / f"{name}.json"
    if not golden.is_file():
        golden.write_text(json.dumps(got, indent=1, ensure_ascii=False) + "\n", "utf-8")
        pytest.fail(f"{golden.name} was not there and has been written")
    expected = masked(json.loads(golden.read_text("utf-8")), place)
    assert got == expected
    assert json.dumps(got) == json.dumps(expected), "keys come in another order"


@pytest.mark.parametrize("line", COMMANDS.strip().splitlines())
def test_a_verb_prints_what_it_printed(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *arguments = line.replace("TMP", str(tmp_path)).replace(":", " ", 1).split()
    assert cli.main([QUESTION if word == "QUESTION" else word for word in arguments]) == 0
    check(name, capsys.readouterr().out, str(tmp_path))
    if name == "eval":
        assert cli.main(["report", f"{tmp_path}/eval", "--counterfactual", "12", "--json"]) == 0
        check("report", capsys.readouterr().out, str(tmp_path))


@pytest.mark.parametrize("grader", ANSWERS)
def test_grade_prints_what_it_printed(grader, capsys, monkeypatch) -> None:
    lines = ""
    for number, answer in enumerate(ANSWERS[grader], 1):
        lines += json.dumps({"id": str(number), **answer}) + "\n"
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
