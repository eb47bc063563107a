"""The recipe of the proof in the gym: it leaves nothing out, and every system of it answers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from openconductor.evaluation.eval_config import (
    KINDS,
    PLANNER,
    WORKER,
    WORKERS,
    load_eval_config,
    read_spec,
)
from openconductor.evaluation.grid import run_grid
from openconductor.evaluation.systems import ABLATIONS
from openconductor.evaluation.tables import make_table
from openconductor.prompt import render_workflow
from openconductor.protocols import Provider
from openconductor.providers import PROVIDERS
from openconductor.types import Completion, Step, Workflow

RECIPE = Path(__file__).parents[2] / "recipes" / "gym_proof.toml"
OF_THE_PROMPT = (
    "",
    "?examples=none",
    "?examples=in",
    "?access=index",
    "?subtasks=false",
    "?max_steps=1",
    "?rounds=3",
)
"""Ablations of the prompt, which only a planner of the full template shows."""


class OneStep(Provider):
    """A planner that reads the full template: the first worker gets the question, once."""

    identity = "one step"
    prices_itself = True

    def __init__(self, model: str) -> None:
        """Take no notice of the model."""

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        prompt = "\n\n".join(message.content for message in messages)
        question, _, earlier_plan = messages[-1].content.partition("\n\n---\n")
        if earlier_plan:
            return Completion(render_workflow(Workflow(())))
        worker = re.search(r"^Model (\d+)", prompt, re.MULTILINE)
        dictated = re.search(r'^- subtasks holds, .*, word for word: "(.*)"$', prompt, re.MULTILINE)
        subtask = dictated[1] if dictated else question
        return Completion(render_workflow(Workflow((Step(int(worker[1]), subtask),))))


def test_every_kind_of_system_and_every_ablation_is_in_it() -> None:
    specs = [read_spec(text) for text in load_eval_config(RECIPE).systems]
    assert {spec.kind for spec in specs} == {*KINDS} - {PLANNER, WORKER}, (
        f"{WORKERS!r} stands for each worker alone"
    )
    specs += [read_spec(f"planner:scripted:m{options}") for options in OF_THE_PROMPT]
    asked = {spec.kind: set[str]() for spec in specs}
    for spec in specs:
        asked[spec.kind] |= {name for name, _ in spec.options}
    assert asked["conductor"] >= {"one_worker", "subtasks", "access", "sequential", "rounds"}
    assert asked["planner"] >= {"examples", "subtasks", "access", "max_steps", "rounds"}
    assert asked["conductor"] | asked["planner"] == set(ABLATIONS)


@pytest.mark.slow
async def test_every_system_of_it_answers_whatever_the_question(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(PROVIDERS, "scripted", "test_gym_proof:OneStep")
    overrides = ["learn.limit=12", "learn.trials=2", 'task=[{name="gym",limit=2}]', "repeats=1"]
    config = load_eval_config(RECIPE, overrides)
    planned = tuple(f"planner:scripted:m{options}" for options in OF_THE_PROMPT)
    config = replace(config, systems=(*config.systems, *planned))
    results = await run_grid(config, tmp_path)
    table = make_table(results)
    assert len(table.rows) > 35
    assert [row.system for row in table.rows if row.n != 2 or row.masked] == []
    assert table.missing == 0
    assert {row.validity for row in table.rows if row.system.startswith("planner:")} == {1.0}
    assert [row.system for row in table.rows if row.dollars_per_question is None] == []
    assert table.row("conductor?one_worker=jack", "gym").routing_entropy_bits == 0.0
    assert table.row("planner:scripted:m?subtasks=false", "gym").accuracy == 0.0, (
        "told nothing, they do nothing"
    )
