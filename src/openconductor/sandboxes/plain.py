"""No sandbox: a plain process in a temporary folder, with limits. Only for trusted programs.

It limits CPU, memory of one process, sizes of files and output, and the clock. It does not protect:
a program reads and writes whatever the caller may, reaches the network, sees and signals the
caller's other processes, and processes that leave its group outlive it. Only an explicit flag opens
it, and every result says ``plain``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress

from openconductor.errors import ConfigError
from openconductor.sandboxes import Limits
from openconductor.sandboxes.place import TEMPORARY
from openconductor.sandboxes.session import BOOTSTRAP, PYTHON_FLAGS, BatchedSandbox, Launch


class PlainSandbox(BatchedSandbox):
    """The backend ``plain``, which protects nothing.

    Args:
        unsafe: must be True; the caller accepts that programs may do anything.

    Raises:
        ConfigError: ``unsafe`` is not True.
    """

    level = "plain"

    def __init__(self, *, unsafe: bool = False) -> None:
        super().__init__()
        if unsafe is not True:
            raise ConfigError("sandbox 'plain': it protects nothing, so it requires unsafe=True")

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        """Yield a Launch with a temporary folder of its own."""
        folder = tempfile.TemporaryDirectory(prefix=TEMPORARY, ignore_cleanup_errors=True)
        try:
            setup = {"scratch": os.path.realpath(folder.name), "private": False}
            yield Launch((sys.executable, *PYTHON_FLAGS, "-c", BOOTSTRAP), setup)
        finally:
            with suppress(RecursionError):  # a tree deeper than Python's stack stays where it is
                folder.cleanup()
