"""OpenAI's Chat Completions: how a request is read, and how an answer and a stream are written.

The form is that of platform.openai.com/docs/api-reference/chat. Reasoning is ``reasoning_content``
beside ``content``, as DeepSeek and vLLM have it; the beat is a chunk of nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import Field

from openconductor.serving.apis import wire
from openconductor.serving.apis.wire import Json, RequestFailed, event, invalid
from openconductor.types import Message, Sampling

Number = Annotated[float, Field(ge=-2, le=2)]
Count = Annotated[int, Field(ge=1)]
_WISHED = (
    "tools", "tool_choice", "parallel_tool_calls", "response_format", "stop", "top_p", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip


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


class StreamOptions(wire.Open):
    """What a stream holds beside the answer."""

    include_usage: bool | None = None


class ChatBody(wire.Body):
    """The body of ``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatTurn], Field(min_length=1)]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stop: str | list[str] | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    seed: int | None = None
    n: Count | None = None
    tools: list[ToolEntry] | None = None
    tool_choice: Literal["none", "auto", "required"] | Json | None = None
    parallel_tool_calls: bool | None = None
    response_format: Json | None = None
    stream_options: StreamOptions | None = None


class ChatCompletions:
    """The API."""

    name = "chat"
    path = "/v1/chat/completions"
    body: type[wire.Body] = ChatBody

    def read(self, body: Json) -> wire.ClientRequest:
        """What a body asks.

        Raises:
            RequestFailed: it is no such body, or asks for what cannot be done here.
        """
        asked = wire.read_body(ChatBody, body)
        if (asked.n or 1) > 1:
            raise invalid("n", f"got {asked.n}, expected 1: each answer is a workflow of its own")
        turns = tuple(_turn(turn, f"messages.{index}") for index, turn in enumerate(asked.messages))
        wished = asked.model_dump(include=set(_WISHED), exclude_none=True)
        offered = [
            tool
            for tool in wished.pop("tools", [])
            if tool["type"] == "function" and tool.get("function")
        ]
        if offered:
            wished["tools"] = offered
        else:
            if (choice := wished.pop("tool_choice", None)) not in (None, "none", "auto"):
                raise invalid(
                    "tool_choice",
                    f"got {choice!r}, expected 'auto' or 'none' where no function is offered",
                )
            wished.pop("parallel_tool_calls", None)
        limit = asked.max_completion_tokens or asked.max_tokens
        wish = Sampling(asked.temperature, limit, asked.seed, wished)
        return wire.ClientRequest(asked, asked.model, turns, wish, bool(asked.stream))

    def answer(
        self, request: wire.ClientRequest, answer: wire.ServedAnswer, *, created: int
    ) -> Json:
        """The body of a whole answer."""
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
        """A stream for one answer."""
        return _Chunks(request, episode, created)

    failure = staticmethod(wire.openai_failure)


CHAT = ChatCompletions()


def _turn(turn: ChatTurn, where: str) -> Message:
    text, parts = wire.read_content(turn.content or "", f"{where}.content")
    if turn.tool_calls:
        calls = [
            _call(call, f"{where}.tool_calls.{index}") for index, call in enumerate(turn.tool_calls)
        ]
        parts.append({"tool_calls": calls})
    if turn.role == "tool":
        if turn.tool_call_id is None:
            raise invalid(
                f"{where}.tool_call_id",
                "missing, expected the id of the call that this is the result of",
            )
        parts.append({"tool_call_id": turn.tool_call_id})
    return Message("system" if turn.role == "developer" else turn.role, text, tuple(parts))


def _call(call: ToolEntry, where: str) -> Json:
    if call.id is None or call.function is None:
        raise invalid(where, "expected a call of a function, with `id` and `function`")
    function = {"name": call.function.name, "arguments": call.function.arguments or "{}"}
    return {"id": call.id, "type": "function", "function": function}


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
    """One answer as chunks."""

    def __init__(self, request: wire.ClientRequest, episode: str, created: int) -> None:
        self._head = _head("chat.completion.chunk", episode, created, request.model)
        options = cast("ChatBody", request.body).stream_options
        self._with_usage = bool(options and options.include_usage)
        self._part = 0

    def begin(self) -> bytes:
        """The role."""
        return self._chunk({"role": "assistant", "content": ""})

    def think(self, part: int, text: str) -> bytes:
        """Reasoning; a blank line between the parts."""
        gap, self._part = "\n\n" if part > self._part else "", part
        return self._chunk({"reasoning_content": gap + text})

    def say(self, text: str) -> bytes:
        """Text."""
        return self._chunk({"content": text})

    def beat(self) -> bytes:
        """A chunk of nothing: LangChain waits for chunks (its ``stream_chunk_timeout``), and hears no comments."""
        return self._chunk({})

    def end(self, answer: wire.ServedAnswer) -> bytes:
        """Calls of tools, the reason, the usage where it was asked for."""
        calls = [{"index": index, **call} for index, call in enumerate(answer.tool_calls)]
        sent = self._chunk({"tool_calls": calls}) if calls else b""
        sent += self._chunk({}, answer.finish_reason)
        if self._with_usage:
            sent += event({**self._head, "choices": [], "usage": _usage(answer)})
        return sent + b"data: [DONE]\n\n"

    def fail(self, error: RequestFailed) -> bytes:
        """An error object, which clients raise; no ``[DONE]``, for it is not done."""
        return event(wire.openai_failure(error))

    def _chunk(self, delta: Json, finish: str | None = None) -> bytes:
        choice: dict[str, Any] = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish,
        }
        return event({**self._head, "choices": [choice]})
