"""Keys that come and go while servers run, by command and over HTTP, on a file and a database."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.places import DatabasePlace, FilePlace
from tests.postgres_server import PostgresServer

from integration.counting_server import CountingServer, Turns
from integration.test_replicas import KEY, Replica, body_of, replicas
from integration.test_serving_process import wait_until

SECONDS = 4.0
"""In which a change is known everywhere: two, on a machine that is busy."""


class SlowWorkers(CountingServer):
    """Workers that answer when they may."""

    PAUSE_S = (0.0, 0.0)

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.may_answer.set()
        super().__init__(1)

    def text(self, model: str, turns: Turns, asked: str) -> str:
        assert self.may_answer.wait(60)
        return f"answer to {asked}"


@pytest.fixture
def slow_workers() -> Iterator[SlowWorkers]:
    counting = SlowWorkers()
    yield counting
    counting.may_answer.set()
    counting.close()


@pytest.fixture(params=["file", "database"])
def servers(
    request: pytest.FixtureRequest, slow_workers: SlowWorkers, tmp_path: Path
) -> Iterator[list[Replica]]:
    """One server on a file, or two on a database; ann has an admin key in their config."""
    postgres: PostgresServer | None = None
    if request.param == "database":
        postgres = request.getfixturevalue("postgres")
    with serving(postgres, slow_workers, tmp_path) as started:
        yield started


@contextmanager
def serving(
    postgres: PostgresServer | None, workers: SlowWorkers, folder: Path
) -> Iterator[list[Replica]]:
    place: Any = FilePlace(folder / "serve.sqlite")
    if postgres is not None:
        place = DatabasePlace(postgres.new_place())
    count = 1 if postgres is None else 2
    with replicas(folder, place, workers.url, count, admin=True) as started:
        yield started


def command(servers: Sequence[Replica], *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "openconductor", "keys", *arguments]
    line += ["--journal", servers[0].journal]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def ask(server: Replica, key: str, path: str = "/v1/models", **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    method = more.pop("method", "GET")
    return httpx.request(method, f"{server.url}{path}", headers=headers, timeout=60, **more)


def wait_for_status(servers: Sequence[Replica], key: str, status: int) -> float:
    """Wait until all servers answer a key so; return the seconds that it took."""
    began = time.monotonic()
    for server in servers:
        wait_until(lambda server=server: ask(server, key).status_code == status, SECONDS)
    return time.monotonic() - began


def test_a_key_that_a_command_makes_and_revokes_is_known_to_all_servers_within_seconds(
    servers: list[Replica], slow_workers: SlowWorkers
) -> None:
    made = command(servers, "add", "bob", "dollars=1", "rpm=60", 'models=["direct:w"]', "--json")
    assert made.returncode == 0, made.stderr
    key = json.loads(made.stdout)["key"]
    took = [wait_for_status(servers, key, 200)]
    for server in servers:
        models = [model["id"] for model in ask(server, key).json()["data"]]
        assert models == ["direct:w"]
        assert ask(server, key, "/v1/usage").json()["limit"] == "1"
    slow_workers.may_answer.clear()
    answers: list[httpx.Response] = []
    body = body_of("direct:w", "What is 6 * 7?")

    def ask_slowly() -> None:
        answer = ask(servers[-1], key, "/v1/chat/completions", method="POST", json=body)
        answers.append(answer)

    asking = threading.Thread(target=ask_slowly)
    asking.start()
    wait_until(lambda: slow_workers.asked)
    assert command(servers, "revoke", "bob").returncode == 0
    took.append(wait_for_status(servers, key, 401))
    slow_workers.may_answer.set()
    asking.join(60)
    assert answers[0].status_code == 200  # it was under way
    print(f"let in after {took[0]:.1f} s, refused after {took[1]:.1f} s")
    listed = json.loads(command(servers, "list", "--json").stdout)
    assert [listing["name"] for listing in listed["keys"]] == ["bob"]
    assert listed["keys"][0]["revoked"] > listed["keys"][0]["made"]
    assert listed["in_config"] == ["ann"]


def test_an_admin_key_makes_and_revokes_keys_over_http_and_no_other_key_may(
    servers: list[Replica],
) -> None:
    first, last = servers[0], servers[-1]
    limits = {"name": "bob", "dollars": "2.50", "period": "day", "workers": ["w"]}
    made = ask(first, KEY, "/v1/keys", method="POST", json=limits)
    assert made.status_code == 201, made.text
    assert made.json()["dollars"] == "2.50" and made.json()["workers"] == ["w"]
    key = made.json()["key"]
    assert ask(first, key).status_code == 200
    wait_for_status([last], key, 200)
    listed = ask(last, KEY, "/v1/keys")
    assert [entry["name"] for entry in listed.json()["data"]] == ["bob"]
    assert key not in listed.text and "sha256" not in listed.text
    refused = [
        ("GET", key, {}, 403, "admin_key_required"),
        ("POST", key, {"json": {"name": "eve"}}, 403, "admin_key_required"),
        ("GET", "oc-nobody", {}, 401, "invalid_api_key"),
        ("POST", KEY, {"json": {"name": "bob"}}, 409, "key_exists"),
        ("POST", KEY, {"json": {"name": "ann"}}, 409, "key_exists"),
        ("POST", KEY, {"json": {"name": "eve", "models": ["condutor"]}}, 400, "invalid_value"),
        ("POST", KEY, {"json": {"name": "eve", "admin": True}}, 400, "invalid_value"),
        ("POST", KEY, {"json": {"name": "eve", "hash": "sha256:0"}}, 400, "invalid_value"),
        ("POST", KEY, {"json": {}}, 400, "invalid_value"),
    ]
    for method, given, body, status, code in refused:
        answer = ask(first, given, "/v1/keys", method=method, **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    for name in ("eve", "ann"):
        answer = ask(first, KEY, f"/v1/keys/{name}", method="DELETE")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "key_not_found")
    assert ask(first, KEY, "/v1/keys/bob", method="DELETE").json()["revoked"] > 0
    assert ask(first, key).status_code == 401
    wait_for_status([last], key, 401)


def test_a_key_of_the_config_cannot_be_made_again_or_revoked_by_a_command(
    servers: list[Replica],
) -> None:
    refused = command(servers, "add", "ann")
    assert refused.returncode == 2 and "is in the server's config" in refused.stderr
    refused = command(servers, "revoke", "ann")
    assert refused.returncode == 2 and "remove it there" in refused.stderr
    assert ask(servers[0], KEY).status_code == 200
