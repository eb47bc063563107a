"""``openconductor gym measure``: print how near a Conductor comes to the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Annotated

import typer

from openconductor.cli import console
from openconductor.cli.console import percent
from openconductor.cli.options import AsJson
from openconductor.conductor import Conductor
from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import find_planner
from openconductor.gym.exact import Offered
from openconductor.gym.measure import Nearness, Recursion, draw_subset, nearness, recursion
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import DRAWN, World, gym_pool, profiles_of, world_of
from openconductor.pool import WorkerPool


def measure(
    conductor: Annotated[
        str | None, typer.Option("--conductor", help="The Conductor (default: the bundled one).")
    ] = None,
    pool: Annotated[
        str,
        typer.Option("--pool", help="gym, another world (gym:7), or drawn workers (gym:drawn)."),
    ] = "gym",
    questions: Annotated[
        int, typer.Option("--questions", min=1, help="Held-out questions over each pool.")
    ] = 200,
    subsets: Annotated[
        int, typer.Option("--subsets", min=0, help="How many subsets, or other drawn pools.")
    ] = 20,
    depth: Annotated[
        int, typer.Option("--depth", min=0, help="Also measure this many further rounds.")
    ] = 0,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="The seed of the questions and the subsets.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Say how near a Conductor comes to the oracle."""
    world = world_of(pool)
    if world is None:
        raise ConfigError(
            f"--pool: got {pool!r}, expected gym, gym:NUMBER or gym:drawn, whose oracle is known"
        )
    planner = find_planner(conductor, gym_pool(seed))
    pools: list[Nearness] = []
    rounds: list[Recursion] = []
    with console.progress_bar("measuring", quiet=True) as advance:
        for number, (workers, profiles) in enumerate(_offers(world, subsets, seed)):
            asked = Conductor(planner, pool=workers)
            drawn = draw_questions("test", questions, seed=seed, start=number * questions)
            pools.append(nearness(asked, drawn, profiles))
            if depth and number == 0:
                rounds = recursion(asked, drawn, profiles, depth)
            advance(len(pools), subsets + 1)
    if as_json:
        measured = [{**asdict(near), "share": near.share} for near in pools]
        recursions = [asdict(further) for further in rounds]
        console.show_json({"pools": measured, "recursion": recursions})
        return
    _show_pools(pools, "other pools" if world == DRAWN else "subsets")
    if rounds:
        _show_rounds(rounds)


def _offers(world: World, subsets: int, seed: int) -> Iterator[tuple[WorkerPool, Offered]]:
    """Yield the whole pool, then its subsets, or other pools if the world draws its workers.

    Each comes with the profiles of its workers.
    """
    for number in range(subsets + 1):
        drawn = world == DRAWN
        one_world = f"measured/{seed}/{number}" if drawn else world
        workers = gym_pool(seed, one_world)
        if number and not drawn:
            workers = workers.subset(draw_subset(workers.ordinals, number - 1, seed))
        profiles = profiles_of(one_world)
        yield workers, {ordinal: profiles[ordinal] for ordinal in workers.ordinals}


def _show_pools(pools: Sequence[Nearness], name: str) -> None:
    rows: list[list[str]] = []
    for near in pools:
        workers = " ".join(str(ordinal) for ordinal in near.offered)
        shares = (near.validity, near.accuracy, near.oracle, near.share)
        rows.append([workers, *(percent(share) for share in shares)])
    console.show_table(("workers", "valid", "expected", "oracle", "of the oracle"), rows)
    others = pools[1:]
    if others:
        shares = [near.share for near in others]
        validity = fmean(near.validity for near in others)
        console.show(
            f"{len(others)} {name}: of the oracle {min(shares):.1%} at worst, "
            f"{fmean(shares):.1%} in the mean; {validity:.2%} valid."
        )


def _show_rounds(rounds: Sequence[Recursion]) -> None:
    rows: list[list[str]] = []
    for further in rounds:
        shares = (
            further.accuracy,
            further.fixed,
            further.ceiling,
            further.broken,
            further.accepted,
        )
        calls = "–" if further.calls is None else f"{further.calls:.2f}"
        rows.append([str(further.depth), *(percent(share) for share in shares), calls])
    head = (
        "further rounds",
        "right",
        "wrong ones fixed",
        "by the oracle",
        "right ones broken",
        "accepted",
        "calls",
    )
    console.show_table(head, rows)
