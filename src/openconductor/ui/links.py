"""Links between episodes: which one was asked again, or went on, as which.

Each link is two records of its own, so that several processes may write links of one episode.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from openconductor.store import EpisodeFilter, EpisodeLine, StoreReader
from openconductor.ui.door import Visitor

AGAIN = "again/"
"""Prefix of the key of an episode's links, of which each is a value; its id follows."""

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


@dataclass(frozen=True, slots=True)
class Links:
    """Reads and keeps links.

    Attributes:
        store: holds the records.
        keep: writes one; None: nobody may ask.
    """

    store: StoreReader
    keep: Keep | None

    def of(self, identifier: str, visitor: Visitor) -> Kin:
        """Return the links of an episode, as far as the visitor may see the others."""
        made_from: EpisodeLink | None = None
        made_into: list[EpisodeLink] = []
        records = self.store.find_history(f"{AGAIN}{identifier}")
        # What an episode was made from is its first record; it may have been made into many.
        for record in [*records[:1], *records[1:][-_MOST:]]:
            link = self._find(record, visitor)
            if link is not None and record["is_earlier"]:
                made_from = link
            elif link is not None:
                made_into.append(link)
        return Kin(made_from, tuple(reversed(made_into)))

    async def add(self, earlier: str, later: str, change: str) -> None:
        """Link an episode with the one that it was made from."""
        assert self.keep is not None
        for episode, other in ((later, earlier), (earlier, later)):
            link = {"id": other, "change": change, "is_earlier": other == earlier}
            await self.keep(f"{AGAIN}{episode}", link)

    def _find(self, entry: Mapping[str, str], visitor: Visitor) -> EpisodeLink | None:
        chosen = EpisodeFilter(identifier=entry["id"], key=visitor.key)
        lines = self.store.lines(chosen, limit=1)
        return EpisodeLink(lines[0], entry["change"]) if lines else None
