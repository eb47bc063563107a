"""The pages about episodes: the list, one, a part of it, two side by side, and files of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from openconductor.errors import ConfigError, JournalError
from openconductor.ledger import draw_up
from openconductor.store import EpisodeFilter, EpisodeLine, StoredEpisode, StoreReader, read_store
from openconductor.store.episode_json import episode_json
from openconductor.store.serialisation import plain
from openconductor.types import Message
from openconductor.ui.changes import Changes, PageState, version_of
from openconductor.ui.door import PREFIX, Visitor
from openconductor.ui.entrance import Entrance
from openconductor.ui.episode_list import (
    CSV_LINES,
    ERRORS,
    ORDERS,
    OUTCOMES,
    PAGE,
    as_csv,
    line_json,
    read_listing,
)
from openconductor.ui.graph import draw_graph
from openconductor.ui.links import Kin, Links
from openconductor.ui.pages import Texts, clipped, count_texts, render, style_and_hash
from openconductor.ui.parts import Part, rounds_of
from openconductor.ui.replies import Page, PageProblem
from openconductor.ui.snippets import SERVER, as_curl, as_python
from openconductor.ui.timeline import draw_timeline

EPISODE_POLL_S = 0.5
"""How often an episode that is looked at is read again while it runs."""
LIST_POLL_S = 2.0
"""How often a list is."""

_SNIPPET = 6_000  # characters; longer ones are only in the JSON
_MOST_MESSAGES = 60  # of a call that are shown on a page
_MOST_TURNS = 20  # before the last one; the latest
_PART_DATA = (
    "key",
    "title",
    "name",
    "instead_of",
    "state",
    "access",
    "subtask",
    "seconds",
    "completion",
    "error",
    "usage",
)


class _Located(NamedTuple):
    """An episode, and the journal of the run that has it; None: the page's own store has it."""

    line: EpisodeLine
    stored: StoredEpisode
    journal: str | Path | None


@dataclass(frozen=True, slots=True)
class EpisodePages:
    """Shows the episodes of a store.

    Attributes:
        store: read for every page.
        entrance: knows who asks.
        changes: tells open pages of changes.
        links: between episodes.
        serves: True if the server at this address answers questions, too.
        journals: returns those of runs, in which an episode is found by its id, too.
    """

    store: StoreReader
    entrance: Entrance
    changes: Changes
    links: Links
    serves: bool
    journals: Callable[[], Iterable[str | Path]]

    # ── the list ──────────────────────────────────────────────────────────────────────────────────
    def episodes(self, request: Request, visitor: Visitor) -> Page:
        """List episodes."""
        listing = read_listing(request.query_params, visitor.key)
        lines = self.store.lines(listing.chosen, offset=listing.offset, limit=PAGE + 1)
        shown = lines[:PAGE]
        more = len(lines) > PAGE
        values = {
            "listing": listing,
            "lines": shown,
            "more": more,
            "outcomes": OUTCOMES,
            "orders": ORDERS,
            "errors": ERRORS,
            "version": version_of(shown),
        }

        def data() -> object:
            return {
                "episodes": [line_json(line) for line in shown],
                "page": listing.page,
                "more": more,
                "problems": listing.problems,
            }

        return Page("episodes", "Episodes", values, data)

    def csv(self, request: Request) -> Response:
        """Answer with all chosen episodes as CSV, up to a limit."""
        listing = read_listing(request.query_params, self.entrance.visitor(request).key)
        lines = self.store.lines(listing.chosen, limit=CSV_LINES)
        name = {"content-disposition": 'attachment; filename="episodes.csv"'}
        return Response(as_csv(lines), headers=name, media_type="text/csv")

    async def list_changes(self, request: Request) -> Response:
        """Tell of changes of the list."""
        visitor = self.entrance.visitor(request)
        listing = read_listing(request.query_params, visitor.key)

        def look() -> PageState:
            lines = self.store.lines(listing.chosen, offset=listing.offset, limit=PAGE)
            return PageState(version_of(lines))

        return self.changes.stream(request, visitor, look, LIST_POLL_S)

    # ── one episode ───────────────────────────────────────────────────────────────────────────────
    def find_episode(self, identifier: str, visitor: Visitor) -> tuple[EpisodeLine, StoredEpisode]:
        """Return an episode that a visitor may see.

        Raises:
            PageProblem: there is none.
        """
        located = self._locate(identifier, visitor)
        return located.line, located.stored

    def _locate(self, identifier: str, visitor: Visitor) -> _Located:
        """Return an episode and its place: the store, else the journal of a run.

        Raises:
            PageProblem: there is none that the visitor may see.
        """
        chosen = EpisodeFilter(identifier=identifier, key=visitor.key)
        located = _find_in(self.store, chosen, None)
        if located is not None:
            return located
        chosen = EpisodeFilter(identifier=identifier)  # nobody is served the episodes of a run
        for journal in () if visitor.key else self.journals():
            with suppress(ConfigError, JournalError), read_store(journal) as store:
                located = _find_in(store, chosen, journal)
            if located is not None:
                return located
        raise PageProblem(404, "There is no such episode, or it is another key's.")

    def episode(self, request: Request, visitor: Visitor) -> Page:
        """Show one episode."""
        line, stored = self.find_episode(request.path_params["identifier"], visitor)
        kin = self.links.of(line.id, visitor)
        values = self._values(line, stored, request)
        values |= {"kin": kin, "earlier": _earlier_turns(stored), "can_go_on": can_go_on(stored)}
        workers = [("workers", name) for name in stored.workers.values()]
        values["go_on"] = [("follows", line.id), ("model", line.model or ""), *workers]

        def data() -> object:
            form = episode_json(stored, stored.workers)
            form |= {name: values[name] for name in ("curl", "python")}
            form |= {"outcome": line.outcome, "started": line.started}
            form |= _kin_json(kin)
            return form | {"key": line.key, "model": line.model}

        return Page("episode", _title(line), values, data)

    def _values(
        self, line: EpisodeLine, stored: StoredEpisode, request: Request, *, whole: bool = False
    ) -> dict[str, object]:
        """Return what the page of an episode shows; ``whole``: with all texts in full."""
        drawn = _draw(line, stored)
        rounds = drawn["rounds"]
        server = str(request.base_url).removesuffix("/") if self.serves else SERVER
        server = server.removesuffix(PREFIX)
        key = self.entrance.door.has_keys
        curl = as_curl(stored.question, model=line.model, server=server, key=key)
        return {
            **drawn,
            "graph": draw_graph(rounds),
            "ledger": draw_up(stored),
            "cut": Texts(count_texts(rounds), whole=whole),
            "has_texts": bool(stored.question),
            "curl": curl,
            "python": as_python(stored),
            "snippet_most": _SNIPPET,
            "version": version_of([line]),
            "exported": whole,
            "most_messages": 10**9 if whole else _MOST_MESSAGES,
        }

    async def episode_changes(self, request: Request) -> Response:
        """Tell of changes of one episode, until it has ended."""
        visitor = self.entrance.visitor(request)
        identifier = request.path_params["identifier"]
        located = await asyncio.to_thread(self._locate, identifier, visitor)
        chosen = EpisodeFilter(identifier=identifier)  # the visitor may see it

        def look() -> PageState:
            opened = nullcontext(self.store)
            if located.journal is not None:
                opened = read_store(located.journal)
            with opened as store:
                lines = store.lines(chosen, limit=1)
            return PageState(version_of(lines), all(line.state != "running" for line in lines))

        return self.changes.stream(request, visitor, look, EPISODE_POLL_S)

    def part(self, request: Request, visitor: Visitor) -> Page:
        """Show one part of an episode: exactly what was sent, and what came back."""
        line, stored = self.find_episode(request.path_params["identifier"], visitor)
        rounds = rounds_of(stored, is_stopped=line.is_stopped)
        parts = [part for played in rounds for part in played.parts]
        key = request.path_params["part"]
        part = next((part for part in parts if part.key == key), None)
        if part is None:
            raise PageProblem(404, f"This episode has no part {key!r}.")
        texts = 4 + min(len(part.messages), _MOST_MESSAGES)
        if part.completion is not None:
            texts += len(part.completion.tool_calls)
        values = {
            "line": line,
            "part": part,
            "parts": parts,
            "cut": Texts(texts),
            "has_texts": bool(stored.question),
            "exported": False,
            "most_messages": _MOST_MESSAGES,
        }
        return Page("part", f"{part.title}: {part.name}", values, lambda: _part_json(part))

    async def export(self, request: Request) -> Response:
        """Answer with the episode as one HTML file that needs no other."""
        visitor = self.entrance.visitor(request)
        text = await asyncio.to_thread(self._exported, request, visitor)
        identifier = request.path_params["identifier"]
        name = f'attachment; filename="episode-{identifier}.html"'
        return Response(text, headers={"content-disposition": name}, media_type="text/html")

    def _exported(self, request: Request, visitor: Visitor) -> str:
        line, stored = self.find_episode(request.path_params["identifier"], visitor)
        style, digest = style_and_hash()
        values = self._values(line, stored, request, whole=True)
        return render("exported", title=_title(line), style=style, digest=digest, **values)

    def compare(self, request: Request, visitor: Visitor) -> Page:
        """Show two episodes side by side."""
        identifiers = request.query_params.getlist("id")
        episodes = [self.find_episode(identifier, visitor) for identifier in identifiers[:2]]
        sides = [_draw(line, stored) for line, stored in episodes]

        def data() -> object:
            forms = [
                {**line_json(line), **episode_json(stored, stored.workers)}
                for line, stored in episodes
            ]
            return {"episodes": forms}

        texts = sum(count_texts(side["rounds"]) for side in sides)
        values = {"sides": sides, "cut": Texts(texts), "marked": len(identifiers)}
        return Page("compare", "Two episodes side by side", values, data)


def _find_in(
    store: StoreReader, chosen: EpisodeFilter, journal: str | Path | None
) -> _Located | None:
    """Return the episode of an id; None: the store has none that may be seen."""
    lines = store.lines(chosen, limit=1)
    stored = store.episode(lines[0].id) if lines else None
    return None if stored is None else _Located(lines[0], stored, journal)


def _draw(line: EpisodeLine, stored: StoredEpisode) -> dict[str, Any]:
    """Return an episode with its rounds, as a graph and in time."""
    rounds = rounds_of(stored, is_stopped=line.is_stopped)
    return {
        "line": line,
        "episode": stored,
        "rounds": rounds,
        "narrow_graph": draw_graph(rounds, upright=True),
        "timeline": draw_timeline(rounds, stored.seconds),
    }


def can_go_on(stored: StoredEpisode) -> bool:
    """Return True if a further turn can follow: the texts of question and answer are kept."""
    return bool(stored.question and stored.answer and stored.answer.strip())


def _earlier_turns(stored: StoredEpisode) -> Sequence[Message]:
    """Return the turns of a chat before its last one."""
    return () if isinstance(stored.question, str) else stored.question[:-1][-_MOST_TURNS:]


def _kin_json(kin: Kin) -> dict[str, object]:
    made_from = kin.made_from
    return {
        "made_from": made_from and {"id": made_from.line.id, "change": made_from.change},
        "made_into": [{"id": one.line.id, "change": one.change} for one in kin.made_into],
    }


def _title(line: EpisodeLine) -> str:
    return clipped(" ".join((line.question or f"Episode {line.id}").split()), 80)


def _part_json(part: Part) -> dict[str, Any]:
    """Return a part in JSON's types, its texts in full."""
    form = {name: plain(getattr(part, name)) for name in _PART_DATA}
    form["messages"] = [{"role": turn.role, "content": turn.content} for turn in part.messages]
    form["attempts"] = [
        {"worker": call.worker, "outcome": call.outcome, "usage": plain(call.usage)}
        for call, _ in part.attempts
    ]
    return form
