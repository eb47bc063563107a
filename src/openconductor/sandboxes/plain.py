"""No sandbox: a plain process in a temporary folder, with limits. Only for programs that somebody answers for.

In: limits. Out: the command that starts a Python, in a session of its own with a fixed environment.
What holds: CPU, memory of one process, sizes of files and output, and the clock. What does not: a
program reads and writes whatever the caller may, reaches the network, sees and signals the caller's
other processes, and what leaves its process group outlives it. It is opened by an explicit flag
alone, and every result says ``plain``.
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
    """See the module's docstring.

    Args:
        unsafe: must be True: whoever opens this says that the programs may do whatever they like.

    Raises:
        ConfigError: ``unsafe`` is not True.
    """

    level = "plain"

    def __init__(self, *, unsafe: bool = False) -> None:
        super().__init__()
        if unsafe is not True:
            raise ConfigError(
                "sandbox 'plain': it protects nothing; expected unsafe=True from whoever wants that"
            )

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        """A Launch with a temporary folder of its own."""
        folder = tempfile.TemporaryDirectory(prefix=TEMPORARY, ignore_cleanup_errors=True)
        try:
            setup = {"scratch": os.path.realpath(folder.name), "private": False}
            yield Launch((sys.executable, *PYTHON_FLAGS, "-c", BOOTSTRAP), setup)
        finally:
            with suppress(RecursionError):  # a tree deeper than Python's stack stays where it is
                folder.cleanup()
