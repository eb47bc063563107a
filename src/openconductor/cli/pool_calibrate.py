"""``openconductor pool calibrate``: what each worker is good at, measured, as a card in the pool file.

In: a pool file and a sample of a task. Out: every worker asked alone, in a folder that it can be
resumed from, and in the pool file each worker's ``description``: the kinds of question that it gets
right most often, what an answer costs and how long it takes. All else in the file stays as it is. A
Conductor reads it where ``prompt.cards`` is on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from statistics import fmean, median
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
from openconductor.evaluation.headroom import alone
from openconductor.evaluation.records import Record
from openconductor.pool import write_card
from openconductor.store.storage import write_whole

FEWEST = 20
"""Answers of a kind of question, below which a card does not speak of it: the best of many rare kinds are luck."""


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
            f"no worker has {FEWEST} decided answers: no card was written", hint="Raise --limit."
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


def card_of(records: Sequence[Record]) -> str:
    """What a worker's records say of it, over the whole task where all kinds are rare; "" where there are too few."""
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        if record.correct is not None:
            by_kind[record.kind or record.task].append(record.correct)
    kinds = {kind: right for kind, right in by_kind.items() if len(right) >= FEWEST}
    kinds = kinds or {records[0].task: [right for each in by_kind.values() for right in each]}
    if min(map(len, kinds.values())) < FEWEST:
        return ""
    priced = not any(record.usage.unpriced_calls for record in records)
    dollars = f"${_short(fmean(record.usage.dollars for record in records))} and " if priced else ""
    seconds = _short(median(record.usage.seconds for record in records))
    return f"{write_card({kind: fmean(right) for kind, right in kinds.items()})}; {dollars}{seconds} s an answer"


def _short(number: float | Decimal) -> str:
    """A number in two digits, without an exponent."""
    return f"{Decimal(f'{number:.2g}'):f}"
