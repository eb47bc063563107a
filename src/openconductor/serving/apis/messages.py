"""Anthropic's Messages (``POST /v1/messages``).

The conversation becomes turns in the form of chat completions. Each tool result is a turn of its
own, and images in it come with the user's turn after it. All system texts, from anywhere in the
conversation, are one turn at the beginning. Thoughts that a client sends back are dropped.

Not covered: ``top_k``, PDF documents, Anthropic's own tools and their blocks, citations, and which
stop sequence ended an answer (no worker says).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field

from openconductor.calls.options import CHARACTERS_A_TOKEN
from openconductor.serving.apis import wire
from openconductor.serving.apis.options import ToolChoice, offer_tools
from openconductor.serving.apis.wire import (
    Json,
    RequestFailed,
    ServedAnswer,
    event,
    image_part,
    invalid,
    unexpected,
)
from openconductor.types import Message, Sampling

SIGNATURE = "b3BlbmNvbmR1Y3Rvcg=="
"""Signs every thought. Clients send it back as it is, and some drop a thought without one."""

IMAGE_TOKENS = 1600
"""Tokens of an image in an estimate: about the most that Anthropic counts for one."""

SHOWN_NEXT = "(It is shown next.)"
"""The text of a tool result that is only an image."""
INVALID = "INVALID_JSON"
"""Key under which a tool's input holds arguments that are not a JSON object, as they came."""
BILLING = "x-anthropic-billing-header:"
"""Prefix of a system text that Claude Code sends for Anthropic alone."""

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "end_turn",
    "content_filter": "refusal",
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none", "tool": None}
_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


# ── bodies ────────────────────────────────────────────────────────────────────────────────────────
class _Text(BaseModel):
    type: Literal["text"]
    text: str


def _as_blocks(content: object) -> object:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class _Source(BaseModel):
    type: str
    media_type: str = ""
    data: str = ""
    url: str | None = None
    content: Annotated[list[_Text], BeforeValidator(_as_blocks)] = []


class _Image(BaseModel):
    type: Literal["image"]
    source: _Source


class _Document(BaseModel):
    type: Literal["document"]
    source: _Source
    title: str | None = None
    context: str | None = None


class _ToolReference(BaseModel):
    type: Literal["tool_reference"]
    tool_name: str


_Content = _Text | _Image | _Document | _ToolReference
"""Content of users and of tool results."""


class _ToolResult(BaseModel):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[
        list[Annotated[_Content, Field(discriminator="type")]], BeforeValidator(_as_blocks)
    ] = []
    is_error: bool | None = None


class _ToolUse(BaseModel):
    type: Literal["tool_use"]
    id: str
    name: str
    input: Json


class _Thought(BaseModel):
    type: Literal["thinking", "redacted_thinking"]


_Block = _Content | _ToolResult | _ToolUse | _Thought
_ALLOWED: Mapping[str, type[_Block] | tuple[type[_Block], ...]] = {
    "user": (_Text, _Image, _Document, _ToolReference, _ToolResult),
    "assistant": (_Text, _ToolUse, _Thought),
    "system": (_Text,),
}


class _Turn(BaseModel):
    role: Literal["user", "assistant", "system"]
    content: Annotated[
        list[Annotated[_Block, Field(discriminator="type")]], BeforeValidator(_as_blocks)
    ]


class _Tool(BaseModel):
    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: Json | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class _ToolChoice(BaseModel):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Format(BaseModel):
    type: Literal["json_schema"]
    schema_: Annotated[Json, Field(alias="schema")]


class _OutputConfig(BaseModel):
    format: _Format | None = None


class CountBody(wire.Body):
    """The body of a count of tokens: a conversation, and the tools on offer."""

    messages: Annotated[list[_Turn], Field(min_length=1)]
    system: Annotated[list[_Text], BeforeValidator(_as_blocks)] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    output_config: _OutputConfig | None = None
    output_format: _Format | None = None


class MessagesBody(CountBody):
    """The body of a request."""

    max_tokens: Annotated[int, Field(ge=1)]
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None


def describe_model(name: str, created: float) -> Json:
    """Return a model, first offered at ``created`` (seconds since 1970)."""
    moment = datetime.fromtimestamp(created, UTC).isoformat()
    return {"type": "model", "id": name, "display_name": name, "created_at": moment}


def list_models(models: Sequence[Json]) -> Json:
    """Return the page of all models."""
    names = [model["id"] for model in models]
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": models, "has_more": False, "first_id": first, "last_id": last}


def count_tokens(body: Json) -> Json:
    """Return the answer to ``POST /v1/messages/count_tokens``.

    It is an estimate, because every worker counts differently.

    Raises:
        RequestFailed: the body is invalid.
    """
    count = wire.read_body(CountBody, body)
    turns = _turns(count)
    counted: list[object] = list(_options(count).values())
    characters = 0
    images = 0
    for turn in turns:
        characters += len(turn.content)
        for part in turn.parts:
            if "type" in part:
                images += 1
            else:
                counted.append(part)
    characters += len(json.dumps(counted))
    return {"input_tokens": max(1, characters // CHARACTERS_A_TOKEN + images * IMAGE_TOKENS)}


def _turns(body: CountBody) -> tuple[Message, ...]:
    """Return the conversation in the form of chat completions."""
    rules = [block.text for block in body.system or () if not block.text.startswith(BILLING)]
    turns: list[Message] = []
    for index, turn in enumerate(body.messages):
        where = f"messages.{index}.content"
        _check_blocks(turn, where)
        if turn.role == "user":
            turns += _user_turns(turn.content, where)
        elif turn.role == "assistant":
            turns += _assistant_turns(turn.content)
        else:
            rules += [block.text for block in turn.content if isinstance(block, _Text)]
    if not turns:
        raise invalid("messages", "expected a turn of the user at least")
    begun = turns[-1]
    if begun.role == "assistant" and begun.content != begun.content.rstrip():
        where = f"messages.{len(body.messages) - 1}.content"
        raise invalid(where, "the beginning of the answer cannot end with whitespace")
    system = "\n\n".join(rule for rule in rules if rule.strip())
    if system:
        turns.insert(0, Message("system", system))
    return tuple(turns)


def _check_blocks(turn: _Turn, where: str) -> None:
    for index, block in enumerate(turn.content):
        if not isinstance(block, _ALLOWED[turn.role]):
            raise invalid(
                f"{where}.{index}.type",
                f"got {block.type!r}, which the role {turn.role!r} cannot have",
            )


def _user_turns(blocks: Sequence[_Block], where: str) -> list[Message]:
    """Return a turn for each tool result, and one for the other blocks."""
    turns: list[Message] = []
    images: list[Json] = []
    for index, block in enumerate(blocks):
        if isinstance(block, _ToolResult):
            text, shown = _read_content(block.content, f"{where}.{index}.content")
            if block.is_error:
                text = f"Error: {text}"
            elif not text and shown:
                text = SHOWN_NEXT
            turns.append(Message("tool", text, ({"tool_call_id": block.tool_use_id},)))
            images += shown
    text, shown = _read_content(blocks, where)
    images += shown
    if text or images or not turns:
        turns.append(Message("user", text, tuple(images)))
    return turns


def _assistant_turns(blocks: Sequence[_Block]) -> list[Message]:
    """Return the turn of the assistant's blocks; none if there are only thoughts."""
    text, _ = _read_content(blocks, "")
    calls: list[Json] = []
    for block in blocks:
        if isinstance(block, _ToolUse):
            arguments = json.dumps(block.input, ensure_ascii=False)
            calls.append(wire.tool_call(block.id, block.name, arguments))
    if calls:
        return [Message("assistant", text, ({"tool_calls": calls},))]
    return [Message("assistant", text)] if text else []


def _read_content(blocks: Sequence[_Block], where: str) -> tuple[str, list[Json]]:
    """Return the text and the images of blocks. Tool calls and results have turns of their own."""
    texts: list[str] = []
    images: list[Json] = []
    for index, block in enumerate(blocks):
        match block:
            case _Text():
                texts.append(block.text)
            case _Image(source=source):
                url = f"data:{source.media_type};{source.type},{source.data}"
                if source.type == "url":
                    url = source.url
                images.append(image_part(url, f"{where}.{index}.source"))
            case _Document(source=source):
                if source.type not in ("text", "content"):
                    place = f"{where}.{index}.source.type"
                    raise unexpected(place, source.type, "a document as 'text'")
                inner = [text.text for text in source.content]
                parts = [block.title, block.context, source.data, *inner]
                texts.append("\n\n".join(part for part in parts if part))
            case _ToolReference():
                texts.append(block.tool_name)
            case _:
                pass
    return "\n\n".join(text for text in texts if text), images


def _options(body: CountBody) -> Json:
    """Return tools and output format, in the form of chat completions."""
    parallel: bool | None = None
    choice = ToolChoice()
    if body.tool_choice is not None:
        kind = body.tool_choice.type
        if not body.tools:
            raise invalid("tool_choice", f"got {kind!r}, which requires `tools`")
        choice = ToolChoice(_CHOICES[kind], str(body.tool_choice.name) if kind == "tool" else None)
        parallel = False if body.tool_choice.disable_parallel_tool_use else None
    options = offer_tools(_functions(body), choice, parallel)
    output = body.output_format
    if body.output_config is not None and body.output_config.format is not None:
        output = body.output_config.format
    if output is not None:
        schema = {"name": "answer", "schema": output.schema_, "strict": True}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    return options


def _functions(body: CountBody) -> dict[str, Json]:
    """Return the client's tools as functions, by name.

    Anthropic's own tools are left out, because nobody runs them here.

    A tool whose loading is deferred is on offer once a tool result (the client's search for tools)
    refers to it.
    """
    loaded = {
        block.tool_name
        for turn in body.messages
        for result in turn.content
        if isinstance(result, _ToolResult)
        for block in result.content
        if isinstance(block, _ToolReference)
    }
    functions: dict[str, Json] = {}
    for index, tool in enumerate(body.tools or ()):
        if tool.type not in (None, "custom") or (tool.defer_loading and tool.name not in loaded):
            continue
        if tool.name is None:
            raise invalid(f"tools.{index}.name", "missing")
        if tool.input_schema is None:
            raise invalid(f"tools.{index}.input_schema", "missing")
        function: Json = {"name": tool.name, "parameters": tool.input_schema}
        if tool.description:
            function["description"] = tool.description
        if tool.strict:
            function["strict"] = True
        functions[tool.name] = {"type": "function", "function": function}
    return functions


# ── answers ───────────────────────────────────────────────────────────────────────────────────────
def _tool_use(call: Json) -> Json:
    function = call["function"]
    arguments = function["arguments"]
    given = wire.read_arguments(arguments)
    if given is None:
        given = {INVALID: arguments}
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}


def _usage(answer: ServedAnswer) -> Json:
    used = answer.episode.usage
    return {
        "input_tokens": used.input_tokens - used.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.cached_tokens,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"thinking_tokens": used.reasoning_tokens},
        "orchestration": answer.orchestration,
    }


def _ending(answer: ServedAnswer) -> Json:
    """Return why the answer ended. Tool calls that were cut are not to be made."""
    reason = _STOP_REASONS[answer.finish_reason]
    if answer.tool_calls and answer.finish_reason in ("stop", "tool_calls"):
        reason = "tool_use"
    details = None
    if reason == "refusal":
        details = {"type": "refusal", "category": None, "explanation": None}
    return {"stop_reason": reason, "stop_sequence": None, "stop_details": details}


def _message(
    request: wire.ClientRequest, episode: str, content: list[Json], ending: Json, usage: Json
) -> Json:
    return {
        "id": f"msg_{episode}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        **ending,
        "usage": usage,
    }


class _Stream:
    """Writes one answer as blocks. A block is open until another one begins."""

    def __init__(self, request: wire.ClientRequest, episode: str) -> None:
        self._request = request
        self._episode = episode
        self._blocks = 0
        self._open: int | Literal["text", "call"] | None = None
        """The open block: a part of the thoughts by its number, the text, or a tool call."""

    def begin(self) -> bytes:
        ending = {"stop_reason": None, "stop_sequence": None, "stop_details": None}
        usage = {
            "input_tokens": 0,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        }
        message = _message(self._request, self._episode, [], ending, usage)
        return _event("message_start", message=message)

    def add_reasoning(self, part: int, text: str) -> bytes:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        return self._add(part, block, "thinking", text)

    def add_text(self, text: str) -> bytes:
        return self._add("text", {"type": "text", "text": ""}, "text", text)

    def heartbeat(self) -> bytes:
        return _event("ping")

    def end(self, answer: ServedAnswer) -> bytes:
        sent = b""
        for call in answer.tool_calls:
            block = _tool_use(call)
            arguments = json.dumps(block["input"], ensure_ascii=False)
            sent += self._begin("call", {**block, "input": {}})
            sent += self._delta({"type": "input_json_delta", "partial_json": arguments})
        sent += self._close()
        sent += _event("message_delta", delta=_ending(answer), usage=_usage(answer))
        return sent + _event("message_stop")

    def fail(self, error: RequestFailed) -> bytes:
        # Claude Code repeats the request if no block has ended, and twice more after an
        # `api_error`. A worker may have been paid by now, so a block comes first, and a failure of
        # the server has its own name.
        sent = b""
        if self._blocks == 0 and self._open is None:
            sent = self.add_reasoning(0, error.message)
        body = MESSAGES.failure(error)
        if error.status >= 500:
            body["error"]["type"] = error.code
        return sent + self._close() + event(body, "error")

    def _add(self, kind: int | Literal["text"], block: Json, key: str, text: str) -> bytes:
        """Add a text to the open block, which ``block`` begins if another kind is open."""
        if not text:
            return b""
        sent = b"" if self._open == kind else self._begin(kind, block)
        return sent + self._delta({"type": f"{key}_delta", key: text})

    def _begin(self, kind: int | Literal["text", "call"], block: Json) -> bytes:
        sent = self._close()
        self._open = kind
        return sent + _event("content_block_start", index=self._blocks, content_block=block)

    def _delta(self, delta: Json) -> bytes:
        return _event("content_block_delta", index=self._blocks, delta=delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        sent = b""
        if isinstance(self._open, int):
            sent = self._delta({"type": "signature_delta", "signature": SIGNATURE})
        sent += _event("content_block_stop", index=self._blocks)
        self._open = None
        self._blocks += 1
        return sent


def _event(kind: str, **fields: object) -> bytes:
    return event({"type": kind, **fields}, kind)


class _Messages:
    name = "messages"
    path = "/v1/messages"
    body: type[wire.Body] = MessagesBody

    def read(self, body: Json) -> wire.ClientRequest:
        message = wire.read_body(MessagesBody, body)
        options = _options(message)
        if message.top_p is not None:
            options["top_p"] = message.top_p
        if message.stop_sequences:
            options["stop"] = message.stop_sequences
        sampling = Sampling(message.temperature, message.max_tokens, None, options)
        turns = _turns(message)
        return wire.ClientRequest(message, message.model, turns, sampling, bool(message.stream))

    def answer(self, request: wire.ClientRequest, answer: ServedAnswer, *, created: int) -> Json:
        content: list[Json] = [
            {"type": "thinking", "thinking": text, "signature": SIGNATURE}
            for text in answer.thoughts
            if text
        ]
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        content += map(_tool_use, answer.tool_calls)
        return _message(request, answer.episode.id, content, _ending(answer), _usage(answer))

    def stream(
        self, request: wire.ClientRequest, episode: str, *, created: int
    ) -> wire.AnswerStream:
        return _Stream(request, episode)

    def failure(self, error: RequestFailed) -> Json:
        default = "invalid_request_error" if error.status < 500 else "api_error"
        message = error.message
        if error.code == "context_length_exceeded":
            # Claude Code shortens the conversation, and asks again, by these words.
            message = f"prompt is too long: {message}"
        kind = _ERROR_TYPES.get(error.status, default)
        return {"type": "error", "error": {"type": kind, "message": message, "code": error.code}}


MESSAGES: Final[wire.Api] = _Messages()
