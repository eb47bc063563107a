"""Repeated requests: one key of a client (``Idempotency-Key``) is answered once, and paid once.

What was sent is kept beside the episode, and sent again to whoever repeats the request, by any
replica. While the first one is under way, its repeats wait for it. An answer that failed, and one
whose texts are not kept, is made anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from openconductor.errors import JournalError
from openconductor.serving.apis.wire import Json, RequestFailed, as_json, invalid
from openconductor.serving.turn import Turn
from openconductor.store import SHOWN, RecordClaims, Store
from openconductor.store.keys import hash_text

HEADER = "idempotency-key"
_LONGEST = 255
_POLL_S = 0.2  # between two looks for the answer of another request
_REPEATED = "repeat/"  # prefix of the record that names the episode of a key


class SentAnswer(NamedTuple):
    """What was sent to a client, and the id of its episode."""

    episode: str
    body: bytes


_UNDER_WAY = SentAnswer("", b"")
"""Stands for the answer that another replica makes now."""


class Repeats:
    """Knows the requests under way, and finds the answers of earlier ones.

    Args:
        store: keeps them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: set[str] = set()

    def read(
        self, headers: Mapping[str, str], tenant: str, path: str, body: Json
    ) -> RepeatedRequest | None:
        """Return what names a request. None: it has no key, or no text of it is kept.

        Args:
            headers: by their names in lower case.
            tenant: the name of the API key.
            path: of the API.
            body: the request's.

        Raises:
            RequestFailed: the key is too long.
        """
        key = headers.get(HEADER, "")
        if len(key) > _LONGEST:
            raise invalid(HEADER, f"got {len(key)} characters, expected at most {_LONGEST}")
        if not key or not self._store.keeps_texts or body.get("store") is False:
            return None
        name = f"{_REPEATED}{hash_text(ascii((tenant, key)))}"
        return RepeatedRequest(name, hash_text(path + as_json(body).decode()), self)

    async def find(self, request: RepeatedRequest) -> SentAnswer | None:
        """Return what was sent to the same request, or None once this one is to be answered.

        Raises:
            RequestFailed: the key came with another request.
            JournalError: the store failed.
        """
        while True:
            if request.name not in self._running:
                self._running.add(request.name)
                try:
                    sent = await asyncio.to_thread(self._find_sent, request)
                    if sent is None:
                        sent = await self._claim(request)
                except BaseException:
                    self._running.discard(request.name)
                    raise
                if sent is None:
                    return None
                self._running.discard(request.name)
                if sent is not _UNDER_WAY:
                    return sent
            await asyncio.sleep(_POLL_S)

    async def _claim(self, request: RepeatedRequest) -> SentAnswer | None:
        """Claim a request for which no answer was found, among all replicas.

        Returns:
            None if this process is to answer it, or else ``_UNDER_WAY``, or the answer that was
            kept meanwhile.
        """
        if not isinstance(self._store, RecordClaims):
            return None
        claims = [_claim_of(request)]
        claiming = asyncio.create_task(asyncio.to_thread(self._store.claim_records, claims, 1))
        try:
            answer = await asyncio.shield(claiming)
            if not answer.claimed:
                return _UNDER_WAY
            sent = await asyncio.to_thread(self._find_sent, request)
        except BaseException:  # the claim may have been made though its reply was lost
            await asyncio.wait((claiming,))
            await self._release(request)
            raise
        if sent is not None:
            await self._release(request)
        return sent

    async def _release(self, request: RepeatedRequest) -> None:
        """Give the claim back. That is done on return, or it would undo a later claim from here."""
        if isinstance(self._store, RecordClaims):
            self._store.release(_claim_of(request))
            with suppress(JournalError):  # the next use of the store tells of it
                await self._store.wait_durable()

    def _find_sent(self, request: RepeatedRequest) -> SentAnswer | None:
        record = self._store.find_record(request.name)
        if record is None:
            return None
        if record["request"] != request.digest:
            message = f"{HEADER}: it came with another request before; use a new key for each"
            raise RequestFailed(422, "idempotency_key_reused", message)
        episode = record["episode"]
        shown = self._store.find_record(f"{SHOWN}{episode}") or {}
        sent = shown.get("sent")
        return None if sent is None else SentAnswer(episode, sent.encode())

    async def keep(self, request: RepeatedRequest, turn: Turn, body: bytes) -> None:
        """Keep what is sent; it is durable when this returns.

        Raises:
            JournalError: the store failed.
        """
        turn.keep_sent(body.decode())
        record = {"request": request.digest, "episode": turn.id}
        self._store.put_record(request.name, record, texts=False)
        await self._store.wait_durable()

    async def end(self, request: RepeatedRequest) -> None:
        """End a request that was to be answered: its repeats get its answer, or make it anew."""
        try:
            await self._release(request)
        finally:
            self._running.discard(request.name)


@dataclass(frozen=True, slots=True)
class RepeatedRequest:
    """A request that a client may repeat.

    Attributes:
        name: of its record.
        digest: of its path and body.
        repeats: keep its answer.
    """

    name: str
    digest: str
    repeats: Repeats


def _claim_of(request: RepeatedRequest) -> str:
    """Return the record that is claimed: not the answer's own, which may be there and be gone."""
    return f"{request.name}/claim"
