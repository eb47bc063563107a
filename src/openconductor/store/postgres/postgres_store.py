"""The store in PostgreSQL: the promises of a SQLite file, for many processes at once.

Each process has a queue and a thread that writes, as with a file; the messages and texts that it
writes have numbers of its own. A call is claimed before it is made (``claims``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Literal

from openconductor.errors import JournalError
from openconductor.privacy import Privacy
from openconductor.store.postgres.accounts import DatabaseAccounts
from openconductor.store.postgres.claims import Claims
from openconductor.store.postgres.database import Database
from openconductor.store.postgres.postgres_reader import PostgresReader
from openconductor.store.postgres.postgres_writer import PostgresWriter
from openconductor.store.postgres.record_changes import change_database_record
from openconductor.store.postgres.record_claims import claim_records
from openconductor.store.postgres.removal import Remover
from openconductor.store.sink import QueuedSink, check_content
from openconductor.store.store import ClaimedRecords, RecordChange
from openconductor.store.writer import Release
from openconductor.types import Completion


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

        Raises:
            JournalError: the store has failed, or is closed.
        """
        self._check(self._end)
        answer = claim_records(self._database, self._owner, keys, limit)
        late = [key for key in answer.claimed if key in answer.kept]
        for key in late:
            self.release(key)
        claimed = [key for key in answer.claimed if key not in late]
        return ClaimedRecords(claimed, answer.kept)

    def change_record(self, key: str, change: RecordChange) -> None:
        """Replace a record by what ``change`` makes of it, in one step among all processes."""
        self._check(self._end)
        change_database_record(self._database, key, change)

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
