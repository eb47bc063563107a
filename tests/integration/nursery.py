"""A process with everything imported that forks a child for each order, without a start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal


def nursery(live: Callable[[Any], int]) -> None:
    """Fork a child for each line of standard input; at the next line kill it, or wait for it."""
    print("ready", flush=True)
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            code = 1
            with suppress(BaseException), Path(os.devnull).open("w", encoding="utf-8") as nothing:
                sys.stdout = sys.stderr = nothing
                code = live(json.loads(line))
            os._exit(code)
        if sys.stdin.readline() == "kill\n":
            os.kill(
                child, signal.SIGKILL
            )  # nobody has waited for it: where it has ended already, this does nothing
        print(os.waitpid(child, 0)[1], flush=True)


class Nursery:
    """A program that calls ``nursery``, from outside."""

    def __init__(self, program: str) -> None:
        command = [sys.executable, program]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout
        assert self._answers.readline() == "ready\n"

    def begin(self, order: list[str]) -> None:
        """Begin a child's life."""
        print(json.dumps(order), file=self._orders, flush=True)

    def end(self, order: Literal["kill", "wait"]) -> int:
        """Return how it ended, as ``os.waitpid`` says it."""
        print(order, file=self._orders, flush=True)
        return int(self._answers.readline())

    def close(self) -> None:
        self._process.communicate(timeout=200)
