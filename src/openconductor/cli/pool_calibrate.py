"""``openconductor pool calibrate``: measure each worker and write its card into the pool file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, cast

import tomlkit
import typer

from openconductor.cli import console
from openconductor.cli.options import AsJson, Dollars, Out, Seed
from openconductor.cli.pool_headroom import AtOnce, Calls, Limit, TaskName, TaskPath
from openconductor.cli.runs import ask_workers
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

    A card distinguishes the task's kinds of question, or its parts, that have enough answers. It
    replaces the worker's description. Exit code 1: the budget was spent first, or too few answers
    could be decided. The file is then left as it is, and the same command resumes.
    """
    run = ask_workers(
        "calibrate",
        pool,
        out,
        task={"name": task, "limit": limit, "path": task_path},
        seed=seed,
        concurrency=concurrency,
        budget={"dollars": dollars, "calls": calls},
    )
    if run.error is not None:
        raise run.error
    cards: dict[str, str] = {}
    for name, records in alone(run.results.records).items():
        card = card_of(records)
        if card:
            cards[name] = card
    if not cards:
        message = f"no worker has {FEWEST_OF_KIND} decided answers: no card was written"
        console.fail(message, hint="Raise --limit.")
    _write_cards(pool, cards)
    if as_json:
        console.show_json({"pool": str(pool), "cards": cards, "folder": str(run.folder)})
    else:
        console.show_table(("worker", "card"), list(cards.items()), words=(0, 1))


def _write_cards(pool: Path, cards: Mapping[str, str]) -> None:
    """Write cards into a pool file, as the workers' descriptions; all else stays as it is."""
    document = tomlkit.parse(pool.read_text(encoding="utf-8"))
    for table in cast("list[dict[str, object]]", document["worker"]):
        card = cards.get(str(table["name"]))
        if card:
            table["description"] = card
    write_whole(pool.resolve(), tomlkit.dumps(document))  # pyright: ignore[reportUnknownMemberType]
