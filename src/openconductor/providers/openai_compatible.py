"""The OpenAI-compatible client, over aiohttp. In: turns and sampling. Out: a Completion, or a typed WorkerError.

One client for OpenAI, OpenRouter, vLLM, Ollama, llama.cpp and the compatible endpoints of others. What it is strict
about: a response must say why it ended; the deadline is that of the whole call, so that a dripping stream cannot evade
it; a response is bounded in size; redirects are not followed; the key is read from the environment at each call and is
never in an error, a log or the body on record.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
from aiohttp.http import HttpProcessingError

from openconductor.errors import AuthFailed, ConfigError, TruncatedResponse, WorkerError, WorkerTimeout
from openconductor.protocols import CallContext, OnText
from openconductor.providers.chat_failures import excerpt, failure, retry_after
from openconductor.providers.chat_wire import EventStream, StreamedReply, encode, read_body, request_body
from openconductor.types import Completion, Message, Sampling

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
"""A larger response is a failure: the longest answers of today's models are a hundred times smaller."""

MAX_ERROR_BYTES = 64 * 1024
CONNECT_SECONDS = 30.0
DRAIN_SECONDS = 0.1

_BROKEN = (aiohttp.ClientError, HttpProcessingError, OSError)


class OpenAICompatibleProvider:
    """A model behind ``POST {base_url}/chat/completions``.

    Streams where ``on_text`` is given, asks for one piece otherwise. Connections are kept alive, one pool an event
    loop; the pool is closed by ``aclose``, at the end of ``async with``, or else when its event loop shuts down
    (``asyncio.run`` and servers do that; a loop that is closed by hand should be given ``shutdown_asyncgens`` first).

    Args:
        model: the model's name at the server.
        base_url: where the API begins, ``/v1`` included; http(s), without credentials, query or fragment.
        api_key_env: the environment variable that holds the key. None: ``OPENAI_API_KEY`` at OpenAI's own address, and
            no key anywhere else (a key is never sent to a host that it was not named for).
        timeout_s: total deadline of a call, in seconds; None is none. ``call.deadline`` holds beside it.
        read_timeout_s: the longest silence of the server, in seconds; None (a model may think for long) is none.

    Raises:
        ConfigError: the URL, the variable's name or a timeout is none.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI_URL,
        api_key_env: str | None = None,
        timeout_s: float | None = 600.0,
        read_timeout_s: float | None = None,
    ) -> None:
        if not model.strip():
            raise ConfigError("model: got a blank name, expected the model's name at the server")
        self.model = model
        self.base_url = _checked_url(base_url)
        host = urlsplit(self.base_url).hostname
        at_openai = host == urlsplit(OPENAI_URL).hostname
        self._api_key_env = _checked_variable(OPENAI_KEY if api_key_env is None and at_openai else api_key_env)
        self._timeout_s = _checked_seconds("timeout_s", timeout_s)
        self._read_timeout_s = _checked_seconds("read_timeout_s", read_timeout_s)
        # OpenAI's reasoning models refuse max_tokens; many other servers know nothing else.
        self._limit_key = "max_completion_tokens" if at_openai else "max_tokens"
        self._sessions: dict[asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, AsyncGenerator[None]]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, base_url={self.base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the running event loop's connections; a later call opens new ones."""
        held = self._sessions.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[1].aclose()

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Ask the model; ``usage.seconds`` is the wall time of the call, ``body_sent`` what was sent (never the key).

        Raises:
            AuthFailed: 401, 403, or the variable for the key is not set.
            RateLimited: 429 or a spent quota, with Retry-After where the server names it.
            ContextTooLong, Refused: the server says so; a content filter that left nothing.
            WorkerTimeout: the total deadline, or ``read_timeout_s``, passed.
            TruncatedResponse: the response was cut, or gave no finish reason.
            EmptyResponse: success, and neither text nor tool call.
            WorkerError: anything else: no connection, 5xx (retryable), other 4xx, garbage, too large a response, a
                finish reason that is not known.
            ConfigError: ``sampling.body`` or a part holds what JSON does not know.
        """
        key = self._key()
        body = request_body(self.model, messages, sampling, stream=on_text is not None, limit_key=self._limit_key)
        payload = encode(body)
        started = time.perf_counter()
        deadline = self._deadline(call)
        scope = asyncio.timeout_at(deadline)
        try:
            async with scope:
                completion = await self._exchange(payload, key, on_text)
        except TimeoutError as error:
            if isinstance(error, WorkerError) or not scope.expired():
                raise
            seconds = time.perf_counter() - started
            raise WorkerTimeout(self._where(f"no whole response by the deadline, after {seconds:.1f} s")) from None
        usage = replace(completion.usage, seconds=time.perf_counter() - started)
        return replace(completion, usage=usage, body_sent=body)

    def _deadline(self, call: CallContext) -> float | None:
        now = asyncio.get_running_loop().time()
        ends = [end for end in (call.deadline, self._timeout_s and now + self._timeout_s) if end is not None]
        deadline = min(ends, default=None)
        if deadline is not None and deadline <= now:
            raise WorkerTimeout(self._where("the deadline had passed before the call began"))
        return deadline

    def _key(self) -> str:
        """The key, from the environment; "" where none is wanted."""
        if self._api_key_env is None:
            return ""
        key = os.environ.get(self._api_key_env, "").strip()
        if not key:
            raise AuthFailed(self._where(f"the environment variable {self._api_key_env} is not set; expected a key"))
        if not (key.isascii() and key.isprintable()):
            raise AuthFailed(self._where(f"the key in {self._api_key_env} has characters that no header can hold"))
        return key

    async def _exchange(self, payload: bytes, key: str, on_text: OnText | None) -> Completion:
        response = await self._post(payload, key)
        try:
            async with response:  # a response that is not read to its end closes its connection
                if not 200 <= response.status < 300:
                    raise await self._refused(response, key)
                kind = response.content_type if "Content-Type" in response.headers else "application/json"
                if kind == "text/event-stream":
                    return await self._read_stream(response, key, on_text)
                if "json" not in kind and kind != "text/plain":
                    start = excerpt(await self._read_start(response), key)
                    raise WorkerError(
                        f"status {response.status}, content type {kind!r}, expected JSON: {start!r}",
                        status=response.status,
                    )
                completion = read_body(await self._read_all(response), secret=key)
        except WorkerError as error:
            # The pure readers know nothing of the address; the message does not change otherwise.
            error.message = self._where(error.message)
            error.args = (error.message,)
            raise
        if on_text is not None and completion.text:
            on_text(completion.text)  # the server does not stream
        return completion

    async def _post(self, payload: bytes, key: str) -> aiohttp.ClientResponse:
        headers = {"Content-Type": "application/json", "User-Agent": "openconductor"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        session = await self._session()
        url = f"{self.base_url}/chat/completions"
        try:
            return await session.post(url, data=payload, headers=headers, allow_redirects=False)
        except _BROKEN as error:
            broken = _connection_failure(error, key)
        # Raised out here, so that aiohttp's error, which holds the request's headers, is not kept as the context.
        broken.message = self._where(broken.message)
        broken.args = (broken.message,)
        raise broken

    async def _read_stream(self, response: aiohttp.ClientResponse, key: str, on_text: OnText | None) -> Completion:
        events, reply, received = EventStream(), StreamedReply(on_text, secret=key), 0
        while chunk := await self._read(response, key):
            received = _bounded(received + len(chunk))
            if any(reply.add(data) for data in events.feed(chunk)):
                await self._drain(response, key)
                return reply.completion()
        if (last := events.end()) is not None:
            reply.add(last)
        return reply.completion()

    async def _read_all(self, response: aiohttp.ClientResponse) -> bytes:
        _bounded(response.content_length or 0)
        chunks: list[bytes] = []
        received = 0
        while chunk := await self._read(response, ""):
            received = _bounded(received + len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    async def _read_start(self, response: aiohttp.ClientResponse) -> bytes:
        """The first bytes of a body that is only quoted; that it is cut short changes nothing."""
        start = b""
        with suppress(TruncatedResponse):
            while len(start) < MAX_ERROR_BYTES and (chunk := await self._read(response, "")):
                start += chunk
        return start

    async def _read(self, response: aiohttp.ClientResponse, key: str) -> bytes:
        """The next bytes; none at the end."""
        try:
            return await response.content.readany()
        except aiohttp.ServerTimeoutError:
            broken: WorkerError = WorkerTimeout(f"the server was silent for {self._read_timeout_s} s")
        except _BROKEN as error:
            broken = TruncatedResponse(f"the response broke off: {excerpt(_words(error), key)}", status=response.status)
        raise broken

    async def _drain(self, response: aiohttp.ClientResponse, key: str) -> None:
        """Read what follows the last event, so that the connection is kept; a server that dawdles loses it."""
        with suppress(TimeoutError, WorkerError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while await self._read(response, key):
                    pass

    async def _refused(self, response: aiohttp.ClientResponse, key: str) -> WorkerError:
        wait = retry_after(response.headers.get("Retry-After"))
        return failure(response.status, await self._read_start(response), wait=wait, secret=key)

    async def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        held = self._sessions.get(loop)
        if held is not None and not held[0].closed:
            return held[0]
        for other in [other for other in list(self._sessions) if other.is_closed()]:
            self._sessions.pop(other, None)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=self._read_timeout_s)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # what limits calls is the worker's max_concurrency
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout,
            proxy=_proxy(self.base_url),
        )
        keeper = _keep(session)
        self._sessions[loop] = (session, keeper)
        await anext(keeper)
        return session

    def _where(self, message: str) -> str:
        return f"{self.model} at {self.base_url}: {message}"


def ollama(
    model: str, *, base_url: str = "http://localhost:11434/v1", timeout_s: float | None = 600.0
) -> OpenAICompatibleProvider:
    """A model of a local Ollama; no key."""
    return OpenAICompatibleProvider(model, base_url=base_url, timeout_s=timeout_s)


def openrouter(
    model: str, *, api_key_env: str = "OPENROUTER_API_KEY", timeout_s: float | None = 600.0
) -> OpenAICompatibleProvider:
    """A model of OpenRouter."""
    return OpenAICompatibleProvider(
        model, base_url="https://openrouter.ai/api/v1", api_key_env=api_key_env, timeout_s=timeout_s
    )


def vllm(
    model: str,
    *,
    base_url: str = "http://localhost:8000/v1",
    api_key_env: str | None = None,
    timeout_s: float | None = 600.0,
) -> OpenAICompatibleProvider:
    """A model of a vLLM server; no key unless its variable is named."""
    return OpenAICompatibleProvider(model, base_url=base_url, api_key_env=api_key_env, timeout_s=timeout_s)


async def _keep(session: aiohttp.ClientSession) -> AsyncGenerator[None]:
    """Hold a session open until its event loop shuts down its generators, or nobody holds this one any more.

    An event loop finishes the asynchronous generators that were begun on it before it closes, which is the one moment
    when connections can still be closed in order without the user's doing.
    """
    try:
        yield
    finally:
        await session.close()


def _bounded(received: int) -> int:
    if received > MAX_RESPONSE_BYTES:
        raise WorkerError(
            f"a response of {received} bytes or more, expected at most {MAX_RESPONSE_BYTES}", retryable=False
        )
    return received


def _connection_failure(error: Exception, key: str) -> WorkerError:
    """What it means that no response began."""
    words = excerpt(_words(error), key)
    if isinstance(error, TimeoutError):  # aiohttp's timeouts are also that
        return WorkerTimeout(f"no connection, or no response, in time: {words}")
    if isinstance(error, aiohttp.ClientSSLError):
        return WorkerError(f"no secure connection: {words}", retryable=False)
    if isinstance(error, aiohttp.ClientConnectorError):
        return WorkerError(f"no connection: {words}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return WorkerError("the server closed the connection without a response")
    return WorkerError(f"no response: {words}")


def _words(error: Exception) -> str:
    # Not str() of every kind: a ClientResponseError's would do, but its repr holds the request's headers.
    text = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _checked_url(url: str) -> str:
    wanted = "expected http(s)://host[:port]/path without credentials, query or fragment"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(f"base_url: it has credentials, a query or a fragment (not shown); {wanted}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"base_url: got {excerpt(url)!r}, {wanted}")
    return url.rstrip("/")


def _checked_variable(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ConfigError(
            "api_key_env: expected the name of an environment variable (letters, digits and _), got something else "
            "(not shown, it may be the key itself)"
        )
    return name


def _checked_seconds(name: str, seconds: float | None) -> float | None:
    if seconds is not None and not 0 < seconds < float("inf"):
        raise ConfigError(f"{name}: got {seconds!r}, expected seconds above 0, or None for no limit")
    return seconds


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for this URL (HTTPS_PROXY, NO_PROXY …)."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return None if proxy_bypass(host) else getproxies_environment().get(parts.scheme)
