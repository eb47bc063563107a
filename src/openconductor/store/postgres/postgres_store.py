"""The store in PostgreSQL: the promises of a SQLite file, for many processes at once.

Each process has a queue and a thread that writes, as with a file; the messages and texts that it
writes have numbers of its own. A call is claimed before it is made (``claims``).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Literal

from openconductor.errors import JournalError
from openconductor.privacy import Privacy
from openconductor.store.postgres.accounts import DatabaseAccounts
from openconductor.store.postgres.claims import Claims
from openconductor.store.postgres.database import CHANGING, LOCK, Database, execute
from openconductor.store.postgres.postgres_reader import PostgresReader
from openconductor.store.postgres.postgres_writer import PostgresWriter
from openconductor.store.postgres.removal import Remover
from openconductor.store.serialisation import compact
from openconductor.store.sink import QueuedSink, check_content
from openconductor.store.store import ClaimedRecords, RecordChange
from openconductor.store.writer import Release
from openconductor.types import Completion

_KEPT = "SELECT DISTINCT key FROM outcomes WHERE key = ANY(?)"
# Claims of records are rows beside those of calls, and end as these do. Rows are locked in the
# order of their keys, so that two processes never wait for each other.
_CLAIM_RECORDS = """INSERT INTO claims (key, owner)
    SELECT key, %(owner)s FROM (
        SELECT key FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS wanted (key, place)
        WHERE NOT EXISTS (
            SELECT FROM claims JOIN processes ON processes.id = claims.owner
            WHERE claims.key = wanted.key AND claims.owner <> %(owner)s
                AND processes.until > clock_timestamp())
            AND NOT EXISTS (SELECT FROM outcomes WHERE outcomes.key = wanted.key)
        ORDER BY place LIMIT %(limit)s) AS free
    ORDER BY key
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner
    WHERE claims.owner = excluded.owner OR NOT EXISTS (
        SELECT FROM processes WHERE id = claims.owner AND until > clock_timestamp())
    RETURNING key"""
_BEGIN_CHANGE = """SELECT set_config('synchronous_commit', 'on', TRUE),
    pg_advisory_xact_lock(?, ?)"""


class PostgresStore(QueuedSink, PostgresReader):
    """A store in a PostgreSQL database; an ``on_event`` sink and a context manager.

    Any number of processes write one at a time. Reading it returns what is on the server's disk.

    Args:
        url: the database (``postgresql://…``), which the store has for itself.
        content: as for ``Journal``.
        redact: as for ``Journal``.
        keep_days: as for ``Journal``; of several processes that have it, one removes at a time.

    Attributes:
        accounts: the money that several processes spend.

    Raises:
        ConfigError: ``content`` has another value, or the URL cannot be read.
        JournalError: the database cannot be reached, is not a store's, or has a newer version.
    """

    def __init__(
        self,
        url: str,
        *,
        content: Literal["full", "none"] = "full",
        redact: Callable[[str], str] | None = None,
        keep_days: float | None = None,
    ) -> None:
        self.keeps_texts = check_content(content)
        owner = self._owner = uuid.uuid4().hex
        held: set[str] = set()
        with ExitStack() as undone:
            database = undone.enter_context(closing(Database(url)))
            super().__init__(database, for_writing=True)
            writer = PostgresWriter(
                database, Privacy(redact), content=self.keeps_texts, owner=owner, held=held
            )
            undone.enter_context(closing(writer)).open()
            undone.pop_all()
        self._start(writer)
        self.accounts = DatabaseAccounts(database, owner, self._put, self.flush)
        self._claims = Claims(database, owner, self.find_completions, self.release, held)
        self._remover = None if keep_days is None else Remover(database, keep_days)

    async def claim(self, key: str) -> Completion | None:
        """Return the completion of a call, or None: the caller makes the call, then releases it.

        Where another call of this key is being made, by whatever process, it waits for its answer.

        Raises:
            JournalError: the store has failed, or is closed.
        """
        if not self.keeps_texts:
            return None
        self._check(self._end)
        return await self._claims.claim(key)

    def release(self, key: str) -> None:
        """Give back a call that was claimed, once what was handed over before is durable."""
        if self.keeps_texts:
            with suppress(JournalError):  # the next use of the store tells of it
                self._put(Release(key))

    def claim_records(self, keys: Sequence[str], limit: int) -> ClaimedRecords:
        """Claim at most ``limit`` records that nobody has kept and no other living process makes.

        Records that this process has claimed already are claimed again.

        Raises:
            JournalError: the store has failed, or is closed.
        """
        self._check(self._end)
        values = {"owner": self._owner, "keys": list(keys), "limit": limit}
        with self._database.explained():
            claims = self._database.fetch(_CLAIM_RECORDS, values)
            # After the claim, because another process may have kept a record just now.
            kept = [row["key"] for row in self._database.fetch(_KEPT, (values["keys"],))]
        claimed: list[str] = []
        for row in claims:
            key = row["key"]
            if key in kept:
                self.release(key)
            else:
                claimed.append(key)
        return ClaimedRecords(claimed, kept)

    def change_record(self, key: str, change: RecordChange) -> None:
        """Replace a record by what ``change`` makes of it, in one step among all processes.

        Raises:
            JournalError: the database failed; if the connection was lost, the change may be made.
        """
        self._check(self._end)
        with self._database.explained(), self._database.transaction() as connection:
            execute(connection, _BEGIN_CHANGE, (LOCK, CHANGING))
            latest = "SELECT record FROM outcomes WHERE key = ? ORDER BY number DESC LIMIT 1"
            row = execute(connection, latest, (key,)).fetchone()
            value = change(None if row is None else json.loads(row["record"]))
            execute(connection, "DELETE FROM outcomes WHERE key = ?", (key,))
            added = "INSERT INTO outcomes (key, written, record) VALUES (?, ?, ?)"
            execute(connection, added, (key, time.time(), compact(value)))

    def close(self) -> None:
        """Write what is left, and close all connections; closing twice is allowed.

        Raises:
            JournalError: the store had failed, or fails now.
        """
        if self._remover is not None:
            self._remover.stop()
        self._claims.close()
        self._stop()
        super().close()
        self._check_end()
