"""Turns in pydantic-ai's form. In: our messages. Out: its messages, or an error that names what has no form there."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
)

from openconductor.types import Message

Json = Mapping[str, object]


def conversation(messages: Sequence[Message], vendor: str) -> list[ModelMessage]:
    """The turns as pydantic-ai has them.

    Parts may have the shape of OpenAI (text, image_url, file), Anthropic (image, document) or Google (inlineData,
    fileData), whoever is asked; a part without a type may hold ``tool_calls`` of an assistant, or a tool's
    ``tool_call_id``.

    Raises:
        ValueError, LookupError, TypeError: a turn or a part has none of these shapes.
    """
    turns: list[ModelMessage] = []
    names: dict[str, str] = {}  # of the tools that were called, by the call's id
    for message in messages:
        fields = {key: value for part in message.parts if not _is_media(part) for key, value in part.items()}
        media = [_media(part, vendor) for part in message.parts if _is_media(part)]
        if message.role == "system":
            turns.append(ModelRequest(parts=[SystemPromptPart(message.content)]))
        elif message.role == "user":
            content: str | list[UserContent] = message.content
            if media:
                content = [message.content, *media] if message.content else media
            turns.append(ModelRequest(parts=[UserPromptPart(content)]))
        elif message.role == "assistant":
            said: list[ModelResponsePart] = [TextPart(message.content)] if message.content else []
            for call in cast("Sequence[Json]", fields.get("tool_calls", ())):
                function = cast("Mapping[str, str]", call["function"])
                names[str(call["id"])] = function["name"]
                said.append(ToolCallPart(function["name"], function["arguments"], tool_call_id=str(call["id"])))
            turns.append(ModelResponse(parts=said))
        else:
            called = str(fields["tool_call_id"])
            result = ToolReturnPart(names[called], message.content, tool_call_id=called)
            turns.append(ModelRequest(parts=[result]))
    return turns


def _is_media(part: Json) -> bool:
    return "type" in part or "inlineData" in part or "fileData" in part


def _media(part: Json, vendor: str) -> UserContent:
    kind = part.get("type")
    if kind == "text":
        return str(part["text"])
    if kind == "image_url":
        given = part["image_url"]
        return _linked(str(cast(Json, given)["url"] if isinstance(given, Mapping) else given), "image", vendor)
    if kind == "file":
        return _linked(str(cast(Json, part["file"])["file_data"]), "document", vendor)
    if kind in ("image", "document"):
        source = cast("Mapping[str, str]", part["source"])
        if source["type"] == "url":
            return _linked(source["url"], kind, vendor)
        return _inline(source["data"], source["media_type"])
    if "inlineData" in part:
        data = cast("Mapping[str, str]", part["inlineData"])
        return _inline(data["data"], data["mimeType"])
    if "fileData" in part:
        return _linked(str(cast(Json, part["fileData"])["fileUri"]), "document", vendor)
    raise ValueError(
        f"a part of type {kind!r}, expected text, image_url, file, image, document, inlineData or fileData"
    )


def _linked(url: str, kind: object, vendor: str) -> UserContent:
    if url.startswith("data:"):
        return BinaryContent.from_data_uri(url)
    link = ImageUrl(url) if kind == "image" else DocumentUrl(url)
    if vendor == "google":  # it would be downloaded here; Google fetches it itself
        return UploadedFile(url, "google", media_type=link.media_type)
    return link


def _inline(data: str, media_type: str) -> BinaryContent:
    try:
        return BinaryContent(base64.b64decode(data, validate=True), media_type=media_type)
    except binascii.Error as error:
        raise ValueError(f"data of a {media_type} that are not in base64: {error}") from error
