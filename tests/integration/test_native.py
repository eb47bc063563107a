"""Anthropic and Google natively, against a loopback server that speaks their wires, faults included."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="needs the extra 'providers': pip install 'openconductor[providers]'")

sys.path.insert(0, str(Path(__file__).parent))
from native_server import (
    Answer,
    NativeServer,
    block,
    data,
    end,
    event,
    hangs,
    message,
    native_server,
    raw,
    response,
    said,
    says,
    start,
    streams,
    text,
)

from openconductor.errors import (
    AuthFailed,
    ConfigError,
    ConnectionLost,
    ContextTooLong,
    EmptyResponse,
    MalformedResponse,
    RateLimited,
    Refused,
    Rejected,
    ServerFailed,
    TruncatedResponse,
    Unreachable,
    WorkerError,
    WorkerTimeout,
    WrongContentType,
)
from openconductor.protocols import CallContext
from openconductor.providers import create
from openconductor.types import Completion, Message, Sampling

KEY = "not-a-real-key-8f3b1c"
VARIABLE = "OPENCONDUCTOR_TEST_KEY"
VENDORS = ("anthropic", "google")
HELLO = (Message("system", "Be brief."), Message("user", "What is 2 + 2?"))
FOUR = {"anthropic": says(message(text("4"))), "google": says(response({"text": "4"}))}
FOUR_STREAMED = {
    "anthropic": streams([start(), *said("4"), *end()]),
    "google": streams([data(response({"text": "4"}))]),
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)


async def ask(
    vendor: str,
    *answers: Answer,
    stream: bool = False,
    sampling: Sampling | None = None,
    messages: Sequence[Message] = HELLO,
    deadline_s: float | None = None,
    **options: Any,
) -> tuple[Completion, NativeServer, list[str]]:
    """One call; (completion, server, pieces of text)."""
    pieces: list[str] = []
    async with native_server(*answers) as server:
        options = {"base_url": server.url, "api_key_env": VARIABLE, **options}
        provider: Any = create(vendor, "m-1", **options)
        async with provider as client:
            now = asyncio.get_running_loop().time()
            call = CallContext(deadline=None if deadline_s is None else now + deadline_s)
            on_text = pieces.append if stream else None
            got = await client.complete(messages, sampling or Sampling(), call=call, on_text=on_text)
        return got, server, pieces


async def failure(vendor: str, *answers: Answer, **options: Any) -> WorkerError:
    """The error of one call, which must not hold the key, however it is printed."""
    with pytest.raises(WorkerError) as caught:
        await ask(vendor, *answers, **options)
    shown, link = "".join(traceback.format_exception(caught.value)), caught.value
    seen: BaseException | None = link
    while seen is not None:
        shown += repr(seen) + repr(vars(seen))
        seen = seen.__cause__ or seen.__context__
    assert KEY not in shown
    return caught.value


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────────────────────────
async def test_anthropic_is_sent_exactly_what_the_user_set() -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = {"thinking": thinking, "top_k": 3, "metadata": {"user_id": "u"}, "temperature": 1}
    sampling = Sampling(temperature=0.2, max_tokens=2048, seed=7, body=body)
    got, server, _ = await ask("anthropic", FOUR["anthropic"], sampling=sampling)
    assert server.paths == ["/v1/messages"]
    assert server.bodies == [
        {
            "model": "m-1",
            "max_tokens": 2048,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "What is 2 + 2?"}]}],
            "temperature": 1,
            "thinking": thinking,
            "top_k": 3,
            "metadata": {"user_id": "u"},
        }
    ]
    assert got.body_sent == server.bodies[0]


async def test_google_is_sent_exactly_what_the_user_set() -> None:
    body = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 128}, "topK": 3}, "safetySettings": []}
    sampling = Sampling(temperature=0.2, max_tokens=2048, seed=7, body=body)
    got, server, _ = await ask("google", FOUR["google"], sampling=sampling)
    assert server.paths == ["/v1beta/models/m-1:generateContent"]
    assert server.bodies == [
        {
            "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "What is 2 + 2?"}]}],
            "generationConfig": {
                "temperature": 0.2,
                "maxOutputTokens": 2048,
                "seed": 7,
                "thinkingConfig": {"thinkingBudget": 128},
                "topK": 3,
            },
            "safetySettings": [],
        }
    ]
    assert got.body_sent == server.bodies[0]


async def test_what_is_not_set_is_not_sent_but_for_the_limit_that_anthropic_requires() -> None:
    _, server, _ = await ask("anthropic", FOUR["anthropic"], messages=[Message("user", "hi")])
    turns = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert server.bodies == [{"model": "m-1", "max_tokens": 8192, "messages": turns}]
    _, server, _ = await ask("google", FOUR["google"], messages=[Message("user", "hi")])
    assert server.bodies == [{"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}]


async def test_no_table_of_models_takes_a_knob_away_or_lowers_one() -> None:
    async with native_server(FOUR["anthropic"]) as server:
        client: Any = create("anthropic", "claude-opus-4-7", base_url=server.url)
        sampling = Sampling(temperature=0.2, max_tokens=999_999, body={"top_p": 0.5})
        await client.complete(HELLO, sampling, call=CallContext())
        await client.aclose()
    sent = server.bodies[0]
    assert (sent["temperature"], sent["max_tokens"], sent["top_p"]) == (0.2, 999_999, 0.5)
    assert "stream" not in sent


async def test_a_stream_is_asked_for_only_where_someone_listens() -> None:
    got, server, pieces = await ask("anthropic", FOUR_STREAMED["anthropic"], stream=True)
    assert server.bodies[0]["stream"] is True
    assert (got.text, pieces, got.body_sent) == ("4", ["4"], server.bodies[0])
    got, server, pieces = await ask("google", FOUR_STREAMED["google"], stream=True)
    assert server.paths == ["/v1beta/models/m-1:streamGenerateContent?alt=sse"]
    assert (got.text, pieces, got.body_sent) == ("4", ["4"], server.bodies[0])


@pytest.mark.parametrize(("vendor", "header"), [("anthropic", "x-api-key"), ("google", "x-goog-api-key")])
async def test_the_key_goes_out_in_its_header_alone(vendor: str, header: str) -> None:
    got, server, _ = await ask(vendor, FOUR[vendor])
    assert [name for name, value in server.headers[0].items() if KEY in value] == [header]
    assert KEY not in server.paths[0] + json.dumps(server.bodies) + repr(got)


@pytest.mark.parametrize("vendor", VENDORS)
async def test_no_key_leaves_for_a_host_that_it_was_not_named_for(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    _, server, _ = await ask(vendor, FOUR[vendor], api_key_env=None)
    assert KEY not in repr(server.headers)


async def test_turns_and_images_and_documents_have_the_vendors_own_form() -> None:
    turns = (
        Message("user", "See:", ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},)),
        Message("assistant", "What of it?"),
        Message(
            "user",
            "And this?",
            (
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            ),
        ),
    )
    _, server, _ = await ask("anthropic", FOUR["anthropic"], messages=turns)
    image = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    document = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    assert server.bodies[0]["messages"] == [
        {"role": "user", "content": [text("See:"), {"type": "image", "source": image}]},
        {"role": "assistant", "content": [text("What of it?")]},
        {
            "role": "user",
            "content": [
                text("And this?"),
                {"type": "document", "source": document},
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            ],
        },
    ]
    _, server, _ = await ask("google", FOUR["google"], messages=turns)
    assert server.bodies[0]["contents"] == [
        {"role": "user", "parts": [{"text": "See:"}, {"inlineData": {"mime_type": "image/png", "data": "AAAA"}}]},
        {"role": "model", "parts": [{"text": "What of it?"}]},
        {
            "role": "user",
            "parts": [
                {"text": "And this?"},
                {"inlineData": {"mime_type": "application/pdf", "data": "AAAA"}},
                {"fileData": {"mime_type": "image/png", "file_uri": "https://example.com/a.png"}},
            ],
        },
    ]


async def test_a_tools_result_is_sent_back_under_the_call_that_it_answers() -> None:
    called = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
    turns = (
        Message("user", "1 + 1?"),
        Message("assistant", "", ({"tool_calls": [called]},)),
        Message("tool", "2", ({"tool_call_id": "t1"},)),
    )
    _, server, _ = await ask("anthropic", FOUR["anthropic"], messages=turns)
    asked, answered = server.bodies[0]["messages"][1:]
    assert asked["content"] == [{"type": "tool_use", "id": "t1", "name": "add", "input": {"x": 1}}]
    assert (answered["role"], answered["content"][0]["tool_use_id"]) == ("user", "t1")
    assert "2" in json.dumps(answered["content"][0]["content"])
    _, server, _ = await ask("google", FOUR["google"], messages=turns)
    asked, answered = server.bodies[0]["contents"][1:]
    assert asked["parts"][0]["functionCall"]["args"] == {"x": 1}
    assert answered["parts"][0]["functionResponse"]["name"] == "add"


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(
    "turn",
    [
        Message("user", "x", ({"type": "hologram"},)),
        Message("user", "x", ({"type": "image_url"},)),
        Message("user", "x", ({"inlineData": {"mimeType": "image/png", "data": "no base64!"}},)),
        Message("tool", "x"),
        Message("tool", "x", ({"tool_call_id": "nobody called"},)),
    ],
    ids=["a kind of part", "an image without one", "no base64", "a result without a call", "an unknown call"],
)
async def test_a_turn_that_has_no_form_there_is_rejected_before_anything_is_sent(vendor: str, turn: Message) -> None:
    async with native_server() as server:
        client: Any = create(vendor, "m-1", base_url=server.url)
        with pytest.raises(Rejected, match="could not be written") as caught:
            await client.complete((turn,), Sampling(), call=CallContext())
    assert not server.bodies
    assert not caught.value.retryable


async def test_a_body_that_is_no_json_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="JSON"):
        await ask("anthropic", FOUR["anthropic"], sampling=Sampling(body={"x": object()}))


# ── what comes back ──────────────────────────────────────────────────────────────────────────────────────────────────
async def test_text_thinking_tool_calls_and_usage_of_anthropic_are_kept_apart() -> None:
    blocks = [
        {"type": "thinking", "thinking": "two and two", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        text("I "),
        text("add."),
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"x": 2}},
    ]
    used = {
        "cache_read_input_tokens": 40,
        "cache_creation_input_tokens": 3,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 30},
    }
    got, _, _ = await ask("anthropic", says(message(*blocks, stop="tool_use", **used)))
    assert (got.text, got.reasoning, got.finish_reason) == ("I add.", "two and two", "tool_calls")
    assert got.tool_calls == ({"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"x":2}'}},)
    usage = got.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens) == (55, 40, 50, 30)
    assert usage.seconds > 0


async def test_text_thoughts_tool_calls_and_usage_of_google_are_kept_apart() -> None:
    parts = [
        {"text": "two and two", "thought": True},
        {"text": "I add."},
        {"functionCall": {"name": "add", "args": {"x": 2}}},
    ]
    used = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 40,
        "toolUsePromptTokenCount": 7,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
    }
    got, _, _ = await ask("google", says(response(*parts, usage=used)))
    assert (got.text, got.reasoning, got.finish_reason) == ("I add.", "two and two", "tool_calls")
    assert got.tool_calls == (
        {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"x":2}'}},
    )
    usage = got.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens) == (107, 40, 50, 30)


async def test_a_stream_of_anthropic_is_put_together_however_its_bytes_are_cut() -> None:
    pieces = [
        start(cache_read_input_tokens=40),
        event("ping"),
        *block(0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "hm"}),
        *block(1, text(""), {"type": "text_delta", "text": "Grüße, "}, {"type": "text_delta", "text": "世界 🌍"}),
        *block(
            2,
            {"type": "tool_use", "id": "t1", "name": "add", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"x"'},
            {"type": "input_json_delta", "partial_json": ": 2}"},
        ),
        event("something_new", value=1),
        *end("tool_use", output_tokens=50),
    ]
    stream = b"".join(pieces)
    got, _, heard = await ask("anthropic", streams([stream[i : i + 7] for i in range(0, len(stream), 7)]), stream=True)
    assert got.text == "Grüße, 世界 🌍" == "".join(heard)
    assert (got.reasoning, got.finish_reason) == ("hm", "tool_calls")
    assert json.loads(got.tool_calls[0]["function"]["arguments"]) == {"x": 2}  # type: ignore[index]
    assert (got.usage.input_tokens, got.usage.cached_tokens, got.usage.output_tokens) == (52, 40, 50)


async def test_a_stream_of_google_is_put_together_however_its_bytes_are_cut() -> None:
    pieces = [
        data(response({"text": "hm", "thought": True}, finish=None, usage={"promptTokenCount": 12})),
        data(response({"text": "Grüße, "}, finish=None)),
        data(response({"text": "世界 🌍"})),
        data({"usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 6, "thoughtsTokenCount": 3}}),
    ]
    stream = b"".join(pieces)
    got, _, heard = await ask("google", streams([stream[i : i + 7] for i in range(0, len(stream), 7)]), stream=True)
    assert got.text == "Grüße, 世界 🌍" == "".join(heard)
    assert (got.reasoning, got.finish_reason) == ("hm", "stop")
    assert (got.usage.input_tokens, got.usage.output_tokens, got.usage.reasoning_tokens) == (12, 9, 3)


async def test_a_proxy_that_leaves_out_the_names_of_events_is_understood() -> None:
    pieces = [line + b"\n\n" for piece in [start(), *said("4"), *end()] for line in piece.split(b"\n")[1:2]]
    got, _, _ = await ask("anthropic", streams(pieces), stream=True)
    assert got.text == "4"


@pytest.mark.parametrize(
    ("vendor", "answer"),
    [
        ("anthropic", says(message(text("The sum"), stop="max_tokens"))),
        ("anthropic", says(message(text("The sum"), stop="model_context_window_exceeded"))),
        ("google", says(response({"text": "The sum"}, finish="MAX_TOKENS"))),
    ],
)
async def test_an_answer_cut_at_its_token_limit_is_a_completion(vendor: str, answer: Answer) -> None:
    got, _, _ = await ask(vendor, answer)
    assert (got.text, got.finish_reason) == ("The sum", "length")


@pytest.mark.parametrize("vendor", VENDORS)
async def test_an_answer_cut_before_its_first_word_is_a_completion(vendor: str) -> None:
    thought = {"type": "thinking", "thinking": "first…", "signature": "s"}
    answers = {
        "anthropic": says(message(thought, stop="max_tokens")),
        "google": says(response({"text": "first…", "thought": True}, finish="MAX_TOKENS")),
    }
    got, _, _ = await ask(vendor, answers[vendor])
    assert (got.text, got.reasoning, got.finish_reason) == ("", "first…", "length")


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────
BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 12}}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
UNAVAILABLE = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize(
    ("vendor", "answer", "kind"),
    [
        ("anthropic", says(message(text("4"), stop=None)), TruncatedResponse),
        ("anthropic", says(message(text("4"), stop="pause_turn")), MalformedResponse),
        ("anthropic", says(message(text("4"), stop="martian")), MalformedResponse),
        ("anthropic", says(message()), EmptyResponse),
        ("anthropic", says(message(text(" "))), EmptyResponse),
        ("anthropic", says(message(stop="refusal")), Refused),
        ("anthropic", says(OVERLOADED), ServerFailed),
        ("anthropic", says({"hello": 1}), MalformedResponse),
        ("anthropic", says({**message(), "content": "4"}), MalformedResponse),
        ("anthropic", says({**message(), "content": ["4"]}), MalformedResponse),
        ("anthropic", says(message({"type": "hologram"})), MalformedResponse),
        ("anthropic", says(message({"type": "text"})), MalformedResponse),
        ("google", says(response({"text": "4"}, finish=None)), TruncatedResponse),
        ("google", says(response({"text": "4"}, finish="MARTIAN")), MalformedResponse),
        ("google", says(response({"text": "4"}, finish="OTHER")), MalformedResponse),
        ("google", says(response(finish="MALFORMED_FUNCTION_CALL")), MalformedResponse),
        ("google", says(response()), EmptyResponse),
        ("google", says({"candidates": [{"finishReason": "STOP"}]}), EmptyResponse),
        ("google", says({"candidates": [{"finishReason": "SAFETY"}]}), Refused),
        ("google", says(BLOCKED), Refused),
        ("google", says(UNAVAILABLE), ServerFailed),
        ("google", says({"candidates": []}), MalformedResponse),
        ("google", says({"candidates": ["4"]}), MalformedResponse),
        ("google", says({"candidates": [{"content": "4", "finishReason": "STOP"}]}), MalformedResponse),
        ("google", says({"candidates": [{"content": {"parts": "4"}}]}), MalformedResponse),
        ("google", says(response({"hologram": 1})), MalformedResponse),
        ("google", says([response({"text": "4"})]), MalformedResponse),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", None),
)
async def test_what_is_no_whole_answer_under_status_200_is_a_typed_failure(
    vendor: str, answer: Answer, kind: type[WorkerError]
) -> None:
    error = await failure(vendor, answer)
    assert type(error) is kind, repr(error)
    assert "m-1 at http://127.0.0.1" in str(error)


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (raw(b""), EmptyResponse),
        (raw(b"<html>502</html>", content_type="text/html"), WrongContentType),
        (raw(b'{"candidates": [{"cont'), TruncatedResponse),
        (raw(b"oops"), MalformedResponse),
        (raw(b"x" * (33 * 1024 * 1024)), MalformedResponse),
    ],
    ids=["empty", "a page", "cut", "no JSON", "too large"],
)
async def test_a_body_that_is_no_answer_is_a_typed_failure(
    vendor: str, answer: Answer, kind: type[WorkerError]
) -> None:
    assert type(await failure(vendor, answer)) is kind


HALF = {"anthropic": [start(), *said("one ", "two")[:-1]], "google": [data(response({"text": "one"}, finish=None))]}


@pytest.mark.parametrize(
    ("vendor", "pieces", "kind"),
    [
        ("anthropic", [], TruncatedResponse),
        ("anthropic", [start()], TruncatedResponse),
        ("anthropic", HALF["anthropic"], TruncatedResponse),
        ("anthropic", [start(), *said("4"), end()[0]], TruncatedResponse),
        ("anthropic", [start(), *said("4"), end()[1]], TruncatedResponse),
        ("anthropic", [start(), *said("4"), *end("martian")], MalformedResponse),
        ("anthropic", [start(), *end()], EmptyResponse),
        ("anthropic", [start(), *end("refusal")], Refused),
        ("anthropic", [event("error", error=OVERLOADED["error"])], ServerFailed),
        ("anthropic", [*HALF["anthropic"], event("error", error=OVERLOADED["error"])], TruncatedResponse),
        ("anthropic", [start(), b"data: {oops}\n\n", *end()], MalformedResponse),
        ("anthropic", [start(), b'data: {"type": "con', *end()], MalformedResponse),
        ("google", [], TruncatedResponse),
        ("google", HALF["google"], TruncatedResponse),
        ("google", [*HALF["google"], data(response({"text": "4"}, finish="MARTIAN"))], MalformedResponse),
        ("google", [data(response())], EmptyResponse),
        ("google", [data(BLOCKED)], Refused),
        ("google", [data(UNAVAILABLE)], ServerFailed),
        ("google", [*HALF["google"], data(UNAVAILABLE)], TruncatedResponse),
        ("google", [*HALF["google"], b"data: {oops}\n\n", data(response({"text": "4"}))], MalformedResponse),
        ("google", [*HALF["google"], b'data: {"candidates": [{"cont'], TruncatedResponse),
    ],
)
async def test_a_stream_that_does_not_say_its_end_is_a_typed_failure(
    vendor: str, pieces: list[bytes], kind: type[WorkerError]
) -> None:
    assert type(await failure(vendor, streams(pieces), stream=True)) is kind


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_connection_that_breaks_off_in_a_stream_is_a_typed_failure(vendor: str) -> None:
    error = await failure(vendor, streams(HALF[vendor], reset=True), stream=True)
    assert type(error) is ConnectionLost
    assert error.usage is None  # nobody knows what it used


@pytest.mark.parametrize("vendor", VENDORS)
async def test_an_answer_in_one_piece_where_a_stream_was_asked_for_is_a_typed_failure(vendor: str) -> None:
    assert type(await failure(vendor, FOUR[vendor], stream=True)) is WrongContentType


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(
    ("status", "words", "kind", "retryable"),
    [
        (400, "max_tokens: wrong", Rejected, False),
        (400, "prompt is too long: 300000 tokens > 200000 maximum", ContextTooLong, False),
        (401, "invalid key", AuthFailed, False),
        (403, "not allowed", AuthFailed, False),
        (404, "no such model", Rejected, False),
        (307, "elsewhere", Rejected, False),
        (429, "slow down", RateLimited, True),
        (500, "internal", ServerFailed, True),
        (529, "Overloaded", ServerFailed, True),
    ],
)
async def test_a_status_is_a_typed_failure_and_is_asked_for_once(
    vendor: str, status: int, words: str, kind: type[WorkerError], *, retryable: bool
) -> None:
    body = {"error": {"message": f"{words} {KEY}"}}
    headers = {"Retry-After": "3", "Location": "/v1/elsewhere"}
    async with native_server(*[says(body, status=status, headers=headers)] * 3) as server:
        client: Any = create(vendor, "m-1", base_url=server.url, api_key_env=VARIABLE)
        with pytest.raises(WorkerError) as caught:
            await client.complete(HELLO, Sampling(), call=CallContext())
        await client.aclose()
    error = caught.value
    assert (type(error), error.status, error.retryable) == (kind, status, retryable)
    assert words in str(error)
    assert KEY not in str(error)
    assert len(server.bodies) == 1
    if isinstance(error, RateLimited | ServerFailed):
        assert error.retry_after == 3


async def test_what_a_refused_answer_used_is_known() -> None:
    error = await failure("anthropic", says(message(stop="refusal")))
    assert error.usage is not None
    assert (error.usage.input_tokens, error.usage.output_tokens) == (12, 5)


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_key_that_is_not_set_is_an_auth_failure(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(AuthFailed, match=VARIABLE):
        await ask(vendor, FOUR[vendor])


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_server_that_is_not_there_is_unreachable(vendor: str) -> None:
    async with native_server() as server:
        pass
    client: Any = create(vendor, "m-1", base_url=server.url)
    with pytest.raises(Unreachable, match="no connection"):
        await client.complete(HELLO, Sampling(), call=CallContext())
    await client.aclose()


# ── deadlines and connections ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("by", ["timeout_s", "deadline_s"])
async def test_a_server_that_says_nothing_is_cut_off_at_the_deadline(vendor: str, by: str) -> None:
    assert type(await failure(vendor, hangs(), **{by: 0.2})) is WorkerTimeout


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_dripping_stream_cannot_evade_the_deadline(vendor: str) -> None:
    drip = {
        "anthropic": [start(), *said(*["x"] * 100), *end()],
        "google": [data(response({"text": "x"}, finish=None))] * 100,
    }
    error = await failure(vendor, streams(drip[vendor], pause=0.03), stream=True, timeout_s=0.3)
    assert type(error) is WorkerTimeout


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_deadline_that_has_passed_sends_nothing(vendor: str) -> None:
    assert "before the call began" in str(await failure(vendor, deadline_s=-1.0))


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_silence_longer_than_the_read_timeout_is_a_typed_failure(vendor: str) -> None:
    answer = streams([*HALF[vendor], b": still here\n\n"], pause=1.0)
    assert type(await failure(vendor, answer, stream=True, read_timeout_s=0.2)) is WorkerTimeout


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("stream", [False, True], ids=["in one piece", "streamed"])
async def test_a_cancelled_call_hangs_up(vendor: str, *, stream: bool) -> None:
    answer = streams(HALF[vendor] * 50, pause=0.1) if stream else hangs()
    async with native_server(answer) as server:
        client: Any = create(vendor, "m-1", base_url=server.url)
        on_text = (lambda piece: None) if stream else None
        task = asyncio.create_task(client.complete(HELLO, Sampling(), call=CallContext(), on_text=on_text))
        await asyncio.wait_for(server.asked.wait(), 5)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.hung_up.wait(), 1)
        await client.aclose()


@pytest.mark.parametrize("vendor", VENDORS)
async def test_what_on_text_raises_ends_the_call_as_it_is(vendor: str) -> None:
    def refuses(piece: str) -> None:
        raise KeyError("mine")

    async with native_server(FOUR_STREAMED[vendor]) as server:
        client: Any = create(vendor, "m-1", base_url=server.url)
        with pytest.raises(KeyError, match="mine"):
            await client.complete(HELLO, Sampling(), call=CallContext(), on_text=refuses)
        await client.aclose()


@pytest.mark.parametrize("vendor", VENDORS)
async def test_calls_at_the_same_time_do_not_mix_and_connections_are_kept(vendor: str) -> None:
    def reply(index: int) -> Answer:
        return says(message(text(str(index))) if vendor == "anthropic" else response({"text": str(index)}))

    async with native_server(*(reply(index) for index in range(8))) as server:
        client: Any = create(vendor, "m-1", base_url=server.url)

        async def one(index: int) -> Completion:
            return await client.complete((Message("user", f"n{index}"),), Sampling(), call=CallContext())

        got = await asyncio.gather(*(one(index) for index in range(4)))
        for seen in got:
            place = next(at for at, body in enumerate(server.bodies) if body == seen.body_sent)
            assert seen.text == str(place)
        for index in range(4, 8):
            await one(index)
        await client.aclose()
    assert len(set(server.peers)) <= 4


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_event_loop_has_its_own_connections_and_closes_them(vendor: str) -> None:
    client: Any = create(vendor, "m-1", base_url="http://127.0.0.1:1")

    async def once() -> str:
        async with native_server(FOUR[vendor]) as server:
            client.base_url = server.url
            return (await client.complete(HELLO, Sampling(), call=CallContext())).text

    assert [asyncio.run(once()) for _ in range(2)] == ["4", "4"]
    gc.collect()  # an unclosed session would warn, and warnings are errors
