"""What a task is: problems, what is known beside them, who judges, and where all of it came from.

In: nothing. Out: frozen values, and what every task offers. ``Source`` is what a run writes down,
so that the same problems can be had again.
"""

from __future__ import annotations

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
    from openconductor.tasks.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Item:
    """A problem, and what its row says beside it.

    Attributes:
        problem: what a worker and the grader see.
        canonical: a whole reply that is right, in the form that the prompt asks for; None where the
            data have none.
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
class DataFile:
    """A file: its name in the data set (or its path), the SHA-256 of its bytes and its rows, where they are known."""

    name: str
    sha256: str | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that holds no problem that can be graded."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where problems came from.

    Attributes:
        dataset: its name on the hub, ``local file``, ``drawn`` or ``mix``.
        split: which part of it.
        revision: the commit that was loaded; None for what has none.
        pinned: whether the same bytes are loaded next time: by a full commit hash, or an expected
            SHA-256.
        licence: of the data, as their publishers name it.
        sha256: of one file, its own; of several, that of their hex digests, a line each; None where
            none was read.
        files: what was read.
        rows, problems: how many rows were read, and how many problems were made of them.
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
    sha256: str | None = None
    files: tuple[DataFile, ...] = ()
    rows: int = 0
    problems: int = 0
    fields: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    parts: tuple[Source, ...] = ()

    def record(self) -> dict[str, object]:
        """For a run's record: plain values that JSON can hold."""
        return cast("dict[str, object]", plain(self))


@dataclass(frozen=True, slots=True)
class Loaded:
    """One split of a task."""

    items: tuple[Item, ...]
    source: Source


class Benchmark(ABC):
    """A Task that also says where its problems are from and what a right reply looks like. Each split is read once.

    Args:
        name: the name in the registry of tasks.
        about: what it is, in a line.
        splits: the splits that can be loaded.
        grader: the judge of its answers.
        split: the one loaded by default; None is the first.
        limit: the option of that name, and the ``least`` that it may be.
        dataset: where its rows are published; None where problems are drawn or mixed.
        local: whether the rows are local, so that there may be other splits.

    Raises:
        ConfigError: the limit is too low, or there is no such split.
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
        least: int = 1,
        dataset: Dataset | None = None,
        local: bool = False,
    ) -> None:
        self.name, self.about, self.grader, self.dataset = name, about, grader, dataset
        self.splits = tuple(splits)
        self._local = local
        self._loaded: dict[str, Loaded] = {}
        if limit is not None and limit < least:
            raise ConfigError(f"task option limit: got {limit}, expected {least} or more")
        if split:
            if wrong := self._wrong_split(split):
                raise ConfigError(wrong)
            self.splits = tuple(dict.fromkeys((split, *self.splits)))

    @property
    def source(self) -> Source:
        """Where the default split came from; loads it where it has not been loaded."""
        return self.read().source

    def load(self, split: str = "") -> Sequence[Problem]:
        """The problems of one split, in order; "" is the default one.

        Raises:
            TaskError: the data are absent, are not of any known shape, or are not what they were;
                or there is no such split.
            ConfigError: the extra is not installed.
        """
        return tuple(item.problem for item in self.read(split).items)

    def read(self, split: str = "") -> Loaded:
        """The problems with all that is known about them; of errors see ``load``."""
        split = split or self.splits[0]
        if split not in self._loaded:
            if wrong := self._wrong_split(split):
                raise TaskError(
                    wrong + ("; other splits need local files: path=FOLDER" if self.dataset else "")
                )
            self._loaded[split] = self._read(split)
        return self._loaded[split]

    def _wrong_split(self, split: str) -> str:
        known = self._local or split in self.splits
        return (
            ""
            if known
            else f"task {self.name}: got the split {split!r}, expected one of {', '.join(self.splits)}"
        )

    @abstractmethod
    def _read(self, split: str) -> Loaded: ...


def draw_key(seed: int, name: str) -> bytes:
    """What a seeded draw sorts by: it depends on the seed and the name alone, on no order and no version of Python."""
    return blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
