"""``openconductor gym measure``: how near a Conductor comes to the oracle, exactly, over all workers and over some.

In: a Conductor and a world of the gym. Out: for the whole pool, and for subsets drawn by a seed, how many workflows are
valid, the chance that they answer (``expected_accuracy``: nothing is luck), and the same of the best workflows.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import typer

from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.conductor import Conductor
from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import find_planner
from openconductor.gym.exact import Offered, expected_accuracy, oracle_workflow
from openconductor.gym.questions import GymQuestion, draw_questions
from openconductor.gym.workers import gym_pool, profiles_of, world_of
from openconductor.types import Episode

FEWEST = 4
"""Workers of a subset, at least."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near a Conductor comes to the oracle over a pool: shares in [0, 1], means over the questions.

    Attributes:
        offered: the ordinals on offer.
        validity: the share of its completions that are workflows.
        accuracy: the chance that its workflows answer.
        oracle: the chance that the best workflows do.
    """

    offered: tuple[int, ...]
    validity: float
    accuracy: float
    oracle: float

    @property
    def share(self) -> float:
        """The share of the oracle."""
        return self.accuracy / self.oracle


def measure(
    conductor: Annotated[str | None, typer.Option("--conductor", help="Which Conductor; else the bundled one.")] = None,
    pool: Annotated[str, typer.Option("--pool", help="gym, or its workers in another world (gym:7).")] = "gym",
    questions: Annotated[int, typer.Option("--questions", min=1, help="Held-out questions over each pool.")] = 200,
    subsets: Annotated[int, typer.Option("--subsets", min=0, help="How many subsets of the workers.")] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws the questions and the subsets.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Say how near a Conductor comes to the oracle."""
    if (world := world_of(pool)) is None:
        raise ConfigError(f"--pool: got {pool!r}, expected gym or gym:NUMBER: only there the oracle is known")
    offered = dict(enumerate(profiles_of(world)))
    workers = gym_pool(seed, world)
    asked = Conductor(find_planner(conductor, workers), pool=workers)
    found = [nearness(asked, draw_questions("test", questions, seed=seed), offered)]
    for number in range(subsets):
        chosen = draw_subset(list(offered), number, seed)
        drawn = draw_questions("test", questions, seed=seed, start=(number + 1) * questions)
        found.append(nearness(asked, drawn, {ordinal: offered[ordinal] for ordinal in chosen}))
    if as_json:
        console.show_json([{**_plain(one), "share": one.share} for one in found])
        return
    rows: list[list[str]] = []
    for one in found:
        shares = (one.validity, one.accuracy, one.oracle, one.share)
        rows.append([" ".join(map(str, one.offered)), *(f"{share:.1%}" for share in shares)])
    console.show_table(("workers", "valid", "expected", "oracle", "of the oracle"), rows)
    if part := found[1:]:
        console.show(
            f"{len(part)} subsets: of the oracle {min(one.share for one in part):.1%} at worst, "
            f"{fmean(one.share for one in part):.1%} in the mean; {fmean(one.validity for one in part):.2%} valid."
        )


def draw_subset(ordinals: Sequence[int], number: int, seed: int) -> tuple[int, ...]:
    """The subset of this number: at least ``FEWEST`` of the ordinals and not all, each size alike often."""
    rng = random.Random(f"subset/{seed}/{number}")
    return tuple(sorted(rng.sample(ordinals, rng.randint(FEWEST, len(ordinals) - 1))))


def nearness(conductor: Conductor, questions: Sequence[GymQuestion], offered: Offered) -> Nearness:
    """Measure a Conductor of the gym over some of its workers, on one round."""
    pool = conductor.pool.subset(list(offered))
    asked = Conductor(conductor.planner, pool=pool, prompt=conductor.prompt, sampling=conductor.sampling)

    async def play() -> list[Episode]:
        return await asyncio.gather(*(asked.ask(question.text) for question in questions))

    episodes = asyncio.run(play())
    if failed := next((one.error for one in episodes if one.rounds[0].completion is None and one.error), None):
        raise failed  # a Conductor that could not be reached says nothing about its workflows
    workflows = [episode.rounds[0].workflow for episode in episodes]
    chances = [
        0.0 if workflow is None else expected_accuracy(question, workflow, offered)
        for question, workflow in zip(questions, workflows, strict=True)
    ]
    return Nearness(
        tuple(offered),
        fmean(workflow is not None for workflow in workflows),
        fmean(chances),
        fmean(oracle_workflow(question, offered)[1] for question in questions),
    )


def _plain(one: Nearness) -> dict[str, object]:
    return {"offered": one.offered, "validity": one.validity, "accuracy": one.accuracy, "oracle": one.oracle}
