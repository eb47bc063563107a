"""Connections for real, on loopback: TLS, proxies, names, and which connections are kept."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from integration.clock import skip
from openconductor.errors import Unreachable, WorkerError, WorkerTimeout
from openconductor.protocols import CallContext
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.providers.wire import http, http_connection
from openconductor.types import Completion, Message, Sampling

VARIABLE = "OPENCONDUCTOR_TEST_KEY"
KEY = "sk-canary-0f3a7"
PASSWORD = "hunter2"
HELLO = (Message("user", "What is 2 + 2?"),)
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}
BODY = json.dumps({"object": "chat.completion", "choices": [CHOICE]}).encode()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv(VARIABLE, KEY)


def answer(body: bytes = BODY, *, extra: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


@dataclass
class Server:
    """What a server saw."""

    port: int = 0
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    opened: int = 0
    open: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


Say = Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers: dict[str, str] = {}
    for text in fields:
        name, _, value = text.partition(":")
        headers[name.lower()] = value.strip()
    await reader.readexactly(int(headers.get("content-length", "0")))
    return line, headers


async def answers(
    server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer every request."""
    while True:
        server.requests.append(await read_request(reader))
        writer.write(answer())


def replies(*texts: bytes) -> Say:
    """Answer a request with each of these, then hang up."""

    async def say(
        server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for text in texts:
            server.requests.append(await read_request(reader))
            writer.write(text)

    return say


async def mute(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read, and never answer."""
    await reader.read()


@asynccontextmanager
async def serve(
    say: Say = answers, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    """Serve on a free port; each connection is closed when ``say`` is done with it."""
    server, running = Server(), set[asyncio.Task[None]]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        server.opened += 1
        server.open += 1
        try:
            async with asyncio.timeout(60):
                await say(server, reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            running.discard(task)
            server.open -= 1
            writer.close()

    listening = await asyncio.start_server(handle, host, 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in list(running):
            task.cancel()
        await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - whatever is asked for; this is a test's
            await asyncio.sleep(0.005)


def client(url: str, **options: object) -> OpenAICompatibleProvider:
    given: dict[str, Any] = {"api_key_env": VARIABLE, **options}
    return OpenAICompatibleProvider("m", base_url=url, **given)


async def ask(provider: OpenAICompatibleProvider) -> Completion:
    return await provider.complete(HELLO, Sampling(), call=CallContext())


async def fail(url: str, **options: object) -> WorkerError:
    async with client(url, **options) as provider:
        with pytest.raises(WorkerError) as caught:
            await ask(provider)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert KEY not in str(caught.value) and PASSWORD not in str(caught.value)
    return caught.value


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────
CERTIFICATE = Path(__file__).with_name("localhost.pem")  # and its key


@pytest.fixture
def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


@pytest.fixture
def trusted(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The server's side, where clients trust its certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    return tls


async def test_a_server_whose_certificate_is_trusted_is_asked_over_tls_and_its_connection_kept(
    trusted,
) -> None:
    async with (
        serve(tls=trusted) as server,
        client(f"https://localhost:{server.port}/v1") as provider,
    ):
        for _ in range(3):
            assert (await ask(provider)).text == "4"
    assert server.opened == 1
    assert server.requests[0][1]["authorization"] == f"Bearer {KEY}"


async def test_a_certificate_that_is_not_trusted_or_another_hosts_is_final_and_nothing_is_sent(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tls=tls) as server:
        error = await fail(f"https://localhost:{server.port}/v1")
        assert (type(error), error.retryable) == (Unreachable, False)
    assert server.requests == []
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    async with serve(tls=tls, host="127.0.0.2") as other:
        error = await fail(f"https://127.0.0.2:{other.port}/v1")
    assert (type(error), error.retryable) == (Unreachable, False)
    assert "not valid" in str(error)
    assert other.requests == []


async def test_a_handshake_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(mute) as server:
        with monkeypatch.context() as patch:
            patch.setattr(http, "CONNECT_SECONDS", 0.2)
            error = await fail(f"https://127.0.0.1:{server.port}/v1")
        assert (type(error), error.retryable, error.unbilled) == (Unreachable, True, True)
        assert "no connection within 0.2 s" in str(error)
        error = await fail(f"https://127.0.0.1:{server.port}/v1", timeout_s=0.1)
        assert type(error) is WorkerTimeout
        assert (
            error.usage is not None and error.usage.tokens == 0
        )  # nothing was sent: nothing is owed
        await until(lambda: server.open == 0)


# ── proxies ───────────────────────────────────────────────────────────────────────────────────────
async def tunnels(
    server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Be a proxy: a tunnel for CONNECT, an answer of its own for the rest."""
    line, headers = await read_request(reader)
    server.requests.append((line, headers))
    if not line.startswith("CONNECT "):
        writer.write(answer())
        await answers(server, reader, writer)
    host, port = line.split()[1].rsplit(":", 1)
    there_reader, there_writer = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    try:
        await asyncio.gather(carry(reader, there_writer), carry(there_reader, writer))
    finally:
        there_writer.close()


def credentials(given: dict[str, str]) -> bool:
    expected = b64encode(f"user:{PASSWORD}".encode()).decode()
    return given.get("proxy-authorization") == f"Basic {expected}"


async def test_https_goes_through_a_tunnel_and_the_proxy_sees_neither_key_nor_question(
    trusted, monkeypatch
) -> None:
    async with serve(tls=trusted) as server, serve(tunnels) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:{PASSWORD}@127.0.0.1:{proxy.port}")
        async with client(f"https://localhost:{server.port}/v1") as provider:
            for _ in range(2):
                assert (await ask(provider)).text == "4"
    assert [line for line, _ in proxy.requests] == [f"CONNECT localhost:{server.port} HTTP/1.1"]
    assert credentials(proxy.requests[0][1])
    assert "authorization" not in proxy.requests[0][1]
    assert (server.opened, len(server.requests)) == (1, 2)
    assert "proxy-authorization" not in server.requests[0][1]


async def test_a_proxy_may_be_asked_over_tls_itself(trusted, monkeypatch) -> None:
    async with serve(tls=trusted) as server, serve(tunnels, tls=trusted) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"https://localhost:{proxy.port}")
        async with client(f"https://localhost:{server.port}/v1") as provider:
            assert (await ask(provider)).text == "4"


async def test_a_host_that_the_environment_excepts_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with serve() as server, client(server.url) as provider:
        assert (await ask(provider)).text == "4"


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 502 No\r\n\r\n", b""]
)
async def test_a_proxy_that_refuses_leaves_no_connection(
    reply: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(replies(reply)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:{PASSWORD}@127.0.0.1:{proxy.port}")
        error = await fail("https://api.example/v1")
    assert (type(error), error.retryable, error.unbilled) == (Unreachable, True, True)
    assert "no connection within" not in str(error), "it was told at once"


# ── names ─────────────────────────────────────────────────────────────────────────────────────────
async def test_a_name_with_several_addresses_is_reached_where_one_of_them_answers() -> None:
    async with (
        serve(host="127.0.0.1") as server,
        client(f"http://localhost:{server.port}/v1") as provider,
    ):
        assert (await ask(provider)).text == "4"


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are looked up; only ``api.example`` is found."""
    names: list[str] = []

    async def look_up(loop: object, host: str, port: int, **options: Any) -> list[Any]:
        names.append(host)
        await asyncio.sleep(0.02)
        if host != "api.example":
            raise OSError(-3, "Temporary failure in name resolution")
        return socket.getaddrinfo("127.0.0.1", port, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    return names


async def test_many_calls_at_once_look_a_name_up_once(looked_up: list[str]) -> None:
    async with serve() as server, client(f"http://api.example:{server.port}/v1") as provider:
        calls = [asyncio.create_task(ask(provider)) for _ in range(20)]
        await asyncio.sleep(0)
        calls[0].cancel()  # it was the one that asked first
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert looked_up.count("api.example") == 1
    assert sum(isinstance(result, Completion) for result in results) == 19


async def test_a_name_that_failed_is_looked_up_again(looked_up: list[str]) -> None:
    async with client("http://nobody.example/v1") as provider:
        for _ in range(2):
            with pytest.raises(Unreachable, match="name resolution"):
                await ask(provider)
    assert looked_up == ["nobody.example"] * 2


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────
async def test_a_connection_that_waited_for_long_is_closed_and_not_used_again() -> None:
    async with serve() as server, client(server.url) as provider:
        await asyncio.gather(*(ask(provider) for _ in range(3)))
        assert server.open == 3
        for _ in range(2):
            skip(0.6 * http_connection.IDLE_SECONDS)
            await ask(provider)
        await until(lambda: server.open == 1)  # the one that was used; the others grew old
        assert server.opened == 3


async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used() -> None:
    async with serve(replies(answer())) as server, client(server.url) as provider:
        for _ in range(3):
            await ask(provider)
            await asyncio.sleep(0.03)
    assert server.opened == len(server.requests) == 3


async def test_a_request_that_may_have_been_read_is_never_sent_a_second_time() -> None:
    async with (
        serve(replies(answer(), b"")) as server,
        client(server.url) as provider,
    ):
        await ask(provider)
        with pytest.raises(Unreachable, match="without a response"):
            await ask(provider)
        await asyncio.sleep(0.05)
    assert len(server.requests) == 2


async def test_closing_ends_the_calls_that_are_under_way() -> None:
    async with serve(mute) as server:
        provider = client(server.url)
        task = asyncio.create_task(ask(provider))
        await until(lambda: server.opened == 1)
        await provider.aclose()
        with pytest.raises(Unreachable):
            await asyncio.wait_for(task, 20)
        await until(lambda: server.open == 0)
