"""Cost of orchestration: wall over HTTP, CPU and memory a workflow, side by side with LangGraph.

    python -m benchmarks.orchestration [--json] [--repeats 5]

The workflow is a tree of five steps whose longest line has three; every worker takes 50 ms.

- HTTP: through the OpenAI-compatible client to a server in another process on loopback; wall time
  of a workflow over its critical path (3 x 50 ms), alone and with 64 in flight. It needs two idle
  cores: "by_hand", the same tree over a bare aiohttp session, shows what the machine takes.
- CPU: workers are sleeping async functions, 64 workflows in flight. Ours plans contexts, times and
  records each step; LangGraph gets nodes that only sleep and return a text. "dynamic" compiles a
  graph a workflow, as a Conductor that writes a new workflow for each question needs; "prebuilt"
  compiles once.
- Memory: Python's heap (tracemalloc) with 1,000 workflows in flight, their first steps waiting; and
  its peak.

Repeats are interleaved and medians reported, because machines are noisy. LangGraph is optional:
`pip install langgraph`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import operator
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypedDict

from benchmarks import results

from openconductor import Message, Step, Worker, WorkerPool, Workflow, execute

SECONDS = 0.05
TREE = [[], [], [0], [1], [2, 3]]
WORKFLOW = Workflow([Step(0, f"Do part {i}.", access) for i, access in enumerate(TREE)])
CRITICAL_STEPS = 3  # the longest chain of the tree
CRITICAL_SECONDS = CRITICAL_STEPS * SECONDS
QUESTION = "How many primes are there below one hundred?"
ANSWER = "There are 25 primes below one hundred."

Once = Callable[[], Awaitable[object]]


# ── the server ────────────────────────────────────────────────────────────────────────────────────
MESSAGE = {"role": "assistant", "content": ANSWER}
WHOLE = {
    "id": "x",
    "object": "chat.completion",
    "created": 0,
    "model": "slow",
    "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30},
}
BODY = json.dumps(WHOLE).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class SlowServer(asyncio.Protocol):
    """Answers every request after some seconds, with as little HTTP as the client needs."""

    reply = HEAD % len(BODY) + BODY

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
def slow_server(seconds: float = SECONDS) -> Iterator[str]:
    """Run the server as a process of its own; yields its base URL."""
    with results.child("orchestration", "--serve", str(seconds)) as process:
        yield f"http://127.0.0.1:{results.read_line(process)}/v1"


# ── the contenders ────────────────────────────────────────────────────────────────────────────────
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
        target = f"s{index}"
        if not seen:
            graph.add_edge(START, target)
        elif len(seen) == 1:
            graph.add_edge(f"s{seen[0]}", target)
        else:
            graph.add_edge([f"s{source}" for source in seen], target)
    graph.add_edge(f"s{len(TREE) - 1}", END)
    return graph.compile()


def langgraph_prebuilt(worker: Callable[[list[Message]], Awaitable[str]] = sleeping_worker) -> Once:
    graph = compile_langgraph(worker)
    return lambda: graph.ainvoke({"answers": {}})


def langgraph_dynamic(worker: Callable[[list[Message]], Awaitable[str]] = sleeping_worker) -> Once:
    return lambda: compile_langgraph(worker).ainvoke({"answers": {}})


def contenders() -> dict[str, Callable[..., Once]]:
    everyone: dict[str, Callable[..., Once]] = {"ours": ours, "by_hand": by_hand}
    if results.installed("langgraph"):
        everyone |= {
            "langgraph_prebuilt": langgraph_prebuilt,
            "langgraph_dynamic": langgraph_dynamic,
        }
    return everyone


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────
async def keep_in_flight(once: Once, in_flight: int, each: int) -> list[float]:
    """Run ``in_flight`` lanes of ``each`` workflows; return the wall seconds of each workflow."""
    walls: list[float] = []

    async def lane() -> None:
        for _ in range(each):
            begun = time.perf_counter()
            await once()
            walls.append(time.perf_counter() - begun)

    await asyncio.gather(*(lane() for _ in range(in_flight)))
    return walls


async def measure_http(repeats: int) -> dict[str, dict[str, float]]:
    """Measure wall over critical path, alone and with 64 in flight."""
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

            subjects: dict[str, Once] = {
                "ours": lambda: execute(WORKFLOW, pool, QUESTION),
                "by_hand": by_hand(post),
            }
            for once in subjects.values():
                await keep_in_flight(once, 64, 2)  # opens the connections
            for _ in range(repeats):
                for name, once in subjects.items():
                    mine = walls.setdefault(name, {"alone": [], "at_64": []})
                    mine["alone"] += await keep_in_flight(once, 1, 8)
                    mine["at_64"] += await keep_in_flight(once, 64, 6)
    ratios: dict[str, dict[str, float]] = {}
    for name, mine in walls.items():
        medians = {where: statistics.median(values) for where, values in mine.items()}
        ratios[name] = {where: wall / CRITICAL_SECONDS for where, wall in medians.items()}
    return ratios


def measure_cpu(repeats: int) -> dict[str, float]:
    """Measure the CPU milliseconds of a workflow: the median over interleaved repeats."""
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
    """Measure the heap of workflows, MB: with the first steps waiting, and at the peak."""
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


# ── the result ────────────────────────────────────────────────────────────────────────────────────
def measure(repeats: int) -> dict[str, object]:
    http = asyncio.run(measure_http(repeats))
    cpu = measure_cpu(repeats)
    memory = measure_memory()
    in_flight, peak = memory["ours"]
    bars = [
        results.at_most("wall / critical path, alone", http["ours"]["alone"], 1.05),
        results.at_most("wall / critical path, 64 in flight", http["ours"]["at_64"], 1.25),
        results.at_most("MB of heap, 1,000 in flight", in_flight, 25.0),
        results.at_most("MB of heap at the peak, 1,000 in flight", peak, 25.0),
    ]
    for name in cpu:
        if name.startswith("langgraph"):
            bars.append(results.at_most(f"CPU / CPU of {name}", cpu["ours"] / cpu[name], 0.2))
    return {
        "bars": bars,
        "http_wall_over_critical_path": http,
        "cpu_ms_a_workflow": cpu,
        "heap_mb_for_1000_in_flight_and_peak": memory,
        "versions": results.versions("openconductor", "aiohttp", "langgraph"),
        "machine": results.machine(),
        "repeats": repeats,
    }


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repeats (default 5)")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is None:
        results.show(measure(options.repeats), as_json=options.json)
    else:
        asyncio.run(serve(options.serve))


if __name__ == "__main__":
    main()
