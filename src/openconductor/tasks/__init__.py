"""Benchmarks: problems and the grader that judges them. In: a name and options. Out: a task.

``TASKS`` names them lazily as ``module:attribute``; each attribute is a ``Dataset``, or makes a task of options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from openconductor.config import load_registered, nearest, shorten
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


def load_task(name: str, **options: object) -> Benchmark:
    """The task registered under a name. Nothing is read before its problems are asked for.

    Args:
        name: one of ``TASKS``.
        **options: ``path`` (a local file or folder), ``revision`` (a commit of the data set), ``split`` (what
            ``load()`` loads), ``limit``, ``seed`` and ``sha256`` (what the bytes must hash to); None is the default.
            Some tasks take fewer, and ``paper_mix`` also ``outcomes``.

    Raises:
        ConfigError: there is no such task, or it has no such option, or the option is of a wrong type; names the
            nearest.
    """
    made = load_registered(TASKS, name, what="task")
    if isinstance(made, type):
        make = cast("Callable[..., Benchmark]", made)
    else:
        from openconductor.tasks.dataset import Dataset, DatasetTask

        make = partial(cast("Callable[..., Benchmark]", DatasetTask), cast("Dataset", made))
    known = list(inspect.signature(make).parameters)
    given = {option: value for option, value in options.items() if value is not None}
    for option, value in given.items():
        if option not in known:
            raise ConfigError(
                f"task {name}: got the option {option!r}, expected one of {', '.join(known)}; "
                f"nearest: {nearest(option, known)!r}"
            )
        wanted = (int,) if option in _INTEGERS else (str, Path)
        if not isinstance(value, wanted) or isinstance(value, bool) or value == "":
            expected = "an integer" if wanted == (int,) else "a text"
            raise ConfigError(f"task {name}: option {option}: got {shorten(value)}, expected {expected}")
    return make(**given)


__all__ = ["TASKS", "Benchmark", "load_task"]
