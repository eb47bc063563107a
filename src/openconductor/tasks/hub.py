"""Data sets on the Hugging Face hub, by commit and file. In: which files of which commit. Out: local paths to them.

Files are fetched one by one and checked against their SHA-256 before anything reads them; no script of a data set is
ever run. Fetching takes the extra ``tasks`` (``datasets`` and the hub client below it); what was fetched before is read
from the client's cache, also without a network.

A commit or digest is in a task's data only where independent public records agree on it (docs/tasks.md lists
them). Where none could be had, the revision is None: the newest commit is taken, with a warning, and recorded.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openconductor.errors import TaskError
from openconductor.tasks.rows import needs, sha256_of

COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a data set; its digest and its rows at the pinned commit, where they are known."""

    path: str
    sha256: str | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A data set on the hub.

    Attributes:
        id: its name there.
        revision: the commit; None where none is known for certain.
        licence: of the data.
        splits: the files of each split, the default split first.
        gated: whether its publishers ask who reads it.
    """

    id: str
    revision: str | None
    licence: str
    splits: Mapping[str, tuple[HubFile, ...]]
    gated: bool = False


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file on this machine: what errors and records call it, its SHA-256, and how many rows it must hold if known."""

    path: Path
    name: str
    sha256: str
    rows: int | None = None


def parquet(path: str, sha256: str | None, rows: int) -> tuple[HubFile, ...]:
    """A split of one file, the only shard of Parquet."""
    return (HubFile(f"{path}-00000-of-00001.parquet", sha256, rows),)


class UnpinnedData(UserWarning):
    """Data of no fixed commit: the same name may hold other problems tomorrow."""


def fetch(dataset: HubDataset, split: str, *, task: str, revision: str | None) -> tuple[list[DataFile], str, bool]:
    """Fetch the files of a split of the task's data set.

    Args:
        dataset: where they are.
        split: one of its splits.
        task: whose data; for errors.
        revision: another commit, branch or tag than the data set's; no digest is known of it.

    Returns:
        The files, their commit, and whether they are pinned by a full commit hash.

    Raises:
        TaskError: they cannot be had, or are not what they were. Says how to continue with a local file.
        ConfigError: the extra is not installed.
    """
    commit = revision or dataset.revision or ""
    pinned = COMMIT.fullmatch(commit) is not None
    files: list[DataFile] = []
    for file in dataset.splits[split]:
        name = f"{dataset.id}/{file.path}"
        path, commit = _download(dataset, file, commit or None, task)  # the other files are of the same commit
        found, known = sha256_of(path, name=name), commit == dataset.revision
        if known and file.sha256 not in (None, found):
            raise TaskError(
                f"task {task}: {name} at {commit}: got the SHA-256 {found}, expected {file.sha256}; "
                "delete it from the hub's cache to fetch it anew"
            )
        files.append(DataFile(path, name, found, file.rows if known else None))
    if not pinned:
        again = f"{dataset.id} is not pinned; loaded commit {commit}; to load it again: revision={commit!r}"
        warnings.warn(f"task {task}: {again}", UnpinnedData, stacklevel=2)
    return files, commit, pinned


def _download(dataset: HubDataset, file: HubFile, revision: str | None, task: str) -> tuple[Path, str]:
    """The local copy of a file, and its commit."""
    needs("datasets")  # so that one message names one extra, whichever part of it is missing
    hub: Any = needs("huggingface_hub")
    errors: Any = needs("huggingface_hub.errors")
    try:
        path = Path(hub.hf_hub_download(dataset.id, file.path, repo_type="dataset", revision=revision))
    except (OSError, ValueError, errors.HTTPError, errors.EntryNotFoundError) as error:
        gate = " (its terms must be accepted there, and HF_TOKEN set)" if dataset.gated else ""
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TaskError(
            f"task {task}: {dataset.id}/{file.path} at {revision or 'its newest commit'}{gate} could not be fetched: "
            f"{reason}; expected a network, or a local file of JSON Lines: path=FILE (`task`: --path FILE, `eval`: "
            "--task-path NAME=FILE)"
        ) from error
    # The cache keeps a file as .../snapshots/<commit>/<its path>.
    return path, path.parts[-len(Path(file.path).parts) - 1]
