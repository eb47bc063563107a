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
from dataclasses import dataclass
from pathlib import Path

from openconductor.errors import ConfigError, TaskError
from openconductor.protocols import Grader
from openconductor.tasks.hub import DataFile, HubDataset, fetch
from openconductor.tasks.items import Benchmark, Item, Loaded, Source, SourceFile, digest, draw_key
from openconductor.tasks.rows import Row, Unusable, read_rows, sha256_of


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
        if limit is not None and limit < 1:
            raise ConfigError(f"task option limit: got {limit}, expected 1 or more")
        if path is not None and revision is not None:
            raise ConfigError(f"task option revision: got {revision!r} beside path; a local file has none")
        if path is None and split and split not in self.dataset.splits:
            raise ConfigError(
                f"task {self.name}: got the split {split!r}, expected one of {', '.join(self.dataset.splits)}"
            )
        whole = Options(Path(path) if path is not None else None, revision, limit, seed, sha256)
        return DatasetTask(self, whole, split or "")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a task, but the split; see the module."""

    path: Path | None
    revision: str | None
    limit: int | None
    seed: int | None
    sha256: str | None


class DatasetTask(Benchmark):
    """A benchmark of rows; see the module."""

    def __init__(self, spec: DatasetSpec, options: Options, split: str) -> None:
        names = tuple(spec.dataset.splits)
        default = split or names[0]
        splits = (default, *(name for name in names if name != default))
        super().__init__(spec.name, spec.about, splits, spec.dataset)
        self.spec = spec
        self.options = options

    def _grader(self) -> Grader:
        return self.spec.grader()

    def _read(self, split: str) -> Loaded:
        files, origin = self._files(split)
        whole, expected = digest([file.sha256 for file in files]), self.options.sha256
        if expected is not None and whole != expected.lower():
            names = ", ".join(file.name for file in files)
            raise TaskError(f"task {self.name}: {names}: got the SHA-256 {whole}, expected {expected}")
        drawn = self._drawn(files, split) if self.options.limit is not None else None
        items: list[Item] = []
        left_out: list[tuple[str, str]] = []
        seen: dict[str, str] = {}
        counts: list[int] = []
        fields: tuple[str, ...] = ()
        for row in self._rows(files, counts):
            fields = fields or tuple(sorted(row.values))
            name = self._id(row, split)
            if name in seen:
                raise TaskError(f"{row.where}: the id {name!r} is that of {seen[name]}; expected one of its own")
            seen[name] = row.where
            if drawn is not None and name not in drawn:
                continue
            try:
                items.append(self._shape(row).item(row, Place(self.name, name, self.options.seed)))
            except Unusable as error:
                left_out.append((name, str(error)))
        if not items:
            raise TaskError(f"task {self.name}: {files[0].name}: got no row, expected problems")
        source = Source(
            dataset=self.spec.dataset.id if origin is not None else "local file",
            split=split,
            revision=origin[0] if origin is not None else None,
            pinned=expected is not None or (origin is not None and origin[1]),
            licence=self.spec.dataset.licence if origin is not None else "unknown",
            files=tuple(SourceFile(file.name, file.sha256, count) for file, count in zip(files, counts, strict=True)),
            rows=sum(counts),
            problems=len(items),
            fields=fields,
            left_out=tuple(left_out),
            notes=self.spec.notes,
        )
        return Loaded(tuple(items), source)

    def _files(self, split: str) -> tuple[Sequence[DataFile], tuple[str, bool] | None]:
        """The files of a split; of published ones also their commit, and whether they are pinned by it."""
        path, dataset = self.options.path, self.spec.dataset
        if path is not None:
            path = path / f"{split}.jsonl" if path.is_dir() else path
            return (DataFile(path, str(path), sha256_of(path, name=str(path))),), None
        if split not in dataset.splits:
            raise TaskError(
                f"task {self.name}: got the split {split!r}, expected one of {', '.join(dataset.splits)}; other splits "
                "need local files: path=FOLDER"
            )
        files, commit, pinned = fetch(dataset, split, task=self.name, revision=self.options.revision)
        return files, (commit, pinned)

    def _rows(self, files: Sequence[DataFile], counts: list[int]) -> Iterator[Row]:
        """All rows; ``counts`` gets the number of rows of each file once it has been read."""
        for file in files:
            start = sum(counts)
            number = start
            for row in read_rows(file.path, name=file.name, start=start):
                number = row.number + 1
                yield row
            counts.append(number - start)
            if file.rows is not None and counts[-1] != file.rows:
                raise TaskError(f"task {self.name}: {file.name}: got {counts[-1]} rows, expected {file.rows}")

    def _drawn(self, files: Sequence[DataFile], split: str) -> set[str]:
        """The ids that a limit keeps."""
        ids = (self._id(row, split) for row in self._rows(files, []))
        chosen = heapq.nsmallest(self.options.limit or 0, ids, key=lambda one: draw_key(self.options.seed or 0, one))
        return set(chosen)

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
