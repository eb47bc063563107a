"""The paths below ``/v1/keys``, where an admin key of the config makes and revokes keys."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openconductor.errors import OpenConductorError
from openconductor.serving.apis.wire import RequestFailed, request_failure
from openconductor.serving.connection import receive_json
from openconductor.serving.gateway import Gateway
from openconductor.serving.key_ring import KeyRing
from openconductor.serving.response_pages import JsonPage
from openconductor.serving.serve_config import KeyTable, check_key
from openconductor.serving.shared.key_book import KeyBook, KeyClash, NoSuchKey, keys_in, look
from openconductor.store import RecordStore

_PATH = "/v1/keys"
_BODY_MB = 1


class KeyPages:
    """The paths below ``/v1/keys``.

    Args:
        gateway: has the models and workers that a key may be limited to.
        keys: who may ask.
    """

    def __init__(self, gateway: Gateway, keys: KeyRing) -> None:
        self._gateway = gateway
        self._keys = keys

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(_PATH, self.list, methods=["GET"]),
            Route(_PATH, self.add, methods=["POST"]),
            Route(f"{_PATH}/{{name:path}}", self.revoke, methods=["DELETE"]),
        ]

    async def list(self, request: Request) -> Response:
        """Answer ``GET /v1/keys``: the keys in the store, the revoked ones too."""
        store = self._open_store(request)
        with _answering_errors():
            keys = await asyncio.to_thread(keys_in, store)
        data = [{"object": "key", **booked.shown()} for booked in keys]
        return JsonPage({"object": "list", "data": data})

    async def add(self, request: Request) -> Response:
        """Answer ``POST /v1/keys``: make a key, which is shown in this answer alone."""
        store = self._open_store(request)
        limits = await receive_json(request.receive, _BODY_MB)
        with _answering_errors():
            made = await asyncio.to_thread(KeyBook(store).add, limits, self._check)
            await look(self._keys, store)
        return JsonPage({"object": "key", "key": made.key, **made.booked.shown()}, 201)

    async def revoke(self, request: Request) -> Response:
        """Answer ``DELETE /v1/keys/NAME``."""
        name = request.path_params["name"]
        store = self._open_store(request)
        with _answering_errors():
            revoked = await asyncio.to_thread(KeyBook(store).revoke, name)
            await look(self._keys, store)
        return JsonPage({"object": "key", **revoked.shown()})

    def _open_store(self, request: Request) -> RecordStore:
        """Return the store that holds the keys, to a request of an admin key.

        Raises:
            RequestFailed: the key is unknown, or no admin key.
        """
        tenant = self._keys.find(request.headers)
        store = self._gateway.store
        if not tenant.key.admin or not isinstance(store, RecordStore):
            message = "only a key with `admin = true` in the server's config may do this"
            raise RequestFailed(403, "admin_key_required", message)
        return store

    def _check(self, key: KeyTable) -> None:
        check_key(key, self._gateway.pool, self._gateway.systems, f"key {key.name!r}")


@contextmanager
def _answering_errors() -> Generator[None]:
    """Answer the errors of the block with an HTTP status and a code."""
    try:
        yield
    except KeyClash as error:
        raise RequestFailed(409, "key_exists", str(error), param="name") from error
    except NoSuchKey as error:
        raise RequestFailed(404, "key_not_found", str(error)) from error
    except OpenConductorError as error:
        raise request_failure(error) from error
