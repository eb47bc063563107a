"""The OpenAI-compatible client: OpenAI, OpenRouter, vLLM, Ollama, llama.cpp and others.

It is strict: a response must give a finish reason; the deadline is that of the whole call, so that
a dripping stream cannot evade it; a response is bounded in size; redirects are not followed; the
key is read from the environment at each call, and is never in an error, a log or the recorded body.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from urllib.parse import urlsplit

from openconductor.errors import ConfigError, WorkerError, WrongContentType
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.providers.wire import http
from openconductor.providers.wire.chat import EventStream, Reply, encode, request_body
from openconductor.providers.wire.failures import excerpt, failure, key_of
from openconductor.providers.wire.http_connection import Connection
from openconductor.providers.wire.http_settings import HttpSettings
from openconductor.types import Completion, Message, Sampling, TraceSpan, Usage

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
OPENAI_ADDRESS = "OPENAI_BASE_URL"
AZURE = ".openai.azure.com"
REACH_SECONDS = 10.0
"""The longest time that a server may take to accept a connection before anything is asked."""
OPENROUTER_URL = "https://openrouter.ai/api/v1"


class OpenAICompatibleProvider(http.Closing, Provider):
    """A model behind ``POST {base_url}/chat/completions``.

    Streams if ``on_text`` is given. Connections are kept alive, one pool an event loop. A pool is
    closed by ``aclose``, at the end of ``async with``, or else when its event loop shuts down
    (``asyncio.run`` and servers do that; a loop that is closed by hand should be given
    ``shutdown_asyncgens`` first).

    Args:
        model: the model's name at the server.
        base_url: where the API begins, ``/v1`` included; http(s), without credentials, query or
            fragment. None: the environment variable ``OPENAI_BASE_URL`` as it is now, or else
            OpenAI's own address.
        api_key_env: the environment variable that holds the key. None: ``OPENAI_API_KEY`` at
            OpenAI's own address and at ``OPENAI_BASE_URL``, and no key anywhere else (a key is
            never sent to a host that it was not named for).
        timeout_s: total deadline of a call, in seconds. None: no limit. ``call.deadline`` holds
            beside it.
        read_timeout_s: the longest silence of the server, in seconds. None: no limit, because a
            model may think for long.
        headers, query, proxy, client_cert: as ``HttpSettings`` takes them.

    Attributes:
        model: as given.

    Raises:
        ConfigError: the URL, the variable's name, a timeout or another setting is invalid.
    """

    remote = True

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        timeout_s: float | None = 600.0,
        read_timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        proxy: str | None = None,
        client_cert: str | Sequence[str] | None = None,
    ) -> None:
        self.model = http.checked_name(model, "the model's name at the server")
        self.base_url = _default_url() if base_url is None else http.checked_url(base_url)
        self._settings = HttpSettings(headers, query, proxy, client_cert)
        self.variables = self._settings.variables
        host = urlsplit(self.base_url).hostname or ""
        at_openai = host == urlsplit(OPENAI_URL).hostname
        if self._settings.authorizes and api_key_env is not None:
            raise ConfigError("api_key_env: headers already hold Authorization; keep one of them")
        takes_openai_key = at_openai or base_url is None
        if api_key_env is None and takes_openai_key and not self._settings.authorizes:
            api_key_env = OPENAI_KEY
        self.api_key_env = http.checked_variable(api_key_env)
        self._timeout_s = http.checked_seconds("timeout_s", timeout_s)
        # OpenAI's reasoning models refuse max_tokens; many other servers know nothing else.
        at_openai = at_openai or host.endswith(AZURE)
        self._limit_key = "max_completion_tokens" if at_openai else "max_tokens"
        silence_s = http.checked_seconds("read_timeout_s", read_timeout_s)
        self._http = http.HttpClient(self.base_url, silence_s, self._settings)
        self._held = self._http.pools
        parts = ("openai_compatible", self.model, self.base_url, self._settings.identity)
        self.identity = " ".join(parts).strip()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, base_url={self.base_url!r})"

    @property
    def _where(self) -> str:
        """The model and its server, for errors."""
        return f"{self.model} at {self.base_url}"

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Ask the model; ``usage.seconds`` is wall time, ``body_sent`` never holds the key.

        Raises:
            WorkerError: of the kinds below; ``.usage`` is the usage that the server had reported.
            AuthFailed: 401, 403, or the variable for the key is not set.
            RateLimited: 429 or a spent quota, with the wait if the server names one.
            ContextTooLong, Refused: the server says so; a content filter that left nothing.
            Rejected: another status from 300 to 499.
            ServerFailed: 5xx, with Retry-After; an error object.
            Unreachable: no connection, or one that was closed before a response began.
            WorkerTimeout: the total deadline, or ``read_timeout_s``, passed.
            TruncatedResponse: the response was cut, or gave no finish reason.
            ConnectionLost: the response broke off.
            MalformedResponse: no HTTP, no chat completion, an unknown finish reason, or too large a
                response.
            WrongContentType: neither JSON nor a stream.
            EmptyResponse: success, and neither text nor tool call.
            ConfigError: ``sampling.body`` or a part holds a value that JSON lacks.
        """
        started = perf_counter()
        stream = on_text is not None
        body = request_body(
            self.model, messages, sampling, stream=stream, limit_key=self._limit_key
        )
        payload = encode(body)
        reply = Reply(on_text, usage=Usage())  # nothing is used before the request is sent
        try:
            async with http.attempt(self._where, self._timeout_s, call.deadline):
                # Nothing is sent without the keys; no frame that may raise holds them.
                self._check_keys()
                with await self._http.connect() as response:
                    await self._exchange(response, payload, reply, call)
                return reply.completion(seconds=perf_counter() - started, body_sent=body)
        except WorkerError as error:
            if error.usage is None:
                error.usage = reply.usage
            raise

    def _check_keys(self) -> None:
        key_of(self.api_key_env)
        self._settings.check_set()

    async def reach(self) -> None:
        """Check the keys, connect to the server, and close the connection; nothing is sent.

        Raises:
            AuthFailed: the variable of a key is not set.
            Unreachable: no connection.
            WorkerTimeout: none within ``REACH_SECONDS``.
        """
        async with http.attempt(self._where, REACH_SECONDS, None):
            self._check_keys()
            with await self._http.connect():
                pass

    async def _exchange(
        self, response: Connection, payload: bytes, reply: Reply, call: CallContext
    ) -> None:
        """Send the request and read the answer into ``reply``."""
        reply.usage = None
        response.send(self._head(payload, call.trace), payload)
        await response.answered()
        self.response_headers = response.headers
        status = response.status
        if not 200 <= status < 300:
            raise failure(status, await response.start(), response.headers)
        content_type = response.headers.get("content-type") or "application/json"
        kind = content_type.partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            await _read_stream(response, reply)
        elif "json" in kind or kind == "text/plain":
            reply.body(await response.whole())
        else:
            start = excerpt(await response.start())
            words = f"status {status}, content type {excerpt(kind)!r}, expected JSON: {start!r}"
            raise WrongContentType(words, status=status)

    def _head(self, payload: bytes, trace: TraceSpan | None) -> bytes:
        """Return the head of a request that belongs to a span."""
        headers = {"Content-Type": "application/json", "User-Agent": "openconductor"}
        if trace is not None:
            headers["Traceparent"] = trace.traceparent
        key = key_of(self.api_key_env)
        if key:
            headers["Authorization"] = f"Bearer {key}"
        headers |= self._settings.read_headers()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return self._http.head("/chat/completions", lines, len(payload))


def _default_url() -> str:
    """Return the address in ``OPENAI_BASE_URL``, as OpenAI's SDK does, or else OpenAI's own."""
    url = os.environ.get(OPENAI_ADDRESS, "").strip()
    if not url:
        return OPENAI_URL
    try:
        return http.checked_url(url)
    except ConfigError as error:
        raise ConfigError(f"the environment variable {OPENAI_ADDRESS}: {error}") from error


async def _read_stream(response: Connection, reply: Reply) -> None:
    events = EventStream()
    while piece := await response.piece():
        for data in events.feed(piece):
            if reply.event(data):
                await response.drain()
                return
    for data in events.feed(b"\n\n"):
        reply.event(data)


# A model of a local Ollama; no key.
ollama = partial(OpenAICompatibleProvider, base_url="http://localhost:11434/v1")

# A model of OpenRouter.
openrouter = partial(
    OpenAICompatibleProvider, base_url=OPENROUTER_URL, api_key_env="OPENROUTER_API_KEY"
)

# A model of a vLLM server; no key unless its variable is named.
vllm = partial(OpenAICompatibleProvider, base_url="http://localhost:8000/v1")
