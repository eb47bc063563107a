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
import operator
import statistics
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

from benchmarks import results, server

from openconductor import Message, Step, Worker, WorkerPool, Workflow, execute
from openconductor.providers.openai_compatible import OpenAICompatibleProvider

SECONDS = 0.05
TREE = [[], [], [0], [1], [2, 3]]
WORKFLOW = Workflow([Step(0, f"Do part {i}.", access) for i, access in enumerate(TREE)])
CRITICAL_STEPS = 3  # the longest chain of the tree
CRITICAL_SECONDS = CRITICAL_STEPS * SECONDS
QUESTION = "How many primes are there below one hundred?"
ANSWER = "There are 25 primes below one hundred."

Once = Callable[[], Awaitable[object]]


# ── the server ────────────────────────────────────────────────────────────────────────────────────
USAGE = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}
PAYLOAD = {"model": "slow", "messages": [{"role": "user", "content": QUESTION}]}


class SlowServer(server.Server):
    """Answers every request after some seconds."""

    reply = server.response(server.completion(ANSWER, USAGE))

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def answer(self, body: bytes) -> None:
        self.write_later(self.seconds, self.reply)


@asynccontextmanager
async def subjects(url: str) -> AsyncIterator[dict[str, Once]]:
    """Yield the tree through our client, and written by hand over bare aiohttp."""
    async with (
        OpenAICompatibleProvider("slow", base_url=url) as provider,
        server.bare_session() as session,
    ):
        pool = WorkerPool([Worker(provider, name="slow")])

        async def post(messages: list[Message]) -> str:
            return await server.post(session, url, PAYLOAD)

        yield {"ours": lambda: execute(WORKFLOW, pool, QUESTION), "by_hand": by_hand(post)}


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
    walls: dict[str, dict[str, list[float]]] = {}
    with server.served("orchestration", "--serve", str(SECONDS)) as url:
        async with subjects(url) as trees:
            for once in trees.values():
                await keep_in_flight(once, 64, 2)  # opens the connections
            for _ in range(repeats):
                for name, once in trees.items():
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
        asyncio.run(server.serve(lambda: SlowServer(options.serve)))


if __name__ == "__main__":
    main()
