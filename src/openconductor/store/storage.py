"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from openconductor.errors import JournalError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that no reader sees half-written; it is on the disk when this returns.

    It is written beside its place and then moved there, also by several processes at once. A text
    becomes UTF-8.

    Raises:
        JournalError: it could not be written; the earlier file stays.
    """
    data = content.encode() if isinstance(content, str) else content
    part = path.with_name(f"{path.name}.{uuid4().hex[:8]}.part")
    try:
        try:
            with part.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise JournalError(f"{path}: could not be written: {error.strerror or error}") from error


def make_folder(folder: Path) -> None:
    """Create a folder, and its parents, unless they exist.

    Raises:
        JournalError: a folder could not be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(f"{folder}: could not be made: {error.strerror or error}") from error
