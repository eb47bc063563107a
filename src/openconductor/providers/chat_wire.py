"""The chat-completions wire, without the wire: what is sent and what comes back, as pure functions.

In: turns and sampling; bytes of a body or of an event stream. Out: a request body; a Completion, or
the WorkerError that says what was wrong. A finish reason is required: what ends without one was
cut, whatever its text looks like.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from encodings.utf_16_le import IncrementalDecoder
from typing import Any, cast

from openconductor import errors
from openconductor.protocols import OnText
from openconductor.providers.chat_failures import error_object, excerpt
from openconductor.types import Completion, FinishReason, Message, Sampling, Usage

Json = Mapping[str, object]
_Node = Mapping[str, Any]  # an object of a server's JSON: what is in it is tested before it is used

LIMIT_KEYS = ("max_tokens", "max_completion_tokens")
MAX_TOKENS = 10**9
"""A usage that names more is nonsense, and not counted: no store and no bill could hold it."""

# The reasons that are documented (OpenAI, Anthropic, OpenRouter, text-generation-inference,
# Mistral, Zhipu). What is not here is a failure: whether the answer is whole is then not known, and
# neither guess may decide a reward.
_REASONS: Mapping[FinishReason, Sequence[str]] = {
    "stop": ("stop", "end_turn", "stop_sequence", "eos", "eos_token"),
    "length": ("length", "max_tokens", "model_length"),
    "tool_calls": ("tool_calls", "tool_call", "function_call", "tool_use"),
    "content_filter": (
        "content_filter",
        "refusal",
        "safety",
        "sensitive",
    ),  # Gemini adds ": REASON"
}
_FINISH: Mapping[str, FinishReason] = {
    theirs: ours for ours, reasons in _REASONS.items() for theirs in reasons
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
    """The body of a request; ``sampling.body`` is laid over it as it is, so it has the last word.

    Args:
        model: the model's name at the server.
        messages: the turns. Parts with a ``type`` (images) follow the text of their turn; a part
            without one holds fields of the turn itself (``tool_calls``, ``tool_call_id``,
            ``name``), laid over it as they are.
        sampling: what is None is not sent. ``max_tokens`` is not sent where ``body`` names a limit
            itself.
        stream: whether to ask for an event stream that ends with the usage.
        limit_key: how this server calls the limit of output tokens.
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
    """The body as JSON.

    Raises:
        ConfigError: a value of ``Sampling.body`` or of a message's parts is none of JSON's.
    """
    try:
        return _ENCODE(body).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.ConfigError(
            f"request body: {error}; expected values that JSON knows in `body` and in parts"
        ) from error


def plain(given: Mapping[str, object]) -> dict[str, object]:
    """A copy of a mapping in JSON's own types: numbers of a file are Decimals, its lists may be tuples.

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
    typed = [plain(part) for part in message.parts if "type" in part]
    text: list[object] = [{"type": "text", "text": message.content}] if message.content else []
    turn: dict[str, object] = {
        "role": message.role,
        "content": [*text, *typed] if typed else message.content,
    }
    for part in message.parts:
        if "type" not in part:
            turn |= plain(part)
    if turn["content"] == "" and "tool_calls" in turn:
        turn["content"] = None  # as servers themselves say it; some refuse an empty text
    return turn


# ── the response ──────────────────────────────────────────────────────────────────────────────────
class EventStream:
    """Splits server-sent events into their data, however the bytes are cut.

    Works on bytes, so a character that is split over two chunks is whole before it is decoded.
    Lines end in LF or CRLF (a bare CR is no line end here). Comments and other fields are skipped.
    """

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # the pieces of a line whose end has not come
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk ended; two line ends alone end the last one of a stream."""
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
    """What has been said so far, by one body or by the chunks of a stream; only the first choice is read.

    Attributes:
        on_text: gets each piece of text of a stream, and the text of a body once that is known to
            be whole.
        usage: what the server has reported as used; None is not known. It stands also where the
            answer fails.
    """

    on_text: OnText | None = None
    usage: Usage | None = None
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    refusal: str = ""
    tool_calls: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    finish: str = ""
    _calls: dict[int, dict[str, object]] = field(default_factory=dict[int, dict[str, object]])
    _heard: int = 0
    _halves: IncrementalDecoder = field(default_factory=lambda: IncrementalDecoder("replace"))

    def body(self, raw: bytes) -> None:
        """Take in a response that came in one piece under status 200.

        Raises:
            EmptyResponse: no byte of content. TruncatedResponse: JSON that was cut.
            MalformedResponse: no JSON; not the shape of a chat completion.
            WorkerError: of the kind that an error object stands for.
        """
        if not raw.strip():
            raise errors.EmptyResponse("status 200 and an empty body", status=200)
        self._add(read_object(raw), "message")

    def event(self, data: bytes) -> bool:
        """Take in the data of one event of a stream; returns whether it was the last.

        Raises:
            MalformedResponse: no JSON; not the shape of a chunk. TruncatedResponse: JSON that was
                cut; an error object after a part of the answer had come.
            WorkerError: of the kind that an error object stands for, where nothing had come.
        """
        data = data.strip()
        if data == b"[DONE]":
            return True
        if data and (text := self._add(read_object(data), "delta")) and self.on_text is not None:
            self._heard += len(text)
            self.on_text(text)
        return False

    def completion(self, *, seconds: float = 0.0, body_sent: Json | None = None) -> Completion:
        """The whole answer, of a call that took ``seconds`` and sent ``body_sent``.

        Raises:
            TruncatedResponse: no finish reason was given, or one that says that the server broke
                off.
            Refused: the worker refused, or a filter left nothing.
            EmptyResponse: there is neither text nor a tool call, and no token limit was reached.
            MalformedResponse: the finish reason is not known, so that nobody can say whether the
                answer is whole.
        """
        self._say("", final=True)
        text, finish = (
            "".join(self.text),
            _FINISH.get(self.finish.lower().partition(":")[0].strip()),
        )
        silent = not (self.tool_calls or text.strip())
        if finish is None or (silent and (finish != "length" or self.refusal)):
            raise self._failure(finish, len(text))
        thought = (
            "".join(self.reasoning)
            .encode("utf-16-le", "surrogatepass")
            .decode("utf-16-le", "replace")
        )
        if self.on_text is not None and (unheard := text[self._heard :]):
            self.on_text(unheard)
        usage = replace(self.usage or Usage(), seconds=seconds)
        return Completion(text, thought, tuple(self.tool_calls), usage, finish, body_sent)

    def _failure(self, finish: FinishReason | None, characters: int) -> errors.WorkerError:
        """Why what was said is no answer."""
        given = excerpt(self.finish)
        if finish is not None and (self.refusal or finish == "content_filter"):
            words = excerpt(self.refusal) or "a content filter left nothing of the answer"
            return errors.Refused(
                f"the worker refused: {words} (finish reason {given!r})", status=200
            )
        if finish is not None:
            words = f"status 200, finish reason {given!r}, and neither text nor tool call"
            return errors.EmptyResponse(words, status=200)
        if self.finish and self.finish.lower() not in _CUT:
            words = f"unknown finish reason {given!r}; expected one of {', '.join(sorted(_FINISH))}"
            return errors.MalformedResponse(words, status=200, retryable=False)
        why = f"the server broke off (finish reason {given!r})"
        why = why if given else "the response ended without a finish reason"
        return errors.TruncatedResponse(f"{why}, after {characters} characters of text", status=200)

    def _add(self, data: _Node, part: str) -> str:
        """Take in a body (``part`` is "message") or a chunk ("delta"); returns the text that it brought."""
        usage: _Node | None = data.get("usage")
        if isinstance(usage, dict) and (used := read_usage(usage)).tokens:
            self.usage = used
        if data.get("error") or data.get("object") == "error":
            raise self._error(data)
        choice = _first_choice(data, required=part == "message")
        if choice is None:
            return ""
        self.finish = _text(choice, "finish_reason") or self.finish
        said: _Node | None = choice.get(part)
        if isinstance(said, dict):
            return self._take(said)
        if said is None and part == "delta":
            return ""
        raise _garbage(f"`{part}` of a choice", choice)

    def _error(self, data: Json) -> errors.WorkerError:
        """The failure that an error object stands for: in the middle of an answer it is one that was cut."""
        error = error_object(data)
        if self.text or self.reasoning or self.refusal or self.tool_calls:
            if not isinstance(error, errors.Refused | errors.ContextTooLong):
                words = f"the server broke off: {error.message}"
                return errors.TruncatedResponse(words, status=200, retryable=error.retryable)
            error.status = 200  # what had come by then was written, and is paid for
        return error

    def _take(self, said: _Node) -> str:
        content = said.get("content")
        text, thought = (content, "") if isinstance(content, str) else _texts(content)
        # DeepSeek and vLLM say the one; OpenRouter and newer vLLM the other
        thought += _text(said, "reasoning_content") or _text(said, "reasoning")
        if thought:
            self.reasoning.append(thought)
        self.refusal += _text(said, "refusal")
        calls: Sequence[_Node] | None = said.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                self._take_call(call, position)
        return self._say(text) if text else ""

    def _say(self, text: str, *, final: bool = False) -> str:
        """Add to the text, and return what was added: half a character waits for its other half, or is U+FFFD."""
        if self._halves.buffer or final or not text.isascii():
            text = self._halves.decode(text.encode("utf-16-le", "surrogatepass"), final)
        if text:
            self.text.append(text)
        return text

    def _take_call(self, piece: _Node, position: int) -> None:
        """Lay a piece of a tool call onto what is known of it: names are set, arguments grow.

        A piece with an id and a name of its own begins another call, also under an index that was
        there before: some servers (Gemini) give one index to all calls of a stream.
        """
        if _is_deeper(piece, 100):  # whoever keeps it goes down into it
            raise _garbage("`tool_calls`", "lists in lists without end")
        index: int = piece["index"] if isinstance(piece.get("index"), int) else position
        given, known = _inner(piece, "function"), self._calls.get(index)
        if known is None or (
            given.get("name") and piece.get("id") and known.get("id") not in (None, piece["id"])
        ):
            known = self._calls[index] = {}
            self.tool_calls.append(known)
        before = cast("dict[str, Any]", known.get("function", {}))
        if isinstance(whole := given.get("arguments"), dict):  # as some servers send them
            given = {**given, "arguments": json.dumps(whole, ensure_ascii=False)}
        arguments = _text(before, "arguments") + _text(given, "arguments")
        known |= {
            name: value for name, value in piece.items() if name != "index" and value is not None
        }
        if "function" in known:
            known["function"] = before | {
                name: value for name, value in given.items() if value is not None
            }
            if "arguments" in given or arguments:
                known["function"] |= {"arguments": arguments}


def read_object(raw: bytes) -> Json:
    """A JSON object, or the MalformedResponse or TruncatedResponse that says what stood there instead."""
    raw, why, cut = raw.removeprefix(BOM_UTF8).strip(), "no object, or more than one", False
    try:
        text = raw.decode()
        data, end = _DECODE(text)
        if end == len(text) and text[0] == "{":
            return data
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
        ended = isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc)
        cut = ended or raw[-1:] != b"}" or why.startswith("Unterminated")
    if cut and raw[:1] == b"{":
        raise errors.TruncatedResponse(f"JSON cut after {len(raw)} bytes", status=200)
    raise errors.MalformedResponse(
        f"expected a JSON object, got {excerpt(raw)!r} ({why})", status=200
    )


def read_usage(usage: Json) -> Usage:
    """Tokens used; what is absent counts 0.

    Of a bill with a figure that cannot be (negative, a word) nothing is taken: the rest would pass
    for all of it. The output includes the reasoning: some servers leave it out of
    ``completion_tokens`` (xAI, Gemini), and there the total says so.
    """
    figures = [
        usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    ]
    if not all(type(figure) is int and 0 <= figure <= MAX_TOKENS for figure in figures):
        return Usage()
    read, wrote, total = cast("list[int]", figures)
    written = max(wrote, total - read)
    cached = _count(_inner(usage, "prompt_tokens_details"), "cached_tokens") or _count(
        usage, "prompt_cache_hit_tokens"
    )
    reasoning = _count(_inner(usage, "completion_tokens_details"), "reasoning_tokens")
    return Usage(read, min(cached, read), written, min(reasoning, written))


def _inner(node: _Node, name: str) -> _Node:
    inner: _Node | None = node.get(name)
    return inner if isinstance(inner, dict) else {}


def _count(node: _Node, name: str) -> int:
    value = node.get(name)
    return value if type(value) is int and 0 < value <= MAX_TOKENS else 0


def _text(node: _Node, name: str) -> str:
    value = node.get(name)
    return value if isinstance(value, str) else ""


def _first_choice(data: _Node, *, required: bool) -> _Node | None:
    choices: Sequence[_Node] | None = data.get("choices")
    if not required and choices in (None, []):
        return None  # a keep-alive or a usage chunk
    for choice in choices if isinstance(choices, list) and choices else ("none",):
        if not isinstance(choice, dict):
            raise _garbage("`choices`", data)
        if choice.get("index") in (0, None):
            return choice
    return None


def _texts(content: object) -> tuple[str, str]:
    """(text, reasoning) of a content: a string, or a list of typed parts as Mistral sends it."""
    if isinstance(content, str) or content is None:
        return content or "", ""
    if not isinstance(content, list):
        raise _garbage("`content`", content)
    text, thought = "", ""
    for part in cast("list[_Node]", content):
        if isinstance(part, dict):
            text += _text(part, "text")
            if part.get("thinking"):
                thought += _texts(part["thinking"])[0]
    return text, thought


def _is_deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        value = [*cast(_Node, value).values()]
    inner = cast("Sequence[object]", value if isinstance(value, list) else ())
    return not levels or any(_is_deeper(one, levels - 1) for one in inner)


def _garbage(what: str, got: object) -> errors.MalformedResponse:
    words = f"expected {what} in the shape of a chat completion, got {excerpt(repr(got))}"
    return errors.MalformedResponse(words, status=200)
