"""The server under load: many streams at once, and its cost on a call that it only passes on.

    python -m benchmarks.serving [--json] [--streams 1000] [--seconds 1.0] [--calls 2000]

Needs Linux. Three processes: scripted workers (an HTTP server of a few lines, which streams its
answer after ``--seconds``), `openconductor serve` over them, and this one, which is the clients.

- **Streams**: ``--streams`` episodes of three steps in a row at once, as chat completions. Errors,
  the time to the first byte and to the first text, wall time, the server's memory and CPU. Once
  more with 200.
- **Direct**: one call after the other on 16 connections, to the worker itself and through
  ``direct:``, interleaved. The worker takes 50 ms: with one that takes none, 16 connections ask for
  more than a core can do, and the figure would be that of the queue. The figures are the addition
  to the median, and the CPU of a request. LiteLLM's proxy is measured too if ``--litellm BIN``
  names its command (`pip install 'litellm[proxy]'`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
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

from benchmarks import results, server

STREAMS_P99_S = {200: 1.0, 1000: 3.0}  # to the first byte
PLAN = """model_id = [0, 1, 2]
subtasks = ["Think.", "Check it.", "Answer."]
access_list = [[], "all", "all"]"""
WORDS = ["The", "answer", "is", "forty-two,", "for", "all", "that", "we", "know."]
USAGE = {"prompt_tokens": 50, "completion_tokens": 12, "total_tokens": 62}
CONNECTIONS = 16
ROUNDS = 3
FAST_S = 0.05
TICK = os.sysconf("SC_CLK_TCK")


# ── the workers ───────────────────────────────────────────────────────────────────────────────────
class Workers(server.Server):
    """Answers after some seconds; ``planner`` plans at once, ``fast`` takes 50 ms."""

    def __init__(self, seconds: float) -> None:
        self.seconds = {"planner": 0.0, "fast": FAST_S}
        self.default = seconds

    def answer(self, body: bytes) -> None:
        if not body:  # LiteLLM's proxy asks for models and health
            self.write(server.response(b'{"object": "list", "data": []}'))
            return
        request = json.loads(body)
        model = request["model"]
        pieces = [PLAN] if model == "planner" else [f"{word} " for word in WORDS]
        if request.get("stream"):
            data = server.as_chunk(b"".join(server.stream_events(pieces, USAGE)))
            reply = server.STREAM_HEAD + data + server.LAST_CHUNK
        else:
            reply = server.response(server.completion("".join(pieces), USAGE))
        self.write_later(self.seconds.get(model, self.default), reply)


# ── processes ─────────────────────────────────────────────────────────────────────────────────────
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
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def peak_megabytes(pid: int) -> float:
    """Return the most memory that a process had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1000


# ── the clients ───────────────────────────────────────────────────────────────────────────────────
def request(port: int, model: str, *, stream: bool) -> bytes:
    messages = [{"role": "user", "content": "What is 6 * 7?"}]
    body = json.dumps({"model": model, "stream": stream, "messages": messages})
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        f"host: 127.0.0.1:{port}",
        "authorization: Bearer none",
        "content-type: application/json",
        f"content-length: {len(body)}",
    )
    return "\r\n".join((*lines, "", body)).encode()


@dataclass
class Seen:
    """The observations of the clients."""

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
    seen = Seen()
    began = time.monotonic()
    await asyncio.gather(*(one_stream(port, seen) for _ in range(streams)))
    seen.wall = time.monotonic() - began
    return seen


async def calls_on(port: int, model: str, calls: int) -> list[float]:
    """Return the seconds of each call, on 16 connections."""
    walls: list[float] = []
    asked = request(port, model, stream=False)

    async def lane() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(calls // CONNECTIONS):
            began = time.perf_counter()
            writer.write(asked)
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(server.content_length(head))
            assert head.startswith(b"HTTP/1.1 200"), body
            walls.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(lane() for _ in range(CONNECTIONS)))
    return walls


@dataclass(frozen=True)
class Served:
    """A server that passes calls on to the worker."""

    port: int
    model: str
    pid: int


async def added(workers: int, servers: dict[str, Served], calls: int) -> dict[str, Any]:
    """Measure what each server adds to the median of a call, and its CPU a request."""
    walls: dict[str, list[float]] = {"worker": []}
    spent = dict.fromkeys(servers, 0.0)
    for passed in servers.values():
        await calls_on(passed.port, passed.model, 10 * CONNECTIONS)  # opens everything
    for _ in range(ROUNDS):
        walls["worker"] += await calls_on(workers, "fast", calls)
        for name, passed in servers.items():
            before = cpu_seconds(passed.pid)
            seconds = await calls_on(passed.port, passed.model, calls)
            walls.setdefault(name, []).extend(seconds)
            spent[name] += cpu_seconds(passed.pid) - before
    bare = statistics.median(walls["worker"])
    figures: dict[str, Any] = {"worker": {"median_ms": 1000 * bare}}
    for name in servers:
        figures[name] = {
            "added_ms": 1000 * (statistics.median(walls[name]) - bare),
            "cpu_ms": 1000 * spent[name] / len(walls[name]),
        }
    return figures


# ── the run ───────────────────────────────────────────────────────────────────────────────────────
def p99(values: list[float]) -> float:
    return sorted(values)[max(0, int(0.99 * len(values)) - 1)] if values else float("inf")


async def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    with server.served("serving", "--workers", str(options.seconds)) as url:
        port = free_port()
        with results.process(*serve_command(folder, url, port)) as ours:
            await wait_for(port)
            await many_streams(port, 10)
            figures: dict[str, Any] = {}
            bars: list[dict[str, Any]] = []
            for streams in (200, options.streams):
                measured = await measure_streams(port, streams, ours.pid)
                figures[f"{streams} streams"] = measured
                bars.append(results.at_most(f"errors, {streams} streams", measured["errors"], 0))
                if streams in STREAMS_P99_S:
                    what = f"first byte p99, {streams} streams, s"
                    limit = STREAMS_P99_S[streams]
                    bars.append(results.at_most(what, measured["first_byte_p99_s"], limit))
            bars.append(results.at_most("memory, MB", peak_megabytes(ours.pid), 300.0))
            servers = {"ours": Served(port, "direct:fast", ours.pid)}
            with litellm(options.litellm, folder, url) as proxy:
                if proxy is not None:
                    await wait_for(proxy.port)
                    servers["litellm"] = proxy
                direct = await added(port_of(url), servers, options.calls)
    mine = direct["ours"]
    bars.append(results.at_most("added to the median, ms", mine["added_ms"], 5.0))
    bars.append(results.at_most("CPU a request, ms", mine["cpu_ms"], 1.0))
    return {"bars": bars, **figures, "direct": direct, "machine": results.machine()}


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


def serve_command(folder: Path, url: str, port: int) -> tuple[str, ...]:
    """Write a pool file; return the command that serves it."""
    price = "price = {input = 1, output = 2}"
    with (folder / "pool.toml").open("w") as pool:
        for name in ("slow0", "slow1", "slow2", "fast", "planner"):
            pool.write(f'[[worker]]\nname = "{name}"\nmodel = "{name}"\n')
            pool.write(f'base_url = "{url}"\n{price}\n\n')
    options = {
        "--pool": folder / "pool.toml",
        "--conductor": "worker:planner",
        "--port": port,
        "--journal": folder / "serve.sqlite",
    }
    words = [str(word) for option in options.items() for word in option]
    return (sys.executable, "-m", "openconductor", "serve", *words)


async def measure_streams(port: int, streams: int, pid: int) -> dict[str, Any]:
    before = cpu_seconds(pid)
    seen = await many_streams(port, streams)
    return {
        "errors": len(seen.errors),
        "first error": seen.errors[:1],
        "first_byte_p50_s": statistics.median(seen.first_byte or [float("inf")]),
        "first_byte_p99_s": p99(seen.first_byte),
        "first_text_p50_s": statistics.median(seen.first_text or [0]),
        "wall_s": seen.wall,
        "cpu_s": cpu_seconds(pid) - before,
        "memory_mb": peak_megabytes(pid),
    }


@contextmanager
def litellm(binary: str | None, folder: Path, url: str) -> Iterator[Served | None]:
    """Run LiteLLM's proxy in front of the same worker. None: it was not asked for."""
    if binary is None:
        yield None
        return
    port = free_port()
    config = folder / "litellm.yaml"
    config.write_text(LITELLM.format(url=url))
    command = (binary, "--config", str(config), "--port", str(port), "--host", "127.0.0.1")
    keyless = {**os.environ, "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": keyless}
    with results.process(*command, **silent) as started:
        yield Served(port, "fast", started.pid)


LITELLM = """\
model_list:
  - model_name: fast
    litellm_params:
      model: openai/fast
      api_base: {url}
      api_key: none
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--litellm", help="the command of LiteLLM's proxy")
    parser.add_argument("--workers", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.workers is not None:
        asyncio.run(server.serve(lambda: Workers(options.workers)))
        return
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measure(options, Path(folder)))
    results.show(result, as_json=options.json)


if __name__ == "__main__":
    main()
