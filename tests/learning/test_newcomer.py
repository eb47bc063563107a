"""The way of somebody new: own questions and workers, measured, learnt from and put to work.

Three workers over loopback know one subject each. Every step is a command of the documentation.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from chat_server import completion, write_pool
from test_cli import serving
from tests.learning.trades import CAPITALS, WORDS

from integration.test_serving_process import serve
from openconductor.prompt import render_workflow
from openconductor.types import Step, Workflow

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

Run = Callable[..., Any]
Rows = Sequence[Mapping[str, object]]

WORKERS = {"calculator": "plus", "atlas": "capital", "linguist": "letters"}
"""The workers, each with the word that the questions of its subject have."""
SHAPES = {"sums": "math500", "places": "mmlu", "words": "rlpr"}
TASKS = [word for name, task in SHAPES.items() for word in ("--task", f"{name}={task}")]
FILES = [word for name in SHAPES for word in ("--task-path", f"{name}={name}.jsonl")]
MINE = ("--task", "mine=rlpr", "--task-path", "mine=mine.jsonl")
SUM = "What is 30 plus 12?"


async def answer(request: web.Request) -> web.Response:
    """Answer right on the worker's own subject, and on one in four of the other questions."""
    body = await request.json()
    text = "\n".join(str(message["content"]) for message in body["messages"])
    questions = re.findall(r"(?:What|How) [^?\n]*\?", text)
    if not questions:  # `pool check` asks for a word
        return web.json_response(completion("ok"))
    subjects = [subject for subject in WORKERS.values() if subject in questions[-1]]
    if "access_list" in text:
        own = [*WORKERS.values()].index(subjects[0])
        return web.json_response(completion(render_workflow(Workflow((Step(own, "Do it."),)))))
    chance = blake2b(f"{body['model']}/{questions[-1]}".encode()).digest()[0] / 256
    is_right = WORKERS[body["model"]] in subjects or chance < 0.25
    return web.json_response(completion(solve(questions[-1], text, is_right=is_right)))


def solve(question: str, text: str, *, is_right: bool) -> str:
    """Answer a question in the form that its task asks for, right or wrong."""
    if "capital" in question:
        city = CAPITALS[question.removesuffix("?").rpartition(" ")[2]]
        choices = dict(re.findall(r"^([A-D])[.)] (\w+)", text, re.MULTILINE))
        letters = [letter for letter, choice in choices.items() if (choice == city) == is_right]
        return f"Answer: {letters[0]}"
    if "plus" in question:
        number = sum(int(term) for term in re.findall(r"\d+", question))
    else:
        number = len(question.split("'")[1])
    return f"It is \\boxed{{{number + (not is_right)}}}."


def write_rows(path: str, rows: Rows) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write_questions() -> None:
    """Write three files of three shapes, one to learn from, and one that mixes two subjects."""
    sums = [(f"What is {20 + a} plus {a * 7 % 50}?", 20 + a + a * 7 % 50) for a in range(80)]
    lengths = [(f"How many letters has the word '{word}'?", len(word)) for word in WORDS]
    problems = [{"id": q, "problem": q, "answer": str(n)} for q, n in sums]
    write_rows("sums.jsonl", problems[:30])
    write_rows("learn.jsonl", problems[30:60])
    numbers: Rows = [
        {"id": q, "question": q, "answer": str(n), "kind": "number"} for q, n in lengths
    ]
    write_rows("words.jsonl", numbers[:30])
    more = [{"id": q, "question": q, "answer": str(n), "kind": "number"} for q, n in sums[40:]]
    write_rows("mine.jsonl", [*more, *numbers])
    places: list[dict[str, object]] = []
    cities = [*CAPITALS.values()]
    for number, country in enumerate([*CAPITALS][:30]):
        choices = [cities[(number + step) % len(cities)] for step in (5, 0, 9, 2)]
        question = f"What is the capital of {country}?"
        places.append({"id": country, "question": question, "choices": choices, "answer": "B"})
    write_rows("places.jsonl", places)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with questions and a pool file, whose workers answer."""
    monkeypatch.chdir(tmp_path)
    write_questions()
    with serving(*[answer] * 4000) as server:
        write_pool(tmp_path, server.url, *WORKERS, more="price = { input = 1, output = 2 }")
        yield tmp_path


def succeed(run: Run, *words: object) -> str:
    """Run a command, which must succeed; return what it printed."""
    ran = run(*words)
    assert ran.code == 0, ran.err
    return ran.out


def measure(run: Run) -> None:
    """Check the workers and the files, and measure what the pool could give and what it gives."""
    succeed(run, "pool", "check", "pool.toml")
    for name, task in SHAPES.items():
        succeed(run, "task", "check", task, "--path", f"{name}.jsonl")
    cards = succeed(run, "pool", "calibrate", "pool.toml", *TASKS, *FILES)
    assert "sums 100%" in " ".join(cards.split())
    room = succeed(run, "pool", "headroom", "pool.toml", *TASKS, *FILES, "--repeats", "1")
    assert "could gain at most +" in room
    systems = ("workers", "conductor", "best_fixed", "consensus:atlas?n=3")
    options = ("--conductor", "worker:linguist", "--learn", "sums=learn.jsonl", "--pool")
    out = ("--out", "runs/first")
    succeed(run, "eval", *systems, *TASKS, *FILES, *options, "pool.toml", *out)
    report = " ".join(succeed(run, "report", "runs/first").split())
    assert report.startswith("Deploy conductor: right on 100 % of the questions, $")
    assert "openconductor serve --from runs/first" in report
    shown = succeed(run, "show", "runs/first", "--wrong", "--json")
    first = json.loads(shown)["answers"][0]
    record = first["record"]
    whole = succeed(run, "show", "runs/first", record["problem"], "--system", record["system"])
    assert "✗ wrong" in whole and first["reference"] in whole


def put_to_work(run: Run, folder: Path) -> None:
    """Ask what was measured, by command and by HTTP."""
    assert "42" in succeed(run, "ask", "--from", "runs/first", SUM)
    body = {"model": "auto", "messages": [{"role": "user", "content": SUM}]}
    with serve(folder, "--from", "runs/first") as server:
        answered = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30)
        assert "42" in answered.json()["choices"][0]["message"]["content"]
        models = httpx.get(f"{server.url}/v1/models", timeout=30).json()["data"]
    (auto,) = [model for model in models if model["id"] == "auto"]
    assert auto["measured"]["system"] == "conductor" and auto["measured"]["won"]


def record(run: Run) -> None:
    """Ask every worker every question of one file, and write the table of the answers."""
    succeed(run, "eval", "workers", *MINE, "--pool", "pool.toml", "--out", "runs/answers")
    table = succeed(run, "pool", "replay", "runs/answers", "--out", "answers.csv.gz")
    assert "questions 79, left out 0" in table


def test_own_questions_are_recorded_shown_and_answered(desk: Path, run: Run) -> None:
    """Go the way in short: without a Conductor, a report and a server."""
    record(run)
    assert "✗ wrong" in succeed(run, "show", "runs/answers", "--wrong")
    assert "42" in succeed(
        run, "ask", "--from", "runs/answers", "--system", "worker:calculator", SUM
    )


@pytest.mark.slow
def test_own_questions_are_measured_and_what_won_is_served(desk: Path, run: Run) -> None:
    measure(run)
    put_to_work(run, desk)


@pytest.mark.slow
@pytest.mark.train
@pytest.mark.timeout(1800)
def test_a_conductor_learns_from_the_records_and_is_compared_and_asked(
    desk: Path, root: Path, run: Run
) -> None:
    record(run)
    shutil.copy(root / "recipes" / "mine.toml", "mine.toml")
    succeed(run, "train", "mine.toml", "--dry-run")
    said = succeed(run, "train", "mine.toml", "--out", "runs/mine")
    assert "learnt, greedy" in said
    options = ("--task", "replay", "--task-path", "replay=answers.csv.gz", "--out", "runs/compared")
    planner = ("--conductor", "runs/mine", "--pool", "pool.toml")
    succeed(run, "eval", "conductor", "workers", *planner, *options)
    succeed(run, "report", "runs/compared")
    answered = json.loads(succeed(run, "ask", SUM, *planner, "--json"))
    assert "42" in answered["answer"]
    assert answered["rounds"][0]["valid"], "its own plan, for a question as it is"
