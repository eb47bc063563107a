"""Anthropic's and Google's own wires, without the wire: what is sent, and when what comes back is whole.

In: a conversation in the wire's own form, sampling; the JSON objects of a response. Out: a request body; the finish
reason and the usage, or the WorkerError that says what was wrong. A finish reason is required, and it must be known.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, cast
from urllib.parse import quote

from openconductor.errors import (
    ContextTooLong,
    EmptyResponse,
    MalformedResponse,
    Refused,
    TruncatedResponse,
    WorkerError,
)
from openconductor.providers.chat_failures import NO_SECRET, Secret, error_object, excerpt, failure
from openconductor.providers.json_body import laid_over
from openconductor.types import FinishReason, Sampling, Usage

Json = Mapping[str, object]

ANTHROPIC_MAX_TOKENS = 8192
"""Sent to Anthropic, which requires a limit, where ``Sampling.max_tokens`` and ``body`` name none."""

MOST_TOKENS = 10**9  # a usage that names more is nonsense, and not counted


# ── what comes back ──────────────────────────────────────────────────────────────────────────────────────────────────
class Watch(ABC):
    """Reads along in one response: whether it is whole, why it ended, what it used. What was said is not read here.

    Attributes:
        secret: the key, to be kept out of messages that quote the server.
        finish: the wire's own finish reason, as it came.
        ended: whether the response said that it is over.
        usage: what the whole response used; None until it says so.
    """

    finish_reasons: ClassVar[Mapping[str, FinishReason]]
    spoilt: ClassVar[tuple[str, ...]] = ()
    """Finish reasons of an answer that came to nothing, and may not when it is asked for again."""

    def __init__(self, secret: Secret = NO_SECRET) -> None:
        self.secret = secret
        self.finish: str | None = None
        self.ended = False
        self.usage: Usage | None = None
        self._began = False

    @abstractmethod
    def body(self, data: Json) -> None:
        """Take in a response that came in one piece.

        Raises:
            MalformedResponse: it has not the shape of an answer, or its finish reason is not known.
            WorkerError: of the kind that an error object stands for.
        """

    @abstractmethod
    def event(self, data: Json) -> bool:
        """Take in one event of a stream; returns whether nothing can follow.

        Raises:
            TruncatedResponse: an error object after a part of the answer had come. And as ``body``.
        """

    @abstractmethod
    def for_the_library(self, data: Json) -> Json:
        """The same without its usage, which a library would look up prices for, and warn where it finds none."""

    def finish_reason(self, characters: int, *, calls: bool) -> FinishReason:
        """Our word for why the answer ended, of so many characters of text, and with tool calls or without.

        Raises:
            TruncatedResponse: no reason was given, or the stream did not say that it is over.
            Refused: the worker refused, or a filter left nothing.
            EmptyResponse: neither text nor a tool call, and no token limit was reached.
        """
        given = excerpt(self.finish or "", self.secret)
        if self.finish is None or not self.ended:
            missing = "a finish reason" if self.finish is None else "its last event"
            raise TruncatedResponse(
                f"the response ended without {missing}, after {characters} characters of text", status=200
            )
        finish = self.finish_reasons[self.finish]
        if not calls and not characters:
            if finish == "content_filter":
                words = f"it refused, or a filter left nothing of the answer (finish reason {given!r})"
                raise Refused(words, status=200)
            if finish != "length":
                raise EmptyResponse(f"status 200, finish reason {given!r}, and neither text nor tool call", status=200)
        return "tool_calls" if calls and finish == "stop" else finish

    def _finished(self, reason: str) -> None:
        """Take in a finish reason: one that is not known leaves open whether the answer is whole."""
        given = excerpt(reason, self.secret)
        if reason in self.spoilt:
            raise MalformedResponse(f"the answer came to nothing (finish reason {given!r})", status=200)
        if reason not in self.finish_reasons:
            words = f"unknown finish reason {given!r}; expected one of {', '.join(sorted(self.finish_reasons))}"
            raise MalformedResponse(words, status=200, retryable=False)
        self.finish = reason

    def _broken_off(self, error: WorkerError) -> WorkerError:
        """The failure that an error object stands for: in the middle of an answer it is one that was cut."""
        if self._began and not isinstance(error, Refused | ContextTooLong):
            words = f"the server broke off: {error.message}"
            return TruncatedResponse(words, status=200, retryable=error.retryable)
        return error

    def _garbage(self, what: str, got: object) -> MalformedResponse:
        return MalformedResponse(f"expected {what}, got {excerpt(repr(got), self.secret)}", status=200)


class AnthropicWatch(Watch):
    """The Messages API: a message, or events from ``message_start`` to ``message_stop``."""

    finish_reasons = {  # noqa: RUF012 - the base class declares it
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "tool_calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "content_filter",
    }
    statuses: ClassVar[Mapping[str, int]] = {
        "invalid_request_error": 400,
        "authentication_error": 401,
        "billing_error": 402,
        "permission_error": 403,
        "not_found_error": 404,
        "request_too_large": 413,
        "rate_limit_error": 429,
        "api_error": 500,
        "timeout_error": 504,
        "overloaded_error": 529,
    }

    def __init__(self, secret: Secret = NO_SECRET) -> None:
        super().__init__(secret)
        self._counts: dict[str, object] = {}

    def body(self, data: Json) -> None:
        """Take in a message."""
        self._raise_error(data)
        content = data.get("content")
        if data.get("type") != "message" or not isinstance(content, list):
            raise self._garbage("a message with a list `content`", data)
        for block in cast("list[object]", content):
            if not isinstance(_inner(block).get("type"), str):
                raise self._garbage("blocks with a `type` in `content`", block)
        self._count(data)
        self._end(data)
        self.ended = True

    def event(self, data: Json) -> bool:
        """Take in an event; kinds that are not known are to be skipped, says the API."""
        self._raise_error(data)
        kind = data.get("type")
        if kind == "message_start":
            self._count(_inner(data.get("message")))
        elif kind == "content_block_delta":
            self._began = True
        elif kind == "message_delta":
            self._count(data)  # cumulative: what it names replaces what was named before
            self._end(_inner(data.get("delta")))
        elif kind == "message_stop":
            self.ended = True
        return self.ended

    def _end(self, data: Json) -> None:
        if isinstance(reason := data.get("stop_reason"), str):
            if self._counts:
                self.usage = anthropic_usage(self._counts)
            self._finished(reason)

    def for_the_library(self, data: Json) -> Json:
        """The same with nothing used."""
        nothing = {"input_tokens": 0, "output_tokens": 0}
        if data.get("type") == "message_start":
            return {**data, "message": {**_inner(data.get("message")), "usage": nothing}}
        return {**data, "usage": nothing} if data.get("type") in ("message", "message_delta") else data

    def _count(self, data: Json) -> None:
        self._counts.update((key, value) for key, value in _inner(data.get("usage")).items() if value is not None)

    def _raise_error(self, data: Json) -> None:
        if data.get("type") == "error" or "error" in data:
            kind = str(_inner(data.get("error")).get("type"))
            status = self.statuses.get(kind)
            if status is None:
                raise self._broken_off(error_object(data, secret=self.secret))
            raise self._broken_off(failure(status, json.dumps(data).encode(), secret=self.secret))


class GoogleWatch(Watch):
    """``generateContent``: a response, or a stream of them, the last of which names a finish reason."""

    finish_reasons = {  # noqa: RUF012 - the base class declares it
        "STOP": "stop",
        "MAX_TOKENS": "length",
        "SAFETY": "content_filter",
        "RECITATION": "content_filter",
        "LANGUAGE": "content_filter",
        "BLOCKLIST": "content_filter",
        "PROHIBITED_CONTENT": "content_filter",
        "SPII": "content_filter",
        "IMAGE_SAFETY": "content_filter",
        "IMAGE_PROHIBITED_CONTENT": "content_filter",
        "IMAGE_RECITATION": "content_filter",
    }
    spoilt = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "OTHER")

    def body(self, data: Json) -> None:
        """Take in a response."""
        self._take(data)
        if not self.ended and not data.get("candidates"):
            raise self._garbage("`candidates`", data)
        self.ended = True

    def event(self, data: Json) -> bool:
        """Take in a response that is a piece of the whole."""
        self._take(data)
        return False  # what was used may come after the finish reason

    def _take(self, data: Json) -> None:
        if "error" in data:
            raise self._broken_off(error_object(data, secret=self.secret))
        blocked, reason = _inner(data.get("promptFeedback")).get("blockReason"), None
        candidates = data.get("candidates")
        if isinstance(candidates, list) and candidates:
            reason = self._candidate(cast("list[object]", candidates)[0])
            self.ended = self.ended or isinstance(reason, str)
        elif isinstance(blocked, str):
            self.ended = True
            self.usage = google_usage(_inner(data.get("usageMetadata")))
            reason = excerpt(blocked, self.secret)
            raise Refused(f"the prompt was blocked (block reason {reason!r})", status=200)
        if self.ended and (counts := _inner(data.get("usageMetadata"))):
            self.usage = google_usage(counts)
        if isinstance(reason, str):
            self._finished(reason)

    def for_the_library(self, data: Json) -> Json:
        """The same without ``usageMetadata``."""
        return {key: value for key, value in data.items() if key != "usageMetadata"}

    def _candidate(self, candidate: object) -> object:
        """Look at a candidate; returns its finish reason."""
        if not isinstance(candidate, dict):
            raise self._garbage("objects in `candidates`", candidate)
        said = cast(Json, candidate)
        content = said.get("content")  # absent where a filter left nothing
        parts = _inner(content).get("parts")
        if not (isinstance(content, dict | None) and isinstance(parts, list | None)):
            raise self._garbage("`content` with a list of `parts`", said)
        self._began = self._began or parts not in (None, [])
        return said.get("finishReason")


def anthropic_usage(counts: Json) -> Usage:
    """Tokens used: Anthropic's input excludes what was read from the cache and what was written to it; ours does not.

    >>> anthropic_usage({"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 7}).input_tokens
    15
    """
    cached = _number(counts, "cache_read_input_tokens")
    read = _number(counts, "input_tokens") + _number(counts, "cache_creation_input_tokens") + cached
    written = _number(counts, "output_tokens")
    thought = _number(_inner(counts.get("output_tokens_details")), "thinking_tokens")
    return Usage(read, cached, written, min(thought, written))


def google_usage(counts: Json) -> Usage:
    """Tokens used: Google's candidates exclude the thoughts, and its prompt what tools read; ours do not.

    >>> google_usage({"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 30}).output_tokens
    32
    """
    read = _number(counts, "promptTokenCount") + _number(counts, "toolUsePromptTokenCount")
    thought = _number(counts, "thoughtsTokenCount")
    cached = min(_number(counts, "cachedContentTokenCount"), read)
    return Usage(read, cached, _number(counts, "candidatesTokenCount") + thought, thought)


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────────────────────────
class Wire(ABC):
    """One vendor's wire.

    Attributes:
        name: the provider's name in the registry.
        home: the vendor's own address.
        key_variables: the environment variables that hold a key for it, the first that is set counts.
        watch: reads along in a response.
    """

    name: ClassVar[str]
    home: ClassVar[str]
    key_variables: ClassVar[tuple[str, ...]]
    watch: ClassVar[type[Watch]]

    @abstractmethod
    def url(self, base_url: str, model: str, *, stream: bool) -> str:
        """Where a request goes."""

    @abstractmethod
    def headers(self, secret: Secret) -> dict[str, str]:
        """What goes with it, the key included."""

    @abstractmethod
    def body(self, model: str, conversation: Json, sampling: Sampling, *, stream: bool) -> dict[str, object]:
        """The body of a request.

        Args:
            model: the model's name.
            conversation: a body in the wire's form; nothing but its turns is taken from it.
            sampling: what is None is not sent; ``body`` is laid over all, mapping into mapping, and has the last word.
            stream: whether to ask for an event stream.
        """

    def streams(self, sampling: Sampling, *, wanted: bool) -> bool:
        """Whether a stream is asked for."""
        return wanted


class AnthropicWire(Wire):
    """``POST /v1/messages``. Anthropic knows no seed: ``Sampling.seed`` is not sent."""

    name = "anthropic"
    home = "https://api.anthropic.com"
    key_variables = ("ANTHROPIC_API_KEY",)
    watch = AnthropicWatch

    def url(self, base_url: str, model: str, *, stream: bool) -> str:
        """Where a request goes."""
        return f"{base_url}/v1/messages"

    def headers(self, secret: Secret) -> dict[str, str]:
        """The version of the API, and the key."""
        key = {"x-api-key": secret.reveal()} if secret else {}
        return {"anthropic-version": "2023-06-01", **key}

    def body(self, model: str, conversation: Json, sampling: Sampling, *, stream: bool) -> dict[str, object]:
        """The body of a request."""
        limit = sampling.max_tokens if sampling.max_tokens is not None else ANTHROPIC_MAX_TOKENS
        body: dict[str, object] = {"model": model, "max_tokens": limit}
        body.update((key, conversation[key]) for key in ("system", "messages") if key in conversation)
        if sampling.temperature is not None:
            body["temperature"] = sampling.temperature
        if stream:
            body["stream"] = True
        return cast("dict[str, object]", laid_over(body, sampling.body))

    def streams(self, sampling: Sampling, *, wanted: bool) -> bool:
        """Whether a stream is asked for: the body's own word for it is the last."""
        return bool(sampling.body.get("stream", wanted))


class GoogleWire(Wire):
    """``POST /v1beta/models/{model}:generateContent`` of the Gemini API."""

    name = "google"
    home = "https://generativelanguage.googleapis.com"
    key_variables = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    watch = GoogleWatch

    def url(self, base_url: str, model: str, *, stream: bool) -> str:
        """Where a request goes."""
        path = model if "/" in model else f"models/{model}"  # tunedModels/… has its own
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"{base_url}/v1beta/{quote(path)}:{verb}"

    def headers(self, secret: Secret) -> dict[str, str]:
        """The key."""
        return {"x-goog-api-key": secret.reveal()} if secret else {}

    def body(self, model: str, conversation: Json, sampling: Sampling, *, stream: bool) -> dict[str, object]:
        """The body of a request."""
        given = {
            "temperature": sampling.temperature,
            "maxOutputTokens": sampling.max_tokens,
            "seed": sampling.seed,
        }
        config = {key: value for key, value in given.items() if value is not None}
        body = {key: conversation[key] for key in ("systemInstruction", "contents") if key in conversation}
        if config:
            body["generationConfig"] = config
        return cast("dict[str, object]", laid_over(body, sampling.body))


WIRES: Mapping[str, Wire] = {wire.name: wire for wire in (AnthropicWire(), GoogleWire())}


def _inner(value: object) -> Json:
    return cast(Json, value) if isinstance(value, Mapping) else {}


def _number(node: Json, name: str) -> int:
    value = node.get(name)
    return value if type(value) is int and 0 < value <= MOST_TOKENS else 0
