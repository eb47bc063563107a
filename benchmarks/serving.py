"""The server under load: many streams at once, and what it adds to a call that it only hands on.

    python -m benchmarks.serving [--json] [--streams 1000] [--seconds 1.0] [--calls 2000]

In: nothing but this machine (Linux, loopback). Out: figures, with the bars that they are held
against. Three processes:
scripted workers (an asyncio HTTP server of a few lines, which streams its answer after
``--seconds``), `openconductor serve` over them, and this one, which is the clients.

- **Streams**: ``--streams`` episodes of three steps in a row at once, as chat completions. Errors, the time to the
  first byte and to the first text, wall time, the server's memory and CPU. Once more with 200.
- **Direct**: one call after the other on 16 connections, to the worker itself and through ``direct:``, interleaved. The
  worker takes 50 ms: with one that takes none, 16 connections ask for more than a core can do, and what is measured is
  the queue. What the server adds to the median, and its CPU a request. Beside it LiteLLM's proxy, where it is
  installed (`pip install 'litellm[proxy]'`, in an environment that ``--litellm BIN`` names).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

BARS = {"errors": 0, "first byte p99, 1,000 streams, s": 3.0, "first byte p99, 200 streams, s": 1.0,
        "memory, MB": 300.0, "added to the median, ms": 5.0, "CPU a request, ms": 1.0}  # fmt: skip
PLAN = 'model_id = [0, 1, 2]\nsubtasks = ["Think.", "Check it.", "Answer."]\naccess_list = [[], "all", "all"]'
WORDS = ["The", "answer", "is", "forty-two,", "for", "all", "that", "we", "know."]
USAGE = {"prompt_tokens": 50, "completion_tokens": 12, "total_tokens": 62}
CONNECTIONS = 16
FAST_S = 0.05
TICK = os.sysconf("SC_CLK_TCK")


# ── the workers ───────────────────────────────────────────────────────────────────────────────────
async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Answer the requests of one connection: model ``planner`` plans at once, ``fast`` takes 50 ms."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
            body = json.loads(await reader.readexactly(length))
            await asyncio.sleep({"planner": 0.0, "fast": FAST_S}.get(body["model"], seconds))
            text = [PLAN] if body["model"] == "planner" else [f"{word} " for word in WORDS]
            if body.get("stream"):
                pieces = [
                    {"index": 0, "delta": {"content": piece}, "finish_reason": None}
                    for piece in text
                ]
                pieces.append({"index": 0, "delta": {}, "finish_reason": "stop"})
                events = [
                    {"id": "x", "object": "chat.completion.chunk", "choices": [one]}
                    for one in pieces
                ]
                events.append(
                    {"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
                )
                said = (
                    b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in events)
                    + b"data: [DONE]\n\n"
                )
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(said), said))
            else:
                choice = {
                    "index": 0,
                    "message": {"role": "assistant", "content": "".join(text)},
                    "finish_reason": "stop",
                }
                said = json.dumps({"id": "x", "object": "chat.completion", "created": 1, "model": body["model"],
                                   "choices": [choice], "usage": USAGE}).encode()  # fmt: skip
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                             % (len(said), said))  # fmt: skip
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve_workers(seconds: float) -> None:
    server = await asyncio.start_server(
        lambda *pair: play(*pair, seconds), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


# ── processes ─────────────────────────────────────────────────────────────────────────────────────
@contextmanager
def process(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(command, text=True, **options)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(15)
        except subprocess.TimeoutExpired:
            started.kill()


def port_of(url: str) -> int:
    return urlsplit(url).port or 80


async def wait_for(port: int) -> None:
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise SystemExit(f"nothing listens on port {port}")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def peak_megabytes(pid: int) -> float:
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1000  # type: ignore[index]


# ── the clients ───────────────────────────────────────────────────────────────────────────────────
def request(port: int, model: str, *, stream: bool) -> bytes:
    body = json.dumps(
        {
            "model": model,
            "stream": stream,
            "messages": [{"role": "user", "content": "What is 6 * 7?"}],
        }
    )
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer none\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


@dataclass
class Seen:
    """What the clients saw."""

    errors: list[str] = field(default_factory=list)
    first_byte: list[float] = field(default_factory=list)
    first_text: list[float] = field(default_factory=list)
    wall: float = 0.0


async def one_stream(port: int, seen: Seen) -> None:
    began = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(port, "conductor", stream=True))
        got, texted = b"", False
        while b"data: [DONE]" not in got[-200:]:
            piece = await asyncio.wait_for(reader.read(65536), 60)
            if not piece:
                break
            if not got:
                seen.first_byte.append(time.monotonic() - began)
            got += piece
            if not texted and b'"content":"The' in got:
                texted = True
                seen.first_text.append(time.monotonic() - began)
        writer.close()
        if b"data: [DONE]" not in got[-200:] or b'"error"' in got or not texted:
            seen.errors.append(got[-300:].decode("utf-8", "replace"))
    except (OSError, TimeoutError) as error:
        seen.errors.append(repr(error))


async def many_streams(port: int, streams: int) -> Seen:
    seen, began = Seen(), time.monotonic()
    await asyncio.gather(*(one_stream(port, seen) for _ in range(streams)))
    seen.wall = time.monotonic() - began
    return seen


async def calls_on(port: int, model: str, calls: int) -> list[float]:
    """The seconds of each call, on 16 connections."""
    walls: list[float] = []
    asked = request(port, model, stream=False)

    async def lane() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(calls // CONNECTIONS):
            began = time.perf_counter()
            writer.write(asked)
            head = await reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(found[1])) if found else b""
            assert head.startswith(b"HTTP/1.1 200"), body
            walls.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(lane() for _ in range(CONNECTIONS)))
    return walls


async def added(
    workers: int, servers: dict[str, tuple[int, str, int]], calls: int, rounds: int = 3
) -> dict[str, Any]:
    """What each server adds to the median of a call, and its CPU a request: (port, model, pid) by name."""
    walls: dict[str, list[float]] = {"worker": [], **{name: [] for name in servers}}
    spent = dict.fromkeys(servers, 0.0)
    for name, (port, model, _) in servers.items():
        await calls_on(port, model, 10 * CONNECTIONS)  # warm
        assert name
    for _ in range(rounds):
        walls["worker"] += await calls_on(workers, "fast", calls)
        for name, (port, model, pid) in servers.items():
            before = cpu_seconds(pid)
            walls[name] += await calls_on(port, model, calls)
            spent[name] += cpu_seconds(pid) - before
    bare = statistics.median(walls["worker"])
    made = rounds * (calls // CONNECTIONS) * CONNECTIONS
    return {
        name: {
            "added_ms": 1000 * (statistics.median(walls[name]) - bare),
            "cpu_ms": 1000 * spent[name] / made,
        }
        for name in servers
    } | {"worker": {"median_ms": 1000 * bare}}


# ── the run ───────────────────────────────────────────────────────────────────────────────────────
def p99(values: list[float]) -> float:
    return sorted(values)[max(0, int(0.99 * len(values)) - 1)] if values else float("inf")


async def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with process(
        sys.executable, __file__, "--workers", str(arguments.seconds), stdout=subprocess.PIPE
    ) as workers:
        assert workers.stdout is not None
        played = int(workers.stdout.readline())
        url = f"http://127.0.0.1:{played}/v1"
        tables = "".join(
            f'[[worker]]\nname = "{name}"\nmodel = "{name}"\nbase_url = "{url}"\nprice = {{input = 1, output = 2}}\n\n'
            for name in ("slow0", "slow1", "slow2", "fast", "planner")
        )
        (folder / "pool.toml").write_text(tables)
        port = free_port()
        command = (sys.executable, "-m", "openconductor", "serve", "--pool", str(folder / "pool.toml"), "--conductor",
                   "worker:planner", "--port", str(port), "--journal", str(folder / "serve.sqlite"))  # fmt: skip
        with process(*command) as server:
            await wait_for(port)
            await many_streams(port, 10)
            for streams in (200, arguments.streams):
                before = cpu_seconds(server.pid)
                seen = await many_streams(port, streams)
                found[f"{streams} streams"] = {
                    "errors": len(seen.errors), "first error": seen.errors[:1],
                    "first_byte_p50_s": statistics.median(seen.first_byte or [float("inf")]),
                    "first_byte_p99_s": p99(seen.first_byte),
                    "first_text_p50_s": statistics.median(seen.first_text or [0]),
                    "wall_s": seen.wall, "cpu_s": cpu_seconds(server.pid) - before,
                    "memory_mb": peak_megabytes(server.pid),
                }  # fmt: skip
            servers = {"ours": (port, "direct:fast", server.pid)}
            if arguments.litellm:
                with litellm(arguments.litellm, folder, url) as (other, pid):
                    await wait_for(other)
                    found["direct"] = await added(
                        played, {**servers, "litellm": (other, "fast", pid)}, arguments.calls
                    )
            else:
                found["direct"] = await added(played, servers, arguments.calls)
    return found


@contextmanager
def litellm(binary: str, folder: Path, url: str) -> Iterator[tuple[int, int]]:
    """LiteLLM's proxy in front of the same worker: (port, pid)."""
    port = free_port()
    (folder / "litellm.yaml").write_text(
        f"model_list:\n  - model_name: fast\n    litellm_params:\n      model: openai/fast\n      api_base: {url}\n"
        "      api_key: none\n"
    )
    command = (
        binary,
        "--config",
        str(folder / "litellm.yaml"),
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
    )
    keyless = {**os.environ, "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": keyless}
    with process(*command, **silent) as started:
        yield port, started.pid


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--litellm", help="the command of LiteLLM's proxy")
    parser.add_argument("--workers", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.workers is not None:
        asyncio.run(serve_workers(arguments.workers))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(arguments, Path(folder)))
    found["machine"] = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    found["bars"] = BARS
    if arguments.json:
        print(json.dumps(found))
        return
    for name, figures in found.items():
        print(name, json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
