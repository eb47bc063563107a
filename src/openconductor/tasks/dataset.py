"""A benchmark made of rows, of a pinned data set on the hub or of local files. In: a spec and options. Out: problems.

A spec says where the data are, which shapes its rows may have, and who judges. Called with options it makes a task:

``path``      local data instead: a file, which stands for every split, or a folder of ``<split>.jsonl``
``revision``  another commit of the data set than the pinned one
``split``     what ``load()`` loads
``limit``     so many problems only, drawn by ``seed`` and kept in their order
``seed``      draws for ``limit``, and draws the order of choices; None leaves choices in their published order
``sha256``    what the bytes must hash to (``Source.sha256``)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from openconductor.errors import ConfigError, TaskError
from openconductor.protocols import Grader
from openconductor.tasks.files import read_rows, sha256_of
from openconductor.tasks.hub import HubDataset, HubFile, fetch
from openconductor.tasks.items import Item, Loaded, Source, SourceFile, canonical_among, digest
from openconductor.tasks.rows import Row, Unusable
from openconductor.types import Problem


@dataclass(frozen=True, slots=True)
class Place:
    """What an adapter needs to know beside its row: whose problem it makes, under which id, and the seed."""

    task: str
    id: str
    seed: int | None


@dataclass(frozen=True, slots=True)
class Shape:
    """A form that rows may have.

    Attributes:
        fields: those that tell this shape from the others.
        item: makes an Item of a row; raises Unusable where the row holds no problem that can be graded.
        id: the field that holds the id; None: the row's number is its id.
    """

    fields: tuple[str, ...]
    item: Callable[[Row, Place], Item]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a task; see the module.

    Raises:
        ConfigError: a limit below 1, or options that exclude each other.
    """

    path: Path | None = None
    revision: str | None = None
    split: str = ""
    limit: int | None = None
    seed: int | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"task option limit: got {self.limit}, expected 1 or more")
        if self.path is not None and self.revision is not None:
            raise ConfigError(f"task option revision: got {self.revision!r} beside path; a local file has none")


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """What makes a task of options.

    Attributes:
        name: its name in the registry.
        about: what it is, in a line.
        dataset: where its rows are published.
        shapes: the forms that a row may have; the first whose fields are all there counts.
        grader: makes the judge.
        notes: what a reader of a run should know about these data.
    """

    name: str
    about: str
    dataset: HubDataset
    shapes: tuple[Shape, ...]
    grader: Callable[[], Grader]
    notes: tuple[str, ...] = ()

    def __call__(
        self,
        *,
        path: str | Path | None = None,
        revision: str | None = None,
        split: str | None = None,
        limit: int | None = None,
        seed: int | None = None,
        sha256: str | None = None,
    ) -> DatasetTask:
        """The task with these options.

        Raises:
            ConfigError: an option is wrong.
        """
        options = Options(Path(path) if path is not None else None, revision, split or "", limit, seed, sha256)
        if options.path is None and options.split and options.split not in self.dataset.splits:
            raise ConfigError(
                f"task {self.name}: got the split {options.split!r}, expected one of {', '.join(self.dataset.splits)}"
            )
        return DatasetTask(self, options)


@dataclass(frozen=True, slots=True)
class _File:
    """A file to be read: where it is, what errors and records call it, what it must hold."""

    path: Path
    name: str
    sha256: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class _Files:
    files: tuple[_File, ...]
    dataset: str
    revision: str | None = None
    pinned: bool = False
    licence: str = "unknown"


@dataclass
class _Reading:
    """What a pass over the rows gathers."""

    items: list[Item] = field(default_factory=list[Item])
    left_out: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    counts: list[int] = field(default_factory=list[int])
    fields: tuple[str, ...] = ()
    seen: dict[str, str] = field(default_factory=dict[str, str])


class DatasetTask:
    """A benchmark of rows; see the module. Each split is read once."""

    def __init__(self, spec: DatasetSpec, options: Options) -> None:
        self.spec = spec
        self.options = options
        self._grader: Grader | None = None
        self._loaded: dict[str, Loaded] = {}

    def __repr__(self) -> str:
        return f"DatasetTask({self.spec.name!r}, {self.options!r})"

    @property
    def name(self) -> str:
        """The name in the registry of tasks."""
        return self.spec.name

    @property
    def about(self) -> str:
        """What it is, in a line."""
        return self.spec.about

    @property
    def splits(self) -> tuple[str, ...]:
        """The published splits, the default one first."""
        names = tuple(self.spec.dataset.splits)
        default = self.options.split or names[0]
        return (default, *(name for name in names if name != default))

    @property
    def dataset(self) -> HubDataset:
        """Where its rows are published."""
        return self.spec.dataset

    @property
    def grader(self) -> Grader:
        """The judge of this task's answers; made when it is first asked for."""
        if self._grader is None:
            self._grader = self.spec.grader()
        return self._grader

    @property
    def source(self) -> Source:
        """Where the default split came from; loads it where it has not been loaded."""
        return self.read().source

    def load(self, split: str = "") -> Sequence[Problem]:
        """The problems of a split; "" is the default one.

        Raises:
            TaskError: the data are absent, are not of any known shape, or are not what they were.
            ConfigError: the extra is not installed.
        """
        return self.read(split).problems

    def canonical(self, problem: Problem) -> str | None:
        """A right reply to a problem of a split that was loaded (of the default one where none was)."""
        if not self._loaded:
            self.read()
        return canonical_among(list(self._loaded.values()), problem, self.name)

    def read(self, split: str = "") -> Loaded:
        """The problems with all that is known about them; of errors see ``load``."""
        split = split or self.splits[0]
        if split not in self._loaded:
            self._loaded[split] = self._read(split)
        return self._loaded[split]

    def _read(self, split: str) -> Loaded:
        found = self._local(split) if self.options.path is not None else self._fetched(split)
        whole = digest([file.sha256 for file in found.files])
        expected = self.options.sha256
        if expected is not None and whole != expected.lower():
            names = ", ".join(file.name for file in found.files)
            raise TaskError(f"task {self.name}: {names}: got the SHA-256 {whole}, expected {expected}")
        drawn = self._drawn(found.files, split) if self.options.limit is not None else None
        reading = self._items(found.files, split, drawn)
        source = Source(
            dataset=found.dataset,
            split=split,
            revision=found.revision,
            pinned=found.pinned or expected is not None,
            licence=found.licence,
            files=tuple(
                SourceFile(file.name, file.sha256, count)
                for file, count in zip(found.files, reading.counts, strict=True)
            ),
            rows=sum(reading.counts),
            problems=len(reading.items),
            fields=reading.fields,
            left_out=tuple(reading.left_out),
            notes=self.spec.notes,
        )
        if not reading.items:
            raise TaskError(f"task {self.name}: {found.files[0].name}: got no row, expected problems")
        return Loaded(tuple(reading.items), source)

    # ── where the rows are ───────────────────────────────────────────────────────────────────────────────────────────
    def _local(self, split: str) -> _Files:
        path = self.options.path
        assert path is not None
        if path.is_dir():
            path /= f"{split}.jsonl"
        return _Files((_File(path, str(path), sha256_of(path, name=str(path))),), "local file")

    def _fetched(self, split: str) -> _Files:
        dataset = self.spec.dataset
        if split not in dataset.splits:
            raise TaskError(
                f"task {self.name}: got the split {split!r}, expected one of {', '.join(dataset.splits)}; other splits "
                "need local files: path=FOLDER"
            )
        fetched, pinned = fetch(dataset, split, task=self.name, revision=self.options.revision)
        revision = fetched[0].revision
        known = revision == dataset.revision
        files = tuple(
            _File(one.path, f"{dataset.id}/{one.file.path}", one.sha256, one.file.rows if known else None)
            for one in fetched
        )
        return _Files(files, dataset.id, revision, pinned, dataset.licence)

    # ── what the rows hold ───────────────────────────────────────────────────────────────────────────────────────────
    def _rows(self, files: Sequence[_File], counts: list[int]) -> Iterator[Row]:
        """All rows; ``counts`` gets the number of rows of each file once it has been read."""
        for file in files:
            start, last = sum(counts), -1
            for row in read_rows(file.path, name=file.name, start=start):
                last = row.number
                yield row
            counts.append(last + 1 - start if last >= 0 else 0)
            if file.rows is not None and counts[-1] != file.rows:
                raise TaskError(f"task {self.name}: {file.name}: got {counts[-1]} rows, expected {file.rows}")

    def _drawn(self, files: Sequence[_File], split: str) -> set[str]:
        """The ids that a limit keeps."""
        assert self.options.limit is not None
        ids = (self._id(row, split) for row in self._rows(files, []))
        return set(heapq.nsmallest(self.options.limit, ids, key=lambda one: draw_key(self.options.seed or 0, one)))

    def _items(self, files: Sequence[_File], split: str, drawn: set[str] | None) -> _Reading:
        reading = _Reading()
        for row in self._rows(files, reading.counts):
            reading.fields = reading.fields or tuple(sorted(row.values))
            name = self._id(row, split)
            if name in reading.seen:
                raise TaskError(
                    f"{row.where}: the id {name!r} is that of {reading.seen[name]}; expected one of its own"
                )
            reading.seen[name] = row.where
            if drawn is not None and name not in drawn:
                continue
            try:
                reading.items.append(self._shape(row).item(row, Place(self.name, name, self.options.seed)))
            except Unusable as error:
                reading.left_out.append((name, str(error)))
        return reading

    def _shape(self, row: Row) -> Shape:
        """The first shape whose fields are all there; else the likeliest, which then says what is missing."""
        shapes = self.spec.shapes
        fitting = next((shape for shape in shapes if all(name in row.values for name in shape.fields)), None)
        return fitting or max(
            reversed(shapes), key=lambda shape: sum(name in row.values for name in shape.fields) / len(shape.fields)
        )

    def _id(self, row: Row, split: str) -> str:
        shape = self._shape(row)
        if shape.id is None:
            return f"{self.name}/{split}/{row.number}"
        value = row.identity(shape.id)
        return value if isinstance(value, str) else f"{self.name}/{value}"


def draw_key(seed: int, name: str) -> bytes:
    """What a seeded draw sorts by: it depends on the seed and the name alone, on no order and no version of Python."""
    return blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


__all__ = ["DatasetSpec", "DatasetTask", "HubDataset", "HubFile", "Options", "Place", "Shape", "draw_key"]
