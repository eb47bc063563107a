"""Links between episodes: which one was asked again, or went on, as which."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from openconductor.store import EpisodeFilter, EpisodeLine, StoreReader
from openconductor.ui.door import Visitor

AGAIN = "again/"
"""Prefix of the key of an episode's record of links; its id follows."""

_MOST = 20  # links that a page shows; the latest

Keep = Callable[[str, Mapping[str, object]], Awaitable[None]]
"""Keeps a record under a key."""


class EpisodeLink(NamedTuple):
    """Another episode, and what differs between the two."""

    line: EpisodeLine
    change: str


class Kin(NamedTuple):
    """The episodes that one is linked with.

    Attributes:
        made_from: the one that it was made from; None: it is new.
        made_into: those that were made from it, the latest first.
    """

    made_from: EpisodeLink | None = None
    made_into: tuple[EpisodeLink, ...] = ()


class Links:
    """Reads and keeps links.

    Args:
        store: holds the records.
        keep: writes one.
    """

    def __init__(self, store: StoreReader, keep: Keep | None) -> None:
        self._store = store
        self._keep = keep
        self._writing = asyncio.Lock()

    def of(self, identifier: str, visitor: Visitor) -> Kin:
        """Return the links of an episode, as far as the visitor may see the others."""
        record = self._record(identifier)
        made_from = self._find(record["of"], visitor) if record["of"] else None
        others = [self._find(entry, visitor) for entry in reversed(record["again"][-_MOST:])]
        return Kin(made_from, tuple(link for link in others if link is not None))

    async def add(self, earlier: str, later: str, change: str) -> None:
        """Link an episode with the one that it was made from."""
        assert self._keep is not None
        async with self._writing:
            record = await asyncio.to_thread(self._record, earlier)
            again = [*record["again"], {"id": later, "change": change}]
            await self._keep(f"{AGAIN}{earlier}", {**record, "again": again})
            made_from = {"id": earlier, "change": change}
            await self._keep(f"{AGAIN}{later}", {"of": made_from, "again": []})

    def _record(self, identifier: str) -> Mapping[str, Any]:
        return self._store.find_record(f"{AGAIN}{identifier}") or {"of": None, "again": []}

    def _find(self, entry: Mapping[str, str], visitor: Visitor) -> EpisodeLink | None:
        chosen = EpisodeFilter(identifier=entry["id"], key=visitor.key)
        lines = self._store.lines(chosen, limit=1)
        return EpisodeLink(lines[0], entry["change"]) if lines else None
