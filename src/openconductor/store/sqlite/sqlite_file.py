"""The SQLite file of a journal: its schema, its migrations, and how it is opened and locked.

The file is in WAL mode: one process writes, any number read meanwhile. The writer holds a lock on
an empty file beside the journal, which the system releases however the process ends. Others may
change single records (``file_records``).
``synchronous=FULL``: a commit has reached the disk.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from openconductor.errors import JournalError

VERSION = 9
_OLDEST = 5  # version that can be read, and is migrated when it is opened for writing
_APPLICATION_ID = 0x4F434A4C  # "OCJL"
_BUSY_SECONDS = 30.0  # a reader's checkpoint or a backup ends within this time
_LOCK_SECONDS = 0.1  # a reader's look at the lock ends within this time

# Short columns come first: a column behind a long one is read through all of its pages. Usage,
# errors, workflows, requests, messages and responses are JSON (see `serialisation`). A message is
# there once, however many calls it was part of. The last row of a key in `outcomes` counts.
# These are the tables of version 5; a later version is a change of the one before.
_TABLES = """
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, sample INTEGER, started REAL,
    outcome TEXT NOT NULL DEFAULT 'unfinished', seconds REAL, usage TEXT, error TEXT, answer TEXT,
    question TEXT);
CREATE TABLE rounds (
    episode TEXT NOT NULL, round INTEGER NOT NULL, ended REAL, valid INTEGER, accepted INTEGER,
    error TEXT, workflow TEXT, text TEXT, PRIMARY KEY (episode, round));
CREATE TABLE steps (
    episode TEXT NOT NULL, round INTEGER NOT NULL, step INTEGER NOT NULL, worker INTEGER,
    answered_by INTEGER, outcome TEXT, started REAL, ended REAL, usage TEXT, error TEXT,
    access TEXT, subtask TEXT, PRIMARY KEY (episode, round, step));
CREATE TABLE calls (
    number INTEGER PRIMARY KEY, episode TEXT NOT NULL, round INTEGER NOT NULL, step INTEGER,
    attempt INTEGER, worker TEXT, identity TEXT, outcome TEXT, nested INTEGER, replayed INTEGER,
    replayable INTEGER, key TEXT, request_hash TEXT, started REAL, usage TEXT, price TEXT,
    error TEXT, request TEXT, response TEXT, body_sent TEXT);
CREATE TABLE messages (number INTEGER PRIMARY KEY, message TEXT NOT NULL);
CREATE TABLE outcomes (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL, written REAL, record TEXT NOT NULL);
CREATE INDEX calls_by_episode ON calls (episode);
CREATE INDEX calls_by_key ON calls (key) WHERE replayable;
CREATE INDEX outcomes_by_key ON outcomes (key);
CREATE VIEW turns AS
    SELECT calls.number AS call, turn.key AS turn, json_extract(message, '$.role') AS role,
        json_extract(message, '$.content') AS content
    FROM calls JOIN json_each(calls.request, '$.messages') AS turn
    JOIN messages ON messages.number = turn.value;
"""

# The hash names a message in any store. Requests in this file use the number: an index of hashes
# would cost a random page for each message, and slow writing by a tenth.
_VERSION_6 = """
ALTER TABLE messages ADD COLUMN hash TEXT;
ALTER TABLE episodes ADD COLUMN workers TEXT;
"""

# A long text of a question is there once, however many documents hold it: messages, samplings and
# bodies. Such a document is stored as a list of pieces: parts of its JSON, and numbers of texts.
_VERSION_7 = """
CREATE TABLE texts (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE VIEW whole_messages AS
    SELECT number, hash, CASE WHEN json_type(message) = 'object' THEN message ELSE (
        SELECT group_concat(coalesce(texts.text, piece.value), '') FROM json_each(message) AS piece
        LEFT JOIN texts ON piece.type = 'integer' AND texts.number = piece.value) END AS message
    FROM messages;
DROP VIEW turns;
CREATE VIEW turns AS
    SELECT calls.number AS call, turn.key AS turn, json_extract(message, '$.role') AS role,
        json_extract(message, '$.content') AS content
    FROM calls JOIN json_each(calls.request, '$.messages') AS turn
    JOIN whole_messages ON whole_messages.number = turn.value;
"""

# The rule that chose the workflow of a round in place of a plan.
_VERSION_8 = "ALTER TABLE rounds ADD COLUMN rule TEXT;"

# It stands for the rows of the round and the step of an episode that was one call.
_VERSION_9 = "ALTER TABLE episodes ADD COLUMN only_step TEXT;"

_CHANGES = {6: _VERSION_6, 7: _VERSION_7, 8: _VERSION_8, 9: _VERSION_9}
"""The change that leads to each version."""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open the writer's connection, which any thread may use. Create or migrate the file.

    Raises:
        JournalError: the file cannot be opened, is not a journal, or has another version.
    """
    with _opened(path, "opened for writing", "mode=rwc") as connection:
        version = _read_version(connection, path)
        # A call's row is some kB, so that smaller pages would split it.
        connection.execute("PRAGMA page_size = 8192")
        # 8 MiB; what does not fit is in the system's own cache.
        connection.execute("PRAGMA cache_size = -8192")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # 32 MiB of log before it is moved into the file.
        connection.execute("PRAGMA wal_autocheckpoint = 4096")
        if version < VERSION:
            tables = _TABLES if version == 0 else ""
            later = [change for number, change in _CHANGES.items() if number > version]
            # One transaction: the whole schema with its version, or nothing.
            connection.executescript(
                f"BEGIN IMMEDIATE; {tables} {''.join(later)}"
                f"PRAGMA application_id = {_APPLICATION_ID};"
                f"PRAGMA user_version = {VERSION}; COMMIT;"
            )
        return connection


def open_for_reading(path: Path, mode: str = "mode=ro") -> sqlite3.Connection:
    """Open a connection that cannot write. Any thread may use it, one at a time.

    Raises:
        JournalError: the file cannot be opened, is not a journal, or has another version.
    """
    if not path.is_file():
        raise JournalError(f"journal {path}: no such file")
    try:
        with _opened(path, "opened for reading", mode) as connection:
            if _read_version(connection, path) == 0:
                raise JournalError(f"journal {path}: the file is empty; expected a journal")
            connection.row_factory = sqlite3.Row
            return connection
    except JournalError as error:
        # In a folder without write permission SQLite has no place for the reader's own
        # bookkeeping. Without a log beside it the file is whole, and nobody writes to it.
        failed = isinstance(error.__cause__, sqlite3.OperationalError)
        if not failed or mode != "mode=ro" or Path(f"{path}-wal").exists():
            raise
        return open_for_reading(path, "mode=ro&immutable=1")


def open_beside(path: Path) -> sqlite3.Connection:
    """Open a connection that changes single records, beside the file's writer if it has one.

    Raises:
        JournalError: the file cannot be opened, is not a journal, or has a newer version.
    """
    if not path.is_file():
        raise JournalError(f"journal {path}: no such file")
    with _opened(path, "opened for writing", "mode=rw") as connection:
        if _read_version(connection, path) == 0:
            raise JournalError(f"journal {path}: the file is empty; expected a journal")
        connection.execute("PRAGMA synchronous = FULL")
        return connection


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Turn SQLite's errors into a JournalError."""
    try:
        yield
    except sqlite3.Error as error:
        raise JournalError(f"journal {path}: could not be written: {explain(error)}") from error


def lock(path: Path) -> sqlite3.Connection:
    """Become the file's only writer, until the connection is closed or the process ends.

    The lock is SQLite's own, on an empty file beside the journal: it works wherever SQLite does,
    and between two journals in one process too.

    Raises:
        JournalError: the file has a writer, or the folder does not allow locks.
    """
    with _opened(path, "locked", "mode=rwc", suffix="-lock", timeout=_LOCK_SECONDS) as holder:
        try:
            holder.execute("PRAGMA journal_mode = OFF")  # nothing is ever written there
            holder.execute("BEGIN EXCLUSIVE")
            now = time.time_ns()  # a file's own clock may be some milliseconds late
            os.utime(f"{path}-lock", ns=(now, now))  # readers are told since when it is held
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            message = (
                f"journal {path}: another writer has it open; a journal has one writer at a time, "
                "and any number of readers"
            )
            raise JournalError(message) from error
        return holder


def locked_since(path: Path) -> float:
    """Return since when a file has its writer, in seconds since 1970; infinity: it has none."""
    held = Path(f"{path}-lock")
    if not held.exists():
        return math.inf
    try:
        with _opened(path, "looked at", "mode=ro", suffix="-lock", timeout=0.0) as holder:
            holder.execute("SELECT 1 FROM sqlite_master").fetchall()
            holder.close()
    except JournalError:
        return held.stat().st_mtime
    return math.inf


def last_number(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of a table's last row; 0: it is empty."""
    query = f"SELECT coalesce(max(number), 0) FROM {table}"  # noqa: S608 - our own names
    return connection.execute(query).fetchone()[0]


def explain(error: BaseException) -> str:
    """Return what went wrong, with SQLite's name for it if it has one."""
    name = getattr(error, "sqlite_errorname", None)
    return f"{error} ({name})" if name else f"{type(error).__name__}: {error}"


@contextmanager
def _opened(
    path: Path, what: str, mode: str, *, suffix: str = "", timeout: float = _BUSY_SECONDS
) -> Generator[sqlite3.Connection]:
    """Open a connection; close it again if an error ends the block, and explain that."""
    try:
        uri = Path(f"{path}{suffix}").absolute().as_uri()
        connection = sqlite3.connect(
            f"{uri}?{mode}",
            uri=True,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        reason = explain(error)
        if path.is_dir():
            reason = "it is a folder, expected a file"
        elif not path.parent.is_dir():
            reason = f"no such folder as {path.parent}; make it first, or name another"
        raise JournalError(f"journal {path}: cannot be {what}: {reason}") from error


def _read_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the file's schema; 0: the file is empty."""

    def number(query: str) -> int:
        return connection.execute(query).fetchone()[0]

    try:
        application = number("PRAGMA application_id")
        version = number("PRAGMA user_version")
        tables = number("SELECT count(*) FROM sqlite_master")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise JournalError(
            f"journal {path}: not a SQLite file; expected a journal or a new file"
        ) from error
    if application == 0 and tables == 0:
        return 0
    if application != _APPLICATION_ID:
        problem = "a SQLite file of another program; expected a journal or a new file"
    elif version > VERSION:
        problem = (
            f"has schema version {version}, and this OpenConductor reads at most {VERSION}; "
            "upgrade OpenConductor, or name another file"
        )
    elif version < _OLDEST:
        problem = (
            f"has schema version {version}, and this OpenConductor reads {_OLDEST} and later; "
            "name another file"
        )
    else:
        return version
    raise JournalError(f"journal {path}: {problem}")
