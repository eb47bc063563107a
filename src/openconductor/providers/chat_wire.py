"""The chat-completions wire, without the wire: what is sent and what comes back, as pure functions.

In: turns and sampling; bytes of a body or of an event stream. Out: a request body; a Completion, or the WorkerError
that says what was wrong. A finish reason is required: what ends without one was cut, whatever its text looks like.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import cast

from openconductor.errors import ConfigError, EmptyResponse, Refused, TruncatedResponse, WorkerError
from openconductor.protocols import OnText
from openconductor.providers.chat_failures import error_object, excerpt
from openconductor.types import Completion, FinishReason, Message, Sampling, Usage

Json = Mapping[str, object]

LIMIT_KEYS = ("max_tokens", "max_completion_tokens")

# The reasons that are documented, ours on the right. What is not here is a failure: whether the answer is whole is then
# not known, and neither guess may decide a reward.
_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",  # Anthropic
    "stop_sequence": "stop",
    "eos": "stop",  # OpenRouter, text-generation-inference
    "eos_token": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",  # Gemini adds ": REASON"
    "refusal": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",  # Zhipu
}
_CUT = ("error", "abort", "network_error", "insufficient_system_resource")


# ── the request ──────────────────────────────────────────────────────────────────────────────────────────────────────
def request_body(
    model: str, messages: Sequence[Message], sampling: Sampling, *, stream: bool, limit_key: str = "max_tokens"
) -> dict[str, object]:
    """The body of a request; ``sampling.body`` is laid over it as it is, so it has the last word.

    Args:
        model: the model's name at the server.
        messages: the turns; parts follow the text of their turn.
        sampling: what is None is not sent. ``max_tokens`` is not sent where ``body`` names a limit itself.
        stream: whether to ask for an event stream that ends with the usage.
        limit_key: how this server calls the limit of output tokens.
    """
    body: dict[str, object] = {"model": model, "messages": [_turn(message) for message in messages]}
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.max_tokens is not None and not any(key in sampling.body for key in LIMIT_KEYS):
        body[limit_key] = sampling.max_tokens
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    body.update(cast("dict[str, object]", _plain(sampling.body)))
    return body


def encode(body: Json) -> bytes:
    """The body as JSON.

    Raises:
        ConfigError: a value of ``Sampling.body`` or of a message's parts is none of JSON's.
    """
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"request body: {error}; expected values that JSON knows in `body` and in parts") from error


def _turn(message: Message) -> dict[str, object]:
    if not message.parts:
        return {"role": message.role, "content": message.content}
    text: list[object] = [{"type": "text", "text": message.content}] if message.content else []
    return {"role": message.role, "content": [*text, *(_plain(part) for part in message.parts)]}


def _plain(value: object) -> object:
    """The value in JSON's own types: what is sent is also what is kept on record."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


# ── the response in one piece ────────────────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class Reply:
    """What has been said so far, by one body or by the chunks of a stream; only the first choice is read.

    ``secret`` is the key, to be kept out of messages that quote the server.
    """

    secret: str = ""
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    refusal: list[str] = field(default_factory=list[str])
    tool_calls: dict[int, dict[str, object]] = field(default_factory=dict[int, dict[str, object]])
    finish: str | None = None
    usage: Usage = field(default_factory=Usage)

    def add(self, data: Json, part: str) -> str:
        """Take in a body (``part`` is "message") or a chunk ("delta"); returns the text that it brought.

        Raises:
            WorkerError: it is an error object, or has not the shape of a chat completion.
        """
        if data.get("error") or data.get("object") == "error":
            raise error_object(data, secret=self.secret)
        if isinstance(usage := data.get("usage"), dict):
            self.usage = read_usage(cast(Json, usage))
        choice = _first_choice(data, required=part == "message", secret=self.secret)
        if choice is None:
            return ""
        if isinstance(finish := choice.get("finish_reason"), str) and finish:
            self.finish = finish
        said = choice.get(part)
        if not isinstance(said, dict):
            if said is None and part == "delta":
                return ""
            raise _garbage(f"`{part}` of a choice", choice, self.secret)
        return self._take(cast(Json, said))

    def completion(self) -> Completion:
        """The whole answer.

        Raises:
            TruncatedResponse: no finish reason was given.
            Refused: the worker refused, or a filter left nothing.
            EmptyResponse: there is neither text nor a tool call, and no token limit was reached.
            WorkerError: the finish reason is not known.
        """
        text = "".join(self.text)
        finish = finish_reason(self.finish, len(text))
        calls = tuple(self.tool_calls[index] for index in sorted(self.tool_calls))
        if not text.strip() and not calls:
            if self.refusal:
                said = excerpt("".join(self.refusal), self.secret)
                raise Refused(f"the worker refused: {said}", status=200)
            if finish == "content_filter":
                raise Refused(
                    f"a content filter left nothing of the answer (finish reason {self.finish!r})", status=200
                )
            if finish != "length":
                raise EmptyResponse(f"status 200, finish reason {self.finish!r}, and neither text nor tool call")
        return Completion(text, "".join(self.reasoning), calls, self.usage, finish)

    def _take(self, said: Json) -> str:
        content = said.get("content")
        text, thought = _texts(content, self.secret) if content is not None else ("", "")
        for name in ("reasoning_content", "reasoning"):  # DeepSeek, vLLM; OpenRouter, newer vLLM
            if isinstance(more := said.get(name), str) and more:
                thought += more
                break
        if text:
            self.text.append(text)
        if thought:
            self.reasoning.append(thought)
        if isinstance(refusal := said.get("refusal"), str) and refusal:
            self.refusal.append(refusal)
        if isinstance(calls := said.get("tool_calls"), list):
            for position, call in enumerate(cast("list[object]", calls)):
                if isinstance(call, dict):
                    self._take_call(cast(Json, call), position)
        return text

    def _take_call(self, call: Json, position: int) -> None:
        """Lay a piece of a tool call onto what is known of it: names are set, arguments grow."""
        index = call.get("index")
        known = self.tool_calls.setdefault(index if isinstance(index, int) else position, {})
        for key, value in call.items():
            if key == "function":
                function = cast("dict[str, object]", known.setdefault("function", {}))
                for name, piece in cast(Json, value).items() if isinstance(value, dict) else ():
                    before = function.get(name)
                    grows = name == "arguments" and isinstance(before, str) and isinstance(piece, str)
                    function[name] = f"{before}{piece}" if grows else (piece if piece is not None else before)
            elif key != "index" and value is not None:
                known[key] = value


def read_body(raw: bytes, *, secret: str = "") -> Completion:
    """Read a response that came in one piece under status 200.

    Raises:
        EmptyResponse: no byte of content. TruncatedResponse: JSON that was cut, or no finish reason.
        WorkerError: an error object; no JSON; not the shape of a chat completion. And as ``Reply.completion``.
    """
    if not raw.strip():
        raise EmptyResponse("status 200 and an empty body", status=200)
    reply = Reply(secret)
    reply.add(read_object(raw, secret=secret), "message")
    return reply.completion()


def read_object(raw: bytes, *, secret: str) -> Json:
    """A JSON object, or the WorkerError that says what stood there instead."""
    try:
        data: object = json.loads(raw)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        if raw.lstrip().startswith(b"{") and not raw.rstrip().endswith(b"}"):
            raise TruncatedResponse(f"JSON cut after {len(raw)} bytes", status=200) from None
        why = type(error).__name__ if isinstance(error, RecursionError) else str(error)
        raise WorkerError(f"expected JSON, got {excerpt(raw, secret)!r} ({why})", status=200) from None
    if not isinstance(data, dict):
        raise WorkerError(f"expected a JSON object, got {excerpt(raw, secret)!r}", status=200)
    return cast(Json, data)


def finish_reason(reason: str | None, characters: int) -> FinishReason:
    """Our word for a server's finish reason; ``characters`` of text had come."""
    if reason is None:
        raise TruncatedResponse(f"the response ended without a finish reason, after {characters} characters of text")
    known = _FINISH.get(reason.lower().partition(":")[0].strip())
    if known is not None:
        return known
    if reason.lower() in _CUT:
        raise TruncatedResponse(f"the server broke off (finish reason {reason!r}) after {characters} characters")
    raise WorkerError(
        f"unknown finish reason {excerpt(reason)!r}; expected one of {', '.join(sorted(_FINISH))}", retryable=False
    )


def read_usage(usage: Json) -> Usage:
    """Tokens used; what is absent counts 0.

    The output includes the reasoning: some servers leave it out of ``completion_tokens`` (xAI, Gemini), and there the
    total says so.
    """
    read = _count(usage, "prompt_tokens")
    written = max(_count(usage, "completion_tokens"), _count(usage, "total_tokens") - read)
    cached = _count(_inner(usage, "prompt_tokens_details"), "cached_tokens") or _count(usage, "prompt_cache_hit_tokens")
    reasoning = _count(_inner(usage, "completion_tokens_details"), "reasoning_tokens")
    return Usage(
        input_tokens=read,
        cached_tokens=min(cached, read),
        output_tokens=written,
        reasoning_tokens=min(reasoning, written),
    )


def _inner(node: Json, name: str) -> Json:
    inner = node.get(name)
    return cast(Json, inner) if isinstance(inner, dict) else {}


def _count(node: Json, name: str) -> int:
    value = node.get(name)
    return value if type(value) is int and value > 0 else 0


def _first_choice(data: Json, *, required: bool, secret: str) -> Json | None:
    choices = data.get("choices")
    if isinstance(choices, list):
        for choice in cast("list[object]", choices):
            if not isinstance(choice, dict):
                break
            if cast(Json, choice).get("index") in (0, None):
                return cast(Json, choice)
        else:
            if not choices and required:
                raise WorkerError("status 200 and empty `choices`, expected one", status=200)
            return None
    elif choices is None and not required:
        return None  # a keep-alive or a usage chunk
    raise _garbage("`choices`", data, secret)


def _texts(content: object, secret: str) -> tuple[str, str]:
    """(text, reasoning) of a content: a string, or a list of typed parts as Mistral sends it."""
    if isinstance(content, str):
        return content, ""
    if not isinstance(content, list):
        raise _garbage("`content`", content, secret)
    text, thought = "", ""
    for part in cast("list[object]", content):
        if not isinstance(part, dict):
            continue
        piece = cast(Json, part)
        if isinstance(words := piece.get("text"), str):
            text += words
        if isinstance(inner := piece.get("thinking"), list | str):
            thought += inner if isinstance(inner, str) else _texts(cast(object, inner), secret)[0]
    return text, thought


def _garbage(what: str, got: object, secret: str) -> WorkerError:
    return WorkerError(
        f"expected {what} in the shape of a chat completion, got {excerpt(repr(got), secret)}", status=200
    )


# ── the response as a stream ─────────────────────────────────────────────────────────────────────────────────────────
class EventStream:
    """Splits server-sent events into their data, however the bytes are cut.

    Works on bytes, so a character that is split over two chunks is whole again before it is decoded. Lines end in LF or
    CRLF (a bare CR, which the specification also allows, is no line end here). Comments and other fields are skipped.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # the pieces of a line whose end has not come
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk ended."""
        if b"\n" not in chunk:
            self._rest.append(chunk)
            return []
        lines = (b"".join(self._rest) + chunk).split(b"\n")
        self._rest = [lines.pop()]
        return [data for line in lines if (data := self._line(line)) is not None]

    def end(self) -> bytes | None:
        """The data of an event that was not closed by an empty line, if there is one."""
        self._line(b"".join(self._rest))
        self._rest = []
        return self._line(b"")

    def _line(self, line: bytes) -> bytes | None:
        line = line.removesuffix(b"\r")
        if not line and self._data:
            data = b"\n".join(self._data)
            self._data = []
            return data
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        return None


class StreamedReply:
    """Puts a completion together from the data of its events."""

    def __init__(self, on_text: OnText | None, *, secret: str = "") -> None:
        self._reply = Reply(secret)
        self._on_text = on_text

    def add(self, data: bytes) -> bool:
        """Take in one event; returns whether it was the last.

        Raises:
            WorkerError: an error object in the stream; no JSON; not the shape of a chunk.
        """
        if data.strip() == b"[DONE]":
            return True
        if data.strip():
            text = self._reply.add(read_object(data, secret=self._reply.secret), "delta")
            if text and self._on_text is not None:
                self._on_text(text)
        return False

    def completion(self) -> Completion:
        """The whole answer; raises as ``Reply.completion``."""
        return self._reply.completion()
