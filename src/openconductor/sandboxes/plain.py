"""No sandbox: a plain process in a temporary folder, with limits. Only for programs that somebody answers for.

In: limits. Out: the command that starts a Python, in a session of its own with a fixed environment. What holds: CPU,
memory of one process, sizes of files and output, and the clock. What does not: a program reads and writes whatever the
caller may, reaches the network, sees and signals the caller's other processes, and a daemon of its own session outlives
it. It is opened by an explicit flag alone, and every result says ``plain``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

from openconductor.errors import ConfigError
from openconductor.sandboxes.batches import BatchedSandbox
from openconductor.sandboxes.session import BOOTSTRAP, PYTHON_FLAGS, Launch
from openconductor.sandboxes.values import Limits


class PlainSandbox(BatchedSandbox):
    """See the module's docstring.

    Args:
        unsafe: must be True: whoever opens this says that the programs may do whatever they like.
        python: the interpreter; None: the one that runs this.
        packages: whether programs can import what is installed for it.
        concurrency: processes at one time; None: half as many again as cores.

    Raises:
        ConfigError: ``unsafe`` is not True.
    """

    level = "plain"

    def __init__(
        self, *, unsafe: bool = False, python: str | None = None, packages: bool = False, concurrency: int | None = None
    ) -> None:
        super().__init__(concurrency=concurrency)
        if unsafe is not True:
            raise ConfigError("sandbox 'plain': it protects nothing; expected unsafe=True from whoever wants that")
        self._python = python or sys.executable
        self._flags = tuple(flag for flag in PYTHON_FLAGS if not (packages and flag == "-S"))

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        """A Launch with a temporary folder of its own."""
        with tempfile.TemporaryDirectory(prefix="openconductor-", ignore_cleanup_errors=True) as folder:
            scratch = os.path.realpath(folder)
            yield Launch(
                command=(self._python, *self._flags, "-c", BOOTSTRAP),
                level=self.level,
                setup={"uid": None, "scratch": scratch, "private": False, "paths": [], "count_processes": False},
                isolated=False,
                same_python=os.path.realpath(self._python) == os.path.realpath(sys.executable),
            )
