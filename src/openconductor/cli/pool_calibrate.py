"""``openconductor pool calibrate``: what each worker is good at, measured, as a card in the pool file.

In: a pool file and a sample of a task. Out: every worker asked alone, in a folder that it can be
resumed from, and in the pool file each worker's ``description``: the kinds of question that it gets
right most often, what an answer costs and how long it takes. All else in the file stays as it is. A
Conductor reads it where ``prompt.cards`` is on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import tomlkit
import typer

from openconductor.cli import console
from openconductor.cli.options import (
    AsJson,
    AtOnce,
    Calls,
    Dollars,
    Limit,
    Out,
    Seed,
    TaskName,
    TaskPath,
)
from openconductor.cli.pool_headroom import ask_workers
from openconductor.evaluation.headroom import FEWEST_OF_KIND, alone, card_of
from openconductor.store.storage import write_whole


def calibrate(
    pool: Annotated[
        Path, typer.Argument(help="The pool file (TOML), which is changed.", show_default=False)
    ],
    task: TaskName,
    task_path: TaskPath = None,
    limit: Limit = 100,
    seed: Seed = 0,
    concurrency: AtOnce = 32,
    dollars: Dollars = None,
    calls: Calls = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Measure what each worker is good at, and write it on its card.

    A card tells apart what the task tells apart, its kinds of question or its parts, where there
    are enough answers. It replaces the worker's description. Exits with 1 where the budget was
    spent first, or too little could be decided:
    the file is then left as it is, and the same command goes on from what was asked.
    """
    asked, budget = (
        {"name": task, "limit": limit, "path": task_path},
        {"dollars": dollars, "calls": calls},
    )
    recipe = {"task": [asked], "seed": seed, "concurrency": concurrency, "budget": budget}
    folder, results, spent = ask_workers("calibrate", pool, recipe, out)
    if spent is not None:
        raise spent
    cards = {
        name: card for name, of_one in alone(results.records).items() if (card := card_of(of_one))
    }
    if not cards:
        console.fail(
            f"no worker has {FEWEST_OF_KIND} decided answers: no card was written",
            hint="Raise --limit.",
        )
    document = tomlkit.parse(pool.read_text(encoding="utf-8"))
    for table in cast("list[dict[str, object]]", document["worker"]):
        if card := cards.get(str(table["name"])):
            table["description"] = card
    write_whole(pool.resolve(), tomlkit.dumps(document))  # pyright: ignore[reportUnknownMemberType]
    if as_json:
        console.show_json({"pool": str(pool), "cards": cards, "folder": str(folder)})
    else:
        console.show_table(("worker", "card"), list(cards.items()), words=(0, 1))
