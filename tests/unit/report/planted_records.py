"""Records for tests of reports and figures: single ones, and planted evaluations of known skill.

In a planted evaluation each question has a difficulty of its own, shared by all systems, an answer
of its own, and one of four kinds. Everything is keyed by the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from typing import Any

from openconductor.evaluation.records import Record, RoundRecord, Status
from openconductor.evaluation.statistics import Key
from openconductor.evaluation.strategies import useful_part
from openconductor.report import Judgement, judge, measure_orchestration
from openconductor.report.plays.transplants import Plays, Transplant
from openconductor.types import Step, Usage, Workflow

WORKERS = {0: "anna", 1: "bert", 2: "cora", 3: "dora"}
KINDS = ("k0", "k1", "k2", "k3")
Skill = Callable[[int], float]
"""The chance of a right answer, by the question's kind (0 to 3)."""
Plan = Callable[[random.Random, int], Sequence[int] | None]
"""The workers of a question's chain, by its kind; None is a text that is no workflow."""
Written = Callable[[random.Random, int, str], Workflow]
"""A whole workflow for a question of a kind and its answer."""


@cache
def chain(workers: tuple[int, ...]) -> Workflow:
    """A workflow in which each step sees all before it; without workers it accepts."""
    steps = [
        Step(worker, "Solve it.", "all" if place else ()) for place, worker in enumerate(workers)
    ]
    return Workflow(steps)


def make_record(
    system: str,
    problem: object,
    correct: bool | None,
    *plans: Sequence[int] | Workflow | None,
    planned: bool = False,
    tokens: int = 100,
    dollars: str = "0.01",
    unpriced: int = 0,
    **changes: Any,
) -> Record:
    """One record; ``plans`` are the workers of each round's chain, None an invalid text."""
    rounds: list[RoundRecord] = []
    for plan in plans:
        workflow = chain(tuple(plan)) if isinstance(plan, list | tuple) else plan
        rounds.append(RoundRecord(workflow, planned, "missing_list" if plan is None else ""))
    status: Status = "graded"
    if correct is None:
        status = "failed"
    elif None in plans:
        status = "invalid"
    values: dict[str, Any] = {
        "task": "t",
        "sample": 0,
        "kind": "",
        "answer": None,
        "extracted": None,
        "note": "",
        "calls": 1,
        "seconds": 1.0,
        "usage": Usage(tokens, dollars=Decimal(dollars), unpriced_calls=unpriced, seconds=1.0),
    }
    values |= {"problem": str(problem), "correct": correct, "status": status}
    return Record(system=system, rounds=tuple(rounds), **(values | changes))


# ── planted evaluations ───────────────────────────────────────────────────────────────────────────
def flat(chance: float) -> Skill:
    return lambda _: chance


def always(*workers: int) -> Plan:
    return lambda _rng, _kind: workers


def by_kind(*chains: Sequence[int]) -> Plan:
    return lambda _rng, kind: chains[kind]


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


ROUTED = by_kind([0], [0, 1], [2], [3, 0])


def alone(worker: int, chance: float | Skill, **changes: Any) -> Player:
    """One worker without a plan of anybody's."""
    skill = chance if callable(chance) else flat(chance)
    return Player(skill, always(worker), **changes)


SKILLS = (0.65, 0.55, 0.5, 0.5)
HONEST = Player(flat(0.85), ROUTED, planned=True)
FIXED = {"best_fixed": Player(flat(0.66), always(0, 1))}
POOL = {f"worker:{name}": alone(ordinal, SKILLS[ordinal]) for ordinal, name in WORKERS.items()}


def play(
    players: dict[str, Player],
    seed: int,
    *,
    questions: int = 200,
    repeats: int = 1,
    asked: Iterable[int] | None = None,
    task: str = "sums",
) -> list[Record]:
    """The records of all players on the same questions, the first to the last."""
    records: list[Record] = []
    salt = task.removeprefix("sums")
    for number in range(questions) if asked is None else asked:
        hard = random.Random(f"question/{number}/{seed}{salt}").uniform(-0.15, 0.15)
        for name, player in players.items():
            for repeat in range(repeats):
                rng = random.Random(f"{seed}/{name}/{number}/{repeat}{salt}")
                record = _answer(name, player, number, hard, rng)
                records.append(replace(record, task=task, sample=repeat))
    return records


def _answer(name: str, player: Player, number: int, hard: float, rng: random.Random) -> Record:
    kind = number % len(KINDS)
    workers = player.plan(rng, kind)
    right = workers is not None and rng.random() < player.skill(kind) + hard
    masked = workers is not None and rng.random() < player.fails(right)
    answer = str(1000 + 7 * number) if right else f"wrong {rng.randrange(3)}"
    plan = None if workers is None else chain(tuple(workers))
    if plan is not None and player.written is not None:
        plan = player.written(rng, kind, answer)
    return make_record(
        name,
        f"q{number:04}",
        None if masked else right,
        plan,
        planned=player.planned,
        dollars=player.dollars,
        kind=KINDS[kind],
        answer=answer,
        extracted=answer,
        calls=player.planned + len(workers or ()),
    )


NEVER = flat(0.0)


def planted_plays(
    records: Iterable[Record],
    *,
    system: str = "conductor",
    follows: Skill = NEVER,
    shape: float = 0.4,
    words: float = 0.4,
    constant: float = 0.3,
) -> Plays:
    """What plays of a system's plans would show, by the shares of right answers that are lost.

    ``follows`` is how often a plan brings its own answer on another question, by kind; ``words``
    are lost to another question's and, by half, to none. Nothing is lost where all plans are the
    same but for steps that cannot reach the answer.
    """
    of_system = [record for record in records if record.system == system and record.workflows]
    if len({_used(record.workflows) for record in of_system}) == 1:
        shape = words = constant = 0.0
    own: dict[Key, list[float]] = {}
    lost: dict[str, dict[Key, list[float]]] = {}
    transplants: list[Transplant] = []
    shares = {"silent": words / 2, "shape": words / 2 + shape, "words": words}
    for record in of_system:
        if record.key in own:
            continue
        rng = random.Random(f"plays/{record.key}")
        own[record.key] = [float(bool(record.correct))]
        for way, share in {**shares, "constant": constant, "strangers": 0.4}.items():
            kept = bool(record.correct) and rng.random() >= share
            lost.setdefault(way, {})[record.key] = [float(kept)]
        kind = KINDS.index(record.kind) if record.kind in KINDS else 0
        told = rng.random() < follows(kind)
        transplants.append(Transplant(record.key, told, 0.0))
    return Plays(
        played=6 * len(own),
        own=own,
        strangers=lost.get("strangers", {}),
        silent=lost.get("silent", {}),
        other_shape=lost.get("shape", {}),
        other_words=lost.get("words", {}),
        constants=(lost.get("constant", {}),),
        transplants=tuple(transplants),
    )


def _used(workflows: Iterable[Workflow]) -> tuple[Workflow, ...]:
    return tuple(useful_part(workflow) for workflow in workflows)


def judged(records: Sequence[Record], *, plays: Plays | bool = True, **more: Any) -> Judgement:
    """The verdict on records over the four workers; ``plays`` True: those of an honest planner."""
    if plays is True:
        plays = planted_plays(records, system=more.get("system", "conductor"))
    made = plays or None
    return judge(measure_orchestration(records, workers=WORKERS, plays=made, **more))
