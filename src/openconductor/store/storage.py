"""How files are written: whole or not at all.

In: a path and its content. Out: a file that no reader ever sees half-written, on the disk when the
call returns; a JournalError where the disk fails.
"""

from __future__ import annotations

import os
from pathlib import Path

from openconductor.errors import JournalError


def write_whole(path: Path, content: str | bytes) -> None:
    r"""Write a file: to a neighbour first, which then takes its place. Texts are UTF-8 with ``\\n`` at the lines' ends.

    Raises:
        JournalError: it could not be written; what stood there before stays.
    """
    part = path.with_name(path.name + ".part")
    try:
        try:
            with part.open("wb") as stream:
                stream.write(content.encode() if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise JournalError(f"{path}: could not be written: {error.strerror or error}") from error


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, where they are not there.

    Raises:
        JournalError: that failed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(f"{folder}: could not be made: {error.strerror or error}") from error
