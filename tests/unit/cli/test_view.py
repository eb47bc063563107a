"""``openconductor view``: which journal it means, and what it says where there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from openconductor.cli.view import journal_of
from openconductor.errors import ConfigError
from openconductor.store import open_store

pytest.importorskip("jinja2", reason="needs the extra 'ui'")
pytest.importorskip("starlette", reason="needs the extra 'ui'")


def test_the_latest_journal_here_is_meant_where_none_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/2026-11-27-first")
    folder.mkdir(parents=True)
    for seconds, path in enumerate((Path("old.sqlite"), folder / "journal.sqlite")):
        open_store(path).close()
        os.utime(path, (seconds, seconds))
    assert journal_of(None) == folder / "journal.sqlite"
    assert journal_of(str(folder)) == folder / "journal.sqlite"
    assert journal_of("old.sqlite") == Path("old.sqlite")
    assert journal_of("postgresql://host/db") == "postgresql://host/db"


def test_where_there_is_no_journal_the_command_that_makes_one_is_named(
    tmp_path, monkeypatch, run
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("view")
    assert (ran.code, ran.out) == (2, "")
    assert "--journal asked.sqlite" in ran.err
    with pytest.raises(ConfigError, match=r"no journal\.sqlite; expected that of a run"):
        journal_of(str(tmp_path))
    ran = run("view", "none.sqlite")
    assert (ran.code, ran.out) == (1, "")
    assert "no such file" in ran.err


def test_without_jinja_no_link_is_printed_but_the_command_that_installs_it(
    tmp_path, monkeypatch, run
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for module in ("openconductor.ui.site", "openconductor.ui.pages"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    ran = run("view", str(tmp_path / "none.sqlite"))
    assert ran.code == 2
    assert "openconductor[ui]" in ran.err.replace("\n", "")
