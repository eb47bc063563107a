"""The journal's file: one writer, and files that are none of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from journaled import one_call, rows

from openconductor.errors import ConfigError, JournalError
from openconductor.store import Journal, open_store, read_store


def test_a_second_writer_is_refused_until_the_first_is_done(path: Path) -> None:
    with Journal(path) as journal:
        for _ in range(2):
            with pytest.raises(JournalError, match="another writer"):
                Journal(path)
        journal(one_call())
        journal.flush()  # the refused ones did it no harm
    Journal(path).close()


@pytest.mark.parametrize("reading", [False, True], ids=["writing", "reading"])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("text", "not a SQLite file"),
        ("CREATE TABLE shopping (item TEXT)", "another program"),
        ("PRAGMA user_version = 4", "has schema version 4, .* reads 5 and later"),
        ("PRAGMA user_version = 99", "has schema version 99, .* upgrade OpenConductor"),
        ("folder", "open|no such file"),
    ],
)
def test_a_file_that_is_no_journal_of_ours_is_refused_and_left_alone(
    path, kind, expected, reading
) -> None:
    if kind == "text":
        path.write_text("Dear diary, " * 500)
    elif kind == "folder":
        path.mkdir()
    else:
        if kind.startswith("PRAGMA"):
            Journal(path).close()
        rows(path, kind)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(JournalError, match=expected) as caught:
        Journal.reading(path) if reading else Journal(path)
    assert str(path) in str(caught.value)
    assert path.is_dir() or path.read_bytes() == before


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="nowhere"):
        Journal(tmp_path / "nowhere" / "journal.sqlite")
    with pytest.raises(JournalError, match="no such file"):
        Journal.reading(tmp_path / "journal.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_journal_that_was_closed_is_one_file(path: Path) -> None:
    with Journal(path) as journal:
        journal(one_call())
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}-lock"}
    assert Path(f"{path}-lock").stat().st_size == 0


def test_a_path_may_hold_any_characters_and_the_working_folder_may_change(
    tmp_path, monkeypatch
) -> None:
    name = "run #1?mode=memory & 100%.sqlite"
    monkeypatch.chdir(tmp_path)
    with Journal(name) as journal:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        journal(one_call())
        journal.flush()
        assert len(list(journal.calls())) == 1
    with Journal.reading(tmp_path / name) as reader:
        assert len(list(reader.calls())) == 1


@pytest.mark.parametrize("place", ["mysql://ann:secret@db/oc", Path("postgresql://ann:secret@db")])
def test_what_is_no_place_of_a_store_is_rejected_without_a_password(place: str | Path) -> None:
    for opening in (open_store, read_store):
        with pytest.raises(ConfigError, match=r"postgresql://USER|as a str") as caught:
            opening(place)
        assert "secret" not in str(caught.value)
