"""OpenAI's Responses (platform.openai.com/docs/api-reference/responses).

``response_tools`` reads the tools of a request, ``response_items`` writes the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, cast

from pydantic import Field, WithJsonSchema

from openconductor.context import merge_turns
from openconductor.serving.apis import wire
from openconductor.serving.apis.options import OpenAIBody, offer_tools, read_format
from openconductor.serving.apis.response_items import ResponseItems
from openconductor.serving.apis.response_tools import flat_name, read_choice, read_tools
from openconductor.serving.apis.wire import (
    Json,
    RequestFailed,
    as_list,
    as_object,
    invalid,
    read_text,
    short,
    unexpected,
)
from openconductor.types import Message, Role, Sampling

_HOSTED = (
    "reasoning",
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_list_tools",
    "mcp_call",
)
"""Items of the vendor's own work, which no worker can read."""
_ROLES: Mapping[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_DEFAULTS: Json = {
    "background": False,
    "completed_at": None,
    "error": None,
    "frequency_penalty": 0.0,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "usage": None,
    "user": None,
}
"""Fields of a response that its request left open."""
_FUNCTION: Json = {"description": None, "parameters": None, "strict": False}
"""Fields of a function that the request left open."""
_PENALTIES = ("presence_penalty", "frequency_penalty")
_RESPONSE_ID = re.compile("resp_([0-9a-f]{32})")
_ITEM_ID = re.compile("(rs|msg)_([0-9a-f]{32})(?:_[0-9]+)?")


class ResponsesBody(OpenAIBody):
    """The body of ``POST /v1/responses``."""

    input: Annotated[object, WithJsonSchema({"type": ["string", "array"]})] = None
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: list[Json] | None = None
    tool_choice: object = None
    text: Json | None = None
    reasoning: Json | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


_ECHOED = {*_DEFAULTS} & {*ResponsesBody.model_fields}
_SETTINGS = (_ECHOED | {"model", "reasoning", "text"}) - {"instructions"}
"""Fields that are kept for reading an answer again; instructions and tools are kept anyway."""


class Responses:
    """The API."""

    name = "responses"
    path = "/v1/responses"
    body: type[wire.Body] = ResponsesBody
    failure = staticmethod(wire.openai_failure)

    def read(self, body: Json) -> wire.ClientRequest:
        """Return the request of a body.

        Raises:
            RequestFailed: the body is invalid, or asks for something that is not offered here.
        """
        given = wire.read_body(ResponsesBody, body)
        for name in ("background", "conversation", "prompt"):
            if getattr(given, name, None):
                raise invalid(name, f"got {short(getattr(given, name))}, which is not offered here")
        given.check()
        turns = _read_input(given.input)
        if given.instructions:
            turns.insert(0, Message("system", given.instructions))
        options = given.model_dump(include={"top_p", *_PENALTIES}, exclude_none=True)
        effort = (given.reasoning or {}).get("effort")
        if effort is not None:
            options["reasoning_effort"] = read_text(given.reasoning or {}, "effort", "reasoning")
        form = as_object((given.text or {}).get("format") or {"type": "text"})
        options |= read_format(form.get("type"), form, "text.format", "text.format")
        tools = read_tools(given.tools or ())
        choice = read_choice(given.tool_choice)
        functions = {name: tool.function for name, tool in tools.items()}
        options |= offer_tools(functions, choice, given.parallel_tool_calls)
        return wire.ClientRequest(
            body=given,
            model=given.model,
            turns=tuple(turns),
            options=Sampling(given.temperature, given.max_output_tokens, None, options),
            stream=bool(given.stream),
            previous=_read_previous(given.previous_response_id),
            instructed=1 if given.instructions else 0,
            store=given.store is not False,
            settings=given.model_dump(include=_SETTINGS, exclude_none=True),
        )

    def answer(
        self, request: wire.ClientRequest, answer: wire.ServedAnswer, *, created: int
    ) -> Json:
        """Return the body of a whole answer: the last event of its stream."""
        items = _write_items(request, answer.episode.id, created, silent=True)
        for part, text in enumerate(answer.thoughts):
            items.add_reasoning(part, text)
        items.add_text(answer.text)
        items.end(answer)
        return items.response

    def stream(
        self, request: wire.ClientRequest, episode: str, *, created: int
    ) -> wire.AnswerStream:
        """Return a stream for one answer."""
        return _write_items(request, episode, created)


RESPONSES = Responses()


def _write_items(
    request: wire.ClientRequest, episode: str, created: int, *, silent: bool = False
) -> ResponseItems:
    """Return the writer of an answer, with the fields that repeat the request."""
    body = cast("ResponsesBody", request.body)
    tools: list[Json] = []
    for tool in body.tools or ():
        if tool.get("type") == "function":
            tools.append({**_FUNCTION, **tool})
        elif tool.get("type") in ("custom", "namespace"):
            tools.append(tool)
    text: Json = body.text or {}
    echo = {
        **_DEFAULTS,
        **body.model_dump(include=_ECHOED, exclude_none=True),
        "model": request.model,
        "reasoning": {"effort": None, "summary": None, **(body.reasoning or {})},
        "text": {**text, "format": text.get("format") or {"type": "text"}},
        "tools": tools,
    }
    return ResponseItems(episode, created, echo, read_tools(body.tools or ()), silent=silent)


def read_id(identifier: str) -> str | None:
    """Return the episode of a response's id. None: it is not such an id."""
    match = _RESPONSE_ID.fullmatch(identifier)
    return None if match is None else match[1]


def _read_previous(identifier: str | None) -> str | None:
    """Return the episode of an earlier response."""
    if not identifier:
        return None
    episode = read_id(identifier)
    if episode is None:
        where = "previous_response_id"
        message = f"{where}: got {short(identifier)}, which is not the id of an earlier answer"
        raise RequestFailed(404, "previous_response_not_found", message, param=where)
    return episode


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────
def _read_input(given: object) -> list[Message]:
    """Return the turns of a request's input."""
    if isinstance(given, str):
        return [Message("user", given)]
    turns = _read_items(as_list(given))
    if not turns:
        raise unexpected("input", given, "a text, or items with a turn")
    return turns


def _read_items(items: Sequence[object]) -> list[Message]:
    """Return the turns of items, system turns first.

    What the assistant wrote and called in one answer is one turn. The calls of one of this server's
    answers belong together even if the result of one stands before the next.
    """
    turns: list[Message] = []
    for index, item in enumerate(items):
        turn = _read_item(as_object(item), f"input.{index}")
        if turn is not None:
            turns.append(turn)
    turns.sort(key=lambda turn: turn.role != "system")
    groups: list[list[Message]] = []
    by_episode: dict[str, list[Message]] = {}
    for turn in turns:
        episode = _calling_episode(turn)
        if episode in by_episode:
            by_episode[episode].append(turn)
            continue
        if turn.role == "assistant" and groups and groups[-1][0].role == "assistant":
            groups[-1].append(turn)
        else:
            groups.append([turn])
        if episode is not None:
            by_episode[episode] = groups[-1]
    return [merge_turns(group) for group in groups]


def _calling_episode(turn: Message) -> str | None:
    """Return the episode of a turn's tool call; None: no call, or not this server's."""
    if not turn.tool_calls:
        return None
    call = wire.parse_call_id(turn.tool_calls[0]["id"])
    return None if call is None else call[0]


def _read_item(item: Json, where: str) -> Message | None:
    """Return the turn of an item; None: it says nothing to a worker."""
    kind = item.get("type")
    if kind is None and "role" in item:
        kind = "message"
    match kind:
        case "message":
            return _read_message(item, where)
        case "function_call_output" | "custom_tool_call_output":
            text, parts = wire.read_content(item.get("output"), f"{where}.output")
            parts.append({"tool_call_id": read_text(item, "call_id", where)})
            return Message("tool", text, tuple(parts))
        case "function_call":
            return _call_turn(item, read_text(item, "arguments", where) or "{}", where)
        case "custom_tool_call":
            text = {"input": read_text(item, "input", where)}
            return _call_turn(item, json.dumps(text, ensure_ascii=False), where)
        case "item_reference":
            return _read_reference(item, where)
        case _:
            if kind in _HOSTED:
                return None
            expected = "message, function_call or custom_tool_call (or an output of one), reasoning"
            raise unexpected(f"{where}.type", kind, expected)


def _read_message(item: Json, where: str) -> Message | None:
    role = _ROLES.get(str(item.get("role")))
    if role is None:
        raise unexpected(f"{where}.role", item.get("role"), ", ".join(_ROLES))
    text, parts = wire.read_content(item.get("content"), f"{where}.content")
    if role == "assistant":
        if parts:
            raise invalid(f"{where}.content", "got an image of the assistant's, expected text")
        if not text:
            return None
    return Message(role, text, tuple(parts))


def _call_turn(item: Json, arguments: str, where: str) -> Message:
    name = flat_name(read_text(item, "name", where), item.get("namespace"))
    call = wire.tool_call(read_text(item, "call_id", where), name, arguments)
    return Message("assistant", "", ({"tool_calls": [call]},))


def _read_reference(item: Json, where: str) -> Message | None:
    match = _ITEM_ID.fullmatch(read_text(item, "id", where))
    if match is None:
        raise unexpected(f"{where}.id", item["id"], "the id of an earlier message")
    if match[1] == "rs":
        return None
    return Message("assistant", "", ({wire.RECALLS: match[2]},))
