"""A benchmark made of rows, of a pinned data set on the hub or of local files. In: a data set, options. Out: problems.

A task is made of a ``Dataset`` with options:

``path``      local data instead: a file, which stands for every split, or a folder of ``<split>.jsonl``
``revision``  another commit of the data set than the pinned one
``split``     what ``load()`` loads
``limit``     this many problems only, drawn by ``seed`` and kept in their order
``seed``      draws for ``limit``, and draws the order of choices; None leaves choices in their published order
``sha256``    what the bytes must hash to (``Source.sha256``)

Files of the hub are fetched one by one and checked against their SHA-256 before anything reads
them; no script of a data set is ever run. Fetching takes the extra ``tasks`` (``datasets`` and the
hub client below it); what was fetched before is read from the client's cache, also without a
network. A commit or digest is in a task's data only where independent public records agree on it
(docs/tasks.md lists them). Where none could be had, the revision is None: the newest commit is
taken, with a warning, and recorded.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from openconductor.errors import ConfigError, TaskError
from openconductor.protocols import Grader
from openconductor.tasks.items import Benchmark, DataFile, Item, LeftOut, Loaded, Source, draw_key
from openconductor.tasks.rows import Row, Unusable, needs, read_rows, sha256_of

COMMIT = re.compile(r"[0-9a-f]{40}")
_LOCAL = (
    "a local file of JSON Lines: path=FILE (`task`: --path FILE, `eval`: --task-path NAME=FILE)"
)


class UnpinnedData(UserWarning):
    """Data of no fixed commit: the same name may hold other problems tomorrow."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A form that rows may have.

    Attributes:
        fields: those that tell this shape from the others.
        item: makes an Item of a row; raises Unusable where the row holds no problem that can be
            graded.
        id: the field that holds the id; None: the row's number is its id.
    """

    fields: tuple[str, ...]
    item: Callable[[Row], Item]
    id: str | None = None


def parquet(path: str, sha256: str | None, rows: int) -> tuple[DataFile, ...]:
    """A split of one file, the only shard of Parquet."""
    return (DataFile(f"{path}-00000-of-00001.parquet", sha256, rows),)


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a task is made of, beside its options.

    Attributes:
        name: the task's name in the registry.
        about: what it is, in a line.
        id: the name of the data set on the hub; "" is published nowhere, and needs the option
            ``path``.
        revision: the commit; None where none is known for certain.
        licence: of the data.
        splits: the files of each split, the default split first; digests and rows are those at the
            commit.
        shapes: the forms that a row may have; the first whose fields are all there counts.
        grader: makes the judge.
        notes: what a reader of a run should know about these data.
        gated: whether its publishers ask who reads it.
    """

    name: str
    about: str = ""
    id: str = ""
    revision: str | None = None
    licence: str = "unknown"
    splits: Mapping[str, tuple[DataFile, ...]] = field(default_factory=lambda: {"test": ()})
    shapes: tuple[Shape, ...] = field(kw_only=True)
    grader: Callable[[], Grader] = field(kw_only=True)
    notes: tuple[str, ...] = ()
    gated: bool = False


class DatasetTask(Benchmark):
    """A benchmark of rows, with the options that the module lists.

    Raises:
        ConfigError: an option is wrong.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        path: str | Path | None = None,
        revision: str | None = None,
        split: str | None = None,
        limit: int | None = None,
        seed: int | None = None,
        sha256: str | None = None,
    ) -> None:
        if path is not None and revision is not None:
            raise ConfigError(
                f"task option revision: got {revision!r} beside path; a local file has none"
            )
        super().__init__(
            dataset.name,
            dataset.about,
            dataset.splits,
            dataset.grader(),
            split=split,
            limit=limit,
            dataset=dataset,
            local=path is not None,
        )
        self._published, self._limit = dataset, limit
        self.path, self._revision = Path(path) if path is not None else None, revision
        self._seed, self._sha256 = seed, sha256

    def _read(self, split: str) -> Loaded:
        expected, source = self._files(split)
        digests = {path: sha256_of(path, name=file.name) for path, file in expected.items()}
        for path, file in expected.items():
            if file.sha256 not in (None, digests[path]):
                raise TaskError(
                    f"task {self.name}: {file.name} at {source.revision}: got the SHA-256 {digests[path]}, expected "
                    f"{file.sha256}; delete it from the hub's cache to fetch it anew"
                )
        names = ", ".join(file.name for file in expected.values())
        whole = digest([*digests.values()])
        if self._sha256 is not None and whole != self._sha256.lower():
            raise TaskError(
                f"task {self.name}: {names}: got the SHA-256 {whole}, expected {self._sha256}"
            )
        counts = Counter[Path]()
        rows = self._rows(expected, split, counts)
        if self._limit is not None:
            drawn = heapq.nsmallest(
                self._limit, rows, key=lambda row: draw_key(self._seed or 0, row.id)
            )
            rows = iter(sorted(drawn, key=lambda row: row.number))
        items: list[Item] = []
        left_out: list[LeftOut] = []
        fields: list[str] = []
        for row in rows:
            fields = fields or sorted(row.values)
            try:
                items.append(self._shape(row).item(row))
            except Unusable as error:
                left_out.append(LeftOut(row.id, str(error)))
        if not items:
            raise TaskError(f"task {self.name}: {names}: got no row, expected problems")
        source = replace(
            source,
            pinned=source.pinned or self._sha256 is not None,
            sha256=whole,
            files=tuple(
                DataFile(file.name, digests[path], counts[path]) for path, file in expected.items()
            ),
            rows=counts.total(),
            problems=len(items),
            fields=tuple(fields),
            left_out=tuple(left_out),
            notes=self._published.notes,
        )
        return Loaded(tuple(items), source)

    def _files(self, split: str) -> tuple[dict[Path, DataFile], Source]:
        """The files of a split with what is known of them, and where they are from."""
        if self.path is None:
            return fetch(self._published, split, revision=self._revision)
        path = self.path / f"{split}.jsonl" if self.path.is_dir() else self.path
        return {path: DataFile(str(path))}, Source("local file", split)

    def _rows(
        self, files: Mapping[Path, DataFile], split: str, counts: Counter[Path]
    ) -> Iterator[Row]:
        """All rows, each with an id of its own; counts those of each file."""
        seen: dict[str, str] = {}
        for path, file in files.items():
            for row in read_rows(path, name=file.name, start=counts.total()):
                counts[path] += 1
                field = self._shape(row).id
                given = row.identity(field) if field else f"{self.name}/{split}/{row.number}"
                name = given if isinstance(given, str) else f"{self.name}/{given}"
                if name in seen:
                    raise TaskError(
                        f"{row.where}: the id {name!r} is that of {seen[name]}; expected one of its own"
                    )
                seen[name] = row.where
                yield replace(row, task=self.name, id=name, seed=self._seed)
            if file.rows not in (None, counts[path]):
                raise TaskError(
                    f"task {self.name}: {file.name}: got {counts[path]} rows, expected {file.rows}"
                )

    def _shape(self, row: Row) -> Shape:
        """The first shape whose fields are all there, or else the nearest: its adapter says what is missing."""

        def share(shape: Shape) -> float:
            return sum(name in row.values for name in shape.fields) / len(shape.fields)

        whole = [shape for shape in self._published.shapes if share(shape) == 1]
        return whole[0] if whole else max(reversed(self._published.shapes), key=share)


def digest(digests: Sequence[str]) -> str:
    """One digest for all files; see ``Source.sha256``."""
    return (
        digests[0]
        if len(digests) == 1
        else hashlib.sha256("".join(f"{one}\n" for one in digests).encode()).hexdigest()
    )


def fetch(
    dataset: Dataset, split: str, *, revision: str | None
) -> tuple[dict[Path, DataFile], Source]:
    """Fetch the files of a split; gives their local copies, each with what is known of it at its commit.

    Args:
        dataset: where they are.
        split: one of its splits.
        revision: another commit, branch or tag than the data set's; no digest is known of it.

    Raises:
        TaskError: they cannot be had. Says how to continue with a local file.
        ConfigError: the extra is not installed.
    """
    if not dataset.id:
        raise TaskError(f"task {dataset.name}: is published nowhere; expected {_LOCAL}")
    commit = revision or dataset.revision or ""
    pinned = COMMIT.fullmatch(commit) is not None
    files: dict[Path, DataFile] = {}
    for file in dataset.splits[split]:
        path, commit = _download(
            dataset, file.name, commit or None
        )  # the other files are of the same commit
        known = file if commit == dataset.revision else DataFile(file.name)
        files[path] = replace(known, name=f"{dataset.id}/{file.name}")
    if not pinned:
        again = f"{dataset.id} is not pinned; loaded commit {commit}; to load it again: revision={commit!r}"
        warnings.warn(f"task {dataset.name}: {again}", UnpinnedData, stacklevel=2)
    return files, Source(dataset.id, split, commit, pinned, dataset.licence)


def _download(dataset: Dataset, file: str, revision: str | None) -> tuple[Path, str]:
    """The local copy of a file, and its commit."""
    needs("datasets")  # so that one message names one extra, whichever part of it is missing
    hub: Any = needs("huggingface_hub")
    errors: Any = needs("huggingface_hub.errors")
    try:
        path = Path(hub.hf_hub_download(dataset.id, file, repo_type="dataset", revision=revision))
    except (OSError, ValueError, errors.HTTPError, errors.EntryNotFoundError) as error:
        gate = " (its terms must be accepted there, and HF_TOKEN set)" if dataset.gated else ""
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TaskError(
            f"task {dataset.name}: {dataset.id}/{file} at {revision or 'its newest commit'}{gate} could not be "
            f"fetched: {reason}; expected a network, or {_LOCAL}"
        ) from error
    # The cache keeps a file as .../snapshots/<commit>/<its path>.
    return path, path.parts[-len(Path(file).parts) - 1]
