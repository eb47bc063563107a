"""Limits are checked, the registry knows its backends, and bubblewrap gets options that it has."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from openconductor import sandboxes
from openconductor.errors import ConfigError, SandboxError
from openconductor.sandboxes import Limits, bubblewrap, open_sandbox
from openconductor.sandboxes.bubblewrap import UIDS, BubblewrapSandbox, outermost, version

linux = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")


def test_the_wall_guard_follows_the_cpu_limit_unless_it_is_given() -> None:
    assert (Limits(cpu_s=10).wall_guard_s, Limits(cpu_s=10, wall_s=2).wall_guard_s) == (35, 2)


@pytest.mark.parametrize(
    "name", ["cpu_s", "wall_s", "memory_mb", "output_bytes", "file_mb", "processes"]
)
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_a_limit_that_is_none_is_an_error(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_a_sandbox_is_opened_by_a_known_name_and_plain_processes_only_if_unsafe() -> None:
    with pytest.raises(ConfigError, match="bubblewrap, docker, plain, auto"):
        open_sandbox("bubble")
    with pytest.raises(ConfigError, match="unsafe"):
        open_sandbox("plain")
    assert open_sandbox("plain", unsafe=True).level == "plain"


def test_auto_says_why_nothing_works_and_falls_back_on_plain_only_if_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandboxes, "_probe", lambda name: f"{name}: not here")
    monkeypatch.setattr(sandboxes, "_probed", {})
    with pytest.raises(SandboxError, match="bubblewrap: not here; docker: not here"):
        open_sandbox()
    assert open_sandbox(unsafe=True).level == "plain"
    faults = {name: f"{name}: not here" for name in ("bubblewrap", "docker")}
    assert sandboxes.survey() == (None, faults)


def test_auto_is_the_first_that_works_and_what_does_not_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried, now, faults = list[str](), [1000.0], {"bubblewrap": "out of processes", "docker": ""}
    monkeypatch.setattr(sandboxes, "_probe", lambda name: tried.append(name) or faults[name])
    monkeypatch.setattr(sandboxes, "_probed", {})
    monkeypatch.setattr(sandboxes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for _ in range(2):
        assert sandboxes.survey() == ("docker", {"bubblewrap": "out of processes"})
    assert tried == ["bubblewrap", "docker"]
    faults["bubblewrap"] = ""
    now[0] += sandboxes.PROBED_S
    for _ in range(2):
        assert sandboxes.survey() == ("bubblewrap", {})
    assert tried == ["bubblewrap", "docker", "bubblewrap"]


@pytest.fixture
def bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``bwrap`` on the PATH that only says its version."""
    script = tmp_path / "bwrap"
    script.write_text("#!/bin/sh\necho bubblewrap 0.8.0\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(bubblewrap.platform, "machine", lambda: "x86_64")
    version.cache_clear()
    return script


ISOLATION = """
--unshare-pid
--unshare-net
--unshare-ipc
--unshare-uts
--as-pid-1
--die-with-parent
--new-session
--ro-bind /usr /usr
--proc /proc
--remount-ro /
--seccomp
"""


@linux
def test_a_sandbox_has_nothing_of_the_callers(bwrap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "seen")
    with BubblewrapSandbox().launching(Limits(file_mb=7)) as launch:
        command = " ".join(launch.command)
    assert launch.command[0] == str(bwrap)
    for option in ISOLATION.strip().splitlines():
        assert option in command
    assert f"--perms 1777 --size {7 << 20} --tmpfs /tmp" in command
    assert " --bind " not in command, "nothing that can be written to"
    assert "A_SECRET" not in launch.environment
    assert launch.isolated and "private" not in launch.setup


@linux
def test_root_is_given_up_for_a_uid_of_its_own_and_a_plain_user_gets_a_namespace(
    bwrap, monkeypatch
) -> None:
    monkeypatch.setattr(bubblewrap, "may_give_up_root", lambda: True)
    sandbox = BubblewrapSandbox()
    with sandbox.launching(Limits()) as first, sandbox.launching(Limits()) as second:
        uids = {first.setup["uid"], second.setup["uid"]}
        assert len(uids) == 2 and uids <= set(UIDS)
        assert "--unshare-user" not in first.command
        assert "--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID" in " ".join(first.command)
    monkeypatch.setattr(bubblewrap, "may_give_up_root", lambda: False)
    with BubblewrapSandbox().launching(Limits()) as launch:
        assert launch.setup["uid"] is None
        assert "--unshare-user --uid 65534 --gid 65534" in " ".join(launch.command)


@linux
@pytest.mark.parametrize(
    ("said", "sized"), [("bubblewrap 0.6.1", False), ("bubblewrap 0.7.0", True), ("1.0", True)]
)
def test_an_older_bubblewrap_is_not_asked_for_what_it_lacks(
    bwrap: Path, said: str, sized: bool
) -> None:
    bwrap.write_text(f"#!/bin/sh\necho {said}\n")
    with BubblewrapSandbox().launching(Limits()) as launch:
        assert ("--size" in launch.command) is sized


@linux
def test_a_bubblewrap_that_does_not_start_is_an_error(bwrap: Path) -> None:
    bwrap.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(SandboxError, match="bwrap"):
        BubblewrapSandbox()


@linux
def test_where_there_can_be_no_bubblewrap_the_error_says_why(
    bwrap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap.platform, "machine", lambda: "riscv64")
    with pytest.raises(SandboxError, match="riscv64"):
        BubblewrapSandbox()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        BubblewrapSandbox()
    monkeypatch.setattr(bubblewrap.sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="Docker works elsewhere"):
        BubblewrapSandbox()


def test_folders_within_others_are_bound_once(tmp_path: Path) -> None:
    inner, other = tmp_path / "a" / "b", tmp_path / "ab"
    inner.mkdir(parents=True)
    other.mkdir()
    folders = (str(inner), str(tmp_path / "a"), str(other), "/usr/lib", f"{tmp_path}/a/../ab")
    assert outermost(folders) == [str(tmp_path / "a"), str(other)]
