"""Canary keys, of clients and of workers, turn up in nothing that the server writes or says to
anybody.

The workers here repeat the keys that they were sent, in statuses, headers and bodies of every kind
(``test_secrets``); a client tells its own key where it should not: as a model, as an id, in another
header.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from journaled import everything_in

from faults import plays
from faults.plays import Fault
from faults.script import Request
from faults.server import FaultServer, fault_server
from integration import test_secrets as worker_side
from integration.served import PATHS, PLAN, Served, request_body, served
from integration.test_secrets import ECHOES, VARIABLES
from openconductor.calls import limits, policies
from openconductor.serving.key_ring import new_key
from openconductor.serving.serve_config import KeyTable

ANN, BEN = new_key(), new_key()
WRONG = "sk-canary-a-key-of-somewhere-else-9f31"
PAGES = ("/metrics", "/health/ready", "/openapi.json", "/v1/models", "/v1/episodes/0", "/nothing")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for name, play in ECHOES.items():
        monkeypatch.setitem(plays.FAULTS, name, Fault(play, "", ""))  # type: ignore[arg-type]
    monkeypatch.setattr(policies, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(policies, "UNREACHABLE_S", 0.2)
    monkeypatch.setattr(policies, "PATIENCE_S", 0.1)
    # A worker that has rejected a call is asked again soon, not once every three seconds.
    monkeypatch.setattr(limits, "SLOWEST", 1000.0)
    monkeypatch.setattr(limits, "LONGEST_BACKOFF_S", 0.01)
    # An open circuit would keep a fault from its turn on a slow machine.
    monkeypatch.setattr(policies, "FAILURES", 10_000)
    monkeypatch.setitem(worker_side.CANARIES, "ann's", ANN[0])
    monkeypatch.setitem(worker_side.CANARIES, "ben's", BEN[0])
    monkeypatch.setitem(worker_side.CANARIES, "a wrong one", WRONG)
    caplog.set_level(logging.DEBUG)


class InTurn:
    """The next echo for each request to the last worker."""

    def __init__(self) -> None:
        self._names = itertools.cycle(ECHOES)

    def fate(self, request: Request) -> str:
        return next(self._names) if request.model == "c" else "ok"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[Served, FaultServer]]:
    """A server with two keys, and its workers."""
    keys = [KeyTable("ann", ANN[1]), KeyTable("ben", BEN[1])]
    async with (
        fault_server(InTurn(), {"planner": PLAN}) as faults,
        served(tmp_path, faults, key=keys, variable="CANARY_API_KEY") as server,
    ):
        yield server, faults


async def test_no_key_of_a_worker_is_in_an_answer_an_episode_a_log_or_the_journal(
    server: tuple[Served, FaultServer],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    leaks = worker_side.Leaks()
    ours, faults = server
    for number in range(2 * len(ECHOES)):
        api, key = list(PATHS)[number % 3], (ANN, BEN)[number % 2]
        stream, question = number >= len(ECHOES), f"Question {number}?"
        answer = await ours.ask(api, key=key[0], stream=stream, question=question)
        leaks.look(f"answer {number}", answer.text + repr(answer.headers.raw))
        path = f"{ours.url}/v1/episodes/{answer.headers['x-request-id']}"
        for reader in (ANN, BEN):
            told = await ours.client.get(path, headers={"x-api-key": reader[0]})
            assert told.status_code == (200 if reader is key else 404)
            leaks.look(f"episode {number}", told.text)
    assert {record.fate for record in faults.records} >= set(ECHOES)
    sent = {record.request.key for record in faults.records}
    assert sent == {f"Bearer {VARIABLES['CANARY_API_KEY']}"}
    await look_behind(leaks, ours, tmp_path, caplog, capfd)


async def test_no_key_of_a_client_is_in_an_error_a_page_a_log_or_the_journal(
    server: tuple[Served, FaultServer],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    leaks = worker_side.Leaks()
    ours, _ = server
    for headers in (
        {},
        {"authorization": f"Bearer {WRONG}"},
        {"authorization": f"Basic {WRONG}"},
        {"x-api-key": ANN[0][:-1]},
        {"authorization": f"Bearer {ANN[0]} x"},
    ):
        url = f"{ours.url}{PATHS['chat']}"
        refused = await ours.client.post(url, json=request_body("chat"), headers=headers)
        assert refused.status_code == 401
        leaks.look("a refusal", refused.text + repr(refused.headers.raw))
    unknown = await ours.ask("chat", key=ANN[0], model="nobody", user="x")
    leaks.look("an unknown model", unknown.text)
    for page in PAGES:
        told = await ours.client.get(f"{ours.url}{page}")
        leaks.look(page, told.text + repr(told.headers.raw))
    await look_behind(leaks, ours, tmp_path, caplog, capfd)


async def look_behind(
    leaks: worker_side.Leaks,
    server: Served,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Look through what the server wrote; no key may be there, nor have been found before."""
    await server.until_idle()
    leaks.look("journal", everything_in(folder))
    for record in caplog.records:
        if record.name.split(".")[0] in ("openconductor", "uvicorn", "starlette"):
            leaks.look("log", f"{record.getMessage()} {record.exc_text}")
    leaks.look("stdout and stderr", "".join(capfd.readouterr()))
    leaks.none()
