"""What a task is: problems, what is known beside them, who judges, and where all of it came from.

In: nothing. Out: frozen values, and what every task offers. ``Source`` is what a run writes down, so that the same
problems can be had again.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, cast

from openconductor.protocols import Grader
from openconductor.serialisation import plain
from openconductor.types import Problem

if TYPE_CHECKING:
    from openconductor.tasks.hub import HubDataset


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
        known = cast("dict[str, object]", plain(self))
        first = {name: known[name] for name in ("dataset", "split", "revision", "pinned", "licence")}
        left_out = [{"id": name, "why": why} for name, why in self.left_out]
        parts = [part.record() for part in self.parts]
        return first | {"sha256": self.sha256} | known | {"left_out": left_out, "parts": parts}


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
        splits: the splits that can be loaded, the one loaded by default first.
        dataset: where its rows are published; None where problems are drawn or mixed.
    """

    def __init__(self, name: str, about: str, splits: Sequence[str], dataset: HubDataset | None = None) -> None:
        self.name = name
        self.about = about
        self.splits = tuple(splits)
        self.dataset = dataset
        self._loaded: dict[str, Loaded] = {}

    @cached_property
    def grader(self) -> Grader:
        """The judge of this task's answers; made when it is first asked for."""
        return self._grader()

    @property
    def source(self) -> Source:
        """Where the default split came from; loads it where it has not been loaded."""
        return self.read().source

    def load(self, split: str = "") -> Sequence[Problem]:
        """The problems of one split, in order; "" is the default one.

        Raises:
            TaskError: the data are absent, are not of any known shape, or are not what they were; or there is no such
                split.
            ConfigError: the extra is not installed.
        """
        return tuple(item.problem for item in self.read(split).items)

    def read(self, split: str = "") -> Loaded:
        """The problems with all that is known about them; of errors see ``load``."""
        split = split or self.splits[0]
        if split not in self._loaded:
            self._loaded[split] = self._read(split)
        return self._loaded[split]

    @abstractmethod
    def _grader(self) -> Grader: ...

    @abstractmethod
    def _read(self, split: str) -> Loaded: ...


def digest(digests: Sequence[str]) -> str | None:
    """One digest for several; see ``Source.sha256``."""
    if len(digests) < 2:
        return digests[0] if digests else None
    return hashlib.sha256("".join(f"{one}\n" for one in digests).encode()).hexdigest()


def draw_key(seed: int, name: str) -> bytes:
    """What a seeded draw sorts by: it depends on the seed and the name alone, on no order and no version of Python."""
    return blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
