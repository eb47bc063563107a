"""The faults of the fault server, on the wire.

``FAULTS`` is the whole list. Each entry names the outcome that a journal must show for it, once for
a response in one piece and once for a stream.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faults.script import Request
    from faults.server import Exchange

Play = Callable[["Exchange"], Coroutine[Any, Any, None] | None]

DELAY = 0.05  # seconds
HUGE = 10 * 2**20  # bytes
RETRY_AFTER = "1"  # seconds, the smallest that the header can say beside none at all


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail.

    Attributes:
        play: does it.
        outcome: its name when one piece was asked for.
        streamed: the same for a stream.
        heals: True if the same call may succeed when it is made again, so that it is retried.
        speaks: True if a part of a streamed answer reaches its reader first; then it is not
            retried.
    """

    play: Play
    outcome: str
    streamed: str
    heals: bool = True
    speaks: bool = False


# ── the parts of a response ───────────────────────────────────────────────────────────────────────
def usage_of(request: Request) -> dict[str, int]:
    """The tokens that this request used: its own for each worker, the same for each repeat."""
    read, wrote = 10 + request.digest % 997, 1 + request.digest % 89
    return {"input": read, "cached": read // 3, "output": wrote, "reasoning": wrote // 4}


def wire_usage(tokens: Mapping[str, int]) -> dict[str, object]:
    """The same as the wire says it."""
    return {
        "prompt_tokens": tokens["input"],
        "completion_tokens": tokens["output"],
        "total_tokens": tokens["input"] + tokens["output"],
        "prompt_tokens_details": {"cached_tokens": tokens["cached"]},
        "completion_tokens_details": {"reasoning_tokens": tokens["reasoning"]},
    }


def text_of(request: Request) -> str:
    """The usual answer, the same of every worker, so that a fallback changes no later step."""
    return f"The answer to {request.topic:016x}."


def head(
    kind: str = "application/json", *, status: int = 200, length: int | None = None, extra: str = ""
) -> bytes:
    """Status line and headers; without a length the body is chunked."""
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = f"HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\n{size}\r\n{extra}\r\n"
    return lines.encode("latin-1")


def piece(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


END = b"0\r\n\r\n"
DONE = piece(b"data: [DONE]\n\n")
STREAM = "text/event-stream"


def event(data: object) -> bytes:
    """A server-sent event in a chunk of its own."""
    return piece(b"data: %s\n\n" % json.dumps(data).encode())


def delta(text: str | None, finish: str | None = None) -> bytes:
    """An event with a piece of text."""
    said = {} if text is None else {"content": text}
    return chunk([{"index": 0, "delta": said, "finish_reason": finish}])


def chunk(choices: object, **more: object) -> bytes:
    """An event of a stream of text."""
    return event({"object": "chat.completion.chunk", "choices": choices, **more})


def body(text: str | None, *, finish: str | None = "stop", usage: object = None) -> bytes:
    """A chat completion in one piece."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": finish,
    }
    said: dict[str, object] = {"object": "chat.completion", "choices": [choice]}
    return json.dumps(said if usage is None else said | {"usage": usage}).encode()


def error_body(message: str, code: str | None = None) -> bytes:
    """An error as servers word it."""
    return json.dumps({"error": {"message": message, "type": code, "code": code}}).encode()


def whole(
    x: Exchange, data: bytes, kind: str = "application/json", usage: dict[str, int] | None = None
) -> None:
    """A response of one piece, in order."""
    x.send(head(kind, length=len(data)) + data, status=200, usage=usage)


def half(x: Exchange) -> bytes:
    """The head and the first half of the answer."""
    if x.request.stream:
        return head(STREAM) + delta(x.text[: len(x.text) // 2])
    said = body(x.text, usage=wire_usage(usage_of(x.request)))
    return head(length=len(said)) + said[: len(said) // 2]


def kind_of(x: Exchange) -> str:
    """The content type that an answer should have."""
    return STREAM if x.request.stream else "application/json"


def begin_stream(x: Exchange) -> None:
    """Send the head of a stream and the first half of its text."""
    x.send(half(x), status=200)


# ── answers, some of them with a lie about what they cost ─────────────────────────────────────────
def answer(
    x: Exchange,
    *,
    text: str | None = "",
    finish: str | None = "stop",
    usage: object = None,
    done: bool = True,
) -> None:
    """Answer. ``text`` "": the usual one; ``usage`` None: the true one, else sent as it is."""
    said = x.text if text == "" else text
    true, shown = None, usage
    if usage is None:
        true = usage_of(x.request)
        shown = wire_usage(true)
    if not x.request.stream:
        whole(x, body(said, finish=finish, usage=shown or None), usage=true)
        return
    middle = len(said or "") // 2
    sent = delta(said[:middle]) + delta(said[middle:]) if said else delta(said)
    if finish is not None:
        sent += delta(None, finish)
    if shown:
        sent += chunk([], usage=shown)
    if done:
        sent += DONE
    x.send(head(STREAM) + sent + END, status=200, usage=true)


async def answer_late(x: Exchange) -> None:
    """Answer after a while."""
    await asyncio.sleep(DELAY)
    answer(x)


async def answer_hugely(x: Exchange) -> None:
    """Answer with 10 MB of text."""
    usage = usage_of(x.request)
    if x.request.stream:
        bill = chunk([], usage=wire_usage(usage))
        first, last = head(STREAM), delta(None, "stop") + bill + DONE + END
        pieces = [delta("x" * 2**16)] * (HUGE // 2**16)
    else:
        said = body("x" * HUGE, usage=wire_usage(usage))
        first, last = head(length=len(said)), b""
        pieces = [said[start : start + 2**20] for start in range(0, len(said), 2**20)]
    x.send(first, status=200)
    for piece in pieces:
        await x.flush()
        x.send(piece)
    x.send(last, usage=usage)


def usage_lie(**counts: object) -> Play:
    """Answer with a bill that cannot be: what is not named is left out."""
    return partial(answer, usage=counts)


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────
def status(
    code: int, message: str = "no", *, html: bool = False, extra: str = "", word: str | None = None
) -> Play:
    """Refuse with a status."""
    kind, said = "application/json", error_body(message, word)
    if html:
        kind, said = "text/html", f"<html><h1>{code} {message}</h1></html>".encode()

    def play(x: Exchange) -> None:
        x.send(head(kind, status=code, length=len(said), extra=extra) + said, status=code)

    return play


# ── hanging up ────────────────────────────────────────────────────────────────────────────────────
async def hang_up(
    x: Exchange, sent: bytes = b"", *, reset: bool, status: int | None = None
) -> None:
    """Send some bytes and hang up, after the client has had time to read them."""
    if sent:
        x.send(sent, status=status)
        await asyncio.sleep(0.01)
    x.close(reset=reset)


def hang_up_midway(x: Exchange, *, reset: bool) -> Coroutine[Any, Any, None]:
    """Half a response, and gone."""
    return hang_up(x, half(x), reset=reset, status=200)


def hang_up_after_head(x: Exchange) -> Coroutine[Any, Any, None]:
    """Headers, and a reset."""
    sent = head(STREAM) if x.request.stream else head(length=500)
    return hang_up(x, sent, reset=True, status=200)


# ── silence ───────────────────────────────────────────────────────────────────────────────────────
async def hang(x: Exchange) -> None:
    """Say nothing."""
    await asyncio.Event().wait()


async def hang_midway(x: Exchange) -> None:
    """Half a response, and nothing more, without hanging up."""
    x.send(half(x), status=200)
    await asyncio.Event().wait()


async def drip(x: Exchange, data: bytes) -> None:
    """A byte now and then, so that no read's timeout ever passes."""
    for byte in data:
        await asyncio.sleep(DELAY)
        x.send(bytes([byte]))


def drip_head(x: Exchange) -> Coroutine[Any, Any, None]:
    """Headers, byte by byte."""
    return drip(x, b"HTTP/1.1 200 Said\r\n" + b"X: slow\r\n" * 1000)


async def drip_text(x: Exchange) -> None:
    """Text, letter by letter, without end."""
    if not x.request.stream:
        x.send(head(length=10_000_000), status=200)
        await drip(x, b'{"object": "chat.completion", "choices": [' * 100)
        return
    x.send(head(STREAM), status=200)
    while True:
        x.send(delta("y"))
        await asyncio.sleep(DELAY)


async def drip_nothing(x: Exchange) -> None:
    """Keep-alive comments (in a stream) or blanks, without end."""
    blank = b": still working\n\n" if x.request.stream else b" "
    x.send(head(kind_of(x)), status=200)
    while True:
        x.send(piece(blank))
        await asyncio.sleep(DELAY)


# ── nonsense under status 200 ─────────────────────────────────────────────────────────────────────
def says(data: bytes, kind: str = "application/json") -> Play:
    """These bytes, in order, whatever was asked for."""
    return lambda x: whole(x, data, kind)


def garbage(x: Exchange) -> None:
    """Send no JSON, at the end of a stream that began well."""
    if not x.request.stream:
        whole(x, b'{"choices": [{"index": 0, "message" = <oops>}]}')
        return
    begin_stream(x)
    x.send(piece(b'data: {"choices": [{"index": 0, "delta": oops}]}\n\n') + DONE + END)


def cut_json(x: Exchange) -> None:
    """JSON without its end, in a response that is whole."""
    if not x.request.stream:
        whole(x, body(x.text)[:40])
        return
    begin_stream(x)
    x.send(piece(b'data: {"choices": [{"index": 0, "delta": {"content": "an') + END)


def no_choices(x: Exchange) -> None:
    """A bill, and nothing to show for it."""
    usage = usage_of(x.request)
    said = {"object": "chat.completion", "choices": [], "usage": wire_usage(usage)}
    if not x.request.stream:
        whole(x, json.dumps(said).encode(), usage=usage)
        return
    x.send(head(STREAM) + event(said) + DONE + END, status=200, usage=usage)


def no_body(x: Exchange) -> None:
    """Status 200, and not a byte."""
    if x.request.stream:
        x.send(head(STREAM) + END, status=200)
    else:
        whole(x, b"")


def error_in_200(x: Exchange) -> None:
    """An error object where an answer should be."""
    said = error_body("the upstream server failed", "server_error")
    if not x.request.stream:
        x.send(head(length=len(said)) + said, status=500)  # what it comes to: nothing was done
        return
    begin_stream(x)
    x.send(piece(b"data: %s\n\n" % said) + END)


async def endless(x: Exchange) -> None:
    """More bytes than any answer has, without end."""
    more = delta("z" * 2**20) if x.request.stream else piece(b" " * 2**20)
    x.send(head(kind_of(x)), status=200)
    while True:
        await x.flush()
        x.send(more)
        await asyncio.sleep(0)


def not_gzip(x: Exchange) -> None:
    """A content encoding that the content has not."""
    said = body(x.text)
    gzip = "Content-Encoding: gzip\r\n"
    x.send(head(kind_of(x), length=len(said), extra=gzip) + said, status=200)


def bad_chunks(x: Exchange) -> Coroutine[Any, Any, None]:
    """A chunked body whose sizes are no numbers."""
    return hang_up(x, head(kind_of(x)) + b"zz\r\nno chunk\r\n", reset=False, status=200)


def bad_status_line(x: Exchange) -> Coroutine[Any, Any, None]:
    """An answer, but not in HTTP."""
    return hang_up(x, b"HELLO 42\r\n\r\n", reset=False, status=200)


HTML = b"<!doctype html><html><body><h1>Sign in to the network</h1></body></html>"
PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(64)

WAIT = f"Retry-After: {RETRY_AFTER}\r\n"
TOO_LONG = "This model's maximum context length is 8 tokens."

# By outcome, and for a stream if that is another one.
PLAYS: dict[tuple[str, str], dict[str, Play]] = {}
PLAYS["answered", ""] = {
    "ok": answer,
    "delay": answer_late,
    "huge": answer_hugely,
    "no_done": partial(answer, done=False),
    "usage_missing": usage_lie(),
    "usage_negative": usage_lie(prompt_tokens=-7, completion_tokens=-3),
    "usage_half_negative": usage_lie(prompt_tokens=12, completion_tokens=-3),
    "usage_words": usage_lie(prompt_tokens="many", completion_tokens=None),
    "usage_absurd": usage_lie(prompt_tokens=10**30, completion_tokens=10**30),
}
PLAYS["cut", ""] = {"cut_at_limit": partial(answer, finish="length")}
PLAYS["refused", ""] = {"filtered": partial(answer, finish="content_filter")}
PLAYS["context_too_long", ""] = {"too_long": status(400, TOO_LONG, word="context_length_exceeded")}
PLAYS["rejected", ""] = {
    "302": status(302, extra="Location: /v1/elsewhere\r\n"),
    "400": status(400),
    "404": status(404),
    "422": status(422),
}
PLAYS["auth_failed", ""] = {"401": status(401), "403": status(403)}
PLAYS["rate_limited", ""] = {
    "429": status(429),
    "429_wait": status(429, extra=WAIT),
    "429_quota": status(429, word="insufficient_quota"),
}
PLAYS["server_failed", ""] = {
    "408": status(408),
    "500": status(500),
    "502_html": status(502, html=True),
    "503": status(503),
    "503_wait": status(503, extra=WAIT),
    "529": status(529),
}
PLAYS["server_failed", "truncated"] = {"error_in_200": error_in_200}
PLAYS["unreachable", ""] = {
    "reset_before": partial(hang_up, reset=True),
    "close_before": partial(hang_up, reset=False),
    "reset_in_head": partial(hang_up, sent=b"HTTP/1.1 200 Sa", reset=True),
}
PLAYS["connection_lost", ""] = {
    "reset_after_head": hang_up_after_head,
    "reset_midway": partial(hang_up_midway, reset=True),
    "close_midway": partial(hang_up_midway, reset=False),
}
PLAYS["timeout", ""] = {
    "hang": hang,
    "hang_midway": hang_midway,
    "drip_head": drip_head,
    "drip_text": drip_text,
    "drip_nothing": drip_nothing,
}
PLAYS["truncated", ""] = {
    "no_finish": partial(answer, finish=None, done=False),
    "cut_json": cut_json,
}
PLAYS["malformed", ""] = {
    "garbage": garbage,
    "not_a_completion": says(b'["ok"]'),
    "endless": endless,
    "not_gzip": not_gzip,
    "bad_chunks": bad_chunks,
    "bad_status_line": bad_status_line,
}
PLAYS["malformed", "truncated"] = {"no_choices": no_choices}
PLAYS["wrong_content_type", ""] = {
    "html": says(HTML, "text/html"),
    "image": says(PIXEL, "image/png"),
}
PLAYS["empty", ""] = {
    "no_text": partial(answer, text=None),
    "blank_text": partial(answer, text=" \n"),
}
PLAYS["empty", "truncated"] = {"no_body": no_body}
FINAL = {"refused", "context_too_long", "rejected", "auth_failed", "429_quota", "endless"}
"""Outcomes and faults of which the same call is not made again."""
SPEAKS = "reset_midway close_midway hang_midway drip_text no_finish cut_json garbage blank_text"
SPEAKS += " error_in_200"
"""Faults that come after a part of the text."""

FAULTS: dict[str, Fault] = {}
for (outcome, streamed), of_outcome in PLAYS.items():
    for name, play in of_outcome.items():
        heals, speaks = not FINAL & {outcome, name}, name in SPEAKS.split()
        FAULTS[name] = Fault(play, outcome, streamed or outcome, heals, speaks)
