"""Benchmarks: problems and the grader that judges them. In: a name and a split. Out: problems.

``TASKS`` names them lazily as ``module:attribute``; each attribute makes a ``Task`` when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from openconductor.protocols import Task
from openconductor.registry import load_registered

TASKS: dict[str, str] = {"gym": "openconductor.tasks.gym:GymTask"}


def load_task(name: str) -> Task:
    """The task registered under a name.

    Raises:
        ConfigError: there is none.
    """
    return cast("Callable[[], Task]", load_registered(TASKS, name, what="task"))()
