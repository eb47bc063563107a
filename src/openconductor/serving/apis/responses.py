"""OpenAI's Responses: how a request is read, and what an answer says of it.

The form is that of platform.openai.com/docs/api-reference/responses; ``response_items`` writes what
is answered. Codex brings its users' MCP servers as ``namespace`` tools, and edits files with a
``custom`` one: both are offered to the workers as functions, and a call of one goes back out in the
form that it came in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Literal, cast

from pydantic import Field, WithJsonSchema

from openconductor.context import merge_turns
from openconductor.serving.apis import wire
from openconductor.serving.apis.response_items import ClientTool, ResponseItems
from openconductor.serving.apis.wire import (
    Json,
    RequestFailed,
    as_object,
    invalid,
    read_text,
    short,
)
from openconductor.types import Message, Role, Sampling

_HOSTED = ("reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
           "mcp_list_tools", "mcp_call")  # fmt: skip
"""Items of the vendor's own work; no worker can read them."""
_ROLES: Mapping[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_DEFAULTS: Json = {
    "background": False, "completed_at": None, "error": None, "incomplete_details": None, "instructions": None,
    "max_output_tokens": None, "max_tool_calls": None, "metadata": {}, "parallel_tool_calls": True,
    "previous_response_id": None, "prompt_cache_key": None, "safety_identifier": None, "service_tier": "default",
    "store": True, "temperature": 1.0, "tool_choice": "auto", "top_logprobs": 0, "top_p": 1.0,
    "truncation": "disabled", "usage": None, "user": None,
}  # fmt: skip
_FUNCTION: Json = {"description": None, "parameters": None, "strict": False}
"""What a response says of what its request, or a function of it, left open."""
_LONGEST_NAME = 64  # characters of a function's name, at OpenAI and others


class ResponsesBody(wire.Body):
    """The body of ``POST /v1/responses``."""

    input: Annotated[object, WithJsonSchema({"type": ["string", "array"]})] = None
    instructions: str | None = None
    previous_response_id: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: list[Json] | None = None
    tool_choice: object = None
    parallel_tool_calls: bool | None = None
    text: Json | None = None
    reasoning: Json | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────
def _flat(name: str, namespace: object) -> str:
    """The name of the function that stands for a tool, which a namespace may qualify."""
    whole = f"{namespace}__{name}" if namespace else name
    if not namespace or len(whole) <= _LONGEST_NAME:
        return whole
    return f"{whole[: _LONGEST_NAME - 9]}_{sha256(whole.encode()).hexdigest()[:8]}"


def _tools(given: Sequence[Json]) -> dict[str, ClientTool]:
    """The tools that a worker can be offered, by the names of their functions; hosted and unknown ones are left out."""
    offered: dict[str, ClientTool] = {}
    for where, tool, namespace in _flattened(given):
        kind = tool.get("type")
        if kind not in ("function", "custom"):
            continue
        name = read_text(tool, "name", where)
        function: Json = {"name": _flat(name, namespace)}
        if kind == "custom":
            text = {"type": "string", "description": "The whole input of the tool, as it is."}
            schema = {"type": "object", "properties": {"input": text}, "required": ["input"]}
            function |= {
                "description": _described(tool),
                "parameters": {**schema, "additionalProperties": False},
            }
        else:
            function |= _given(tool, "description", "parameters", "strict")
            if not isinstance(function.get("parameters", {}), dict):
                raise invalid(
                    f"{where}.parameters",
                    f"got {short(function['parameters'])}, expected a JSON schema",
                )
        offered[function["name"]] = ClientTool(name, function, namespace, kind == "custom")
    return offered


def _flattened(given: Sequence[Json]) -> Iterator[tuple[str, Json, str | None]]:
    """Each tool: where it is, what it is, the namespace that it is in."""
    for index, tool in enumerate(given):
        where = f"tools.{index}"
        if tool.get("type") != "namespace":
            yield where, tool, None
            continue
        for inner, entry in enumerate(_list(tool.get("tools"))):
            yield f"{where}.tools.{inner}", as_object(entry), read_text(tool, "name", where)


def _described(tool: Json) -> str:
    """What a free-form tool is, for a worker that calls it as a function."""
    words = [
        str(tool.get("description") or ""),
        "Call it with one argument, `input`: the text itself.",
    ]
    form = as_object(tool.get("format"))
    if form.get("definition"):
        words.append(
            f"The text must match this grammar ({form.get('syntax')}):\n{form['definition']}"
        )
    return "\n".join(filter(None, words))


def _wished(asked: ResponsesBody) -> Json:
    """The tools, which of them may or must be called, and the form of the answer, as chat completions name them."""
    offered = _tools(asked.tools or ())
    choice, kept = _choice(asked.tool_choice, offered)
    wished: Json = {
        "top_p": asked.top_p,
        "response_format": _form((asked.text or {}).get("format")),
    }
    if kept:
        tools = [{"type": "function", "function": offered[name].function} for name in kept]
        wished |= {
            "tools": tools,
            "tool_choice": choice,
            "parallel_tool_calls": asked.parallel_tool_calls,
        }
    return _given(wished, *wished)


def _form(given: object) -> Json | None:
    form = as_object(given or {"type": "text"})
    kind = form.get("type")
    if kind == "json_schema":
        read_text(form, "name", "text.format")
        if not isinstance(form.get("schema"), dict):
            raise invalid(
                "text.format.schema", f"got {short(form.get('schema'))}, expected a JSON schema"
            )
        return {"type": kind, kind: _given(form, "name", "description", "schema", "strict")}
    if kind not in ("text", "json_object"):
        raise invalid(
            "text.format.type", f"got {short(kind)}, expected text, json_object or json_schema"
        )
    return None if kind == "text" else {"type": kind}


def _choice(choice: object, offered: Mapping[str, ClientTool]) -> tuple[object, list[str]]:
    """A choice of tools in the form of chat completions, and the names of the functions that are offered."""
    names, where = list(offered), "tool_choice"
    if isinstance(choice, dict):
        chosen = cast("Json", choice)
        if chosen.get("type") == "allowed_tools":
            allowed = [_named(as_object(one)) for one in _list(chosen.get("tools"))]
            names, choice = [name for name in names if name in allowed], chosen.get("mode")
        elif _named(chosen) in offered:
            return {"type": "function", "function": {"name": _named(chosen)}}, names
        else:
            raise invalid(
                where,
                f"got {short(chosen)}, expected a function or a custom tool that is among `tools`",
            )
    if choice not in (None, "auto", "none", "required"):
        raise invalid(
            where, f"got {short(choice)}, expected 'auto', 'none', 'required' or one of the tools"
        )
    if choice == "required" and not names:
        raise invalid(
            where,
            "got 'required', expected 'auto' or 'none' where no function or custom tool is offered",
        )
    return choice, names


def _named(entry: Json) -> str | None:
    """The name of the function that an entry of ``tool_choice`` stands for; None where it is no function."""
    kinds = ("function", "custom")
    return (
        _flat(str(entry.get("name")), entry.get("namespace"))
        if entry.get("type") in kinds
        else None
    )


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────
def _turns(items: Sequence[object]) -> list[Message]:
    """The turns that items are, the system's first; what an assistant said and called in one go is one turn.

    Calls of one answer of ours are one go, also where the result of one stands before the next.
    """
    read = (_turn(as_object(item), f"input.{index}") for index, item in enumerate(items))
    groups: list[list[Message]] = []
    goes: dict[str, list[Message]] = {}  # by the episode of the answer
    for turn in sorted(filter(None, read), key=lambda turn: turn.role != "system"):
        calls = [call for part in turn.parts for call in cast("Json", part).get("tool_calls", ())]
        made = wire.called_in(calls[0]["id"]) if calls else None
        if made and made[0] in goes:
            goes[made[0]].append(turn)
            continue
        if turn.role == "assistant" and groups and groups[-1][0].role == "assistant":
            groups[-1].append(turn)
        else:
            groups.append([turn])
        if made:
            goes[made[0]] = groups[-1]
    return [*map(merge_turns, groups)]


def _turn(item: Json, where: str) -> Message | None:
    """The turn that an item is by itself; None for one that says nothing to a worker."""
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind == "message":
        role = _ROLES.get(str(item.get("role")))
        if role is None:
            raise invalid(
                f"{where}.role", f"got {short(item.get('role'))}, expected {', '.join(_ROLES)}"
            )
        text, parts = wire.read_content(item.get("content"), f"{where}.content")
        if role == "assistant" and parts:
            raise invalid(
                f"{where}.content", "got an image in a turn of the assistant, expected text"
            )
        return Message(role, text, tuple(parts)) if text or role != "assistant" else None
    if kind in ("function_call_output", "custom_tool_call_output"):
        text, parts = wire.read_content(item.get("output"), f"{where}.output")
        return Message("tool", text, (*parts, {"tool_call_id": read_text(item, "call_id", where)}))
    if kind in ("function_call", "custom_tool_call"):
        if kind == "function_call":
            arguments = read_text(item, "arguments", where) or "{}"
        else:
            arguments = json.dumps({"input": read_text(item, "input", where)}, ensure_ascii=False)
        function = {
            "name": _flat(read_text(item, "name", where), item.get("namespace")),
            "arguments": arguments,
        }
        call = {"id": read_text(item, "call_id", where), "type": "function", "function": function}
        return Message("assistant", "", ({"tool_calls": [call]},))
    if kind == "item_reference":
        named = re.fullmatch("(rs|msg)_([0-9a-f]{32})(?:_[0-9]+)?", read_text(item, "id", where))
        if named is None:
            raise invalid(
                f"{where}.id", f"got {short(item['id'])}, expected reasoning or a message of ours"
            )
        return Message("assistant", "", ({wire.RECALLS: named[2]},)) if named[1] == "msg" else None
    if kind not in _HOSTED:
        expected = "message, function_call or custom_tool_call (or an output of one), reasoning"
        raise invalid(f"{where}.type", f"got {short(kind)}, expected {expected}")
    return None


# ── values ────────────────────────────────────────────────────────────────────────────────────────
def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _given(entry: Json, *keys: str) -> Json:
    return {key: entry[key] for key in keys if entry.get(key) is not None}


# ── the API ───────────────────────────────────────────────────────────────────────────────────────
class Responses:
    """The API."""

    name = "responses"
    path = "/v1/responses"
    body: type[wire.Body] = ResponsesBody

    def read(self, body: Json) -> wire.ClientRequest:
        """What a body asks.

        Raises:
            RequestFailed: it is no such body, or asks for what cannot be done here.
        """
        asked = wire.read_body(ResponsesBody, body)
        for name in ("background", "conversation", "prompt"):
            if given := getattr(asked, name, None):
                raise invalid(name, f"got {short(given)}, expected none: it is not offered here")
        turns = (
            [Message("user", asked.input)]
            if isinstance(asked.input, str)
            else _turns(_list(asked.input))
        )
        if not turns:
            raise invalid(
                "input",
                f"got {short(asked.input)}, expected a text, or items with at least one turn",
            )
        own = (Message("system", asked.instructions),) if asked.instructions else ()
        wish = Sampling(asked.temperature, asked.max_output_tokens, None, _wished(asked))
        turns = (*own, *turns)
        return wire.ClientRequest(
            asked, asked.model, turns, wish, bool(asked.stream), _previous(asked), len(own)
        )

    def answer(
        self, request: wire.ClientRequest, answer: wire.ServedAnswer, *, created: int
    ) -> Json:
        """The body of a whole answer: what a stream of it would have ended with."""
        written = _items(request, answer.episode.id, created, silent=True)
        for part, text in enumerate(answer.thoughts):
            written.think(part, text)
        written.say(answer.text)
        written.end(answer)
        return written.response

    def stream(
        self, request: wire.ClientRequest, episode: str, *, created: int
    ) -> wire.AnswerStream:
        """A stream for one answer."""
        return _items(request, episode, created)

    failure = staticmethod(wire.openai_failure)


RESPONSES = Responses()


def _items(
    request: wire.ClientRequest, episode: str, created: int, *, silent: bool = False
) -> ResponseItems:
    """What writes an answer: it begins with what a response says of its request, and of the tools those offered."""
    body = cast("ResponsesBody", request.body)
    text: Json = body.text or {}
    shown = [
        tool for tool in body.tools or () if tool.get("type") in ("function", "custom", "namespace")
    ]
    echo = {
        **_DEFAULTS,
        **body.model_dump(include={*_DEFAULTS} & {*ResponsesBody.model_fields}, exclude_none=True),
        "model": request.model,
        "reasoning": {"effort": None, "summary": None, **(body.reasoning or {})},
        "text": {**text, "format": text.get("format") or {"type": "text"}},
        "tools": [{**_FUNCTION, **tool} if tool["type"] == "function" else tool for tool in shown],
    }
    return ResponseItems(episode, created, echo, _tools(body.tools or ()), silent=silent)


def _previous(asked: ResponsesBody) -> str | None:
    given = asked.previous_response_id
    ours = re.fullmatch("resp_([0-9a-f]{32})", given or "")
    if given and ours is None:
        words = f"previous_response_id: got {short(given)}, expected the id of an earlier answer"
        raise RequestFailed(404, "previous_response_not_found", words, param="previous_response_id")
    return ours and ours[1]
