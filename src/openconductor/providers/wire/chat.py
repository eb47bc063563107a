"""The chat-completions wire as pure functions: request bodies, and answers read from bytes.

A finish reason is required: an answer that ends without one was cut, whatever its text looks like.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from encodings.utf_16_le import IncrementalDecoder
from typing import Any, TypeGuard, cast

from openconductor import errors
from openconductor.protocols import OnText
from openconductor.providers.wire.failures import error_object, excerpt
from openconductor.types import (
    Completion,
    FinishReason,
    Message,
    Sampling,
    Usage,
    is_array,
    is_object,
)

Json = Mapping[str, object]
_Node = Mapping[str, Any]  # an object of a server's JSON; its values are tested before use

LIMIT_KEYS = ("max_tokens", "max_completion_tokens")
MAX_TOKENS = 10**9  # a usage that names more is ignored: no store and no bill could hold it

# The documented reasons (OpenAI, Anthropic, OpenRouter, text-generation-inference, Mistral, Zhipu).
# Any other is a failure: it does not tell whether the answer is whole, and neither guess may decide
# a reward.
_REASONS: Mapping[FinishReason, Sequence[str]] = {
    "stop": ("stop", "end_turn", "stop_sequence", "eos", "eos_token"),
    "length": ("length", "max_tokens", "model_length"),
    "tool_calls": ("tool_calls", "tool_call", "function_call", "tool_use"),
    "content_filter": ("content_filter", "refusal", "safety", "sensitive"),  # Gemini adds ": …"
}
_FINISH: Mapping[str, FinishReason] = {
    reason: finish for finish, reasons in _REASONS.items() for reason in reasons
}
_CUT = ("error", "abort", "network_error", "insufficient_system_resource")

_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_DECODE = json.JSONDecoder().raw_decode  # json.loads would guess the encoding of each event anew


# ── the request ───────────────────────────────────────────────────────────────────────────────────
def request_body(
    model: str,
    messages: Sequence[Message],
    sampling: Sampling,
    *,
    stream: bool,
    limit_key: str = "max_tokens",
) -> dict[str, object]:
    """Return the body of a request; ``sampling.body`` is laid over it, so it has the last word.

    Args:
        model: the model's name at the server.
        messages: the turns. Parts with a ``type`` (images) follow the text of their turn; a part
            without one holds fields of the turn itself (``tool_calls``, ``tool_call_id``,
            ``name``).
        sampling: values that are None are not sent, nor is ``max_tokens`` if ``body`` names a limit
            itself.
        stream: ask for an event stream that ends with the usage.
        limit_key: this server's name of the limit of output tokens.
    """
    body: dict[str, object] = {"model": model, "messages": [_turn(message) for message in messages]}
    over = sampling.body
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.max_tokens is not None and not any(key in over for key in LIMIT_KEYS):
        body[limit_key] = sampling.max_tokens
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if stream and over.get("stream", True):
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body | plain(over)


def encode(body: Json) -> bytes:
    """Return the body as JSON.

    Raises:
        ConfigError: ``Sampling.body`` or a message's parts hold a value that JSON lacks.
    """
    try:
        return _ENCODE(body).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.ConfigError(
            f"request body: {error}; expected values that JSON knows in `body` and in parts"
        ) from error


def plain(given: Mapping[str, object]) -> dict[str, object]:
    """Return a copy in JSON's own types, because a file's numbers are Decimals, its lists tuples.

    >>> plain({"a": (Decimal("0.5"), Decimal(4)), "b": {1: None}})
    {'a': [0.5, 4], 'b': {'1': None}}
    """
    return {str(key): _plain(value) for key, value in given.items()}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return plain(cast(Json, value))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _turn(message: Message) -> dict[str, object]:
    turn: dict[str, object] = {"role": message.role, "content": message.content}
    typed = [plain(part) for part in message.media]
    if typed and message.content:
        typed.insert(0, {"type": "text", "text": message.content})
    if typed:
        turn["content"] = typed
    for part in message.parts:
        if "type" not in part:
            turn |= plain(part)
    if turn["content"] == "" and "tool_calls" in turn:
        turn["content"] = None  # as servers themselves write it; some refuse an empty text
    return turn


# ── the response ──────────────────────────────────────────────────────────────────────────────────
class EventStream:
    """Splits server-sent events into their data, however the bytes are cut.

    It works on bytes, so a character that is split over two chunks is whole before it is decoded.
    Lines end in LF or CRLF, not in a bare CR. Comments and other fields are skipped.
    """

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # pieces of a line whose end has not come
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that end in this chunk.

        A chunk of two line ends alone ends the last event of a stream.
        """
        *lines, rest = chunk.split(b"\n")
        if lines and self._rest:
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest = []
        if rest:
            self._rest.append(rest)
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" ").removesuffix(b"\r"))
            elif self._data and line in (b"", b"\r"):
                events.append(b"\n".join(self._data))
                self._data = []
        return events


@dataclass(slots=True)
class Reply:
    """The answer so far, of one body or of the chunks of a stream; only the first choice is read.

    Attributes:
        on_text: gets each piece of a stream's text, and the text of a body once it is known to be
            whole.
        usage: usage that the server has reported, also of an answer that fails. None: unknown.
        text, reasoning: their pieces.
        refusal: the words of a refusal.
        tool_calls: in OpenAI's form.
        finish: the server's finish reason.
    """

    on_text: OnText | None = None
    usage: Usage | None = None
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    refusal: str = ""
    tool_calls: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    finish: str = ""
    _calls: dict[int, dict[str, object]] = field(default_factory=dict[int, dict[str, object]])
    _streamed: int = 0  # characters that on_text has had
    _surrogates: IncrementalDecoder = field(default_factory=lambda: IncrementalDecoder("replace"))

    def body(self, raw: bytes) -> None:
        """Read a whole body under status 200.

        Raises:
            EmptyResponse: it is empty. TruncatedResponse: its JSON was cut.
            MalformedResponse: it is not JSON, or not a chat completion.
            WorkerError: it holds an error object; the class is the one that object means.
        """
        if not raw.strip():
            raise errors.EmptyResponse("status 200 and an empty body", status=200)
        self._add(read_object(raw), "message")

    def event(self, data: bytes) -> bool:
        """Read the data of one event of a stream; return True if it was the last.

        Raises:
            MalformedResponse: it is not JSON, or not a chunk. TruncatedResponse: its JSON was cut,
                or it is an error object after a part of the answer.
            WorkerError: it is an error object before any part of the answer.
        """
        data = data.strip()
        if data == b"[DONE]":
            return True
        if data:
            text = self._add(read_object(data), "delta")
            if text and self.on_text is not None:
                self._streamed += len(text)
                self.on_text(text)
        return False

    def completion(self, *, seconds: float = 0.0, body_sent: Json | None = None) -> Completion:
        """Return the whole answer of a call that took ``seconds`` and sent ``body_sent``.

        Raises:
            TruncatedResponse: no finish reason, or one that says that the server broke off.
            Refused: the worker refused, or a filter left nothing.
            EmptyResponse: neither text nor tool call, though no token limit was reached.
            MalformedResponse: the finish reason is unknown, so the answer may not be whole.
        """
        self._add_text("", final=True)
        text = "".join(self.text)
        finish = _FINISH.get(self.finish.lower().partition(":")[0].strip())
        is_empty = not (self.tool_calls or text.strip())
        if finish is None or (is_empty and (finish != "length" or self.refusal)):
            raise self._failure(finish, len(text))
        reasoning = "".join(self.reasoning).encode("utf-16-le", "surrogatepass")
        if self.on_text is not None and len(text) > self._streamed:
            self.on_text(text[self._streamed :])
        return Completion(
            text,
            reasoning.decode("utf-16-le", "replace"),
            tuple(self.tool_calls),
            replace(self.usage or Usage(), seconds=seconds),
            finish,
            body_sent,
        )

    def _failure(self, finish: FinishReason | None, characters: int) -> errors.WorkerError:
        """Return the error of an answer that is none."""
        reason = excerpt(self.finish)
        if finish is not None and (self.refusal or finish == "content_filter"):
            words = excerpt(self.refusal) or "a content filter left nothing of the answer"
            message = f"the worker refused: {words} (finish reason {reason!r})"
            return errors.Refused(message, status=200)
        if finish is not None:
            message = f"status 200, finish reason {reason!r}, and neither text nor tool call"
            return errors.EmptyResponse(message, status=200)
        if self.finish and self.finish.lower() not in _CUT:
            known = ", ".join(sorted(_FINISH))
            message = f"unknown finish reason {reason!r}; expected one of {known}"
            return errors.MalformedResponse(message, status=200, retryable=False)
        message = "the response ended without a finish reason"
        if reason:
            message = f"the server broke off (finish reason {reason!r})"
        message += f", after {characters} characters of text"
        return errors.TruncatedResponse(message, status=200)

    def _add(self, data: _Node, part: str) -> str:
        """Add a body (``part`` is "message") or a chunk ("delta"); return its text."""
        usage: _Node | None = data.get("usage")
        if isinstance(usage, dict):
            used = read_usage(usage)
            if used.tokens:
                self.usage = used
        if data.get("error") or data.get("object") == "error":
            raise self._error(data)
        choice = _first_choice(data, required=part == "message")
        if choice is None:
            return ""
        self.finish = _text(choice, "finish_reason") or self.finish
        message: _Node | None = choice.get(part)
        if isinstance(message, dict):
            return self._add_message(message)
        if message is None and part == "delta":
            return ""
        raise _garbage(f"`{part}` of a choice", choice)

    def _error(self, data: Json) -> errors.WorkerError:
        """Return the failure that an error object means; in the middle of an answer it was cut."""
        error = error_object(data)
        if self.text or self.reasoning or self.refusal or self.tool_calls:
            if not isinstance(error, errors.Refused | errors.ContextTooLong):
                words = f"the server broke off: {error.message}"
                return errors.TruncatedResponse(words, status=200, retryable=error.retryable)
            error.status = 200  # the part that had come was written, and is paid for
        return error

    def _add_message(self, message: _Node) -> str:
        text, reasoning = _texts(message.get("content"))
        # DeepSeek and vLLM use the first name; OpenRouter and newer vLLM the second
        reasoning += _text(message, "reasoning_content") or _text(message, "reasoning")
        if reasoning:
            self.reasoning.append(reasoning)
        self.refusal += _text(message, "refusal")
        calls: Sequence[_Node] | None = message.get("tool_calls")
        if isinstance(calls, list):
            for position, call in enumerate(calls):
                if isinstance(call, dict):
                    self._add_call(call, position)
        return self._add_text(text) if text else ""

    def _add_text(self, text: str, *, final: bool = False) -> str:
        """Add to the text, and return the addition.

        The first half of a surrogate pair waits for the second, or becomes U+FFFD.
        """
        if self._surrogates.buffer or final or not text.isascii():
            text = self._surrogates.decode(text.encode("utf-16-le", "surrogatepass"), final)
        if text:
            self.text.append(text)
        return text

    def _add_call(self, piece: _Node, position: int) -> None:
        """Add a piece of a tool call: names are set, arguments grow.

        A piece with an id and a name of its own begins another call, also under an index that was
        there before: some servers (Gemini) give one index to all calls of a stream.
        """
        if _is_deeper(piece, 100):  # whoever keeps it walks down into it
            raise _garbage("`tool_calls`", "lists in lists without end")
        index = piece.get("index")
        if not isinstance(index, int):
            index = position
        function = _inner(piece, "function")
        call = self._calls.get(index)
        begins = bool(function.get("name") and piece.get("id"))
        if call is None or (begins and call.get("id") not in (None, piece["id"])):
            call = self._calls[index] = {}
            self.tool_calls.append(call)
        before = cast("dict[str, Any]", call.get("function", {}))
        call |= {key: value for key, value in piece.items() if key != "index" and value is not None}
        if "function" not in call:
            return
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # as some servers send them
            arguments = json.dumps(arguments, ensure_ascii=False)
        after = before | {key: value for key, value in function.items() if value is not None}
        if "arguments" in function or "arguments" in before:
            added = arguments if isinstance(arguments, str) else ""
            after["arguments"] = _text(before, "arguments") + added
        call["function"] = after


def read_object(raw: bytes) -> Json:
    """Return a JSON object.

    Raises:
        TruncatedResponse: it was cut.
        MalformedResponse: it is something else.
    """
    raw = raw.removeprefix(BOM_UTF8).strip()
    reason = "no object, or more than one"
    cut = False
    try:
        text = raw.decode()
        data, end = _DECODE(text)
        if end == len(text) and text[0] == "{":
            return data
    except json.JSONDecodeError as error:
        reason = str(error)
        at_end = error.pos >= len(error.doc)
        cut = at_end or raw[-1:] != b"}" or reason.startswith("Unterminated")
    except (ValueError, RecursionError) as error:
        reason = type(error).__name__
        cut = raw[-1:] != b"}"
    if cut and raw[:1] == b"{":
        raise errors.TruncatedResponse(f"JSON cut after {len(raw)} bytes", status=200)
    message = f"expected a JSON object, got {excerpt(raw)!r} ({reason})"
    raise errors.MalformedResponse(message, status=200)


def read_usage(usage: Json) -> Usage:
    """Return the tokens used; absent figures count 0.

    A bill with an impossible figure (negative, a word) is ignored as a whole, because the rest
    would pass for all of it. The output includes the reasoning: some servers leave it out of
    ``completion_tokens`` (xAI, Gemini), and there the total shows it.
    """
    read = usage.get("prompt_tokens") or 0
    written = usage.get("completion_tokens") or 0
    total = usage.get("total_tokens") or 0
    if not (_is_count(read) and _is_count(written) and _is_count(total)):
        return Usage()
    written = max(written, total - read)
    cached = _count(_inner(usage, "prompt_tokens_details"), "cached_tokens")
    cached = cached or _count(usage, "prompt_cache_hit_tokens")
    reasoning = _count(_inner(usage, "completion_tokens_details"), "reasoning_tokens")
    return Usage(read, min(cached, read), written, min(reasoning, written))


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_TOKENS


def _count(node: _Node, name: str) -> int:
    value = node.get(name)
    return value if _is_count(value) else 0


def _inner(node: _Node, name: str) -> _Node:
    inner: _Node | None = node.get(name)
    return inner if isinstance(inner, dict) else {}


def _text(node: _Node, name: str) -> str:
    value = node.get(name)
    return value if isinstance(value, str) else ""


def _first_choice(data: _Node, *, required: bool) -> _Node | None:
    choices: Sequence[_Node] | None = data.get("choices")
    if not required and choices in (None, []):
        return None  # a keep-alive or a usage chunk
    if not isinstance(choices, list) or not choices:
        raise _garbage("`choices`", data)
    for choice in choices:
        if not isinstance(choice, dict):
            raise _garbage("`choices`", data)
        if choice.get("index") in (0, None):
            return choice
    return None


def _texts(content: object) -> tuple[str, str]:
    """Return text and reasoning of a content: a string, or Mistral's list of typed parts."""
    if isinstance(content, str) or content is None:
        return content or "", ""
    if not is_array(content):
        raise _garbage("`content`", content)
    text = ""
    reasoning = ""
    for part in content:
        if is_object(part):
            text += _text(part, "text")
            if part.get("thinking"):
                reasoning += _texts(part["thinking"])[0]
    return text, reasoning


def _is_deeper(value: object, levels: int) -> bool:
    if levels == 0:
        return True
    if is_object(value):
        value = [*value.values()]
    if not is_array(value):
        return False
    return any(_is_deeper(inner, levels - 1) for inner in value)


def _garbage(what: str, got: object) -> errors.MalformedResponse:
    words = f"expected {what} in the shape of a chat completion, got {excerpt(repr(got))}"
    return errors.MalformedResponse(words, status=200)
