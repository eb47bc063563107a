"""Earlier answers of the Responses API: read, their input listed, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from openconductor.prompt import check_turns
from openconductor.serving.apis.responses import RESPONSES, ResponsesBody, read_id
from openconductor.serving.apis.wire import (
    ClientRequest,
    Json,
    RequestFailed,
    answering_step,
    as_json,
    invalid,
    read_body,
)
from openconductor.serving.gateway import Gateway
from openconductor.serving.history import EarlierAnswer, tool_call_id
from openconductor.serving.key_ring import KeyRing
from openconductor.serving.turn import served_answer
from openconductor.types import Episode, Message, Sampling


class _Page(BaseModel):
    """The part of a list that a request asks for."""

    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class JsonPage(JSONResponse):
    """JSON as every API sends it."""

    def render(self, content: object) -> bytes:
        """Return the body."""
        return as_json(content)


class ResponsePages:
    """The paths below ``/v1/responses``. Each key reads its own answers."""

    def __init__(self, gateway: Gateway, keys: KeyRing) -> None:
        self._gateway = gateway
        self._keys = keys

    def routes(self) -> list[Route]:
        """Return the routes."""
        path = f"{RESPONSES.path}/{{identifier}}"
        return [
            Route(path, self.response, methods=["GET"]),
            Route(path, self.delete, methods=["DELETE"]),
            Route(f"{path}/input_items", self.input_items, methods=["GET"]),
        ]

    async def response(self, request: Request) -> Response:
        """Answer ``GET /v1/responses/ID``."""
        if request.query_params.get("stream", "false") != "false":
            raise invalid("stream", "a kept answer is not streamed; leave it out")
        return JsonPage(rebuild(*await self._find(request)))

    async def input_items(self, request: Request) -> Response:
        """Answer ``GET /v1/responses/ID/input_items``."""
        answer, _ = await self._find(request)
        return JsonPage(_page(request, input_items(answer)))

    async def delete(self, request: Request) -> Response:
        """Answer ``DELETE /v1/responses/ID``."""
        answer, _ = await self._find(request)
        identifier = answer.episode.id
        self._gateway.history.delete(identifier, answer.record["key"])
        await self._gateway.store.wait_durable()
        return JsonPage({"id": f"resp_{identifier}", "object": "response", "deleted": True})

    async def _find(self, request: Request) -> tuple[EarlierAnswer, Mapping[str, Any]]:
        """Return the answer that a path names, and what else was shown of it.

        Raises:
            RequestFailed: the key has no such answer.
        """
        tenant = self._keys.find(request.headers)
        await self._gateway.store.wait_durable()
        episode = read_id(request.path_params["identifier"])
        if episode is not None:
            find = self._gateway.history.response
            kept = await asyncio.to_thread(find, episode, tenant.name)
            if kept is not None:
                return kept
        message = "this key has no such response, or it was not stored"
        raise RequestFailed(404, "response_not_found", message)


def rebuild(kept: EarlierAnswer, shown: Mapping[str, Any]) -> Json:
    """Return an answer as it was sent; ``shown`` are its request's settings, and the reasoning."""
    episode = kept.episode
    settings: Json = {**shown["settings"], "tools": _tools(episode)}
    if kept.record["instructed"]:
        settings["instructions"] = check_turns(episode.question)[0].content
    body = ResponsesBody.model_validate(settings)
    request = ClientRequest(body, body.model, (), Sampling(), stream=False)
    answer = served_answer(episode, shown["thoughts"], episode.workers)
    return RESPONSES.answer(request, answer, created=int(kept.record["began"]))


def _tools(episode: Episode) -> list[Json]:
    """Return the functions that the worker that answered was offered."""
    step = answering_step(episode)
    offered: Any = step.calls[-1].sampling.body.get("tools", ()) if step and step.calls else ()
    return [{"type": "function", **tool["function"]} for tool in offered]


# ── input items ───────────────────────────────────────────────────────────────────────────────────
def input_items(kept: EarlierAnswer) -> list[Json]:
    """Return the conversation of an answer as items, the first turn first."""
    items = [item for turn in kept.turns for item in _items(turn)]
    for index, item in enumerate(items):
        item["id"] = f"item_{kept.episode.id}_{index}"
    return items


def _items(turn: Message) -> Iterator[Json]:
    """Yield the items of a turn."""
    calls = turn.tool_calls
    content = _content(turn)
    if turn.role == "tool":
        output = content if len(turn.parts) > 1 else turn.content
        call = tool_call_id(turn)
        yield {"type": "function_call_output", "call_id": call, "output": output}
    elif content or not calls:
        yield {"type": "message", "role": turn.role, "status": "completed", "content": content}
    for call in calls:
        function = call["function"]
        yield {
            "type": "function_call",
            "status": "completed",
            "call_id": call["id"],
            "name": function["name"],
            "arguments": function["arguments"],
        }


def _content(turn: Message) -> list[Json]:
    content: list[Json] = []
    if turn.content and turn.role == "assistant":
        content.append({"type": "output_text", "text": turn.content, "annotations": []})
    elif turn.content:
        content.append({"type": "input_text", "text": turn.content})
    for part in cast("tuple[Json, ...]", turn.parts):
        if part.get("type") == "image_url":
            image = part["image_url"]
            detail = image.get("detail", "auto")
            content.append({"type": "input_image", "image_url": image["url"], "detail": detail})
    return content


def _page(request: Request, items: list[Json]) -> Json:
    """Return the part of a list that a request asks for."""
    page = read_body(_Page, dict(request.query_params))
    if page.order == "desc":
        items.reverse()
    if page.after is not None:
        names = [item["id"] for item in items]
        if page.after not in names:
            raise invalid("after", "no item has this id")
        items = items[names.index(page.after) + 1 :]
    shown = items[: page.limit]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(items) > page.limit,
    }
