"""What orchestration costs beside the work: wall over HTTP, CPU and memory a workflow, side by side with LangGraph.

    python -m benchmarks.orchestration [--json] [--repeats 5]

In: nothing but this machine. Out: ratios, with the bars that they are held against. The workflow is
a tree of five steps whose longest line has three; every worker takes 50 ms.

- HTTP: through the OpenAI-compatible client to a server in another process on loopback; wall time of a workflow over
  its critical path (3 x 50 ms), alone and with 64 in flight. It needs two idle cores: "by_hand", the same tree over a
  bare aiohttp session, shows what the machine takes.
- CPU: workers are sleeping async functions, 64 workflows in flight. Ours plans contexts, times and records each step;
  LangGraph gets nodes that only sleep and return a text. "dynamic" compiles a graph a workflow, as a Conductor that
  writes a new workflow for each question needs; "prebuilt" compiles once.
- Memory: Python's heap (tracemalloc) with 1,000 workflows in flight, their first steps waiting; and its peak.

Repeats are interleaved and medians reported, for machines are noisy. LangGraph is optional: `pip
install langgraph`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import operator
import os
import platform
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, TypedDict

from openconductor import Message, Step, Worker, WorkerPool, Workflow, execute

SECONDS = 0.05
TREE = [[], [], [0], [1], [2, 3]]
WORKFLOW = Workflow([Step(0, f"Do part {i}.", access) for i, access in enumerate(TREE)])
CRITICAL_STEPS = 3  # the longest chain of the tree
CRITICAL_SECONDS = CRITICAL_STEPS * SECONDS
QUESTION = "How many primes are there below one hundred?"
ANSWER = "There are 25 primes below one hundred."

Once = Callable[[], Awaitable[object]]


# --- the server
# -------------------------------------------------------------------------------------------------------


class SlowServer(asyncio.Protocol):
    """Answers every request after some seconds, with as little HTTP as the client needs: it is not what is measured."""

    body = json.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "slow",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": ANSWER},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30},
        }
    ).encode()
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, rest = self.buffer.split(b"\r\n\r\n", 1)
            fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
            length = next(int(value) for name, _, value in fields if name == b"content-length")
            if len(rest) < length:
                return
            self.buffer = rest[length:]
            asyncio.get_running_loop().call_later(self.seconds, self.transport.write, self.reply)


async def serve(seconds: float) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: SlowServer(seconds), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def slow_server(seconds: float = SECONDS):
    """The server in a process of its own; yields its base URL."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(seconds)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.terminate()
        process.wait(10)


# --- who is measured
# --------------------------------------------------------------------------------------------------


async def sleeping_worker(messages: list[Message]) -> str:
    await asyncio.sleep(SECONDS)
    return ANSWER


def ours(worker: Callable[[list[Message]], Awaitable[str]] = sleeping_worker) -> Once:
    pool = WorkerPool([Worker(worker, name="sleeper")])
    return lambda: execute(WORKFLOW, pool, QUESTION)


def by_hand(worker: Callable[[list[Message]], Awaitable[str]] = sleeping_worker) -> Once:
    """This one tree written out in asyncio, without contexts, records or errors: the floor."""

    async def branch() -> str:
        return await worker([]) + await worker([])

    async def tree() -> str:
        await asyncio.gather(branch(), branch())
        return await worker([])

    return tree


class State(TypedDict):
    answers: Annotated[dict[int, str], operator.or_]


def compile_langgraph(worker: Callable[[list[Message]], Awaitable[str]]):
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    for index in range(len(TREE)):

        async def node(state: State, index: int = index) -> dict[str, dict[int, str]]:
            return {"answers": {index: await worker([])}}

        graph.add_node(f"s{index}", node)
    for index, seen in enumerate(TREE):
        sources = [f"s{i}" for i in seen]
        graph.add_edge(
            sources if len(sources) > 1 else sources[0] if sources else START, f"s{index}"
        )
    graph.add_edge(f"s{len(TREE) - 1}", END)
    return graph.compile()


def langgraph_prebuilt(worker: Callable[[list[Message]], Awaitable[str]] = sleeping_worker) -> Once:
    graph = compile_langgraph(worker)
    return lambda: graph.ainvoke({"answers": {}})


def langgraph_dynamic(worker: Callable[[list[Message]], Awaitable[str]] = sleeping_worker) -> Once:
    return lambda: compile_langgraph(worker).ainvoke({"answers": {}})


def contenders() -> dict[str, Callable[..., Once]]:
    everyone: dict[str, Callable[..., Once]] = {"ours": ours, "by_hand": by_hand}
    if installed("langgraph"):
        everyone |= {
            "langgraph_prebuilt": langgraph_prebuilt,
            "langgraph_dynamic": langgraph_dynamic,
        }
    return everyone


# --- measuring
# --------------------------------------------------------------------------------------------------------


async def keep_in_flight(once: Once, in_flight: int, each: int) -> list[float]:
    """The wall seconds of in_flight * each workflows, in_flight at any time."""
    walls: list[float] = []

    async def lane() -> None:
        for _ in range(each):
            begun = time.perf_counter()
            await once()
            walls.append(time.perf_counter() - begun)

    await asyncio.gather(*(lane() for _ in range(in_flight)))
    return walls


async def measure_http(repeats: int) -> dict[str, dict[str, float]]:
    """Wall over critical path, alone and with 64 in flight; by_hand posts with a bare aiohttp session."""
    import aiohttp

    from openconductor.providers.openai_compatible import OpenAICompatibleProvider

    payload = {"model": "slow", "messages": [{"role": "user", "content": QUESTION}]}
    walls: dict[str, dict[str, list[float]]] = {}
    with slow_server() as url:
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            OpenAICompatibleProvider("slow", base_url=url) as provider,
            aiohttp.ClientSession(connector=connector) as session,
        ):
            pool = WorkerPool([Worker(provider, name="slow")])

            async def post(messages: list[Message]) -> str:
                async with session.post(f"{url}/chat/completions", json=payload) as response:
                    return (await response.json())["choices"][0]["message"]["content"]

            who: dict[str, Once] = {
                "ours": lambda: execute(WORKFLOW, pool, QUESTION),
                "by_hand": by_hand(post),
            }
            for once in who.values():
                await keep_in_flight(once, 64, 2)  # opens the connections
            for _ in range(repeats):
                for name, once in who.items():
                    mine = walls.setdefault(name, {"alone": [], "at_64": []})
                    mine["alone"] += await keep_in_flight(once, 1, 8)
                    mine["at_64"] += await keep_in_flight(once, 64, 6)
    return {
        name: {
            where: statistics.median(values) / CRITICAL_SECONDS for where, values in mine.items()
        }
        for name, mine in walls.items()
    }


def measure_cpu(repeats: int) -> dict[str, float]:
    """CPU milliseconds a workflow, the median over interleaved repeats."""
    spent: dict[str, list[float]] = {}
    for repeat in range(repeats + 1):
        for name, make in contenders().items():
            once = make()
            gc.collect()
            begun = time.process_time()
            walls = asyncio.run(keep_in_flight(once, 64, 4))
            cpu = (time.process_time() - begun) / len(walls) * 1000
            if repeat:  # the first round warms everybody up
                spent.setdefault(name, []).append(cpu)
    return {name: statistics.median(values) for name, values in spent.items()}


async def heap_of(make: Callable[..., Once], workflows: int) -> tuple[float, float]:
    """Megabytes of Python's heap that workflows in flight take: with the first steps waiting, and at the peak."""
    gate, all_wait, waiting = asyncio.Event(), asyncio.Event(), 0

    async def gated(messages: list[Message]) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == 2 * workflows:
            all_wait.set()
        await gate.wait()
        await asyncio.sleep(0)
        return ANSWER

    once = make(gated)
    gate.set()
    await once()  # whatever is built once is no cost of a workflow
    gate.clear()
    waiting = 0
    gc.collect()
    tracemalloc.start()
    try:
        tasks = [asyncio.ensure_future(once()) for _ in range(workflows)]
        await all_wait.wait()
        gc.collect()
        in_flight = tracemalloc.get_traced_memory()[0]
        gate.set()
        await asyncio.gather(*tasks)
        return in_flight / 1e6, tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def measure_memory(workflows: int = 1000) -> dict[str, tuple[float, float]]:
    return {name: asyncio.run(heap_of(make, workflows)) for name, make in contenders().items()}


# --- the report
# -------------------------------------------------------------------------------------------------------


def installed(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def measure(repeats: int) -> dict[str, object]:
    http = asyncio.run(measure_http(repeats))
    cpu = measure_cpu(repeats)
    memory = measure_memory()
    bars: list[tuple[str, float, float]] = [
        ("wall / critical path, alone", http["ours"]["alone"], 1.05),
        ("wall / critical path, 64 in flight", http["ours"]["at_64"], 1.25),
        ("MB of heap, 1,000 in flight", memory["ours"][0], 25.0),
        ("MB of heap at the peak, 1,000 in flight", memory["ours"][1], 25.0),
    ]
    peers = [name for name in cpu if name.startswith("langgraph")]
    bars += [(f"CPU / CPU of {name}", cpu["ours"] / cpu[name], 0.2) for name in peers]
    return {
        "bars": [
            {"what": w, "value": round(v, 4), "at_most": bar, "held": v <= bar}
            for w, v, bar in bars
        ],
        "http_wall_over_critical_path": http,
        "cpu_ms_a_workflow": cpu,
        "heap_mb_for_1000": {name: {"in_flight": a, "peak": b} for name, (a, b) in memory.items()},
        "versions": {"python": platform.python_version()}
        | {name: installed(name) for name in ("openconductor", "aiohttp", "langgraph")},
        "machine": {
            "system": platform.platform(),
            "cpus": os.cpu_count(),
            "load_average": [round(load, 2) for load in os.getloadavg()],
        },
        "repeats": repeats,
    }


def show(result: dict[str, object]) -> None:
    for bar in result["bars"]:  # type: ignore[attr-defined]
        print(
            f"{'held  ' if bar['held'] else 'MISSED'}  {bar['value']:8.3f}  (at most {bar['at_most']})  {bar['what']}"
        )
    for key in (
        "http_wall_over_critical_path",
        "cpu_ms_a_workflow",
        "heap_mb_for_1000",
        "versions",
        "machine",
    ):
        print(f"{key}: {json.dumps(result[key])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one object instead of lines")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repeats (default 5)")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(serve(options.serve))
        return
    result = measure(options.repeats)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
