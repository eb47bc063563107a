"""The recipe for one card, with random weights of a small shape and a scripted server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.learning.bases import save_base
from tests.learning.test_journal import serving
from tests.learning.test_language_model import WORKER, tensors, write_rows

from openconductor.store import read_store

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]

RECIPE = Path(__file__).parents[2] / "recipes" / "open_small.toml"
SHORT = """
pool=pool.toml
data.path=gsm8k
prompt.template=compact
cold_start.batch=4
cold_start.micro_batch=4
start.prompts=8
start.workflows=4
start.validity=0.0
rollout.iterations=1
rollout.questions=2
rollout.completions=4
rollout.temperature=0.2
rollout.max_tokens=80
rollout.max_steps=1
held_out.questions=4
"""
# Adapters over random embeddings cannot learn the form, so the whole weights learn it first.
FORM = ("model.lora_rank=0", "cold_start.steps=130", "cold_start.learning_rate=2e-2")


@pytest.mark.slow
def test_the_recipe_trains_adapters_over_local_workers_and_costs_no_dollars(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = save_base(tmp_path / "base", "qwen2", hidden=64)
    Path("gsm8k").mkdir()
    for split in ("train", "test"):
        rows: list[dict[str, object]] = []
        for n in range(8):
            question = f"{split}: {n} apples and {42 - n} pears are how many fruits?"
            rows.append({"question": question, "answer": f"{n} + {42 - n} = 42\n#### 42"})
        write_rows(Path("gsm8k") / f"{split}.jsonl", rows)
    with serving() as server:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        priced = "price = {input = 0, output = 0}\n"
        workers = [WORKER.format(number, url) + priced for number in range(3)]
        Path("pool.toml").write_text("".join(workers), "utf-8")
        run("train", RECIPE, f"model.base={base}", *SHORT.split(), *FORM, "--out", "form")
        base = tmp_path / "form" / "cold_start"
        adapters = (f"model.base={base}", "cold_start.steps=2", "rollout.iterations=2")
        ran = run("train", RECIPE, *SHORT.split(), *adapters, "--out", "run", "--json")
    assert ran.code == 0, ran.err
    results = json.loads(ran.out)
    assert results["sampled"]["validity"] > 0.3
    assert results["greedy"]["dollars"] == 0
    before, after = tensors(base), tensors(tmp_path / "run" / "conductor")
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed and all(name.endswith("proj.weight") for name in changed)
    with read_store("run/journal.sqlite") as journal:
        counted = journal.totals().counted
    assert counted.calls > 8 and counted.usage.dollars == 0
