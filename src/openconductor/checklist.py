"""A checklist of what a command needs: everything is checked, and nothing stops at the first fault.

The dry runs of ``train``, ``eval`` and ``serve`` fill one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from openconductor.errors import OpenConductorError

T = TypeVar("T")
State = Literal["ready", "absent", "wrong"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        name: of what was checked.
        state: ``absent``: right as it stands, but it takes a network, a key, a GPU or a package
            that is not here.
        text: details, and the fix of what is not ready.
    """

    name: str
    state: State
    text: str


@dataclass(slots=True)
class Checklist:
    """The checks of one command, in order."""

    checks: list[Check] = field(default_factory=list[Check])

    def ready(self, name: str, text: str) -> None:
        """Add what is there."""
        self.checks.append(Check(name, "ready", text))

    def absent(self, name: str, text: str) -> None:
        """Add what is right but not here; ``text`` says what it takes."""
        self.checks.append(Check(name, "absent", text))

    def wrong(self, name: str, text: str) -> None:
        """Add a fault."""
        self.checks.append(Check(name, "wrong", text))

    def attempt(self, name: str, work: Callable[[], T]) -> T | None:
        """Return what ``work`` returns; None: it raised one of our errors, which is added."""
        try:
            return work()
        except OpenConductorError as error:
            self.wrong(name, str(error))
            return None

    @property
    def is_ready(self) -> bool:
        """True if nothing is absent or wrong."""
        return all(check.state == "ready" for check in self.checks)

    @property
    def is_right(self) -> bool:
        """True if nothing is wrong; something may be absent."""
        return all(check.state != "wrong" for check in self.checks)
