"""The site: what each address answers, for whom, as HTML and as JSON.

A page is a method that returns a ``Page``; the table in ``Site.routes`` gives it an address, and
``.json`` behind the address answers with its values. All of them ask the store for little, and
never for everything.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openconductor.errors import JournalError
from openconductor.ledger import draw_up
from openconductor.store import EpisodeFilter, EpisodeLine, StoredEpisode, StoreReader
from openconductor.store.episode_json import episode_json
from openconductor.store.serialisation import plain
from openconductor.ui.door import PREFIX, SESSION_S, Door, Visitor
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
from openconductor.ui.pages import (
    POLICY,
    Texts,
    count_texts,
    render,
    static_file,
    style_and_hash,
)
from openconductor.ui.parts import Part, rounds_of
from openconductor.ui.snippets import SERVER, as_curl, as_python
from openconductor.ui.timeline import draw_timeline

EPISODE_POLL_S = 0.5
"""How often an episode that is looked at is read again while it runs."""
LIST_POLL_S = 2.0
"""How often a list is."""

_STREAM_S = 600.0  # a stream of changes ends then, and the browser opens another one
_MOST_STREAMS = 200
_MOST_BODY = 10_000  # bytes of a form
_SNIPPET = 6_000  # characters; longer ones are only in the JSON
_MOST_MESSAGES = 60  # of a call that are shown on a page
_TITLES = {401: "Who is it?", 404: "Nothing here"}
_HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class PageProblem(Exception):
    """A request that is answered by an error: its HTTP status, and why, for people."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Page:
    """The answer at an address: a template with its values, and the same as JSON.

    Attributes:
        template: its name.
        title: the page's.
        values: what the template shows.
        data: returns the same in JSON's types.
    """

    template: str
    title: str
    values: Mapping[str, object]
    data: Callable[[], object]


class Site:
    """The pages over one store, as an ASGI app to be mounted at ``PREFIX``.

    Args:
        store: read for every page.
        door: decides who may look.
        name: of the store, shown at the top.
        serves: True if the server at this address answers questions, too.
        stopping: returns True when streams are to end, because the server shuts down.
    """

    def __init__(
        self,
        store: StoreReader,
        door: Door,
        *,
        name: str,
        serves: bool = False,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._door = door
        self._name = name
        self._serves = serves
        self._stopping = stopping
        self._streams = 0
        self._router = Router(self.routes(), redirect_slashes=False)

    def routes(self) -> list[Route]:
        """Return the addresses, below the prefix."""
        episode = "/episodes/{identifier}"
        return [
            Route("/", self._home),
            Route("/{name:str}.css", self._static),
            Route("/{name:str}.js", self._static),
            Route("/session", self._session, methods=["GET", "POST"]),
            Route("/leave", self._leave, methods=["POST"]),
            Route("/links", self._link, methods=["POST"]),
            Route("/episodes.csv", self._csv),
            Route("/changes", self._list_changes),
            Route(f"{episode}/changes", self._episode_changes),
            Route(f"{episode}/export", self._export),
            *self._page("/episodes", self._episodes),
            *self._page(f"{episode}/parts/{{part}}", self._part),
            *self._page(episode, self._episode),
            *self._page("/compare", self._compare),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with the headers that keep a browser from doing more than showing."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        host = Headers(scope=scope).get("host", "")
        app: ASGIApp = self._router
        if not self._door.is_known_host(host):
            text = "This page answers to 127.0.0.1 and localhost only.\n"
            app = Response(text, 403, media_type="text/plain")
        try:
            await app(scope, receive, send_safely)
        except PageProblem as problem:
            answer = self._problem(Request(scope), problem)
        except HTTPException as error:  # of the router: no such address
            problem = PageProblem(error.status_code, "There is nothing at this address.")
            answer = self._problem(Request(scope), problem)
        except JournalError as error:
            answer = self._problem(Request(scope), PageProblem(500, str(error)))
        else:
            return
        await answer(scope, receive, send_safely)

    # ── who looks ─────────────────────────────────────────────────────────────────────────────────
    def _visitor(self, request: Request) -> Visitor:
        visitor = self._door.visitor(request.headers, request.cookies)
        if visitor is None:
            raise PageProblem(401, "This page is for those who have its link or a key.")
        return visitor

    async def _session(self, request: Request) -> Response:
        """Begin a session (POST), or say whether there is one (GET)."""
        if request.method != "POST":
            self._visitor(request)
            return Response(status_code=204)
        form = await self._form(request)
        session = self._door.exchange(token=form.get("token", ""), key=form.get("key", "").strip())
        if session is None:
            raise PageProblem(401, "That link was used already or is too old, or the key is wrong.")
        answer = RedirectResponse(_own_address(form.get("next", "")), 303)
        answer.set_cookie(
            self._door.cookie,
            session,
            max_age=int(SESSION_S),
            path=PREFIX,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _leave(self, request: Request) -> Response:
        await self._form(request)
        self._door.leave(request.cookies)
        answer = RedirectResponse(f"{PREFIX}/episodes", 303)
        answer.delete_cookie(self._door.cookie, path=PREFIX)
        return answer

    async def _link(self, request: Request) -> Response:
        """Give the holder of a key (in a header) a link that opens the page once."""
        holder = self._door.holder(request.headers)
        if holder is None:
            raise PageProblem(401, "Send a key of this server as `Authorization: Bearer KEY`.")
        token = self._door.new_token(holder.key)
        return _as_json({"link": f"{PREFIX}/episodes#token={token}"})

    async def _form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form that this page itself sent."""
        if not self._door.is_own_page(request.headers):
            raise PageProblem(403, "This request did not come from the page itself.")
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_BODY:
                raise PageProblem(413, "The form is too large.")
        return dict(parse_qsl(body.decode("utf-8", "replace")))

    # ── answers ───────────────────────────────────────────────────────────────────────────────────
    def _page(self, path: str, make: Callable[[Request, Visitor], Page]) -> list[Route]:
        """Return the routes of a page: HTML at the path, JSON at the path with ``.json``."""

        # Starlette runs a function that is not async in a thread, so no answer waits for a page.
        def as_page(request: Request) -> Response:
            visitor = self._visitor(request)
            return self._html(make(request, visitor), request, visitor)

        def as_data(request: Request) -> Response:
            return _as_json(make(request, self._visitor(request)).data())

        return [Route(f"{path}.json", as_data), Route(path, as_page)]

    def _html(
        self, page: Page, request: Request, visitor: Visitor | None, status: int = 200
    ) -> Response:
        shared = {
            "title": page.title,
            "store_name": self._name,
            "visitor": visitor,
            "path": request.url.path,
            "has_keys": self._door.has_keys,
        }
        text = render(page.template, **shared, **page.values)
        return Response(text, status, media_type="text/html")

    def _problem(self, request: Request, problem: PageProblem) -> Response:
        """Answer an error: strangers are asked who they are."""
        if request.url.path.endswith(".json"):
            return _as_json({"error": problem.detail}, problem.status)
        here = f"{PREFIX}/episodes"
        if request.method == "GET":
            here = request.url.path
            if request.url.query:
                here += f"?{request.url.query}"
        template = "enter" if problem.status == 401 else "problem"
        title = _TITLES.get(problem.status, "That did not work")
        page = Page(template, title, {"detail": problem.detail, "here": here}, dict)
        visitor = self._door.visitor(request.headers, request.cookies)
        return self._html(page, request, visitor, problem.status)

    async def _home(self, request: Request) -> Response:
        return RedirectResponse(f"{PREFIX}/episodes", 303)

    async def _static(self, request: Request) -> Response:
        found = static_file(request.url.path.rpartition("/")[2])
        if found is None:
            raise PageProblem(404, "There is no such file.")
        content, media_type, _ = found
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(content, headers=headers, media_type=media_type)

    # ── episodes ──────────────────────────────────────────────────────────────────────────────────
    def _episodes(self, request: Request, visitor: Visitor) -> Page:
        """List episodes."""
        listing = read_listing(request.query_params, visitor.key)
        lines = self._store.lines(listing.chosen, offset=listing.offset, limit=PAGE + 1)
        shown = lines[:PAGE]
        values = {
            "listing": listing,
            "lines": shown,
            "more": len(lines) > PAGE,
            "outcomes": OUTCOMES,
            "orders": ORDERS,
            "errors": ERRORS,
            "version": _version(shown),
        }

        def data() -> object:
            return {
                "episodes": [line_json(line) for line in shown],
                "page": listing.page,
                "more": len(lines) > PAGE,
                "problems": listing.problems,
            }

        return Page("episodes", "Episodes", values, data)

    def _csv(self, request: Request) -> Response:
        """Answer with all chosen episodes as CSV, up to a limit."""
        listing = read_listing(request.query_params, self._visitor(request).key)
        lines = self._store.lines(listing.chosen, limit=CSV_LINES)
        name = {"content-disposition": 'attachment; filename="episodes.csv"'}
        return Response(as_csv(lines), headers=name, media_type="text/csv")

    def _find(self, identifier: str, visitor: Visitor) -> tuple[EpisodeLine, StoredEpisode]:
        """Return an episode that a visitor may see.

        Raises:
            PageProblem: there is none.
        """
        chosen = EpisodeFilter(identifier=identifier, key=visitor.key)
        lines = self._store.lines(chosen, limit=1)
        stored = self._store.episode(identifier) if lines else None
        if stored is None:
            raise PageProblem(404, "There is no such episode, or it is another key's.")
        return lines[0], stored

    def _episode(self, request: Request, visitor: Visitor) -> Page:
        """Show one episode."""
        line, stored = self._find(request.path_params["identifier"], visitor)
        values = self._episode_values(line, stored, request)

        def data() -> object:
            form = episode_json(stored, stored.workers)
            form |= {name: values[name] for name in ("curl", "python")}
            form |= {"outcome": line.outcome, "started": line.started}
            return form | {"key": line.key, "model": line.model}

        return Page("episode", _title(line), values, data)

    def _episode_values(
        self, line: EpisodeLine, stored: StoredEpisode, request: Request, *, whole: bool = False
    ) -> dict[str, object]:
        """Return what the page of an episode shows; ``whole``: with all texts in full."""
        rounds = rounds_of(stored)
        server = str(request.base_url).removesuffix("/") if self._serves else SERVER
        server = server.removesuffix(PREFIX)
        curl = as_curl(stored.question, model=line.model, server=server, key=self._door.has_keys)
        return {
            "line": line,
            "episode": stored,
            "rounds": rounds,
            "graph": draw_graph(rounds),
            "narrow_graph": draw_graph(rounds, upright=True),
            "timeline": draw_timeline(rounds, stored.seconds),
            "ledger": draw_up(stored),
            "cut": Texts(count_texts(rounds), whole=whole),
            "has_texts": bool(stored.question),
            "curl": curl,
            "python": as_python(stored),
            "snippet_most": _SNIPPET,
            "version": _version([line]),
            "exported": whole,
            "most_messages": 10**9 if whole else _MOST_MESSAGES,
        }

    def _part(self, request: Request, visitor: Visitor) -> Page:
        """Show one part of an episode: exactly what was sent, and what came back."""
        line, stored = self._find(request.path_params["identifier"], visitor)
        parts = [part for played in rounds_of(stored) for part in played.parts]
        keys = [part.key for part in parts]
        key = request.path_params["part"]
        if key not in keys:
            raise PageProblem(404, f"This episode has no part {key!r}.")
        place = keys.index(key)
        part = parts[place]
        values = {
            "line": line,
            "part": part,
            "before": keys[place - 1] if place else None,
            "after": keys[place + 1] if place + 1 < len(keys) else None,
            "cut": Texts(min(len(part.messages), _MOST_MESSAGES) + 4),
            "has_texts": bool(stored.question),
            "exported": False,
            "most_messages": _MOST_MESSAGES,
        }
        return Page("part", f"{part.title}: {part.name}", values, lambda: _part_json(part))

    async def _export(self, request: Request) -> Response:
        """Answer with the episode as one HTML file that needs no other."""
        visitor = self._visitor(request)
        text = await asyncio.to_thread(self._exported, request, visitor)
        identifier = request.path_params["identifier"]
        name = f'attachment; filename="episode-{identifier}.html"'
        return Response(text, headers={"content-disposition": name}, media_type="text/html")

    def _exported(self, request: Request, visitor: Visitor) -> str:
        line, stored = self._find(request.path_params["identifier"], visitor)
        style, digest = style_and_hash()
        values = self._episode_values(line, stored, request, whole=True)
        return render("exported", title=_title(line), style=style, digest=digest, **values)

    def _compare(self, request: Request, visitor: Visitor) -> Page:
        """Show two episodes side by side."""
        identifiers = request.query_params.getlist("id")[:2]
        found = [self._find(identifier, visitor) for identifier in identifiers]
        sides: list[dict[str, object]] = []
        for line, stored in found:
            rounds = rounds_of(stored)
            sides.append(
                {
                    "line": line,
                    "episode": stored,
                    "graph": draw_graph(rounds, upright=True),
                    "timeline": draw_timeline(rounds, stored.seconds),
                    "rounds": rounds,
                }
            )

        def data() -> object:
            forms = [
                {**line_json(line), **episode_json(stored, stored.workers)}
                for line, stored in found
            ]
            return {"episodes": forms}

        texts = sum(count_texts(rounds_of(stored)) for _, stored in found)
        values = {"sides": sides, "cut": Texts(texts)}
        return Page("compare", "Two episodes side by side", values, data)

    # ── changes ───────────────────────────────────────────────────────────────────────────────────
    async def _list_changes(self, request: Request) -> Response:
        listing = read_listing(request.query_params, self._visitor(request).key)
        return self._stream(request, listing.chosen, listing.offset, PAGE, LIST_POLL_S)

    async def _episode_changes(self, request: Request) -> Response:
        visitor = self._visitor(request)
        identifier = request.path_params["identifier"]
        chosen = EpisodeFilter(identifier=identifier, key=visitor.key)
        return self._stream(request, chosen, 0, 1, EPISODE_POLL_S)

    def _stream(
        self, request: Request, chosen: EpisodeFilter, offset: int, limit: int, poll_s: float
    ) -> Response:
        if self._streams >= _MOST_STREAMS:
            raise PageProblem(503, "Too many pages are open; reload this one to see changes.")
        seen = request.query_params.get("seen", "")
        changes = self._changes(chosen, offset, limit, poll_s, seen)
        return StreamingResponse(changes, media_type="text/event-stream")

    async def _changes(
        self, chosen: EpisodeFilter, offset: int, limit: int, poll_s: float, seen: str
    ) -> AsyncIterator[str]:
        """Tell of each change of a page's lines since the version that was ``seen``."""
        ends = time.monotonic() + _STREAM_S
        self._streams += 1
        try:
            yield ": a message is a change of the page\n\n"
            while time.monotonic() < ends and not self._stopping():
                lines = await asyncio.to_thread(
                    self._store.lines, chosen, offset=offset, limit=limit
                )
                version = _version(lines)
                if version != seen:
                    seen = version
                    yield f"data: {version}\n\n"
                if chosen.identifier and all(line.outcome != "unfinished" for line in lines):
                    yield "event: end\ndata: end\n\n"
                    return
                await asyncio.sleep(poll_s)
        finally:
            self._streams -= 1


def _own_address(address: str) -> str:
    """Return an address of this site; anything else leads to the list."""
    if address.startswith(f"{PREFIX}/") and "\\" not in address:
        return address
    return f"{PREFIX}/episodes"


def _version(lines: object) -> str:
    """Return what changes with what is shown."""
    return sha256(repr(lines).encode("utf-8", "replace")).hexdigest()[:16]


def _title(line: EpisodeLine) -> str:
    text = " ".join((line.question or f"Episode {line.id}").split())
    return text if len(text) <= 80 else f"{text[:79]}…"


def _part_json(part: Part) -> dict[str, Any]:
    """Return a part in JSON's types, its texts in full."""
    names = ("key", "title", "name", "instead_of", "state", "access", "subtask", "seconds")
    form = {name: getattr(part, name) for name in names}
    form["messages"] = [{"role": turn.role, "content": turn.content} for turn in part.messages]
    for name in ("text", "reasoning", "tool_calls", "finish_reason"):
        form[name] = None if part.completion is None else plain(getattr(part.completion, name))
    form["error"] = plain(part.error)
    form["usage"] = plain(part.usage)
    form["attempts"] = [
        {"worker": call.worker, "outcome": call.outcome, "usage": plain(call.usage)}
        for call, _ in part.attempts
    ]
    return form


def _as_json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(plain(value)), status, media_type="application/json")
