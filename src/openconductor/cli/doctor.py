"""``openconductor doctor``: is everything there that is needed?

In: nothing but the machine. Out: versions, extras with the command that installs them, whether the
core and the bundled Conductor work, the sandbox that programs would run in, and the names (never
the values) of the environment's API keys.
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
from typing import Any, cast

import typer
from packaging.requirements import Requirement
from rich.table import Table
from rich.text import Text

import openconductor as oc
from openconductor import sandboxes
from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.conductor import Planner
from openconductor.gym import bundled
from openconductor.gym.workers import gym_pool
from openconductor.providers import resolve

QUESTION = "Take 4 17 9, sort the list, then double every number."

_KEY = re.compile(r"[A-Z0-9_]*_API_KEY")
_NOT_FOR_USERS = {"all", "bench", "dev"}

Report = dict[str, object]


def doctor(as_json: AsJson = False) -> None:
    """Say what works, and what would install the rest."""
    report = examine()
    if as_json:
        console.show_json(report)
    else:
        show_report(report)
    if not report["ok"]:
        raise typer.Exit(console.FAILED)


def examine() -> Report:
    """The report; ``ok`` says whether the core works."""
    core = _check_core()
    level, faults = sandboxes.survey()
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
        "keys": sorted(
            name for name, value in os.environ.items() if value and _KEY.fullmatch(name)
        ),
    }


def _check_core() -> Report:
    """Plan and execute a workflow of two steps with functions for workers."""
    plan = oc.render_workflow(oc.Workflow((oc.Step(0, "Say yes."), oc.Step(1, "Repeat it.", (0,)))))
    first = oc.Worker(lambda messages: "yes", name="first")  # noqa: ARG005 - what a function gets
    second = oc.Worker(lambda messages: messages[-2].content, name="second")
    episode, error = _ask(lambda messages: plan, oc.WorkerPool([first, second]))  # noqa: ARG005
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
    loaded = time.perf_counter() - begun
    episode, error = _ask(planner, gym_pool())
    if episode is None or error is not None:
        return {"works": False, "error": error}
    seconds = {"load_seconds": round(loaded, 3), "ask_seconds": round(episode.seconds, 3)}
    return {"works": True, "error": None, **seconds, "steps": len(episode.rounds[0].workflow or ())}


def _ask(planner: Planner, pool: oc.WorkerPool) -> tuple[oc.Episode | None, str | None]:
    """One question answered, or why it was not."""
    try:
        episode = oc.Conductor(planner, pool=pool).ask_sync(QUESTION)
    except (oc.OpenConductorError, ImportError) as error:
        return None, str(error)
    return episode, None if episode.error is None else str(episode.error)


def _check_extras() -> dict[str, Report]:
    """The packages of each extra, as the installed package declares them, with their versions."""
    declared = [Requirement(line) for line in requires("openconductor") or ()]
    found: dict[str, Report] = {}
    for name in metadata("openconductor").get_all("Provides-Extra") or ():
        if name in _NOT_FOR_USERS:
            continue
        wanted = [
            one.name
            for one in declared
            if one.marker is not None and one.marker.evaluate({"extra": name})
        ]
        packages = {package: _version(package) for package in wanted if package != "openconductor"}
        complete = all(packages.values())
        install = None if complete else f'pip install "openconductor[{name}]"'
        found[name] = {"installed": complete, "packages": packages, "install": install}
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _check_torch() -> Report | None:
    """Threads and devices of torch, which is imported only here; None where it is not installed."""
    if find_spec("torch") is None:
        return None
    try:
        torch = importlib.import_module("torch")
        devices = [
            cast("str", torch.cuda.get_device_name(index))
            for index in range(torch.cuda.device_count())
        ]
        return {
            "version": _version("torch"),
            "threads": torch.get_num_threads(),
            "devices": devices or ["cpu"],
        }
    except (
        ImportError,
        OSError,
        RuntimeError,
    ) as error:  # a broken installation, a driver that does not fit
        return {"version": _version("torch"), "error": str(error)}


# ── for people ────────────────────────────────────────────────────────────────────────────────────
def show_report(report: Report) -> None:
    """Print a line for each thing: whether it is there, its name, and what there is to say."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for good, name, text in _lines(cast("dict[str, Any]", report)):
        mark = (
            Text() if good is None else Text("✓", style="green") if good else Text("✗", style="red")
        )
        table.add_row(mark, name, console.printable(text))
    console.show(table)


def _lines(report: dict[str, Any]) -> Iterator[tuple[bool | None, str, str]]:
    machine = f"{report['version']} on Python {report['python']}, {report['platform']}, {report['cores']} cores"
    yield None, "openconductor", machine
    core, planner, sandbox, torch = (
        report[name] for name in ("core", "conductor", "sandbox", "torch")
    )
    yield core["works"], "core", core["error"] or "plans and executes a workflow"
    for name, extra in report["extras"].items():
        have = ", ".join(
            f"{package} {number}" for package, number in extra["packages"].items() if number
        )
        missing = ", ".join(package for package, number in extra["packages"].items() if not number)
        yield (
            extra["installed"],
            f"extra {name}",
            f"missing {missing}; {extra['install']}" if missing else have,
        )
    answers = f"loads in {planner.get('load_seconds')} s, plans and answers in {planner.get('ask_seconds')} s"
    yield planner["works"], "bundled Conductor", planner["error"] or answers
    faults = "; ".join(sandbox["faults"].values())
    said = f"none, so that no program can be graded: {faults}"
    if sandbox["works"]:
        said = f"{sandbox['level']}, in which programs are graded{f' ({faults})' if faults else ''}"
    yield sandbox["works"], "sandbox", said
    if torch:
        said = torch.get("error") or f"{', '.join(torch['devices'])}; {torch['threads']} threads"
        yield "error" not in torch, "torch", f"{torch['version']}: {said}"
    keys = ", ".join(report["keys"])
    yield None, "API keys", keys or "none in the environment (models behind an API need theirs)"
