"""Changing a single record of a database, in one step among all processes."""

from __future__ import annotations

import json
import time

from openconductor.store.postgres.database import CHANGING, LOCK, Database, execute
from openconductor.store.serialisation import compact
from openconductor.store.store import RecordChange

_BEGIN = "SELECT set_config('synchronous_commit', 'on', TRUE), pg_advisory_xact_lock(?, ?)"


def change_database_record(database: Database, key: str, change: RecordChange) -> None:
    """Replace a record by what ``change`` makes of it; it is durable when this returns.

    Raises:
        JournalError: the database failed; if the connection was lost, the change may be made.
    """
    with database.explained(), database.transaction() as connection:
        execute(connection, _BEGIN, (LOCK, CHANGING))
        query = "SELECT record FROM outcomes WHERE key = ? ORDER BY number DESC LIMIT 1"
        row = execute(connection, query, (key,)).fetchone()
        value = change(None if row is None else json.loads(row["record"]))
        execute(connection, "DELETE FROM outcomes WHERE key = ?", (key,))
        added = "INSERT INTO outcomes (key, written, record) VALUES (?, ?, ?)"
        execute(connection, added, (key, time.time(), compact(value)))
