"""What is asked of bubblewrap, and of the machine; ``tests/integration/test_sandbox*.py`` run it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, bubblewrap
from openconductor.sandboxes.bubblewrap import UIDS, BubblewrapSandbox, outermost, version

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")


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


def asked(sandbox: BubblewrapSandbox, **limits: int) -> str:
    with sandbox.launching(Limits(**limits)) as launch:
        return " ".join(launch.command)


def test_a_sandbox_has_nothing_of_the_callers(bwrap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "seen")
    with BubblewrapSandbox().launching(Limits(file_mb=7)) as launch:
        command = " ".join(launch.command)
    assert launch.command[0] == str(bwrap)
    for option in (
        *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--as-pid-1", "--die-with-parent"),
        *("--new-session", "--ro-bind /usr /usr", "--proc /proc", "--remount-ro /", "--seccomp"),
        f"--perms 1777 --size {7 << 20} --tmpfs /tmp",
    ):
        assert option in command
    assert " --bind " not in command, "nothing that can be written to"
    assert "A_SECRET" not in launch.environment and launch.isolated and "private" not in launch.setup


def test_root_is_given_up_for_a_uid_of_its_own_and_a_plain_user_gets_a_namespace(
    bwrap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "may_give_up_root", lambda: True)
    sandbox = BubblewrapSandbox()
    with sandbox.launching(Limits()) as first, sandbox.launching(Limits()) as second:
        uids = {first.setup["uid"], second.setup["uid"]}
        assert len(uids) == 2 and uids <= set(UIDS)
        assert "--unshare-user" not in first.command
        assert " ".join(first.command).count("--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID") == 1
    monkeypatch.setattr(bubblewrap, "may_give_up_root", lambda: False)
    with BubblewrapSandbox().launching(Limits()) as launch:
        assert launch.setup["uid"] is None
        assert "--unshare-user --uid 65534 --gid 65534" in " ".join(launch.command)


@pytest.mark.parametrize(("said", "sized"), [("bubblewrap 0.6.1", False), ("bubblewrap 0.7.0", True), ("1.0", True)])
def test_an_older_bubblewrap_is_not_asked_for_what_it_lacks(bwrap: Path, said: str, sized: bool) -> None:
    bwrap.write_text(f"#!/bin/sh\necho {said}\n")
    assert ("--size" in asked(BubblewrapSandbox())) is sized


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho what\n"])
def test_a_bubblewrap_that_does_not_say_its_version_is_an_error(bwrap: Path, text: str) -> None:
    bwrap.write_text(text)
    with pytest.raises(SandboxError, match="bwrap"):
        BubblewrapSandbox()


def test_no_bubblewrap_is_an_error_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        BubblewrapSandbox()


def test_another_system_or_machine_is_an_error(bwrap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap.platform, "machine", lambda: "riscv64")
    with pytest.raises(SandboxError, match="riscv64"):
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
