"""The plans of a training, read back from its journal.

In: a journal's file. Out: every valid workflow in the order in which the episodes began, with the tenth of the training
that it belongs to. A journal does not say which iteration an episode was of, and a resumed training repeats some: so
tenths of all episodes it is, and nothing finer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from openconductor.evaluation.patterns import Planned
from openconductor.journal import Journal

PLACES = 10


def journaled_plans(path: Path, *, places: int = PLACES) -> Iterator[Planned]:
    """Every valid workflow of a journal; whether it was right is not known there.

    Raises:
        JournalError: the file cannot be read, or is no journal.
    """
    with Journal.reading(path) as journal:
        for number, last, workflow in journal.workflows():
            yield Planned(workflow, (number - 1) * places // last)
