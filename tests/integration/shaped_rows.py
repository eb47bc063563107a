"""Small files in the shape of each benchmark (``shaped_rows.json``), and workers by a script.

A script is one mark a problem: ``+`` right, ``-`` wrong, ``?`` without anything that could be read
as an answer, ``f`` the worker fails. A planner's script is one plan a problem: ``s`` a step by the
solver, ``h`` one by the helper, ``2`` the helper and then the solver, ``x`` a text without a plan.
Each problem says its place in its text, as ``[q0]``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from openconductor.errors import WorkerError
from openconductor.prompt import render_workflow
from openconductor.protocols import Provider
from openconductor.types import Completion, Step, Usage, Workflow

CASES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_suffix(".json").read_text("utf-8")
)
"""By task: a row, a right and a wrong reply, the scripts, and the expected rows of the table."""

SOLVE, HELP = Step(0, "Solve it."), Step(1, "Solve it.")
PLANS = {
    "s": render_workflow(Workflow([SOLVE])),
    "h": render_workflow(Workflow([HELP])),
    "2": render_workflow(Workflow([HELP, Step(0, "Solve it.", "all")])),
    "x": "I would rather solve it myself.",
}
TOKENS = {
    "solver": Usage(input_tokens=1000, output_tokens=500),
    "helper": Usage(input_tokens=1000, output_tokens=300),
    "planner": Usage(input_tokens=2000, output_tokens=100),
}
FAILED = Usage(input_tokens=2000)
PRICES = {
    "solver": '{ input = "10", output = "40" }',
    "helper": '{ input = "5", output = "50" }',
    "planner": '{ input = "2.5", output = "50" }',
}
"""A call of the solver costs 3 cents, of the helper 2 (1 if it fails), of the planner 1."""
CHOICES = {"ROSE": "rose", "GRASS": "grass", "SNOW": "snow"}


class Scripted(Provider):
    """A worker that answers by the script in a file: {"role": …, "task": …, "script": "++-f"}."""

    def __init__(self, model: str) -> None:
        values = json.loads(Path(model).read_text("utf-8"))
        self._role: str = values["role"]
        self._script: str = values["script"]
        self._case = CASES[values["task"]]
        self.identity = f"scripted {values}"

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        question = next(message.content for message in messages if "[q" in message.content)
        place = re.search(r"\[q(\d+)\]", question)
        text = self.reply(question, self._script[int(place[1])])
        return Completion(text, usage=TOKENS[self._role])

    def reply(self, question: str, mark: str) -> str:
        """Return the reply of the script; a choice by its text becomes its letter."""
        if mark == "f":
            raise WorkerError("the line is dead", retryable=False, usage=FAILED)
        if mark == "?":
            return "I really cannot tell."
        if mark in PLANS:
            return PLANS[mark]
        reply: str = self._case["right" if mark == "+" else "wrong"]
        for name, choice in CHOICES.items():
            if name in reply:
                letter = re.search(rf"^([A-J])\) {choice}$", question, re.MULTILINE)
                return reply.replace(name, letter[1])
        return reply


def write_run(folder: Path, task: str, scripts: dict[str, str]) -> tuple[Path, Path]:
    """Write a benchmark of as many rows as the scripts are long, the scripts, and a pool file.

    Returns:
        The rows' file and the pool file.
    """
    pool = ""
    for role, script in scripts.items():
        model = folder / f"{role}.json"
        model.write_text(json.dumps({"role": role, "task": task, "script": script}), "utf-8")
        pool += f'[[worker]]\nname = "{role}"\nprovider = "by_script"\nretries = 0\n'
        pool += f'model = "{model.as_posix()}"\nprice = {PRICES[role]}\n'
    (folder / "pool.toml").write_text(pool, "utf-8")
    row = json.dumps(CASES[task]["row"])
    rows = [row.replace("PLACE", str(place)) + "\n" for place in range(len(scripts["solver"]))]
    path = folder / f"{task}.jsonl"
    path.write_text("".join(rows), "utf-8")
    return path, folder / "pool.toml"
