"""Anthropic's Messages API. In: bodies of ``POST /v1/messages``. Out: its bodies and its events.

The conversation becomes turns in the form of chat completions: each result of a tool is a turn of
its own, images in it come with the user's turn after it, and what the system says amid the
conversation stands first, with all that it says (the last turn has to be the user's, or a tool's).
Thoughts that come back are dropped.

Not covered: ``top_k``, PDF documents, Anthropic's own tools and their blocks, citations, and which
stop sequence ended an answer (no worker says).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field

from openconductor.calls.options import CHARACTERS_A_TOKEN
from openconductor.serving.apis import wire
from openconductor.serving.apis.wire import (
    Json,
    RequestFailed,
    ServedAnswer,
    event,
    image_part,
    invalid,
)
from openconductor.types import Message, Sampling

SIGNATURE = "b3BlbmNvbmR1Y3Rvcg=="
"""Signs every thought: clients send it back as it is, and some drop a thought without one."""

IMAGE_TOKENS = 1600
"""What an image counts in an estimate: about the most that Anthropic takes for one."""

SHOWN_NEXT = "(It is shown next.)"  # a result that is an image and nothing else
BILLING = "x-anthropic-billing-header:"  # so begins a text that Claude Code puts first, for Anthropic alone

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "end_turn",
    "content_filter": "refusal",
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_ERRORS = {
    401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────
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


_Shown = _Text | _Image | _Document | _ToolReference
"""What a user shows, and what a tool does."""


class _ToolResult(BaseModel):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[
        list[Annotated[_Shown, Field(discriminator="type")]], BeforeValidator(_as_blocks)
    ] = []
    is_error: bool | None = None


class _ToolUse(BaseModel):
    type: Literal["tool_use"]
    id: str
    name: str
    input: Json


class _Thought(BaseModel):
    type: Literal["thinking", "redacted_thinking"]


_Block = _Shown | _ToolResult | _ToolUse | _Thought
_MAY_HOLD: Mapping[str, type[_Block] | tuple[type[_Block], ...]] = {
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
    """The body of a count of tokens: a conversation, and the tools that are offered in it."""

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


def count_tokens(body: Json) -> Json:
    """The answer to ``POST /v1/messages/count_tokens``: an estimate, for every worker counts in its own way.

    Raises:
        RequestFailed: it is not such a body.
    """
    asked = wire.read_body(CountBody, body)
    turns = _turns(asked)
    told = json.dumps(
        [
            *_wish(asked).values(),
            *(part for turn in turns for part in turn.parts if "type" not in part),
        ]
    )
    characters = len(told) + sum(len(turn.content) for turn in turns)
    images = sum("type" in part for turn in turns for part in turn.parts)
    return {"input_tokens": max(1, characters // CHARACTERS_A_TOKEN + images * IMAGE_TOKENS)}


def _turns(body: CountBody) -> tuple[Message, ...]:
    """The conversation in the form of chat completions; all that the system says is one turn, the first."""
    rules = [block.text for block in body.system or () if not block.text.startswith(BILLING)]
    turns: list[Message] = []
    for index, turn in enumerate(body.messages):
        where = f"messages.{index}.content"
        for place, block in enumerate(turn.content):
            if not isinstance(block, _MAY_HOLD[turn.role]):
                raise invalid(
                    f"{where}.{place}.type",
                    f"got {block.type!r}, which is not for the role {turn.role!r}",
                )
        if turn.role == "system":
            rules += [block.text for block in turn.content if isinstance(block, _Text)]
        else:
            turns += _user(turn.content, where) if turn.role == "user" else _assistant(turn.content)
    if not turns:
        raise invalid("messages", "got no turn of the user, expected one at least")
    said = "\n\n".join(rule for rule in rules if rule.strip())
    return (Message("system", said), *turns) if said else tuple(turns)


def _user(blocks: Sequence[_Block], where: str) -> list[Message]:
    """A turn of the user's: one for each result of a tool, and one for the rest, where there is any."""
    results: list[Message] = []
    shown: list[Json] = []
    for index, block in enumerate(blocks):
        if isinstance(block, _ToolResult):
            text, media = _content(block.content, f"{where}.{index}.content")
            text = f"Error: {text}" if block.is_error else text or (SHOWN_NEXT if media else "")
            results.append(Message("tool", text, ({"tool_call_id": block.tool_use_id},)))
            shown += media
    text, media = _content(blocks, where)
    shown += media
    return (
        [*results, Message("user", text, tuple(shown))] if text or shown or not results else results
    )


def _assistant(blocks: Sequence[_Block]) -> list[Message]:
    """A turn of the assistant's; none where it had thoughts alone."""
    text, _ = _content(blocks, "")
    calls = [
        {"id": block.id, "type": "function",
         "function": {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}}
        for block in blocks if isinstance(block, _ToolUse)
    ]  # fmt: skip
    return (
        [Message("assistant", text, ({"tool_calls": calls},) if calls else ())]
        if text or calls
        else []
    )


def _content(blocks: Sequence[_Block], where: str) -> tuple[str, list[Json]]:
    """The text of blocks and their images; ``where`` they stand in the body."""
    texts: list[str] = []
    media: list[Json] = []
    for index, block in enumerate(blocks):
        match block:
            case _Text(text=text):
                texts.append(text)
            case _Image(source=source):
                url = (
                    source.url
                    if source.type == "url"
                    else f"data:{source.media_type};{source.type},{source.data}"
                )
                media.append(image_part(url, f"{where}.{index}.source"))
            case _Document(source=source, title=title, context=context):
                if source.type not in ("text", "content"):
                    raise invalid(
                        f"{where}.{index}.source.type",
                        f"got {source.type!r}, expected a document as 'text'",
                    )
                told = (title, context, source.data, *(one.text for one in source.content))
                texts.append("\n\n".join(part for part in told if part))
            case _ToolReference(tool_name=name):
                texts.append(name)
            case _:
                pass  # calls and results have turns of their own; thoughts have none
    return "\n\n".join(text for text in texts if text), media


def _wish(body: CountBody) -> Json:
    """What the call that answers is to do, in the form of chat completions: its tools, its format."""
    wish = _tools(body)
    form = (body.output_config and body.output_config.format) or body.output_format
    if form is not None:
        schema = {"name": "answer", "schema": form.schema_, "strict": True}
        wish["response_format"] = {"type": "json_schema", "json_schema": schema}
    return wish


def _tools(body: CountBody) -> Json:
    """The tools that the client runs; Anthropic's own are left out, for nobody runs them here.

    One whose loading is deferred is on offer once the result of a tool (the client's search for
    tools) refers to it.
    """
    results = [
        block for turn in body.messages for block in turn.content if isinstance(block, _ToolResult)
    ]
    loaded = {
        one.tool_name
        for result in results
        for one in result.content
        if isinstance(one, _ToolReference)
    }
    functions: dict[str, Json] = {}
    for index, tool in enumerate(body.tools or ()):
        if tool.type not in (None, "custom") or (tool.defer_loading and tool.name not in loaded):
            continue
        if tool.name is None or tool.input_schema is None:
            absent = "name" if tool.name is None else "input_schema"
            raise invalid(
                f"tools.{index}.{absent}", "got none, expected one, as every tool of a client's has"
            )
        function: Json = {"name": tool.name, "parameters": tool.input_schema}
        function |= {"description": tool.description} if tool.description else {}
        function |= {"strict": True} if tool.strict else {}
        functions[tool.name] = {"type": "function", "function": function}
    wish: Json = {"tools": [*functions.values()]} if functions else {}
    choice = body.tool_choice
    if choice is None or (not functions and choice.type in ("auto", "none")):
        return wish
    if not functions or (choice.type == "tool" and choice.name not in functions):
        got, listed = choice.name or choice.type, ", ".join(functions) or "there is none"
        problem = f"got {got!r}, expected one of the client's own tools ({listed}); Anthropic's cannot be called here"
        raise invalid("tool_choice", problem)
    wish["tool_choice"] = _CHOICES.get(choice.type) or {
        "type": "function",
        "function": {"name": choice.name},
    }
    return wish | ({"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {})


# ── what is told ──────────────────────────────────────────────────────────────────────────────────
def _tool_use(call: Json) -> Json:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": name,
        "input": wire.read_arguments(arguments),
    }


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
    """Why it ended. Calls that the limit of tokens cut are no calls to make."""
    calls = answer.tool_calls and answer.finish_reason in ("stop", "tool_calls")
    reason = "tool_use" if calls else _STOP_REASONS[answer.finish_reason]
    refused = (
        {"type": "refusal", "category": None, "explanation": None} if reason == "refusal" else None
    )
    return {"stop_reason": reason, "stop_sequence": None, "stop_details": refused}


def _message(
    request: wire.ClientRequest, episode: str, content: Sequence[Json], ending: Json, usage: Json
) -> Json:
    head = {"id": f"msg_{episode}", "type": "message", "role": "assistant", "model": request.model}
    return {**head, "content": [*content], **ending, "usage": usage}


class _Stream:
    """An answer as events: blocks one after the other, each open until something else is told."""

    def __init__(self, request: wire.ClientRequest, episode: str) -> None:
        self._request, self._episode = request, episode
        self._blocks = 0
        self._open: int | Literal["text", "call"] | None = None
        """What is told in the open block: a part of the thoughts by its number, the text, or a call of a tool."""

    def begin(self) -> bytes:
        ending = {"stop_reason": None, "stop_sequence": None, "stop_details": None}
        usage = {
            "input_tokens": 0,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        }
        return _event(
            "message_start", message=_message(self._request, self._episode, (), ending, usage)
        )

    def think(self, part: int, text: str) -> bytes:
        return self._tell(part, "thinking", text, signature="")

    def say(self, text: str) -> bytes:
        return self._tell("text", "text", text)

    def beat(self) -> bytes:
        return _event("ping")

    def end(self, answer: ServedAnswer) -> bytes:
        told = b""
        for call in answer.tool_calls:
            block = _tool_use(call)
            given = json.dumps(block["input"], ensure_ascii=False)
            told += self._begin("call", {**block, "input": {}})
            told += self._delta({"type": "input_json_delta", "partial_json": given})
        told += self._close()
        return (
            told
            + _event("message_delta", delta=_ending(answer), usage=_usage(answer))
            + _event("message_stop")
        )

    def fail(self, error: RequestFailed) -> bytes:
        # Claude Code asks all over again where no block has ended, and twice more after an
        # `api_error`. By now a worker may have been paid: a failure comes after a block, and one of
        # ours under its own name.
        begun = self.think(0, error.message) if not self._blocks and self._open is None else b""
        body = MESSAGES.failure(error)
        if error.status >= 500:
            body["error"]["type"] = error.code
        return begun + self._close() + event(body, "error")

    def _tell(self, told: int | Literal["text"], kind: str, text: str, **more: str) -> bytes:
        """A piece of a block of this kind, in a new one where another is open."""
        if not text:
            return b""
        begun = b"" if self._open == told else self._begin(told, {"type": kind, kind: "", **more})
        return begun + self._delta({"type": f"{kind}_delta", kind: text})

    def _begin(self, told: int | Literal["text", "call"], block: Json) -> bytes:
        closed = self._close()
        self._open = told
        return closed + _event("content_block_start", index=self._blocks, content_block=block)

    def _delta(self, delta: Json) -> bytes:
        return _event("content_block_delta", index=self._blocks, delta=delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        thought = isinstance(self._open, int)
        signed = (
            self._delta({"type": "signature_delta", "signature": SIGNATURE}) if thought else b""
        )
        closed = signed + _event("content_block_stop", index=self._blocks)
        self._open = None
        self._blocks += 1
        return closed


def _event(kind: str, **fields: object) -> bytes:
    return event({"type": kind, **fields}, kind)


class _Messages:
    name = "messages"
    path = "/v1/messages"
    body: type[wire.Body] = MessagesBody

    def read(self, body: Json) -> wire.ClientRequest:
        asked = wire.read_body(MessagesBody, body)
        more = {"top_p": asked.top_p, "stop": asked.stop_sequences or None}
        wish = _wish(asked) | {name: value for name, value in more.items() if value is not None}
        sampling = Sampling(asked.temperature, asked.max_tokens, None, wish)
        return wire.ClientRequest(asked, asked.model, _turns(asked), sampling, bool(asked.stream))

    def answer(self, request: wire.ClientRequest, answer: ServedAnswer, *, created: int) -> Json:
        thoughts = (
            {"type": "thinking", "thinking": text, "signature": SIGNATURE}
            for text in answer.thoughts
            if text
        )
        said = [{"type": "text", "text": answer.text}] if answer.text else []
        content = [*thoughts, *said, *map(_tool_use, answer.tool_calls)]
        return _message(request, answer.episode.id, content, _ending(answer), _usage(answer))

    def stream(
        self, request: wire.ClientRequest, episode: str, *, created: int
    ) -> wire.AnswerStream:
        return _Stream(request, episode)

    def failure(self, error: RequestFailed) -> Json:
        kind = _ERRORS.get(
            error.status, "invalid_request_error" if error.status < 500 else "api_error"
        )
        # Claude Code shortens a conversation, and asks again, by these words.
        too_long = "prompt is too long: " if error.code == "context_length_exceeded" else ""
        return {
            "type": "error",
            "error": {"type": kind, "message": too_long + error.message, "code": error.code},
        }


MESSAGES: Final[wire.Api] = _Messages()
