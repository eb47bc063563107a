"""The plans of a training, read back from its journal.

In: a journal's file. Out: every valid workflow in the order in which the episodes began, with the tenth of the training
that it belongs to. A journal does not say which iteration an episode was of, and a resumed training repeats some: so
tenths of all episodes it is, and nothing finer.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

from openconductor.errors import JournalError
from openconductor.evaluation.patterns import Planned
from openconductor.journal.schema import explanation, open_for_reading
from openconductor.journal.text import loads, unpacked
from openconductor.types import Step, Workflow

PLACES = 10
_ROUNDS = """SELECT episodes.number AS number, rounds.workers, rounds.access, rounds.subtasks FROM rounds
    JOIN episodes ON episodes.number = rounds.episode
    WHERE rounds.valid AND NOT rounds.accepted AND rounds.subtasks IS NOT NULL AND coalesce(episodes.above, '') = ''
    ORDER BY episodes.number, rounds.round"""


def journaled_plans(path: Path, *, places: int = PLACES) -> Iterator[Planned]:
    """Every valid workflow of a journal; whether it was right is not known there.

    Raises:
        JournalError: the file cannot be read, or is no journal.
    """
    with closing(open_for_reading(path)) as connection:
        try:
            (last,) = connection.execute("SELECT max(number) FROM episodes").fetchone()
            for row in connection.execute(_ROUNDS):
                place = (row["number"] - 1) * places // max(1, last)
                yield Planned(_workflow(row), min(places - 1, place))
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise JournalError(f"journal {path}: its rounds cannot be read: {explanation(error)}") from error


def _workflow(row: sqlite3.Row) -> Workflow:
    workers, access = json.loads(row["workers"]), json.loads(row["access"])
    subtasks = loads(unpacked(row["subtasks"]))
    if not isinstance(subtasks, list):
        raise ValueError(f"subtasks: got {type(subtasks).__name__}, expected a list")
    return Workflow(tuple(Step(*step) for step in zip(workers, cast("list[str]", subtasks), access, strict=True)))
