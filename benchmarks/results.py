"""Bars, versions and printing, which all benchmarks share."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def at_most(what: str, value: float, limit: float) -> dict[str, Any]:
    """Return a bar that holds if the value is not above the limit."""
    return {"what": what, "value": round(value, 4), "at_most": limit, "held": value <= limit}


def at_least(what: str, value: float, limit: float) -> dict[str, Any]:
    """Return a bar that holds if the value is not below the limit."""
    return {"what": what, "value": round(value, 4), "at_least": limit, "held": value >= limit}


def machine() -> dict[str, object]:
    """Return the system, the number of CPUs and the load."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def installed(package: str) -> str | None:
    """Return the version of a package. None: not installed."""
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def versions(*packages: str) -> dict[str, str | None]:
    """Return the installed versions of packages."""
    return {package: installed(package) for package in packages}


def arguments(documentation: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option --json; the help is the first line of the module's text."""
    parser = argparse.ArgumentParser(description=(documentation or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one object instead of lines")
    return parser


def show(result: dict[str, Any], *, as_json: bool) -> None:
    """Print a result: its bars, then its other figures, a line each."""
    if as_json:
        print(json.dumps(result, indent=2))
        return
    for bar in result["bars"]:
        mark = "held  " if bar["held"] else "MISSED"
        side = "at most" if "at_most" in bar else "at least"
        limit = bar.get("at_most", bar.get("at_least"))
        print(f"{mark}  {bar['value']:10.3f}  ({side} {limit})  {bar['what']}")
    for name, figures in result.items():
        if name != "bars":
            print(f"{name}: {json.dumps(figures)}")


@contextmanager
def child(module: str, *words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a module of this folder as a process with pipes, and end it after the block."""
    command = (sys.executable, "-m", f"benchmarks.{module}", *words)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with process(*command, env={**os.environ, **environment}, **pipes) as started:
        yield started


@contextmanager
def process(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a command, and end it after the block."""
    with subprocess.Popen(command, text=True, **options) as started:
        try:
            yield started
        finally:
            started.terminate()
            with suppress(subprocess.TimeoutExpired):
                started.wait(15)
            started.kill()


def cpu_ms(pid: int) -> float:
    """Return the CPU that a process has used, in milliseconds, as Linux counts it by thread."""
    nanoseconds = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e6


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
