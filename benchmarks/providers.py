"""CPU of a call to a worker: our client beside bare aiohttp and the openai SDK.

    python -m benchmarks.providers [--json] [--repeats 7]

The figures are CPU microseconds a call and a stream chunk.

Every client is a process of its own, so that no client's imports weigh on another's; so is the
server, which answers on loopback at once. A figure is the client process's CPU time
(``time.process_time``) over its calls. Repeats are interleaved, client after client; their best and
their median are reported. The bars compare the median of the ratios of neighbours, one ratio a
repeat, because a machine's speed changes more between repeats than within one.

- bare_aiohttp: one session, a post, json.loads, the text picked out; for streams `iter_any`, split
  at blank lines, json.loads of each event, the text picked out. No deadline, no check: less than
  anybody's code does.
- ours: the OpenAI-compatible provider with its deadline, and a typed failure for each fault.
- ours_as_worker: the same through a Worker with its usual wrappers: priced, within its deadline,
  reported as a Call.
- openai_sdk: as its manual says. Optional: `pip install openai`.

A stream comes in two ways: *burst*, its events in pieces of 16 kB, which shows the cost of parsing;
and *paced*, one event a write, 2 ms apart, as tokens come from a model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from itertools import product
from typing import Any, Literal

from benchmarks import results, server

Mode = Literal["whole", "burst", "paced"]
Once = Callable[[Mode], Awaitable[str]]

MODES: tuple[Mode, ...] = ("whole", "burst", "paced")
SYSTEM = (
    "You are a careful mathematician. Answer with one number and a sentence that says why. " * 3
)
QUESTION = "How many primes are there below one hundred, and which of them is the largest? " * 4
MESSAGES = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
OPTIONS = {"messages": MESSAGES, "max_tokens": 256, "temperature": 0.2}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
CHUNKS = 400
PIECES = [f" word{index}" for index in range(CHUNKS)]
ANSWER = "".join(PIECES[:60])
STREAMED = "".join(PIECES)
PACE_SECONDS = 0.002
SLOW = 4  # the SDK makes so many times fewer calls: what it costs is seen all the same
BURST_BYTES = 16 * 1024

SETTINGS: dict[str, tuple[Mode, int, int]] = {  # what is measured: mode, in flight, calls
    "call_1": ("whole", 1, 400),
    "call_64": ("whole", 64, 2560),
    "call_512": ("whole", 512, 4096),
    "chunk_burst": ("burst", 8, 64),
    "chunk_paced": ("paced", 8, 16),
}


# ── the server ────────────────────────────────────────────────────────────────────────────────────
USAGE: dict[str, Any] = {
    "prompt_tokens": 200,
    "completion_tokens": 120,
    "total_tokens": 320,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
EVENTS = server.stream_events(PIECES, USAGE)


class ChatServer(server.Server):
    """Answers at once; the model "paced" streams an event a write."""

    reply = server.response(server.completion(ANSWER, USAGE))

    def answer(self, body: bytes) -> None:
        request = json.loads(body)
        if not request.get("stream"):
            self.write(self.reply)
        elif request["model"].endswith("paced"):
            self.write(server.STREAM_HEAD)
            self.write_from(0)
        else:
            events = b"".join(EVENTS)
            data = server.STREAM_HEAD
            for start in range(0, len(events), BURST_BYTES):
                data += server.as_chunk(events[start : start + BURST_BYTES])
            self.write(data + server.LAST_CHUNK)

    def write_from(self, index: int) -> None:
        if index < len(EVENTS):
            self.write(server.as_chunk(EVENTS[index]))
            asyncio.get_running_loop().call_later(PACE_SECONDS, self.write_from, index + 1)
        else:
            self.write(server.LAST_CHUNK)


# ── the clients: each returns the text of an answer ───────────────────────────────────────────────
def event_texts(event: bytes) -> list[str]:
    """Return the texts in an event of a stream."""
    data = event[6:]
    if data == b"[DONE]":
        return []
    return [choice["delta"].get("content", "") for choice in json.loads(data)["choices"]]


@contextlib.asynccontextmanager
async def bare_aiohttp(url: str):
    async with server.bare_session() as session:

        async def once(mode: Mode) -> str:
            payload = {"model": mode, **OPTIONS}
            if mode == "whole":
                return await server.post(session, url, payload)
            texts: list[str] = []
            rest = b""
            address = f"{url}/chat/completions"
            async with session.post(address, json=payload | STREAM) as response:
                async for piece in response.content.iter_any():
                    *events, rest = (rest + piece).split(b"\n\n")
                    for event in events:
                        texts += event_texts(event)
            return "".join(texts)

        yield once


@contextlib.asynccontextmanager
async def ours(url: str):
    from openconductor.protocols import CallContext
    from openconductor.providers.openai_compatible import OpenAICompatibleProvider
    from openconductor.types import Message, Sampling

    turns = (Message("system", SYSTEM), Message("user", QUESTION))
    sampling = Sampling(temperature=0.2, max_tokens=256)
    providers = {
        mode: OpenAICompatibleProvider(
            mode, base_url=url, api_key_env="OPENAI_API_KEY", timeout_s=60
        )
        for mode in MODES
    }

    async def once(mode: Mode) -> str:
        listener = None if mode == "whole" else lambda text: None
        provider = providers[mode]
        completion = await provider.complete(turns, sampling, call=CallContext(), on_text=listener)
        return completion.text

    yield once
    for provider in providers.values():
        await provider.aclose()


@contextlib.asynccontextmanager
async def ours_as_worker(url: str):
    from openconductor import Worker
    from openconductor.protocols import CallContext
    from openconductor.providers.openai_compatible import OpenAICompatibleProvider
    from openconductor.types import Message, Sampling

    turns = (Message("system", SYSTEM), Message("user", QUESTION))
    workers = {
        mode: Worker(
            OpenAICompatibleProvider(mode, base_url=url, api_key_env="OPENAI_API_KEY"),
            name=mode,
            price={"input": "1.25", "output": "10"},  # type: ignore[arg-type]
            sampling=Sampling(temperature=0.2, max_tokens=256),
            timeout_s=60,
        )
        for mode in MODES
    }
    events: list[object] = []

    async def once(mode: Mode) -> str:
        listener = None if mode == "whole" else lambda text: None
        call = CallContext(episode="e", step=0, on_event=events.append)
        completion = await workers[mode].complete(turns, call=call, on_text=listener)
        events.clear()
        return completion.text

    yield once
    for worker in workers.values():
        await worker.resolved.aclose()


@contextlib.asynccontextmanager
async def openai_sdk(url: str):
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=url, api_key="none", timeout=60) as client:

        async def once(mode: Mode) -> str:
            if mode == "whole":
                said = await client.chat.completions.create(model=mode, **OPTIONS)  # type: ignore[call-overload]
                return said.choices[0].message.content
            stream = await client.chat.completions.create(model=mode, **OPTIONS, **STREAM)  # type: ignore[call-overload]
            pieces = [
                choice.delta.content or "" async for chunk in stream for choice in chunk.choices
            ]
            return "".join(pieces)

        yield once


CLIENTS = {  # and the package that each needs
    "bare_aiohttp": (bare_aiohttp, "aiohttp"),
    "ours": (ours, "openconductor"),
    "ours_as_worker": (ours_as_worker, "openconductor"),
    "openai_sdk": (openai_sdk, "openai"),
}


async def be_client(name: str, url: str) -> None:
    """Measure the settings that come on standard input, a line each, until it ends."""
    async with CLIENTS[name][0](url) as once:
        while setting := sys.stdin.readline().strip():
            mode, in_flight, calls = SETTINGS[setting]
            if name == "openai_sdk":
                calls = max(in_flight, calls // SLOW)
            expected = ANSWER if mode == "whole" else STREAMED

            async def lane(count: int, mode: Mode = mode, expected: str = expected) -> None:
                for _ in range(count):
                    assert await once(mode) == expected

            gc.collect()
            begun = time.process_time()
            await asyncio.gather(*(lane(calls // in_flight) for _ in range(in_flight)))
            spent = time.process_time() - begun
            print(1e6 * spent / (calls if mode == "whole" else calls * CHUNKS), flush=True)


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────
def measure(repeats: int, clients: list[str]) -> dict[str, dict[str, list[float]]]:
    """Return {client: {setting: CPU microseconds of each repeat}}; a first round warms up."""
    spent: dict[str, dict[str, list[float]]] = {
        name: {setting: [] for setting in SETTINGS} for name in clients
    }
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(server.served("providers", "--serve"))
        processes = {}
        for name in clients:
            options = ("--client", name, "--url", url)
            client = results.child("providers", *options, OPENAI_API_KEY="none")
            processes[name] = stack.enter_context(client)
        # Setting by setting, so that clients that are compared are neighbours.
        turns = list(product(SETTINGS, processes))
        for repeat in range(repeats + 1):
            for setting, name in turns:
                process = processes[name]
                process.stdin.write(f"{setting}\n")
                process.stdin.flush()
                microseconds = float(results.read_line(process))
                if repeat:
                    spent[name][setting].append(microseconds)
    return spent


# ── the report ────────────────────────────────────────────────────────────────────────────────────
PACKAGES = ("openconductor", "aiohttp", "httptools", "openai")
COMPARED = {
    "call_64": "a call / bare aiohttp's, 64 in flight",
    "call_512": "a call / bare aiohttp's, 512 in flight",
    "chunk_burst": "a chunk of a burst / bare aiohttp's",
    "chunk_paced": "a paced chunk / bare aiohttp's",
}


def ratio(mine: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(mine, other, strict=True))


def report(spent: dict[str, dict[str, list[float]]], repeats: int) -> dict[str, Any]:
    bare = spent["bare_aiohttp"]
    grown = ratio(bare["call_512"], bare["call_64"])
    bars: list[dict[str, Any]] = []
    for name in ("ours", "ours_as_worker"):
        mine = spent[name]
        for setting, what in COMPARED.items():
            value = ratio(mine[setting], bare[setting])
            bars.append(results.at_most(f"{name}: CPU {what}", value, 2.0))
        what = f"{name}: CPU a call at 512 in flight / at 64 (bare aiohttp's own: {grown:.3f})"
        bars.append(results.at_most(what, ratio(mine["call_512"], mine["call_64"]), 1.3))
    figures: dict[str, dict[str, object]] = {}
    for name, mine in spent.items():
        figures[name] = {}
        for setting, values in mine.items():
            median = round(statistics.median(values), 2)
            figures[name][setting] = {"best": round(min(values), 2), "median": median}
    return {
        "bars": bars,
        "cpu_us": figures,
        "versions": results.versions(*PACKAGES),
        "machine": results.machine(),
        "repeats": repeats,
    }


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="interleaved repeats (default 7)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(server.serve(ChatServer))
        return
    if options.client:
        asyncio.run(be_client(options.client, options.url))
        return
    clients: list[str] = []
    for name, (_, package) in CLIENTS.items():
        if find_spec(package):
            clients.append(name)
        else:
            print(f"{name} is left out; it requires: pip install {package}", file=sys.stderr)
    spent = measure(options.repeats, clients)
    results.show(report(spent, options.repeats), as_json=options.json)


if __name__ == "__main__":
    main()
