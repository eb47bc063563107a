"""Limits are checked when they are made, and the registry knows its backends."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from openconductor import sandboxes
from openconductor.errors import ConfigError, SandboxError
from openconductor.sandboxes import Limits, Run, Verdict, open_sandbox


def test_the_wall_guard_follows_the_cpu_limit_unless_it_is_given() -> None:
    assert Limits(cpu_s=10).wall_guard_s == 35
    assert Limits(cpu_s=10, wall_s=2).wall_guard_s == 2


@pytest.mark.parametrize("name", ["cpu_s", "wall_s", "memory_mb", "output_bytes", "file_mb", "processes"])
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_a_limit_that_is_none_is_an_error(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_a_run_is_a_script_without_input_unless_it_says_more() -> None:
    assert (Run().stdin, Run().entry_point, Run().calls) == ("", None, ())


def test_verdicts_are_words() -> None:
    assert Verdict("cpu_timeout") is Verdict.CPU_TIMEOUT and f"{Verdict.OK}" == "ok"


def test_an_unknown_sandbox_is_an_error_that_names_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="bubblewrap, docker, plain, auto"):
        open_sandbox("bubble")


def test_plain_processes_need_the_callers_word() -> None:
    with pytest.raises(ConfigError, match="unsafe"):
        open_sandbox("plain")
    assert open_sandbox("plain", unsafe=True).level == "plain"


def test_auto_says_why_nothing_works_and_falls_back_on_plain_only_if_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "_probe", lambda name: f"{name}: not here")
    monkeypatch.setattr(sandboxes, "_probed", {})
    with pytest.raises(SandboxError, match="bubblewrap: not here; docker: not here"):
        open_sandbox()
    assert open_sandbox(unsafe=True).level == "plain"
    assert sandboxes.survey() == (None, {"bubblewrap": "bubblewrap: not here", "docker": "docker: not here"})


def test_auto_is_the_first_that_works_and_what_does_not_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    now = [1000.0]
    faults: dict[str, str] = {"bubblewrap": "out of processes", "docker": ""}

    def probe(name: str) -> str:
        tried.append(name)
        return faults[name]

    monkeypatch.setattr(sandboxes, "_probe", probe)
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
