"""Models through pydantic-ai, against a loopback server with the APIs of Anthropic and Google."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip(
    "pydantic_ai", reason="needs the extra 'providers': pip install 'openconductor[providers]'"
)

from chat_server import Answer, ChatServer, hangs, raw, says, streams
from native_server import (
    block,
    data,
    end,
    event,
    message,
    native_server,
    response,
    said,
    start,
    text,
)

from openconductor import errors
from openconductor.pool import Worker
from openconductor.protocols import CallContext
from openconductor.providers import create, resolve, takes
from openconductor.providers.pydantic_ai import PydanticAIProvider
from openconductor.types import Completion, Message, Sampling, Usage

KEY = "not-a-real-key-8f3b1c"
VARIABLE = "OPENCONDUCTOR_TEST_KEY"
VENDORS = ("anthropic", "google")
VENDORS_OWN = ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
PNG = "data:image/png;base64,AAAA"
HELLO = (Message("system", "Be brief."), Message("user", "What is 2 + 2?"))
FOUR = {"anthropic": says(message(text("4"))), "google": says(response({"text": "4"}))}
FOUR_STREAMED = {
    "anthropic": [start(), *said("4"), *end()],
    "google": [data(response({"text": "4"}))],
}


def part_of_google(words: str, **more: bool) -> bytes:
    """Return an event of Google's that is not the last one."""
    return data(response({"text": words, **more}, finish=None))


HALF = {"anthropic": [start(), *said("one ", "two")[:-1]], "google": [part_of_google("one")]}
each_vendor = pytest.mark.parametrize("vendor", VENDORS)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    for variable in VENDORS_OWN:
        monkeypatch.delenv(variable, raising=False)


async def ask(
    vendor: str,
    *answers: Answer,
    stream: bool = False,
    sampling: Sampling | None = None,
    messages: Sequence[Message] = HELLO,
    **options: Any,
) -> tuple[Completion, ChatServer, list[str]]:
    """One call; (completion, server, pieces of text)."""
    pieces: list[str] = []
    on_text = pieces.append if stream else None
    options.setdefault("api_key_env", VARIABLE)
    asked = sampling or Sampling()
    async with (
        native_server(*answers) as server,
        create(vendor, "m-1", **{"base_url": server.url, **options}) as it,
    ):
        try:
            call = it.complete(messages, asked, call=CallContext(), on_text=on_text)
            return await call, server, pieces
        finally:
            assert len(server.bodies) <= 1  # a call is one request
            if stream:  # Google's SDK closes a stream that was left in a task of its own
                await asyncio.sleep(0.05)


async def failure(vendor: str, *answers: Answer, **options: Any) -> errors.WorkerError:
    """Return the error of one call, which must not hold the key, however it is printed."""
    with pytest.raises(errors.WorkerError) as caught:
        await ask(vendor, *answers, **options)
    error = caught.value
    shown = "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        shown += repr(seen) + repr(vars(seen))
        seen = seen.__context__
    assert KEY not in shown
    assert error.__cause__ is None
    return error


# ── settings and keys ─────────────────────────────────────────────────────────────────────────────
def test_a_string_names_the_vendor_and_the_model() -> None:
    claude = resolve("anthropic:claude-sonnet-5", timeout_s=7)
    gemini = resolve("pydantic_ai:google:gemini-2.5-pro")
    assert isinstance(claude, PydanticAIProvider)
    assert claude.identity == "anthropic claude-sonnet-5 https://api.anthropic.com"
    assert gemini.identity == "google gemini-2.5-pro https://generativelanguage.googleapis.com"
    assert claude.remote
    assert takes("anthropic", "read_timeout_s")


def test_a_key_is_looked_for_only_at_the_vendors_own_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert create("google", "m").api_key_env == "GEMINI_API_KEY"
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    assert create("google", "m").api_key_env == "GOOGLE_API_KEY"
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    assert create("google", "m").api_key_env == "GEMINI_API_KEY"
    assert create("google", "m", base_url="http://127.0.0.1:1").api_key_env is None
    assert create("anthropic", "m", api_key_env="MINE").api_key_env == "MINE"


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("anthropic: ", {}, "blank name"),
        ("claude", {}, "blank name"),
        ("martian:m", {}, "knows no vendor 'martian'"),
        ("anthropic:m", {"base_url": "ftp://x"}, "base_url"),
        ("anthropic:m", {"base_url": "http://user:secret@x"}, "not shown"),
        ("anthropic:m", {"api_key_env": "sk-ant-secret"}, "not shown"),
        ("anthropic:m", {"timeout_s": 0}, "timeout_s"),
        ("anthropic:m", {"api_key": "k"}, "nearest: 'api_key_env'"),
    ],
)
def test_a_setting_that_is_wrong_is_a_config_error(
    model: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(errors.ConfigError, match=said) as caught:
        create("pydantic_ai", model, **options)
    assert "secret" not in str(caught.value)


async def test_a_key_that_is_not_set_is_named_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(errors.AuthFailed, match="ANTHROPIC_API_KEY is not set"):
        await Worker("anthropic:claude", name="c").complete(HELLO, call=CallContext())
    monkeypatch.delenv(VARIABLE)
    for vendor in VENDORS:
        error = await failure(vendor, FOUR[vendor])
        assert VARIABLE in str(error)


@each_vendor
async def test_the_key_goes_out_in_one_header_alone(vendor: str) -> None:
    got, server, _ = await ask(vendor, FOUR[vendor])
    (header,) = [name for name, value in server.headers[0].items() if KEY in value]
    assert header in ("x-api-key", "authorization", "x-goog-api-key")
    for shown in (server.paths[0], json.dumps(server.bodies), repr(got)):
        assert KEY not in shown


@each_vendor
async def test_no_key_leaves_for_a_host_that_it_was_not_named_for(
    vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (*VENDORS_OWN, "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(variable, KEY)
    _, server, _ = await ask(vendor, FOUR[vendor], api_key_env=None)
    assert KEY not in repr(server.headers)


# ── what is sent ──────────────────────────────────────────────────────────────────────────────────
async def test_what_the_user_set_is_sent_to_anthropic_and_on_record() -> None:
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    sampling = Sampling(max_tokens=2048, seed=7, body={**thinking, "top_k": 3})
    got, server, _ = await ask("anthropic", FOUR["anthropic"], sampling=sampling)
    sent = server.bodies[0]
    assert server.paths == ["/v1/messages"]
    assert (sent["model"], sent["system"]) == ("m-1", "Be brief.")
    assert sent["messages"] == [{"role": "user", "content": [text("What is 2 + 2?")]}]
    set_by_body = {**thinking, "top_k": 3}
    assert sent.items() >= set_by_body.items()
    assert sent["max_tokens"] == 2048
    assert got.body_sent["model"] == "anthropic:m-1"
    assert got.body_sent["max_tokens"] == 2048
    assert got.body_sent["extra_body"] == set_by_body


async def test_what_the_user_set_is_sent_to_google_and_on_record() -> None:
    thinking = {"google_thinking_config": {"thinking_budget": 128}}
    sampling = Sampling(0.2, 2048, 7, {**thinking, "top_p": 0.5})
    got, server, _ = await ask("google", FOUR["google"], sampling=sampling)
    assert server.paths == ["/v1beta/models/m-1:generateContent"]
    config = server.bodies[0]["generationConfig"]
    wanted = {"temperature": 0.2, "maxOutputTokens": 2048, "seed": 7, "topP": 0.5}
    assert config.items() >= wanted.items()
    assert config["thinkingConfig"]["thinking_budget"] == 128
    assert got.body_sent.items() >= thinking.items()


@pytest.mark.parametrize(
    ("vendor", "body", "said"),
    [
        ("anthropic", {"x": object()}, "JSON"),
        (
            "google",
            {"generationConfig": {}},
            "generationConfig: not sent to google; expected google_",
        ),
    ],
)
async def test_a_body_that_cannot_be_sent_is_a_config_error(
    vendor: str, body: dict[str, Any], said: str
) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        await ask(vendor, FOUR[vendor], sampling=Sampling(body=body))


ADD = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
TOOLS = Sampling(body={"tools": [{"type": "function", "function": ADD}]})
IMAGE = {"type": "image_url", "image_url": {"url": PNG}}
CALL = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"x":2}'}}
SHOWN = Message("user", "See:", (IMAGE, {"type": "text", "text": "it"}))
CALLED = Message("assistant", "", ({"tool_calls": [CALL]},))
TURNS = (SHOWN, CALLED, Message("tool", "2", ({"tool_call_id": "t1"},)))


async def test_turns_images_tools_and_their_results_have_the_form_of_anthropic() -> None:
    _, server, _ = await ask("anthropic", FOUR["anthropic"], messages=TURNS, sampling=TOOLS)
    seen, asked, answered = server.bodies[0]["messages"]
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    image = {"type": "image", "source": source}
    assert seen["content"] == [text("See:"), image, text("it")]
    assert asked["content"] == [{"type": "tool_use", "id": "t1", "name": "add", "input": {"x": 2}}]
    assert (answered["role"], answered["content"][0]["tool_use_id"]) == ("user", "t1")
    assert server.bodies[0]["tools"][0]["name"] == "add"


async def test_turns_images_tools_and_their_results_have_the_form_of_google() -> None:
    _, server, _ = await ask("google", FOUR["google"], messages=TURNS, sampling=TOOLS)
    seen, asked, answered = (turn["parts"] for turn in server.bodies[0]["contents"])
    assert seen[1]["inlineData"]["data"] == "AAAA"
    assert asked[0]["functionCall"]["args"] == {"x": 2}
    assert answered[0]["functionResponse"]["name"] == "add"
    assert server.bodies[0]["tools"][0]["functionDeclarations"][0]["name"] == "add"


@each_vendor
@pytest.mark.parametrize(
    ("role", "part"),
    [
        ("user", {"type": "hologram"}),
        ("user", {"type": "image_url"}),
        ("user", {"type": "image_url", "image_url": "data:image/png;base64,no base64!"}),
        ("user", {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
        ("tool", {}),
        ("tool", {"tool_call_id": "nobody called"}),
    ],
)
async def test_a_turn_that_has_no_form_there_is_rejected_before_anything_is_sent(
    vendor: str, role: Any, part: dict[str, Any]
) -> None:
    error = await failure(vendor, messages=(Message(role, "x", (part,)),))
    assert type(error) is errors.Rejected
    assert "could not be written" in str(error)
    assert not error.retryable


# ── what comes back ───────────────────────────────────────────────────────────────────────────────
THOUGHT = {
    "anthropic": {"type": "thinking", "thinking": "two and two", "signature": "s"},
    "google": {"text": "two and two", "thought": True},
}


def check_said(got: Completion, words: str, finish: str) -> None:
    """Check what a completion says after the thought above, and how it ends."""
    assert got.text == words
    assert got.reasoning == "two and two"
    assert got.finish_reason == finish


async def test_text_thinking_tool_calls_and_usage_of_anthropic_are_kept_apart() -> None:
    called = {"type": "tool_use", "id": "t1", "name": "add", "input": {"x": 2}}
    blocks = [THOUGHT["anthropic"], text("I "), text("add."), called]
    used = {"cache_read_input_tokens": 40, "cache_creation_input_tokens": 3, "output_tokens": 50}
    got, _, _ = await ask("anthropic", says(message(*blocks, stop="tool_use", **used)))
    check_said(got, "I add.", "tool_calls")
    assert got.tool_calls == (CALL,)
    assert got.usage == Usage(55, 40, 50, seconds=got.usage.seconds)
    assert got.usage.seconds > 0


async def test_text_thinking_tool_calls_and_usage_of_google_are_kept_apart() -> None:
    called = {"functionCall": {"name": "add", "args": {"x": 2}}}
    used = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 40,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
    }
    answer = response(THOUGHT["google"], {"text": "I add."}, called, usage=used)
    got, _, _ = await ask("google", says(answer))
    check_said(got, "I add.", "tool_calls")
    assert got.tool_calls == ({**CALL, "id": "call_0"},)
    assert got.usage == Usage(100, 40, 50, 30, seconds=got.usage.seconds)


THINKING = {"type": "thinking", "thinking": "", "signature": ""}
COUNTS = {"promptTokenCount": 52, "candidatesTokenCount": 6, "thoughtsTokenCount": 3}
STREAM_OF_ANTHROPIC = [
    start(cache_read_input_tokens=40),
    event("ping"),
    *block(0, THINKING, {"type": "thinking_delta", "thinking": "hm"}),
    *said("Grüße, ", "世界 🌍", index=1),
    *end(output_tokens=9),
]
STREAM_OF_GOOGLE = [
    part_of_google("hm", thought=True),
    part_of_google("Grüße, "),
    data(response({"text": "世界 🌍"})),
    data({"usageMetadata": COUNTS}),
]
STREAMS = {"anthropic": STREAM_OF_ANTHROPIC, "google": STREAM_OF_GOOGLE}
PATHS = {
    "anthropic": "/v1/messages",
    "google": "/v1beta/models/m-1:streamGenerateContent?alt=sse",
}


@each_vendor
async def test_a_stream_is_put_together_however_its_bytes_are_cut(vendor: str) -> None:
    stream = b"".join(STREAMS[vendor])
    starts = range(0, len(stream), 7)
    pieces = [stream[start : start + 7] for start in starts]
    got, server, heard = await ask(vendor, streams(pieces), stream=True)
    assert server.paths == [PATHS[vendor]]
    assert got.text == "Grüße, 世界 🌍" == "".join(heard)
    assert (got.reasoning, got.finish_reason) == ("hm", "stop")
    assert (got.usage.input_tokens, got.usage.output_tokens) == (52, 9)


CUT = {
    "anthropic": says(message(THOUGHT["anthropic"], stop="max_tokens")),
    "google": says(response(THOUGHT["google"], finish="MAX_TOKENS")),
}


@each_vendor
async def test_an_answer_cut_at_its_token_limit_is_a_completion_even_before_its_first_word(
    vendor: str,
) -> None:
    got, _, _ = await ask(vendor, CUT[vendor])
    check_said(got, "", "length")


# ── failures ──────────────────────────────────────────────────────────────────────────────────────
BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 12}}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
UNAVAILABLE = {
    "error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
}
NO_ANSWER = errors.MalformedResponse | errors.TruncatedResponse | errors.EmptyResponse
# Which of them it is depends on the library. All three are retried, and none is graded.


@pytest.mark.parametrize(
    ("vendor", "body", "kind"),
    [
        ("anthropic", message(text("4"), stop=None), errors.TruncatedResponse),
        ("anthropic", message(text("4"), stop="pause_turn"), errors.MalformedResponse),
        ("anthropic", message(text(" ")), errors.EmptyResponse),
        ("anthropic", message(stop="refusal"), errors.Refused),
        ("anthropic", OVERLOADED, NO_ANSWER),
        ("google", response({"text": "4"}, finish=None), errors.TruncatedResponse),
        ("google", response({"text": "4"}, finish="OTHER"), errors.MalformedResponse),
        ("google", response(finish="MALFORMED_FUNCTION_CALL"), errors.MalformedResponse),
        ("google", response(), errors.EmptyResponse),
        ("google", {"candidates": [{"finishReason": "SAFETY"}]}, errors.Refused),
        ("google", BLOCKED, errors.Refused),
        ("google", UNAVAILABLE, NO_ANSWER),
    ],
)
async def test_what_is_no_whole_answer_under_status_200_is_a_typed_failure(
    vendor, body, kind
) -> None:
    error = await failure(vendor, says(body))
    assert isinstance(error, kind), repr(error)
    assert error.retryable == (not isinstance(error, errors.Refused))
    if vendor == "anthropic" and kind is errors.Refused:
        assert (error.usage.input_tokens, error.usage.output_tokens) == (12, 5)
    assert "m-1 at http://127.0.0.1" in str(error)


@each_vendor
@pytest.mark.parametrize("body", [b"", b"<html>502</html>", b'{"a": "b'])
async def test_what_is_no_answer_at_all_is_a_typed_failure(vendor: str, body: bytes) -> None:
    error = await failure(vendor, raw(body))
    assert isinstance(error, NO_ANSWER)


BROKEN = event("error", error=OVERLOADED["error"])


@pytest.mark.parametrize(
    ("vendor", "pieces", "kind"),
    [
        ("anthropic", [], NO_ANSWER),
        ("anthropic", HALF["anthropic"], errors.TruncatedResponse),
        ("anthropic", [start(), *said("4")], errors.TruncatedResponse),
        ("anthropic", [start(), *end("refusal")], errors.Refused),
        ("anthropic", [BROKEN], errors.ServerFailed),
        ("anthropic", [*HALF["anthropic"], BROKEN], errors.TruncatedResponse),
        ("anthropic", [start(), b"data: {oops}\n\n", *end()], NO_ANSWER),
        ("google", HALF["google"], errors.TruncatedResponse),
        ("google", [data(response())], errors.EmptyResponse),
        ("google", [data(UNAVAILABLE)], errors.ServerFailed),
        ("google", [*HALF["google"], data(UNAVAILABLE)], errors.TruncatedResponse),
        ("google", [*HALF["google"], b'data: {"candidates": [{"cont'], NO_ANSWER),
    ],
)
async def test_a_stream_that_does_not_say_its_end_is_a_typed_failure(vendor, pieces, kind) -> None:
    error = await failure(vendor, streams(pieces), stream=True)
    assert isinstance(error, kind)


@each_vendor
async def test_a_connection_that_breaks_off_in_a_stream_is_lost(vendor: str) -> None:
    error = await failure(vendor, streams(HALF[vendor], reset=True), stream=True)
    assert type(error) is errors.ConnectionLost
    assert error.usage is None  # nobody knows what it used


@each_vendor
@pytest.mark.parametrize(
    ("status", "words", "kind", "retryable"),
    [
        (400, "prompt is too long: 300000 tokens > 200000 maximum", errors.ContextTooLong, False),
        (429, "slow down", errors.RateLimited, True),
        (529, "Overloaded", errors.ServerFailed, True),
    ],
)
async def test_a_status_is_a_typed_failure_and_is_asked_for_once(
    vendor, status, words, kind, *, retryable
) -> None:
    body = {"error": {"message": f"{words} {KEY}"}}
    answer = says(body, status=status, headers={"Retry-After": "3"})
    error = await failure(vendor, answer, answer, answer)
    assert (type(error), error.status, error.retryable) == (kind, status, retryable)
    assert words in str(error)
    if isinstance(error, errors.RateLimited | errors.ServerFailed):
        assert error.retry_after == 3


@each_vendor
async def test_a_server_that_is_not_there_is_unreachable_and_nothing_is_owed(vendor: str) -> None:
    error = await failure(vendor, base_url="http://127.0.0.1:1")
    assert type(error) is errors.Unreachable
    assert not error.sent
    assert error.unbilled


# ── deadlines and connections ─────────────────────────────────────────────────────────────────────
@each_vendor
@pytest.mark.parametrize("by", ["timeout_s", "read_timeout_s"])
async def test_a_server_that_says_nothing_is_cut_off(vendor: str, by: str) -> None:
    error = await failure(vendor, hangs(), **{by: 0.2})
    assert type(error) is errors.WorkerTimeout


@each_vendor
@pytest.mark.parametrize("stream", [False, True], ids=["in one piece", "streamed"])
async def test_a_cancelled_call_hangs_up(vendor: str, *, stream: bool) -> None:
    answer = streams(HALF[vendor] * 50, pause=0.1) if stream else hangs()
    on_text = print if stream else None
    async with (
        native_server(answer) as server,
        create(vendor, "m-1", base_url=server.url) as client,
    ):
        call = client.complete(HELLO, Sampling(), call=CallContext(), on_text=on_text)
        task = asyncio.create_task(call)
        await asyncio.wait_for(server.asked.wait(), 20)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.hung_up.wait(), 20)


@each_vendor
async def test_what_on_text_raises_ends_the_call_as_it_is(vendor: str) -> None:
    def refuses(piece: str) -> None:
        raise KeyError("mine")

    async with (
        native_server(streams(FOUR_STREAMED[vendor])) as server,
        create(vendor, "m-1", base_url=server.url) as client,
    ):
        with pytest.raises(KeyError, match="mine"):
            await client.complete(HELLO, Sampling(), call=CallContext(), on_text=refuses)
