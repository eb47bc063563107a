"""The dialects of vendors and gateways: what their pool files send, over loopback."""

from __future__ import annotations

import base64
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, chat_server, completion, says
from journaled import everything_in
from native_server import message, response, text
from test_http import CERTIFICATE, answers, serve, tunnels

from openconductor import Conductor, WorkerPool
from openconductor.errors import ConfigError, WorkerError
from openconductor.prompt import render_workflow
from openconductor.protocols import CallContext
from openconductor.store import Journal
from openconductor.types import Message, Step, Workflow

KEY = "canary-key-5d1e77a2"
OTHER = "canary-other-91c0f3b8"
HELLO = (Message("user", "What is 2 + 2?"),)
PLAN = render_workflow(Workflow((Step(0, "Answer."),)))
ORIGIN = "ORIGIN"  # in a pool file, stands for the server's address


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("VENDOR_LOGIN", KEY)  # a name that does not look like a key's
    monkeypatch.setenv("GATEWAY_LOGIN", OTHER)


def read_pool(folder: Path, origin: str, lines: str) -> WorkerPool:
    path = folder / "pool.toml"
    table = lines.replace(ORIGIN, origin)
    path.write_text(f'[[worker]]\nname = "w"\nmodel = "gpt-5"\nretries = 0\n{table}\n', "utf-8")
    return WorkerPool.from_toml(path)


async def ask(pool: WorkerPool) -> str:
    try:
        return (await pool[0].complete(HELLO, call=CallContext())).text
    finally:
        await pool.aclose()


def origin_of(server: ChatServer) -> str:
    return server.url.removesuffix("/v1")


BEARER = f"Bearer {KEY}"
ABSENT = None
DIALECTS: dict[str, tuple[str, str, dict[str, str | None]]] = {
    "Azure OpenAI, a deployment": (
        """base_url = "ORIGIN/openai/deployments/mine"
        query = { api-version = "2024-10-21" }
        headers = { api-key = "$VENDOR_LOGIN" }""",
        "/openai/deployments/mine/chat/completions?api-version=2024-10-21",
        {"api-key": KEY, "authorization": ABSENT},
    ),
    "Azure OpenAI, its v1 API": (
        """base_url = "ORIGIN/openai/v1"
        headers = { api-key = "$VENDOR_LOGIN" }""",
        "/openai/v1/chat/completions",
        {"api-key": KEY, "authorization": ABSENT},
    ),
    "Azure API Management": (
        """base_url = "ORIGIN/llm/v1"
        headers = { Ocp-Apim-Subscription-Key = "$GATEWAY_LOGIN" }""",
        "/llm/v1/chat/completions",
        {"ocp-apim-subscription-key": OTHER},
    ),
    "Cloudflare AI Gateway": (
        """base_url = "ORIGIN/v1/account/gateway/compat"
        api_key_env = "VENDOR_LOGIN"
        headers = { cf-aig-authorization = "Bearer $GATEWAY_LOGIN", cf-aig-skip-cache = "true" }""",
        "/v1/account/gateway/compat/chat/completions",
        {
            "authorization": BEARER,
            "cf-aig-authorization": f"Bearer {OTHER}",
            "cf-aig-skip-cache": "true",
        },
    ),
    "LiteLLM proxy": (
        """base_url = "ORIGIN/v1"
        api_key_env = "VENDOR_LOGIN"
        headers = { x-litellm-tags = "openconductor" }""",
        "/v1/chat/completions",
        {"authorization": BEARER, "x-litellm-tags": "openconductor"},
    ),
    "OpenRouter": (
        """provider = "openrouter"
        base_url = "ORIGIN/api/v1"
        api_key_env = "VENDOR_LOGIN"
        headers = { HTTP-Referer = "https://example.org", X-Title = "Mine" }""",
        "/api/v1/chat/completions",
        {"authorization": BEARER, "http-referer": "https://example.org", "x-title": "Mine"},
    ),
    "Vertex AI": (
        """base_url = "ORIGIN/v1/projects/p/locations/l/endpoints/openapi"
        api_key_env = "VENDOR_LOGIN" """,
        "/v1/projects/p/locations/l/endpoints/openapi/chat/completions",
        {"authorization": BEARER},
    ),
    "a reverse proxy with a password": (
        """base_url = "ORIGIN/v1"
        headers = { Authorization = "Basic $VENDOR_LOGIN", User-Agent = "mine/1" }""",
        "/v1/chat/completions",
        {"authorization": f"Basic {KEY}", "user-agent": "mine/1"},
    ),
    "a key in the query": (
        """base_url = "ORIGIN/v1"
        query = { key = "$VENDOR_LOGIN" }""",
        f"/v1/chat/completions?key={KEY}",
        {"authorization": ABSENT},
    ),
}


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_dialect_arrives_as_its_pool_file_says(name: str, tmp_path: Path) -> None:
    lines, path, headers = DIALECTS[name]
    async with chat_server(says(completion())) as server:
        assert await ask(read_pool(tmp_path, origin_of(server), lines)) == "4"
    assert server.paths == [path]
    assert {header: server.headers[0].get(header) for header in headers} == headers


@pytest.mark.parametrize(
    ("vendor", "body", "path"),
    [
        ("anthropic", message(text("4")), "/v1/messages"),
        ("google", response({"text": "4"}), "/v1beta/models/gpt-5:generateContent"),
    ],
)
async def test_a_vendors_sdk_sends_them_too(
    tmp_path: Path, vendor: str, body: dict[str, Any], path: str
) -> None:
    pytest.importorskip("pydantic_ai")
    lines = f"""provider = "{vendor}"
    base_url = "ORIGIN"
    api_key_env = "VENDOR_LOGIN"
    headers = {{ cf-aig-authorization = "Bearer $GATEWAY_LOGIN", User-Agent = "mine/1" }}
    query = {{ trace = "on" }}"""
    async with chat_server(says(body)) as server:
        assert await ask(read_pool(tmp_path, origin_of(server), lines)) == "4"
    assert server.paths[0].partition("?")[0] == path
    assert "trace=on" in server.paths[0]
    sent = server.headers[0]
    assert (sent["cf-aig-authorization"], sent["user-agent"]) == (f"Bearer {OTHER}", "mine/1")


async def test_a_tools_server_gets_them_too(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    lines = """provider = "mcp"
    url = "ORIGIN/mcp"
    headers = { Authorization = "Basic $VENDOR_LOGIN" }
    query = { tenant = "a b" }"""
    async with chat_server(*[says("no", status=403)] * 4) as server:
        with pytest.raises(WorkerError):
            await ask(read_pool(tmp_path, origin_of(server), lines))
    assert server.paths[0] == "/mcp?tenant=a+b"
    assert server.headers[0]["authorization"] == f"Basic {KEY}"


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────
ECHO = f"you sent {KEY}, {OTHER} and {base64.b64encode(OTHER.encode()).decode()}"
SECRETIVE = """base_url = "ORIGIN/v1"
headers = { X-Login = "$VENDOR_LOGIN" }
query = { login = "$GATEWAY_LOGIN" }"""


@pytest.mark.parametrize(
    "answer",
    [
        says(completion(ECHO)),
        says({"error": {"message": ECHO}}, status=400),
        says({"error": {"message": ECHO}}, status=500),
    ],
)
async def test_what_a_server_echoes_of_headers_and_query_is_kept_nowhere(
    answer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, "aiohttp.access")  # the server's own log
    folder = tmp_path / "kept"
    folder.mkdir()
    async with chat_server(answer) as server:
        pool = read_pool(tmp_path, origin_of(server), SECRETIVE)
        with Journal(folder / "journal.sqlite") as journal:
            conductor = Conductor(lambda messages: PLAN, pool=pool)
            episode = await conductor.ask("2 + 2?", on_event=journal)
        await pool.aclose()
    assert server.paths == [f"/v1/chat/completions?login={OTHER}"]
    shown = f"{episode.error!r} {caplog.text} {pool[0].identity} {pool[0].provider!r}"
    if episode.error is not None:
        shown += repr(vars(episode.error))
    for secret in (KEY, OTHER):
        assert secret not in shown
        assert secret.encode() not in everything_in(folder)


@pytest.mark.parametrize("provider", ["openai_compatible", "anthropic"])
async def test_nothing_is_sent_while_a_variable_is_not_set(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if provider == "anthropic":
        pytest.importorskip("pydantic_ai")
    monkeypatch.delenv("VENDOR_LOGIN")
    lines = f'provider = "{provider}"\nbase_url = "ORIGIN"\n'
    lines += 'headers = { X-Login = "$VENDOR_LOGIN" }'
    async with chat_server(says(completion())) as server:
        pool = read_pool(tmp_path, origin_of(server), lines)
        with pytest.raises(WorkerError, match="VENDOR_LOGIN is not set"):
            await ask(pool)
    assert server.paths == []


# ── proxies and client certificates ───────────────────────────────────────────────────────────────
@pytest.fixture
def demanding(monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's side that clients trust, and that demands a certificate of them."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    context.load_verify_locations(CERTIFICATE)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


VENDORS = ("openai_compatible", "anthropic")


@pytest.mark.parametrize("provider", VENDORS)
async def test_a_server_that_demands_a_certificate_gets_it(
    provider: str, demanding: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if provider == "anthropic":
        pytest.importorskip("pydantic_ai")
    monkeypatch.setenv("CLIENT_CERT", str(CERTIFICATE))
    lines = f'provider = "{provider}"\nbase_url = "ORIGIN/v1"\napi_key_env = "VENDOR_LOGIN"\n'
    async with serve(tls=demanding) as server:
        origin = f"https://localhost:{server.port}"
        with pytest.raises(WorkerError):
            await ask(read_pool(tmp_path, origin, lines))
        assert server.requests == []
        for value in ('"$CLIENT_CERT"', f'["{CERTIFICATE}", "{CERTIFICATE}"]'):
            pool = read_pool(tmp_path, origin, f"{lines}client_cert = {value}")
            if provider == "anthropic":  # the server here answers in OpenAI's form
                with pytest.raises(WorkerError):
                    await ask(pool)
            else:
                assert await ask(pool) == "4"
    assert len(server.requests) >= 2


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_workers_own_proxy_is_asked_and_the_environments_is_not(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    tls = None
    if scheme == "https":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(CERTIFICATE)
    lines = 'base_url = "ORIGIN/v1"\nproxy = "PROXY"'
    async with serve(answers, tls=tls) as server, serve(tunnels) as proxy:
        origin = f"{scheme}://localhost:{server.port}"
        url = f"http://user:$GATEWAY_LOGIN@127.0.0.1:{proxy.port}"
        assert await ask(read_pool(tmp_path, origin, lines.replace("PROXY", url))) == "4"
        assert await ask(read_pool(tmp_path, origin, lines.replace("PROXY", ""))) == "4"
    line, headers = proxy.requests[0]
    place = f"localhost:{server.port}"
    expected = {"http": f"POST http://{place}/v1/chat", "https": f"CONNECT {place} HTTP"}
    assert line.startswith(expected[scheme])
    coded = base64.b64encode(f"user:{OTHER}".encode()).decode()
    assert headers["proxy-authorization"] == f"Basic {coded}"
    assert len(proxy.requests) == 1


async def test_an_sdk_goes_through_the_workers_proxy_too(tmp_path: Path) -> None:
    pytest.importorskip("pydantic_ai")
    lines = 'provider = "anthropic"\nbase_url = "ORIGIN"\napi_key_env = "VENDOR_LOGIN"\n'
    async with serve(tunnels) as proxy:
        lines += f'proxy = "http://127.0.0.1:{proxy.port}"'
        with pytest.raises(WorkerError):  # it answers in OpenAI's form
            await ask(read_pool(tmp_path, "http://api.example", lines))
    assert proxy.requests[0][0].startswith("POST http://api.example/v1/messages")


def test_a_key_file_with_a_wrong_password_is_a_config_error(tmp_path: Path) -> None:
    lines = f'base_url = "https://h"\nclient_cert = ["{CERTIFICATE}", "{tmp_path / "no.key"}"]'
    with pytest.raises(ConfigError, match="worker 'w': client_cert"):
        read_pool(tmp_path, "", lines)
