"""The choice of ``auto``: runs whose best system was planted, and runs that decide nothing."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import pytest
from rows_of import record, results_of

from openconductor.evaluation.choice import choose_auto
from openconductor.evaluation.records import Record, Results
from openconductor.types import Usage

pytest.importorskip("scipy")

RUNS = tomllib.loads(Path(__file__).with_name("planted_runs.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Planted:
    """One system of a planted run.

    Attributes:
        right: the chance that an answer is right.
        dollars: the price of a question; "": unknown.
        calls: the calls of a question.
        like: answers as this system does, but for a share ``apart`` of the questions.
        undecided, missing: shares of the questions.
    """

    right: float
    dollars: str = ""
    calls: int = 1
    like: str = ""
    apart: float = 0.0
    undecided: float = 0.0
    missing: float = 0.0


def plant(seed: int, questions: int, systems: dict[str, Planted], tasks: Sequence[str]) -> Results:
    """Draw a run; the questions differ in difficulty, which all systems share."""
    rng = random.Random(seed)
    made: list[Record] = []
    for number in range(questions):
        hard = rng.random()
        right: dict[str, bool] = {}
        for name, system in systems.items():
            own = rng.random() < 0.6
            right[name] = (rng.random() if own else hard) < system.right
            if system.like and rng.random() >= system.apart:
                right[name] = right[system.like]
            if rng.random() < system.missing:
                continue
            mark = "+" if right[name] else "-"
            if rng.random() < system.undecided:
                mark = "u"
            usage = Usage(100, output_tokens=10, dollars=Decimal(system.dollars or 0))
            if not system.dollars:
                usage = replace(usage, unpriced_calls=system.calls)
            drawn = record(mark, f"p{number}", system=name, calls=system.calls, usage=usage)
            made.append(replace(drawn, task=tasks[number % len(tasks)]))
    return results_of(made, list(systems), tasks=tasks, seed=seed)


def misses(name: str, seeds: int) -> int:
    """Count the seeds in which another system than the planted one is chosen."""
    run = RUNS[name]
    systems = {system: Planted(**values) for system, values in run["systems"].items()}
    missed = 0
    for seed in range(seeds):
        choice = choose_auto(plant(seed, run["questions"], systems, run.get("tasks", ["t"])))
        missed += choice is None or choice.system != run["auto"]
    return missed


@pytest.mark.parametrize("name", RUNS)
def test_the_planted_system_is_chosen(name: str) -> None:
    assert misses(name, seeds=4) == 0


def test_the_best_of_many_equal_systems_is_not_taken_for_better() -> None:
    assert misses("ten dearer votes are no better", seeds=10) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_planted_system_is_chosen_in_95_of_100_seeds(name: str) -> None:
    assert misses(name, seeds=100) <= 5
