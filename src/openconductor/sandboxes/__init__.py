"""Sandboxes: one file a way to run a program that nobody trusts.

In: a program's text and its runs. Out: what each run did (``RunResult``), never whether it is right. Which layers hold
is the backend's ``level``, and every result carries it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openconductor.sandboxes.values import Limits, Run, RunResult, Sandbox, Verdict

if TYPE_CHECKING:
    from openconductor.sandboxes.running import open_sandbox, run_untrusted, run_untrusted_async

SANDBOXES = {
    "bubblewrap": "openconductor.sandboxes.bubblewrap:BubblewrapSandbox",
    "docker": "openconductor.sandboxes.docker:DockerSandbox",
    "plain": "openconductor.sandboxes.plain:PlainSandbox",
}

__all__ = [
    "SANDBOXES",
    "Limits",
    "Run",
    "RunResult",
    "Sandbox",
    "Verdict",
    "open_sandbox",
    "run_untrusted",
    "run_untrusted_async",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from openconductor.sandboxes import running  # what starts processes is imported when it is first asked for

    return getattr(running, name)
