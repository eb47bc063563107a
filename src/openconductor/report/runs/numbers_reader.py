"""Reading the numbers of evaluations in a process of their own, for a server.

``runs.numbers`` takes seconds and a hundred megabytes; a server that shows its numbers spends
neither. The numbers are kept until the evaluation changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

import openconductor
from openconductor.errors import ConfigError

RENEW_S = 30.0
"""How often the numbers of an evaluation that changes are read again."""
KEPT = 4
"""The evaluations whose numbers are kept."""
_MOST_S = 600.0  # of a reading, for which the others wait

# Modules come from the installation and from this package, never from the current folder (-P).
_PROGRAM = """
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module("openconductor.report.runs.numbers", run_name="__main__")
"""

Numbers = Mapping[str, Any]
"""What ``read_numbers`` returns."""


class _Reading(NamedTuple):
    """Numbers to come: of which version of the evaluation, and since when they are read."""

    version: str
    begun: float
    numbers: Future[Numbers]

    def serves(self, version: str, *, running: bool) -> bool:
        """Return True if these numbers are shown of a version, which may change all the time."""
        is_recent = running and monotonic() - self.begun < RENEW_S
        return self.version == version or is_recent or not self.numbers.done()


class NumbersReader:
    """Reads numbers, of one evaluation at a time."""

    def __init__(self) -> None:
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="numbers")
        self._kept: dict[Path, _Reading] = {}  # the one that was shown last comes last
        self._choosing = Lock()

    def read(self, folder: Path, version: str, *, running: bool) -> Future[Numbers]:
        """Return the numbers of the evaluation in a folder, or that they are still to come.

        Args:
            folder: the folder.
            version: changes with its files.
            running: True if it changes all the time; then the numbers may be a little older.
        """
        with self._choosing:
            reading = self._kept.pop(folder, None)
            if reading is None or not reading.serves(version, running=running):
                reading = _Reading(version, monotonic(), self._reader.submit(_read, folder))
            self._kept[folder] = reading
            if len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return reading.numbers


def _read(folder: Path) -> Numbers:
    """Read the numbers of an evaluation in a process.

    Raises:
        ConfigError: it failed, or took too long; says why.
    """
    home = Path(openconductor.__file__).parents[1]
    command = [sys.executable, "-P", "-c", _PROGRAM, str(home), str(folder)]
    try:
        done = subprocess.run(  # noqa: S603 - ours
            command, capture_output=True, text=True, check=False, timeout=_MOST_S
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{folder}: its numbers were not read within {_MOST_S:g} s") from None
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise ConfigError(f"{folder}: its numbers cannot be read: {last}")
    return json.loads(done.stdout)
