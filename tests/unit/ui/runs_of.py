"""Folders of runs as trainings and evaluations write them, for the tests of the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from episodes_of import HOSTILE

from openconductor.store import Journal

RECIPE = """
name = "small"
seed = 3
pool = "pool.toml"
[imitate]
rounds = 1
completions = 2
[rollout]
iterations = 3
completions = 2
"""
FATES: tuple[dict[str, Any], ...] = (
    {"correct": True, "reward": 1.0},
    {"correct": False, "reward": 0.5},
    {"correct": False, "reward": 0.0, "invalid": "unknown_worker", "error": "no worker 9"},
    {"correct": None, "reward": None, "error": HOSTILE},
)


def record_of(number: int, **changes: Any) -> dict[str, Any]:
    """Return the record of an iteration, as ``training.curves`` writes it."""
    return {
        "iteration": number,
        "phase": "imitate" if number == 0 else "grpo",
        "seconds": 2.0,
        "rollouts": 4,
        "masked": 1,
        "reward": 0.5,
        "validity": 0.75,
        "accuracy": 0.25 + 0.1 * number,
        "accuracy_given_valid": 0.5,
        "truncated": 0.0,
        "dollars": 0.01,
        "groups_without_spread": 0.5,
        "completion_tokens": 20.0,
        "routing_entropy_bits": 1.0,
        "routing_entropy_by_subtask_bits": 0.5,
        "worker_share": {"anna": 0.75, "bert": 0.25},
        "topology": {"single": 3},
        "steps_by_kind": {"easy": 1.0, "hard": 3.0},
        "accuracy_by_kind": {"easy": 0.5, "hard": 0.25},
        **changes,
    }


def write_curve(folder: Path, records: list[dict[str, Any]]) -> None:
    """Write the curve of a training."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record) + "\n" for record in records]
    (folder / "curves.jsonl").write_text("".join(lines))
    (folder / "config.toml").write_text(RECIPE)


def write_training(folder: Path, *, iterations: int = 3) -> None:
    """Write the folder of a training: two groups of two rollouts in each iteration."""
    write_curve(folder, [record_of(number) for number in range(iterations)])
    with Journal(folder / "journal.sqlite") as journal:
        for number in range(iterations):
            for place, fate in enumerate(FATES):
                rollout = {
                    "training": f"iteration {number}",
                    "problem": f"problem {place // 2}",
                    "question": "What is 6 * 7?" if place < 2 else None,
                    "round": 0,
                    "completion": HOSTILE,
                    "answer": HOSTILE,
                    "invalid": None,
                    "error": None,
                    "undecided": False,
                    **fate,
                }
                journal.put_record(f"iteration {number}/{place}", rollout)
        journal.flush()
