"""Whether each request is answered while one worker lives, whoever else is down.

    python -m benchmarks.availability [--json] [--seconds 300] [--clients 24]

Clients ask a real `openconductor serve` over scripted loopback servers, one a worker and one that
plans. In each phase something fails for ``--seconds``: the planner is killed, hangs, never ends,
writes nonsense, bold type or JSON, has no quota or no key; each worker is killed in turn; all but
one are. The bars, over all phases:

- every request is answered with status 200;
- with a healthy planner no plan is replaced, and the text is that of the plan's last step;
- with the planner's circuit open an answer takes at most a second longer than the worker alone. A
  request that tries the planner again (one every three seconds) may take ``plan_timeout_s`` more,
  which is 2 s here; these are counted apart;
- the bills of the answers, the journal's and the servers' own count are equal.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import aiohttp
from benchmarks import results, serving

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from faults.script import Switchboard
from faults.server import Connection, FaultServer, bill
from openconductor.prompt import render_workflow
from openconductor.store import read_store
from openconductor.types import Step, Workflow

NAMES = ("planner", "a", "b", "c")
WORKERS = NAMES[1:]
PLAN = render_workflow(Workflow((Step(2, "Think."), Step(3, "Answer.", "all"))))
BOLD = '**model_id**: [2]\n**subtasks**: ["Answer."]\n**access_list**: [[]]'
JSON = '{"model_id": [2], "subtasks": ["Answer."], "access_list": [[]]}'
NONSENSE = "First I would ask b, and then c."
PRICE = {"input": "1.25", "output": "10"}
PLAN_TIMEOUT_S = 2.0
PAUSE_S = 1.0
"""Between an answer and a client's next request: the machine must not be what is measured."""
ADDED_S = 1.0
NOT_SENT = "not sent"


@dataclass(frozen=True)
class Phase:
    """What fails: servers that are killed, what the planner meets, and what it writes."""

    name: str
    killed: tuple[str, ...] = ()
    fate: str = "ok"
    text: str = PLAN

    @property
    def plans(self) -> bool:
        """True if the planner is healthy."""
        return "planner" not in self.killed and self.fate == "ok" and self.text == PLAN


PHASES = (
    Phase("healthy"),
    Phase("planner killed", killed=("planner",)),
    Phase("planner hangs", fate="hang"),
    Phase("planner never ends", fate="drip_nothing"),
    Phase("planner writes nonsense", text=NONSENSE),
    Phase("planner writes bold type", text=BOLD),
    Phase("planner writes JSON", text=JSON),
    Phase("planner is cut", fate="cut_at_limit"),
    Phase("planner is over its rate", fate="429"),
    Phase("planner has no quota", fate="429_quota"),
    Phase("planner has a wrong key", fate="401"),
    *(Phase(f"worker {name} killed", killed=(name,)) for name in WORKERS),
    Phase("all but b killed", killed=("planner", "a", "c")),
)


# ── the scripted servers ──────────────────────────────────────────────────────────────────────────
class Machine:
    """One scripted server on a port of its own, which can be killed and started again."""

    def __init__(self, name: str) -> None:
        self.script = Switchboard()
        self.server = FaultServer(self.script, {name: PLAN} if name == "planner" else {})
        self.port = 0
        self._listening: asyncio.Server | None = None

    async def start(self) -> None:
        if self._listening is None:
            loop = asyncio.get_running_loop()
            self._listening = await loop.create_server(
                lambda: Connection(self.server), "127.0.0.1", self.port, backlog=1024
            )
            self.port = self._listening.sockets[0].getsockname()[1]

    def kill(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in list(self.server.connections):
            connection.hang_up(reset=True)


async def enter(machines: dict[str, Machine], phase: Phase) -> None:
    """Set the planner's fault of a phase, and kill its workers."""
    planner = machines["planner"]
    planner.script.fates["planner"] = phase.fate
    planner.server.texts["planner"] = phase.text
    for name, machine in machines.items():
        if name in phase.killed:
            machine.kill()
        else:
            await machine.start()


# ── the clients ───────────────────────────────────────────────────────────────────────────────────
@dataclass
class Seen:
    """One answer."""

    status: int
    seconds: float
    text: str = ""
    orchestration: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def rule(self) -> str | None:
        return self.orchestration.get("rule")

    @property
    def circuit_open(self) -> bool:
        return NOT_SENT in self.orchestration.get("no_plan", "")


async def ask(session: aiohttp.ClientSession, url: str, model: str = "conductor") -> Seen:
    messages = [{"role": "user", "content": "What is 6 * 7?"}]
    began = time.monotonic()
    body = {"model": model, "messages": messages}
    async with session.post(f"{url}/chat/completions", json=body) as answer:
        read = await answer.json()
        seconds = time.monotonic() - began
        if answer.status != 200:
            return Seen(answer.status, seconds, str(read))
        text = read["choices"][0]["message"]["content"]
        return Seen(200, seconds, text, read["usage"]["orchestration"])


async def ask_for(
    session: aiohttp.ClientSession, url: str, clients: int, seconds: float
) -> list[Seen]:
    """Run clients, each of which sends one request after the other."""
    seen: list[Seen] = []
    end = time.monotonic() + seconds

    async def client(number: int) -> None:
        await asyncio.sleep(PAUSE_S * number / clients)
        while time.monotonic() < end:
            seen.append(await ask(session, url))
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*(client(number) for number in range(clients)))
    return seen


async def recover(session: aiohttp.ClientSession, url: str, kept: list[Seen]) -> float:
    """Ask until a plan is followed by the workers that it names; return the seconds."""
    began = time.monotonic()
    while time.monotonic() - began < 60:
        seen = await ask(session, url)
        kept.append(seen)
        workers = [call["worker"] for call in seen.orchestration.get("calls", ())]
        if workers == ["conductor", "b", "c"]:
            break
        await asyncio.sleep(0.2)
    return time.monotonic() - began


# ── the server ────────────────────────────────────────────────────────────────────────────────────
@contextmanager
def openconductor(folder: Path, machines: dict[str, Machine], port: int) -> Any:
    """Run `openconductor serve` over the scripted servers."""
    tables = ['default_worker = "a"\n']
    for name, machine in machines.items():
        tables.append(
            f'[[worker]]\nname = "{name}"\nmodel = "{name}"\n'
            f'base_url = "http://127.0.0.1:{machine.port}/v1"\ntimeout_s = 5\n'
            f'price = {{input = "{PRICE["input"]}", output = "{PRICE["output"]}"}}\n'
            "sampling = {max_tokens = 300}\n"
        )
    (folder / "pool.toml").write_text("\n".join(tables))
    config = f"""
port = {port}
pool = "{folder / "pool.toml"}"
conductor = "worker:planner"
journal = "{folder / "serve.sqlite"}"
plan_timeout_s = {PLAN_TIMEOUT_S}
"""
    (folder / "serve.toml").write_text(config)
    command = (sys.executable, "-m", "openconductor", "serve", "--config", f"{folder}/serve.toml")
    with (folder / "log").open("w") as log, results.process(*command, stderr=log) as process:
        yield process


# ── the figures ───────────────────────────────────────────────────────────────────────────────────
def figures(phase: Phase, seen: Sequence[Seen], alone: float, followed: float) -> dict[str, Any]:
    """Return the figures of a phase.

    Args:
        phase: what failed.
        seen: its answers.
        alone: the median seconds of the default worker alone.
        followed: the median seconds of a plan with all workers well.
    """
    usual = followed if phase.plans else alone
    late = [one for one in seen if phase.plans or one.circuit_open]
    if phase.plans:  # circuits of workers open within the first part of a phase
        late = late[len(late) // 2 :]
    added = sorted(one.seconds - usual for one in late)
    tried = [one.seconds - usual for one in seen if not phase.plans and not one.circuit_open]
    return {
        "requests": len(seen),
        "failed": sum(one.status != 200 for one in seen),
        "by default worker": sum(one.rule is not None for one in seen),
        "circuit open": len(late) if not phase.plans else None,
        "added s, median": round(statistics.median(added), 3) if added else None,
        "added s, most": round(added[-1], 3) if added else None,
        "planner tried": len(tried),
        "added s where it was tried, most": round(max(tried), 3) if tried else None,
        "first failure": next((one.text[:200] for one in seen if one.status != 200), None),
    }


def bills(answers: Sequence[Seen], journal: Path, machines: dict[str, Machine]) -> dict[str, Any]:
    """Return the tokens and dollars by the answers, by the journal, and by the servers."""
    bill_of = [one.orchestration for one in answers if one.status == 200]
    tokens = sum(one["input_tokens"] + one["output_tokens"] for one in bill_of)
    dollars = sum(Fraction(one["dollars"]) for one in bill_of)
    with read_store(journal) as store:
        spent = store.totals().spent.usage
    counted = {name: machine.server.usage() for name, machine in machines.items()}
    return {
        "answers": (tokens, str(dollars)),
        "journal": (spent.tokens, str(Fraction(spent.dollars))),
        "servers": (
            sum(each.input + each.output for each in counted.values()),
            str(sum((bill(PRICE, each) for each in counted.values()), Fraction(0))),
        ),
    }


async def measure(seconds: float, clients: int) -> dict[str, Any]:
    machines = {name: Machine(name) for name in NAMES}
    for machine in machines.values():
        await machine.start()
    phases: dict[str, Any] = {}
    answers: list[Seen] = []
    replaced = 0
    added = [0.0]
    port = serving.free_port()
    url = f"http://127.0.0.1:{port}/v1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        timeout = aiohttp.ClientTimeout(total=120)
        connector = aiohttp.TCPConnector(limit=0)
        with openconductor(folder, machines, port):
            await serving.wait_for(port)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                direct = [await ask(session, url, "direct:a") for _ in range(20)]
                planned = [await ask(session, url) for _ in range(20)]
                answers += direct + planned
                alone, followed = (
                    statistics.median(one.seconds for one in each) for each in (direct, planned)
                )
                for phase in PHASES:
                    await enter(machines, phase)
                    seen = await ask_for(session, url, clients, seconds)
                    answers += seen
                    of_phase = figures(phase, seen, alone, followed)
                    await enter(machines, PHASES[0])
                    of_phase["recovered in s"] = round(await recover(session, url, answers), 1)
                    phases[phase.name] = of_phase
                    added.append(of_phase["added s, most"] or 0.0)
                    if phase.plans:
                        replaced += of_phase["by default worker"]
                    print(f"{phase.name}: {of_phase}", file=sys.stderr, flush=True)
            await asyncio.sleep(1.0)
        sums = bills(answers, folder / "serve.sqlite", machines)
    failed = sum(one.status != 200 for one in answers)
    bars = [
        results.at_most("requests that failed", failed, 0),
        results.at_most("plans of a healthy planner that were replaced", replaced, 0),
        results.at_most("seconds added with an open circuit, most", max(added), ADDED_S),
        results.at_most("different bills", len(set(sums.values())), 1),
    ]
    return {"bars": bars, "phases": phases, "bills": sums, "machine": results.machine()}


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="of each phase")
    parser.add_argument("--clients", type=int, default=24)
    given = parser.parse_args()
    result = asyncio.run(measure(given.seconds, given.clients))
    results.show(result, as_json=given.json)


if __name__ == "__main__":
    main()
