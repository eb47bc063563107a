"""``openconductor doctor``: is everything there that is needed?

In: nothing but the machine. Out: versions, extras with the command that installs them, whether the core and the bundled
Conductor work, the sandbox that programs would run in, and the names (never the values) of the environment's API keys.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Annotated, cast

import typer

from openconductor.cli import console
from openconductor.errors import OpenConductorError

EXTRAS: dict[str, tuple[str, ...]] = {
    "gym": ("numpy", "safetensors", "threadpoolctl", "tokenizers"),
    "train": ("accelerate", "datasets", "torch", "transformers", "trl"),
    "providers": ("pydantic-ai-slim",),
    "mcp": ("mcp",),
    "local": ("torch", "transformers"),
    "grade": ("antlr4-python3-runtime", "math-verify"),
    "tasks": ("datasets",),
    "parquet": ("pyarrow",),
    "baselines": ("numpy", "scikit-learn", "scipy", "threadpoolctl"),
    "plots": ("matplotlib",),
}
"""The packages that each extra brings (a test holds them against pyproject.toml)."""

QUESTION = "Take 4 17 9, sort the list, then double every number."

_KEY = re.compile(r"[A-Z0-9_]*_API_KEY")

Report = dict[str, object]


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False) -> None:
    """Say what is installed, what works, and what would install the rest."""
    report = examine()
    if as_json:
        console.show_json(report)
    else:
        _show(report)
    if not report["ok"]:
        raise typer.Exit(console.FAILED)


def examine() -> Report:
    """The report; ``ok`` says whether the core works."""
    import openconductor

    core = _check_core()
    extras = {name: _check_extra(name, packages) for name, packages in EXTRAS.items()}
    return {
        "ok": core["works"],
        "version": openconductor.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "core": core,
        "extras": extras,
        "conductor": _check_bundled(),
        "sandbox": _check_sandbox(),
        "torch": _check_torch(),
        "keys": sorted(name for name, value in os.environ.items() if value and _KEY.fullmatch(name)),
    }


def _check_core() -> Report:
    """Plan and execute a workflow of two steps with functions for workers."""
    from openconductor.conductor import Conductor
    from openconductor.pool import Worker, WorkerPool
    from openconductor.prompt import render_workflow
    from openconductor.types import Step, Workflow

    plan = render_workflow(Workflow((Step(0, "Say yes."), Step(1, "Repeat it.", (0,)))))
    try:
        first = Worker(lambda messages: "yes", name="first")  # noqa: ARG005 - what a function gets
        second = Worker(lambda messages: messages[-2].content, name="second")
        answer = Conductor(lambda messages: plan, pool=WorkerPool([first, second])).ask_sync("Does it work?").answer  # noqa: ARG005
    except (OpenConductorError, ImportError) as error:
        return {"works": False, "error": str(error)}
    error = None if answer == "yes" else f"got the answer {answer!r}, expected 'yes'"
    return {"works": error is None, "error": error}


def _check_extra(name: str, packages: Sequence[str]) -> Report:
    found = {package: _version(package) for package in packages}
    complete = all(found.values())
    return {
        "installed": complete,
        "packages": found,
        "install": None if complete else f'pip install "openconductor[{name}]"',
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _check_bundled() -> Report:
    """Let the bundled Conductor plan and answer one question."""
    from openconductor.conductor import Conductor
    from openconductor.gym.bundled import bundled_folder
    from openconductor.gym.workers import gym_pool

    try:
        begun = time.perf_counter()
        conductor = Conductor(bundled_folder(), pool=gym_pool())
        loaded = time.perf_counter()
        episode = conductor.ask_sync(QUESTION)
    except (OpenConductorError, ImportError) as error:
        return {"works": False, "error": str(error)}
    if episode.error is not None:
        return {"works": False, "error": str(episode.error)}
    return {
        "works": True,
        "error": None,
        "load_seconds": round(loaded - begun, 3),
        "ask_seconds": round(episode.seconds, 3),
        "steps": len(episode.rounds[0].workflow or ()),
    }


def _check_sandbox() -> Report:
    """Run a program in the best sandbox that there is; what the better ones lack."""
    from openconductor.sandboxes.running import survey

    level, faults = survey()
    return {"works": level is not None, "level": level, "faults": faults}


def _check_torch() -> Report | None:
    """Threads and devices of torch, which is imported only here; None where it is not installed."""
    if find_spec("torch") is None:
        return None
    try:
        torch = importlib.import_module("torch")
        devices = [cast("str", torch.cuda.get_device_name(index)) for index in range(torch.cuda.device_count())]
        return {"version": _version("torch"), "threads": torch.get_num_threads(), "devices": devices or ["cpu"]}
    except (ImportError, OSError, RuntimeError) as error:  # a broken installation, a driver that does not fit
        return {"version": _version("torch"), "error": str(error)}


# ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────────
def _show(report: Report) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console.results()
    right, wrong = ("ok", "no") if screen.options.ascii_only else ("✓", "✗")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")

    def row(good: bool | None, name: str, text: str) -> None:
        mark = Text("") if good is None else Text(right, style="green") if good else Text(wrong, style="red")
        table.add_row(mark, name, Text(console.printable(text)))

    row(
        None,
        "openconductor",
        f"{report['version']} on Python {report['python']}, {report['platform']}, {report['cores']} cores",
    )
    core = cast("Report", report["core"])
    row(bool(core["works"]), "core", "plans and executes a workflow" if core["works"] else str(core["error"]))
    for name, found in cast("dict[str, Report]", report["extras"]).items():
        row(bool(found["installed"]), f"extra {name}", _extra_line(found))
    bundled = cast("Report", report["conductor"])
    answered = f"loads in {bundled.get('load_seconds')} s, plans and answers in {bundled.get('ask_seconds')} s"
    row(bool(bundled["works"]), "bundled Conductor", answered if bundled["works"] else str(bundled["error"]))
    sandbox = cast("Report", report["sandbox"])
    row(bool(sandbox["works"]), "sandbox", _sandbox_line(sandbox))
    torch = cast("Report | None", report["torch"])
    if torch is not None:
        broken = "error" in torch
        devices = str(torch.get("error")) if broken else ", ".join(cast("list[str]", torch["devices"]))
        threads = "" if broken else f"; {torch['threads']} threads"
        row(not broken, "torch", f"{torch['version']}: {devices}{threads}")
    keys = cast("list[str]", report["keys"])
    row(None, "API keys", ", ".join(keys) if keys else "none in the environment (models behind an API need theirs)")
    screen.print(table)


def _sandbox_line(sandbox: Report) -> str:
    faults = "; ".join(cast("dict[str, str]", sandbox["faults"]).values())
    if not sandbox["works"]:
        return f"none, so that no program can be graded: {faults}"
    return f"{sandbox['level']}, in which programs are graded" + (f" ({faults})" if faults else "")


def _extra_line(found: Report) -> str:
    packages = cast("dict[str, str | None]", found["packages"])
    have = ", ".join(f"{name} {number}" for name, number in packages.items() if number)
    if found["installed"]:
        return have
    missing = ", ".join(name for name, number in packages.items() if not number)
    return f"missing {missing}; {found['install']}"
