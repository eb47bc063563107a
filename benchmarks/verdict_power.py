"""Planners of known gain beside rivals of known skill, for the power of the verdict."""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.verdict_world import KINDS, SOLVE_SUBTASK, Item, Planner, World

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Key
from openconductor.report import judge, measure_orchestration
from openconductor.report.plays.transplants import Plays, Transplant
from openconductor.types import Step, Workflow

GAINS = (0.0, 0.025, 0.05, 0.10)
QUESTIONS = (200, 1000, 3000)
RIVALS = (2, 10)
APART = 0.16  # the share of questions on which the planner and a rival differ
LEVEL = 0.65


def judge_known(gain: float, questions: int, rivals: int, seed: int) -> str:
    """Return the label of a planner that is better than each of some equal rivals by a gain.

    Two rivals are the best worker and the best fixed workflow; the others are further systems at
    the same cost. Plays show that each question needs its own plan, and that workers answer.
    """

    def plan(_world: World, item: Item) -> list[Workflow]:
        return [Workflow([Step(KINDS.index(item.kind), SOLVE_SUBTASK)])]

    world = World(Planner(plan), seed, {"sums": questions})
    rng = random.Random(f"power/{gain}/{questions}/{rivals}/{seed}")
    records: list[Record] = []
    own: dict[Key, list[float]] = {}
    others = ["worker:anna", "best_fixed", *(f"moa:{number}" for number in range(rivals - 2))]
    weak = [f"worker:{name}" for name in world.planner.workers[1:]]
    for item in world.items:
        (workflow,) = plan(world, item)
        ours = rng.random() < LEVEL + gain
        own[item.key] = [float(ours)]
        record = world.record("conductor", item, "right", (workflow,), planned=True)
        records.append(replace(record, correct=ours))
        lost = (APART + gain) / 2 / (LEVEL + gain)
        won = (APART - gain) / 2 / (1 - LEVEL - gain)
        for name in others:
            flips = rng.random() < (lost if ours else won)
            one = world.record(name, item, "right", workers=(0,))
            records.append(replace(one, correct=ours != flips))
        for name in weak:
            one = world.record(name, item, "right", workers=(0,))
            records.append(replace(one, correct=rng.random() < LEVEL - 0.15))
    figures = measure_orchestration(
        records, workers=dict(enumerate(world.planner.workers)), plays=_plays(own, rng), seed=seed
    )
    return judge(figures).label


def _plays(own: dict[Key, list[float]], rng: random.Random) -> Plays:
    """Return plays in which every other way loses three in ten right answers."""

    def losing() -> dict[Key, list[float]]:
        return {key: [score * (rng.random() >= 0.3)] for key, (score,) in own.items()}

    silent = losing()
    shape = {key: [score * (rng.random() >= 0.3)] for key, (score,) in silent.items()}
    return Plays(
        played=6 * len(own),
        own=own,
        strangers=losing(),
        silent=silent,
        other_shape=shape,
        other_words=losing(),
        constants=(losing(),),
        transplants=tuple(Transplant(key, follows=False, chance=0.0) for key in own),
    )
