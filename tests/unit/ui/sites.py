"""A site over a store, and a browser without a screen: a client with cookies that reads pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import Mount

from openconductor.errors import AuthFailed
from openconductor.pool import WorkerPool
from openconductor.protocols import Orchestrator
from openconductor.serving.app import build_app
from openconductor.serving.gateway import Gateway
from openconductor.serving.key_ring import KeyRing
from openconductor.serving.serve_config import KeyTable, ServeConfig
from openconductor.store import Store, StoreReader
from openconductor.ui.door import Door
from openconductor.ui.site import Site

PAGE_BYTES = 200_000
PORT = 8321
ORIGIN = f"http://127.0.0.1:{PORT}"
OWN = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
"""Headers of the page's own requests."""


@dataclass
class Visit:
    """A client of a site, and its door."""

    client: httpx.AsyncClient
    door: Door
    gateway: Gateway | None = None

    async def enter(self, token: str | None = None, **fields: str) -> httpx.Response:
        """Enter as the page's own script does."""
        if token is not None:
            fields["token"] = token
        return await self.client.post(
            "/ui/session",
            data=fields,
            headers=OWN,
        )

    async def post(
        self, path: str, headers: Mapping[str, str] = OWN, **fields: object
    ) -> httpx.Response:
        """Send a form as the page does, with the token of the session unless one is given."""
        fields.setdefault("form_token", self.door.form_token(dict(self.client.cookies)))
        return await self.client.post(f"/ui{path}", data=fields, headers=headers)

    async def ended(self, answer: httpx.Response) -> str:
        """Wait until the episode that an answer leads to has ended; return its id."""
        assert answer.status_code == 303, answer.text
        assert self.gateway is not None
        async with asyncio.timeout(20):
            await self.gateway.ended()
            await self.gateway.store.wait_durable()
        return answer.headers["location"].rpartition("/")[2]

    async def episode(self, identifier: str) -> dict[str, Any]:
        """Return the data of an episode's page."""
        return (await self.client.get(f"/ui/episodes/{identifier}.json")).json()


@asynccontextmanager
async def asked(
    store: Store,
    pool: WorkerPool,
    systems: Mapping[str, Orchestrator],
    *,
    keys: Sequence[KeyTable] = (),
    allow_asking: bool = True,
) -> AsyncIterator[Visit]:
    """Visit the page of a server, where visitors may ask: without keys by a link."""
    gateway = Gateway(pool, store, systems)
    ring = KeyRing(keys, store)
    config = ServeConfig(ui=True, allow_asking=allow_asking and not keys, key=tuple(keys))
    find_key = (lambda headers: ring.find(headers).name) if keys else None
    door = Door(PORT, find_key=find_key)
    transport = httpx.ASGITransport(build_app(gateway, ring, config, door))
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
        visit = Visit(client, door, gateway)
        if not keys:
            assert (await visit.enter(door.new_token(""))).status_code == 303
        yield visit


@asynccontextmanager
async def visited(
    store: StoreReader,
    *,
    keys: Mapping[str, str] | None = None,
    key: str | None = None,
    origins: Sequence[str] = (),
    **options: Any,
) -> AsyncIterator[Visit]:
    """Visit a site: as a stranger where it has keys, else by a link.

    Args:
        store: the store.
        keys: the names of the server's keys, by key.
        key: whose episodes the link shows.
        origins: addresses of the site behind a proxy.
        options: of the site.
    """

    def find_key(headers: Mapping[str, str]) -> str:
        name = (keys or {}).get(headers.get("authorization", "").removeprefix("Bearer "))
        if name is None:
            raise AuthFailed("unknown key", worker="server")
        return name

    door = Door(PORT, origins=origins, find_key=None if keys is None else find_key)
    site = Site(store, door, name="test.sqlite", **options)
    app = Starlette(routes=[Mount("/ui", app=site)])
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
        visit = Visit(client, door)
        if keys is None:
            assert (await visit.enter(door.new_token(key))).status_code == 303
        yield visit


async def check_pages(visit: Visit, addresses: Iterable[str]) -> None:
    """Check that every page is there, small, and also data."""
    for address in addresses:
        page = await visit.client.get(address)
        assert page.status_code == 200, address
        assert len(page.content) < PAGE_BYTES, address
        path, _, query = address.partition("?")
        data = await visit.client.get(f"{path}.json?{query}")
        assert data.status_code == 200, address
        assert isinstance(data.json(), dict), address


@dataclass
class Markup(HTMLParser):
    """The tags and attributes of a page, its text, and the inputs of its forms."""

    page: str
    tags: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    text: str = ""
    forms: list[dict[str, list[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        named = dict(attrs)
        if tag == "form":
            self.forms.append({})
        if tag == "input" and self.forms:
            self.forms[-1].setdefault(named["name"] or "", []).append(named.get("value") or "")

    def handle_data(self, data: str) -> None:
        self.text += data

    def form_with(self, name: str) -> dict[str, list[str]]:
        """Return the inputs of the form that has one of this name, and their values."""
        return next(form for form in self.forms if name in form)

    @property
    def addresses(self) -> list[str]:
        """All addresses that the page leads to, or loads."""
        named = ("href", "src", "action", "data-live", "data-copy-address", "data-session")
        return [value for _, name, value in self.attributes if name in named]
