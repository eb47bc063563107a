"""The recipe of the proof in the gym leaves no system and no ablation out."""

from __future__ import annotations

from pathlib import Path

from openconductor.evaluation.eval_config import (
    KINDS,
    PLANNER,
    WORKER,
    WORKERS,
    load_eval_config,
    read_spec,
)
from openconductor.evaluation.systems import ABLATIONS

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


def test_every_kind_of_system_and_every_ablation_is_in_it() -> None:
    specs = [read_spec(text) for text in load_eval_config(RECIPE).systems]
    assert {spec.kind for spec in specs} == {*KINDS} - {PLANNER, WORKER}, (
        f"{WORKERS!r} stands for each worker alone"
    )
    specs += [read_spec(f"planner:vllm:m{options}") for options in OF_THE_PROMPT]
    asked = {spec.kind: set[str]() for spec in specs}
    for spec in specs:
        asked[spec.kind] |= {name for name, _ in spec.options}
    assert asked["conductor"] >= {"one_worker", "subtasks", "access", "sequential", "rounds"}
    assert asked["planner"] >= {"examples", "subtasks", "access", "max_steps", "rounds"}
    assert asked["conductor"] | asked["planner"] == set(ABLATIONS)
