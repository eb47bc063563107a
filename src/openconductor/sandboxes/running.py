"""Opening a sandbox by name, finding out which one this machine can have, and the door for a single program.

In: a name, or a program. Out: a Sandbox, or a RunResult.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import time
from collections.abc import Callable
from typing import cast

from openconductor.errors import ConfigError, SandboxError
from openconductor.sandboxes import SANDBOXES
from openconductor.sandboxes.batches import BatchedSandbox
from openconductor.sandboxes.values import Limits, Run, RunResult, Sandbox, Verdict

PREFERENCE = ("bubblewrap", "docker")
PROBE = "print(6 * 7)"
PROBED_S = 60.0
"""For so long a backend that did not work is not tried again."""


def open_sandbox(name: str = "auto", *, unsafe: bool = False, **options: object) -> Sandbox:
    """A sandbox by name.

    Args:
        name: one of ``SANDBOXES``, or ``"auto"``: the first of bubblewrap and Docker that works here.
        unsafe: allows ``"plain"``, which protects nothing, also as what is left of ``"auto"``.
        **options: those of its class.

    Raises:
        SandboxError: it cannot be set up here; for ``"auto"`` it says why for each.
        ConfigError: an unknown name or option, or ``"plain"`` without ``unsafe``.
    """
    return _open(name, unsafe, options)


def run_untrusted(
    code: str, *, stdin: str = "", cpu_s: float = 10.0, wall_s: float | None = None, memory_mb: int = 1024
) -> RunResult:
    """Run a Python program that nobody trusts, in the best sandbox that this machine has. Blocks.

    Args:
        code: the program.
        stdin: its standard input.
        cpu_s: seconds of CPU, of all its processes together.
        wall_s: seconds by the clock; None: three times ``cpu_s``, and five more.
        memory_mb: resident memory of all its processes together, in MiB.

    Returns:
        What it printed, how it ended (``verdict``), what it used, and the sandbox's ``level``.

    Raises:
        SandboxError: there is no sandbox here, or it failed.
        ConfigError: a limit is not positive.
    """
    limits = Limits(cpu_s=cpu_s, wall_s=wall_s, memory_mb=memory_mb)
    return _shared().run_now(code, [Run(stdin=stdin)], limits=limits)[0]


async def run_untrusted_async(
    code: str, *, stdin: str = "", cpu_s: float = 10.0, wall_s: float | None = None, memory_mb: int = 1024
) -> RunResult:
    """``run_untrusted`` for an event loop: waits in a thread, and ends the program when the caller is cancelled."""
    limits = Limits(cpu_s=cpu_s, wall_s=wall_s, memory_mb=memory_mb)
    return (await _shared().run_batch(code, [Run(stdin=stdin)], limits=limits))[0]


def survey() -> tuple[str | None, dict[str, str]]:
    """The sandbox that ``"auto"`` opens here, None where none works; and why those before it do not, by name."""
    faults: dict[str, str] = {}
    for name in PREFERENCE:
        fault = _fault(name)
        if fault is None:
            return name, faults
        faults[name] = fault
    return None, faults


def _open(name: str, unsafe: bool, options: dict[str, object]) -> BatchedSandbox:
    if name == "auto":
        best, faults = survey()
        if best is None and not unsafe:
            raise SandboxError("no sandbox works here: " + "; ".join(faults.values()))
        name = best or "plain"
    if name not in SANDBOXES:
        expected = ", ".join((*SANDBOXES, "auto"))
        raise ConfigError(f"sandbox: got {name!r}, expected one of {expected}")
    module, _, attribute = SANDBOXES[name].partition(":")
    made = cast(Callable[..., BatchedSandbox], getattr(importlib.import_module(module), attribute))
    known = inspect.signature(made).parameters
    for option in options:
        if option not in known:
            raise ConfigError(f"sandbox {name!r}: got the option {option!r}, expected one of {', '.join(known)}")
    return made(**options, **({"unsafe": unsafe} if "unsafe" in known else {}))


_probed: dict[str, tuple[float, str | None]] = {}


def _fault(name: str) -> str | None:
    """Why a backend does not work here; None where it does, which is found out once. That it does not may pass."""
    when, fault = _probed.get(name, (-PROBED_S, "not tried"))
    if fault is not None and time.monotonic() - when >= PROBED_S:
        fault = _probe(name)
        _probed[name] = (time.monotonic(), fault)
    return fault


def _probe(name: str) -> str | None:
    """Why a backend does not work here, found out by running a program in it; None where it does."""
    try:
        if name == "docker":
            from openconductor.sandboxes.docker import engine_answers

            if not engine_answers():
                return "docker sandbox: no Docker or Podman whose service answers"
        sandbox = _open(name, False, {})
        result = sandbox.run_now(PROBE, [Run()], limits=Limits(cpu_s=5))[0]
    except SandboxError as error:
        return str(error)
    if result.verdict is not Verdict.OK or result.stdout.strip() != "42":
        return f"{name} sandbox: got {result.verdict} and {result.stdout!r} of a program that prints 42"
    return None


@functools.cache
def _shared() -> BatchedSandbox:
    return _open("auto", False, {})
