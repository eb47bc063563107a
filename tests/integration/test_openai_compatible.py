"""The OpenAI-compatible client against a loopback server that plays every fault."""

from __future__ import annotations

import asyncio
import gc
import json
import traceback
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from aiohttp import web
from chat_server import (
    DONE,
    Answer,
    ChatServer,
    bytes_on_the_wire,
    chat_server,
    chunk,
    completion,
    event,
    hangs,
    raw,
    says,
    streams,
)

from integration.clock import skip
from openconductor import errors
from openconductor.protocols import CallContext
from openconductor.providers import create
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.types import Completion, Message, Sampling, Usage

KEY = "not-a-real-key/8f3b1c+d0=Zq"
VARIABLE = "OPENCONDUCTOR_TEST_KEY"
HELLO = (Message("user", "What is 2 + 2?"),)
USED = Usage(input_tokens=12, output_tokens=5)
BILL = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
BILLED = event({"choices": [], "usage": BILL})


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)


def provider(server: ChatServer, **options: object) -> OpenAICompatibleProvider:
    return OpenAICompatibleProvider(
        "m", **{"base_url": server.url, "api_key_env": VARIABLE, **options}
    )  # type: ignore[arg-type]


async def say(client: OpenAICompatibleProvider, **options: Any) -> Completion:
    return await client.complete(HELLO, Sampling(), call=CallContext(), **options)


async def ask(
    *answers: Answer, stream: bool = False, sampling: Sampling | None = None, **options: object
) -> tuple[Completion, ChatServer, list[str]]:
    """One call against a script; (completion, server, pieces of text)."""
    pieces: list[str] = []
    on_text = pieces.append if stream else None
    async with chat_server(*answers) as server, provider(server, **options) as client:
        call = client.complete(HELLO, sampling or Sampling(), call=CallContext(), on_text=on_text)
        return await call, server, pieces


async def failure(*answers: Answer, stream: bool = False, **options: object) -> errors.WorkerError:
    """Return the error of one call, which must not hold the key, however it is printed."""
    with pytest.raises(errors.WorkerError) as caught:
        await ask(*answers, stream=stream, **options)
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(error.__dict__)
    coded = b64encode(f"Bearer {KEY}".encode()).decode()
    for form in (KEY[:20], quote(KEY, safe=""), coded[10:-4]):
        assert form.lower() not in shown.lower()
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    return error


# ── what is sent ──────────────────────────────────────────────────────────────────────────────────
async def test_the_turns_and_the_sampling_with_its_body_over_it_are_sent_and_kept_on_record() -> (
    None
):
    thinks = {"thinking": {"budget_tokens": 128}}
    sampling = Sampling(temperature=0.2, max_tokens=9, seed=7, body={"temperature": 1, **thinks})
    said, server, _ = await ask(says(completion()), sampling=sampling)
    assert server.bodies[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": "What is 2 + 2?"}],
        "temperature": 1,
        "max_tokens": 9,
        "seed": 7,
        **thinks,
    }
    assert said.body_sent == server.bodies[0]


async def test_without_a_named_variable_no_key_leaves_for_another_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    _, server, _ = await ask(says(completion()), api_key_env=None)
    assert "authorization" not in server.headers[0]


async def test_the_environment_names_the_server_where_no_base_url_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with chat_server(says(completion())) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/")
        client = create("openai", "m")
        assert client.identity == f"openai_compatible m {server.url}"
        await client.complete(HELLO, Sampling(), call=CallContext())
        await client.aclose()
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"

    explicit = create("openai", "m", base_url="https://api.openai.com/v1")
    assert explicit.identity.endswith("//api.openai.com/v1")
    assert "localhost" in create("vllm", "m").identity
    monkeypatch.setenv("OPENAI_BASE_URL", " ")
    assert create("openai", "m").identity == explicit.identity
    monkeypatch.setenv("OPENAI_BASE_URL", "my-server:8000")
    with pytest.raises(errors.ConfigError, match=r"OPENAI_BASE_URL.*my-server.*expected http"):
        create("openai", "m")


@pytest.mark.parametrize("name", ["openai_compatible", "ollama", "vllm", "openrouter"])
def test_a_provider_is_remote_and_says_what_it_is_and_takes_a_read_timeout(name: str) -> None:
    made = create(name, "m", timeout_s=9.0, read_timeout_s=3.0)
    assert isinstance(made, OpenAICompatibleProvider)
    assert made.remote
    assert made.identity == f"openai_compatible m {made.base_url}"
    assert made.identity.count("http") == 1


async def test_a_stream_is_asked_for_only_where_someone_listens() -> None:
    thought = chunk(role="assistant", content="") + chunk(reasoning="hm ")
    text = [chunk("Grüße, "), chunk("世界 🌍"), chunk(finish="stop")]
    said, server, pieces = await ask(streams([thought, *text, BILLED, DONE]), stream=True)
    assert said.body_sent == server.bodies[0]
    assert server.bodies[0]["stream"] is True
    assert server.bodies[0]["stream_options"] == {"include_usage": True}
    assert pieces == ["Grüße, ", "世界 🌍"]
    assert (said.text, said.reasoning) == ("Grüße, 世界 🌍", "hm ")
    assert (said.usage.input_tokens, said.usage.output_tokens) == (12, 5)


# ── what comes back ───────────────────────────────────────────────────────────────────────────────
async def test_text_reasoning_tool_calls_and_usage_are_kept_apart() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    body = completion("4", finish="tool_calls", reasoning_content="two and two", tool_calls=[call])
    body["usage"] = {**BILL, "prompt_tokens_details": {"cached_tokens": 4}}
    said, _, _ = await ask(says(body))
    assert (said.text, said.reasoning, said.tool_calls) == ("4", "two and two", (call,))
    assert said.finish_reason == "tool_calls"
    assert said.usage == Usage(12, 4, 5, seconds=said.usage.seconds)
    assert said.usage.seconds > 0


async def test_an_answer_cut_at_its_token_limit_is_a_completion_even_if_nothing_was_said() -> None:
    said, _, _ = await ask(says(completion("", finish="length", reasoning_content="first…")))
    assert (said.text, said.reasoning, said.finish_reason) == ("", "first…", "length")


async def test_a_server_that_cannot_stream_is_read_in_one_piece() -> None:
    said, _, pieces = await ask(says(completion("4")), stream=True)
    assert said.text == "4"
    assert pieces == ["4"]


# ── what is cut, empty or garbage ─────────────────────────────────────────────────────────────────
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "text/plain", "x/y+json"]
)
async def test_json_is_read_under_each_name_that_servers_give_it(kind: str) -> None:
    said, _, _ = await ask(raw(json.dumps(completion("4")).encode(), content_type=kind))
    assert said.text == "4"


async def test_a_request_of_megabytes_is_sent() -> None:
    sampling = Sampling(body={"image": "A" * 3_000_000})
    said, server, _ = await ask(says(completion()), sampling=sampling)
    assert server.bodies[0]["image"] == sampling.body["image"]
    assert said.body_sent == server.bodies[0]


# ── what a failed call is known to have used ──────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (says(completion("")), errors.EmptyResponse),
        (says(completion(None, refusal="no")), errors.Refused),
        (says({"choices": [], "usage": BILL}), errors.MalformedResponse),
        (says({"error": {"code": 503}, "usage": BILL}), errors.ServerFailed),
    ],
)
async def test_a_failed_call_carries_the_usage_that_was_reported(answer, kind) -> None:
    error = await failure(answer)
    assert (type(error), error.usage) == (kind, USED)


@pytest.mark.parametrize(
    ("pieces", "reset", "kind"),
    [
        ([chunk(refusal="No."), chunk(finish="stop"), BILLED, DONE], False, errors.Refused),
        ([chunk("x"), BILLED], True, errors.ConnectionLost),
        ([chunk("x"), BILLED, b"data: {nonsense}\n\n"], False, errors.MalformedResponse),
    ],
)
async def test_a_failed_stream_carries_the_usage_that_was_reported(pieces, reset, kind) -> None:
    error = await failure(streams(pieces, reset=reset), stream=True)
    assert (type(error), error.usage) == (kind, USED)


@pytest.mark.parametrize("limit", ["timeout_s", "read_timeout_s"])
@pytest.mark.parametrize(("said", "usage"), [([BILLED], USED), ([], None)])
async def test_a_timeout_carries_the_usage_that_was_reported_before_it(
    said: list[bytes], usage: Usage | None, limit: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        begun = await streams([chunk("x"), *said])(request)
        await asyncio.sleep(0.05)  # the client, in this very loop, reads what was written
        skip(20.0)
        await asyncio.Event().wait()
        return begun

    error = await failure(answer, stream=True, **{limit: 20.0})
    assert type(error) is errors.WorkerTimeout
    assert error.usage == usage


# ── refusals of the server ────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (401, {"error": {"message": "Incorrect API key provided"}}, errors.AuthFailed, False),
        (
            400,
            [{"error": {"code": 400, "message": "API key not valid."}}],
            errors.AuthFailed,
            False,
        ),
        (403, {"error": {"message": "your input was flagged"}}, errors.Refused, False),
        (
            400,
            {"error": {"code": "context_length_exceeded", "message": "no"}},
            errors.ContextTooLong,
            False,
        ),
        (
            400,
            {"object": "error", "message": "its maximum context length is 9 tokens."},
            errors.ContextTooLong,
            False,
        ),
        (
            400,
            {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}},
            errors.ContextTooLong,
            False,
        ),
        (400, {"error": {"code": "content_filter", "message": "filtered"}}, errors.Refused, False),
        (400, {"error": {"message": "bad temperature"}}, errors.Rejected, False),
        (422, {"detail": [{"msg": "no such field"}]}, errors.Rejected, False),
        (400, {}, errors.Rejected, False),
        (402, {"error": {"message": "no credit"}}, errors.RateLimited, False),
        (429, {}, errors.RateLimited, True),
        (
            429,
            {"error": {"code": "insufficient_quota", "message": "spent"}},
            errors.RateLimited,
            False,
        ),
        (500, {"error": "oops"}, errors.ServerFailed, True),
        (500, {}, errors.ServerFailed, True),
    ],
)
async def test_a_status_becomes_the_error_that_it_means_and_without_a_report_has_no_usage(
    status: int, body: object, kind: type[errors.WorkerError], retryable: bool
) -> None:
    error = await failure(says(body, status=status))
    assert type(error) is kind
    assert (error.status, error.retryable, error.usage) == (status, retryable, None)


async def test_a_filtered_answer_with_text_is_a_completion_that_says_so() -> None:
    said, _, _ = await ask(says(completion("so far", finish="content_filter: PROHIBITED_CONTENT")))
    assert (said.text, said.finish_reason) == ("so far", "content_filter")


# ── the key ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "answer",
    [says({}, status=500), bytes_on_the_wire(b""), bytes_on_the_wire(b"no"), hangs(), says({})],
)
async def test_the_key_is_not_among_what_the_frames_of_a_failure_hold(answer: Answer) -> None:
    error = await failure(answer, timeout_s=0.5)
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = [frame for frame in shown.stack if "openconductor/providers" in frame.filename]
    assert any(frame.name == "complete" for frame in frames)
    assert KEY not in str([frame.locals for frame in frames])


async def test_the_key_is_sent_in_the_header_and_is_in_nothing_that_a_provider_shows() -> None:
    async with chat_server(says(completion())) as server, provider(server) as client:
        said = await say(client)
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
        assert KEY not in repr(client) + repr(vars(client)) + client.identity + repr(said)


async def test_a_missing_key_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    error = await failure(says(completion()))
    assert type(error) is errors.AuthFailed
    assert VARIABLE in str(error)


async def test_a_key_that_no_header_can_hold_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (f"{KEY}\r\nX-Evil: 1", f"{KEY}é", f"{KEY} {KEY}"):
        monkeypatch.setenv(VARIABLE, key)
        assert type(await failure(says(completion()))) is errors.AuthFailed


# ── the connection and the clock ──────────────────────────────────────────────────────────────────
async def test_a_server_that_does_not_speak_tls_is_unreachable_under_https() -> None:
    async with (
        chat_server() as server,
        provider(server, base_url=server.url.replace("http:", "https:")) as client,
    ):
        with pytest.raises(errors.Unreachable) as caught:
            await say(client)
    assert caught.value.__context__ is None


async def test_a_deadline_that_has_passed_sends_nothing() -> None:
    passed = CallContext(deadline=asyncio.get_running_loop().time())
    async with chat_server(says(completion())) as server, provider(server) as client:
        with pytest.raises(errors.WorkerTimeout):
            await client.complete(HELLO, Sampling(), call=passed)
        assert server.bodies == []


async def test_a_silence_longer_than_the_read_timeout_is_a_timeout() -> None:
    half = HEAD + b"Content-Length: 500\r\n\r\n{"
    for answer in (hangs(), bytes_on_the_wire(half, then=2.0)):
        assert type(await failure(answer, read_timeout_s=0.1)) is errors.WorkerTimeout


async def test_what_a_listener_raises_is_raised_as_it_is() -> None:
    def listener(text: str) -> None:
        raise BrokenPipeError("the page is gone")

    for answer in (streams([chunk("4", finish="stop"), DONE]), says(completion())):
        async with chat_server(answer) as server, provider(server) as client:
            with pytest.raises(BrokenPipeError):
                await say(client, on_text=listener)


async def test_a_failed_answer_in_one_piece_is_not_heard_in_parts() -> None:
    pieces: list[str] = []
    async with (
        chat_server(says(completion("so far", finish=None))) as server,
        provider(server) as client,
    ):
        with pytest.raises(errors.TruncatedResponse):
            await say(client, on_text=pieces.append)
    assert pieces == []


def in_a_loop_of_its_own(work: Callable[[], Awaitable[None]]) -> list[str]:
    """Run something in an event loop of its own; return what the loop complained about."""
    complaints: list[str] = []

    async def main() -> None:
        handler = asyncio.get_running_loop().set_exception_handler
        handler(lambda loop, context: complaints.append(str(context["message"])))
        await work()

    asyncio.run(main())
    gc.collect()
    return complaints


def test_a_loop_that_ends_leaves_no_unclosed_session() -> None:
    client: OpenAICompatibleProvider | None = None
    port = 0

    async def work() -> None:
        nonlocal client, port
        async with chat_server(says(completion()), port=port) as server:
            client, port = client or provider(server), urlsplit(server.url).port
            await say(client)

    # The provider outlives both loops, and works in each.
    assert in_a_loop_of_its_own(work) == []
    assert in_a_loop_of_its_own(work) == []


async def test_a_closed_provider_can_be_used_again() -> None:
    async with chat_server(says(completion()), says(completion())) as server:
        client = provider(server)
        await say(client)
        await client.aclose()
        await say(client)
        await client.aclose()
        assert len(set(server.peers)) == 2


# ── what is wrong before anything is sent ─────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "ftp://example.org"},
        {"base_url": "localhost:8000"},
        {"base_url": "http://user:pass@localhost/v1"},
        {"base_url": "http://localhost/v1?key=1"},
        {"base_url": "http://localhost:99999/v1"},
        {"api_key_env": "sk-1234567890abcdef"},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"read_timeout_s": -1},
    ],
    ids=str,
)
def test_a_wrong_option_is_a_config_error(options: dict[str, object]) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        OpenAICompatibleProvider("m", **options)  # type: ignore[arg-type]
    assert "1234567890abcdef" not in str(caught.value)
    assert "pass@" not in str(caught.value)
