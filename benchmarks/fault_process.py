"""The server that fails by seed (``tests/faults``), in a process of its own.

It stops when its standard input ends, so that it does not outlive its parent, and then prints the
counts of what it saw.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from benchmarks import results

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from faults.script import Seeded
from faults.server import FaultServer, fault_server

SECONDS = 600.0
"""It serves no longer, whatever happens."""


@contextmanager
def fault_process(script: Seeded) -> Iterator[tuple[str, Callable[[], dict[str, int]]]]:
    """Serve a script in a process of its own; yield its URL, and what ends it with its counts."""
    given = {"seed": script.seed, "shares": dict(script.shares), "weights": dict(script.weights)}
    with results.child("fault_process", json.dumps(given)) as process:

        def stop() -> dict[str, int]:
            out, _ = process.communicate(timeout=30)
            return json.loads(out)

        yield results.read_line(process), stop


def summary(server: FaultServer) -> dict[str, object]:
    """Return the counts of what the server saw."""
    models = sorted({record.request.model for record in server.records})
    repeats = Counter(record.request.digest for record in server.records)
    return {
        "requests": len(server.records),
        "fates": dict(server.fates),
        "usage": {model: asdict(server.usage(model)) for model in models},
        "unreported": server.unreported(),
        "most_repeats": max(repeats.values(), default=0),
        "connections": server.accepted,
        "open": len(server.connections),
        "hung_up": server.hung_up,
    }


async def _serve(script: Seeded) -> None:
    ended = asyncio.Event()
    # Nothing is ever written there: it can only end.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with fault_server(script) as server:
        print(server.url, flush=True)
        try:
            await asyncio.wait_for(ended.wait(), SECONDS)
        except TimeoutError:
            print(f"the fault server's {SECONDS} s are over", file=sys.stderr)
        print(json.dumps(summary(server)), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(Seeded(**json.loads(sys.argv[1]))))
