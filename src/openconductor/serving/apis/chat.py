"""OpenAI's Chat Completions (platform.openai.com/docs/api-reference/chat).

Reasoning is ``reasoning_content`` beside ``content``, as DeepSeek and vLLM have it; a heartbeat is
an empty chunk.
"""

from __future__ import annotations

from typing import Annotated, Literal, cast

from pydantic import Field

from openconductor.serving.apis import wire
from openconductor.serving.apis.options import OpenAIBody, ToolChoice, offer_tools, read_format
from openconductor.serving.apis.wire import (
    Json,
    RequestFailed,
    as_object,
    event,
    invalid,
    short,
    unexpected,
)
from openconductor.types import Message, Sampling

Count = Annotated[int, Field(ge=1)]
_OPTIONS = {
    "stop",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "reasoning_effort",
}
"""Options that reach the worker that answers as they are."""


# ── reading ───────────────────────────────────────────────────────────────────────────────────────
class Function(wire.Open):
    """A function that the client offers, or a call of it."""

    name: str
    description: str | None = None
    parameters: Json | None = None
    arguments: str | None = None
    strict: bool | None = None


class ToolEntry(wire.Open):
    """A tool of the client, or (with an ``id``) a call of it."""

    type: str = "function"
    id: str | None = None
    function: Function | None = None


class ChatTurn(wire.Open):
    """One message of the conversation."""

    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: str | list[Json] | None = None
    tool_calls: list[ToolEntry] | None = None
    tool_call_id: str | None = None


class ChatBody(OpenAIBody):
    """The body of ``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatTurn], Field(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: Count | None = None
    logit_bias: dict[str, float] | None = None
    reasoning_effort: str | None = None
    tools: list[ToolEntry] | None = None
    tool_choice: Literal["none", "auto", "required"] | Json | None = None
    response_format: Json | None = None


class ChatCompletions:
    """The API."""

    name = "chat"
    path = "/v1/chat/completions"
    body: type[wire.Body] = ChatBody
    failure = staticmethod(wire.openai_failure)

    def read(self, body: Json) -> wire.ClientRequest:
        """Return the request of a body.

        Raises:
            RequestFailed: the body is invalid, or asks for something that is not offered here.
        """
        chat = wire.read_body(ChatBody, body)
        if chat.n is not None and chat.n > 1:
            raise invalid("n", f"got {chat.n}, expected 1: each answer is a workflow of its own")
        chat.check()
        turns = tuple(_turn(turn, f"messages.{index}") for index, turn in enumerate(chat.messages))
        limit = chat.max_completion_tokens or chat.max_tokens
        options = Sampling(chat.temperature, limit, chat.seed, _options(chat))
        return wire.ClientRequest(
            body=chat,
            model=chat.model,
            turns=turns,
            options=options,
            stream=bool(chat.stream),
            store=chat.store is not False,
        )

    def answer(
        self, request: wire.ClientRequest, answer: wire.ServedAnswer, *, created: int
    ) -> Json:
        """Return the body of a whole answer."""
        message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.thoughts:
            message["reasoning_content"] = "\n\n".join(answer.thoughts)
        if answer.tool_calls:
            message["tool_calls"] = list(answer.tool_calls)
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": answer.finish_reason,
        }
        head = _head("chat.completion", answer.episode.id, created, request.model)
        return {**head, "choices": [choice], "usage": _usage(answer)}

    def stream(
        self, request: wire.ClientRequest, episode: str, *, created: int
    ) -> wire.AnswerStream:
        """Return a stream for one answer."""
        return _Chunks(request, episode, created)


CHAT = ChatCompletions()


def _options(chat: ChatBody) -> Json:
    """Return the options of the call that answers; only functions are offered to workers."""
    options = chat.model_dump(include=_OPTIONS, exclude_none=True)
    if chat.response_format is not None:
        where = "response_format"
        described = as_object(chat.response_format.get("json_schema"))
        kind = chat.response_format.get("type")
        options |= read_format(kind, described, where, f"{where}.json_schema")
    functions = {
        tool.function.name: tool.model_dump(exclude_none=True)
        for tool in chat.tools or ()
        if tool.type == "function" and tool.function
    }
    if chat.tool_choice is not None and not chat.tools:
        raise invalid("tool_choice", f"got {short(chat.tool_choice)}, which requires `tools`")
    return options | offer_tools(functions, _choice(chat), chat.parallel_tool_calls)


def _choice(chat: ChatBody) -> ToolChoice:
    choice = chat.tool_choice
    if not isinstance(choice, dict):
        return ToolChoice(choice)
    kind = choice.get("type")
    if kind == "function":
        return ToolChoice(function=_function_name(choice))
    if kind != "allowed_tools":
        raise unexpected("tool_choice.type", kind, "a `function` or `allowed_tools`")
    allowed = as_object(choice.get("allowed_tools"))
    mode = allowed.get("mode")
    if mode not in ("auto", "required"):
        raise unexpected("tool_choice.allowed_tools.mode", mode, "auto or required")
    names = [_function_name(as_object(entry)) for entry in wire.as_list(allowed.get("tools"))]
    if not names:
        raise invalid("tool_choice.allowed_tools.tools", "expected at least one function")
    return ToolChoice(mode, allowed=names)


def _function_name(entry: Json) -> str:
    return str(as_object(entry.get("function")).get("name"))


def _turn(turn: ChatTurn, where: str) -> Message:
    text, parts = wire.read_content(turn.content or "", f"{where}.content")
    if turn.tool_calls:
        calls = [
            _call(call, f"{where}.tool_calls.{index}") for index, call in enumerate(turn.tool_calls)
        ]
        parts.append({"tool_calls": calls})
    if turn.role == "tool":
        if turn.tool_call_id is None:
            raise invalid(f"{where}.tool_call_id", "missing, expected the id of the tool call")
        parts.append({"tool_call_id": turn.tool_call_id})
    role = "system" if turn.role == "developer" else turn.role
    return Message(role, text, tuple(parts))


def _call(call: ToolEntry, where: str) -> Json:
    if call.id is None or call.function is None:
        raise invalid(where, "expected a function call with `id` and `function`")
    return wire.tool_call(call.id, call.function.name, call.function.arguments or "{}")


# ── writing ───────────────────────────────────────────────────────────────────────────────────────
def _head(kind: str, episode: str, created: int, model: str) -> Json:
    return {"id": f"chatcmpl-{episode}", "object": kind, "created": created, "model": model}


def _usage(answer: wire.ServedAnswer) -> Json:
    used = answer.episode.usage
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "orchestration": answer.orchestration,
    }


class _Chunks:
    """Writes one answer as chunks."""

    def __init__(self, request: wire.ClientRequest, episode: str, created: int) -> None:
        self._head = _head("chat.completion.chunk", episode, created, request.model)
        options = cast("ChatBody", request.body).stream_options
        self._with_usage = options is not None and bool(options.include_usage)
        self._part = 0

    def begin(self) -> bytes:
        """Send the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def add_reasoning(self, part: int, text: str) -> bytes:
        """Add to the reasoning, with a blank line between the parts."""
        if part > self._part:
            text = f"\n\n{text}"
        self._part = part
        return self._chunk({"reasoning_content": text})

    def add_text(self, text: str) -> bytes:
        """Add to the text."""
        return self._chunk({"content": text})

    def heartbeat(self) -> bytes:
        """Send an empty chunk. LangChain's ``stream_chunk_timeout`` ignores comments."""
        return self._chunk({})

    def end(self, answer: wire.ServedAnswer) -> bytes:
        """Send the tool calls, the finish reason, and the usage if it was asked for."""
        sent = b""
        if answer.tool_calls:
            calls = [{"index": index, **call} for index, call in enumerate(answer.tool_calls)]
            sent = self._chunk({"tool_calls": calls})
        sent += self._chunk({}, answer.finish_reason)
        if self._with_usage:
            sent += event({**self._head, "choices": [], "usage": _usage(answer)})
        return sent + b"data: [DONE]\n\n"

    def fail(self, error: RequestFailed) -> bytes:
        """Send an error object, which clients raise, and no ``[DONE]``."""
        return event(wire.openai_failure(error))

    def _chunk(self, delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head, "choices": [choice]})
