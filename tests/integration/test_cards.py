"""Cards: a planner that can read routes right by them, whichever verb asks it.

``readers`` has the planner and the workers. Each worker is right in one subject, which only its
description names. Without cards the planner draws a worker, so one answer in five is right.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra 'mcp': pip install 'openconductor[mcp]'")

import httpx
from readers import SUBJECTS

from openconductor import Budget, Conductor
from openconductor.serving import app
from openconductor.serving.apis import mcp_server

ASKED = [f"Question {number}, of {SUBJECTS[number % 5]}." for number in range(200)]
NAMES = ("ann", "ben", "eva", "ida", "tom")
PLANNER = ("--pool", "pool.toml", "--conductor", "readers:planner:any")
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a pool file of five workers and the questions."""
    monkeypatch.chdir(tmp_path)
    tables: list[str] = []
    for name, subject in zip(NAMES, SUBJECTS, strict=True):
        tables.append(
            f'[[worker]]\nname = "{name}"\nprovider = "readers:worker"\nmodel = "{subject}"\n'
            f'description = "Good at {subject}."\n'
        )
    Path("pool.toml").write_text("\n".join(tables), "utf-8")
    rows = [json.dumps({"ask": question}) for question in ASKED]
    Path("questions.jsonl").write_text("\n".join(rows), "utf-8")


def ask(run: Run, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]) -> list[bool]:
    del monkeypatch
    return [run("ask", text, *PLANNER, *options).out == "right\n" for text in ASKED[:40]]


def mcp(run: Run, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]) -> list[bool]:
    right: list[bool] = []

    async def serve(conductor: Conductor, budget: Budget, *_: object, **__: object) -> None:
        for question in ASKED:
            episode = await conductor.ask(question, budget=budget)
            right.append(episode.answer == "right")

    monkeypatch.setattr(mcp_server, "serve", serve)
    assert run("mcp", *PLANNER, *options).code == 0
    return right


def serve(run: Run, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]) -> list[bool]:
    right: list[bool] = []

    async def ask_all(served: Any) -> None:
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for question in ASKED:
                turn = {"role": "user", "content": question}
                body = {"model": "conductor", "messages": [turn]}
                got = await client.post("/v1/chat/completions", json=body)
                right.append(got.json()["choices"][0]["message"]["content"] == "right")

    def run_app(config: Any, gateway: Any, keys: Any, listeners: Any, door: Any) -> None:
        assert door is None
        for listener in listeners:
            listener.close()
        asyncio.run(ask_all(app.build_app(gateway, keys, config)))

    monkeypatch.setattr(app, "run", run_app)
    Path("serve.toml").write_text("port = 0", "utf-8")
    assert run("serve", "--config", "serve.toml", *PLANNER, *options).code == 0
    return right


def evaluate(run: Run, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]) -> list[bool]:
    del monkeypatch
    task = ("--task", "q=readers:QUESTIONS", "--task-path", "q=questions.jsonl")
    folder = f"run{len(options)}"
    ran = run("eval", "conductor", *PLANNER, *task, *options, "--json", "--out", folder)
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)["rows"]
    assert row["n"] == 200
    return [True] * round(200 * row["accuracy"]) + [False] * round(200 * (1 - row["accuracy"]))


@pytest.mark.parametrize("verb", [ask, mcp, serve, evaluate])
def test_a_planner_that_can_read_routes_right_with_cards_and_at_random_without(
    run: Run, monkeypatch: pytest.MonkeyPatch, verb: Any
) -> None:
    with_cards = verb(run, monkeypatch, ())
    assert sum(with_cards) >= 0.95 * len(with_cards)
    blind = verb(run, monkeypatch, ("--no-cards",))
    assert 0.05 * len(blind) <= sum(blind) <= 0.35 * len(blind)


MEASURED = "\n[calibration.tom.{0}]\ndate = 2026-11-24\nright = 9\nn = 10\nseconds = 1.0\n"


def test_a_run_goes_on_with_its_own_cards_after_its_pool_was_calibrated(run: Run) -> None:
    words = ["eval", "conductor", *PLANNER, "--task", "q=readers:QUESTIONS"]
    words += ["--task-path", "q=questions.jsonl", "--json", "--out"]
    pool = Path("pool.toml")
    before = pool.read_text("utf-8")
    pool.write_text(before + MEASURED.format("algebra"), "utf-8")
    assert run(*words, "run", "--budget-calls", "100").code == 1
    pool.write_text(before + MEASURED.format("etymology"), "utf-8")
    assert run("eval", "--out", "run", "--dry-run", "--budget-calls", "400").code == 0
    resumed = run(*words, "run")
    assert resumed.code == 0, resumed.err
    said = "pool.toml was calibrated since: this run goes on with its own cards; a new folder"
    assert said in " ".join(resumed.err.split())
    assert resumed.json()["rows"][0]["accuracy"] == 0.8, "tom is asked about algebra"
    other = run(*words, "other")
    assert "calibrated since" not in other.err
    assert other.json()["rows"][0]["accuracy"] == 1
