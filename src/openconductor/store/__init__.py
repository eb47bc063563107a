"""The store: everything that is paid for, kept as it happens, and found again.

``open_store`` opens one to write and read it, ``read_store`` only to read it. ``store.Store`` is
the protocol that every store conforms to; ``Journal`` is the store in one SQLite file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from openconductor.errors import ConfigError
from openconductor.store.journal import Journal
from openconductor.store.keys import call_key
from openconductor.store.overview import EpisodeFilter, EpisodeLine, EpisodeOrder
from openconductor.store.reader import JournalReader
from openconductor.store.store import (
    SERVED,
    SHOWN,
    SUCCESSES,
    CompletionStore,
    EpisodeOutcome,
    EventSink,
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
    "CompletionStore",
    "EpisodeFilter",
    "EpisodeLine",
    "EpisodeOrder",
    "EpisodeOutcome",
    "EventSink",
    "Journal",
    "JournalReader",
    "Spending",
    "Store",
    "StoreReader",
    "StoredCall",
    "StoredEpisode",
    "StoredRecord",
    "Totals",
    "call_key",
    "open_store",
    "read_store",
]

# Two letters at least, because `C:/…` is a path. A `Path` has lost one of the slashes.
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
        place: the path of a SQLite file.
        content: ``"none"`` keeps no texts (see ``Journal``).
        redact: changes each text before it is kept (see ``Journal``).
        keep_days: removes older episodes (see ``Journal``).

    Raises:
        ConfigError: the place is a URL, or ``content`` has another value.
        JournalError: it cannot be opened.
    """
    return Journal(_path_of(place), content=content, redact=redact, keep_days=keep_days)


def read_store(place: str | Path) -> StoreReader:
    """Open a store that is only read; its writer may continue meanwhile.

    Raises:
        ConfigError: the place is a URL.
        JournalError: it cannot be opened, or there is none.
    """
    return JournalReader(_path_of(place))


def _path_of(place: str | Path) -> Path:
    url = _URL.match(str(place))
    if url is not None:  # the rest may hold a password, so it is not shown
        raise ConfigError(
            f"store: got a URL ({url[1]}://…); a store is a SQLite file, named by its path"
        )
    return Path(place)
