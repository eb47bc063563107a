"""Models behind other wires, through pydantic-ai (extra ``providers``). In: turns, sampling. Out: a Completion.

``pydantic_ai:VENDOR:MODEL`` names any model that pydantic-ai reaches: ``anthropic``, ``google``,
``bedrock``, ``mistral`` … It and the vendor's SDK write the request, send it and read the answer.
Ours are the total deadline, the kinds of failure, and that an answer needs a finish reason. No SDK
sends a failed request again: retries are counted and billed above. What is not in our hands: the
exact bytes that are sent (some models are not sent a temperature, a table chooses Anthropic's
``max_tokens`` where none is given), and the CPU, many times that of ``openai_compatible``.
"""

from __future__ import annotations

import base64
import inspect
import json
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from time import perf_counter
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from pydantic_ai import exceptions as faults, messages as form
from pydantic_ai.models import (
    Model,
    ModelRequestParameters,
    create_async_httpx2_client,
    infer_model,
)
from pydantic_ai.providers import Provider as Vendor, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from openconductor import errors
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.providers import http
from openconductor.providers.chat_failures import excerpt, failure, key_of
from openconductor.providers.chat_wire import Reply, encode, plain
from openconductor.types import Completion, Message, Sampling, Usage

NO_KEY = "no-key"
"""What an SDK, which wants one, gets for a key at an address that no key was named for."""

SILENCE_SECONDS = 3600.0  # where no read timeout is given: the deadline is what ends a call

_HOMES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "anthropic": ("https://api.anthropic.com", ("ANTHROPIC_API_KEY",)),
    "google": ("https://generativelanguage.googleapis.com", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
}
"""The addresses that are known here, and the variables of their keys; other vendors' are known to pydantic-ai."""

_STUMBLES = (
    *(
        faults.AgentRunError,
        faults.UserError,
        httpx2.HTTPError,
        OSError,
        RuntimeError,
        ValueError,
        TypeError,
    ),
    *(LookupError, AttributeError, AssertionError),
)
"""What pydantic-ai, the SDKs and their validators raise of turns or answers that they cannot read."""

_FIELDS = ("tool_calls", "tool_call_id", "name")  # of a turn that a part without a type may hold
_GENERATED = "pyd_ai_"  # how the ids of tool calls begin that pydantic-ai makes up


class PydanticAIProvider(http.Closing, Provider):
    """A model behind its vendor's own API (``anthropic`` and ``google`` make it, too).

    Streams where ``on_text`` is given. Of ``Sampling.body``, names that begin with the vendor's are
    pydantic-ai's settings (``google_thinking_config``, ``anthropic_thinking``), ``tools`` have
    OpenAI's form, and the rest is laid over the request (``extra_body``); where the library has no
    such thing (Google, Mistral, Bedrock) the rest may hold its common settings alone (``top_p``,
    ``stop_sequences``). Connections are those of an event loop (``PerLoop``).

    Args:
        model: ``VENDOR:NAME``, or the name alone where ``vendor`` is given.
        vendor: pydantic-ai's name of who serves it.
        base_url: where the API begins; None is the vendor's own address.
        api_key_env: the environment variable that holds the key. None: the one that the vendor's
            SDK reads (of Google's two GEMINI_API_KEY comes first), at the vendor's own address, and
            no key anywhere else (a key is never sent to a host that it was not named for).
        timeout_s: total deadline of a call, in seconds; None is none. ``call.deadline`` holds
            beside it.
        read_timeout_s: the longest silence of the server, in seconds; None (a model may think for
            long) is none.

    Attributes:
        model, vendor: as given.
        base_url: as given, or the vendor's own where it is known.
        identity: what stands behind a worker's name.

    Raises:
        ConfigError: the model, the vendor, the URL, the variable's name or a timeout is none.
        ImportError: the vendor's SDK is not installed.
    """

    remote = True

    def __init__(
        self,
        model: str,
        *,
        vendor: str = "",
        base_url: str | None = None,
        api_key_env: str | None = None,
        timeout_s: float | None = 600.0,
        read_timeout_s: float | None = None,
    ) -> None:
        if not vendor:
            vendor, _, model = model.partition(":")
        self.vendor = http.checked_name(vendor, "a vendor's ('vendor:model')")
        self.model = http.checked_name(model, "the model's name there ('vendor:model')")
        try:
            self._class = cast("type[Vendor[object]]", infer_provider_class(vendor))
        except ValueError as error:
            raise errors.ConfigError(
                f"model {vendor}:{model}: pydantic-ai knows no vendor {vendor!r}"
            ) from error
        home, self._variables = _HOMES.get(vendor, ("", ()))
        self._url = None if base_url is None else http.checked_url(base_url)
        self.base_url = self._url or home
        self._elsewhere = (
            self._url is not None and urlsplit(self._url).hostname != urlsplit(home).hostname
        )
        self._api_key_env = http.checked_variable(api_key_env)
        self._timeout_s = http.checked_seconds("timeout_s", timeout_s)
        self._read_timeout_s = http.checked_seconds("read_timeout_s", read_timeout_s)
        self._held = http.PerLoop(self._open, _close)
        self.api_key_env = self._key_variable()
        self.identity = f"{self.vendor} {self.model} {self.base_url}".strip()

    def _key_variable(self) -> str | None:
        """Return the variable to read. None: no key is sent, or pydantic-ai knows the variable."""
        if self._api_key_env is not None or self._elsewhere or not self._variables:
            return self._api_key_env
        return next(
            (name for name in self._variables if os.environ.get(name, "").strip()),
            self._variables[0],
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({f'{self.vendor}:{self.model}'!r}, base_url={self.base_url!r})"
        )

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Ask the model; ``usage.seconds`` is the wall time of the call. Tool calls have the shape of OpenAI's.

        ``body_sent`` is what pydantic-ai was given beside the turns: the model, the settings and
        the tools.

        Raises:
            WorkerError: as ``OpenAICompatibleProvider.complete`` raises it; and Rejected, before
                anything is sent, for a turn that the vendor's API has no form for.
            ConfigError: ``sampling.body`` holds what JSON does not know, or what cannot be sent to
                this vendor.
        """
        started = perf_counter()
        async with http.attempt(
            f"{self.model} at {self.base_url or self.vendor}", self._timeout_s, call.deadline
        ):
            key_of(self._key_variable())  # it is there, or nothing is sent
            model, _ = await self._held.get()
            settings, tools = self._settings(sampling, model)
            said = None
            async with aclosing(
                _answer(model, messages, settings, tools, on_text is not None)
            ) as pieces:
                async for piece in pieces:
                    if isinstance(piece, form.ModelResponse):
                        said = piece
                    elif on_text is not None:
                        on_text(piece)
            assert said is not None
            sent = {
                "model": f"{self.vendor}:{self.model}",
                **settings,
                **({"tools": tools} if tools else {}),
            }
            return _completion(said, perf_counter() - started, sent)

    def _open(self) -> tuple[Model, httpx2.AsyncClient]:
        """pydantic-ai's model, and the client that it sends with, for the running event loop."""
        silence = self._read_timeout_s or SILENCE_SECONDS
        client = create_async_httpx2_client(
            timeout=httpx2.Timeout(silence, connect=http.CONNECT_SECONDS)
        )
        client.event_hooks = {"response": [_stay]}
        key = key_of(self._key_variable()) or (NO_KEY if self._elsewhere else None)
        given = {"api_key": key, "base_url": self._url, "http_client": client}
        taken = inspect.signature(self._class).parameters
        options = {
            name: value for name, value in given.items() if value is not None and name in taken
        }
        try:
            return infer_model(
                f"{self.vendor}:{self.model}", lambda _: self._class(**options)
            ), client
        except faults.UserError as error:  # the library says that there is no key
            words = excerpt(str(error))
        raise errors.AuthFailed(words)

    def _settings(
        self, sampling: Sampling, model: Model
    ) -> tuple[dict[str, object], list[Mapping[str, object]]]:
        """(settings, tools) of a call, in pydantic-ai's form and in OpenAI's."""
        settings = {name: getattr(sampling, name) for name in ("temperature", "max_tokens", "seed")}
        settings |= {"max_retries": 0, "framing_announcement": "never"}
        body = plain(sampling.body)
        encode(body)  # raises ConfigError
        tools = cast("list[Mapping[str, object]]", body.pop("tools", []))
        ignored = model.unsupported_settings
        own = f"{self.vendor.partition('-')[0]}_"
        names = ModelSettings.__annotations__ if "extra_body" in ignored else ()
        settings |= {
            name: body.pop(name) for name in list(body) if name.startswith(own) or name in names
        }
        if body and "extra_body" in ignored:
            wrong = ", ".join(sorted(body))
            raise errors.ConfigError(
                f"body: {wrong}: not sent to {self.vendor}; expected {own}… or a setting of pydantic-ai"
            )
        if body:
            settings["extra_body"] = body
        return {
            key: value
            for key, value in settings.items()
            if value is not None and key not in ignored
        }, tools


anthropic = partial(PydanticAIProvider, vendor="anthropic")
"""A Claude model at Anthropic's Messages API."""

google = partial(PydanticAIProvider, vendor="google")
"""A Gemini model at Google's Gemini API."""


async def _close(held: tuple[Model, httpx2.AsyncClient]) -> None:
    await held[1].aclose()


async def _stay(response: httpx2.Response) -> None:
    """Redirects are not followed: the key would go to a host that it was not named for."""
    response.headers.pop("location", None)


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────
async def _answer(
    model: Model,
    messages: Sequence[Message],
    settings: Mapping[str, object],
    tools: Sequence[Mapping[str, object]],
    stream: bool,
) -> AsyncGenerator[str | form.ModelResponse]:
    """The pieces of text as they come, then the whole answer; raises the WorkerError that a failure means."""
    begun, asked = False, cast(ModelSettings, settings)
    try:
        turns, offered = (
            _turns(messages),
            ModelRequestParameters(function_tools=[_tool(tool) for tool in tools]),
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        words = excerpt(f"{type(error).__name__}: {error}")
        raise errors.Rejected(
            f"the turns or tools could not be written for {model.system}: {words}"
        ) from None
    try:
        if not stream:
            yield await model.request(turns, asked, offered)
            return
        async with model.request_stream(turns, asked, offered) as events:
            async for event in events:
                begun = True
                part = (
                    event.part
                    if isinstance(event, form.PartStartEvent)
                    else getattr(event, "delta", None)
                )
                if isinstance(part, form.TextPart) and part.content:
                    yield part.content
                elif isinstance(part, form.TextPartDelta) and part.content_delta:
                    yield part.content_delta
            yield events.get()
            return
    except _STUMBLES as error:
        failed = _failure(error, begun)
    raise failed  # out here, so that no error of an SDK hangs on it as its context


def _failure(error: Exception, begun: bool) -> errors.WorkerError:
    """What an error of pydantic-ai or an SDK means; ``begun`` is whether a part of the answer had come."""
    words = excerpt(f"{type(error).__name__}: {error}")
    if isinstance(error, faults.ModelHTTPError):
        body = error.body if isinstance(error.body, str) else json.dumps(error.body, default=str)
        known = failure(error.status_code, body.encode(), wait=error.retry_after)
        if not begun or isinstance(known, errors.Refused):
            return known
        words = f"the server broke off: {known.message}"
        return errors.TruncatedResponse(words, status=200, retryable=known.retryable)
    if isinstance(error, faults.ModelConnectionError):
        if error.phase in ("pool", "connect"):
            return errors.Unreachable(f"no connection: {words}")
        if isinstance(error, faults.ModelTimeoutError):
            return errors.WorkerTimeout(f"the server was silent for too long: {words}")
        if begun:
            return errors.ConnectionLost(f"the response broke off: {words}", status=200)
        return errors.Unreachable(f"no response: {words}", sent=True)
    if isinstance(error, faults.UserError):
        return errors.Rejected(f"the request could not be written: {words}")
    cut = begun and not isinstance(error, faults.ModelAPIError)
    kind = errors.TruncatedResponse if cut else errors.MalformedResponse
    return kind(f"the answer could not be read: {words}", status=200)


def _turns(messages: Sequence[Message]) -> list[form.ModelMessage]:
    """The turns as pydantic-ai has them; parts have OpenAI's shapes (text, image_url, file).

    A part without a type may hold ``tool_calls`` of an assistant, or a tool's ``tool_call_id``.

    Raises:
        ValueError, LookupError, TypeError: a turn or a part has none of these shapes.
    """
    turns: list[form.ModelMessage] = []
    names: dict[str, str] = {}  # of the tools that were called, by the call's id
    for message in messages:
        text = [message.content] if message.content else []
        fields: dict[str, Any] = {
            name: value
            for part in message.parts
            if "type" not in part
            for name, value in part.items()
        }
        if wrong := sorted(set(fields) - set(_FIELDS)):
            raise ValueError(
                f"a part without a type that holds {', '.join(wrong)}, expected {', '.join(_FIELDS)}"
            )
        if message.role == "assistant":
            calls = [
                form.ToolCallPart(
                    call["function"]["name"], call["function"]["arguments"], tool_call_id=call["id"]
                )
                for call in fields.get("tool_calls", ())
            ]
            names |= {call.tool_call_id: call.tool_name for call in calls}
            turns.append(form.ModelResponse(parts=[*map(form.TextPart, text), *calls]))
        elif message.role == "system":
            turns.append(form.ModelRequest(parts=[form.SystemPromptPart(message.content)]))
        elif message.role == "user":
            media = [_media(part) for part in message.parts if "type" in part]
            turns.append(
                form.ModelRequest(
                    parts=[form.UserPromptPart([*text, *media] if media else message.content)]
                )
            )
        else:
            called = fields["tool_call_id"]
            result = form.ToolReturnPart(names[called], message.content, tool_call_id=called)
            turns.append(form.ModelRequest(parts=[result]))
    return turns


def _media(part: Mapping[str, Any]) -> form.UserContent:
    kind = part["type"]
    if kind == "text":
        return str(part["text"])
    if kind not in ("image_url", "file"):
        raise ValueError(f"a part of type {kind!r}, expected text, image_url or file")
    given: Any = part["image_url"] if kind == "image_url" else part["file"]["file_data"]
    url = str(given if isinstance(given, str) else given["url"])
    if not url.startswith("data:"):
        return form.ImageUrl(url) if kind == "image_url" else form.DocumentUrl(url)
    base64.b64decode(url.partition(",")[2], validate=True)  # raises a ValueError
    return form.BinaryContent.from_data_uri(url)


def _tool(tool: Mapping[str, Any]) -> ToolDefinition:
    function: dict[str, Any] = tool["function"]
    schema: dict[str, Any] = function.get("parameters") or {"type": "object", "properties": {}}
    return ToolDefinition(
        name=function["name"],
        description=function.get("description"),
        parameters_json_schema=schema,
    )


# ── what comes back ───────────────────────────────────────────────────────────────────────────────
def _completion(said: form.ModelResponse, seconds: float, sent: Mapping[str, object]) -> Completion:
    """The answer, or the WorkerError that says why it is none (``Reply.completion``)."""
    used = said.usage
    thought = max(
        used.details.get(name, 0)
        for name in ("reasoning_tokens", "thoughts_tokens", "thinking_tokens")
    )
    usage = Usage(
        used.input_tokens,
        used.cache_read_tokens,
        used.output_tokens,
        min(thought, used.output_tokens),
    )
    called = [part for part in said.parts if isinstance(part, form.ToolCallPart)]
    finish = said.finish_reason
    if finish in (None, "error"):  # the library has no word for what the vendor says
        finish = cast("str | None", (said.provider_details or {}).get("finish_reason")) or finish
    reply = Reply(
        usage=usage,
        text=[part.content or "" for part in said.parts if isinstance(part, form.TextPart)],
        reasoning=[
            part.content or "" for part in said.parts if isinstance(part, form.ThinkingPart)
        ],
        tool_calls=[_tool_call(part, index) for index, part in enumerate(called)],
        finish="tool_calls" if called and finish == "stop" else finish or "",
    )
    try:
        return reply.completion(seconds=seconds, body_sent=sent)
    except errors.WorkerError as error:
        error.usage = usage if usage.tokens else None
        error.retryable |= isinstance(
            error, errors.MalformedResponse
        )  # a vendor's odd end: another try may end well
        raise


def _tool_call(part: form.ToolCallPart, index: int) -> dict[str, object]:
    name = part.tool_call_id if not part.tool_call_id.startswith(_GENERATED) else f"call_{index}"
    return {
        "id": name,
        "type": "function",
        "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
    }
