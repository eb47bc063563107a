"""Builders of what figures are drawn from: small records and curves whose numbers can be checked by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from openconductor.evaluation.records import Record, RoundRecord, Status
from openconductor.types import Step, Usage, Workflow

pytest.importorskip("matplotlib")

Flow = Sequence[int] | None
Make = Callable[..., Record]
Write = Callable[..., Path]


def chain(workers: Sequence[int]) -> Workflow:
    """A workflow in which each step sees all before it; no workers is *accept*."""
    return Workflow(
        tuple(Step(worker, "do it", "all" if place else ()) for place, worker in enumerate(workers))
    )


def make_record(
    system: str,
    problem: str | int,
    correct: bool | None,
    *flows: Flow,
    task: str = "t",
    kind: str = "",
    sample: int = 0,
    planned: bool = False,
    tokens: int = 100,
    dollars: str = "0.01",
    unpriced: int = 0,
    calls: int = 1,
) -> Record:
    """One record; ``flows`` are the workers of each round's chain, None a text that is no workflow."""
    status: Status = "failed" if correct is None else "graded"
    rounds = tuple(
        RoundRecord(
            None if flow is None else chain(flow), planned, "missing_list" if flow is None else ""
        )
        for flow in flows
    )
    usage = Usage(tokens, 0, 0, 0, Decimal(dollars), unpriced, 1.0)
    return Record(
        system,
        task,
        str(problem),
        sample,
        kind,
        correct,
        status,
        None,
        None,
        "",
        rounds,
        calls,
        usage,
        1.0,
    )


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
    """Writes a curve: each argument is what differs from the default in one iteration. Returns the run's folder."""

    def write(*iterations: dict[str, object]) -> Path:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        lines = [
            json.dumps(make_iteration(number, **changes)) + "\n"
            for number, changes in enumerate(iterations)
        ]
        (folder / "curves.jsonl").write_text("".join(lines), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def evaluation() -> list[Record]:
    """Two workers alone, an oracle, random workflows and a Conductor on four questions of two kinds."""
    found: list[Record] = []
    systems: dict[
        str, tuple[str, str, tuple[Flow, ...]]
    ] = {  # which questions are right, the price, the workflows
        "worker:anna": ("01", "0.01", ((0,),) * 4),
        "worker:bert": ("3", "0.001", ((1,),) * 4),
        "oracle": ("0123", "0.02", ((0,), (0,), (0, 1), (1,))),
        "random": ("2", "0.05", ((1,), (1,), (0, 1), (0,))),
        "conductor": ("012", "0.02", ((0,), (0,), (0, 1), (0, 1, 0))),
    }
    for system, (right, dollars, flows) in systems.items():
        for question, flow in enumerate(flows):
            some: dict[str, Any] = {
                "kind": "easy" if question < 2 else "hard",
                "planned": system == "conductor",
                "dollars": dollars,
            }
            found.append(make_record(system, question, str(question) in right, flow, **some))
    return found


@pytest.fixture
def crowd() -> list[Record]:
    """Twenty workers with long names on three tasks, asked twice: masked answers, unknown prices, revisions."""
    found: list[Record] = []
    for task in ("math500", "mmlu", "livecodebench_v6"):
        for question, sample in product(range(6), range(2)):
            some: dict[str, Any] = {
                "task": task,
                "kind": ("easy", "medium", "hard")[question % 3],
                "sample": sample,
            }
            for ordinal, name in LONG_NAMES.items():
                correct = (
                    None
                    if (ordinal + question) % 11 == 0
                    else (ordinal * 7 + question + sample) % 3 == 0
                )
                found.append(
                    make_record(f"worker:{name}", question, correct, (ordinal,), unpriced=1, **some)
                )
            for system in (
                "conductor?rounds=3",
                f"conductor?one_worker={LONG_NAMES[3]}",
                "masrouter",
            ):
                flows = [
                    [(question + step) % 20 for step in range(1 + question % 5)],
                    [question, 19],
                ]
                some |= {
                    "planned": system.startswith("conductor"),
                    "tokens": 500 + 10 * len(system),
                }
                found.append(
                    make_record(system, question, (question + sample) % 2 == 0, *flows, **some)
                )
    return found


LONG_NAMES = {
    ordinal: f"accounts/vendor/models/qwen3-32b-instruct-2026-11-{ordinal:02d}"
    for ordinal in range(18)
}
LONG_NAMES |= {18: "_a$b$c\n\x1b[31m", 19: "通义千问-大模型-通义千问"}


@pytest.fixture
def long_names() -> dict[int, str]:
    """Names that are long, that look like a formula, that no Latin font has."""
    return LONG_NAMES
