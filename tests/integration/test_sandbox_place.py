"""Inside of namespaces that are not as they should be, nothing is emptied and nobody is ended."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run
from openconductor.sandboxes.bubblewrap import BubblewrapSandbox
from openconductor.sandboxes.session import Launch


class Changed(BubblewrapSandbox):
    """bubblewrap with other options than it should have."""

    level = "changed"

    def __init__(self, **changes: tuple[str, ...]) -> None:
        super().__init__()
        self._changes = {f"--{name.replace('_', '-')}": options for name, options in changes.items()}

    @contextlib.contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        with super().launching(limits) as launch:
            end = launch.command.index("--")
            command = list(launch.command[:end])
            for name, options in self._changes.items():
                at = command.index(name)
                command[at : at + 1] = options
            yield Launch((*command, *launch.command[end:]), launch.setup, launch.descriptors, isolated=launch.isolated)


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file in a folder, a file in the machine's folder of temporary files, and a process; all live on."""
    try:
        BubblewrapSandbox().run_now("print(1)", [Run()], limits=Limits())
    except SandboxError as error:
        pytest.skip(f"needs bubblewrap: {error}")
    precious = tmp_path / "precious"
    precious.write_text("kept")
    with tempfile.NamedTemporaryFile(dir="/tmp") as temporary, subprocess.Popen(["sleep", "600"]) as process:
        yield precious
        assert precious.read_text() == "kept"
        assert Path(temporary.name).exists()
        assert process.poll() is None
        process.kill()


def refused(sandbox: BubblewrapSandbox) -> str:
    with pytest.raises(SandboxError) as caught:
        sandbox.run_now("print(1)", [Run()], limits=Limits())
    return str(caught.value)


def test_unchanged_it_works(canary: Path) -> None:
    (result,) = Changed(new_session=("--new-session",)).run_now("print(1)", [Run()], limits=Limits())
    assert (result.stdout, result.level) == ("1\n", "changed")


def test_process_2_of_a_namespace_runs_nothing(canary: Path) -> None:
    assert "got process 2, expected process 1, alone" in refused(Changed(as_pid_1=()))


def test_without_a_namespace_of_processes_nothing_is_run(canary: Path) -> None:
    """bubblewrap itself refuses to make anybody process 1 of no new namespace."""
    assert refused(Changed(unshare_pid=()))
    assert "expected process 1, alone" in refused(Changed(unshare_pid=(), as_pid_1=()))


def test_a_folder_of_the_callers_at_tmp_is_not_emptied(canary: Path) -> None:
    bound = Changed(remount_ro=("--bind", str(canary.parent), "/tmp", "--remount-ro"))
    assert "with 1 things in it, expected an empty one" in refused(bound)


def test_a_tmp_that_is_no_mount_is_not_worked_in(canary: Path) -> None:
    folder = Changed(perms=("--dir", "/tmp", "--perms"), tmpfs=("--tmpfs", "/else", "--chdir"))
    assert "of its own" in refused(folder)


def test_where_proc_is_another_namespaces_nothing_is_run(canary: Path) -> None:
    assert "expected process 1, alone" in refused(Changed(proc=("--ro-bind", "/proc")))


def test_bubblewrap_that_fails_half_way_is_an_error_that_says_why(canary: Path) -> None:
    said = refused(Changed(remount_ro=("--ro-bind", "/no/such/folder", "/x", "--remount-ro")))
    assert "/no/such/folder" in said
    assert "no-such-option" in refused(Changed(chdir=("--no-such-option", "--chdir")))
