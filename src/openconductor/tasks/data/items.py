"""Tasks: problems, the facts beside them, their grader, and their origin.

``Benchmark`` is the base of every task. ``Source`` is what a run writes down, so that the same
problems can be had again.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, cast

from openconductor.errors import ConfigError, TaskError
from openconductor.protocols import Grader
from openconductor.store.serialisation import plain
from openconductor.types import Problem

if TYPE_CHECKING:
    from openconductor.pool import WorkerPool
    from openconductor.tasks.data.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Item:
    """A problem, and the facts that its row adds.

    Attributes:
        problem: for the worker and the grader.
        canonical: a whole reply that is right, in the form that the prompt asks for; None: the data
            have none.
        subject: the kind of problem, as the data name it; "": they do not.
        difficulty: from 0 (easiest) to 1 (hardest), as the data say; None: they do not.
        tags: known faults of the problem, such as ``multiple-solutions``.
    """

    problem: Problem
    canonical: str | None = None
    subject: str = ""
    difficulty: float | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file: its name in the data set or its path; its SHA-256 and number of rows, if known."""

    name: str
    sha256: str | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that holds no problem that can be graded."""

    id: str
    why: str


LOCAL_FILE = "local file"
"""The data set of a source that is a file of this machine."""


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of problems.

    Attributes:
        dataset: its name on the hub, ``local file``, ``drawn`` or ``mix``.
        split: the part of it.
        revision: the commit that was loaded; None: it has none.
        pinned: True if the same bytes are loaded next time: by a full commit hash, or an expected
            SHA-256.
        licence: of the data, as their publishers name it.
        sha256: of one file, its own; of several, that of their hex digests, a line each; None: no
            file was read.
        files: the files that were read.
        rows, problems: the numbers of rows read, and of problems made of them.
        fields: the fields of the first row.
        left_out: rows without a problem that can be graded, each with the reason.
        notes: facts for a reader of the run.
        parts: the sources of a mix.
    """

    dataset: str
    split: str
    revision: str | None = None
    pinned: bool = False
    licence: str = "unknown"
    sha256: str | None = None
    files: tuple[DataFile, ...] = ()
    rows: int = 0
    problems: int = 0
    fields: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    parts: tuple[Source, ...] = ()

    def record(self) -> dict[str, object]:
        """Return plain values for a run's record."""
        return cast("dict[str, object]", plain(self))


@dataclass(frozen=True, slots=True)
class Loaded:
    """One split of a task."""

    items: tuple[Item, ...]
    source: Source


class Benchmark(ABC):
    """A Task that knows the origin of its problems and right replies. Each split is read once.

    Args:
        name: the name in the registry of tasks.
        about: a description of one line.
        splits: the splits that can be loaded.
        grader: the judge of its answers.
        split: the one loaded by default; None: the first.
        limit: the option of that name, at least 1.
        dataset: the published data set; None: problems are drawn or mixed.
        local: True if the rows are local, so that there may be other splits.

    Raises:
        ConfigError: the limit is too low, or the split is unknown.
    """

    def __init__(
        self,
        name: str,
        about: str,
        splits: Iterable[str],
        grader: Grader,
        *,
        split: str | None = None,
        limit: int | None = None,
        dataset: Dataset | None = None,
        local: bool = False,
    ) -> None:
        self.name = name
        self.about = about
        self.grader = grader
        self.dataset = dataset
        self.splits = tuple(splits)
        self._local = local
        self._loaded: dict[str, Loaded] = {}
        if limit is not None and limit < 1:
            raise ConfigError(f"task option limit: got {limit}, expected 1 or more")
        if split:
            if not self._has_split(split):
                raise ConfigError(self._unknown_split(split))
            self.splits = tuple(dict.fromkeys((split, *self.splits)))

    @property
    def hub_names(self) -> tuple[str, ...]:
        """The data sets that are fetched from the hub for it; (): its problems are local."""
        return () if self._local or self.dataset is None else (self.dataset.id,)

    def published_rows(self, split: str | None = None) -> int | None:
        """Return the number of rows of a split of the hub; None: unknown, or it is local."""
        if self._local or self.dataset is None:
            return None
        files = self.dataset.splits.get(split or self.splits[0], ())
        return sum(file.rows or 0 for file in files) or None

    @property
    def answer_forms(self) -> Sequence[str]:
        """Its own texts that ask for a form of the answer (``Dataset.answer_forms``)."""
        return () if self.dataset is None else self.dataset.answer_forms

    @property
    def source(self) -> Source:
        """The origin of the default split, which is loaded for it."""
        return self.read().source

    def load(self, split: str = "") -> Sequence[Problem]:
        """Return the problems of one split, in order; "" is the default one.

        Raises:
            TaskError: the data are absent or changed, their shape or the split is unknown.
            ConfigError: the extra is not installed.
        """
        return tuple(item.problem for item in self.read(split).items)

    def read(self, split: str = "") -> Loaded:
        """Return the problems of one split with all facts about them; for errors see ``load``."""
        split = split or self.splits[0]
        if split not in self._loaded:
            self.check_split(split)
            self._loaded[split] = self._read(split)
        return self._loaded[split]

    @property
    def recorded(self) -> Sequence[str]:
        """The names of the workers whose answers the task holds."""
        return ()

    def draw_subtasks(self, problem: Problem, rng: random.Random) -> Sequence[str]:
        """Return an instruction for each part of a problem, in order, for random plans.

        (): the task knows no parts.
        """
        del problem, rng
        return ()

    def with_records(self, pool: WorkerPool) -> WorkerPool:
        """Return the pool; a task with recorded answers lets the workers answer from them."""
        return pool

    def check_split(self, split: str) -> None:
        """Check the name of a split, without reading it.

        Raises:
            TaskError: there is none of this name.
        """
        if not self._has_split(split):
            message = self._unknown_split(split)
            if self.dataset:
                message += "; other splits need local files: path=FOLDER"
            raise TaskError(message)

    def _has_split(self, split: str) -> bool:
        return self._local or split in self.splits

    def _unknown_split(self, split: str) -> str:
        expected = ", ".join(self.splits)
        return f"task {self.name}: got the split {split!r}, expected one of {expected}"

    @abstractmethod
    def _read(self, split: str) -> Loaded: ...


def draw_key(seed: int, name: str) -> bytes:
    """Return the key that a seeded draw sorts by; it depends on the seed and the name alone."""
    return blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
