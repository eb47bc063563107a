"""Retention in PostgreSQL: old episodes go, with the messages and texts that only they refer to.

Records stay, as in a SQLite file, and so do episodes that a key may still be charged for. One
process at a time removes, in steps that are transactions of their own; the others go on writing.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing, suppress

from psycopg.errors import LockNotAvailable

from openconductor.errors import JournalError
from openconductor.store.postgres.database import (
    LOCK,
    LONG_S,
    PRUNING,
    WRITING,
    Database,
    DatabaseConnection,
    execute,
    fetch_one,
)
from openconductor.store.sqlite.retention import DAY_S, EVERY_S
from openconductor.store.store import SHOWN

_ATTEMPTS = 60
_PAUSE_S = 1.0  # between two attempts

_OLD = """DELETE FROM episodes WHERE number IN (
    SELECT number FROM episodes WHERE started < ?
        AND NOT EXISTS (SELECT FROM bills WHERE bills.episode = episodes.id)
    ORDER BY number LIMIT 200) RETURNING id"""
_NEXT = """UPDATE openconductor_store SET generation = generation + 1
    RETURNING nextval('numbers') AS first"""
_NUMBERS = """SELECT piece::text::bigint FROM {0}, json_array_elements(CASE
        WHEN json_typeof({1}) = 'array' THEN {1} END) AS pieces (piece)
    WHERE json_typeof(piece) = 'number'"""
_REFERENCES = {
    "messages": (("calls", "readable(request) -> 'messages'"), ("episodes", "question::json")),
    "texts": (
        ("calls", "readable(request) -> 'sampling'"),
        ("calls", "body_sent::json"),
        ("messages", "message::json"),
    ),
}
"""The tables of which unused rows are removed: each list that may name one, and where it stands."""

log = logging.getLogger("openconductor.store")


def prune_url(url: str, before: float) -> dict[str, int]:
    """Do as ``prune_database`` with the database of this URL."""
    with closing(Database(url)) as database:
        database.open(for_writing=True)
        return prune_database(database, before)


def prune_database(database: Database, before: float) -> dict[str, int]:
    """Remove the episodes that began before a time. PostgreSQL then uses the space again.

    Returns:
        How many ``episodes``, ``calls``, ``messages`` and ``texts`` were removed.

    Raises:
        JournalError: the database failed, another process removes old episodes now, or one writes
            a batch that takes minutes.
    """
    removed = {"episodes": 0, "calls": 0}
    with database.explained():
        while True:
            with database.transaction(LONG_S) as connection:
                _become_the_only_one(database, connection)
                old = [row["id"] for row in execute(connection, _OLD, (before,)).fetchall()]
                removed["episodes"] += len(old)
                removed["calls"] += _remove_rows(connection, old)
            if not old:
                break
        first = _begin_numbers(database)
        for table, references in _REFERENCES.items():
            used = " UNION ".join(_NUMBERS.format(*reference) for reference in references)
            query = f"DELETE FROM {table} WHERE number < ? AND number NOT IN ({used})"  # noqa: S608
            with database.transaction(LONG_S) as connection:
                _become_the_only_one(database, connection)
                removed[table] = execute(connection, query, (first,)).rowcount
    return removed


def _begin_numbers(database: Database) -> int:
    """Let the writers number messages and texts anew; return the first new number.

    It is done between two batches. All writers wait behind who waits for that: so each attempt is
    short, because a copy from a file is a batch of minutes.
    """
    for _ in range(_ATTEMPTS):
        with suppress(LockNotAvailable), database.transaction() as connection:
            execute(connection, "SELECT set_config('lock_timeout', '200ms', TRUE)")
            execute(connection, "SELECT pg_advisory_xact_lock(?, ?)", (LOCK, WRITING))
            first: int = fetch_one(connection, _NEXT)["first"]
            return first
        time.sleep(_PAUSE_S)
    raise JournalError(
        f"{database.title}: old episodes are removed, but not the texts that only they have, "
        "because another process is writing all the time; remove again later"
    )


def _become_the_only_one(database: Database, connection: DatabaseConnection) -> None:
    query = "SELECT pg_try_advisory_xact_lock(?, ?) AS alone"
    if not fetch_one(connection, query, (LOCK, PRUNING))["alone"]:
        raise JournalError(f"{database.title}: another process removes old episodes now")


def _remove_rows(connection: DatabaseConnection, episodes: list[str]) -> int:
    """Remove what belongs to episodes alone; return how many calls that were."""
    execute(connection, "DELETE FROM rounds WHERE episode = ANY(?)", (episodes,))
    execute(connection, "DELETE FROM steps WHERE episode = ANY(?)", (episodes,))
    shown = [f"{SHOWN}{identifier}" for identifier in episodes]
    execute(connection, "DELETE FROM outcomes WHERE key = ANY(?)", (shown,))
    return execute(connection, "DELETE FROM calls WHERE episode = ANY(?)", (episodes,)).rowcount


class Remover:
    """Removes old episodes again and again, on a thread of its own.

    Args:
        database: where from.
        keep_days: how long an episode is kept.
    """

    def __init__(self, database: Database, keep_days: float) -> None:
        self._database = database
        self._keep_days = keep_days
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="openconductor-removal", daemon=True).start()

    def stop(self) -> None:
        """End after the statement that runs now."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                prune_database(self._database, time.time() - self._keep_days * DAY_S)
            except JournalError as error:  # another process does it; or the database is away
                if not self._ended.is_set():
                    log.warning("old episodes are removed later: %s", error)
            self._ended.wait(EVERY_S)
