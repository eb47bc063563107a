"""What the doctor knows of the package agrees with the package."""

from __future__ import annotations

import pytest

from openconductor import sandboxes
from openconductor.cli import doctor
from openconductor.errors import ConfigError
from openconductor.gym import bundled


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are processes started to find a sandbox."""
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(sandboxes, "survey", lambda: ("bubblewrap", {}))


@pytest.mark.usefixtures("without_torch")
def test_a_missing_extra_comes_with_the_command_that_installs_it(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: None if package == "matplotlib" else "1.0")
    extras = doctor.examine()["extras"]
    assert extras["plots"]["install"] == 'pip install "openconductor[plots]"'
    assert (extras["train"]["installed"], extras["train"]["install"]) == (True, None)


@pytest.mark.usefixtures("without_torch")
def test_a_bundled_conductor_that_does_not_load_is_reported_and_the_core_still_works(monkeypatch) -> None:
    def missing() -> str:
        raise ConfigError("no model here")

    monkeypatch.setattr(bundled, "bundled_folder", missing)
    report = doctor.examine()
    assert report["ok"] is True
    assert report["torch"] is None
    assert report["conductor"] == {"works": False, "error": "no model here"}


@pytest.mark.usefixtures("without_torch")
def test_keys_are_known_by_name_only(monkeypatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "value")
    monkeypatch.setenv("EMPTY_API_KEY", "")
    keys = doctor.examine()["keys"]
    assert "MY_API_KEY" in keys and "EMPTY_API_KEY" not in keys


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize(
    ("found", "said"),
    [
        (("bubblewrap", {}), "bubblewrap, in which programs are graded"),
        (("docker", {"bubblewrap": "no bwrap"}), "docker, in which programs are graded (no bwrap)"),
        (
            (None, {"bubblewrap": "no bwrap; install it", "docker": "no engine"}),
            "none, so that no program can be graded: no bwrap; install it; no engine",
        ),
    ],
)
def test_the_level_of_the_sandbox_is_shown_and_why_it_is_no_better(monkeypatch, capsys, found, said) -> None:
    monkeypatch.setattr(sandboxes, "survey", lambda: found)
    report = doctor.examine()
    assert report["ok"] is True
    assert report["sandbox"] == {"works": found[0] is not None, "level": found[0], "faults": found[1]}
    doctor.show_report(report)
    assert said in " ".join(capsys.readouterr().out.split())
