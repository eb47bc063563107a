"""The report of ``openconductor doctor`` agrees with the package."""

from __future__ import annotations

import pytest

from openconductor import sandboxes
from openconductor.cli import doctor
from openconductor.errors import ConfigError
from openconductor.gym import bundled


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is not imported, and no processes are started to find a sandbox."""
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(sandboxes, "survey", lambda: ("bubblewrap", {}))


def test_what_is_missing_is_reported_and_the_core_still_works(run, monkeypatch) -> None:
    def missing() -> str:
        raise ConfigError("no model here")

    def version(package: str) -> str | None:
        return None if package == "matplotlib" else "1.0"

    monkeypatch.setattr(bundled, "bundled_folder", missing)
    monkeypatch.setattr(doctor, "_version", version)
    ran = run("doctor", "--json")
    report = ran.json()
    assert (ran.code, report["ok"], report["core"]["works"]) == (0, True, True)
    assert report["torch"] is None
    assert report["conductor"] == {"works": False, "error": "no model here"}
    plots, train = report["extras"]["plots"], report["extras"]["train"]
    assert plots["install"] == 'pip install "openconductor[plots]"'
    assert (train["installed"], train["install"]) == (True, None)


def test_keys_are_known_by_name_only(run, monkeypatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hush-hush")
    monkeypatch.setenv("EMPTY_API_KEY", "")
    for ran in (run("doctor"), run("doctor", "--json")):
        assert ran.code == 0
        assert "MY_API_KEY" in ran.out
        assert "EMPTY_API_KEY" not in ran.out
        assert "hush-hush" not in ran.out + ran.err


NO_BWRAP = {"bubblewrap": "no bwrap"}


@pytest.mark.parametrize(
    ("level", "faults", "said"),
    [
        ("bubblewrap", {}, "bubblewrap, in which programs are graded"),
        ("docker", NO_BWRAP, "docker, in which programs are graded (no bwrap)"),
        (None, NO_BWRAP | {"docker": "off"}, "none, so programs cannot be graded: no bwrap; off"),
    ],
)
def test_the_level_of_the_sandbox_is_shown_and_why_it_is_no_better(
    run, monkeypatch, level, faults, said
) -> None:
    monkeypatch.setattr(sandboxes, "survey", lambda: (level, faults))
    shown = run("doctor", "--json").json()["sandbox"]
    assert shown == {"works": level is not None, "level": level, "faults": faults}
    assert said in " ".join(run("doctor").out.split())
