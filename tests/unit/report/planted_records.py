"""Planted evaluations: records of systems whose skill is known, so that a verdict can be said to be right or wrong.

Each question has a difficulty of its own (drawn around a system's skill, shared by all systems) and
an answer of its own, and is of one of four kinds. Everything is keyed by the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache

from openconductor.evaluation.records import Record, RoundRecord, Status
from openconductor.types import Step, Usage, Workflow

WORKERS = {0: "anna", 1: "bert", 2: "cora", 3: "dora"}
KINDS = ("k0", "k1", "k2", "k3")
Skill = Callable[[int], float]
"""The chance of a right answer, by the question's kind (0 to 3)."""
Plan = Callable[[random.Random, int], Sequence[int] | None]
"""The workers of a question's chain, by its kind; None is a text that is no workflow."""
Written = Callable[[random.Random, int, str], Workflow]
"""A whole workflow for a question of a kind and what is answered to it."""


def flat(chance: float) -> Skill:
    return lambda _: chance


def always(*workers: int) -> Plan:
    return lambda _rng, _kind: workers


def by_kind(*chains: Sequence[int]) -> Plan:
    return lambda _rng, kind: chains[kind]


@cache
def chain(workers: tuple[int, ...]) -> Workflow:
    return Workflow(
        tuple(
            Step(worker, "Solve it.", "all" if place else ())
            for place, worker in enumerate(workers)
        )
    )


@dataclass(frozen=True)
class Player:
    """A system whose skill is known.

    ``fails`` is the chance that an answer is masked, by whether it would have been right;
    ``written`` is what it writes where that is more than a chain.
    """

    skill: Skill
    plan: Plan
    planned: bool = False
    fails: Callable[[bool], float] = field(default=lambda _: 0.0)
    dollars: str = "0.01"
    written: Written | None = None


def alone(worker: int, chance: float | Skill, **changes: object) -> Player:
    """One worker without a plan of anybody's."""
    skill = chance if callable(chance) else flat(chance)
    return Player(skill, always(worker), **changes)  # pyright: ignore[reportArgumentType]


def play(
    players: dict[str, Player],
    seed: int,
    *,
    questions: int = 200,
    repeats: int = 1,
    kinds: int = 4,
    asked: Iterable[int] | None = None,
    task: str = "sums",
) -> list[Record]:
    """The records of all players on the same questions, the first to the last."""
    found: list[Record] = []
    for number in range(questions) if asked is None else asked:
        kind = number % kinds
        hard = random.Random(f"question/{number}/{seed}{task.removeprefix('sums')}").uniform(
            -0.15, 0.15
        )
        for name, player in players.items():
            for repeat in range(repeats):
                rng = random.Random(f"{seed}/{name}/{number}/{repeat}{task.removeprefix('sums')}")
                found.append(
                    replace(_record(name, player, number, kind, repeat, hard, rng), task=task)
                )
    return found


def _record(
    name: str, player: Player, number: int, kind: int, repeat: int, hard: float, rng: random.Random
) -> Record:
    workers = player.plan(rng, kind)
    right = workers is not None and rng.random() < player.skill(kind) + hard
    masked = workers is not None and rng.random() < player.fails(right)
    answer = str(1000 + 7 * number) if right else f"wrong {rng.randrange(3)}"
    flow = None if workers is None else chain(tuple(workers))
    if flow is not None and player.written is not None:
        flow = player.written(rng, kind, answer)
    status: Status = "failed" if masked else "graded" if workers is not None else "invalid"
    round_ = RoundRecord(
        flow,
        player.planned,
        "" if workers is not None else "missing_list",
    )
    return Record(
        system=name,
        task="sums",
        problem=f"q{number:04}",
        sample=repeat,
        kind=KINDS[kind],
        correct=None if masked else right,
        status=status,
        answer=answer,
        extracted=answer,
        note="",
        rounds=(round_,),
        calls=1 + len(workers or ()) if player.planned else len(workers or ()),
        usage=Usage(100, dollars=Decimal(player.dollars)),
        seconds=1.0,
    )
