"""The server's description of itself, as OpenAPI 3.1 (``GET /openapi.json``).

In: the APIs. Out: a document whose requests are the models that read them, and whose answers are
what each API writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

import openconductor
from openconductor.serving.apis.messages import CountBody
from openconductor.serving.apis.wire import Api, Json

_TEXT: Json = {"type": "string"}
_TYPES: dict[object, Json] = {
    str: _TEXT,
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number"},
}


def _schema(form: object) -> Json:
    """The JSON schema of a form.

    A dict is an object that has these keys, but for those in ``name?``; a list is a list of such; a
    tuple is either of them; a type is any value of it; and everything else is that very value.
    """
    if isinstance(form, dict):
        held = cast("dict[str, object]", form)
        properties = {name.removesuffix("?"): _schema(inner) for name, inner in held.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": [name for name in held if name[-1] != "?"],
        }
    if isinstance(form, list):
        return {"type": "array", "items": _schema(cast("list[object]", form)[0])}
    if isinstance(form, tuple):
        return {"anyOf": [_schema(one) for one in cast("tuple[object, ...]", form)]}
    return _TYPES.get(form, {"const": form})


_COSTS = {"input_tokens": int, "output_tokens": int, "dollars": str, "unpriced_calls": int}
_BILL = {
    **_COSTS,
    "episode": str,
    "seconds": float,
    "calls": [{**_COSTS, "worker": str, "attempts": int}],
}
_CALL = {"id": str, "type": "function", "function": {"name": str, "arguments": str}}
_CHOICE = {
    "index": 0,
    "message": {
        "role": "assistant",
        "content": (str, None),
        "reasoning_content?": str,
        "tool_calls?": [_CALL],
    },
    "finish_reason": ("stop", "length", "tool_calls", "content_filter"),
}
ANSWERS = {
    "chat": _schema({
        "id": str, "object": "chat.completion", "created": int, "model": str, "choices": [_CHOICE],
        "usage": {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int, "orchestration": _BILL},
    }),
    "responses": _schema({
        "id": str, "object": "response", "created_at": float, "model": str, "status": ("completed", "incomplete"),
        "output": [{"type": str}],
        "usage": {"input_tokens": int, "output_tokens": int, "total_tokens": int, "orchestration": _BILL},
    }),
    "messages": _schema({
        "id": str, "type": "message", "role": "assistant", "model": str, "stop_reason": str,
        "content": [{"type": ("text", "thinking", "tool_use")}],
        "usage": {"input_tokens": int, "output_tokens": int, "orchestration": _BILL},
    }),
    "count_tokens": _schema({"input_tokens": int}),
}  # fmt: skip
"""What each API answers with under 200, by its name."""
_MODEL = {"id": str, "object": "model", "created": int, "owned_by": str}
_STATE = {"status": str}
_GETS: dict[str, tuple[str, object]] = {
    "/v1/models": ("the models", {"object": "list", "data": [_MODEL]}),
    "/v1/models/{name}": ("a model", _MODEL),
    "/v1/episodes/{identifier}": (
        "an episode, to the key that made it",
        {"id": str, "outcome": str},
    ),
    "/health/live": ("the process answers", _STATE),
    "/health/ready": ("requests are taken", _STATE),
}
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def _said(what: str, schema: Json, kind: str = "application/json") -> Json:
    return {"description": what, "content": {kind: {"schema": schema}}}


def openapi(apis: Sequence[Api]) -> Json:
    """The document."""
    failure = _said(
        "what was wrong: where, what was got, what was expected",
        _schema({"error": {"message": str}}),
    )
    paths: Json = {}
    schemas: Json = {}
    posts = [(api.path, api.name, api.body) for api in apis]
    for path, name, kind in (*posts, ("/v1/messages/count_tokens", "count_tokens", CountBody)):
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {}) | {kind.__name__: schema}
        body = {"$ref": f"#/components/schemas/{kind.__name__}"}
        answer = _said("the answer; with `stream` as server-sent events", ANSWERS[name])
        if name != "count_tokens":
            answer["content"]["text/event-stream"] = {"schema": _TEXT}
        paths[path] = {"post": {
            "operationId": name,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {"200": answer, "4XX": failure, "5XX": failure},
        }}  # fmt: skip
    for path, (what, form) in _GETS.items():
        named = re.findall(r"{(\w+)}", path)
        given = [
            {"name": name, "in": "path", "required": True, "schema": {**_TEXT, "minLength": 1}}
            for name in named
        ]
        told = {
            "200": _said(what, _schema(form)),
            "4XX": failure,
            "503": _said("not now", _schema(_STATE)),
        }
        paths[path] = {"get": {"parameters": given, "responses": told}}
    paths["/metrics"] = {
        "get": {"responses": {"200": _said("for Prometheus", _TEXT, "text/plain")}}
    }
    about = {"title": "OpenConductor", "version": openconductor.__version__}
    security = [{name: list[str]()} for name in _KEYS] + [{}]
    return {"openapi": "3.1.0", "info": about, "paths": paths, "security": security,
            "components": {"schemas": schemas, "securitySchemes": _KEYS}}  # fmt: skip
