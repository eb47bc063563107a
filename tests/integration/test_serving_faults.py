"""The server as a process under load: SIGTERM, kill -9, workers that die, a full disk, a clock that
jumps.

After each: what a client got whole is in the journal with its bill, no stream has ended without
saying how, failures have codes, and the server starts again on the same journal with the keys'
budgets where they were.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from faults.script import Request
from faults.server import FaultServer, fault_server
from integration.served import PATHS, PRICES, events, failure_of, request_body, usage_of
from openconductor.config import dump_toml
from openconductor.prompt import render_workflow
from openconductor.serving.key_ring import KeyRing, cost_of, new_key
from openconductor.serving.serve_config import KeyTable
from openconductor.store import Journal
from openconductor.types import Step, Usage, Workflow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CLIENTS = 24
KEY, HASH = new_key()
PLAN = render_workflow(Workflow((Step(1, "Think."), Step(2, "Answer.", "all"))))
TYPED = {"shutting_down", "worker_failed", "worker_unavailable", "journal_failed", "server_error"}

# The command line, with a clock that SIGUSR1 sets a day and a half forward, and SIGUSR2 three days
# back.
LAUNCH = """
import signal, sys, time
real, off = time.time, [0]
time.time = lambda: real() + off[0]
for one, days in ((signal.SIGUSR1, 1.5), (signal.SIGUSR2, -3)):
    signal.signal(one, lambda *_, days=days: off.__setitem__(0, off[0] + days * 86400))
from openconductor.cli import main
sys.exit(main())
"""


class Switched:
    """Every worker answers, after a moment; from ``dead`` on the last one hangs up on everybody."""

    dead = False
    huge = False  # the first worker's answers, where it streams and is asked alone

    def fate(self, request: Request) -> str:
        if self.huge and request.model == "a" and request.stream:
            return "huge"
        if self.dead and request.model == "b":
            return "reset_before"
        return "delay" if request.model != "planner" else "ok"


@dataclass
class Load:
    """Clients, and what they were told: whole answers by their ids, and the codes of failures;
    ``silent`` must stay empty.
    """

    whole: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    failed: Counter[str] = field(default_factory=Counter[str])
    silent: list[str] = field(default_factory=list[str])
    cut: int = 0  # connections that broke, which a client sees
    stop: bool = False

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it."""
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 - whatever is asked for
                await asyncio.sleep(0.02)

    async def client(self, url: str, number: int) -> None:
        """Ask one question after the other."""
        async with client() as http:
            while not self.stop:
                number += CLIENTS
                api, stream = list(PATHS)[number % 3], number // 3 % 2 == 0
                told = await self.ask(http, url, api, stream=stream, question=f"{number}?")
                if not told:
                    await asyncio.sleep(0.05)

    async def ask(
        self, http: httpx.AsyncClient, url: str, api: str, *, stream: bool, question: str
    ) -> bool:
        """Ask, and take in what comes; return False if nothing was answered."""
        try:
            body = request_body(api, question, stream=stream)
            answer = await http.post(f"{url}{PATHS[api]}", json=body)
        except httpx.HTTPError:
            self.cut += 1
            return False
        if answer.status_code == 200:
            self._take(api, answer, stream=stream)
        elif answer.headers["content-type"] == "application/json":
            error = answer.json()["error"]
            self.failed[error.get("code") or error["type"]] += 1
        else:
            self.cut += 1  # of the HTTP server's own, after a second signal
        return answer.status_code == 200

    def _take(self, api: str, answer: httpx.Response, *, stream: bool) -> None:
        if stream:
            failure = failure_of(api, events(answer.text)[-1])
            if failure is not None:
                self.failed[failure] += 1
                return
            if api == "chat" and "[DONE]" not in answer.text:
                self.silent.append(answer.text)
                return
        bill = usage_of(api, answer, stream=stream)["orchestration"]
        self.whole[bill["episode"]] = bill


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=20, headers={"x-api-key": KEY})


@dataclass
class Process:
    """The server, on a free port; it can be started again."""

    folder: Path
    faults: FaultServer
    url: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def journal(self) -> Path:
        return self.folder / "serve.sqlite"

    async def start(self, dollars: str = "5") -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        config = self._write(port, dollars)
        command = [sys.executable, "-c", LAUNCH, "serve", "--config", str(config)]
        log = self.folder / "log"
        with log.open("ab") as written:
            self.process = subprocess.Popen(command, stdout=written, stderr=written)  # noqa: ASYNC220 - it returns at once
        async with httpx.AsyncClient() as http:
            for _ in range(400):
                assert self.process.poll() is None, log.read_text()
                with suppress(httpx.HTTPError):
                    if (await http.get(f"{self.url}/health/ready")).status_code == 200:
                        return
                await asyncio.sleep(0.05)
        raise TimeoutError("the server did not become ready")

    def _write(self, port: int, dollars: str) -> Path:
        """Write the pool and the settings; return the path of these."""
        pool, path = self.folder / "pool.toml", self.folder / "serve.toml"
        common = {"base_url": self.faults.url, "sampling": {"max_tokens": 300}}
        workers = [
            {"name": name, "model": name, "price": PRICES[name], **common}
            for name in ("planner", "a", "b")
        ]
        pool.write_text(dump_toml({"worker": workers}))
        config = {
            "port": port,
            "pool": str(pool),
            "conductor": "worker:planner",
            "drain_s": 0.3,
            "journal": str(self.journal),
            "heartbeat_s": 0.2,
            "fallback": False,
            "key": [{"name": "ann", "hash": HASH, "dollars": dollars, "period": "total"}],
        }
        path.write_text(dump_toml(config))
        return path

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    async def ended(self, seconds: float = 15) -> int:
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, seconds)

    async def stop(self, load: Load) -> int:
        load.stop = True
        self.send(signal.SIGTERM)
        return await self.ended()


@asynccontextmanager
async def under_load(folder: Path) -> AsyncIterator[tuple[Process, Load, Switched]]:
    """A server with this many clients at work; they stop when the block ends."""
    script, load = Switched(), Load()
    async with fault_server(script, {"planner": PLAN}) as faults:
        process = Process(folder, faults)
        await process.start()
        clients = [
            asyncio.create_task(load.client(process.url, number)) for number in range(CLIENTS)
        ]
        try:
            await load.until(lambda: len(load.whole) >= CLIENTS or bool(load.failed))
            assert not load.failed, load.failed
            yield process, load, script
        finally:
            load.stop = True
            await asyncio.gather(*clients)
            process.kill()


async def check_again(process: Process, load: Load) -> None:
    """Nothing that was acknowledged is lost, and with the workers there again it goes on."""
    async with fault_server(Switched(), {"planner": PLAN}) as process.faults:
        try:
            await check_what_is_left(process, load)
        finally:
            process.kill()


async def check_what_is_left(process: Process, load: Load) -> None:
    assert not load.silent
    assert set(load.failed) <= TYPED, load.failed
    assert "fault of the server" not in (process.folder / "log").read_text()
    with closing(sqlite3.connect(process.journal)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    charged = check_books(process.journal, load.whole)
    await process.start()
    again = Load()
    async with client() as http:
        for api in PATHS:
            await again.ask(http, process.url, api, stream=True, question="And now?")
        assert len(again.whole) == 3, again
        old = next(iter(load.whole))
        assert (await http.get(f"{process.url}/v1/episodes/{old}")).json()["outcome"] == "answered"
        assert await process.stop(again) == 0
        await process.start(dollars=f"{charged:f}")  # which is spent
        await again.ask(http, process.url, "chat", stream=False, question="Once more?")
        assert again.failed == {"insufficient_quota": 1}


def check_books(path: Path, whole: dict[str, dict[str, Any]]) -> Decimal:
    """Check that what clients got whole is in the journal as billed; return the key's sum."""
    table = KeyTable("ann", HASH, dollars=Decimal(5), period="total")
    with Journal.reading(path) as journal:
        episodes = {episode.id: episode for episode in journal.episodes(limit=None)}
        for identifier, told in whole.items():
            calls = list(journal.calls(identifier))
            used = sum((call.usage for call in calls), Usage())
            assert episodes[identifier].outcome == "answered"
            assert used.input_tokens == told["input_tokens"]
            assert used.output_tokens == told["output_tokens"]
            assert used.dollars == Decimal(told["dollars"])
            record = journal.find_record(f"serve/{identifier}") or {}
            assert Decimal(str(record["charged"])) == sum(map(cost_of, calls))
        charged = sum(map(cost_of, journal.calls()), Decimal(0))
        ((_, tenant),) = KeyRing([table], journal)._tenants
        assert tenant._purse.spent == charged
    return charged


@pytest.mark.parametrize(
    ("signals", "status"),
    [
        ((signal.SIGTERM,), 0),
        ((signal.SIGHUP,), 0),
        ((signal.SIGTERM, signal.SIGINT), 0),
        ((signal.SIGKILL,), -signal.SIGKILL),
    ],
)
async def test_a_server_that_is_ended_tells_why_or_breaks_off_and_loses_nothing_that_it_answered(
    tmp_path: Path, signals: tuple[int, ...], status: int
) -> None:
    """Once: every answer ends or says why. Twice: at once. Killed: clients see their connections
    break.
    """
    async with under_load(tmp_path) as (process, load, _):
        for number in signals:
            process.send(number)
        assert await process.ended(15 if len(signals) == 1 else 5) == status
        load.stop = True
    assert set(load.failed) <= {"shutting_down", "server_error"}, load.failed
    assert load.cut or (load.failed and signals[-1] != signal.SIGKILL)
    await check_again(process, load)


async def test_clients_that_do_not_read_or_finish_their_requests_cannot_keep_it_from_stopping(
    tmp_path: Path,
) -> None:
    body = json.dumps(request_body("chat", "?", stream=True, model="direct:a")).encode()
    head = f"POST {PATHS['chat']} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {KEY}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    async with under_load(tmp_path) as (process, load, script):
        script.huge = True
        port = int(process.url.rsplit(":", 1)[1])
        with ExitStack() as stalled:
            for part in (request, head.encode(), request[:30], b"") * 2:
                connection = socket.create_connection(("127.0.0.1", port))
                stalled.enter_context(connection)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(part)
            await process.faults.until(lambda faults: faults.fates["huge"] >= 2)
            await asyncio.sleep(0.5)
            process.send(signal.SIGTERM)
            assert await process.ended(12) == 0
            load.stop = True
    await check_again(process, load)


async def test_workers_that_die_are_errors_with_a_code_and_all_is_well_when_they_are_back(
    tmp_path: Path,
) -> None:
    async with under_load(tmp_path) as (process, load, script):
        script.dead = True
        await load.until(lambda: sum(load.failed.values()) >= 10)
        assert set(load.failed) <= {"worker_failed", "worker_unavailable", "server_error"}
        script.dead = False
        before = len(load.whole)
        await load.until(lambda: len(load.whole) >= before + 10)
        await process.stop(load)
    await check_again(process, load)


async def test_a_full_disk_is_an_error_with_a_code_and_nothing_is_answered_that_cannot_be_kept(
    tmp_path: Path,
) -> None:
    async with under_load(tmp_path) as (process, load, _):
        assert process.process is not None
        pid, limit = process.process.pid, resource.RLIMIT_FSIZE
        size = process.journal.with_name("serve.sqlite-wal").stat().st_size
        _, hard = resource.prlimit(pid, limit)
        resource.prlimit(pid, limit, (size + 100_000, hard))
        await load.until(lambda: load.failed["journal_failed"] >= CLIENTS)
        async with httpx.AsyncClient(base_url=process.url) as http:
            assert (await http.get("/health/ready")).status_code == 503
            assert (await http.get("/health/live")).status_code == 200
        whole = len(load.whole)
        await asyncio.sleep(0.3)
        assert len(load.whole) == whole
        await process.stop(load)
    await check_again(process, load)


async def test_a_clock_that_jumps_changes_no_answer_and_no_bill(tmp_path: Path) -> None:
    async with under_load(tmp_path) as (process, load, _):
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
            process.send(number)
            enough = len(load.whole) + CLIENTS
            await load.until(lambda enough=enough: len(load.whole) >= enough)
        assert not load.failed
        assert await process.stop(load) == 0
    assert all(0 <= one["seconds"] < 20 for one in load.whole.values())
    await check_again(process, load)
