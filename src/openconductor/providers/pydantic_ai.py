"""Models behind other APIs, through pydantic-ai (extra ``providers``).

``pydantic_ai:VENDOR:MODEL`` names any model that pydantic-ai reaches: ``anthropic``, ``google``,
``bedrock``, ``mistral`` … It and the vendor's SDK write the request, send it and read the answer.
This module adds the total deadline and the kinds of failure, and demands a finish reason. No SDK
retries: retries are counted and billed above. Not in our hands are the exact bytes that are sent
(some models get no temperature, a table chooses Anthropic's ``max_tokens`` if none is set), and the
CPU, many times that of ``openai_compatible``.
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
    infer_model,
)
from pydantic_ai.providers import Provider as Vendor, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from openconductor import errors
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.providers.wire import http
from openconductor.providers.wire.chat import Reply, encode, plain
from openconductor.providers.wire.failures import excerpt, failure, key_of
from openconductor.providers.wire.http_settings import HttpSettings
from openconductor.types import Completion, Message, Sampling, Usage

NO_KEY = "no-key"  # the key for an SDK that demands one, at an address that no key was named for

SILENCE_SECONDS = 3600.0  # the read timeout if none is given: a call ends by its deadline

# Address and variables of the key of two vendors; pydantic-ai knows those of the others.
_HOMES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "anthropic": ("https://api.anthropic.com", ("ANTHROPIC_API_KEY",)),
    "google": ("https://generativelanguage.googleapis.com", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
}

# Errors that pydantic-ai, the SDKs and their validators raise for a failed call.
_LIBRARY_ERRORS = (
    faults.AgentRunError,
    faults.UserError,
    httpx2.HTTPError,
    OSError,
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
)

_FIELDS = ("tool_calls", "tool_call_id", "name")  # of a turn, in a part without a type
_GENERATED = "pyd_ai_"  # prefix of the ids that pydantic-ai gives to tool calls without one


class PydanticAIProvider(http.Closing, Provider):
    """A model behind its vendor's own API (``anthropic`` and ``google`` make it, too).

    Streams if ``on_text`` is given. In ``Sampling.body``, names that begin with the vendor's are
    pydantic-ai's settings (``google_thinking_config``, ``anthropic_thinking``), ``tools`` have
    OpenAI's form, and the rest is laid over the request (``extra_body``). Google, Mistral and
    Bedrock take no such rest, only the library's common settings (``top_p``, ``stop_sequences``).
    Connections belong to an event loop (``PerLoop``).

    Args:
        model: ``VENDOR:NAME``, or the name alone if ``vendor`` is given.
        vendor: pydantic-ai's name of the vendor.
        base_url: where the API begins. None: the vendor's own address.
        api_key_env: the environment variable that holds the key. None: the one that the vendor's
            SDK reads (of Google's two GEMINI_API_KEY comes first), at the vendor's own address, and
            no key anywhere else (a key is never sent to a host that it was not named for).
        timeout_s: total deadline of a call, in seconds. None: no limit. ``call.deadline`` holds
            beside it.
        read_timeout_s: the longest silence of the server, in seconds. None: no limit, because a
            model may think for long.
        headers, query, proxy, client_cert: as ``HttpSettings`` takes them.

    Attributes:
        model, vendor: as given.
        base_url: as given, or the vendor's own if it is known.

    Raises:
        ConfigError: the model, the vendor, the URL, the variable's name, a timeout or another
            setting is invalid.
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
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        proxy: str | None = None,
        client_cert: str | Sequence[str] | None = None,
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
        self._elsewhere = urlsplit(self.base_url).hostname != urlsplit(home).hostname
        self._named_variable = http.checked_variable(api_key_env)
        self.api_key_env = self._key_variable()
        self._timeout_s = http.checked_seconds("timeout_s", timeout_s)
        self._read_timeout_s = http.checked_seconds("read_timeout_s", read_timeout_s)
        self._http_settings = HttpSettings(headers, query, proxy, client_cert, logs_addresses=True)
        self.variables = self._http_settings.variables
        if self._http_settings and "http_client" not in inspect.signature(self._class).parameters:
            raise errors.ConfigError(
                f"headers, query, proxy, client_cert: the SDK of {vendor} takes none of them"
            )
        self._held = http.PerLoop(self._open, _close)
        parts = (self.vendor, self.model, self.base_url, self._http_settings.identity)
        self.identity = " ".join(part for part in parts if part)

    def _key_variable(self) -> str | None:
        """Return the variable to read. None: no key is sent, or pydantic-ai knows the variable."""
        if self._named_variable is not None or self._elsewhere or not self._variables:
            return self._named_variable
        for name in self._variables:
            if os.environ.get(name, "").strip():
                return name
        return self._variables[0]

    def __repr__(self) -> str:
        name = f"{self.vendor}:{self.model}"
        return f"{type(self).__name__}({name!r}, base_url={self.base_url!r})"

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Ask the model. Tool calls have OpenAI's form; ``usage.seconds`` is wall time.

        ``body_sent`` holds what pydantic-ai was given beside the turns: the model, the settings and
        the tools.

        Raises:
            WorkerError: as ``OpenAICompatibleProvider.complete`` raises it. Rejected, before
                anything is sent: the vendor's API has no form for a turn.
            ConfigError: ``sampling.body`` holds a value that JSON lacks, or that cannot be sent to
                this vendor.
        """
        started = perf_counter()
        where = f"{self.model} at {self.base_url or self.vendor}"
        async with http.attempt(where, self._timeout_s, call.deadline):
            key_of(self._key_variable())  # nothing is sent without the keys
            self._http_settings.check_set()
            model, _ = await self._held.get()
            settings, tools = self._settings(sampling, model)
            response = None
            options = settings
            if call.trace is not None and "extra_headers" not in model.unsupported_settings:
                options = {"extra_headers": {"traceparent": call.trace.traceparent}, **settings}
            answer = _ask(model, messages, options, tools, stream=on_text is not None)
            async with aclosing(answer) as pieces:
                async for piece in pieces:
                    if isinstance(piece, form.ModelResponse):
                        response = piece
                    elif on_text is not None:
                        on_text(piece)
            assert response is not None
            sent = {"model": f"{self.vendor}:{self.model}", **settings}
            if tools:
                sent["tools"] = tools
            return _completion(response, perf_counter() - started, sent)

    def _open(self) -> tuple[Model, httpx2.AsyncClient]:
        """Return pydantic-ai's model for the running event loop, and the client that it uses."""
        silence = self._read_timeout_s or SILENCE_SECONDS
        timeout = httpx2.Timeout(silence, connect=http.CONNECT_SECONDS)
        client = self._http_settings.httpx_client(timeout)
        client.event_hooks["response"].append(self._read_head)
        key = key_of(self._key_variable())
        if not key and self._elsewhere:
            key = NO_KEY
        options = {"api_key": key or None, "base_url": self._url, "http_client": client}
        taken = inspect.signature(self._class).parameters
        for name in list(options):
            if options[name] is None or name not in taken:
                del options[name]
        try:
            model = infer_model(f"{self.vendor}:{self.model}", lambda _: self._class(**options))
        except faults.UserError as error:  # the library says that there is no key
            words = excerpt(str(error))
        else:
            return model, client
        raise errors.AuthFailed(words)  # out here, so that no error of the library is its context

    async def _read_head(self, response: httpx2.Response) -> None:
        """Keep the headers, and stop a redirect: the key must not go to another host."""
        response.headers.pop("location", None)
        self.response_headers = dict(response.headers)

    def _settings(
        self, sampling: Sampling, model: Model
    ) -> tuple[dict[str, object], list[Mapping[str, object]]]:
        """Return a call's settings in pydantic-ai's form, and its tools in OpenAI's."""
        settings: dict[str, object] = {
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "seed": sampling.seed,
            "max_retries": 0,
            "framing_announcement": "never",
        }
        body = plain(sampling.body)
        encode(body)  # raises ConfigError
        tools = cast("list[Mapping[str, object]]", body.pop("tools", []))
        ignored = model.unsupported_settings
        takes_rest = "extra_body" not in ignored
        prefix = f"{self.vendor.partition('-')[0]}_"
        for name in list(body):
            is_common = not takes_rest and name in ModelSettings.__annotations__
            if is_common or name.startswith(prefix):
                settings[name] = body.pop(name)
        if body and not takes_rest:
            rest = ", ".join(sorted(body))
            expected = f"{prefix}… or a setting of pydantic-ai"
            raise errors.ConfigError(
                f"body: {rest}: not sent to {self.vendor}; expected {expected}"
            )
        if body:
            settings["extra_body"] = body
        for name in list(settings):
            if settings[name] is None or name in ignored:
                del settings[name]
        return settings, tools


# A Claude model at Anthropic's Messages API.
anthropic = partial(PydanticAIProvider, vendor="anthropic")

google = partial(PydanticAIProvider, vendor="google")  # a Gemini model at Google's Gemini API


async def _close(held: tuple[Model, httpx2.AsyncClient]) -> None:
    await held[1].aclose()


# ── the request ───────────────────────────────────────────────────────────────────────────────────
async def _ask(
    model: Model,
    messages: Sequence[Message],
    settings: Mapping[str, object],
    tools: Sequence[Mapping[str, object]],
    *,
    stream: bool,
) -> AsyncGenerator[str | form.ModelResponse]:
    """Yield the pieces of text as they come, then the whole answer.

    It is a generator so that errors of whoever takes the pieces are not taken for the model's.

    Raises:
        WorkerError: the call failed.
    """
    try:
        turns = _turns(messages)
        offered = ModelRequestParameters(function_tools=[_tool(tool) for tool in tools])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        words = excerpt(f"{type(error).__name__}: {error}")
        message = f"the turns or tools could not be written for {model.system}: {words}"
        raise errors.Rejected(message) from None
    options = cast(ModelSettings, settings)
    begun = False
    try:
        if not stream:
            yield await model.request(turns, options, offered)
            return
        async with model.request_stream(turns, options, offered) as events:
            async for event in events:
                begun = True
                text = _new_text(event)
                if text:
                    yield text
            yield events.get()
            return
    except _LIBRARY_ERRORS as error:
        failed = _failure(error, begun)
    raise failed  # out here, so that no error of an SDK is its context


def _new_text(event: object) -> str:
    if isinstance(event, form.PartStartEvent) and isinstance(event.part, form.TextPart):
        return event.part.content
    if isinstance(event, form.PartDeltaEvent) and isinstance(event.delta, form.TextPartDelta):
        return event.delta.content_delta
    return ""


def _failure(error: Exception, begun: bool) -> errors.WorkerError:
    """Return the failure that an error of pydantic-ai or an SDK means.

    Args:
        error: the error.
        begun: a part of the answer had come.
    """
    words = excerpt(f"{type(error).__name__}: {error}")
    if isinstance(error, faults.ModelHTTPError):
        body = error.body if isinstance(error.body, str) else json.dumps(error.body, default=str)
        known = failure(error.status_code, body.encode(), error.headers or {})
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
    message = f"the answer could not be read: {words}"
    if begun and not isinstance(error, faults.ModelAPIError):
        return errors.TruncatedResponse(message, status=200)
    return errors.MalformedResponse(message, status=200)


def _turns(messages: Sequence[Message]) -> list[form.ModelMessage]:
    """Return the turns in pydantic-ai's form; parts have OpenAI's (text, image_url, file).

    A part without a type may hold an assistant's ``tool_calls``, or a tool's ``tool_call_id``.

    Raises:
        ValueError, LookupError, TypeError: a turn or a part has another form.
    """
    turns: list[form.ModelMessage] = []
    tool_names: dict[str, str] = {}  # by the id of the call
    for message in messages:
        fields = _fields(message)
        text = [message.content] if message.content else []
        if message.role == "assistant":
            calls: list[form.ToolCallPart] = []
            for call in fields.get("tool_calls", ()):
                name = call["function"]["name"]
                arguments = call["function"]["arguments"]
                calls.append(form.ToolCallPart(name, arguments, tool_call_id=call["id"]))
                tool_names[call["id"]] = name
            turns.append(form.ModelResponse(parts=[*map(form.TextPart, text), *calls]))
            continue
        if message.role == "system":
            part = form.SystemPromptPart(message.content)
        elif message.role == "user":
            media = [_media(part) for part in message.media]
            part = form.UserPromptPart([*text, *media] if media else message.content)
        else:
            call_id = fields["tool_call_id"]
            name = tool_names[call_id]
            part = form.ToolReturnPart(name, message.content, tool_call_id=call_id)
        turns.append(form.ModelRequest(parts=[part]))
    return turns


def _fields(message: Message) -> dict[str, Any]:
    """Return the fields that a turn's parts without a type hold; raise ValueError if unknown."""
    fields: dict[str, Any] = {}
    for part in message.parts:
        if "type" not in part:
            fields |= part
    unknown = ", ".join(sorted(set(fields) - set(_FIELDS)))
    if unknown:
        expected = ", ".join(_FIELDS)
        raise ValueError(f"a part without a type that holds {unknown}, expected {expected}")
    return fields


def _media(part: Mapping[str, Any]) -> form.UserContent:
    kind = part["type"]
    if kind == "text":
        return str(part["text"])
    if kind == "image_url":
        source: Any = part["image_url"]
    elif kind == "file":
        source = part["file"]["file_data"]
    else:
        raise ValueError(f"a part of type {kind!r}, expected text, image_url or file")
    url = str(source if isinstance(source, str) else source["url"])
    if url.startswith("data:"):
        base64.b64decode(url.partition(",")[2], validate=True)  # raises a ValueError
        return form.BinaryContent.from_data_uri(url)
    return form.ImageUrl(url) if kind == "image_url" else form.DocumentUrl(url)


def _tool(tool: Mapping[str, Any]) -> ToolDefinition:
    function: dict[str, Any] = tool["function"]
    schema: dict[str, Any] = function.get("parameters") or {"type": "object", "properties": {}}
    return ToolDefinition(
        name=function["name"],
        description=function.get("description"),
        parameters_json_schema=schema,
    )


# ── the answer ────────────────────────────────────────────────────────────────────────────────────
def _completion(
    response: form.ModelResponse, seconds: float, sent: Mapping[str, object]
) -> Completion:
    """Return the answer, or raise the WorkerError that ``Reply.completion`` raises."""
    reply = Reply(usage=_usage(response))
    for part in response.parts:
        if isinstance(part, form.TextPart):
            reply.text.append(part.content or "")
        elif isinstance(part, form.ThinkingPart):
            reply.reasoning.append(part.content or "")
        elif isinstance(part, form.ToolCallPart):
            reply.tool_calls.append(_tool_call(part, len(reply.tool_calls)))
    finish = response.finish_reason
    if finish in (None, "error"):  # the library has no word for the vendor's
        own = (response.provider_details or {}).get("finish_reason")
        finish = cast("str | None", own) or finish
    if reply.tool_calls and finish == "stop":
        finish = "tool_calls"
    reply.finish = finish or ""
    try:
        return reply.completion(seconds=seconds, body_sent=sent)
    except errors.WorkerError as error:
        if reply.usage is not None and reply.usage.tokens:
            error.usage = reply.usage
        if isinstance(error, errors.MalformedResponse):  # an unknown end: another try may end well
            error.retryable = True
        raise


def _usage(response: form.ModelResponse) -> Usage:
    used = response.usage
    names = ("reasoning_tokens", "thoughts_tokens", "thinking_tokens")
    reasoning = max(used.details.get(name, 0) for name in names)
    return Usage(
        used.input_tokens,
        used.cache_read_tokens,
        used.output_tokens,
        min(reasoning, used.output_tokens),
    )


def _tool_call(part: form.ToolCallPart, index: int) -> dict[str, object]:
    name = part.tool_call_id
    if name.startswith(_GENERATED):
        name = f"call_{index}"
    function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
    return {"id": name, "type": "function", "function": function}
