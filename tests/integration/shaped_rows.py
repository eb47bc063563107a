"""Small files in the shape of each benchmark, and workers that answer them by a script.

A script is one mark a problem: ``+`` right, ``-`` wrong, ``?`` with nothing that could be read as
an answer, ``f`` the worker fails. A planner's script is one plan a problem: ``s`` one step by the
solver, ``h`` one by the helper, ``2`` the helper and then the solver, ``x`` a text without a plan.
Each problem says its place in its text, as ``[q0]``.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from openconductor.errors import WorkerError
from openconductor.prompt import render_workflow
from openconductor.protocols import Provider
from openconductor.types import Completion, Step, Usage, Workflow

SOLVER, HELPER = 0, 1
PLANS: Mapping[str, str] = {
    "s": render_workflow(Workflow([Step(SOLVER, "Solve it.")])),
    "h": render_workflow(Workflow([Step(HELPER, "Solve it.")])),
    "2": render_workflow(Workflow([Step(HELPER, "Try it."), Step(SOLVER, "Solve it.", "all")])),
    "x": "I would rather solve it myself.",
}
TOKENS: Mapping[str, Usage] = {
    "solver": Usage(input_tokens=1000, output_tokens=500),
    "helper": Usage(input_tokens=1000, output_tokens=300),
    "planner": Usage(input_tokens=2000, output_tokens=100),
}
FAILED = Usage(input_tokens=2000)
POOL = """\
[[worker]]
name = "solver"
provider = "by_script"
model = "{folder}/solver.json"
price = {{ input = "10", output = "40" }}
retries = 0

[[worker]]
name = "helper"
provider = "by_script"
model = "{folder}/helper.json"
price = {{ input = "5", output = "50" }}
retries = 0

[[worker]]
name = "planner"
provider = "by_script"
model = "{folder}/planner.json"
price = {{ input = "2.5", output = "50" }}
"""
"""A call of the solver costs 3 cents, of the helper 2 (1 where it fails), of the planner 1."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One benchmark's rows, and how its questions are answered.

    Attributes:
        task: its name in the registry.
        row: the row of a place, in the published shape.
        right, wrong: replies to a question.
    """

    task: str
    row: Callable[[int], Mapping[str, object]]
    right: Callable[[str], str]
    wrong: Callable[[str], str]


class Scripted(Provider):
    """A worker that answers by the script in a file: ``{"role": …, "task": …, "script": "++-f"}``."""

    def __init__(self, model: str) -> None:
        values = json.loads(Path(model).read_text("utf-8"))
        self._role: str = values["role"]
        self._script: str = values["script"]
        self._shape = SHAPES[values["task"]]
        self.identity = f"scripted {values}"

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        question = next(message.content for message in messages if "[q" in message.content)
        found = re.search(r"\[q(\d+)\]", question)
        return Completion(
            self.reply(question, self._script[int(found[1])]), usage=TOKENS[self._role]
        )

    def reply(self, question: str, mark: str) -> str:
        """What the script says here."""
        if mark == "f":
            raise WorkerError("the line is dead", retryable=False, usage=FAILED)
        if mark == "?":
            return "I really cannot tell."
        return (
            PLANS[mark]
            if mark in PLANS
            else (self._shape.right if mark == "+" else self._shape.wrong)(question)
        )


def write_run(
    folder: Path, shape: Shape, *, solver: str, helper: str, planner: str
) -> tuple[Path, Path]:
    """Write a benchmark of as many rows as the scripts are long, the scripts, and a pool file of the three.

    Returns:
        The rows' file and the pool file.
    """
    for role, script in (("solver", solver), ("helper", helper), ("planner", planner)):
        text = json.dumps({"role": role, "task": shape.task, "script": script})
        (folder / f"{role}.json").write_text(text, encoding="utf-8")
    rows, pool = folder / f"{shape.task}.jsonl", folder / "pool.toml"
    rows.write_text(
        "".join(json.dumps(shape.row(place)) + "\n" for place in range(len(solver))),
        encoding="utf-8",
    )
    pool.write_text(POOL.format(folder=folder.as_posix()), encoding="utf-8")
    return rows, pool


def _letter(question: str, choice: str) -> str:
    found = re.search(rf"^([A-J])\) {choice}$", question, re.MULTILINE)
    assert found is not None, question
    return f"Roses are red.\n\nAnswer: {found[1]}"


def _gpqa(place: int) -> Mapping[str, object]:
    wrong = {
        f"Incorrect Answer {number}": said
        for number, said in enumerate(("sky", "grass", "snow"), start=1)
    }
    known = {"Record ID": f"rec{place}", "High-level domain": "Physics", "Subdomain": "Optics"}
    return known | {"Question": f"[q{place}] Which is red?\n", "Correct Answer": "rose\n"} | wrong


def _mmlu(place: int) -> Mapping[str, object]:
    choices = ["sky", "rose", "grass", "snow"]
    return {
        "question": f"[q{place}] Which is red?",
        "subject": "colours",
        "choices": choices,
        "answer": 1,
    }


def _math500(place: int) -> Mapping[str, object]:
    known = {"subject": "Algebra", "level": 3, "unique_id": f"test/algebra/{place}.json"}
    return {
        "problem": f"[q{place}] What is half of $1$?",
        "solution": "Half.",
        "answer": "\\frac{1}{2}",
    } | known


def _rlpr(place: int) -> Mapping[str, object]:
    judged = {"ground_truth": "9.8 m/s^2", "style": "rule"}
    prompt = [{"role": "user", "content": f"[q{place}] How strong is gravity?"}]
    return {"prompt": prompt, "ability": "Physics", "reward_model": judged, "extra_info": None}


def _livecodebench(place: int) -> Mapping[str, object]:
    tests = [{"input": f"{n}\n", "output": f"{2 * n}", "testtype": "stdin"} for n in (1, 7, 50)]
    hidden = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests[1:])))).decode()
    known = {
        "question_id": f"abc90{place}_a",
        "platform": "atcoder",
        "difficulty": "easy",
        "metadata": "{}",
    }
    content = f"[q{place}] Print twice what you read."
    return known | {
        "question_content": content,
        "public_test_cases": json.dumps(tests[:1]),
        "private_test_cases": hidden,
    }


def _bigcodebench(place: int) -> Mapping[str, object]:
    test = (
        "import unittest\n"
        "class TestCases(unittest.TestCase):\n"
        "    def test_sum(self):\n"
        "        self.assertEqual(task_func([1, 2, 3]), 6)\n"
        "    def test_nothing(self):\n"
        "        self.assertEqual(task_func([]), 0)"
    )
    return {
        "task_id": f"BigCodeBench/90{place}",
        "complete_prompt": f"def task_func(numbers):\n    '''[q{place}] The sum.'''\n",
        "canonical_solution": "    return sum(numbers)\n",
        "test": test,
        "entry_point": "task_func",
    }


def _always(text: str) -> Callable[[str], str]:
    return lambda question: text


def _program(text: str) -> Callable[[str], str]:
    return _always(f"Here it is.\n\n```python\n{text}\n```")


SHAPES: Mapping[str, Shape] = {
    shape.task: shape
    for shape in (
        Shape(
            "aime25",
            lambda place: {"problem": f"[q{place}] Find it.", "answer": "070", "id": str(place)},
            _always("So it is $\\boxed{70}$."),
            _always("First $\\boxed{70}$; but no, it is $\\boxed{71}$."),
        ),
        Shape(
            "gpqa_diamond",
            _gpqa,
            lambda question: _letter(question, "rose"),
            lambda question: _letter(question, "grass"),
        ),
        Shape(
            "math500",
            _math500,
            _always("It is $\\boxed{0.5}$."),
            _always("It is $\\boxed{\\frac{1}{3}}$."),
        ),
        Shape(
            "mmlu",
            _mmlu,
            lambda question: _letter(question, "rose"),
            lambda question: _letter(question, "snow"),
        ),
        Shape(
            "rlpr",
            _rlpr,
            _always("It is \\boxed{9.8 m/s^2}."),
            _always("It is \\boxed{1.6 m/s^2}."),
        ),
        Shape(
            "livecodebench_v1",
            _livecodebench,
            _program("print(2 * int(input()))"),
            _program("print(2)"),
        ),
        Shape(
            "bigcodebench_hard",
            _bigcodebench,
            _program("def task_func(numbers):\n    return sum(numbers)"),
            _program("def task_func(numbers):\n    return 6"),
        ),
    )
}
