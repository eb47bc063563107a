"""``openconductor gym measure``: print how near a Conductor comes to the oracle, over all workers and over some."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean
from typing import Annotated

import typer

from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.conductor import Conductor
from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import find_planner
from openconductor.gym.measure import Nearness, Recursion, draw_subset, nearness, recursion
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import DRAWN, gym_pool, profiles_of, world_of


def measure(
    conductor: Annotated[
        str | None, typer.Option("--conductor", help="Which Conductor; else the bundled one.")
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
        int, typer.Option("--seed", min=0, help="Draws the questions and the subsets.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Say how near a Conductor comes to the oracle."""
    if (world := world_of(pool)) is None:
        raise ConfigError(
            f"--pool: got {pool!r}, expected gym, gym:NUMBER or gym:drawn: there the oracle is known"
        )
    found: list[Nearness] = []
    deeper: list[Recursion] = []
    planner = find_planner(conductor, gym_pool(seed))
    for number in range(subsets + 1):
        each = f"measured/{seed}/{number}" if world == DRAWN else world
        workers, profiles = gym_pool(seed, each), profiles_of(each)
        if number and world != DRAWN:
            workers = workers.subset(draw_subset(workers.ordinals, number - 1, seed))
        offered = {ordinal: profiles[ordinal] for ordinal in workers.ordinals}
        asked = Conductor(planner, pool=workers)
        drawn = draw_questions("test", questions, seed=seed, start=number * questions)
        found.append(nearness(asked, drawn, offered))
        if depth and not number:
            deeper = recursion(asked, drawn, offered, depth)
    if as_json:
        pools = [{**asdict(one), "share": one.share} for one in found]
        console.show_json({"pools": pools, "recursion": [asdict(one) for one in deeper]})
        return
    rows: list[list[str]] = []
    for one in found:
        shares = (one.validity, one.accuracy, one.oracle, one.share)
        rows.append([" ".join(map(str, one.offered)), *map(console.percent, shares)])
    console.show_table(("workers", "valid", "expected", "oracle", "of the oracle"), rows)
    if part := found[1:]:
        console.show(
            f"{len(part)} {'other pools' if world == DRAWN else 'subsets'}: "
            f"of the oracle {min(one.share for one in part):.1%} at worst, "
            f"{fmean(one.share for one in part):.1%} in the mean; {fmean(one.validity for one in part):.2%} valid."
        )
    if deeper:
        columns = (
            "further rounds",
            "right",
            "wrong ones fixed",
            "by the oracle",
            "right ones broken",
            "accepted",
            "calls",
        )
        shown = [
            [
                str(one.depth),
                *map(
                    console.percent,
                    (one.accuracy, one.fixed, one.ceiling, one.broken, one.accepted),
                ),
                "–" if one.calls is None else f"{one.calls:.2f}",
            ]
            for one in deeper
        ]
        console.show_table(columns, shown)
