"""``openconductor doctor``: report what works on this machine.

The report has versions, extras with the command that installs them, the core and the bundled
Conductor, the sandbox for programs, and the names (never the values) of API keys in the
environment.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

import typer
from packaging.requirements import Requirement
from rich.text import Text

import openconductor as oc
from openconductor import sandboxes
from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.conductor import Planner
from openconductor.gym import bundled
from openconductor.gym.questions import EXAMPLE
from openconductor.gym.workers import gym_pool
from openconductor.providers import resolve

_KEY = re.compile(r"[A-Z0-9_]*_API_KEY")
_NOT_FOR_USERS = {"all", "bench", "dev"}

Report = dict[str, object]


def doctor(as_json: AsJson = False) -> None:
    """Say what works, and what would install the rest."""
    report = examine()
    if as_json:
        console.show_json(report)
    else:
        _show_report(report)
    if not report["ok"]:
        raise typer.Exit(console.FAILED)


def examine() -> Report:
    """Return the report; ``ok`` is True if the core works."""
    core = _check_core()
    level, faults = sandboxes.survey()
    keys = [name for name, value in os.environ.items() if value and _KEY.fullmatch(name)]
    return {
        "ok": core["works"],
        "version": oc.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "core": core,
        "extras": _check_extras(),
        "conductor": _check_bundled(),
        "sandbox": {"works": level is not None, "level": level, "faults": faults},
        "torch": _check_torch(),
        "keys": sorted(keys),
    }


def _check_core() -> Report:
    """Plan and execute a workflow of two steps with functions as workers."""
    steps = (oc.Step(0, "Say yes."), oc.Step(1, "Repeat it.", (0,)))
    plan = oc.render_workflow(oc.Workflow(steps))
    first = oc.Worker(lambda _: "yes", name="first")
    second = oc.Worker(lambda messages: messages[-2].content, name="second")
    episode, error = _ask(lambda _: plan, oc.WorkerPool([first, second]))
    if episode is not None and error is None and episode.answer != "yes":
        error = f"got the answer {episode.answer!r}, expected 'yes'"
    return {"works": error is None, "error": error}


def _check_bundled() -> Report:
    """Let the bundled Conductor plan and answer one question."""
    begun = time.perf_counter()
    try:
        planner = resolve(bundled.bundled_folder())
    except (oc.OpenConductorError, ImportError) as error:
        return {"works": False, "error": str(error)}
    load_seconds = time.perf_counter() - begun
    episode, error = _ask(planner, gym_pool())
    if episode is None or error is not None:
        return {"works": False, "error": error}
    return {
        "works": True,
        "error": None,
        "load_seconds": round(load_seconds, 3),
        "ask_seconds": round(episode.seconds, 3),
        "steps": len(episode.rounds[0].workflow or ()),
    }


def _ask(planner: Planner, pool: oc.WorkerPool) -> tuple[oc.Episode | None, str | None]:
    """Ask a question; return the episode, and the error if there was one."""
    try:
        episode = oc.Conductor(planner, pool=pool).ask_sync(EXAMPLE)
    except (oc.OpenConductorError, ImportError) as error:
        return None, str(error)
    return episode, None if episode.error is None else str(episode.error)


def _check_extras() -> dict[str, Report]:
    """Return the packages of each extra with their installed versions."""
    requirements = [Requirement(line) for line in requires("openconductor") or ()]
    extras: dict[str, Report] = {}
    for name in metadata("openconductor").get_all("Provides-Extra") or ():
        if name in _NOT_FOR_USERS:
            continue
        packages: dict[str, str | None] = {}
        for requirement in requirements:
            marker = requirement.marker
            of_extra = marker is not None and marker.evaluate({"extra": name})
            if of_extra and requirement.name != "openconductor":
                packages[requirement.name] = _version(requirement.name)
        complete = all(packages.values())
        install = None if complete else f'pip install "openconductor[{name}]"'
        extras[name] = {"installed": complete, "packages": packages, "install": install}
    return extras


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _check_torch() -> Report | None:
    """Return threads and devices of torch, which is imported only here. None: not installed."""
    if find_spec("torch") is None:
        return None
    try:
        torch = importlib.import_module("torch")
        cuda = torch.cuda
        places = range(cuda.device_count())
        devices: list[str] = [cuda.get_device_name(place) for place in places]
        threads = torch.get_num_threads()
    except (ImportError, OSError, RuntimeError) as error:  # a broken installation or driver
        return {"version": _version("torch"), "error": str(error)}
    return {"version": _version("torch"), "threads": threads, "devices": devices or ["cpu"]}


# ── for people ────────────────────────────────────────────────────────────────────────────────────
class _Line(NamedTuple):
    """A line of the report; ``good`` is None for plain information."""

    good: bool | None
    name: str
    text: str


def _show_report(report: Report) -> None:
    """Print a line for each part: a mark, its name, and the details."""
    marks = {
        None: Text(),
        True: Text("✓", style="green"),
        False: Text("✗", style="red"),
    }
    lines = _lines(cast("dict[str, Any]", report))
    console.show_marked((marks[line.good], line.name, line.text) for line in lines)


def _lines(report: dict[str, Any]) -> Iterator[_Line]:
    machine = f"Python {report['python']}, {report['platform']}, {report['cores']} cores"
    yield _Line(None, "openconductor", f"{report['version']} on {machine}")
    core, planner = report["core"], report["conductor"]
    yield _Line(core["works"], "core", core["error"] or "plans and executes a workflow")
    for name, extra in report["extras"].items():
        yield _Line(extra["installed"], f"extra {name}", _extra_text(extra))
    text = planner["error"]
    if text is None:
        load, ask = planner["load_seconds"], planner["ask_seconds"]
        text = f"loads in {load} s, plans and answers in {ask} s"
    yield _Line(planner["works"], "bundled Conductor", text)
    yield _Line(report["sandbox"]["works"], "sandbox", _sandbox_text(report["sandbox"]))
    torch = report["torch"]
    if torch:
        text = torch.get("error")
        if text is None:
            text = f"{', '.join(torch['devices'])}; {torch['threads']} threads"
        yield _Line("error" not in torch, "torch", f"{torch['version']}: {text}")
    keys = ", ".join(report["keys"])
    yield _Line(None, "API keys", keys or "none in the environment (models behind an API need one)")


def _extra_text(extra: dict[str, Any]) -> str:
    packages = extra["packages"].items()
    missing = [package for package, number in packages if not number]
    if missing:
        return f"missing {', '.join(missing)}; {extra['install']}"
    return ", ".join(f"{package} {number}" for package, number in packages)


def _sandbox_text(sandbox: dict[str, Any]) -> str:
    faults = "; ".join(sandbox["faults"].values())
    if not sandbox["works"]:
        return f"none, so programs cannot be graded: {faults}"
    text = f"{sandbox['level']}, in which programs are graded"
    return f"{text} ({faults})" if faults else text
