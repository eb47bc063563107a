"""Benchmarks: problems and the grader that judges them. In: a name and options. Out: a task.

``TASKS`` names them lazily as ``module:attribute``; each attribute is a ``Dataset``, or makes a
task of options. Other packages add theirs with the entry-point group ``openconductor.tasks``, or
are named as ``module:attribute``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from openconductor.config import check_option, load_registered, shorten
from openconductor.errors import ConfigError
from openconductor.tasks.items import Benchmark

TASKS: dict[str, str] = {
    "aime25": "openconductor.tasks.math:AIME25",
    "bigcodebench_hard": "openconductor.tasks.code:BIGCODEBENCH_HARD",
    "gpqa_diamond": "openconductor.tasks.choice:GPQA_DIAMOND",
    "gsm8k": "openconductor.tasks.math:GSM8K",
    "gym": "openconductor.tasks.gym:GymTask",
    "humaneval": "openconductor.tasks.code:HUMANEVAL",
    "livecodebench_v1": "openconductor.tasks.livecodebench:LIVECODEBENCH_V1",
    "livecodebench_v6": "openconductor.tasks.livecodebench:LIVECODEBENCH_V6",
    "math": "openconductor.tasks.math:MATH",
    "math500": "openconductor.tasks.math:MATH500",
    "mbpp": "openconductor.tasks.code:MBPP",
    "mmlu": "openconductor.tasks.choice:MMLU",
    "paper_mix": "openconductor.tasks.paper_mix:PaperMix",
    "replay": "openconductor.tasks.replay:ReplayTask",
    "rlpr": "openconductor.tasks.rlpr:RLPR",
}

_INTEGERS = {"limit", "seed"}
_EXPECTED = "expected a Dataset, or what makes a Benchmark whose grader has `grade`"


def load_task(name: str, **options: object) -> Benchmark:
    """The task registered under a name. Nothing is read before its problems are asked for.

    Args:
        name: one of ``TASKS``, an entry point, or ``module:attribute``.
        **options: ``path`` (a local file or folder), ``revision`` (a commit of the data set),
            ``split`` (what ``load()`` loads), ``limit``, ``seed`` and ``sha256`` (what the bytes
            must hash to); None is the default. Some tasks take fewer, and ``paper_mix`` also
            ``outcomes``.

    Raises:
        ConfigError: there is no such task, or it has no such option, or the option is of a wrong
            type; names the nearest. Or what has the name makes no task.
    """
    make: Any = load_registered(TASKS, name, what="task")
    if not callable(make):
        from openconductor.tasks.dataset import Dataset, DatasetTask

        if not isinstance(make, Dataset):
            raise ConfigError(f"task {name}: got {shorten(make)}, {_EXPECTED}")
        make = partial(DatasetTask, make)
    known = inspect.signature(cast("Callable[..., object]", make)).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in known.values())
    given = {option: value for option, value in options.items() if value is not None}
    for option, value in given.items():
        if not takes_any:
            check_option(option, known, f"task {name}")
        kinds, expected = ((int,), "an integer") if option in _INTEGERS else ((str, Path), "a text")
        if not isinstance(value, kinds) or isinstance(value, bool) or value == "":
            raise ConfigError(
                f"task {name}: option {option}: got {shorten(value)}, expected {expected}"
            )
    try:
        task = make(**given)
    except TypeError as error:  # an abstract method, or a parameter that no option names
        raise ConfigError(f"task {name}: {error}; {_EXPECTED}") from error
    if not isinstance(task, Benchmark) or not hasattr(task.grader, "grade"):
        raise ConfigError(f"task {name}: made {shorten(task)}, {_EXPECTED}")
    return task


__all__ = ["TASKS", "Benchmark", "load_task"]
