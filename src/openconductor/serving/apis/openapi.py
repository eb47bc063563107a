"""The server's description of itself, as OpenAPI 3.1 (``GET /openapi.json``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import openconductor
from openconductor.serving.apis.messages import CountBody
from openconductor.serving.apis.wire import Api, Body, Json
from openconductor.types import is_array, is_object

_TEXT: Json = {"type": "string"}
_TYPES: dict[object, Json] = {
    str: _TEXT,
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number"},
}


def _schema(form: object) -> Json:
    """Return the JSON schema of a form.

    A dict is an object with these keys, of which ``name?`` is optional. A list is a list of its
    element, a tuple one of its elements, a type any value of it. Everything else is that value.
    """
    if is_object(form):
        return {
            "type": "object",
            "properties": {name.removesuffix("?"): _schema(form[name]) for name in form},
            "required": [name for name in form if not name.endswith("?")],
        }
    if is_array(form):
        (element,) = form
        return {"type": "array", "items": _schema(element)}
    if isinstance(form, tuple):
        return {"anyOf": [_schema(choice) for choice in cast("tuple[object, ...]", form)]}
    return _TYPES.get(form, {"const": form})


_COSTS = {"input_tokens": int, "output_tokens": int, "dollars": str, "unpriced_calls": int}
_BILL = {
    **_COSTS,
    "episode": str,
    "seconds": float,
    "calls": [{**_COSTS, "worker": str, "attempts": int}],
}
_CALL = {"id": str, "type": "function", "function": {"name": str, "arguments": str}}
_CHAT_MESSAGE = {
    "role": "assistant",
    "content": (str, None),
    "reasoning_content?": str,
    "tool_calls?": [_CALL],
}
_CHAT_ENDINGS = ("stop", "length", "tool_calls", "content_filter")
_CHAT_USAGE = {
    "prompt_tokens": int,
    "completion_tokens": int,
    "total_tokens": int,
    "orchestration": _BILL,
}
_CHAT = {
    "id": str,
    "object": "chat.completion",
    "created": int,
    "model": str,
    "choices": [{"index": 0, "message": _CHAT_MESSAGE, "finish_reason": _CHAT_ENDINGS}],
    "usage": _CHAT_USAGE,
}
_MESSAGE_USAGE = {"input_tokens": int, "output_tokens": int, "orchestration": _BILL}
_RESPONSE_USAGE = {**_MESSAGE_USAGE, "total_tokens": int}
_RESPONSE = {
    "id": str,
    "object": "response",
    "created_at": float,
    "model": str,
    "status": ("completed", "incomplete"),
    "output": [{"type": str}],
    "usage": _RESPONSE_USAGE,
}
_MESSAGE = {
    "id": str,
    "type": "message",
    "role": "assistant",
    "model": str,
    "stop_reason": str,
    "content": [{"type": ("text", "thinking", "tool_use")}],
    "usage": _MESSAGE_USAGE,
}
ANSWERS = {
    "chat": _schema(_CHAT),
    "responses": _schema(_RESPONSE),
    "messages": _schema(_MESSAGE),
    "count_tokens": _schema({"input_tokens": int}),
}
"""The answer of each API under 200, by its name."""
_MODEL = {"id": str, "object": "model", "created": int, "owned_by": str}
_STATUS = {"status": str}
_USAGE = {"object": "usage", "key": str, "spent": str, "limit": str}
_EPISODE = {"id": str, "outcome": str}
_RESPONSE_PATH = "/v1/responses/{identifier}"
_DELETED = {"id": str, "object": "response", "deleted": True}
_ITEM = {"id": str, "type": str}
_ITEMS = {"object": "list", "data": [_ITEM], "has_more": (True, False)}
_KEY = {"object": "key", "name": str, "made": float}
_KEYS_LIST = {"object": "list", "data": [_KEY]}
_KEY_PATH = "/v1/keys/{name}"
_GETS: dict[str, tuple[str, str, object]] = {
    "/v1/models": ("", "the models", {"object": "list", "data": [_MODEL]}),
    "/v1/models/{name}": ("name", "a model", _MODEL),
    _RESPONSE_PATH: ("identifier", "an earlier answer, to the key that made it", _RESPONSE),
    f"{_RESPONSE_PATH}/input_items": ("identifier", "its conversation, as items", _ITEMS),
    "/v1/episodes/{identifier}": ("identifier", "an episode, to the key that made it", _EPISODE),
    "/v1/usage": ("", "what the key has spent of its budget", _USAGE),
    "/v1/keys": ("", "the keys in the journal, to an admin key", _KEYS_LIST),
    "/health": ("", "requests are accepted", _STATUS),
    "/health/live": ("", "the process runs", _STATUS),
    "/health/ready": ("", "requests are accepted", _STATUS),
}
"""Parameter, description and answer of each path."""
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def _response(description: str, schema: Json, kind: str = "application/json") -> Json:
    content = {kind: {"schema": schema}}
    return {"description": description, "content": content}


def _request(schema: Json) -> Json:
    content = {"application/json": {"schema": schema}}
    return {"required": True, "content": content}


_FAILURE = _response("the error", _schema({"error": {"message": str}}))


def openapi(apis: Sequence[Api]) -> Json:
    """Return the document."""
    schemas: Json = {}
    paths: Json = {}
    for api in apis:
        paths[api.path] = {"post": _ask_operation(api.name, api.body, schemas, streams=True)}
    counting = _ask_operation("count_tokens", CountBody, schemas, streams=False)
    paths["/v1/messages/count_tokens"] = {"post": counting}
    for path, (parameter, description, form) in _GETS.items():
        paths[path] = {"get": _operation(parameter, description, form)}
    paths[_RESPONSE_PATH]["delete"] = _operation("identifier", "its texts are removed", _DELETED)
    paths["/v1/keys"]["post"] = _key_operation()
    revocation = _operation("name", "the key, which is refused from now on", _KEY)
    paths[_KEY_PATH] = {"delete": revocation}
    metrics = _response("for Prometheus", _TEXT, "text/plain")
    paths["/metrics"] = {"get": {"responses": {"200": metrics}}}
    security: list[Json] = [{name: []} for name in _KEYS]
    security.append({})  # without keys the server needs none
    return {
        "openapi": "3.1.0",
        "info": {"title": "OpenConductor", "version": openconductor.__version__},
        "paths": paths,
        "security": security,
        "components": {"schemas": schemas, "securitySchemes": _KEYS},
    }


def _ask_operation(name: str, body: type[Body], schemas: Json, *, streams: bool) -> Json:
    """Return an operation that asks, and add the schemas of its body to ``schemas``."""
    schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= schema.pop("$defs", {})
    schemas[body.__name__] = schema
    reference = {"$ref": f"#/components/schemas/{body.__name__}"}
    answer = _response("the answer; with `stream` as server-sent events", ANSWERS[name])
    if streams:
        answer["content"]["text/event-stream"] = {"schema": _TEXT}
    responses = {"200": answer, "4XX": _FAILURE, "5XX": _FAILURE}
    return {"operationId": name, "requestBody": _request(reference), "responses": responses}


def _key_operation() -> Json:
    """Return the operation that makes a key."""
    wanted = _request(_schema({"name": str}))
    made = _response("the key, which is shown here alone", _schema({**_KEY, "key": str}))
    responses = {"201": made, "4XX": _FAILURE, "503": _FAILURE}
    return {"operationId": "make_key", "requestBody": wanted, "responses": responses}


def _operation(parameter: str, description: str, form: object) -> Json:
    """Return an operation without a body; ``parameter`` is the one in its path, or empty."""
    parameters: list[Json] = []
    if parameter:
        schema = {**_TEXT, "minLength": 1}
        parameters.append({"name": parameter, "in": "path", "required": True, "schema": schema})
    responses = {
        "200": _response(description, _schema(form)),
        "4XX": _FAILURE,
        "503": _response("the server is not ready", _schema(_STATUS)),
    }
    return {"parameters": parameters, "responses": responses}
