"""Anthropic and Google natively, through pydantic-ai (extra ``providers``). In: turns, sampling. Out: a Completion.

pydantic-ai and the vendors' SDKs below it write the turns (text, images, documents, tool calls) in the wire's form, and
read the text, the thinking and the tool calls out of the answer. All else is ours (``native_http``, ``native_wire``),
because pydantic-ai 2.68 alone is neither exact nor strict. Seen on the wire and in its source:

- Knobs: ``extra_body`` is ignored for Google; for some Claude models ``temperature``, ``top_p`` and ``top_k`` are taken
  out of it again; ``max_tokens`` is lowered to what a table says; a table chooses a limit where none is given, and a
  stream where none was asked for; Google is sent ``responseModalities`` unasked; an image's URL is downloaded.
- Calls: on some errors the request is sent again, changed, within one call that then counts as one.
- Ends: a stream without a finish reason, a finish reason that is not known, an error object or an empty body under
  status 200 of Google all come back as answers, and no total deadline holds.

So a transport lets only the turns of the SDK's request through, and reads along in what comes back. What the SDKs cost
remains: their size, their imports, and for each call many times the CPU of ``openai_compatible``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httpx2
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from openconductor.errors import ConfigError, MalformedResponse, Rejected, TruncatedResponse, WorkerError, WorkerTimeout
from openconductor.protocols import CallContext, OnText
from openconductor.providers.chat_failures import Secret, excerpt
from openconductor.providers.http_session import Sessions, checked_seconds, checked_url, checked_variable, key_of
from openconductor.providers.native_http import CURRENT, ExactTransport, Exchange
from openconductor.providers.native_turns import conversation
from openconductor.providers.native_wire import WIRES
from openconductor.types import Completion, Message, Sampling, Usage

NO_KEY = "not-the-key"
"""What the SDKs take for a key: the transport adds the real one."""

_SETTINGS = ModelSettings(max_tokens=1)  # never sent; without it, pydantic-ai would stream on its own
_NO_TOOLS = ModelRequestParameters()
_STUMBLES = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, httpx2.HTTPError)
"""What pydantic-ai, the SDKs and their validators raise of turns or answers that they cannot read."""

_GENERATED = "pyd_ai_"  # how the ids of tool calls begin that pydantic-ai makes up


class PydanticAIProvider:
    """A model behind its vendor's own API (``anthropic`` and ``google`` make it).

    Streams where ``on_text`` is given, asks for one piece otherwise. ``Sampling.body`` is laid over the request as it
    is, mapping into mapping: ``{"thinking": {"type": "enabled", "budget_tokens": 1024}}`` for Anthropic,
    ``{"generationConfig": {"thinkingConfig": {"thinkingBudget": 128}}}`` for Google, ``tools`` and all else likewise.
    Connections are kept as ``Sessions`` keeps them.

    Args:
        vendor: ``anthropic`` or ``google``.
        model: the model's name.
        base_url: where the API begins, without its version; None is the vendor's own address.
        api_key_env: the environment variable that holds the key. None: ``ANTHROPIC_API_KEY``, or the first that is set
            of ``GEMINI_API_KEY`` and ``GOOGLE_API_KEY``, at the vendor's own address, and no key anywhere else (a key
            is never sent to a host that it was not named for).
        timeout_s: total deadline of a call, in seconds; None is none. ``call.deadline`` holds beside it.
        read_timeout_s: the longest silence of the server, in seconds; None (a model may think for long) is none.

    Attributes:
        model, base_url: as given.
        identity: what stands behind a worker's name.

    Raises:
        ConfigError: the model, the URL, the variable's name or a timeout is none.
    """

    remote = True

    def __init__(
        self,
        vendor: str,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        timeout_s: float | None = 600.0,
        read_timeout_s: float | None = None,
    ) -> None:
        if not model.strip():
            raise ConfigError("model: got a blank name, expected the model's name at the vendor")
        self._wire = WIRES[vendor]
        self.model = model
        self.base_url = checked_url(base_url or self._wire.home)
        self._at_home = urlsplit(self.base_url).hostname == urlsplit(self._wire.home).hostname
        self._api_key_env = checked_variable(api_key_env)
        self._timeout_s = checked_seconds("timeout_s", timeout_s)
        self._sessions = Sessions(self.base_url, checked_seconds("read_timeout_s", read_timeout_s))
        self._library, self._stumbles = _LIBRARIES[vendor]()

    @property
    def api_key_env(self) -> str | None:
        """The variable that is read; None where no key is sent."""
        if self._api_key_env is not None or not self._at_home:
            return self._api_key_env
        variables = self._wire.key_variables
        return next((variable for variable in variables if os.environ.get(variable, "").strip()), variables[0])

    @property
    def identity(self) -> str:
        """What stands behind a worker's name."""
        return f"{self._wire.name} {self.model} {self.base_url}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._wire.name!r}, {self.model!r}, base_url={self.base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the running event loop's connections; a later call opens new ones."""
        await self._sessions.aclose()

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Ask the model; ``usage.seconds`` is the wall time of the call, ``body_sent`` what was sent (never the key).

        System turns go to the wire's own place for them, before all others. ``max_tokens`` of None is
        ``ANTHROPIC_MAX_TOKENS`` at Anthropic, which requires one. Tool calls have the shape of OpenAI's.

        Raises:
            WorkerError: as ``OpenAICompatibleProvider.complete`` raises it; and Rejected, before anything is sent, for
                a turn that the vendor's API has no form for.
            ConfigError: ``sampling.body`` holds what JSON does not know.
        """
        try:
            secret = key_of(self.api_key_env)
            return await self._complete(messages, sampling, call, on_text, secret)
        except WorkerError as error:
            error.message = f"{self.model} at {self.base_url}: {error.message}"
            error.args = (error.message,)
            raise

    async def _complete(
        self, messages: Sequence[Message], sampling: Sampling, call: CallContext, on_text: OnText | None, secret: Secret
    ) -> Completion:
        stream = self._wire.streams(sampling, wanted=on_text is not None)
        exchange = Exchange(self._wire, self.base_url, self.model, sampling, stream, secret, self._sessions)
        started = time.perf_counter()
        scope = asyncio.timeout_at(self._deadline(call))
        token = CURRENT.set(exchange)
        try:
            async with scope:
                said = await self._ask(messages, exchange, on_text)
            with self._reading(exchange):
                text, reasoning, calls = _apart(said)
            finish = exchange.watch.finish_reason(len(text.strip()), calls=bool(calls))
            if on_text is not None and text and not stream:
                on_text(text)
            usage = replace(exchange.watch.usage or Usage(), seconds=time.perf_counter() - started)
            return Completion(text, reasoning, calls, usage, finish, exchange.body_sent)
        except WorkerError as error:
            if error.usage is None:
                error.usage = exchange.watch.usage
            raise
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            CURRENT.reset(token)
        # Raised out here, so that no error hangs on it as its context.
        seconds = time.perf_counter() - started
        raise WorkerTimeout(f"no whole response by the deadline, after {seconds:.1f} s", usage=exchange.watch.usage)

    def _deadline(self, call: CallContext) -> float | None:
        now = asyncio.get_running_loop().time()
        ends = [end for end in (call.deadline, self._timeout_s and now + self._timeout_s) if end is not None]
        deadline = min(ends, default=None)
        if deadline is not None and deadline <= now:
            raise WorkerTimeout("the deadline had passed before the call began", usage=Usage())
        return deadline

    async def _ask(self, messages: Sequence[Message], exchange: Exchange, on_text: OnText | None) -> ModelResponse:
        with self._reading(exchange):
            turns = conversation(messages, self._wire.name)
        if not exchange.stream:
            with self._reading(exchange):
                return await self._library.request(turns, _SETTINGS, _NO_TOOLS)
        async with AsyncExitStack() as stack:
            with self._reading(exchange):
                streamed = self._library.request_stream(turns, _SETTINGS, _NO_TOOLS)
                stream = await stack.enter_async_context(streamed)
                events = aiter(stream)
            while True:
                with self._reading(exchange):
                    event = await anext(events, None)
                if event is None:
                    break
                if on_text is not None and (text := _text_of(event)):
                    on_text(text)
            return stream.get()

    @contextmanager
    def _reading(self, exchange: Exchange) -> Generator[None]:
        """Say what it means that pydantic-ai or an SDK stumbled."""
        try:
            yield
            return
        except self._stumbles as error:
            words = excerpt(f"{type(error).__name__}: {error}", exchange.secret)
        if exchange.failure is not None:
            raise exchange.failure
        if exchange.body_sent is None:
            raise Rejected(f"the turns could not be written for {self._wire.name}: {words}")
        if exchange.stream and not exchange.watch.ended:
            raise TruncatedResponse(f"the stream ended before its end was said: {words}", status=200)
        raise MalformedResponse(f"the answer could not be read: {words}", status=200)


anthropic = partial(PydanticAIProvider, "anthropic")
"""A Claude model at Anthropic's Messages API."""

google = partial(PydanticAIProvider, "google")
"""A Gemini model at Google's Gemini API."""


# ── pydantic-ai's models ─────────────────────────────────────────────────────────────────────────────────────────────
def _anthropic_library() -> tuple[Model, tuple[type[Exception], ...]]:
    from anthropic import AnthropicError, AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(api_key=NO_KEY, max_retries=0, http_client=_client())
    # Its name is never sent, and in none of the tables that would change the turns.
    model = AnthropicModel("a-model", provider=AnthropicProvider(anthropic_client=client))
    return model, (*_STUMBLES, AnthropicError)


def _google_library() -> tuple[Model, tuple[type[Exception], ...]]:
    from google.genai.errors import APIError
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    model = GoogleModel("a-model", provider=GoogleProvider(api_key=NO_KEY, http_client=_client()))
    return model, (*_STUMBLES, APIError)


_LIBRARIES = {"anthropic": _anthropic_library, "google": _google_library}


def _client() -> httpx2.AsyncClient:
    # It holds no connection, so nobody needs to close it; its timeouts are not used either.
    return httpx2.AsyncClient(transport=ExactTransport(), timeout=httpx2.Timeout(600.0))


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def _text_of(event: object) -> str:
    """The text that an event of a stream brought."""
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _apart(said: ModelResponse) -> tuple[str, str, tuple[Mapping[str, object], ...]]:
    """(text, reasoning, tool calls) of an answer."""
    text = "".join(part.content for part in said.parts if isinstance(part, TextPart))
    reasoning = "".join(part.content for part in said.parts if isinstance(part, ThinkingPart))
    called = [part for part in said.parts if isinstance(part, ToolCallPart)]
    return text, reasoning, tuple(_tool_call(part, index) for index, part in enumerate(called))


def _tool_call(part: ToolCallPart, index: int) -> Mapping[str, object]:
    name = part.tool_call_id if not part.tool_call_id.startswith(_GENERATED) else f"call_{index}"
    return {
        "id": name,
        "type": "function",
        "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
    }
