"""Inside of namespaces that are not as they should be, nothing is emptied and nobody is ended."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run
from openconductor.sandboxes.bubblewrap import BubblewrapSandbox
from openconductor.sandboxes.session import Launch

pytestmark = pytest.mark.usefixtures("bubblewrap")


class Changed(BubblewrapSandbox):
    """bubblewrap with other options than it should have."""

    level = "changed"

    def __init__(self, **changes: Sequence[str]) -> None:
        super().__init__()
        self._changes = {
            f"--{name.replace('_', '-')}": options for name, options in changes.items()
        }

    @contextlib.contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        with super().launching(limits) as launch:
            end = launch.command.index("--")
            command = list(launch.command[:end])
            for name, options in self._changes.items():
                at = command.index(name)
                command[at : at + 1] = options
            yield Launch(
                (*command, *launch.command[end:]),
                launch.setup,
                launch.descriptors,
                isolated=launch.isolated,
            )


def test_unchanged_it_works(canary: Path) -> None:
    (result,) = Changed(new_session=("--new-session",)).run_now(
        "print(1)", [Run()], limits=Limits()
    )
    assert (result.stdout, result.level) == ("1\n", "changed")


CHANGES = {
    "process 2": ({"as_pid_1": ()}, "got process 2, expected process 1, alone"),
    "no namespace": (
        {"unshare_pid": ()},
        "",
    ),  # bubblewrap itself refuses to make a process 1 of no new namespace
    "neither": ({"unshare_pid": (), "as_pid_1": ()}, "expected process 1, alone"),
    "full": (
        {"remount_ro": ("--bind", "<<folder>>", "/tmp", "--remount-ro")},
        "1 things in it, expected an empty one",
    ),
    "no mount": (
        {"perms": ("--dir", "/tmp", "--perms"), "tmpfs": ("--tmpfs", "/else", "--chdir")},
        "of its own",
    ),
    "other proc": (
        {"proc": ("--ro-bind", "/proc")},
        "expected process 1, alone",
    ),  # another namespace's
    "no source": (
        {"remount_ro": ("--ro-bind", "/no/such/folder", "/x", "--remount-ro")},
        "/no/such/folder",
    ),
    "no filter": ({"seccomp": ("--sync-fd",)}, "and a system-call filter (Seccomp 2)"),
    "no option": ({"chdir": ("--no-such-option", "--chdir")}, "no-such-option"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_where_bubblewrap_does_something_else_nothing_is_run(canary, change) -> None:
    changes, said = CHANGES[change]
    filled = {
        name: [option.replace("<<folder>>", str(canary.parent)) for option in it]
        for name, it in changes.items()
    }
    with pytest.raises(SandboxError) as caught:
        Changed(**filled).run_now("print(1)", [Run()], limits=Limits())
    assert said in str(caught.value)
