"""What a task holds beside its problems: right replies, subjects, difficulties, and where all of it came from.

In: nothing. Out: frozen values. ``Source`` is what a run writes down, so that the same problems can be had again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from openconductor.errors import TaskError
from openconductor.protocols import Grader
from openconductor.tasks.hub import HubDataset
from openconductor.types import Problem


@dataclass(frozen=True, slots=True)
class Item:
    """A problem, and what its row says beside it.

    Attributes:
        problem: what a worker and the grader see.
        canonical: a whole reply that is right, in the form that the prompt asks for; None where the data have none.
        subject: the kind of problem, as the data name it; "" where they do not.
        difficulty: from 0 (easiest) to 1 (hardest), as the data say; None where they say nothing.
        tags: what is known to be wrong with the problem, such as ``multiple-solutions``.
    """

    problem: Problem
    canonical: str | None = None
    subject: str = ""
    difficulty: float | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was read: its name in the data set (or its path), the SHA-256 of its bytes, and its rows."""

    name: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class Source:
    """Where problems came from.

    Attributes:
        dataset: its name on the hub, ``local file``, ``drawn`` or ``mix``.
        split: which part of it.
        revision: the commit that was loaded; None for what has none.
        pinned: whether the same bytes are loaded next time: by a full commit hash, or an expected SHA-256.
        licence: of the data, as their publishers name it.
        files: what was read.
        rows: how many rows were read.
        problems: how many problems were made of them.
        fields: the fields of the first row.
        left_out: rows that hold no problem that can be graded, each with the reason.
        notes: what a reader of the run should know.
        parts: the sources of a mix.
    """

    dataset: str
    split: str
    revision: str | None = None
    pinned: bool = False
    licence: str = "unknown"
    files: tuple[SourceFile, ...] = ()
    rows: int = 0
    problems: int = 0
    fields: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    parts: tuple[Source, ...] = ()

    @property
    def sha256(self) -> str | None:
        """Of one file, its own; of several, that of their hex digests, a line each; None where no file was read."""
        return digest([file.sha256 for file in self.files])

    def record(self) -> dict[str, object]:
        """For a run's record: plain values that JSON can hold."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "revision": self.revision,
            "pinned": self.pinned,
            "licence": self.licence,
            "sha256": self.sha256,
            "files": [{"name": file.name, "sha256": file.sha256, "rows": file.rows} for file in self.files],
            "rows": self.rows,
            "problems": self.problems,
            "fields": list(self.fields),
            "left_out": [{"id": name, "why": why} for name, why in self.left_out],
            "notes": list(self.notes),
            "parts": [part.record() for part in self.parts],
        }


@dataclass(frozen=True, slots=True)
class Loaded:
    """One split of a task."""

    items: tuple[Item, ...]
    source: Source

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems, in order."""
        return tuple(item.problem for item in self.items)


class Benchmark(Protocol):
    """A Task that also says where its problems are from and what a right reply looks like.

    Learning and evaluating need a ``Task`` only; a run's record, ``task show`` and ``task check`` need this.
    """

    @property
    def name(self) -> str:
        """The name in the registry of tasks."""
        ...

    @property
    def about(self) -> str:
        """What it is, in a line."""
        ...

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that can be loaded, the one loaded by default first."""
        ...

    @property
    def dataset(self) -> HubDataset | None:
        """Where its rows are published; None where problems are drawn or mixed."""
        ...

    @property
    def grader(self) -> Grader:
        """The judge of this task's answers."""
        ...

    @property
    def source(self) -> Source:
        """Where the default split came from; loads it where it has not been loaded."""
        ...

    def load(self, split: str = "") -> Sequence[Problem]:
        """The problems of one split; "" is the default one.

        Raises:
            TaskError: the data are absent or changed.
        """
        ...

    def read(self, split: str = "") -> Loaded:
        """The problems with all that is known about them.

        Raises:
            TaskError: the data are absent or changed.
        """
        ...

    def canonical(self, problem: Problem) -> str | None:
        """A right reply to one of its problems; None where the data hold none.

        Raises:
            TaskError: it is none of the problems of a split that was loaded.
        """
        ...


def digest(digests: Sequence[str]) -> str | None:
    """One digest for several; see ``Source.sha256``."""
    if len(digests) < 2:
        return digests[0] if digests else None
    return hashlib.sha256("".join(f"{one}\n" for one in digests).encode()).hexdigest()


def canonical_among(loaded: Sequence[Loaded], problem: Problem, task: str) -> str | None:
    """The canonical reply to a problem, looked up by its id; of the error see ``Benchmark.canonical``."""
    for one in loaded:
        for item in one.items:
            if item.problem.id == problem.id:
                return item.canonical
    raise TaskError(f"task {task}: got the problem {problem.id!r}, expected one of a split that was loaded")
