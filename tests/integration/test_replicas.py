"""Replicas of the server on one database: they share keys and money, and answer for each other."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.places import DatabasePlace
from tests.postgres_server import running

from integration.counting_server import CountingServer, Turns, write_pool
from integration.test_serving_process import find_port, is_ready, wait_until
from openconductor.config import dump_toml
from openconductor.serving.key_ring import cost_of, new_key
from openconductor.serving.shared.replicas import BackOff, _Replica

KEY, HASH = new_key()
LIMIT = Decimal(3)
PLAN = "model_id = [0, 0]\nsubtasks = ['Think.', 'Answer.']\naccess_list = [[], [0]]"
WORKERS: dict[str, Any] = {"prices": (7, 77), "most_tokens": 200}
PRICES = {"input": Decimal("0.000007"), "output": Decimal("0.000077")}
CLIENTS = 64
LAUNCH = """
import sys
from openconductor.calls import shared_budget
from openconductor.store.postgres import database, postgres_writer
postgres_writer.LEASE_S, shared_budget._TRUSTED_S, shared_budget._SETTLE_S = 3.0, 1.5, 0.5
database.ANSWER_S = database.DatabaseConnection.limit_s = 2.5
from openconductor.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Workers(CountingServer):
    """A planner that writes a plan, and a worker that answers; what each token costs is counted."""

    PAUSE_S = (0.005, 0.03)

    def __init__(self) -> None:
        self.dollars = Decimal(0)
        self.texts: Counter[str] = Counter()
        super().__init__(1)

    def text(self, model: str, turns: Turns, asked: str) -> str:
        text = PLAN if model == "planner" else f"answer to {asked}"
        read = sum(len(content) for _, content in turns)
        self.dollars += read * PRICES["input"] + len(text) * PRICES["output"]
        self.texts[turns[-1][1]] += 1
        return text


class Replica:
    """One server of several, as a process."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        path = folder / "serve.toml"
        path.write_text(dump_toml({"port": 0, **config}))
        command = [sys.executable, "-c", LAUNCH, "serve", "--config", str(path)]
        self.journal: str = config["journal"]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)

    def wait(self) -> None:
        self.url = f"http://127.0.0.1:{find_port(self.process, self.log)}"


@contextmanager
def replicas(
    folder: Path, database: DatabasePlace, url: str, count: int, **key: Any
) -> Iterator[Any]:
    """Serve from so many processes, over workers at an address."""
    pool = folder / "pool.toml"
    write_pool(pool, url, "w", "planner", **WORKERS)
    table = {"name": "ann", "hash": HASH, "period": "total", "dollars": str(LIMIT), **key}
    config = {"pool": str(pool), "conductor": "worker:planner", "journal": database.name}
    started: list[Replica] = []
    with ExitStack() as stack:
        for number in range(count):
            own = folder / str(number)
            own.mkdir()
            started.append(Replica(own, {**config, "log_level": "warning", "key": [table]}))
            stack.callback(started[-1].process.wait, 30)
            stack.callback(started[-1].process.kill)
        for replica in started:
            replica.wait()
        yield started


@pytest.fixture
def workers() -> Iterator[Workers]:
    counting = Workers()
    yield counting
    counting.close()


def body_of(model: str, question: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": question}], **more}


async def ask_all(
    servers: list[Replica],
    requests: int,
    kill: int | None = None,
    at: Mapping[int, Callable[[], object]] | None = None,
) -> Counter[str]:
    """Ask from 64 clients; return how the requests ended.

    Request ``kill`` kills a replica, and ``at`` has what else happens at a request.
    """
    happens = at or {}
    ended: Counter[str] = Counter()
    numbers = iter(range(requests))
    alive = list(servers)
    # A client ends a connection that nobody uses before the server does.
    limits = httpx.Limits(max_connections=CLIENTS, keepalive_expiry=1)
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(timeout=60, limits=limits, headers=headers) as client:

        async def lane() -> None:
            for number in numbers:
                if number == kill:
                    servers[0].process.kill()
                    alive.pop(0)
                if number in happens:
                    happens[number]()
                model = "conductor" if number % 4 == 0 else "direct:w"
                url = f"{alive[number % len(alive)].url}/v1/chat/completions"
                stream = number % 3 == 0
                body = body_of(model, f"Question {number}?", stream=stream)
                try:
                    answer = await client.post(url, json=body)
                except httpx.HTTPError:
                    ended["connection"] += 1
                    continue
                code = re.search(r'"code": ?"(\w+)"', answer.text)
                ended[code[1] if code else str(answer.status_code)] += 1

        await asyncio.gather(*(lane() for _ in range(CLIENTS)))
    return ended


def usage_of(replica: Replica) -> Decimal:
    headers = {"authorization": f"Bearer {KEY}"}
    page = httpx.get(f"{replica.url}/v1/usage", headers=headers).json()
    assert page["limit"] == str(LIMIT) and page["key"] == "ann"
    return Decimal(page["spent"])


def shown_dollars(replica: Replica) -> float:
    page = httpx.get(f"{replica.url}/metrics").text
    found = re.findall(r'^openconductor_key_dollars_total{key="ann"} (.*)$', page, re.MULTILINE)
    return sum(map(float, found))


def stored_dollars(database: DatabasePlace) -> Decimal:
    with database.read() as reader:
        return sum(map(cost_of, reader.calls()), Decimal(0))


ONE_CALL = 200 * PRICES["output"] + 5000 * PRICES["input"]
"""More than a call reserves."""


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_replicas_spend_a_budget_to_the_last_call_and_all_books_agree(
    tmp_path: Path, database: DatabasePlace, workers: Workers, count: int
) -> None:
    with replicas(tmp_path, database, workers.url, count) as servers:
        ended = asyncio.run(ask_all(servers, 1600))
        assert set(ended) <= {"200", "insufficient_quota"} and min(ended.values()) > 50, ended
        spent = usage_of(servers[0])
        assert {usage_of(server) for server in servers} == {spent}
        assert spent == stored_dollars(database) == workers.dollars
        assert LIMIT - ONE_CALL < spent <= LIMIT
        assert sum(map(shown_dollars, servers)) == pytest.approx(float(spent))
        assert database.rows("SELECT count(*) FROM bills") == [(0,)]


@pytest.mark.slow
def test_a_replica_that_is_killed_costs_no_cent_too_much_and_gives_its_money_back(
    tmp_path: Path, database: DatabasePlace, workers: Workers
) -> None:
    with replicas(tmp_path, database, workers.url, 3) as servers:
        ended = asyncio.run(ask_all(servers, 1600, 300))
        assert set(ended) <= {"200", "insufficient_quota", "connection"}, ended
        # Those under way at the kill, and those that meet its closed port meanwhile.
        assert ended["connection"] <= 2 * CLIENTS and ended["insufficient_quota"] > 50
        wait_until(lambda: database.rows("SELECT count(*) FROM bills") == [(0,)], 30)
        spent = usage_of(servers[1])
        # Of a call that was charged, its episode may not have been stored any more.
        assert stored_dollars(database) <= spent <= workers.dollars
        assert LIMIT - ONE_CALL < spent <= LIMIT
        assert workers.dollars - spent <= CLIENTS * ONE_CALL
        slices = database.rows("SELECT count(DISTINCT process) FROM slices")
        assert slices[0][0] <= 2


@pytest.mark.slow
def test_a_database_that_is_killed_loses_no_charge(tmp_path: Path, workers: Workers) -> None:
    with running() as server:
        database = DatabasePlace(server.new_place())
        with replicas(tmp_path, database, workers.url, 2) as servers:

            def restart() -> None:
                server.kill()
                server.start()

            ended = asyncio.run(ask_all(servers, 1200, at={250: restart}))
            assert set(ended) <= {"200", "insufficient_quota", "journal_failed"}, ended
            assert ended["200"] > 100 and ended["insufficient_quota"] > 50, ended
            wait_until(lambda: database.rows("SELECT count(*) FROM bills") == [(0,)], 60)
            spent = usage_of(servers[1])
            assert spent == stored_dollars(database) == workers.dollars
            assert LIMIT - ONE_CALL < spent <= LIMIT
            for replica in servers:
                replica.process.terminate()
                replica.process.wait(60)
        assert database.rows("SELECT reserved FROM accounts") == [(0,)]


def test_what_refers_to_an_answer_is_answered_by_another_replica(
    tmp_path: Path, database: DatabasePlace, workers: Workers
) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    with replicas(tmp_path, database, workers.url, 2) as servers:
        first, second = (
            httpx.Client(base_url=server.url, headers=headers, timeout=60) for server in servers
        )
        asked = {"model": "conductor", "input": "What is 6 * 7?"}
        answer = first.post("/v1/responses", json=asked)
        identifier = answer.headers["x-request-id"]
        assert second.get(f"/v1/episodes/{identifier}").json()["outcome"] == "answered"
        assert second.get(f"/v1/responses/{answer.json()['id']}").json() == answer.json()
        more = {**asked, "input": "And 7 * 8?", "previous_response_id": answer.json()["id"]}
        again = second.post("/v1/responses", json=more).json()
        items = first.get(f"/v1/responses/{again['id']}/input_items").json()["data"]
        assert "What is 6 * 7?" in str(items) and "And 7 * 8?" in str(items)
        first.close()
        second.close()


# ── processes of one server ───────────────────────────────────────────────────────────────────────
def test_several_processes_on_a_file_are_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(dump_toml({"port": 0, "processes": 2, "journal": str(tmp_path / "j.sqlite")}))
    command = [sys.executable, "-m", "openconductor", "serve", "--config", str(path)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "`openconductor store copy` moves a file there" in refused.stderr


def test_a_process_takes_no_module_from_the_folder_that_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('a file of the folder was run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["openconductor", "--version"])
    reading, alive = os.pipe()
    replica = _Replica(1, (), alive, is_first_start=True)
    assert replica.process.wait(60) == 0
    for descriptor in (reading, alive):
        os.close(descriptor)


def children_of(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def free_port() -> int:
    """Return a port that is free with the next two after it."""
    while True:
        with ExitStack() as stack, suppress(OSError):
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port: int = first.getsockname()[1]
            for number in (1, 2):
                stack.enter_context(socket.create_server(("127.0.0.1", port + number)))
            return port


async def keep_asking(url: str, stop: asyncio.Event) -> Counter[str]:
    """Ask until it is enough; return how the requests ended."""
    ended: Counter[str] = Counter()
    async with httpx.AsyncClient(timeout=60) as client:

        async def lane() -> None:
            while not stop.is_set():
                body = body_of("direct:w", "What is 6 * 7?")
                answer = await client.post(f"{url}/v1/chat/completions", json=body)
                ended[str(answer.status_code)] += 1
                await asyncio.sleep(0.02)

        await asyncio.gather(*(lane() for _ in range(8)))
    return ended


@pytest.mark.slow
def test_processes_of_a_server_are_reloaded_and_replaced_while_they_answer(
    tmp_path: Path, database: DatabasePlace, workers: Workers
) -> None:
    pool = tmp_path / "pool.toml"
    write_pool(pool, workers.url, "w", **WORKERS)
    path = tmp_path / "serve.toml"
    config = {"pool": str(pool), "conductor": "worker:w", "processes": 2, "log_level": "warning"}
    path.write_text(dump_toml({"port": free_port(), "journal": database.name, **config}))
    command = [sys.executable, "-m", "openconductor", "serve", "--config", str(path)]
    log = tmp_path / "log"
    with log.open("wb") as written, subprocess.Popen(command, stderr=written) as process:
        try:
            port = find_port(process, log)
            own = [f"http://127.0.0.1:{port + number}" for number in (1, 2)]
            wait_until(lambda: all(map(is_ready, own)))

            async def ask_meanwhile() -> Counter[str]:
                stop = asyncio.Event()
                asking = asyncio.create_task(keep_asking(f"http://127.0.0.1:{port}", stop))
                await asyncio.sleep(1)
                write_pool(pool, workers.url, "late", "w", **WORKERS)
                process.send_signal(signal.SIGHUP)
                await asyncio.to_thread(
                    wait_until, lambda: "the config is loaded anew" in log.read_text()
                )

                def offers_late() -> bool:
                    models = httpx.get(f"{own[1]}/v1/models").json()["data"]
                    return "direct:late" in [model["id"] for model in models]

                # The old process takes connections until it has read its signal.
                await asyncio.to_thread(wait_until, offers_late)
                stop.set()
                return await asking

            ended = asyncio.run(ask_meanwhile())
            assert set(ended) == {"200"} and ended["200"] > 100, ended
            wait_until(lambda: len(children_of(process.pid)) == 2)  # the old ones have drained
            first, second = children_of(process.pid)
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: "ended (-9); it is started again" in log.read_text())
            wait_until(lambda: all(map(is_ready, own)))
            assert first not in children_of(process.pid) and second in children_of(process.pid)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert database.rows("SELECT count(*) FROM processes") == [(1,)]  # the one that was killed


def test_pauses_grow_while_a_process_ends_soon_and_begin_anew_when_it_has_served() -> None:
    now = 0.0
    back_off = BackOff(lambda: now)
    pauses: list[float | None] = []
    for _ in range(7):
        pauses.append(back_off.end())
        assert back_off.end() is None and not back_off.is_due
        now += pauses[-1] or 0
        assert back_off.is_due
        back_off.start()
        assert not back_off.is_due
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    now += 61
    assert back_off.end() == 1


@pytest.mark.slow
def test_processes_whose_database_is_given_up_end_with_its_error_and_are_replaced(
    tmp_path: Path, workers: Workers
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from openconductor.store.postgres import postgres_writer\n"
        "postgres_writer._PATIENCE_S = 3.0\n"
    )
    pool = tmp_path / "pool.toml"
    write_pool(pool, workers.url, "w", **WORKERS)
    path = tmp_path / "serve.toml"
    log = tmp_path / "log"
    command = [sys.executable, "-m", "openconductor", "serve", "--config", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with running() as server:
        database = DatabasePlace(server.new_place())
        config = {"pool": str(pool), "conductor": "worker:w", "processes": 2, "port": free_port()}
        path.write_text(dump_toml({"journal": database.name, "log_level": "warning", **config}))
        with (
            log.open("wb") as written,
            subprocess.Popen(command, stderr=written, env=environment) as process,
        ):
            try:
                port = find_port(process, log)
                own = [f"http://127.0.0.1:{port + number}" for number in (1, 2)]
                wait_until(lambda: all(map(is_ready, own)))
                before = children_of(process.pid)
                server.kill()
                body = body_of("direct:w", "What is 6 * 7?")
                for url in own:  # who has nothing to store waits for the database
                    refused = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
                    assert refused.json()["error"]["code"] == "journal_failed"
                wait_until(lambda: log.read_text().count("This server ends") >= 2)
                wait_until(lambda: "it is started again in 2 s" in log.read_text())
                server.start()
                for url in own:
                    wait_until(lambda url=url: is_answered(f"{url}/v1/chat/completions", body))
                assert not set(before) & set(children_of(process.pid))
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()


def is_answered(url: str, body: dict[str, Any]) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.post(url, json=body, timeout=60).status_code == 200
    return False


@pytest.mark.slow
def test_the_processes_of_a_server_end_with_the_first_one(
    tmp_path: Path, database: DatabasePlace
) -> None:
    command = [sys.executable, "-m", "openconductor", "serve", "--processes", "2"]
    log = tmp_path / "log"
    with (
        log.open("wb") as written,
        subprocess.Popen(
            [*command, "--port", str(free_port()), "--journal", database.name], stderr=written
        ) as process,
    ):
        find_port(process, log)
        process.kill()
        process.wait(30)
    wait_until(lambda: database.rows("SELECT count(*) FROM processes") == [(0,)], 30)
