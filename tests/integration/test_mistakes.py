"""Plausible mistakes: none ends in a traceback, and each message says what was got and the fix.

The mistakes are in ``golden/mistakes.toml``: commands, requests to a server, and Python.
"""

from __future__ import annotations

import asyncio
import shlex
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

import openconductor as oc
from integration.orchestra import Orchestra, orchestra
from integration.served import PATHS
from openconductor.calls import policies
from openconductor.serving.key_ring import hash_key
from openconductor.serving.serve_config import KeyTable
from openconductor.tasks import load_task

TABLE = Path(__file__).parents[1] / "golden" / "mistakes.toml"
MISTAKES: dict[str, Any] = tomllib.loads(TABLE.read_text("utf-8"))
KEY = "oc-ann"
BODY_MB = 0.01


def mistakes(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mistake", MISTAKES[kind], ids=lambda mistake: mistake["title"])


def assert_helpful(mistake: dict[str, Any], text: str) -> None:
    """Check that a message holds what it must, and shows no traceback and no secret."""
    message = " ".join(text.split())
    missing = [part for part in mistake["says"] if part not in message]
    assert not missing, f"{missing} not in: {message}"
    assert "Traceback" not in message
    assert mistake.get("hides", "Traceback") not in message


class Models(BaseHTTPRequestHandler):
    """A server of models that knows no path but that of chat completions."""

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        self.send_error(500 if self.path == PATHS["chat"] else 404)

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    """Return the addresses and ports that the table names."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = str(unused.getsockname()[1])
    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        port = server.server_address[1]
        yield {
            "$SERVER": f"http://127.0.0.1:{port}/v1",
            "$TLS_SERVER": f"https://127.0.0.1:{port}/v1",
            "$ROOT_SERVER": f"http://127.0.0.1:{port}",
            "$BUSY": str(port),
            "$DEAD": dead,
        }
        server.shutdown()


def fill_in(text: str, places: dict[str, str]) -> str:
    for name, value in places.items():
        text = text.replace(name, value)
    return text


def run_process(arguments: list[str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "openconductor", *arguments]
    ended = subprocess.run(
        command, input="", capture_output=True, text=True, timeout=200, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


@mistakes("command")
def test_a_wrong_command_says_what_is_wrong_and_the_fix(
    mistake, run, places, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(policies, "UNREACHABLE_S", 0.1)
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    for name, text in (MISTAKES["given"] | mistake.get("files", {})).items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(fill_in(text, places).encode().replace(b"$LATIN1", b"\xdf"))
    for earlier in ("first", "second"):
        if earlier in mistake:
            assert run(*shlex.split(mistake[earlier])).code == 0
    arguments = shlex.split(fill_in(mistake["run"], places))
    if mistake.get("process"):
        code, text = run_process(arguments)
    else:
        ran = run(*arguments, stdin=mistake.get("stdin", "").lstrip().encode())
        code, text = ran.code, ran.out + ran.err
    says = [fill_in(part, places) for part in mistake["says"]]
    assert_helpful({**mistake, "says": says}, text)
    assert code == mistake.get("exit", 2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchestra]:
    """A server with a key."""
    key = KeyTable("ann", hash_key(KEY))
    with orchestra(tmp_path_factory.mktemp("served"), key=[key], body_mb=BODY_MB) as served:
        yield served


@mistakes("request")
def test_a_wrong_request_is_told_what_is_wrong_and_the_fix(mistake, server) -> None:
    server.play()
    turn = {"role": "user", "content": "2+2?"}
    body: dict[str, Any] = {"model": "conductor", "messages": [turn], **mistake.get("more", {})}
    headers = {"content-type": "application/json", **mistake.get("headers", {})}
    if key := mistake.get("key", KEY):
        headers["authorization"] = f"Bearer {key}"
    if mistake.get("body") == "$LARGE":
        body["padding"] = "x" * int(BODY_MB * 2**20)
        del mistake["body"]
    content = (
        mistake["body"].encode()
        if "body" in mistake
        else httpx.Request("POST", "http://x", json=body).content
    )
    method = mistake.get("method", "POST")
    url = server.url + mistake.get("path", PATHS["chat"])
    answer = httpx.request(method, url, content=content, headers=headers)
    assert_helpful(mistake, answer.json()["error"]["message"])
    assert answer.status_code == mistake["status"]
    assert not server.planner.sent


@mistakes("python")
def test_wrong_python_raises_a_typed_error_with_the_fix(mistake) -> None:
    pool = oc.WorkerPool([oc.Worker(lambda messages: "4", name="left")])
    conductor = oc.Conductor(lambda messages: "nothing", pool=pool)
    names = {"oc": oc, "pool": pool, "conductor": conductor, "load_task": load_task}
    names |= {"asyncio": asyncio}
    with pytest.raises(Exception) as caught:  # noqa: PT011 its type is in the table
        eval(mistake["run"], names)
    assert_helpful(mistake, str(caught.value))
    assert type(caught.value).__name__ == mistake.get("raises", "ConfigError")
