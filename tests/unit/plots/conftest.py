"""Builders of small records and curves whose numbers can be checked by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from planted_records import make_record

from openconductor.evaluation.records import Record

pytest.importorskip("matplotlib")

Make = Callable[..., Record]
Write = Callable[..., Path]


def make_iteration(number: int, **changes: object) -> dict[str, object]:
    """A line of a curve as ``training.curves`` writes it."""
    line: dict[str, object] = {
        "iteration": number,
        "rollouts": 64,
        "masked": 0,
        "validity": 0.5,
        "accuracy": 0.25,
        "accuracy_given_valid": 0.5,
        "routing_entropy_bits": 1.0,
        "worker_share": {"anna": 0.5, "bert": 0.5},
        "topology": {"single": 16, "chain": 16},
    }
    return line | changes


@pytest.fixture
def record() -> Make:
    """Makes one record."""
    return make_record


@pytest.fixture
def write_curve(tmp_path: Path) -> Write:
    """Writes a curve, an iteration an argument, and returns the run's folder."""

    def write(*iterations: dict[str, object]) -> Path:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        lines: list[str] = []
        for number, changes in enumerate(iterations):
            lines.append(json.dumps(make_iteration(number, **changes)) + "\n")
        (folder / "curves.jsonl").write_text("".join(lines), encoding="utf-8")
        return folder

    return write


# Of each system: the questions that are right, the price, the workflows.
SYSTEMS = {
    "worker:anna": ("01", "0.01", [(0,)] * 4),
    "worker:bert": ("3", "0.001", [(1,)] * 4),
    "oracle": ("0123", "0.02", [(0,), (0,), (0, 1), (1,)]),
    "random": ("2", "0.05", [(1,), (1,), (0, 1), (0,)]),
    "conductor": ("012", "0.02", [(0,), (0,), (0, 1), (0, 1, 0)]),
}


@pytest.fixture
def evaluation() -> list[Record]:
    """Workers alone, bounds and a Conductor on four questions of two kinds."""
    records: list[Record] = []
    for system, (right, dollars, plans) in SYSTEMS.items():
        planned = system == "conductor"
        for question, plan in enumerate(plans):
            kind = "easy" if question < 2 else "hard"
            correct = str(question) in right
            record = make_record(
                system, question, correct, plan, kind=kind, planned=planned, dollars=dollars
            )
            records.append(record)
    return records


TASKS = ("math500", "mmlu", "livecodebench_v6")

GRADES = ("easy", "medium", "hard")


@pytest.fixture
def crowd() -> list[Record]:
    """Twenty workers with long names on three tasks, asked twice; some masked and unpriced."""
    records: list[Record] = []
    planners = ("conductor?rounds=3", f"conductor?one_worker={LONG_NAMES[3]}", "masrouter")
    for task, question, sample in product(TASKS, range(6), range(2)):
        cell: dict[str, Any] = {"task": task, "kind": GRADES[question % 3], "sample": sample}
        for ordinal, name in LONG_NAMES.items():
            correct = None
            if (ordinal + question) % 11:
                correct = (ordinal * 7 + question + sample) % 3 == 0
            alone = make_record(f"worker:{name}", question, correct, (ordinal,), unpriced=1, **cell)
            records.append(alone)
        first = [(question + step) % 20 for step in range(1 + question % 5)]
        right = (question + sample) % 2 == 0
        for system in planners:
            cell |= {"planned": "?" in system, "tokens": 500 + 10 * len(system)}
            record = make_record(system, question, right, first, [question, 19], **cell)
            records.append(record)
    return records


LONG_NAMES = {
    ordinal: f"accounts/vendor/models/qwen3-32b-instruct-2026-11-{ordinal:02d}"
    for ordinal in range(18)
}
LONG_NAMES |= {18: "_a$b$c\n\x1b[31m", 19: "通义千问-大模型-通义千问"}


@pytest.fixture
def long_names() -> dict[int, str]:
    """Names that are long, that look like a formula, that no Latin font has."""
    return LONG_NAMES
