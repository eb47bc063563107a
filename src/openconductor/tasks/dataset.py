"""A benchmark made of rows, of a pinned data set on the hub or of local files. In: a spec and options. Out: problems.

A spec says where the data are, which shapes its rows may have, and who judges. A task is made of it with options:

``path``      local data instead: a file, which stands for every split, or a folder of ``<split>.jsonl``
``revision``  another commit of the data set than the pinned one
``split``     what ``load()`` loads
``limit``     this many problems only, drawn by ``seed`` and kept in their order
``seed``      draws for ``limit``, and draws the order of choices; None leaves choices in their published order
``sha256``    what the bytes must hash to (``Source.sha256``)
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openconductor.errors import ConfigError, TaskError
from openconductor.protocols import Grader
from openconductor.tasks.hub import DataFile, HubDataset, fetch
from openconductor.tasks.items import Benchmark, Item, Loaded, Source, SourceFile, digest, draw_key
from openconductor.tasks.rows import Row, Unusable, read_rows, sha256_of
from openconductor.types import Problem


@dataclass(frozen=True, slots=True)
class RowPlace:
    """What an adapter needs to know beside its row: whose problem it makes, under which id, and the seed."""

    task: str
    id: str
    seed: int | None

    def item(self, question: str, reference: object, canonical: str | None, subject: str = "") -> Item:
        """The item of this place whose kind is its subject."""
        return Item(Problem(self.id, question, reference, self.task, kind=subject), canonical, subject)


@dataclass(frozen=True, slots=True)
class Shape:
    """A form that rows may have.

    Attributes:
        fields: those that tell this shape from the others.
        item: makes an Item of a row; raises Unusable where the row holds no problem that can be graded.
        id: the field that holds the id; None: the row's number is its id.
    """

    fields: tuple[str, ...]
    item: Callable[[Row, RowPlace], Item]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """What a task is made of, beside its options.

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


class DatasetTask(Benchmark):
    """A benchmark of rows, with the options that the module lists.

    Raises:
        ConfigError: an option is wrong.
    """

    def __init__(
        self,
        spec: DatasetSpec,
        *,
        path: str | Path | None = None,
        revision: str | None = None,
        split: str | None = None,
        limit: int | None = None,
        seed: int | None = None,
        sha256: str | None = None,
    ) -> None:
        known = spec.dataset.splits
        if limit is not None and limit < 1:
            raise ConfigError(f"task option limit: got {limit}, expected 1 or more")
        if path is not None and revision is not None:
            raise ConfigError(f"task option revision: got {revision!r} beside path; a local file has none")
        if path is None and split and split not in known:
            raise ConfigError(f"task {spec.name}: got the split {split!r}, expected one of {', '.join(known)}")
        super().__init__(
            spec.name, spec.about, tuple(dict.fromkeys((split or next(iter(known)), *known))), spec.dataset
        )
        self.spec = spec
        self.path, self.revision = Path(path) if path is not None else None, revision
        self.limit, self.seed, self.sha256 = limit, seed, sha256

    def _grader(self) -> Grader:
        return self.spec.grader()

    def _read(self, split: str) -> Loaded:
        files, source = self._files(split)
        whole = digest([file.sha256 for file in files])
        if self.sha256 is not None and whole != self.sha256.lower():
            names = ", ".join(file.name for file in files)
            raise TaskError(f"task {self.name}: {names}: got the SHA-256 {whole}, expected {self.sha256}")
        drawn = self._drawn(files, split)
        items: list[Item] = []
        left_out: list[tuple[str, str]] = []
        seen: dict[str, str] = {}
        counts: Counter[Path] = Counter()
        fields: list[str] = []
        for file, row in self._rows(files):
            counts[file.path] += 1
            fields = fields or sorted(row.values)
            name = self._id(row, split)
            if name in seen:
                raise TaskError(f"{row.where}: the id {name!r} is that of {seen[name]}; expected one of its own")
            seen[name] = row.where
            if drawn is None or name in drawn:
                try:
                    items.append(self._shape(row).item(row, RowPlace(self.name, name, self.seed)))
                except Unusable as error:
                    left_out.append((name, str(error)))
        if not items:
            raise TaskError(f"task {self.name}: {files[0].name}: got no row, expected problems")
        return Loaded(
            tuple(items),
            replace(
                source,
                pinned=source.pinned or self.sha256 is not None,
                files=tuple(SourceFile(file.name, file.sha256, counts[file.path]) for file in files),
                rows=counts.total(),
                problems=len(items),
                fields=tuple(fields),
                left_out=tuple(left_out),
                notes=self.spec.notes,
            ),
        )

    def _files(self, split: str) -> tuple[Sequence[DataFile], Source]:
        """The files of a split, and where they are from."""
        dataset = self.spec.dataset
        if self.path is not None:
            path = self.path / f"{split}.jsonl" if self.path.is_dir() else self.path
            return (DataFile(path, str(path), sha256_of(path, name=str(path))),), Source("local file", split)
        if split not in dataset.splits:
            raise TaskError(
                f"task {self.name}: got the split {split!r}, expected one of {', '.join(dataset.splits)}; other splits "
                "need local files: path=FOLDER"
            )
        files, commit, pinned = fetch(dataset, split, task=self.name, revision=self.revision)
        return files, Source(dataset.id, split, commit, pinned, dataset.licence)

    def _rows(self, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, Row]]:
        """All rows, each with its file."""
        number = 0
        for file in files:
            start = number
            for row in read_rows(file.path, name=file.name, start=start):
                number += 1
                yield file, row
            if file.rows not in (None, number - start):
                raise TaskError(f"task {self.name}: {file.name}: got {number - start} rows, expected {file.rows}")

    def _drawn(self, files: Sequence[DataFile], split: str) -> set[str] | None:
        """The ids that a limit keeps; None where there is no limit."""
        if self.limit is None:
            return None
        ids = (self._id(row, split) for _, row in self._rows(files))
        return set(heapq.nsmallest(self.limit, ids, key=lambda one: draw_key(self.seed or 0, one)))

    def _shape(self, row: Row) -> Shape:
        """The shape of which the most fields are there (the first that is whole); its adapter says what is missing."""

        def fit(shape: Shape) -> float:
            return sum(name in row.values for name in shape.fields) / len(shape.fields)

        whole = [shape for shape in self.spec.shapes if fit(shape) == 1]
        return whole[0] if whole else max(reversed(self.spec.shapes), key=fit)

    def _id(self, row: Row, split: str) -> str:
        shape = self._shape(row)
        if shape.id is None:
            return f"{self.name}/{split}/{row.number}"
        value = row.identity(shape.id)
        return value if isinstance(value, str) else f"{self.name}/{value}"
