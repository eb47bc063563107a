"""The journal's file: its tables, how an older file becomes one of today's, and how one is opened.

In: a path. Out: SQLite connections, or a JournalError that says why the file is none of ours.

SQLite in WAL mode: one process writes, any number reads meanwhile. The writer holds a lock on an empty file beside the
journal, which the system releases however the process ends. ``synchronous=FULL``: a commit has reached the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from openconductor.errors import JournalError
from openconductor.journal.text import dumps, loads, unpacked

APPLICATION_ID = 0x4F434A4C  # "OCJL"
_LOCK_SUFFIX = "-lock"
_BUSY_SECONDS = 30.0  # a reader's checkpoint, a backup: they end
_PAGE_BYTES = 8192  # a call's row is some kB: on smaller pages it would be in many pieces
_CHECKPOINT_PAGES = 4096  # 32 MiB of log before it is moved into the file
_CACHE_KIB = 8192  # a larger one only makes a long run grow: what it lacks is in the system's own cache

_USAGE = """
    input_tokens INTEGER, cached_tokens INTEGER, output_tokens INTEGER, reasoning_tokens INTEGER, dollars TEXT,
    unpriced_calls INTEGER, work_seconds REAL"""

# Short columns stand first: what stands behind a long one is read through all of its pages.
_VERSION_1 = (
    f"""CREATE TABLE episodes (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, above TEXT, path TEXT, sample INTEGER, started REAL,
    outcome TEXT NOT NULL DEFAULT 'unfinished', seconds REAL, {_USAGE},
    error_type TEXT, error TEXT, answer TEXT, question TEXT)""",
    """CREATE TABLE rounds (
    episode INTEGER NOT NULL, round INTEGER NOT NULL, ended REAL, valid INTEGER, accepted INTEGER, reason TEXT,
    error_type TEXT, error TEXT, workers TEXT, access TEXT, subtasks TEXT, text TEXT,
    PRIMARY KEY (episode, round)) WITHOUT ROWID""",
    f"""CREATE TABLE steps (
    episode INTEGER NOT NULL, round INTEGER NOT NULL, step INTEGER NOT NULL, worker INTEGER, answered_by INTEGER,
    outcome TEXT, started REAL, ended REAL, {_USAGE},
    error_type TEXT, error TEXT, access TEXT, subtask TEXT,
    PRIMARY KEY (episode, round, step)) WITHOUT ROWID""",
    f"""CREATE TABLE calls (
    number INTEGER PRIMARY KEY, episode INTEGER NOT NULL, round INTEGER NOT NULL, step INTEGER, attempt INTEGER,
    worker TEXT, identity TEXT, outcome TEXT, nested INTEGER, replayed INTEGER, replayable INTEGER, key TEXT,
    request_hash TEXT, started REAL, {_USAGE},
    price TEXT, finish_reason TEXT, text INTEGER, reasoning INTEGER, error_type TEXT, error TEXT, request TEXT,
    tool_calls TEXT, body_sent TEXT)""",
    # What was said and shown, each text once, however many later steps saw it: calls name it by its number.
    "CREATE TABLE texts (number INTEGER PRIMARY KEY, text TEXT)",
    """CREATE VIEW turns AS SELECT calls.number AS call, turn.key AS turn, json_extract(turn.value, '$.role') AS role,
    texts.text AS content FROM calls JOIN json_each(calls.request, '$.messages') AS turn
    JOIN texts ON texts.number = json_extract(turn.value, '$.content')""",
    "CREATE INDEX calls_by_episode ON calls (episode)",
    "CREATE INDEX calls_by_key ON calls (key)",
)
_VERSION_2 = (
    # Most of what is never looked for by its key (failures, replays) leaves the index; the status of an HTTP failure.
    "DROP INDEX calls_by_key",
    "CREATE INDEX calls_by_key ON calls (key) WHERE replayable",
    "ALTER TABLE calls ADD COLUMN status INTEGER",
)
_VERSION_3 = (
    # What an evaluation keeps of each question asked once. A key that comes again is a newer judgement: the last row of
    # a key counts, and the earlier ones stay.
    "CREATE TABLE outcomes (number INTEGER PRIMARY KEY, key TEXT NOT NULL, written REAL, record TEXT NOT NULL)",
    "CREATE INDEX outcomes_by_key ON outcomes (key)",
)
MIGRATIONS = (_VERSION_1, _VERSION_2, _VERSION_3)
"""What makes a file of version n one of version n + 1, from the empty file on. Never changed, only added to."""

VERSION = len(MIGRATIONS)


def open_for_writing(path: Path) -> sqlite3.Connection:
    """The one writer's connection, to a file that is new, of today's version, or brought there. May change threads.

    Raises:
        JournalError: the file cannot be opened, is no journal, or is a later version's.
    """
    with _explained(path, "opened for writing"):
        connection = _connect(path, "mode=rwc")
        try:
            _check(connection, path)
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")  # of a new file only
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            _migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write. May be used from any thread, by one at a time.

    Raises:
        JournalError: the file cannot be opened, is no journal, or is of another version.
    """
    if not path.is_file():
        raise JournalError(f"journal {path}: there is no such file")
    with _explained(path, "opened for reading"):
        try:
            connection = _connect(path, "mode=ro")
            version = _checked_version(connection, path)
        except sqlite3.OperationalError:
            # A folder that cannot be written to has no place for the reader's own bookkeeping. Where no log lies
            # beside the file, the file is whole and nobody writes to it.
            if Path(f"{path}-wal").exists():
                raise
            connection = _connect(path, "mode=ro&immutable=1")
            version = _checked_version(connection, path)
        if version < VERSION:
            connection.close()
            raise JournalError(
                f"journal {path}: version {version}, expected {VERSION}; opening it for writing once brings it there"
            )
        connection.row_factory = sqlite3.Row
        return connection


def lock(path: Path) -> sqlite3.Connection:
    """Become the file's only writer: until the connection is closed, or the process ends in whatever way.

    The lock is SQLite's own, on an empty file beside the journal: it works wherever SQLite does, and between two
    journals in one process too.

    Raises:
        JournalError: another one is its writer, or the folder does not let us lock.
    """
    with _explained(path, "locked"):
        holder = _connect(Path(f"{path}{_LOCK_SUFFIX}"), "mode=rwc", timeout=0.0)
        try:
            holder.execute("PRAGMA journal_mode = OFF")  # nothing is ever written there
            holder.execute("BEGIN EXCLUSIVE")
        except BaseException as error:
            holder.close()
            if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise JournalError(
                    f"journal {path}: another writer has it open, expected one writer at a time (any number may read)"
                ) from error
            raise
        return holder


def next_text(connection: sqlite3.Connection) -> int:
    """The number of the next text."""
    return connection.execute("SELECT coalesce(max(number), 0) + 1 FROM texts").fetchone()[0]


def turns_of(call: sqlite3.Row) -> list[dict[str, Any]]:
    """The turns of a call's request, in which numbers stand for the texts; none where they are not kept."""
    request = None if call["request"] is None else loads(call["request"])
    return cast("dict[str, list[dict[str, Any]]]", request)["messages"] if isinstance(request, dict) else []


def texts_of(connection: sqlite3.Connection, calls: Sequence[sqlite3.Row]) -> dict[int, str]:
    """The texts that rows of calls name, by number."""
    numbers: set[int] = set()
    for call in calls:
        numbers.update(number for number in (call["text"], call["reasoning"]) if number is not None)
        for turn in turns_of(call):
            numbers.update(turn[name] for name in ("content", "parts") if name in turn)
    query = "SELECT number, text FROM texts WHERE number IN (SELECT value FROM json_each(?))"
    return {row["number"]: unpacked(row["text"]) for row in connection.execute(query, (dumps(sorted(numbers)),))}


def explanation(error: BaseException) -> str:
    """What went wrong, with SQLite's name for it where it has one."""
    name = getattr(error, "sqlite_errorname", None)
    return f"{error} ({name})" if name else f"{type(error).__name__}: {error}"


def _connect(path: Path, mode: str, *, timeout: float = _BUSY_SECONDS) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)


@contextmanager
def _explained(path: Path, what: str) -> Generator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"journal {path}: cannot be {what}: {explanation(error)}") from error


def _checked_version(connection: sqlite3.Connection, path: Path) -> int:
    try:
        return _check(connection, path)
    except BaseException:
        connection.close()
        raise


def _check(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the file; 0 is an empty one."""
    try:
        application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _HEADER)
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_NOTADB:
            raise
        raise JournalError(f"journal {path}: is no SQLite file, expected a journal or a new file") from error
    if application == 0 and tables == 0:
        return 0
    if application != APPLICATION_ID:
        raise JournalError(f"journal {path}: a SQLite file of something else, expected a journal or a new file")
    if version > VERSION:
        raise JournalError(f"journal {path}: version {version}, expected at most {VERSION}: a later OpenConductor's")
    return version


_HEADER = ("application_id", "user_version")


def _migrate(connection: sqlite3.Connection) -> None:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")  # all of it or nothing, the version among it
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")
