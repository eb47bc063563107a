"""Inside of namespaces that are not as they should be, nothing is emptied and nobody is ended."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run
from openconductor.sandboxes.bubblewrap import BubblewrapSandbox
from openconductor.sandboxes.session import Launch

pytestmark = pytest.mark.usefixtures("bubblewrap")


class Changed(BubblewrapSandbox):
    """bubblewrap with other options than it should have; each line changes one."""

    level = "changed"

    def __init__(self, changes: str) -> None:
        super().__init__()
        self._changes = [line.split() for line in changes.splitlines()]

    @contextlib.contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        with super().launching(limits) as launch:
            command = list(launch.command)
            for name, *options in self._changes:
                place = command.index(name)
                command[place : place + 1] = options
            yield Launch(tuple(command), launch.setup, launch.descriptors, isolated=launch.isolated)


def test_unchanged_it_works(canary: Path) -> None:
    unchanged = Changed("--new-session --new-session")
    (result,) = unchanged.run_now("print(1)", [Run()], limits=Limits())
    assert (result.stdout, result.level) == ("1\n", "changed")


NO_MOUNT = "--perms --dir /tmp --perms\n--tmpfs --tmpfs /else --chdir"
CHANGES = {
    "process 2": ("--as-pid-1", "got process 2, expected process 1, alone"),
    # bubblewrap itself refuses to make a process 1 of no new namespace
    "no namespace": ("--unshare-pid", ""),
    "neither": ("--unshare-pid\n--as-pid-1", "expected process 1, alone"),
    "full": ("--remount-ro --bind FOLDER /tmp --remount-ro", "1 things in it, expected an empty"),
    "no mount": (NO_MOUNT, "of its own"),
    # another namespace's
    "other proc": ("--proc --ro-bind /proc", "expected process 1, alone"),
    "no source": ("--remount-ro --ro-bind /no/such/folder /x --remount-ro", "/no/such/folder"),
    "no filter": ("--seccomp --sync-fd", "and a system-call filter (Seccomp 2)"),
    "no option": ("--chdir --no-such-option --chdir", "no-such-option"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_where_bubblewrap_does_something_else_nothing_is_run(canary, change) -> None:
    changes, said = CHANGES[change]
    changed = Changed(changes.replace("FOLDER", str(canary.parent)))
    with pytest.raises(SandboxError) as caught:
        changed.run_now("print(1)", [Run()], limits=Limits())
    assert said in str(caught.value)
