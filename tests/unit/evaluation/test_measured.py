"""The choice of ``auto``: runs whose best system was planted, and runs that decide nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from rows_of import record, results_of

from openconductor.evaluation.records import Record, Results
from openconductor.serving.measured import choose_auto
from openconductor.types import Usage

pytest.importorskip("scipy")

ANN, BOB, VOTE, TEAM = "worker:ann", "worker:bob", "consensus:ann?n=3", "conductor"
ROUTER, LOCAL = "routerdc-lite", "worker:local"


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
    dollars: str
    calls: int = 1
    like: str = ""
    apart: float = 0.0
    undecided: float = 0.0
    missing: float = 0.0


def plant(
    seed: int, questions: int, systems: dict[str, Planted], tasks: Iterable[str] = ("t",)
) -> Results:
    """Draw a run; the questions differ in difficulty, which all systems share."""
    rng = random.Random(seed)
    tasks = list(tasks)
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


CHEAP, DEAR = "0.001", "0.01"
VOTES = {f"consensus:ann?n={n}": Planted(0.7, f"0.0{n:02}", calls=n) for n in range(3, 23, 2)}
"""Ten votes that are no better than a worker that is right in 70 of 100."""
RUNS: dict[str, tuple[str, Callable[[int], Results]]] = {
    "a vote wins": (
        VOTE,
        lambda seed: plant(
            seed,
            400,
            {
                ANN: Planted(0.6, CHEAP),
                BOB: Planted(0.5, DEAR),
                VOTE: Planted(0.8, "0.003", calls=3),
            },
        ),
    ),
    "a worker wins": (
        ANN,
        lambda seed: plant(
            seed,
            400,
            {
                ANN: Planted(0.8, CHEAP),
                BOB: Planted(0.6, CHEAP),
                VOTE: Planted(0.65, "0.003", calls=3),
            },
        ),
    ),
    "two are equal and one is cheaper": (
        VOTE,
        lambda seed: plant(
            seed,
            1000,
            {
                ANN: Planted(0.6, CHEAP),
                TEAM: Planted(0.8, DEAR, calls=4),
                VOTE: Planted(0.8, "0.003", calls=3, like=TEAM, apart=0.02),
            },
        ),
    ),
    "20 questions decide nothing": (
        ANN,
        lambda seed: plant(
            seed,
            20,
            {
                ANN: Planted(0.9, CHEAP),
                BOB: Planted(0.2, CHEAP),
                VOTE: Planted(0.9, "0.003", calls=3),
                TEAM: Planted(0.92, DEAR, calls=4),
            },
        ),
    ),
    "a router wins": (
        ROUTER,
        lambda seed: plant(
            seed,
            400,
            {
                ANN: Planted(0.6, CHEAP),
                BOB: Planted(0.6, DEAR),
                ROUTER: Planted(0.85, "0.005"),
                VOTE: Planted(0.65, "0.003", calls=3),
            },
        ),
    ),
    "the best is also the cheapest": (
        ROUTER,
        lambda seed: plant(
            seed,
            400,
            {
                ANN: Planted(0.65, DEAR),
                ROUTER: Planted(0.85, CHEAP),
                TEAM: Planted(0.7, "0.05", calls=4),
            },
        ),
    ),
    "a system with many undecided": (
        ANN,
        lambda seed: plant(
            seed,
            400,
            {
                ANN: Planted(0.7, CHEAP),
                BOB: Planted(0.4, CHEAP),
                TEAM: Planted(0.8, DEAR, undecided=0.3),
            },
        ),
    ),
    "a system with missing rows": (
        VOTE,
        lambda seed: plant(
            seed,
            400,
            {
                ANN: Planted(0.6, CHEAP),
                VOTE: Planted(0.8, "0.003", calls=3),
                TEAM: Planted(0.95, "0.002", calls=2, missing=0.5),
            },
        ),
    ),
    "several tasks": (
        VOTE,
        lambda seed: plant(
            seed,
            600,
            {
                ANN: Planted(0.6, CHEAP),
                BOB: Planted(0.5, CHEAP),
                VOTE: Planted(0.8, "0.003", calls=3),
            },
            tasks=("sums", "words", "codes"),
        ),
    ),
    "dollars are equal": (
        BOB,
        lambda seed: plant(
            seed,
            1000,
            {
                ANN: Planted(0.5, "0"),
                BOB: Planted(0.8, "0"),
                VOTE: Planted(0.8, "0", calls=3, like=BOB, apart=0.02),
                TEAM: Planted(0.8, "0", calls=4, like=BOB, apart=0.02),
            },
        ),
    ),
    "a Conductor wins among many": (
        TEAM,
        lambda seed: plant(
            seed, 400, {ANN: Planted(0.7, CHEAP), **VOTES, TEAM: Planted(0.85, "0.02", calls=4)}
        ),
    ),
    "ten dearer votes are no better": (
        ANN,
        lambda seed: plant(
            seed, 200, {ANN: Planted(0.7, CHEAP), BOB: Planted(0.5, CHEAP), **VOTES}
        ),
    ),
    "a free local worker is as good": (
        LOCAL,
        lambda seed: plant(
            seed,
            1000,
            {
                ANN: Planted(0.8, DEAR),
                LOCAL: Planted(0.8, "0", like=ANN, apart=0.02),
                VOTE: Planted(0.8, "0.03", calls=3, like=ANN, apart=0.02),
            },
        ),
    ),
    "an unknown price is the highest": (
        TEAM,
        lambda seed: plant(
            seed,
            400,
            {
                ANN: Planted(0.6, CHEAP),
                VOTE: Planted(0.8, "", calls=3),
                TEAM: Planted(0.8, DEAR, calls=4, like=VOTE),
            },
        ),
    ),
    "two are alike": (
        ANN,
        lambda seed: plant(
            seed, 400, {ANN: Planted(0.7, CHEAP), BOB: Planted(0.7, CHEAP, like=ANN)}
        ),
    ),
}


def misses(name: str, seeds: int) -> int:
    """Count the seeds in which another system than the planted one is chosen."""
    expected, make = RUNS[name]
    chosen = [choose_auto(make(seed)) for seed in range(seeds)]
    return sum(choice is None or choice.system != expected for choice in chosen)


@pytest.mark.parametrize("name", RUNS)
def test_the_planted_system_is_chosen(name: str) -> None:
    assert misses(name, seeds=4) == 0


def test_the_best_of_many_equal_systems_is_not_taken_for_better() -> None:
    assert misses("ten dearer votes are no better", seeds=10) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_planted_system_is_chosen_in_95_of_100_seeds(name: str) -> None:
    assert misses(name, seeds=100) <= 5
