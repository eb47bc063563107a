"""Benchmarks: problems and the grader that judges them.

``TASKS`` names them lazily as ``module:attribute``; each attribute is a ``Dataset``, or makes a
task of options. Other packages add theirs with the entry-point group ``openconductor.tasks``, or
are named as ``module:attribute``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from openconductor.config import check_option, load_registered, shorten
from openconductor.errors import ConfigError
from openconductor.tasks.data.items import Benchmark

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
    "specialists": "openconductor.tasks.specialists:SpecialistsTask",
}

_INTEGERS = {"limit", "seed"}
_OWN_ROWS = (
    "rows of your own are read as one of these tasks reads its data: --task mine=rlpr "
    "--task-path mine=FILE (docs/tasks.md, local rows)"
)
_EXPECTED = "expected a Dataset, or a callable that makes a Benchmark whose grader has `grade`"


def load_task(name: str, **options: object) -> Benchmark:
    """Return the task registered under a name. Nothing is read before its problems are asked for.

    Args:
        name: one of ``TASKS``, an entry point, or ``module:attribute``.
        **options: ``path`` (a local file or folder), ``revision`` (a commit of the data set),
            ``split`` (the one that ``load()`` loads), ``limit``, ``seed`` and ``sha256`` (the
            expected hash of the bytes); None: the default. Some tasks take fewer, and ``paper_mix``
            also ``outcomes``.

    Raises:
        ConfigError: the task or the option is unknown (names the nearest), the option is of a wrong
            type, or the name makes no task.
    """
    make: Any
    try:
        make = load_registered(TASKS, name, what="task")
    except ConfigError as error:
        if ":" in name:
            raise
        raise ConfigError(f"{error}; {_OWN_ROWS}") from error
    if not callable(make):
        from openconductor.tasks.data.dataset import Dataset, DatasetTask

        if not isinstance(make, Dataset):
            raise ConfigError(f"task {name}: got {shorten(make)}, {_EXPECTED}")
        make = partial(DatasetTask, make)
    given = {option: value for option, value in options.items() if value is not None}
    _check_options(f"task {name}", given, cast("Callable[..., object]", make))
    try:
        task = make(**given)
    except TypeError as error:  # an abstract method, or a parameter that no option names
        raise ConfigError(f"task {name}: {error}; {_EXPECTED}") from error
    if not isinstance(task, Benchmark) or not hasattr(task.grader, "grade"):
        raise ConfigError(f"task {name}: made {shorten(task)}, {_EXPECTED}")
    return task


def _check_options(where: str, options: Mapping[str, object], make: Callable[..., object]) -> None:
    parameters = inspect.signature(make).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for option, value in options.items():
        if not takes_any:
            check_option(option, parameters, where)
        if option in _INTEGERS:
            valid = isinstance(value, int) and not isinstance(value, bool)
            expected = "an integer"
        else:
            valid = isinstance(value, str | Path) and value != ""
            expected = "a text"
        if not valid:
            raise ConfigError(
                f"{where}: option {option}: got {shorten(value)}, expected {expected}"
            )


__all__ = ["TASKS", "Benchmark", "load_task"]
