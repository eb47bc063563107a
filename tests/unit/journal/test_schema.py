"""The journal's file: migrations, one writer, files that are none of ours, export."""

from __future__ import annotations

import json
import sqlite3
import sys
from decimal import Decimal
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from journaled import ASKED, ask, one_call, rows

from openconductor.errors import ConfigError, JournalError, ServerFailed
from openconductor.journal import Journal
from openconductor.journal.schema import MIGRATIONS, VERSION
from openconductor.types import Usage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def test_a_file_of_version_1_becomes_one_of_today_with_all_that_it_holds(path: Path) -> None:
    old = sqlite3.connect(path)
    old.executescript(VERSION_1)
    old.close()
    with pytest.raises(JournalError, match="version 1, expected"):
        Journal.reading(path)
    with Journal(path) as journal:
        assert [(one.id, one.answer, one.question, one.started) for one in journal.episodes()] == [
            ("e1", "4", "Q", 1e9)
        ]
        (kept, failed) = journal.calls()
        assert (kept.worker, kept.status, kept.messages) == ("w0", None, ASKED)
        assert kept.usage == Usage(100, 0, 7, 0, Decimal("0.000195"), 0, 0.5)
        assert journal.find_completion("k1") == kept.completion
        assert journal.find_completion("k2") is None
        journal(one_call(completion=None, outcome="server_failed", error=ServerFailed("no", status=500)))
        journal.flush()
        assert [call.status for call in journal.calls()] == [None, None, 500]
        assert failed.error_type == "WorkerTimeout"
        assert list(journal.outcomes()) == []
        journal.put_outcome("q1", {"correct": None})
        journal.flush()
        assert [one.key for one in journal.outcomes()] == ["q1"]
    assert rows(path, "PRAGMA user_version") == [(VERSION,)]
    plan = rows(path, "EXPLAIN QUERY PLAN SELECT * FROM calls WHERE key = 'k1' AND replayable ORDER BY number LIMIT 1")
    assert "USING INDEX calls_by_key" in plan[0][3]
    Journal(path).close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = sqlite3.connect(path)
    old.executescript(VERSION_1)
    old.close()
    broken = (*MIGRATIONS[:-1], (*MIGRATIONS[-1], "ALTER TABLE nowhere ADD COLUMN nothing"))
    monkeypatch.setattr("openconductor.journal.schema.MIGRATIONS", broken)
    with pytest.raises(JournalError, match="nowhere"):
        Journal(path)
    monkeypatch.undo()
    assert rows(path, "PRAGMA user_version") == [(1,)]
    assert "status" not in {row[1] for row in rows(path, "PRAGMA table_info(calls)")}
    assert rows(path, "PRAGMA table_info(outcomes)") == []
    with Journal(path) as journal:
        assert journal.find_completion("k1") is not None


# ── one writer, other files ──────────────────────────────────────────────────────────────────────────────────────────
def test_a_second_writer_is_refused_until_the_first_is_done(path: Path) -> None:
    with Journal(path) as journal:
        with pytest.raises(JournalError, match="another writer"):
            Journal(path)
        with pytest.raises(JournalError, match="another writer"):
            Journal(path)
        journal(one_call())
        journal.flush()  # the refused ones did it no harm
    Journal(path).close()


@pytest.mark.parametrize("reading", [False, True], ids=["writing", "reading"])
@pytest.mark.parametrize("kind", ["text", "other database", "later version", "folder"])
def test_a_file_that_is_no_journal_of_ours_is_refused_and_left_alone(path: Path, kind: str, reading: bool) -> None:
    expected = {
        "text": "no SQLite file",
        "other database": "something else",
        "later version": "version 99",
        "folder": "open|no such file",
    }
    if kind == "text":
        path.write_text("Dear diary, " * 500)
    elif kind == "folder":
        path.mkdir()
    elif kind == "later version":
        Journal(path).close()
        rows(path, "PRAGMA user_version = 99")
    else:
        rows(path, "CREATE TABLE shopping (item TEXT)")
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(JournalError, match=expected[kind]) as caught:
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


def test_a_journal_is_found_again_from_another_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    monkeypatch.chdir(tmp_path)
    with Journal("journal.sqlite") as journal:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        journal(one_call())
        journal.flush()
        assert len(journal.export_parquet("export")) == 5


def test_a_path_may_hold_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "run #1?mode=memory & 100%.sqlite"
    with Journal(str(path)) as journal:
        journal(one_call())
    assert path.is_file()
    with Journal.reading(path) as reader:
        assert len(list(reader.calls())) == 1


# ── export ───────────────────────────────────────────────────────────────────────────────────────────────────────────
async def test_every_table_is_exported_to_parquet(path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")
    with Journal(path) as journal:
        episode = await ask(journal)
        journal.put_outcome("k", {"correct": True})
        journal.flush()
        files = journal.export_parquet(path.parent / "new" / "export")
        tables = {file.stem: parquet.read_table(file).to_pylist() for file in files}
        journal.export_parquet(path.parent / "new" / "export")  # over the old one
    outcomes = [(row["key"], json.loads(row["record"])) for row in tables.pop("outcomes")]
    assert outcomes == [("k", {"correct": True})]
    assert {name: len(table) for name, table in tables.items()} == {"episodes": 1, "rounds": 1, "steps": 2, "calls": 3}
    assert {row.get("episode", row.get("id")) for table in tables.values() for row in table} == {episode.id}
    assert sum(Decimal(row["dollars"]) for row in tables["calls"]) == episode.usage.dollars
    last = tables["calls"][2]
    assert (last["text"], last["reasoning"], last["step"], last["status"]) == ("4", None, 1, None)
    asked = json.loads(last["request"])["messages"][-1]
    assert asked["role"] == "user"
    assert asked["content"].endswith("Say it.")


def test_export_without_pyarrow_names_the_extra(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with Journal(path) as journal, pytest.raises(ConfigError, match=r"openconductor\[parquet\]"):
        journal.export_parquet(path.parent / "export")


def test_an_export_that_cannot_be_written_is_a_journal_error(path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    (path.parent / "export").write_text("in the way")
    with Journal(path) as journal, pytest.raises(JournalError, match="export"):
        journal.export_parquet(path.parent / "export")


VERSION_1 = """
PRAGMA journal_mode = WAL;
CREATE TABLE episodes (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, above TEXT, path TEXT, sample INTEGER,
    started REAL, outcome TEXT NOT NULL DEFAULT 'unfinished', seconds REAL, input_tokens INTEGER, cached_tokens INTEGER,
    output_tokens INTEGER, reasoning_tokens INTEGER, dollars TEXT, unpriced_calls INTEGER, work_seconds REAL,
    error_type TEXT, error TEXT, answer TEXT, question TEXT);
CREATE TABLE rounds (episode INTEGER NOT NULL, round INTEGER NOT NULL, ended REAL, valid INTEGER, accepted INTEGER,
    reason TEXT, error_type TEXT, error TEXT, workers TEXT, access TEXT, subtasks TEXT, text TEXT,
    PRIMARY KEY (episode, round)) WITHOUT ROWID;
CREATE TABLE steps (episode INTEGER NOT NULL, round INTEGER NOT NULL, step INTEGER NOT NULL, worker INTEGER,
    answered_by INTEGER, outcome TEXT, started REAL, ended REAL, input_tokens INTEGER, cached_tokens INTEGER,
    output_tokens INTEGER, reasoning_tokens INTEGER, dollars TEXT, unpriced_calls INTEGER, work_seconds REAL,
    error_type TEXT, error TEXT, access TEXT, subtask TEXT, PRIMARY KEY (episode, round, step)) WITHOUT ROWID;
CREATE TABLE calls (number INTEGER PRIMARY KEY, episode INTEGER NOT NULL, round INTEGER NOT NULL, step INTEGER,
    attempt INTEGER, worker TEXT, identity TEXT, outcome TEXT, nested INTEGER, replayed INTEGER, replayable INTEGER,
    key TEXT, request_hash TEXT, started REAL, input_tokens INTEGER, cached_tokens INTEGER, output_tokens INTEGER,
    reasoning_tokens INTEGER, dollars TEXT, unpriced_calls INTEGER, work_seconds REAL, price TEXT, finish_reason TEXT,
    text INTEGER, reasoning INTEGER, error_type TEXT, error TEXT, request TEXT, tool_calls TEXT, body_sent TEXT);
CREATE TABLE texts (number INTEGER PRIMARY KEY, text TEXT);
CREATE VIEW turns AS SELECT calls.number AS call, turn.key AS turn, json_extract(turn.value, '$.role') AS role,
    texts.text AS content FROM calls JOIN json_each(calls.request, '$.messages') AS turn
    JOIN texts ON texts.number = json_extract(turn.value, '$.content');
INSERT INTO texts VALUES (1, 'What is 2 + 2?'), (2, '4');
CREATE INDEX calls_by_episode ON calls (episode);
CREATE INDEX calls_by_key ON calls (key);
INSERT INTO episodes VALUES (1, 'e1', '', '[]', 0, 1e9, 'answered', 1.5, 100, 0, 7, 0, '0.000195', 0, 0.5, NULL, NULL,
    '4', '"Q"');
INSERT INTO steps VALUES (1, 0, 0, 0, 0, 'answered', 0.1, 0.6, 100, 0, 7, 0, '0.000195', 0, 0.5, NULL, NULL, '[]',
    'Do.');
INSERT INTO calls VALUES (1, 1, 0, 0, 1, 'w0', 'i', 'answered', 0, 0, 1, 'k1', 'h1', 0.1, 100, 0, 7, 0, '0.000195', 0,
    0.5, '{"input":"1.25","output":"10"}', 'stop', 2, NULL, NULL, NULL,
    '{"messages":[{"content":1,"role":"user"}],"sampling":{}}', NULL, NULL);
INSERT INTO calls VALUES (2, 1, 0, 0, 0, 'w0', 'i', 'timeout', 0, 0, 0, 'k2', 'h1', 0.0, 0, 0, 0, 0, '0', 1, 0.1, NULL,
    NULL, NULL, NULL, 'WorkerTimeout', 'too slow', NULL, NULL, NULL);
PRAGMA application_id = 1329809996;
PRAGMA user_version = 1;
"""
