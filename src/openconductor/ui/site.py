"""The site: its addresses, and what all of its answers share.

A page is a method that takes a request and its visitor and returns a ``Page``; ``Site.routes``
gives it an address, and ``.json`` behind the address answers with its values. All of them ask the
store for little, and never for everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openconductor.errors import ConfigError, JournalError
from openconductor.pool import WorkerPool
from openconductor.store import StoreReader
from openconductor.ui.asker import Asker
from openconductor.ui.asking import AskPages
from openconductor.ui.asking_again import AgainPages
from openconductor.ui.changes import Changes
from openconductor.ui.door import PREFIX, Door, Visitor
from openconductor.ui.entrance import Entrance
from openconductor.ui.episodes import EpisodePages
from openconductor.ui.evaluations import EvaluationPages
from openconductor.ui.links import Links
from openconductor.ui.pages import POLICY, STATIC, render, static_file
from openconductor.ui.pool_page import WorkerPages
from openconductor.ui.replies import Page, PageProblem, as_json
from openconductor.ui.runs import Runs
from openconductor.ui.trainings import TrainingPages

MakePage = Callable[[Request, Visitor], Page]
"""Makes the page at an address for a visitor. It runs in a thread."""
TakeForm = Callable[[Request], Awaitable[Page | Response]]
"""Takes a form in, and answers with a page or leads elsewhere."""

_TITLES = {401: "Who is it?", 404: "Nothing here"}
_HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Site:
    """The pages over one store, as an ASGI app to be mounted at ``PREFIX``.

    Args:
        store: read for every page.
        door: decides who may look.
        name: of the store, shown at the top.
        serves: True if the server at this address answers questions, too.
        asker: answers what visitors ask on the page; None: the page only shows.
        stopping: returns True when streams are to end, because the server shuts down.
        root: where the folders of trainings and evaluations stand.
        pool: the workers of the server; None: it answers no questions.
        usages: returns what each of its keys has spent.
    """

    def __init__(
        self,
        store: StoreReader,
        door: Door,
        *,
        name: str,
        serves: bool = False,
        asker: Asker | None = None,
        stopping: Callable[[], bool] = lambda: False,
        root: Path = Path("runs"),
        pool: WorkerPool | None = None,
        usages: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
    ) -> None:
        self._door = door
        self._name = name
        self._asker = asker
        self._entrance = Entrance(door)
        self._changes = Changes(stopping)
        self._runs = Runs(root)
        self._links = Links(store, None if asker is None else asker.keep)
        self._episodes = EpisodePages(
            store,
            self._entrance,
            self._changes,
            self._links,
            serves=serves,
            journals=self._runs.journals,
        )
        self._trainings = TrainingPages(self._runs)
        self._evaluations = EvaluationPages(self._runs, self._entrance, self._changes)
        self._workers = WorkerPages(store, self._runs, self._evaluations, pool, asker, usages)
        self._router = Router(self.routes(), redirect_slashes=False)

    def routes(self) -> list[Route]:
        """Return the addresses, below the prefix."""
        entrance = self._entrance
        return [
            Route("/", self._home),
            Route("/session", entrance.session, methods=["GET", "POST"]),
            Route("/leave", entrance.leave, methods=["POST"]),
            Route("/links", entrance.link, methods=["POST"]),
            *self._episode_routes(),
            *self._run_routes(),
            *self._ask_routes(),
            Route("/{name:str}", self._static),
        ]

    def _episode_routes(self) -> list[Route]:
        pages = self._episodes
        episode = "/episodes/{identifier}"
        return [
            Route("/episodes.csv", pages.csv),
            Route("/changes", pages.list_changes),
            Route(f"{episode}/changes", pages.episode_changes),
            Route(f"{episode}/export", pages.export),
            *self._page("/episodes", pages.episodes),
            *self._page(f"{episode}/parts/{{part}}", pages.part),
            *self._page(episode, pages.episode),
            *self._page("/compare", pages.compare),
        ]

    def _run_routes(self) -> list[Route]:
        trainings, evaluations = self._trainings, self._evaluations
        training, evaluation = "/trainings/{run}", "/evaluations/{run}"
        answer = "/answers/{question:int}-{system:int}-{repeat:int}"
        return [
            Route(f"{training}/changes", evaluations.changes),
            *self._page("/runs", self._runs.page),
            *self._page("/pool", self._workers.page),
            *self._page("/trainings", trainings.compare),
            *self._page(f"{training}/iterations/{{number:int}}", trainings.iteration),
            *self._page(training, trainings.training),
            Route(f"{evaluation}/changes", evaluations.changes),
            Route(f"{evaluation}{answer}", evaluations.answer),
            *self._page(f"{evaluation}/questions", evaluations.questions),
            *self._page(evaluation, evaluations.evaluation),
        ]

    def _ask_routes(self) -> list[Route]:
        """Return the addresses that spend, and their forms; none where nobody may ask."""
        if self._asker is None:
            return []
        box = AskPages(self._asker, self._entrance, self._episodes, self._links)
        again = AgainPages(self._asker, self._entrance, self._episodes, self._links)
        episode = "/episodes/{identifier}"
        return [
            Route("/ask", self._posted(box.ask), methods=["POST"]),
            Route(f"{episode}/stop", self._posted(box.stop), methods=["POST"]),
            Route(f"{episode}/again", self._posted(again.ask), methods=["POST"]),
            *self._page("/ask", box.form),
            *self._page(f"{episode}/again", again.form),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with the headers that keep a browser from doing more than showing."""
        begun = False

        async def send_safely(message: Message) -> None:
            nonlocal begun
            begun = True
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
        except (PageProblem, HTTPException, ConfigError, JournalError) as error:
            if begun:  # a second answer would be garbage to the client
                raise
            answer = self._problem(Request(scope), _problem_of(error))
            await answer(scope, receive, send_safely)

    def _page(self, path: str, make: MakePage) -> list[Route]:
        """Return the routes of a page: HTML at the path, JSON at the path with ``.json``."""

        # Starlette runs a function that is not async in a thread, so no answer waits for a page.
        def as_page(request: Request) -> Response:
            visitor = self._entrance.visitor(request)
            return self._html(make(request, visitor), request, visitor)

        def as_data(request: Request) -> Response:
            return as_json(make(request, self._entrance.visitor(request)).data())

        return [Route(f"{path}.json", as_data), Route(path, as_page)]

    def _posted(self, take: TakeForm) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers a form: with a page, or by leading elsewhere."""

        async def answer(request: Request) -> Response:
            taken = await take(request)
            if isinstance(taken, Response):
                return taken
            return self._html(taken, request, self._entrance.visitor(request))

        return answer

    def _html(
        self, page: Page, request: Request, visitor: Visitor | None, status: int = 200
    ) -> Response:
        shared = {
            "title": page.title,
            "store_name": self._name,
            "visitor": visitor,
            "path": request.url.path,
            "has_keys": self._door.has_keys,
            "may_ask": self._asker is not None,
            "form_token": self._door.form_token(request.cookies),
        }
        text = render(page.template, **shared, **page.values)
        return Response(text, status, media_type="text/html")

    def _problem(self, request: Request, problem: PageProblem) -> Response:
        """Answer an error: strangers are asked who they are."""
        if request.url.path.endswith(".json"):
            return as_json({"error": problem.detail}, problem.status)
        here = f"{PREFIX}/episodes"
        if request.method == "GET":
            here = request.url.path
            if request.url.query:
                here += f"?{request.url.query}"
        template = "enter" if problem.status == 401 else "problem"
        title = _TITLES.get(problem.status, "That did not work")
        page = problem.page
        if page is None:
            page = Page(template, title, {"detail": problem.detail, "here": here}, dict)
        visitor = self._door.visitor(request.headers, request.cookies)
        return self._html(page, request, visitor, problem.status)

    async def _home(self, request: Request) -> Response:
        return RedirectResponse(f"{PREFIX}/episodes", 303)

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            raise PageProblem(404, "There is nothing at this address.")
        content, media_type, _ = static_file(name)
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(content, headers=headers, media_type=media_type)


def _problem_of(error: Exception) -> PageProblem:
    """Return what a visitor is told of an error."""
    if isinstance(error, PageProblem):
        return error
    if isinstance(error, HTTPException):  # of the router: no such address
        return PageProblem(error.status_code, "There is nothing at this address.")
    return PageProblem(500, str(error))
