"""OpenAI's Responses: how a request is read, and how an answer and a stream are written.

The form is that of platform.openai.com/docs/api-reference/responses. What is shown of the orchestration is the summary
of reasoning items; the beat is an empty delta, for Codex ignores comments and openai-node refuses unknown events.
Codex brings its users' MCP servers as ``namespace`` tools, and edits files with a ``custom`` one: both are offered to
the workers as functions, and a call of one goes back out in the form that it came in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from reprlib import repr as short
from typing import Annotated, Any, Literal, cast

from pydantic import Field, WithJsonSchema

from openconductor.serving import wire
from openconductor.serving.wire import ClientRequest, Json, RequestFailed, ServedAnswer, invalid
from openconductor.types import Message, Role, Sampling, Usage

Status = Literal["completed", "incomplete"]
_HOSTED = ("reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
           "mcp_list_tools", "mcp_call")  # fmt: skip
"""Items of the vendor's own work; no worker can read them."""
_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_LEVELS: Mapping[str, wire.Reasoning] = {"concise": "summary", "detailed": "full"}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_CODES = {402: "insufficient_quota", 429: "rate_limit_exceeded"}
_TYPES = {401: "authentication_error", 402: "insufficient_quota", 403: "permission_error", 404: "not_found_error",
          429: "rate_limit_error"}  # fmt: skip
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


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Tool:
    """A tool of the client: what it is called there, and the function that stands for it."""

    name: str
    function: Json
    namespace: str | None = None
    custom: bool = False


def _flat(name: str, namespace: object) -> str:
    """The name of the function that stands for a tool, which a namespace may qualify."""
    whole = f"{namespace}__{name}" if namespace else name
    if not namespace or len(whole) <= _LONGEST_NAME:
        return whole
    return f"{whole[: _LONGEST_NAME - 9]}_{sha256(whole.encode()).hexdigest()[:8]}"


def _tools(given: Sequence[Json]) -> dict[str, _Tool]:
    """The tools that a worker can be offered, by the names of their functions; hosted and unknown ones are left out."""
    offered: dict[str, _Tool] = {}
    for where, tool, namespace in _flattened(given):
        kind = tool.get("type")
        if kind not in ("function", "custom"):
            continue
        name = _string(tool, "name", where)
        function: Json = {"name": _flat(name, namespace)}
        if kind == "custom":
            text = {"type": "string", "description": "The whole input of the tool, as it is."}
            schema = {"type": "object", "properties": {"input": text}, "required": ["input"]}
            function |= {"description": _described(tool), "parameters": {**schema, "additionalProperties": False}}
        else:
            function |= _given(tool, "description", "parameters", "strict")
            if not isinstance(function.get("parameters", {}), dict):
                raise invalid(f"{where}.parameters", f"got {short(function['parameters'])}, expected a JSON schema")
        offered[function["name"]] = _Tool(name, function, namespace, kind == "custom")
    return offered


def _flattened(given: Sequence[Json]) -> Iterator[tuple[str, Json, str | None]]:
    """Each tool: where it is, what it is, the namespace that it is in."""
    for index, tool in enumerate(given):
        where = f"tools.{index}"
        if tool.get("type") != "namespace":
            yield where, tool, None
            continue
        for inner, entry in enumerate(_list(tool.get("tools"))):
            yield f"{where}.tools.{inner}", _object(entry), _string(tool, "name", where)


def _described(tool: Json) -> str:
    """What a free-form tool is, for a worker that calls it as a function."""
    words = [str(tool.get("description") or ""), "Call it with one argument, `input`: the text itself."]
    form = _object(tool.get("format"))
    if form.get("definition"):
        words.append(f"The text must match this grammar ({form.get('syntax')}):\n{form['definition']}")
    return "\n".join(filter(None, words))


def _wished(asked: ResponsesBody) -> Json:
    """The tools, which of them may or must be called, and the form of the answer, as chat completions name them."""
    offered = _tools(asked.tools or ())
    choice, kept = _choice(asked.tool_choice, offered)
    wished: Json = {"top_p": asked.top_p, "response_format": _form((asked.text or {}).get("format"))}
    if kept:
        tools = [{"type": "function", "function": offered[name].function} for name in kept]
        wished |= {"tools": tools, "tool_choice": choice, "parallel_tool_calls": asked.parallel_tool_calls}
    return _given(wished, *wished)


def _form(given: object) -> Json | None:
    form = _object(given or {"type": "text"})
    kind = form.get("type")
    if kind == "json_schema":
        _string(form, "name", "text.format")
        if not isinstance(form.get("schema"), dict):
            raise invalid("text.format.schema", f"got {short(form.get('schema'))}, expected a JSON schema")
        return {"type": kind, kind: _given(form, "name", "description", "schema", "strict")}
    if kind not in ("text", "json_object"):
        raise invalid("text.format.type", f"got {short(kind)}, expected text, json_object or json_schema")
    return None if kind == "text" else {"type": kind}


def _choice(choice: object, offered: Mapping[str, _Tool]) -> tuple[object, list[str]]:
    """A choice of tools in the form of chat completions, and the names of the functions that are offered."""
    names, where = list(offered), "tool_choice"
    if isinstance(choice, dict):
        chosen = cast("Json", choice)
        if chosen.get("type") == "allowed_tools":
            allowed = [_named(_object(one)) for one in _list(chosen.get("tools"))]
            names, choice = [name for name in names if name in allowed], chosen.get("mode")
        elif _named(chosen) in offered:
            return {"type": "function", "function": {"name": _named(chosen)}}, names
        else:
            raise invalid(where, f"got {short(chosen)}, expected a function or a custom tool that is among `tools`")
    if choice not in (None, "auto", "none", "required"):
        raise invalid(where, f"got {short(choice)}, expected 'auto', 'none', 'required' or one of the tools")
    if choice == "required" and not names:
        raise invalid(where, "got 'required', expected 'auto' or 'none' where no function or custom tool is offered")
    return choice, names


def _named(entry: Json) -> str | None:
    """The name of the function that an entry of ``tool_choice`` stands for; None where it is no function."""
    kinds = ("function", "custom")
    return _flat(str(entry.get("name")), entry.get("namespace")) if entry.get("type") in kinds else None


# ── turns ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _turns(items: Sequence[object]) -> list[Message]:
    """The turns that items are, the system's first; what an assistant said and called in one go is one turn."""
    read = (_turn(_object(item), f"input.{index}") for index, item in enumerate(items))
    turns: list[Message] = []
    for turn in sorted(filter(None, read), key=lambda turn: turn.role != "system"):
        if turn.role == "assistant" and turns and turns[-1].role == "assistant":
            both = (turns.pop(), turn)
            calls = [call for one in both for part in one.parts for call in cast("Json", part)["tool_calls"]]
            text = "\n\n".join(one.content for one in both if one.content)
            turns.append(Message("assistant", text, (wire.tool_turns(calls),) if calls else ()))
        else:
            turns.append(turn)
    return turns


def _turn(item: Json, where: str) -> Message | None:
    """The turn that an item is by itself; None for one that says nothing to a worker."""
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind == "message":
        role = _ROLES.get(str(item.get("role")))
        if role is None:
            raise invalid(f"{where}.role", f"got {short(item.get('role'))}, expected {', '.join(_ROLES)}")
        text, parts = _content(item.get("content"), f"{where}.content")
        if role == "assistant" and parts:
            raise invalid(f"{where}.content", "got an image in a turn of the assistant, expected text")
        return Message(role, text, tuple(parts)) if text or role != "assistant" else None
    if kind in ("function_call_output", "custom_tool_call_output"):
        text, parts = _content(item.get("output"), f"{where}.output")
        return Message("tool", text, (*parts, {"tool_call_id": _string(item, "call_id", where)}))
    if kind in ("function_call", "custom_tool_call"):
        if kind == "function_call":
            arguments = _string(item, "arguments", where) or "{}"
        else:
            arguments = json.dumps({"input": _string(item, "input", where)}, ensure_ascii=False)
        function = {"name": _flat(_string(item, "name", where), item.get("namespace")), "arguments": arguments}
        call = {"id": _string(item, "call_id", where), "type": "function", "function": function}
        return Message("assistant", "", (wire.tool_turns([call]),))
    if kind not in _HOSTED:
        expected = "message, function_call or custom_tool_call (or an output of one), reasoning"
        raise invalid(f"{where}.type", f"got {short(kind)}, expected {expected}")
    return None


def _content(content: object, where: str) -> tuple[str, list[Mapping[str, object]]]:
    """The text of a turn, or of what a tool gave, and its images."""
    if isinstance(content, str):
        return content, []
    given = _list(content)
    if not given and content != []:
        raise invalid(where, f"got {short(content)}, expected a text or a list of parts")
    texts: list[str] = []
    images: list[Mapping[str, object]] = []
    for index, part in enumerate(map(_object, given)):
        place, kind = f"{where}.{index}", part.get("type")
        if kind in ("input_text", "output_text", "text", "refusal"):
            texts.append(_string(part, "refusal" if kind == "refusal" else "text", place))
        elif kind == "input_image":
            detail = part["detail"] if part.get("detail") in ("auto", "low", "high") else None
            images.append(wire.image_part(part.get("image_url"), f"{place}.image_url", detail))
        else:
            raise invalid(f"{place}.type", f"got {short(kind)}, expected text, or input_image with a data URL")
    return "\n".join(texts), images


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def _string(entry: Json, key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str):
        raise invalid(f"{where}.{key}", f"got {short(value)}, expected a string")
    return value


def _object(value: object) -> Json:
    """An object; an empty one, which is refused for what it lacks, in place of anything else."""
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _given(entry: Json, *keys: str) -> Json:
    return {key: entry[key] for key in keys if entry.get(key) is not None}


# ── the API ──────────────────────────────────────────────────────────────────────────────────────────────────────────
class Responses:
    """The API."""

    name = "responses"
    path = "/v1/responses"
    body = ResponsesBody

    def read(self, body: Json) -> ClientRequest:
        """What a body asks.

        Raises:
            RequestFailed: it is no such body, or asks for what cannot be done here.
        """
        asked = wire.read_body(ResponsesBody, body)
        for name in ("background", "conversation", "prompt"):
            if given := getattr(asked, name, None):
                raise invalid(name, f"got {short(given)}, expected none: it is not offered here")
        turns = [Message("user", asked.input)] if isinstance(asked.input, str) else _turns(_list(asked.input))
        if not turns:
            raise invalid("input", f"got {short(asked.input)}, expected a text, or items with at least one turn")
        control, level = asked.conductor or wire.Control(), _LEVELS.get(str((asked.reasoning or {}).get("summary")))
        if level and control.reasoning is None:
            asked.conductor = control.model_copy(update={"reasoning": level})
        own = (Message("system", asked.instructions),) if asked.instructions else ()
        wish = Sampling(asked.temperature, asked.max_output_tokens, None, _wished(asked))
        turns = (*own, *turns)
        return ClientRequest(asked, asked.model, turns, wish, bool(asked.stream), _previous(asked), len(own))

    def answer(self, request: ClientRequest, answer: ServedAnswer, *, created: int) -> Json:
        """The body of a whole answer: what a stream of it would have ended with."""
        written = _Items(request, answer.episode.id, created, silent=True)
        for part, text in enumerate(answer.thoughts):
            written.think(part, text)
        written.say(answer.text)
        written.end(answer)
        return written.response

    def stream(self, request: ClientRequest, episode: str, *, created: int) -> wire.AnswerStream:
        """A stream for one answer."""
        return _Items(request, episode, created)

    def failure(self, error: RequestFailed) -> Json:
        """The body of a failure."""
        kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
        return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


RESPONSES = Responses()


def _previous(asked: ResponsesBody) -> str | None:
    given = asked.previous_response_id
    ours = re.fullmatch("resp_([0-9a-f]{32})", given or "")
    if given and ours is None:
        words = f"previous_response_id: there is no answer {short(given)} to go on from"
        raise RequestFailed(404, "previous_response_not_found", words, param="previous_response_id")
    return ours and ours[1]


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def _echo(request: ClientRequest) -> Json:
    """What a response says of its request; of the tools those that are offered to workers."""
    body = cast("ResponsesBody", request.body)
    text: Json = body.text or {}
    shown = [tool for tool in body.tools or () if tool.get("type") in ("function", "custom", "namespace")]
    return {
        **_DEFAULTS,
        **body.model_dump(include={*_DEFAULTS} & {*ResponsesBody.model_fields}, exclude_none=True),
        "model": request.model,
        "reasoning": {"effort": None, "summary": None, **(body.reasoning or {})},
        "text": {**text, "format": text.get("format") or {"type": "text"}},
        "tools": [{**_FUNCTION, **tool} if tool["type"] == "function" else tool for tool in shown],
    }


def _usage(answer: ServedAnswer) -> Json:
    used: Usage = answer.used
    read = {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0}
    sums = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "total_tokens": used.tokens}
    wrote = {"reasoning_tokens": used.reasoning_tokens}
    return {**sums, "input_tokens_details": read, "output_tokens_details": wrote, "orchestration": answer.orchestration}


def _error(error: RequestFailed) -> Json:
    """What failed, under a code that clients act on; ``type`` is our own.

    Codex tries again on ``rate_limit_exceeded`` (after the time that the message names) and on ``server_error``; it
    stops at the others, of which ``context_length_exceeded`` and ``insufficient_quota`` are not in the vendor's list.
    """
    known = _CODES.get(error.status, "invalid_prompt" if error.status < 500 else "server_error")
    code = error.code if error.code == "context_length_exceeded" else known
    wait = f" Please try again in {error.retry_after:g}s." if error.status == 429 and error.retry_after else ""
    return {"code": code, "message": error.message + wait, "param": error.param, "type": error.code}


def _text(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _input(arguments: str) -> str:
    """The text that a free-form tool is called with; arguments that are not ours are taken for the text."""
    try:
        text = _object(json.loads(arguments)).get("input")
    except (ValueError, RecursionError):
        return arguments
    return text if isinstance(text, str) else arguments


class _Items:
    """One answer as items, and the events that tell of them.

    One item at most is open: reasoning, whose last part is open, or a message. What is done is kept as it was sent, so
    that the response at the end is what was streamed.

    Args:
        request: what is answered.
        episode: names the response and its items.
        created: seconds since 1970.
        silent: whether only ``response`` is wanted; every method then returns b"".
    """

    def __init__(self, request: ClientRequest, episode: str, created: int, *, silent: bool = False) -> None:
        self._tools = _tools(cast("ResponsesBody", request.body).tools or ())
        head = {"id": f"resp_{episode}", "object": "response", "created_at": created, "status": "in_progress"}
        self.response: Json = {**head, "output": [], **_echo(request)}
        self._episode = episode
        self._silent = silent
        self._count = count()
        self._done: list[Json] = []
        self._messages = 0
        self._open: Json = {}  # the item that is under way
        self._pieces: list[str] = []  # of the open part
        self._part: int | None = None  # which part of the reasoning is open; None for one that a beat opened

    # ── what the gateway calls ───────────────────────────────────────────────────────────────────────────────────────
    def begin(self) -> bytes:
        """The response, and that it is under way."""
        return b"".join(self._event(f"response.{name}", response=self.response) for name in ("created", "in_progress"))

    def think(self, part: int, text: str) -> bytes:
        """A piece of a part of the summary, in a new item where a message has begun since."""
        sent = self._reason()
        if self._part not in (None, part):
            sent += self._end_part() + self._begin_part()
        self._part = part
        return sent + self._delta(text)

    def say(self, text: str) -> bytes:
        """A piece of the message."""
        return self._speak() + self._delta(text) if text else b""

    def beat(self) -> bytes:
        """An empty piece of what is open; where nothing is, reasoning is opened."""
        return (b"" if self._open else self._reason()) + self._delta("")

    def end(self, answer: ServedAnswer) -> bytes:
        """The calls of tools, and the whole response. An answer without text and calls has an empty message."""
        reason = _INCOMPLETE.get(answer.finish_reason)
        status: Status = "incomplete" if reason else "completed"
        sent = b"" if answer.tool_calls or self._messages else self._speak()
        sent += self._close("completed" if answer.tool_calls else status)
        for index, call in enumerate(answer.tool_calls):
            sent += self._call(index, call, status)
        late = self.response["created_at"] + round(answer.episode.seconds)
        ended: Json = {"incomplete_details": {"reason": reason}} if reason else {"completed_at": late}
        self.response |= {"status": status, "output": self._done, "usage": _usage(answer), **ended}
        return sent + self._event(f"response.{status}", response=self.response)

    def fail(self, error: RequestFailed) -> bytes:
        """An error, which OpenAI's clients raise, then the response as far as it came, which Codex reads.

        What is open stays so: Codex would take a closed message for said.
        """
        told = _error(error)  # as the vendor's server has it, and as its documents do
        sent = self._event("error", error=told, **_given(told, "code", "message"), param=error.param)
        self._silent = True
        self._close("incomplete")
        self._silent = False
        self.response |= {"status": "failed", "error": told, "output": self._done}
        return sent + self._event("response.failed", response=self.response)

    # ── items ────────────────────────────────────────────────────────────────────────────────────────────────────────
    def _reason(self) -> bytes:
        """Open reasoning, where it is not."""
        if self._open.get("type") == "reasoning":
            return b""
        sent = self._close()
        self._part = None
        identifier = f"rs_{self._episode}_{len(self._done)}"
        return sent + self._begin({"id": identifier, "type": "reasoning", "summary": []}) + self._begin_part()

    def _begin_part(self) -> bytes:
        self._pieces = []
        return self._at("response.reasoning_summary_part.added", part={"type": "summary_text", "text": ""})

    def _end_part(self) -> bytes:
        part = {"type": "summary_text", "text": "".join(self._pieces)}
        sent = self._at("response.reasoning_summary_text.done", text=part["text"])
        sent += self._at("response.reasoning_summary_part.done", part=part)
        self._open["summary"].append(part)
        return sent

    def _speak(self) -> bytes:
        """Open a message, where none is."""
        if self._open.get("type") == "message":
            return b""
        sent = self._close()
        self._pieces = []
        identifier = f"msg_{self._episode}" + (f"_{self._messages}" if self._messages else "")
        self._messages += 1
        item: Json = {"id": identifier, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        return sent + self._begin(item) + self._at("response.content_part.added", part=_text(""))

    def _call(self, index: int, call: Json, status: Status) -> bytes:
        """An item that is whole at once."""
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        tool = self._tools.get(name) or _Tool(name, {})
        kind, key, told, prefix = "function_call", "arguments", "function_call_arguments", "fc"
        if tool.custom:
            kind, key, told, prefix = "custom_tool_call", "input", "custom_tool_call_input", "ctc"
            arguments = _input(arguments)
        item: Json = {"id": f"{prefix}_{self._episode}{index:02d}", "type": kind, "status": "in_progress",
                      "call_id": call["id"], "name": tool.name, key: ""}  # fmt: skip
        if tool.namespace is not None:
            item["namespace"] = tool.namespace
        sent = self._begin(item) + self._event(f"response.{told}.delta", **self._place(), delta=arguments)
        item[key] = arguments
        return sent + self._event(f"response.{told}.done", **self._place(), **{key: arguments}) + self._close(status)

    def _begin(self, item: Json) -> bytes:
        self._open = item
        return self._event("response.output_item.added", output_index=len(self._done), item=item)

    def _close(self, status: Status = "completed") -> bytes:
        """End what is open."""
        item, sent = self._open, b""
        if not item:
            return b""
        if item["type"] == "reasoning":
            sent = self._end_part()
        elif item["type"] == "message":
            text = "".join(self._pieces)
            sent = self._at("response.output_text.done", text=text, logprobs=[])
            sent += self._at("response.content_part.done", part=_text(text))
            item |= {"status": status, "content": [_text(text)]}
        else:
            item["status"] = status
        sent += self._event("response.output_item.done", output_index=len(self._done), item=item)
        self._done.append(item)
        self._open = {}
        return sent

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────
    def _delta(self, text: str) -> bytes:
        """A piece of the open part."""
        self._pieces.append(text)
        if self._open["type"] == "message":
            return self._at("response.output_text.delta", delta=text, logprobs=[])
        return self._at("response.reasoning_summary_text.delta", delta=text)

    def _place(self) -> Json:
        return {"item_id": self._open["id"], "output_index": len(self._done)}

    def _at(self, name: str, **fields: Any) -> bytes:
        """An event of the open part."""
        shown = self._open.get("summary")
        part = {"content_index": 0} if shown is None else {"summary_index": len(shown)}
        return self._event(name, **self._place(), **part, **fields)

    def _event(self, name: str, **fields: Any) -> bytes:
        return b"" if self._silent else wire.event({"type": name, "sequence_number": next(self._count), **fields}, name)
