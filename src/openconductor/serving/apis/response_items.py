"""An answer in the form of OpenAI's Responses: items, and the events of a stream that tell of them.

In: pieces of reasoning and text, calls of tools, a failure. Out: server-sent events, and the
response that they come to. What is shown of the orchestration is the summary of reasoning items.
The beat is an empty delta: Codex ignores comments, and openai-node refuses events that it does not
know.
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
    """A tool of the client: what it is called there, and the function that stands for it."""

    name: str
    function: Json
    namespace: str | None = None
    custom: bool = False


def _usage(answer: ServedAnswer) -> Json:
    used = answer.episode.usage
    read = {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0}
    sums = {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "total_tokens": used.tokens,
    }
    wrote = {"reasoning_tokens": used.reasoning_tokens}
    return {
        **sums,
        "input_tokens_details": read,
        "output_tokens_details": wrote,
        "orchestration": answer.orchestration,
    }


def _error(error: RequestFailed) -> Json:
    """What failed, under a code that clients act on; ``type`` is our own.

    Codex tries again on ``rate_limit_exceeded`` (after the time that the message names) and on
    ``server_error``; it stops at the others, of which ``context_length_exceeded`` and
    ``insufficient_quota`` are not in the vendor's list.
    """
    known = _CODES.get(error.status, "invalid_prompt" if error.status < 500 else "server_error")
    code = error.code if error.code == "context_length_exceeded" else known
    wait = (
        f" Please try again in {error.retry_after:g}s."
        if error.status == 429 and error.retry_after
        else ""
    )
    return {"code": code, "message": error.message + wait, "param": error.param, "type": error.code}


def _text(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponseItems:
    """One answer as items, and the events that tell of them.

    One item at most is open: reasoning, whose last part is open, or a message. What is done is kept
    as it was sent, so that the response at the end is what was streamed.

    Args:
        episode: names the response and its items.
        created: seconds since 1970.
        echo: what the response says of its request.
        tools: those of the client, by the names of the functions that stand for them.
        silent: whether only ``response`` is wanted; every method then returns b"".
    """

    def __init__(
        self, episode: str, created: int, echo: Json, tools: dict[str, ClientTool], *, silent: bool
    ) -> None:
        head = {
            "id": f"resp_{episode}",
            "object": "response",
            "created_at": created,
            "status": "in_progress",
        }
        self.response: Json = {**head, "output": [], **echo}
        self._episode = episode
        self._tools = tools
        self._silent = silent
        self._count = count()
        self._done: list[Json] = []
        self._messages = 0
        self._open: Json = {}  # the item that is under way
        self._pieces: list[str] = []  # of the open part
        self._part: int | None = (
            None  # which part of the reasoning is open; None for one that a beat opened
        )

    # ── what the gateway calls ────────────────────────────────────────────────────────────────────
    def begin(self) -> bytes:
        """The response, and that it is under way."""
        return b"".join(
            self._event(f"response.{name}", response=self.response)
            for name in ("created", "in_progress")
        )

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
        status: str = "incomplete" if reason else "completed"
        sent = b"" if answer.tool_calls or self._messages else self._speak()
        sent += self._close("completed" if answer.tool_calls else status)
        for index, call in enumerate(answer.tool_calls):
            sent += self._call(index, call, status)
        late = self.response["created_at"] + round(answer.episode.seconds)
        ended: Json = (
            {"incomplete_details": {"reason": reason}} if reason else {"completed_at": late}
        )
        self.response |= {"status": status, "output": self._done, "usage": _usage(answer), **ended}
        return sent + self._event(f"response.{status}", response=self.response)

    def fail(self, error: RequestFailed) -> bytes:
        """An error, which OpenAI's clients raise, then the response as far as it came, which Codex reads.

        What is open stays so: Codex would take a closed message for said.
        """
        told = _error(error)
        # Its fields twice: within, as the vendor's server has them, and outside, as its documents
        # do.
        sent = self._event(
            "error", error=told, code=told["code"], message=told["message"], param=error.param
        )
        self._silent = True
        self._close("incomplete")
        self._silent = False
        self.response |= {"status": "failed", "error": told, "output": self._done}
        return sent + self._event("response.failed", response=self.response)

    # ── items ─────────────────────────────────────────────────────────────────────────────────────
    def _reason(self) -> bytes:
        """Open reasoning, where it is not."""
        if self._open.get("type") == "reasoning":
            return b""
        sent = self._close()
        self._part = None
        identifier = f"rs_{self._episode}_{len(self._done)}"
        return (
            sent
            + self._begin({"id": identifier, "type": "reasoning", "summary": []})
            + self._begin_part()
        )

    def _begin_part(self) -> bytes:
        self._pieces = []
        return self._at(
            "response.reasoning_summary_part.added", part={"type": "summary_text", "text": ""}
        )

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
        item: Json = {
            "id": identifier,
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        return sent + self._begin(item) + self._at("response.content_part.added", part=_text(""))

    def _call(self, index: int, call: Json, status: str) -> bytes:
        """An item that is whole at once."""
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        tool = self._tools.get(name) or ClientTool(name, {})
        kind, key, told, prefix = "function_call", "arguments", "function_call_arguments", "fc"
        if tool.custom:
            kind, key, told, prefix = "custom_tool_call", "input", "custom_tool_call_input", "ctc"
            text = read_arguments(arguments).get("input")
            arguments = (
                text if isinstance(text, str) else arguments
            )  # not in our form: taken for the text
        item: Json = {"id": f"{prefix}_{self._episode}{index:02d}", "type": kind, "status": "in_progress",
                      "call_id": call["id"], "name": tool.name, key: ""}  # fmt: skip
        if tool.namespace is not None:
            item["namespace"] = tool.namespace
        sent = self._begin(item) + self._event(
            f"response.{told}.delta", **self._place(), delta=arguments
        )
        item[key] = arguments
        return (
            sent
            + self._event(f"response.{told}.done", **self._place(), **{key: arguments})
            + self._close(status)
        )

    def _begin(self, item: Json) -> bytes:
        self._open = item
        return self._event("response.output_item.added", output_index=len(self._done), item=item)

    def _close(self, status: str = "completed") -> bytes:
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

    # ── events ────────────────────────────────────────────────────────────────────────────────────
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
        return (
            b""
            if self._silent
            else event({"type": name, "sequence_number": next(self._count), **fields}, name)
        )
