"""`openconductor serve` as a process: its memory, its open files, its signals, its log.

The gym is served, so nothing is asked of a network.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from chat_server import hangs, write_pool
from test_cli import serving

from integration.served import PATHS, request_body
from openconductor.config import dump_toml
from openconductor.gym.questions import EXAMPLE
from openconductor.serving.key_ring import new_key

FILES = 80  # the limit of open files, where a test has one
KEY, HASH = new_key()
LAUNCH = """
import resource, signal, sys
from openconductor.cli import main
files, ignored = map(int, sys.argv[1:3])
if files:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files // 2, files))
signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
sys.exit(main(sys.argv[3:]))
"""


@dataclass
class Process:
    """A server under way, and the file that it logs to."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def megabytes(self) -> float:
        """Return the most memory that it had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1000


@contextmanager
def serve(
    folder: Path, *options: str, files: int = 0, nohup: bool = False, **config: Any
) -> Generator[Process]:
    """Serve the gym on a free port, with this limit of open files."""
    path = folder / "serve.toml"
    path.write_text(dump_toml({"port": 0, "journal": str(folder / "serve.sqlite"), **config}))
    limits = [str(files), str(int(nohup))]
    command = [sys.executable, "-c", LAUNCH, *limits, "serve", "--config", str(path), *options]
    log = folder / "log"
    with log.open("wb") as written, subprocess.Popen(command, stderr=written) as process:
        try:
            yield Process(process, find_port(process, log), log)
        finally:
            process.kill()


def find_port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Return the port that a server says it serves at, once it does."""
    ports: list[str] = []

    def said() -> bool:
        assert process.poll() is None, log.read_text()
        ports[:] = re.findall(r"serving at http://127\.0\.0\.1:(\d+)", log.read_text())
        return bool(ports)

    wait_until(said)
    port = int(ports[0])
    wait_until(lambda: is_ready(f"http://127.0.0.1:{port}"))
    return port


def is_ready(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health/ready", timeout=60).status_code == 200
    return False


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


# ── the log ───────────────────────────────────────────────────────────────────────────────────────
def log_lines(server: Process, count: int) -> list[dict[str, Any]]:
    """Return the lines of JSON in the log, once there are so many."""

    def read() -> list[dict[str, Any]]:
        lines = server.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    wait_until(lambda: len(read()) >= count)
    return read()


def test_each_request_is_a_line_of_the_log_without_a_text_or_a_key(tmp_path: Path) -> None:
    with serve(tmp_path, key=[{"name": "ann", "hash": HASH}]) as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            identified = {"x-api-key": KEY}
            whole = client.post(
                PATHS["chat"], json=request_body("chat", EXAMPLE), headers=identified
            )
            alone = request_body("messages", EXAMPLE, stream=True, model="direct:jack")
            stream = client.post(PATHS["messages"], json=alone, headers=identified)
            asked = request_body("responses", EXAMPLE, model="sk-mine")
            client.post(PATHS["responses"], json=asked, headers=identified)
            refused = client.post(PATHS["chat"], json=request_body("chat", EXAMPLE))
            client.get("/v1/models/sk-mine?key=sk-mine", headers=identified)
            client.get("/sk-mine")
            client.get("/health")
        lines = log_lines(server, 6)
        log = server.log.read_text()
    fields = ("key", "model", "steps", "status")
    shown = [[line.get(field) for field in fields] for line in lines[:4]]
    usage = whole.json()["usage"]["orchestration"]
    steps = len(usage["calls"]) - 1
    assert shown == [
        ["ann", "conductor", steps, 200],
        ["ann", "direct:jack", 1, 200],
        ["ann", "unknown", 0, 404],
        [None, "unknown", 0, 401],
    ]
    told = [answer.headers["x-request-id"] for answer in (whole, stream, refused)]
    assert [lines[index]["id"] for index in (0, 1, 3)] == told
    assert lines[0]["tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert Decimal(lines[0]["dollars"]) == Decimal(usage["dollars"])
    assert lines[0]["ms"] > 0
    pages = [(line["path"], line["status"]) for line in lines[4:]]
    assert pages == [("/v1/models/{name}", 404), ("unknown", 404)]
    for secret in (KEY, HASH, "sk-mine", "sort the list, then"):
        assert log.count(secret) == log.split("\n{", 1)[0].count(secret), secret


def test_the_log_holds_only_what_is_wrong_if_told_so(tmp_path: Path) -> None:
    with serve(tmp_path, "log_level=warning") as server:
        assert httpx.get(f"{server.url}/v1/models").status_code == 200
        with server.connect() as client:
            client.sendall(b"nonsense\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 400")
        (line,) = log_lines(server, 1)
    assert (line["level"], line["message"]) == ("warning", "Invalid HTTP request received.")


# ── questions ─────────────────────────────────────────────────────────────────────────────────────
def test_the_gym_explains_that_it_cannot_read_a_question(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        for api, path in PATHS.items():
            for model in ("conductor", "direct:jack"):
                body = request_body(api, "What is 6 * 7?", model=model)
                answer = httpx.post(f"{server.url}{path}", json=body, timeout=60)
                assert answer.status_code == 400
                assert EXAMPLE in answer.json()["error"]["message"]
                assert "--pool" in answer.json()["error"]["message"]


# ── memory ────────────────────────────────────────────────────────────────────────────────────────
CHUNKED = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("line", [b"a: b\r\n", b"x" * 60_000], ids=["lines", "one endless line"])
def test_what_follows_a_body_is_not_kept_whoever_sends_it(tmp_path: Path, line: bytes) -> None:
    """60 MB of it with a wrong key once took 1,100 MB."""
    trailer = line * (1_000_000 // len(line))
    with serve(tmp_path, key=[{"name": "ann", "hash": HASH}]) as server:
        before = server.megabytes()
        with server.connect() as client, suppress(ConnectionError):
            client.sendall(CHUNKED + b"x: ")
            for _ in range(60):
                client.sendall(trailer)
        assert is_ready(server.url)
        assert server.megabytes() < before + 30


# ── open files ────────────────────────────────────────────────────────────────────────────────────
def test_a_server_that_is_out_of_files_serves_who_is_connected_and_says_so_once(
    tmp_path: Path,
) -> None:
    """It once wrote 3 MB a second to its log, and answered those connected with 500."""
    body = request_body("chat", EXAMPLE)
    with (
        serve(tmp_path, files=FILES) as server,
        httpx.Client(base_url=server.url, timeout=60) as connected,
    ):
        with ExitStack() as crowd:
            for _ in range(FILES + 10):
                assert connected.get("/health/live").status_code == 200
                crowd.enter_context(server.connect())
            time.sleep(1.5)  # asyncio tries again after a second
            answer = connected.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            episode = connected.get(f"/v1/episodes/{answer.headers['x-request-id']}")
            assert episode.status_code == 200
        wait_until(lambda: is_ready(server.url))
        log = server.log.read_text()
    assert log.count("too many open files") == 1
    assert len(log) < 5000


# ── signals ───────────────────────────────────────────────────────────────────────────────────────
def test_a_server_whose_terminal_hangs_up_ends_as_one_that_is_told_to(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        for _ in range(2):  # a shell and the terminal itself may both say so
            server.process.send_signal(signal.SIGHUP)
        assert server.process.wait(20) == 0


def test_a_server_that_is_told_to_stop_says_once_what_it_waits_for(tmp_path: Path) -> None:
    body = request_body("chat", "Hi", model="direct:local")
    with serving(hangs) as workers, ThreadPoolExecutor(1) as clients:
        pool = write_pool(tmp_path, workers.url, "local")
        with serve(tmp_path, pool=pool, conductor="worker:local", drain_s=20) as server:
            clients.submit(httpx.post, f"{server.url}{PATHS['chat']}", json=body, timeout=60)
            wait_until(lambda: bool(workers.bodies))
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "draining" in server.log.read_text())
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(10)
            log = server.log.read_text()
    assert log.count("draining: 1 request, up to 20 s; again to stop now") == 1


def test_a_server_under_nohup_goes_on_when_its_terminal_hangs_up(tmp_path: Path) -> None:
    with serve(tmp_path, nohup=True) as server:
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert is_ready(server.url)


# ── the port ──────────────────────────────────────────────────────────────────────────────────────
def test_a_port_in_use_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        journal = tmp_path / "serve.sqlite"
        command = ["openconductor", "serve", "--port", str(port), "--journal", str(journal)]
        words = [sys.executable, "-m", *command]
        ran = subprocess.run(words, check=False, capture_output=True, timeout=200)
    assert ran.returncode == 1
    lines = ran.stderr.decode().splitlines()
    assert lines[0] == f"error: port {port} of 127.0.0.1 is in use"
    assert "--port" in lines[1]
    assert len(lines) == 2
    assert not journal.exists()
