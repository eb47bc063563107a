"""The store: everything that is paid for, kept as it happens, and found again.

``open_store`` opens one to write and read it, ``read_store`` only to read it. ``store.Store`` is
the protocol that every store conforms to; ``Journal`` is the store in one SQLite file, and
``postgres`` holds the store in a PostgreSQL database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from openconductor.errors import ConfigError, JournalError
from openconductor.store.journal import Journal
from openconductor.store.keys import call_key
from openconductor.store.overview import EpisodeFilter, EpisodeLine, EpisodeOrder, WorkerLine
from openconductor.store.reader import JournalReader
from openconductor.store.sqlite.retention import prune_file
from openconductor.store.store import (
    SERVED,
    SHOWN,
    SUCCESSES,
    Accounts,
    AccountStore,
    Balance,
    CallClaims,
    ClaimedRecords,
    CompletionStore,
    EpisodeOutcome,
    EventSink,
    RecordClaims,
    RecordReader,
    RecordStore,
    SharedStore,
    Spending,
    Store,
    StoredCall,
    StoredEpisode,
    StoredRecord,
    StoreReader,
    Totals,
)

__all__ = [
    "SERVED",
    "SHOWN",
    "SUCCESSES",
    "AccountStore",
    "Accounts",
    "Balance",
    "CallClaims",
    "ClaimedRecords",
    "CompletionStore",
    "EpisodeFilter",
    "EpisodeLine",
    "EpisodeOrder",
    "EpisodeOutcome",
    "EventSink",
    "Journal",
    "JournalReader",
    "RecordClaims",
    "RecordReader",
    "RecordStore",
    "SharedStore",
    "Spending",
    "Store",
    "StoreReader",
    "StoredCall",
    "StoredEpisode",
    "StoredRecord",
    "Totals",
    "WorkerLine",
    "call_key",
    "check_store",
    "copy_store",
    "database_url",
    "open_records",
    "open_store",
    "place_name",
    "prune_store",
    "read_store",
]

# Two letters at least, because `C:/…` is a path.
_URL = re.compile("([A-Za-z][A-Za-z0-9+.-]+):/")


def open_store(
    place: str | Path,
    *,
    content: Literal["full", "none"] = "full",
    redact: Callable[[str], str] | None = None,
    keep_days: float | None = None,
) -> Store:
    """Open a store to write and read it; a new one is created.

    Args:
        place: the path of a SQLite file, or the URL of a PostgreSQL database (``postgresql://…``).
        content: ``"none"`` keeps no texts (see ``Journal``).
        redact: changes each text before it is kept (see ``Journal``).
        keep_days: removes older episodes (see ``Journal``).

    Raises:
        ConfigError: the place is another URL, or ``content`` has another value.
        JournalError: it cannot be opened.
    """
    url = database_url(place)
    if url is None:
        return Journal(place, content=content, redact=redact, keep_days=keep_days)
    with _needing_psycopg():
        from openconductor.store.postgres.postgres_store import PostgresStore
    return PostgresStore(url, content=content, redact=redact, keep_days=keep_days)


def read_store(place: str | Path) -> StoreReader:
    """Open a store that is only read; its writers may continue meanwhile.

    Raises:
        ConfigError: the place is a URL that names no PostgreSQL database.
        JournalError: it cannot be opened, or there is none.
    """
    url = database_url(place)
    if url is None:
        return JournalReader(place)
    with _needing_psycopg():
        from openconductor.store.postgres.database import Database
        from openconductor.store.postgres.postgres_reader import PostgresReader
    return PostgresReader(Database(url))


@contextmanager
def open_records(place: str | Path) -> Generator[RecordStore]:
    """Open a store to change its records, while other processes write it; a new file is created.

    Raises:
        ConfigError: the place is a URL that names no PostgreSQL database.
        JournalError: it cannot be opened.
    """
    if database_url(place) is not None:
        with open_store(place) as store:
            assert isinstance(store, RecordStore)
            yield store
        return
    from openconductor.store.sqlite.file_records import FileRecords

    if not Path(place).exists():
        Journal(place).close()
    with FileRecords(place) as records:
        yield records


def prune_store(place: str | Path, before: float) -> dict[str, int]:
    """Remove the episodes of a store that began before a time (seconds since 1970).

    Returns:
        How many ``episodes``, ``calls``, ``messages`` and ``texts`` were removed, and of a file the
        ``bytes`` by which it became smaller.

    Raises:
        ConfigError: the place is a URL that names no PostgreSQL database.
        JournalError: it cannot be written, or a file has a writer.
    """
    url = database_url(place)
    if url is None:
        return prune_file(Path(place), before)
    with _needing_psycopg():
        from openconductor.store.postgres.removal import prune_url
    return prune_url(url, before)


def database_url(place: str | Path) -> str | None:
    """Return the URL of the database that a store is in; None: it is a file.

    Raises:
        ConfigError: it is the URL of something else, or a ``Path`` made of a URL.
    """
    url = _URL.match(str(place))
    if url is None:
        return None
    if url[1] not in ("postgresql", "postgres"):  # the rest may hold a password: it is not shown
        raise ConfigError(
            f"store: got a URL ({url[1]}://…); a store is the path of a SQLite file, or "
            "postgresql://USER@HOST/DATABASE"
        )
    if isinstance(place, Path):
        raise ConfigError("store: got a Path made of a URL; pass the URL as a str")
    return place


def copy_store(file: Path, url: str) -> dict[str, int]:
    """Copy the journal in a file into a PostgreSQL database; nothing in it is paid for again.

    What the database has already stays as it is, so that a copy can be repeated.

    Returns:
        How many ``episodes``, ``calls`` and ``records`` were copied, and how many ``known``
        episodes the database had before.

    Raises:
        ConfigError: the URL names no PostgreSQL database.
        JournalError: the file is no journal or has a writer, or the database failed.
    """
    if database_url(url) is None:
        raise ConfigError("store: a journal is copied to a URL: postgresql://USER@HOST/DATABASE")
    with _needing_psycopg():
        from openconductor.store.postgres.copying import copy_file
    return copy_file(file, url)


def place_name(place: str | Path) -> str:
    """Return a place as it may be shown: a path, or a URL without user, password and settings."""
    if database_url(place) is None:
        return str(Path(place).absolute())
    parts = urlsplit(str(place))
    if "@" in parts.path + parts.query + parts.fragment:  # an unescaped character in a password
        return f"{parts.scheme}://…"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def check_store(place: str | Path) -> None:
    """Check that a store can be read, or that a new one can be made; nothing is made or changed.

    Raises:
        ConfigError: the place is a URL that names no PostgreSQL database.
        JournalError: it cannot be opened.
    """
    url = database_url(place)
    if url is not None:
        with _needing_psycopg():
            from openconductor.store.postgres.database import Database
        Database(url).check()
    elif Path(place).exists():
        read_store(place).close()
    elif not Path(place).parent.is_dir():
        folder = Path(place).parent
        raise JournalError(f"{place}: there is no folder {folder}; make it first")


@contextmanager
def _needing_psycopg() -> Generator[None]:
    try:
        yield
    except ImportError as error:
        message = "a store in PostgreSQL requires the extra 'postgres'"
        install = 'pip install "openconductor[postgres]"'
        raise ConfigError(f"{message} ({error}): {install}") from error
