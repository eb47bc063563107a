"""The journal's file: its tables, and how it is opened. In: a path. Out: SQLite connections, or a JournalError.

SQLite in WAL mode: one process writes, any number reads meanwhile. The writer holds a lock on an
empty file beside the journal, which the system releases however the process ends.
``synchronous=FULL``: a commit has reached the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from openconductor.errors import JournalError

VERSION = 5
_APPLICATION_ID = 0x4F434A4C  # "OCJL"
_BUSY_SECONDS = 30.0  # a reader's checkpoint, a backup: they end
_NOT_OURS = "expected a journal or a new file"

# Short columns come first: what is behind a long one is read through all of its pages. Usage,
# errors, workflows, requests, messages and responses are JSON (see `serialisation`). A message is
# there once, however many calls it was part of: requests name it by its number. Of an outcome's key
# the last row counts; earlier ones are older judgements.
_SCHEMA = f"""
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, sample INTEGER, started REAL,
    outcome TEXT NOT NULL DEFAULT 'unfinished', seconds REAL, usage TEXT, error TEXT, answer TEXT, question TEXT);
CREATE TABLE rounds (
    episode TEXT NOT NULL, round INTEGER NOT NULL, ended REAL, valid INTEGER, accepted INTEGER, error TEXT,
    workflow TEXT, text TEXT, PRIMARY KEY (episode, round));
CREATE TABLE steps (
    episode TEXT NOT NULL, round INTEGER NOT NULL, step INTEGER NOT NULL, worker INTEGER, answered_by INTEGER,
    outcome TEXT, started REAL, ended REAL, usage TEXT, error TEXT, access TEXT, subtask TEXT,
    PRIMARY KEY (episode, round, step));
CREATE TABLE calls (
    number INTEGER PRIMARY KEY, episode TEXT NOT NULL, round INTEGER NOT NULL, step INTEGER, attempt INTEGER,
    worker TEXT, identity TEXT, outcome TEXT, nested INTEGER, replayed INTEGER, replayable INTEGER, key TEXT,
    request_hash TEXT, started REAL, usage TEXT, price TEXT, error TEXT, request TEXT, response TEXT, body_sent TEXT);
CREATE TABLE messages (number INTEGER PRIMARY KEY, message TEXT NOT NULL);
CREATE TABLE outcomes (number INTEGER PRIMARY KEY, key TEXT NOT NULL, written REAL, record TEXT NOT NULL);
CREATE INDEX calls_by_episode ON calls (episode);
CREATE INDEX calls_by_key ON calls (key) WHERE replayable;
CREATE INDEX outcomes_by_key ON outcomes (key);
CREATE VIEW turns AS SELECT calls.number AS call, turn.key AS turn, json_extract(message, '$.role') AS role,
    json_extract(message, '$.content') AS content FROM calls JOIN json_each(calls.request, '$.messages') AS turn
    JOIN messages ON messages.number = turn.value;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""  # noqa: S608 - our own numbers


def open_for_writing(path: Path) -> sqlite3.Connection:
    """The one writer's connection, to a file that is new or of this version. May change threads.

    Raises:
        JournalError: the file cannot be opened, is no journal, or is of another version.
    """
    with _opened(path, "opened for writing", "mode=rwc") as connection:
        new = not _version(connection, path)
        connection.execute(
            "PRAGMA page_size = 8192"
        )  # a call's row is some kB: on smaller pages in many pieces
        connection.execute(
            "PRAGMA cache_size = -8192"
        )  # 8 MiB: what it lacks is in the system's own cache
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "PRAGMA wal_autocheckpoint = 4096"
        )  # 32 MiB of log before it is moved into the file
        if new:  # all of it or nothing, the version among it
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        return connection


def open_for_reading(path: Path, mode: str = "mode=ro") -> sqlite3.Connection:
    """A connection that cannot write. May be used from any thread, by one at a time.

    Raises:
        JournalError: the file cannot be opened, is no journal, or is of another version.
    """
    if not path.is_file():
        raise JournalError(f"journal {path}: there is no such file")
    try:
        with _opened(path, "opened for reading", mode) as connection:
            if _version(connection, path) == 0:
                raise JournalError(f"journal {path}: is empty, expected a journal")
            connection.row_factory = sqlite3.Row
            return connection
    except JournalError as error:
        # A folder that cannot be written to has no place for the reader's own bookkeeping. Where no
        # log lies beside the file, the file is whole and nobody writes to it.
        failed = isinstance(error.__cause__, sqlite3.OperationalError)
        if not failed or mode != "mode=ro" or Path(f"{path}-wal").exists():
            raise
        return open_for_reading(path, "mode=ro&immutable=1")


def lock(path: Path) -> sqlite3.Connection:
    """Become the file's only writer: until the connection is closed, or the process ends in whatever way.

    The lock is SQLite's own, on an empty file beside the journal: it works wherever SQLite does,
    and between two journals in one process too.

    Raises:
        JournalError: another one is its writer, or the folder does not let us lock.
    """
    with _opened(path, "locked", "mode=rwc", beside="-lock", timeout=0.0) as holder:
        try:
            holder.execute("PRAGMA journal_mode = OFF")  # nothing is ever written there
            holder.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            raise JournalError(
                f"journal {path}: another writer has it open, expected one writer at a time (any number may read)"
            ) from error
        return holder


def explanation(error: BaseException) -> str:
    """What went wrong, with SQLite's name for it where it has one."""
    name = getattr(error, "sqlite_errorname", None)
    return f"{error} ({name})" if name else f"{type(error).__name__}: {error}"


@contextmanager
def _opened(
    path: Path, what: str, mode: str, *, beside: str = "", timeout: float = _BUSY_SECONDS
) -> Generator[sqlite3.Connection]:
    """A connection that is closed again if an error ends the block; the disk's errors are explained."""
    try:
        uri = f"{Path(f'{path}{beside}').absolute().as_uri()}?{mode}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
        )
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"journal {path}: cannot be {what}: {explanation(error)}") from error


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the file; 0 is an empty one."""
    try:
        application, version, tables = (
            int(connection.execute(query).fetchone()[0])
            for query in (
                "PRAGMA application_id",
                "PRAGMA user_version",
                "SELECT count(*) FROM sqlite_master",
            )
        )
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise JournalError(f"journal {path}: is no SQLite file, {_NOT_OURS}") from error
    if application == 0 and tables == 0:
        return 0
    if application != _APPLICATION_ID:
        raise JournalError(f"journal {path}: a SQLite file of something else, {_NOT_OURS}")
    if version != VERSION:
        whose = "a later" if version > VERSION else "an earlier"
        raise JournalError(
            f"journal {path}: version {version}, expected {VERSION}: {whose} OpenConductor wrote it, and that one "
            "reads it; name another file to go on with this one"
        )
    return version
