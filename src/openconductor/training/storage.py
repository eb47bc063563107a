"""How a run writes to disk: whole or not at all.

In: folders and texts. Out: files that a reader never sees half-written, and typed errors where the disk fails.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from openconductor.errors import JournalError

COMPLETE = "complete"
"""The file that marks a folder as whole; it is written last."""


@contextmanager
def storing(what: Path) -> Generator[None]:
    """Turn a failing disk into a JournalError that says what could not be written.

    torch and safetensors wrap a full disk into errors of their own; both are recognised by the text of the system's.
    """
    try:
        yield
    except OSError as error:
        raise JournalError(f"{what}: could not be written: {error.strerror or error}") from error
    except Exception as error:
        if type(error).__name__ != "SafetensorError" and "PytorchStreamWriter" not in str(error):
            raise
        raise JournalError(f"{what}: could not be written: {error}") from error


@contextmanager
def whole_folder(path: Path) -> Generator[Path]:
    """Fill a folder whole: the block writes to a neighbour, which takes its place at the end."""
    part = path.with_name(path.name + ".part")
    with storing(path):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            yield part
            (part / COMPLETE).write_text("", encoding="utf-8")
            shutil.rmtree(path, ignore_errors=True)
            part.replace(path)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def is_complete(path: Path) -> bool:
    """Whether a folder was written to its end."""
    return (path / COMPLETE).is_file()


def last_checkpoint(folder: Path) -> tuple[Path | None, int]:
    """The newest whole checkpoint and the iterations done by then; unfinished ones are removed."""
    best: tuple[Path | None, int] = (None, 0)
    for path in sorted(folder.glob("checkpoint-*")):
        if not is_complete(path):
            shutil.rmtree(path, ignore_errors=True)
            continue
        done = int(path.name.rpartition("-")[2])
        if done > best[1]:
            best = (path, done)
    return best
