"""Accounts: the money of keys, which several processes spend (``store.Accounts``).

One row an account holds what was charged and what is reserved; charges are appended beside it. That
row is locked before all others of the account, and several accounts in the order of their ids, so
that no two processes wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal

from openconductor.store.postgres.database import (
    LOCK,
    SETTLING,
    Database,
    DatabaseConnection,
    execute,
    fetch_one,
)
from openconductor.store.serialisation import compact
from openconductor.store.store import Balance
from openconductor.store.writer import Charge

_OPEN = "INSERT INTO accounts (id, spent) VALUES (?, ?) ON CONFLICT (id) DO NOTHING RETURNING id"
_IS_SPENT_BY_OTHERS = """SELECT EXISTS (
    SELECT FROM slices JOIN processes ON processes.id = process
    WHERE account = ? AND process <> ? AND until > clock_timestamp()) AS by_others"""
# A hundredth of what is left, if no more is needed; the last of it whole. Of a limit of $10 with $3
# spent and $2 reserved, $5 are left: who needs $0.20 gets $0.20, and who needs $0.01 gets $0.05. Of
# $0.00003 that are left, who needs nothing gets a millionth of a dollar, not a hundredth of those.
# Who needs more than is left gets no row.
_RESERVE = """WITH room AS (
        SELECT id, spent, greatest(%(dollars)s, round((%(limit)s - spent - reserved) / 100, 12),
            least(%(limit)s - spent - reserved, 0.000001)) AS granted
        FROM accounts WHERE id = %(account)s AND spent + reserved < %(limit)s
            AND spent + reserved + %(dollars)s <= %(limit)s FOR UPDATE),
    reserving AS (
        UPDATE accounts SET reserved = reserved + granted FROM room WHERE accounts.id = room.id)
    INSERT INTO slices (account, process, dollars) SELECT id, %(process)s, granted FROM room
    ON CONFLICT (account, process) DO UPDATE SET dollars = slices.dollars + excluded.dollars
    RETURNING (SELECT granted FROM room), (SELECT spent FROM room)"""
_ASK_OTHERS = """UPDATE accounts SET wanted = clock_timestamp() + interval '1 second'
    WHERE id = ? RETURNING 0 AS granted, spent"""
_SLICE = "SELECT dollars FROM slices WHERE account = %(account)s AND process = %(process)s"
_REDUCE = """WITH kept AS (
        UPDATE slices SET dollars = %(dollars)s
        WHERE account = %(account)s AND process = %(process)s)
    UPDATE accounts SET reserved = reserved - %(surplus)s WHERE id = %(account)s"""
# What lies in the future is from before the clock of the database was set back.
_WATCH = """SELECT id, coalesce(wanted BETWEEN clock_timestamp()
        AND clock_timestamp() + interval '1 second', FALSE) AS wanted
    FROM accounts JOIN slices ON account = id AND process = ? WHERE id = ANY(?)"""

_LOCK = "SELECT FROM accounts WHERE id = ANY(?) ORDER BY id FOR UPDATE"
_OPEN_BILLS = """INSERT INTO bills (episode, account, process)
    SELECT episode, account, ? FROM json_populate_recordset(NULL::bills, ?::json)
    ON CONFLICT (episode) DO NOTHING"""
# A slice is missing if others took this process for dead. Nothing is refunded: an episode that is
# kept as a whole at its end has no calls in the store if its process is killed.
_CHARGE = """WITH due AS (
        SELECT account, episode, dollars - coalesce((
            SELECT sum(earlier.dollars) FROM charges AS earlier
            WHERE earlier.episode = due.episode), 0) AS dollars
        FROM json_populate_recordset(NULL::charges, ?::json) AS due),
    added AS (
        INSERT INTO charges (account, episode, dollars)
        SELECT account, episode, dollars FROM due WHERE dollars > 0 RETURNING account, dollars),
    sums AS (SELECT account, sum(dollars) AS dollars FROM added GROUP BY account),
    paid AS (
        UPDATE slices SET dollars = slices.dollars - sums.dollars FROM sums
        WHERE slices.account = sums.account AND process = ? RETURNING slices.account)
    UPDATE accounts SET spent = spent + sums.dollars, reserved = reserved
        - CASE WHEN id IN (SELECT account FROM paid) THEN sums.dollars ELSE 0 END
    FROM sums WHERE id = sums.account"""
_CLOSE_BILLS = "DELETE FROM bills WHERE episode = ANY(?)"

_DEAD = """(SELECT process FROM slices UNION SELECT process FROM bills)
    EXCEPT SELECT id FROM processes WHERE until > clock_timestamp()"""
_OF_PROCESS = """SELECT account FROM slices WHERE process = %(process)s
    UNION SELECT account FROM bills WHERE process = %(process)s"""
_TAKE_BACK = """WITH gone AS (DELETE FROM slices WHERE process = ? RETURNING account, dollars)
    UPDATE accounts SET reserved = reserved - gone.dollars FROM gone WHERE id = gone.account"""

_OF_LAST_MINUTE = """FROM begun WHERE account = ?
    AND at BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp()"""
_COUNT = f"""INSERT INTO begun (account, at) SELECT ?, clock_timestamp()
    WHERE (SELECT count(*) {_OF_LAST_MINUTE}) < ?"""
_UNTIL_NEXT = f"""SELECT greatest(extract(epoch FROM min(at) + interval '1 minute'
    - clock_timestamp()), 0.001)::float AS seconds {_OF_LAST_MINUTE}"""  # noqa: S608
_FORGET_OTHERS = """DELETE FROM begun WHERE account = ?
    AND at NOT BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp()"""


class DatabaseAccounts:
    """The accounts in a database, for one process.

    Args:
        database: holds them.
        process: names this process.
        put: hands a charge to the writer of the store.
        flush: waits until what was handed over is durable.
    """

    def __init__(
        self,
        database: Database,
        process: str,
        put: Callable[[Charge], None],
        flush: Callable[[], None],
    ) -> None:
        self._flush = flush
        self._database = database
        self._process = process
        self._put = put

    def open(self, account: str, spent: Decimal) -> None:
        """Open an account of which so much was spent before; one that is there stays as it is."""
        with self._database.explained():
            self._database.fetch(_OPEN, (account, spent))

    def reopen(self, account: str, spent: Callable[[], Decimal]) -> None:
        """Open an account of which so much was spent before, unless a living process spends it."""
        values = (account, self._process)
        with self._database.explained(), self._database.transaction() as connection:
            execute(connection, _OPEN, (account, 0))
            execute(connection, _LOCK, ([account],))
            if not fetch_one(connection, _IS_SPENT_BY_OTHERS, values)["by_others"]:
                change = "UPDATE accounts SET spent = ? WHERE id = ?"
                execute(connection, change, (spent(), account))

    def spent(self, account: str) -> Decimal | None:
        """Return what was charged to an account. None: there is none."""
        with self._database.explained():
            rows = self._database.fetch("SELECT spent FROM accounts WHERE id = ?", (account,))
        return rows[0]["spent"] if rows else None

    def reserve(self, account: str, limit: Decimal, dollars: Decimal) -> Balance:
        """Reserve a slice of at least ``dollars``; if there is none, ask others for theirs."""
        values = self._values(account, dollars) | {"limit": limit}
        # It is not repeated if the connection is lost, because it may have been granted. Such a
        # slice is given back by ``keep``.
        with self._database.explained(), self._database.transaction() as connection:
            rows = execute(connection, _RESERVE, values).fetchall()
            if not rows:
                rows = execute(connection, _ASK_OTHERS, (account,)).fetchall()
        return Balance(rows[0]["granted"], rows[0]["spent"])

    def keep(self, account: str, dollars: Decimal) -> None:
        """Keep at most ``dollars`` of this process's slice, and give back the rest."""
        self._flush()
        values = self._values(account, dollars)
        with self._database.explained(), self._database.transaction() as connection:
            execute(connection, _LOCK, ([account],))
            for row in execute(connection, _SLICE, values).fetchall():
                surplus = row["dollars"] - dollars
                if surplus > 0:
                    execute(connection, _REDUCE, {**values, "surplus": surplus})

    def _values(self, account: str, dollars: Decimal) -> dict[str, object]:
        return {"account": account, "process": self._process, "dollars": dollars}

    def watch(self, accounts: Sequence[str]) -> Mapping[str, bool]:
        """Return the accounts of which this process has a slice: True if others want some of it."""
        with self._database.explained():
            rows = self._database.fetch(_WATCH, (self._process, list(accounts)))
        return {row["id"]: row["wanted"] for row in rows}

    def charge(self, account: str, episode: str, total: Decimal, *, closed: bool) -> None:
        """Charge an episode ``total`` US dollars in all; durable as events are."""
        self._put(Charge(account, episode, total, closed))

    def settle_dead(self, cost: Callable[[str], Decimal]) -> None:
        """Charge the open episodes of dead processes, and take back their slices."""
        with self._database.explained():
            for row in self._database.fetch(_DEAD):
                with self._database.transaction() as connection:
                    _settle(connection, row["process"], cost)

    def count_request(self, account: str, limit: int) -> float:
        """Count a request, unless ``limit`` of them were counted in the last minute."""
        with self._database.explained(), self._database.transaction() as connection:
            execute(connection, "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (account,))
            counted = execute(connection, _COUNT, (account, account, limit)).rowcount
            if not counted:
                wait: float = fetch_one(connection, _UNTIL_NEXT, (account,))["seconds"]
                return wait
            execute(connection, _FORGET_OTHERS, (account,))
            return 0.0


def add_charges(connection: DatabaseConnection, charges: Collection[Charge], process: str) -> None:
    """Write the charges of a process, in a transaction that adds no rows afterwards."""
    rows = [
        {"account": charge.account, "episode": charge.episode, "dollars": str(charge.dollars)}
        for charge in charges
    ]
    document = compact(rows)
    execute(connection, _LOCK, (sorted({charge.account for charge in charges}),))
    execute(connection, _OPEN_BILLS, (process, document))
    execute(connection, _CHARGE, (document, process))
    closed = sorted(charge.episode for charge in charges if charge.closed)
    if closed:
        execute(connection, _CLOSE_BILLS, (closed,))


def give_back_all(connection: DatabaseConnection, process: str) -> None:
    """Give back all slices of a process, in one transaction."""
    _lock_accounts_of(connection, process)
    execute(connection, _TAKE_BACK, (process,))


def _lock_accounts_of(connection: DatabaseConnection, process: str) -> None:
    """Lock all accounts that a process has a slice or a bill of, in the order of their ids."""
    rows = execute(connection, _OF_PROCESS, {"process": process}).fetchall()
    execute(connection, _LOCK, ([row["account"] for row in rows],))


def _settle(connection: DatabaseConnection, process: str, cost: Callable[[str], Decimal]) -> None:
    """Settle for a dead process, unless another process does, or it came back to life."""
    query = "SELECT pg_try_advisory_xact_lock(?, ?) AS alone"
    if not fetch_one(connection, query, (LOCK, SETTLING))["alone"]:
        return
    dead = execute(connection, _DEAD).fetchall()
    if process not in {row["process"] for row in dead}:
        return
    # Those of slices and of bills at once: in two goes they would be locked in no order.
    _lock_accounts_of(connection, process)
    query = "SELECT account, episode FROM bills WHERE process = ?"
    charges: list[Charge] = []
    for row in execute(connection, query, (process,)).fetchall():
        dollars = cost(row["episode"])
        charges.append(Charge(row["account"], row["episode"], dollars, closed=True))
    if charges:
        add_charges(connection, charges, process)
    give_back_all(connection, process)
