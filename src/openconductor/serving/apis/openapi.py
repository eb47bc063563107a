"""The server's description of itself, as OpenAPI 3.1 (``GET /openapi.json``).

In: the APIs. Out: a document whose requests are the models that read them, and whose answers are what each API writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import openconductor
from openconductor.serving.apis.wire import Api, Json

_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_ANY: Json = {"type": "object"}


def _object(required: Json, **optional: Any) -> Json:
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def _list(items: Json, **rules: int) -> Json:
    return {"type": "array", "items": items, **rules}


def _either(*kinds: str) -> Json:
    return {"type": list(kinds)}


_CALL = _object({"input_tokens": _COUNT, "output_tokens": _COUNT, "dollars": _TEXT, "unpriced_calls": _COUNT})
_BILLED = _object(
    {**_CALL["properties"], "episode": _TEXT, "seconds": {"type": "number"}, "calls": _list(_CALL, minItems=0)}
)
_FUNCTION = _object({"name": _TEXT, "arguments": _TEXT})
_CALLED = _object({"id": _TEXT, "type": {"const": "function"}, "function": _FUNCTION})

ANSWERS: dict[str, Json] = {
    "chat": _object({
        "id": _TEXT,
        "object": {"const": "chat.completion"},
        "created": _COUNT,
        "model": _TEXT,
        "choices": _list(_object({
            "index": {"const": 0},
            "message": _object(
                {"role": {"const": "assistant"}, "content": _either("string", "null")},
                reasoning_content=_TEXT, tool_calls=_list(_CALLED, minItems=1),
            ),
            "finish_reason": {"enum": ["stop", "length", "tool_calls", "content_filter"]},
        }), minItems=1, maxItems=1),
        "usage": _object({
            "prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT, "orchestration": _BILLED,
        }),
    }),
    "responses": _object({
        "id": _TEXT,
        "object": {"const": "response"},
        "created_at": {"type": "number"},
        "model": _TEXT,
        "status": {"enum": ["completed", "incomplete"]},
        "output": _list(_object({"type": _TEXT})),
        "usage": _object({
            "input_tokens": _COUNT, "output_tokens": _COUNT, "total_tokens": _COUNT, "orchestration": _BILLED,
        }),
    }),
    "messages": _object({
        "id": _TEXT,
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "model": _TEXT,
        "content": _list(_object({"type": {"enum": ["text", "thinking", "tool_use"]}})),
        "stop_reason": _either("string", "null"),
        "usage": _object({"input_tokens": _COUNT, "output_tokens": _COUNT, "orchestration": _BILLED}),
    }),
}  # fmt: skip
"""What each API answers with under 200, by its name."""

_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
_MODEL = _object({"id": _TEXT, "object": {"const": "model"}, "created": _COUNT, "owned_by": _TEXT})


def _said(what: str, schema: Json, kind: str = "application/json") -> Json:
    return {"description": what, "content": {kind: {"schema": schema}}}


def openapi(apis: Sequence[Api]) -> Json:
    """The document."""
    failure = _said("what was wrong: where, what was got, what was expected", _object({"error": _ANY}))
    paths: Json = {}
    schemas: Json = {}
    for api in apis:
        schema = api.body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {}) | {api.body.__name__: schema}
        body = {"$ref": f"#/components/schemas/{api.body.__name__}"}
        answer = _said("the answer; with `stream` as server-sent events", ANSWERS[api.name])
        answer["content"]["text/event-stream"] = {"schema": _TEXT}
        paths[api.path] = {"post": {
            "operationId": api.name,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {"200": answer, "4XX": failure, "5XX": failure},
        }}  # fmt: skip
    listed = _object({"object": {"const": "list"}, "data": _list(_MODEL)})
    state = _object({"status": _TEXT})
    gets: dict[str, tuple[str, Json]] = {
        "/v1/models": ("the models", listed),
        "/v1/models/{name}": ("a model", _MODEL),
        "/v1/episodes/{identifier}": ("an episode, to the key that made it", _object({"id": _TEXT, "outcome": _TEXT})),
        "/health/live": ("the process answers", state),
        "/health/ready": ("requests are taken", state),
    }
    for path, (what, schema) in gets.items():
        named = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        given = [{"name": name, "in": "path", "required": True, "schema": {**_TEXT, "minLength": 1}} for name in named]
        paths[path] = {
            "get": {
                "parameters": given,
                "responses": {"200": _said(what, schema), "4XX": failure, "503": _said("not now", state)},
            }
        }
    paths["/metrics"] = {"get": {"responses": {"200": _said("for Prometheus", _TEXT, "text/plain")}}}
    about = {"title": "OpenConductor", "version": openconductor.__version__}
    security = [{name: list[str]()} for name in _KEYS] + [{}]
    return {"openapi": "3.1.0", "info": about, "paths": paths, "security": security,
            "components": {"schemas": schemas, "securitySchemes": _KEYS}}  # fmt: skip
