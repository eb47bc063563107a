"""An answer in the form of OpenAI's Responses: items, and events that describe them.

The orchestration is shown as the summary of reasoning items. A heartbeat is an empty delta: Codex
ignores comments, and openai-node rejects events that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from openconductor.serving.apis.wire import Json, RequestFailed, ServedAnswer, event, read_arguments

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_CODES = {402: "insufficient_quota", 429: "rate_limit_exceeded"}


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool of the client: its name there, and the function that stands for it."""

    name: str
    function: Json
    namespace: str | None = None
    custom: bool = False


class ResponseItems:
    """Writes one answer as items, and the events that describe them.

    At most one item is open: reasoning, whose last part is open, or a message. Closed items are
    kept as they were sent, so that the response at the end equals the stream.

    Args:
        episode: names the response and its items.
        created: seconds since 1970.
        echo: fields of the response that repeat the request.
        tools: those of the client, by the names of their functions.
        silent: True: only ``response`` is wanted, and every method returns b"".
    """

    def __init__(
        self, episode: str, created: int, echo: Json, tools: dict[str, ClientTool], *, silent: bool
    ) -> None:
        self.response: Json = {
            "id": f"resp_{episode}",
            "object": "response",
            "created_at": created,
            "status": "in_progress",
            "output": [],
            **echo,
        }
        self._episode = episode
        self._tools = tools
        self._silent = silent
        self._numbers = count()
        self._done: list[Json] = []
        self._messages = 0
        self._open: Json = {}
        self._texts: list[str] = []  # of the open part
        self._part: int | None = None  # of the reasoning; None: a heartbeat opened it

    # ── the stream ────────────────────────────────────────────────────────────────────────────────
    def begin(self) -> bytes:
        """Open the response."""
        sent = self._event("response.created", response=self.response)
        return sent + self._event("response.in_progress", response=self.response)

    def add_reasoning(self, part: int, text: str) -> bytes:
        """Add to a part of the summary, in a new item if a message has begun since."""
        sent = self._open_reasoning()
        if self._part not in (None, part):
            sent += self._end_part() + self._begin_part()
        self._part = part
        return sent + self._delta(text)

    def add_text(self, text: str) -> bytes:
        """Add to the message."""
        return self._open_message() + self._delta(text) if text else b""

    def heartbeat(self) -> bytes:
        """Add an empty delta to the open item; if there is none, open reasoning."""
        sent = b"" if self._open else self._open_reasoning()
        return sent + self._delta("")

    def end(self, answer: ServedAnswer) -> bytes:
        """Add the tool calls, and end the response. It has an item at least: an empty message."""
        reason = _INCOMPLETE.get(answer.finish_reason)
        status = "completed" if reason is None else "incomplete"
        sent = b""
        if answer.tool_calls:
            sent += self._close("completed")
        else:
            if self._messages == 0:
                sent += self._open_message()
            sent += self._close(status)
        for index, call in enumerate(answer.tool_calls):
            sent += self._add_call(index, call, status)
        self.response |= {"status": status, "output": self._done, "usage": _usage(answer)}
        if reason is None:
            seconds = round(answer.episode.seconds)
            self.response["completed_at"] = self.response["created_at"] + seconds
        else:
            self.response["incomplete_details"] = {"reason": reason}
        return sent + self._event(f"response.{status}", response=self.response)

    def fail(self, error: RequestFailed) -> bytes:
        """Send an error, which OpenAI's clients raise, then the response so far, which Codex reads.

        The open item is not closed in the stream, because Codex would take a closed message for
        complete.
        """
        described = _describe(error)
        # The fields come twice: inside, as the vendor's server sends them, and outside, as its
        # documentation has them.
        sent = self._event(
            "error",
            error=described,
            code=described["code"],
            message=described["message"],
            param=error.param,
        )
        self._silent = True
        self._close("incomplete")
        self._silent = False
        self.response |= {"status": "failed", "error": described, "output": self._done}
        return sent + self._event("response.failed", response=self.response)

    # ── items ─────────────────────────────────────────────────────────────────────────────────────
    def _open_reasoning(self) -> bytes:
        """Open a reasoning item, unless one is open."""
        if self._open.get("type") == "reasoning":
            return b""
        sent = self._close()
        self._part = None
        identifier = f"rs_{self._episode}_{len(self._done)}"
        sent += self._begin_item({"id": identifier, "type": "reasoning", "summary": []})
        return sent + self._begin_part()

    def _begin_part(self) -> bytes:
        self._texts = []
        part = {"type": "summary_text", "text": ""}
        return self._part_event("response.reasoning_summary_part.added", part=part)

    def _end_part(self) -> bytes:
        part = {"type": "summary_text", "text": "".join(self._texts)}
        sent = self._part_event("response.reasoning_summary_text.done", text=part["text"])
        sent += self._part_event("response.reasoning_summary_part.done", part=part)
        self._open["summary"].append(part)
        return sent

    def _open_message(self) -> bytes:
        """Open a message, unless one is open."""
        if self._open.get("type") == "message":
            return b""
        sent = self._close()
        self._texts = []
        identifier = f"msg_{self._episode}"
        if self._messages:
            identifier += f"_{self._messages}"
        self._messages += 1
        sent += self._begin_item(
            {
                "id": identifier,
                "type": "message",
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            }
        )
        return sent + self._part_event("response.content_part.added", part=_text_part(""))

    def _add_call(self, index: int, call: Json, status: str) -> bytes:
        """Add a tool call, which is complete at once."""
        name = call["function"]["name"]
        arguments = call["function"]["arguments"]
        tool = self._tools.get(name) or ClientTool(name, {})
        kind, key, prefix = "function_call", "arguments", "fc"
        if tool.custom:
            kind, key, prefix = "custom_tool_call", "input", "ctc"
            text = (read_arguments(arguments) or {}).get("input")
            if isinstance(text, str):  # otherwise the worker wrote the text itself
                arguments = text
        item: Json = {
            "id": f"{prefix}_{self._episode}{index:02d}",
            "type": kind,
            "status": "in_progress",
            "call_id": call["id"],
            "name": tool.name,
            key: "",
        }
        if tool.namespace is not None:
            item["namespace"] = tool.namespace
        sent = self._begin_item(item)
        event_name = f"response.{kind}_{key}"
        sent += self._item_event(f"{event_name}.delta", delta=arguments)
        item[key] = arguments
        done = {key: arguments} if tool.custom else {"name": tool.name, key: arguments}
        sent += self._item_event(f"{event_name}.done", **done)
        return sent + self._close(status)

    def _begin_item(self, item: Json) -> bytes:
        self._open = item
        return self._event("response.output_item.added", output_index=len(self._done), item=item)

    def _close(self, status: str = "completed") -> bytes:
        """Close the open item."""
        item = self._open
        if not item:
            return b""
        sent = b""
        if item["type"] == "reasoning":
            sent = self._end_part()
        elif item["type"] == "message":
            text = "".join(self._texts)
            sent = self._part_event("response.output_text.done", text=text, logprobs=[])
            sent += self._part_event("response.content_part.done", part=_text_part(text))
            item |= {"status": status, "content": [_text_part(text)]}
        else:
            item["status"] = status
        sent += self._event("response.output_item.done", output_index=len(self._done), item=item)
        self._done.append(item)
        self._open = {}
        return sent

    # ── events ────────────────────────────────────────────────────────────────────────────────────
    def _delta(self, text: str) -> bytes:
        """Add a text to the open part."""
        self._texts.append(text)
        if self._open["type"] == "message":
            return self._part_event("response.output_text.delta", delta=text, logprobs=[])
        return self._part_event("response.reasoning_summary_text.delta", delta=text)

    def _part_event(self, name: str, **fields: Any) -> bytes:
        """Return an event of the open part."""
        summary = self._open.get("summary")
        if summary is None:
            return self._item_event(name, content_index=0, **fields)
        return self._item_event(name, summary_index=len(summary), **fields)

    def _item_event(self, kind: str, **fields: Any) -> bytes:
        """Return an event of the open item."""
        return self._event(kind, item_id=self._open["id"], output_index=len(self._done), **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        if self._silent:
            return b""
        return event({"type": kind, "sequence_number": next(self._numbers), **fields}, kind)


def _text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(answer: ServedAnswer) -> Json:
    used = answer.episode.usage
    return {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "total_tokens": used.tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "orchestration": answer.orchestration,
    }


def _describe(error: RequestFailed) -> Json:
    """Return a failure under a code that clients act on; ``type`` is this server's own code.

    Codex repeats the request on ``rate_limit_exceeded`` (after the time that the message names) and
    on ``server_error``. It stops at the others, of which ``context_length_exceeded`` and
    ``insufficient_quota`` are not in the vendor's list.
    """
    default = "invalid_prompt" if error.status < 500 else "server_error"
    code = _CODES.get(error.status, default)
    if error.code == "context_length_exceeded":
        code = error.code
    message = error.message
    if error.status == 429 and error.retry_after:
        message += f" Please try again in {error.retry_after:g}s."
    return {"code": code, "message": message, "param": error.param, "type": error.code}
