"""Writing batches of items to PostgreSQL, each in a transaction of its own.

A batch has a number, which is kept in the same transaction. So a batch whose commit was not heard
of, because the connection was lost, is repeated only if it was not committed.

The number also shows that the process lives, so one in between is kept before each further attempt.
The others bury the process, which ends its claims and slices, when its number has not changed for a
lease. They measure that by their own clocks, while their connection to the database holds: after an
outage everybody has a lease again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import cast

import psycopg
from psycopg.errors import IdleInTransactionSessionTimeout, LockNotAvailable
from psycopg.rows import DictRow

from openconductor.errors import JournalError
from openconductor.privacy import Privacy
from openconductor.store.postgres.accounts import add_charges, give_back_all
from openconductor.store.postgres.database import (
    BLOCK,
    LOCK,
    TIMEOUTS,
    WRITING,
    Database,
    DatabaseConnection,
    describe,
    execute,
    without_nul,
)
from openconductor.store.rows import Row
from openconductor.store.serialisation import compact
from openconductor.store.writer import ADDED, REMOVALS, Item, RowBatch, RowBuilder

LEASE_S = 30.0
"""Seconds for which a process that says nothing counts as alive, at least."""
_PATIENCE_S = 60.0  # for a database that does not answer
_PAUSE_S = 0.25  # between two attempts
_STEP = 1_000_000  # from the number of a batch to the next: more than there are attempts
_DAY_S = 86_400.0

_ALIVE = """INSERT INTO processes (id, batch, until)
    VALUES (?, ?, 'infinity')
    ON CONFLICT (id) DO UPDATE SET until = excluded.until, batch = excluded.batch
    WHERE processes.batch < excluded.batch RETURNING batch"""
# What is acknowledged is on the disk, whatever the server's own setting is. While rows are added,
# nothing that they may refer to is removed.
BEGIN = f"""SELECT {TIMEOUTS}, set_config('synchronous_commit', 'on', TRUE),
    pg_advisory_xact_lock_shared(?, ?)"""
"""The beginning of a transaction that adds rows; its values are the lock's two numbers."""
_LIVING = "SELECT id, batch FROM processes WHERE until > clock_timestamp()"
_BURY = "UPDATE processes SET until = clock_timestamp() WHERE id = ? AND batch = ?"
_FORGET_DEAD = """DELETE FROM processes
    WHERE until < clock_timestamp() - make_interval(secs => ?)"""
_RELEASE_DEAD = """DELETE FROM claims WHERE key IN (
    SELECT key FROM claims WHERE owner NOT IN (SELECT id FROM processes)
    ORDER BY key FOR UPDATE SKIP LOCKED)"""
_RELEASE = """DELETE FROM claims WHERE key IN (
    SELECT key FROM claims WHERE key = ANY(?) AND owner = ? ORDER BY key FOR UPDATE)"""

_REPLACED_BY = {
    "steps": ("episode", "round", "step"),
    "rounds": ("episode", "round"),
    "episode ends": ("id",),
}
"""The columns by which a row replaces an earlier one."""
_KEPT_FIRST = ("episode starts", "whole episodes")
"""Kinds of rows that an earlier row of the same id keeps out."""


class PostgresWriter:
    """Writes batches of items, says that its process is alive, and buries the dead ones.

    Args:
        database: where to.
        privacy: cleans every text.
        content: whether texts are written at all.
        owner: names this process.
        held: the keys of calls that this process has claimed.
    """

    def __init__(
        self,
        database: Database,
        privacy: Privacy,
        *,
        content: bool,
        owner: str,
        held: set[str],
    ) -> None:
        self._database = database
        self._owner = owner
        self._held = held
        self._builder = RowBuilder(privacy, content=content, next_number=self._next_number)
        self._numbers: Iterator[int] = iter(())  # of this process, for messages and texts
        self._generation: int | None = None  # of the messages and texts that the builder knows
        self._batch = 0
        self._built: RowBatch | None = None
        self._connection: DatabaseConnection | None = None
        # By process and the number of its batch; this and the next by the monotonic clock.
        self._first_seen: dict[tuple[str, int], float] = {}
        self._looked = 0.0  # at the processes

    def open(self) -> None:
        """Say that this process is alive, and forget those that died long ago.

        Raises:
            JournalError: the database failed.
        """
        with self._database.explained():
            self._say_alive(self._batch)
            connection = self._connected()
            execute(connection, _FORGET_DEAD, (_DAY_S,))
            execute(connection, _RELEASE_DEAD)

    def write(self, batch: Sequence[tuple[Item, float]]) -> None:
        """Commit items, each with its time (seconds since 1970): then they are durable.

        A database that was restarted, or does not answer for a while, is waited for; so are locks.

        Raises:
            JournalError: nothing of the batch is committed.
        """
        before = self._batch
        self._batch += _STEP
        self._built = None
        end = time.monotonic() + _PATIENCE_S
        for attempt in count():
            try:
                if attempt > 0:
                    self._say_alive(before + attempt)
                self._commit(batch)
                break
            except (psycopg.OperationalError, IdleInTransactionSessionTimeout) as error:
                self._disconnect()
                if self._built is None:  # half of its messages may have numbers
                    self._generation = None
                if time.monotonic() > end and not isinstance(error, LockNotAvailable):
                    raise _failure(error) from error
                time.sleep(_PAUSE_S)
            except psycopg.Error as error:
                raise _failure(error) from error
        self._builder.end_batch()
        if self._built is not None:
            self._held.difference_update(self._built.releases)

    def chores(self) -> Iterator[float]:
        """Say that this process is alive and bury the dead, again and again; yield when due."""
        while True:
            yield time.monotonic() + LEASE_S / 3
            try:
                self._batch += 1
                self._say_alive(self._batch)
                self._bury_dead()
            except psycopg.Error:  # the next batch waits for the database, or tells of it
                self._disconnect()

    def close(self) -> None:
        """Give back what this process has claimed, and close the connection."""
        with suppress(psycopg.Error):
            connection = self._connected()
            with connection.transaction():
                give_back_all(connection, self._owner)
            execute(connection, "DELETE FROM processes WHERE id = ?", (self._owner,))
            execute(connection, _RELEASE_DEAD)
        self._disconnect()

    # ── a batch ───────────────────────────────────────────────────────────────────────────────────
    def _commit(self, items: Sequence[tuple[Item, float]]) -> None:
        connection = self._connected()
        # In a pipeline only what is fetched is waited for: a batch takes two round trips.
        with connection.pipeline() as pipeline, connection.transaction():
            alive = self._say_alive(self._batch)
            execute(connection, BEGIN, (LOCK, WRITING))
            generation = execute(connection, "SELECT generation FROM openconductor_store")
            pipeline.sync()  # the server measures only from here on how long it is idle
            if not alive.fetchall():
                return  # an attempt whose end was not heard of was committed
            self._check_generation(generation.fetchall()[0]["generation"])
            if self._built is None:
                self._built = self._builder.build(items)
            self._add(connection, self._built)

    def _add(self, connection: DatabaseConnection, batch: RowBatch) -> None:
        for kind in ADDED:
            if batch.rows[kind]:
                add_rows(connection, kind, batch.rows[kind])
        for removal in sorted(batch.removals):
            for statement in REMOVALS:
                execute(connection, statement, (removal.episode,))
            execute(connection, "DELETE FROM outcomes WHERE key = ANY(?)", (list(removal.records),))
        if batch.releases:
            execute(connection, _RELEASE, (batch.releases, self._owner))
        if batch.charges:  # at the end, because the rows of accounts are wanted by all
            add_charges(connection, batch.charges.values(), self._owner)

    def _check_generation(self, generation: int) -> None:
        """Forget messages and texts that were removed with old episodes meanwhile.

        A batch that was built before names some of them: it is built again.
        """
        if generation == self._generation:
            return
        self._generation = generation
        self._built = None
        self._builder.forget()
        self._numbers = iter(())

    def _next_number(self) -> int:
        """Return a number for a message or a text.

        They come in blocks, over another connection than the writer's own.
        """
        number = next(self._numbers, None)
        if number is None:
            rows = self._database.fetch("SELECT nextval('numbers') AS first")
            number = cast("int", rows[0]["first"])
            self._numbers = iter(range(number + 1, number + BLOCK))
        return number

    # ── the connection ────────────────────────────────────────────────────────────────────────────
    def _say_alive(self, number: int) -> psycopg.Cursor[DictRow]:
        """Renew the lease of this process. No row comes if this number was kept before."""
        return execute(self._connected(), _ALIVE, (self._owner, number))

    def _bury_dead(self) -> None:
        """Bury each process whose number has not changed for a lease in which this one listened."""
        connection = self._connected()
        rows = execute(connection, _LIVING).fetchall()
        now = time.monotonic()
        was_away = now - self._looked > 2 / 3 * LEASE_S  # the database, or this process itself
        first_seen = {} if was_away else self._first_seen
        self._looked = now
        self._first_seen = {}
        for row in rows:
            life_sign = (row["id"], row["batch"])
            since = first_seen.get(life_sign, now)
            self._first_seen[life_sign] = since
            if now - since >= LEASE_S:
                execute(connection, _BURY, life_sign)

    def _connected(self) -> DatabaseConnection:
        if self._connection is None:
            self._connection = self._database.connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._first_seen.clear()


def add_rows(connection: DatabaseConnection, kind: str, rows: Sequence[Row]) -> None:
    """Add rows of one kind (``ADDED``), in their order."""
    names = tuple(rows[0])
    columns = ", ".join(names)
    ending = "ON CONFLICT (id) DO NOTHING" if kind in _KEPT_FIRST else ""
    key = _REPLACED_BY.get(kind)
    if key is not None:
        last = {tuple(str(row[name]) for name in key): row for row in rows}
        rows = [last[identity] for identity in sorted(last)]  # so that nobody locks them crosswise
        changes = ", ".join(f"{name} = excluded.{name}" for name in names)
        ending = f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
    table = ADDED[kind]
    # One argument for all rows: the server takes them apart faster than we can.
    query = f"""INSERT INTO {table} ({columns})
        SELECT {columns} FROM json_populate_recordset(NULL::{table}, ?::json) {ending}"""  # noqa: S608
    execute(connection, query, (compact([_storable(row) for row in rows]),))


def _storable(row: Row) -> Row:
    return {
        name: without_nul(value) if isinstance(value, str) else value for name, value in row.items()
    }


def _failure(error: psycopg.Error) -> JournalError:
    return JournalError(
        f"could not be written: {describe(error)}; what was acknowledged before is kept"
    )
