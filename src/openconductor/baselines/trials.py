"""Trials: collaborations that were played, and what came of them. In: workflows with outcomes, or JSON. Out: Trials.

They are what MASRouter learns from. ``explorer`` plays them; whoever grades the answers makes them: ``trial_of`` reads
the collaboration back off the workflow that an episode or a record holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from openconductor.baselines.collaboration import collaboration_named, find_collaboration
from openconductor.baselines.observed import Observations, expect, field
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.types import Question, Workflow

VERSION = 1


@dataclass(frozen=True, slots=True)
class Trial:
    """One collaboration on one question.

    Attributes:
        question: the text that was asked.
        collaboration: its name.
        workers: the names of its workers, one a seat.
        right: the share of right answers in [0, 1].
        cost: what it cost, in whatever unit ``MASRouter`` is to weigh (US dollars a question, say); None is not known.

    Raises:
        ConfigError: there is no such collaboration, it has another number of seats, or a number is out of its range.
    """

    question: str
    collaboration: str
    workers: tuple[str, ...]
    right: float
    cost: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", tuple(self.workers))
        seats = len(collaboration_named(self.collaboration).seats)
        if len(self.workers) != seats:
            raise ConfigError(f"Trial of {self.collaboration}: got {len(self.workers)} workers, expected {seats}")
        if not 0 <= self.right <= 1 or (self.cost is not None and not self.cost >= 0):
            raise ConfigError(f"Trial: got right {self.right} and cost {self.cost}, expected 0 to 1, and from 0")


def trial_of(
    question: Question, text: str, workflow: Workflow, pool: WorkerPool, *, right: float, cost: float | None = None
) -> Trial | None:
    """What a played workflow tells; None where it is no collaboration of ours.

    Args:
        question: as it was asked.
        text: the question as the router will look at it (``observed.text_of``).
        workflow: what was played.
        pool: the workers.
        right: the share of right answers.
        cost: what it cost; None is not known.
    """
    found = find_collaboration(workflow, question)
    if found is None:
        return None
    return Trial(text, found.name, tuple(pool[step.worker].name for step in workflow), right, cost)


def trials_of_workers(observations: Observations) -> list[Trial]:
    """Single workers' outcomes as trials of the mode in which one worker is asked alone, at no known cost."""
    return [
        Trial(question, "io", (worker,), share)
        for question, row in zip(observations.questions, observations.right, strict=True)
        for worker, share in zip(observations.workers, row, strict=True)
        if share is not None
    ]


def trials_to_json(trials: Iterable[Trial]) -> dict[str, object]:
    """Trials as plain values."""
    return {"version": VERSION, "trials": [asdict(trial) for trial in trials]}


def trials_from_json(data: Mapping[str, Any]) -> list[Trial]:
    """The trials of ``trials_to_json``'s values.

    Raises:
        ConfigError: they are none.
    """
    expect(data, "trials", VERSION)
    rows: object = field(data, "trials", "trials")
    if not isinstance(rows, Sequence):
        raise ConfigError(f"trials: got {type(rows).__name__}, expected a list")
    return [_trial(row) for row in data["trials"]]


def _trial(row: Mapping[str, Any]) -> Trial:
    try:
        return Trial(**row)
    except TypeError as error:
        raise ConfigError(f"trial: {error}; got {str(row)[:200]}") from error
