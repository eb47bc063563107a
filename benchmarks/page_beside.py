"""The page beside a server's APIs: the CPU of a request with the page on and off, in one run.

    python -m benchmarks.page_beside [--json] [--rounds 30] [--requests 20]

Two processes of ``openconductor serve`` over the simulated workers, one of them with ``--ui
--allow-asking``, answer the same question in turn: in each round both get as many requests, and
which of them comes first changes from round to round. The CPU is the servers' own, as Linux counts
it for each of their threads.

- bar: the median over rounds of the CPU with the page, divided by that without, is at most 1.03,
  for a model that plans and for a single worker.
"""

from __future__ import annotations

import http.client
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from sys import executable

from benchmarks import results

MOST = 1.03
MODELS = ("conductor", "direct:maven")
QUESTION = "Take 4 17 9, put it in order and then double every number."
PORTS = {"page off": 8398, "page on": 8399}
WITH_PAGE = ("--ui", "--allow-asking")
START_S = 60.0


class Server:
    """A server's process, and a connection to it."""

    def __init__(self, pid: int, port: int) -> None:
        self._pid = pid
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        ends = time.monotonic() + START_S
        while time.monotonic() < ends:
            with suppress(ConnectionRefusedError):
                self._connection.connect()
                return
            time.sleep(0.2)
        raise SystemExit(f"nothing listens on port {port}")

    def ask(self, model: str) -> None:
        """Ask the question."""
        body = {"model": model, "messages": [{"role": "user", "content": QUESTION}]}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text

    def cost_of(self, model: str, requests: int) -> float:
        """Return the CPU of a request, in milliseconds: the mean of several."""
        began = results.cpu_ms(self._pid)
        for _ in range(requests):
            self.ask(model)
        return (results.cpu_ms(self._pid) - began) / requests


@contextmanager
def serving(folder: Path, port: int, *more: str) -> Iterator[Server]:
    """Run a server in a folder."""
    words = ("serve", "--port", str(port), "--log-level", "error", *more)
    folder.mkdir()
    with (
        (folder / "stderr").open("w") as errors,
        results.process(
            executable, "-m", "openconductor", *words, cwd=folder, stderr=errors
        ) as process,
    ):
        yield Server(process.pid, port)


def compare(servers: dict[str, Server], model: str, rounds: int, requests: int) -> list[float]:
    """Return the CPU with the page, divided by that without, of each round."""
    ratios: list[float] = []
    for number in range(rounds):
        names = list(servers) if number % 2 else list(reversed(servers))
        costs = {name: servers[name].cost_of(model, requests) for name in names}
        ratios.append(costs["page on"] / costs["page off"])
    return ratios


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--requests", type=int, default=20)
    options = parser.parse_args()
    bars: list[dict[str, object]] = []
    quartiles: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        servers: dict[str, Server] = {}
        for name, port in PORTS.items():
            more = WITH_PAGE if name == "page on" else ()
            server = serving(Path(folder, name), port, *more)
            servers[name] = running.enter_context(server)
        for model in MODELS:
            compare(servers, model, 2, options.requests)  # what is made once is made
            ratios = compare(servers, model, options.rounds, options.requests)
            what = f"CPU of a request to {model}, page on / off"
            bars.append(results.at_most(what, statistics.median(ratios), MOST))
            quartiles[model] = [round(ratio, 3) for ratio in statistics.quantiles(ratios)]
    shown = {"bars": bars, "quartiles": quartiles, "rounds": options.rounds, **results.machine()}
    results.show(shown, as_json=options.json)


if __name__ == "__main__":
    main()
