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
OF_THE_PROMPT = {
    "examples",
    "max_steps",
    "cards",
    "previous",
    "template",
}  # for models that are prompted


def test_every_kind_of_system_and_every_ablation_is_in_it() -> None:
    specs = [read_spec(text) for text in load_eval_config(RECIPE).systems]
    assert {spec.kind for spec in specs} == {*KINDS} - {PLANNER, WORKER}, (
        f"{WORKERS!r} stands for each worker alone"
    )
    ablations: set[str] = set()
    for spec in specs:
        if spec.kind == "conductor":
            ablations |= {name for name, _ in spec.options}
    assert ablations >= set(ABLATIONS) - OF_THE_PROMPT - {"on_no_plan"}
