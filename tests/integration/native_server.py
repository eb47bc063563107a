"""Answers in the form of Anthropic's and Google's public API references, for ``chat_server``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from chat_server import Answer, ChatServer, chat_server


@asynccontextmanager
async def native_server(*answers: Answer, port: int = 0) -> AsyncIterator[ChatServer]:
    """Serve the answers in order on a port of 127.0.0.1, by default a free one."""
    async with chat_server(*answers, port=port) as server:
        server.url = server.url.removesuffix("/v1")
        yield server


# ── Anthropic: Messages ───────────────────────────────────────────────────────────────────────────
def message(
    *content: dict[str, Any], stop: str | None = "end_turn", **usage: Any
) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-m",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 5, **usage},
    }


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def start(**usage: Any) -> bytes:
    return event(
        "message_start",
        message={**message(stop=None), "usage": {"input_tokens": 12, "output_tokens": 1, **usage}},
    )


def block(index: int, opened: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    return [
        event("content_block_start", index=index, content_block=opened),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def said(*pieces: str, index: int = 0) -> list[bytes]:
    return block(index, text(""), *({"type": "text_delta", "text": piece} for piece in pieces))


def end(stop: str | None = "end_turn", **usage: Any) -> list[bytes]:
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [
        event("message_delta", delta=delta, usage={"output_tokens": 5, **usage}),
        event("message_stop"),
    ]


# ── Google: generateContent ───────────────────────────────────────────────────────────────────────
def response(
    *parts: dict[str, Any], finish: str | None = "STOP", usage: dict[str, Any] | None = None
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": "gemini-m",
        "responseId": "r1",
    }


def data(body: object) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\r\n\r\n"
