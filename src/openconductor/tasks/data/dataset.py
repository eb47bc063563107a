"""A benchmark made of rows, of a pinned data set on the hub or of local files.

A ``DatasetTask`` is made of a ``Dataset`` with options:

``path``      local data instead: a file, which stands for every split, or a folder of
              ``<split>.jsonl``
``revision``  another commit of the data set than the pinned one
``split``     the split that ``load()`` loads
``limit``     a number of problems, drawn by ``seed`` and kept in their order
``seed``      draws for ``limit``, and draws the order of choices; None: the published order
``sha256``    the expected hash of the bytes (``Source.sha256``)

Files of the hub are fetched one by one and checked against their SHA-256 before anything reads
them; no script of a data set is ever run. Fetching takes the extra ``tasks`` (``datasets`` and the
hub client below it). Fetched files are read from the client's cache, also without a network. A
commit or digest is in a task's data only if independent public records agree on it (docs/tasks.md
lists them). Without one the revision is None: the newest commit is taken, with a warning, and
recorded.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from openconductor.errors import ConfigError, TaskError
from openconductor.protocols import Grader
from openconductor.tasks.data.items import (
    LOCAL_FILE,
    Benchmark,
    DataFile,
    Item,
    LeftOut,
    Loaded,
    Source,
    draw_key,
)
from openconductor.tasks.data.rows import Row, Unusable, needs, read_rows, sha256_of

COMMIT = re.compile(r"[0-9a-f]{40}")
_LOCAL = (
    "a local file of JSON Lines: path=FILE (`task`: --path FILE, `eval`: --task-path NAME=FILE)"
)
HUB_SECONDS = 10.0
"""The longest time that the hub may take to answer before anything is fetched."""
Counts = dict[Path, int]
HELD_OUT_SEED = 0
"""Draws the questions that are held out of a data set with one published split."""


class UnpinnedData(UserWarning):
    """Data without a fixed commit: the same name may hold other problems tomorrow."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A form that rows may have.

    Attributes:
        fields: those that tell this shape from the others.
        item: makes an Item of a row; raises Unusable if the row holds no problem that can be
            graded.
        id: the field that holds the id; None: the row's number is its id.
    """

    fields: tuple[str, ...]
    item: Callable[[Row], Item]
    id: str | None = None


def parquet(path: str, sha256: str | None, rows: int) -> tuple[DataFile, ...]:
    """Return a split of one file, the only shard of Parquet."""
    return (DataFile(f"{path}-00000-of-00001.parquet", sha256, rows),)


@dataclass(frozen=True, slots=True)
class Dataset:
    """The data of a task.

    Attributes:
        name: the task's name in the registry.
        about: a description of one line.
        id: the name of the data set on the hub; "": it is published nowhere, and requires the
            option ``path``.
        revision: the commit; None: unknown.
        licence: of the data.
        splits: the files of each split, the default split first; digests and rows are those at the
            commit.
        shapes: the forms that a row may have; the first whose fields are all there counts.
        grader: makes the judge.
        notes: facts about these data for a reader of a run.
        gated: True if its publishers ask readers for their names.
        answer_forms: texts at the end of its questions that ask workers for a form of the answer,
            beside those of ``tasks.prompts``. No Conductor is trained with them.
        held_out: the share of its questions that is the split ``test``, where one split alone is
            published: ``train`` has the others. 0: the splits are as published.
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
    answer_forms: tuple[str, ...] = ()
    held_out: float = 0.0


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
                f"task option revision: got {revision!r} and a path; a local file has no revision"
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
        self.path = None if path is None else Path(path)
        self._data = dataset
        self._revision = revision
        self._limit = limit
        self._seed = seed
        self._sha256 = sha256

    def _read(self, split: str) -> Loaded:
        files, source = self._find_files(split)
        names = ", ".join(file.name for file in files.values())
        digests = self._hash(files, source)
        whole = digest(list(digests.values()))
        if self._sha256 is not None and whole != self._sha256.lower():
            raise TaskError(
                f"task {self.name}: {names}: got the SHA-256 {whole}, expected {self._sha256}"
            )
        counts: Counts = dict.fromkeys(files, 0)
        rows = self._read_rows(files, split, counts)
        if self._data.held_out and self.path is None:
            rows = (row for row in rows if self._is_held_out(row) == (split == "test"))
        if self._limit is not None:
            rows = self._draw(rows, self._limit)
        items: list[Item] = []
        left_out: list[LeftOut] = []
        fields: list[str] = []
        for row in rows:
            fields = fields or sorted(row.values)
            try:
                items.append(self._shape_of(row).item(row))
            except Unusable as error:
                left_out.append(LeftOut(row.id, str(error)))
        if not items:
            raise TaskError(f"task {self.name}: {names}: got no row, expected problems")
        read = [DataFile(file.name, digests[path], counts[path]) for path, file in files.items()]
        source = replace(
            source,
            pinned=source.pinned or self._sha256 is not None,
            sha256=whole,
            files=tuple(read),
            rows=sum(counts.values()),
            problems=len(items),
            fields=tuple(fields),
            left_out=tuple(left_out),
            notes=self._data.notes,
        )
        return Loaded(tuple(items), source)

    def _find_files(self, split: str) -> tuple[dict[Path, DataFile], Source]:
        """Return the files of a split with the facts known of them, and their origin."""
        if self.path is None:
            return fetch(self._data, split, revision=self._revision)
        path = self.path / f"{split}.jsonl" if self.path.is_dir() else self.path
        return {path: DataFile(str(path))}, Source(LOCAL_FILE, split)

    def _hash(self, files: Mapping[Path, DataFile], source: Source) -> dict[Path, str]:
        """Return the SHA-256 of each file, checked against the published one."""
        digests = {path: sha256_of(path, name=file.name) for path, file in files.items()}
        for path, file in files.items():
            if file.sha256 not in (None, digests[path]):
                raise TaskError(
                    f"task {self.name}: {file.name} at {source.revision}: got the SHA-256 "
                    f"{digests[path]}, expected {file.sha256}; delete it from the hub's cache to "
                    "fetch it anew"
                )
        return digests

    def _is_held_out(self, row: Row) -> bool:
        """Draw whether a row is in the split ``test``: rows of one question are in one split."""
        try:
            question = self._shape_of(row).item(row).problem.question
        except Unusable:
            return False
        key = draw_key(HELD_OUT_SEED, question)
        return int.from_bytes(key) < self._data.held_out * 256 ** len(key)

    def _draw(self, rows: Iterator[Row], limit: int) -> Iterator[Row]:
        """Draw rows by the seed, and keep their order."""
        seed = self._seed or 0
        drawn = heapq.nsmallest(limit, rows, key=lambda row: draw_key(seed, row.id))
        return iter(sorted(drawn, key=lambda row: row.number))

    def _read_rows(
        self, files: Mapping[Path, DataFile], split: str, counts: Counts
    ) -> Iterator[Row]:
        """Yield all rows, each with an id of its own; add up the rows of each file."""
        places: dict[str, str] = {}
        for path, file in files.items():
            for row in read_rows(path, name=file.name, start=sum(counts.values())):
                counts[path] += 1
                name = self._id_of(row, split)
                if name in places:
                    raise TaskError(f"{row.where}: the id {name!r} is also that of {places[name]}")
                places[name] = row.where
                yield replace(row, task=self.name, id=name, seed=self._seed)
            if file.rows not in (None, counts[path]):
                raise TaskError(
                    f"task {self.name}: {file.name}: got {counts[path]} rows, expected {file.rows}"
                )

    def _id_of(self, row: Row, split: str) -> str:
        field = self._shape_of(row).id
        if field is None:
            return f"{self.name}/{split}/{row.number}"
        name = row.identity(field)
        return name if isinstance(name, str) else f"{self.name}/{name}"

    def _shape_of(self, row: Row) -> Shape:
        """Return the first shape whose fields are all there.

        Else it is the nearest one, whose adapter says what is missing.
        """

        def share(shape: Shape) -> float:
            return sum(name in row.values for name in shape.fields) / len(shape.fields)

        for shape in self._data.shapes:
            if share(shape) == 1:
                return shape
        return max(reversed(self._data.shapes), key=share)


def digest(digests: Sequence[str]) -> str:
    """Return one digest for all files; see ``Source.sha256``."""
    if len(digests) == 1:
        return digests[0]
    lines = "".join(f"{value}\n" for value in digests)
    return hashlib.sha256(lines.encode()).hexdigest()


def fetch(
    dataset: Dataset, split: str, *, revision: str | None
) -> tuple[dict[Path, DataFile], Source]:
    """Fetch the files of a split; return their local copies with the facts known at their commit.

    Args:
        dataset: holds them.
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
    hub = _Hub()
    files: dict[Path, DataFile] = {}
    for file in dataset.splits[split]:
        # The commit of the first file is that of the others.
        path, commit = hub.download(dataset, file.name, commit or None)
        known = file if commit == dataset.revision else DataFile(file.name)
        files[path] = replace(known, name=f"{dataset.id}/{file.name}")
    if not pinned:
        loaded = f"{dataset.id} is not pinned; loaded commit {commit}"
        message = f"task {dataset.name}: {loaded}; to load it again: revision={commit!r}"
        warnings.warn(message, UnpinnedData, stacklevel=2)
    return files, Source(dataset.id, split, commit, pinned, dataset.licence)


class _Hub:
    """The client of the hub. If the hub cannot be reached, it gives what its cache holds.

    By itself the client would try to reach it for half a minute, file by file.
    """

    def __init__(self) -> None:
        needs("datasets")  # so that one message names one extra, whichever part of it is missing
        self._client: Any = needs("huggingface_hub")
        errors: Any = needs("huggingface_hub.errors")
        self._faults = (OSError, ValueError, errors.HTTPError, errors.EntryNotFoundError)
        self._fault = ""
        address = self._client.constants.ENDPOINT
        try:
            self._client.get_session().head(address, timeout=HUB_SECONDS)
        except self._faults as error:
            self._fault = f"{address} cannot be reached: {_reason(error)}"

    def download(self, dataset: Dataset, file: str, revision: str | None) -> tuple[Path, str]:
        """Return the local copy of a file, and its commit."""
        try:
            path = Path(
                self._client.hf_hub_download(
                    dataset.id,
                    file,
                    repo_type="dataset",
                    revision=revision,
                    local_files_only=bool(self._fault),
                )
            )
        except self._faults as error:
            commit = revision or "its newest commit"
            gate = " (its terms must be accepted there, and HF_TOKEN set)" if dataset.gated else ""
            raise TaskError(
                f"task {dataset.name}: {dataset.id}/{file} at {commit}{gate} could not be fetched: "
                f"{self._fault or _reason(error)}; expected a network, or {_LOCAL}"
            ) from error
        # The cache keeps a file as .../snapshots/<commit>/<its path>.
        return path, path.parts[-len(Path(file).parts) - 1]


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
