"""A PostgreSQL database: its tables, its migrations, and the connections of one process.

All statements work behind a pooler such as PgBouncer: nothing is prepared, and what is set is set
for one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.abc import RV, Buffer, PQGen
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg.types.string import StrDumperUnknown
from psycopg_pool import ConnectionPool, PoolTimeout

from openconductor.errors import ConfigError, JournalError
from openconductor.store import place_name

LOCK = 0x4F434A4C  # "OCJL": the first number of our advisory locks
MIGRATING, WRITING, PRUNING, SETTLING, CHANGING = 1, 2, 3, 4, 5
"""The second number: of who changes the tables, adds rows (shared), removes old ones, settles for
dead processes, or changes a record."""

BLOCK = 1000
"""Numbers of messages and texts that a process takes at a time."""
_POOLED = 7  # connections that read; the writer has one more
_WAIT_S = 10.0  # for a connection,
_AWAY_S = 1.0  # and after nobody got one in that time
_CHECK_S = 2.0  # in which the server answers on a connection that nobody uses

ANSWER_S = 25.0
"""Seconds in which the server answers a statement: longer than it waits for a lock."""
READING_S = 120.0
"""Seconds in which it answers a statement that reads much."""
LONG_S = 3600.0
"""Seconds in which it answers a statement over a whole store."""

# The server ends the transaction of a client that is gone, whose locks others wait for. It does so
# before these give up, and before they count as dead.
_IDLE = "set_config('idle_in_transaction_session_timeout', '15s', TRUE)"
TIMEOUTS = f"{_IDLE}, set_config('lock_timeout', '20s', TRUE)"
"""Sets the limits of a transaction, as columns of a SELECT."""

# JSON is text here, because the type refuses some of what a model may say (the character NUL). The
# tables are those of a SQLite file; a number of `numbers` names a message or a text.
_TABLES = """
CREATE TABLE openconductor_store (version integer NOT NULL, generation bigint NOT NULL);
CREATE TABLE episodes (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, sample bigint,
    started double precision, outcome text NOT NULL DEFAULT 'unfinished', seconds double precision,
    usage text, error text, answer text, question text, workers text, only_step text);
CREATE TABLE rounds (
    episode text NOT NULL, round integer NOT NULL, ended double precision, valid boolean,
    accepted boolean, error text, workflow text, text text, rule text,
    PRIMARY KEY (episode, round));
CREATE TABLE steps (
    episode text NOT NULL, round integer NOT NULL, step integer NOT NULL, worker integer,
    answered_by integer, outcome text, started double precision, ended double precision,
    usage text, error text, access text, subtask text, PRIMARY KEY (episode, round, step));
CREATE TABLE calls (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, episode text NOT NULL,
    round integer NOT NULL, step integer, attempt integer, worker text, identity text,
    outcome text, nested boolean, replayed boolean, replayable boolean, key text,
    request_hash text, started double precision, usage text, price text, error text,
    request text, response text, body_sent text);
CREATE TABLE messages (number bigint PRIMARY KEY, message text NOT NULL, hash text);
CREATE TABLE texts (number bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE outcomes (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL,
    written double precision, record text NOT NULL);
CREATE SEQUENCE numbers INCREMENT 1000;
CREATE INDEX episodes_by_start ON episodes (started);
CREATE INDEX calls_by_episode ON calls (episode);
CREATE INDEX calls_by_key ON calls (key) WHERE replayable;
CREATE INDEX outcomes_by_key ON outcomes (key, number);

-- Who writes: the number of its last batch, and until when it counts as alive. That is infinity
-- until others bury it.
CREATE TABLE processes (id text PRIMARY KEY, batch bigint NOT NULL, until timestamptz NOT NULL);
-- The calls that are being made. A crash of the database forgets them.
CREATE UNLOGGED TABLE claims (key text PRIMARY KEY, owner text NOT NULL);

-- JSON without the escapes that the type json cannot turn into characters.
CREATE FUNCTION readable(document text) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT regexp_replace(document,
        '(?<!\\\\)((\\\\\\\\)*)\\\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\\1?', 'g')::json
$$;
CREATE VIEW whole_messages AS
    SELECT number, hash, CASE WHEN json_typeof(message::json) = 'object' THEN message ELSE (
        SELECT string_agg(coalesce(texts.text, piece #>> '{}'), '' ORDER BY place)
        FROM json_array_elements(message::json) WITH ORDINALITY AS pieces (piece, place)
        LEFT JOIN texts ON texts.number = CASE WHEN json_typeof(piece) = 'number'
            THEN piece::text::bigint END
        ) END AS message
    FROM messages;
CREATE VIEW turns AS
    SELECT calls.number AS call, place - 1 AS turn, readable(message) ->> 'role' AS role,
        readable(message) ->> 'content' AS content
    FROM calls
    CROSS JOIN json_array_elements_text(readable(request) -> 'messages')
        WITH ORDINALITY AS shown (named, place)
    JOIN whole_messages ON whole_messages.number = named::bigint;
INSERT INTO openconductor_store VALUES (0, 0);
"""

_ACCOUNTS = """
-- The money of keys, in US dollars: what was charged, and the sum of the slices that processes have
-- reserved. Others want some of them until `wanted`.
CREATE TABLE accounts (
    id text PRIMARY KEY, spent numeric NOT NULL, reserved numeric NOT NULL DEFAULT 0,
    wanted timestamptz);
CREATE TABLE slices (
    account text NOT NULL, process text NOT NULL, dollars numeric NOT NULL,
    PRIMARY KEY (account, process));
CREATE TABLE charges (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account text NOT NULL,
    episode text NOT NULL, dollars numeric NOT NULL);
CREATE INDEX charges_by_episode ON charges (episode);
-- The episodes whose charges may still grow.
CREATE TABLE bills (episode text PRIMARY KEY, account text NOT NULL, process text NOT NULL);
CREATE INDEX bills_by_process ON bills (process);
-- When the requests of the last minute began. A crash of the database forgets them.
CREATE UNLOGGED TABLE begun (account text NOT NULL, at timestamptz NOT NULL);
CREATE INDEX begun_by_account ON begun (account, at);
"""

_MIGRATIONS = (_TABLES, _ACCOUNTS)
"""The changes of the tables; a database of version n has had the first n."""
_NEWEST = len(_MIGRATIONS)


class _TextDumper(StrDumperUnknown):
    """Passes texts to the database, without a character that it cannot hold."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(without_nul(obj))


_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(str, _TextDumper)


class DatabaseConnection(psycopg.Connection[DictRow]):
    """A connection that is given up if the server does not answer.

    A proxy or a network may hold a connection open though nobody answers any more.

    Attributes:
        limit_s: seconds for the answer to a statement.
    """

    limit_s: float = ANSWER_S

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Wait for the end of what psycopg does with the server.

        Raises:
            psycopg.OperationalError: the server did not answer; the connection is closed.
        """
        return super().wait(self._limited(gen), *arguments, **options)

    def _limited(self, steps: PQGen[RV]) -> PQGen[RV]:
        """Take steps of psycopg, which come several times a second, until the time is over."""
        end = time.monotonic() + self.limit_s
        try:
            wanted = next(steps)
            while time.monotonic() < end:
                ready = yield wanted
                wanted = steps.send(ready)
        except StopIteration as ended:
            return ended.value
        self.pgconn.finish()
        raise psycopg.OperationalError(f"the server did not answer for {self.limit_s:g} seconds")


class Database:
    """The connections of this process to one database: at most eight.

    Args:
        url: as libpq takes it (``postgresql://…``).
    """

    def __init__(self, url: str) -> None:
        self.title = f"store {place_name(url)}"
        self._settings: dict[str, Any] = {
            "autocommit": True,
            "prepare_threshold": None,
            "context": _ADAPTERS,
            "row_factory": dict_row,
            "connect_timeout": int(_WAIT_S),
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 25_000,  # milliseconds
        }
        self._url = url
        self._is_away = False
        self._pool = ConnectionPool(
            url,
            connection_class=DatabaseConnection,
            kwargs=self._settings,
            min_size=0,
            max_size=_POOLED,
            timeout=_WAIT_S,
            reconnect_timeout=_AWAY_S,  # else its pauses grow for as long as an outage
            num_workers=1,
            open=False,
        )

    def open(self, *, for_writing: bool) -> None:
        """Check the tables; for writing, create or migrate them.

        Processes that do so at once wait for each other.

        Raises:
            ConfigError: the URL cannot be read.
            JournalError: there is no such database or no store in it, or it has a newer version.
        """
        with self._checking() as connection:
            if for_writing:
                execute(connection, "SELECT pg_advisory_xact_lock(?, ?)", (LOCK, MIGRATING))
            version = self._read_version(connection)
            if version == 0 and not for_writing:
                raise JournalError(f"{self.title}: the database is empty; expected a store")
            if for_writing and version < _NEWEST:
                for change in _MIGRATIONS[version:]:
                    connection.execute(change.encode())
                execute(connection, "UPDATE openconductor_store SET version = ?", (_NEWEST,))
        self._pool.open()

    def check(self) -> None:
        """Check that a store is in the database, or could be made there.

        Raises:
            ConfigError: the URL cannot be read.
            JournalError: there is no such database, or it has tables of something else.
        """
        with self._checking() as connection:
            self._read_version(connection)

    @contextmanager
    def _checking(self) -> Generator[DatabaseConnection]:
        """Run the block in a transaction of a new connection."""
        try:
            conninfo_to_dict(self._url)
        except psycopg.ProgrammingError:  # it may show a part of the URL, and so of its password
            raise ConfigError(f"{self.title}: the URL cannot be read") from None
        with self.explained(), self.connect() as connection, connection.transaction():
            execute(connection, f"SELECT {_IDLE}")
            self._check_encoding(connection)
            yield connection

    def _check_encoding(self, connection: DatabaseConnection) -> None:
        """Check that texts are kept as UTF-8.

        Raises:
            JournalError: the database has another encoding.
        """
        encoding = fetch_one(connection, "SHOW server_encoding")["server_encoding"]
        if encoding not in ("UTF8", b"UTF8"):  # bytes: those of SQL_ASCII are in no encoding
            if isinstance(encoding, bytes):
                encoding = encoding.decode()
            problem = f"has the encoding {encoding}, expected UTF8; create it WITH ENCODING 'UTF8'"
            raise JournalError(f"{self.title}: {problem} TEMPLATE template0")

    def _read_version(self, connection: DatabaseConnection) -> int:
        """Return the version of the tables; 0: there are none."""
        query = "SELECT to_regclass(?) IS NOT NULL AS there"
        if not fetch_one(connection, query, ("openconductor_store",))["there"]:
            if fetch_one(connection, query, ("episodes",))["there"]:
                problem = "holds tables of another program; a store needs a database of its own"
                raise JournalError(f"{self.title}: {problem}")
            return 0
        version: int = fetch_one(connection, "SELECT version FROM openconductor_store")["version"]
        if version > _NEWEST:
            raise JournalError(
                f"{self.title}: has schema version {version}, and this OpenConductor reads at most "
                f"{_NEWEST}; upgrade OpenConductor, or name another database"
            )
        return version

    def connect(self) -> DatabaseConnection:
        """Return a new connection, which is the caller's.

        Raises:
            psycopg.Error: there is no connection.
        """
        return DatabaseConnection.connect(self._url, **self._settings)

    def fetch(
        self,
        query: str,
        values: Sequence[object] | Mapping[str, object] = (),
        *,
        limit_s: float | None = None,
    ) -> list[DictRow]:
        """Return the rows of one statement; it is repeated once if the connection was lost.

        Args:
            query: the statement.
            values: its arguments.
            limit_s: seconds for the server's answer; then the connection counts as lost. None: 25.

        Raises:
            psycopg.Error: it failed.
        """
        try:
            with self._connection(limit_s) as connection:
                return execute(connection, query, values).fetchall()
        except PoolTimeout:
            raise
        except psycopg.OperationalError:
            self._pool.check()  # after a restart of the database all connections are lost
            with self._connection(limit_s) as connection:
                return execute(connection, query, values).fetchall()

    @contextmanager
    def _connection(self, limit_s: float | None) -> Generator[DatabaseConnection]:
        """Lend a connection of the pool.

        While the database is away each caller waits for a short time, because others wait in line.
        """
        try:
            with self._pool.connection(_AWAY_S if self._is_away else _WAIT_S) as connection:
                self._is_away = False
                connection.limit_s = limit_s or ANSWER_S
                try:
                    yield connection
                finally:
                    connection.limit_s = _CHECK_S
        except PoolTimeout:
            self._is_away = True
            raise

    @contextmanager
    def transaction(self, limit_s: float | None = None) -> Generator[DatabaseConnection]:
        """Run the block in a transaction; it is not repeated if the connection was lost.

        Args:
            limit_s: seconds for the server's answer to each statement. None: 25.

        Raises:
            psycopg.Error: it failed.
        """
        try:
            with self._connection(limit_s) as connection, connection.transaction():
                execute(connection, f"SELECT {TIMEOUTS}")
                yield connection
        except psycopg.OperationalError:
            self._pool.check()
            raise

    @contextmanager
    def explained(self) -> Generator[None]:
        """Turn the database's errors into a JournalError."""
        try:
            yield
        except psycopg.Error as error:
            raise JournalError(f"{self.title}: {describe(error)}") from error

    def close(self) -> None:
        """Close all connections of the pool; closing twice is allowed."""
        self._pool.close()


def without_nul(text: str) -> str:
    """Return a text with the character NUL written out; PostgreSQL cannot hold it."""
    return text.replace("\0", "\\x00")


def describe(error: psycopg.Error) -> str:
    """Return what went wrong, with PostgreSQL's code for it if it has one."""
    reason = str(error).strip() or type(error).__name__
    return f"{reason} ({error.sqlstate})" if error.sqlstate else reason


def execute(
    connection: DatabaseConnection, query: str, values: Sequence[object] | Mapping[str, object] = ()
) -> psycopg.Cursor[DictRow]:
    """Run a statement with its arguments, marked ``?`` as in SQLite or by name."""
    return connection.execute(query.replace("?", "%s").encode(), values)


def fetch_one(connection: DatabaseConnection, query: str, values: Sequence[object] = ()) -> DictRow:
    """Return the only row of a statement."""
    row = execute(connection, query, values).fetchone()
    assert row is not None, query
    return row
