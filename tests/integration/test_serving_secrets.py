"""Canary keys, of clients and of workers, turn up in nothing that the server writes or says to
anybody.

The workers here repeat the keys that they were sent, in statuses, headers and bodies of every kind
(``test_secrets``); a client tells its own key where it should not: as a model, as an id, in another
header.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from journaled import everything_in

from faults import plays
from faults.plays import Fault
from faults.script import Played
from faults.server import fault_server
from integration import test_secrets as worker_side
from integration.served import PATHS, PLAN, request_body, served
from integration.test_secrets import ECHOES, VARIABLES
from openconductor.calls import policies
from openconductor.serving.key_ring import new_key
from openconductor.serving.serve_config import KeyTable

ANN, BEN = new_key(), new_key()
WRONG = "sk-canary-a-key-of-somewhere-else-9f31"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for name, play in ECHOES.items():
        monkeypatch.setitem(plays.FAULTS, name, Fault(play, "", ""))  # type: ignore[arg-type]
    monkeypatch.setattr(policies, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(policies, "UNREACHABLE_S", 0.2)
    # An open circuit would keep a fault from its turn on a slow machine.
    monkeypatch.setattr(policies, "FAILURES", 10_000)
    monkeypatch.setitem(worker_side.CANARIES, "ann's", ANN[0])
    monkeypatch.setitem(worker_side.CANARIES, "ben's", BEN[0])
    monkeypatch.setitem(worker_side.CANARIES, "a wrong one", WRONG)
    caplog.set_level(logging.DEBUG)


async def test_no_key_is_in_an_answer_an_error_a_metric_a_log_an_episode_or_the_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    leaks = worker_side.Leaks()
    keys = [KeyTable("ann", ANN[1]), KeyTable("ben", BEN[1])]
    names = list(ECHOES)
    fates: dict[str, Any] = {"planner": ["ok"], "a": ["ok"], "b": ["ok"], "c": names}

    class InTurn(Played):
        """The next fault for each request to the last worker."""

        def fate(self, request: Any) -> str:
            return next(turn) if request.model == "c" else "ok"

    turn = (name for _ in range(100) for name in names)
    async with (
        fault_server(InTurn(fates), {"planner": PLAN}) as faults,
        served(tmp_path, faults, key=keys, variable="CANARY_API_KEY", timeout_s=3.0) as server,
    ):
        for number in range(2 * len(names)):
            api, key = list(PATHS)[number % 3], (ANN, BEN)[number % 2]
            answer = await server.ask(
                api, key=key[0], stream=number >= len(names), question=f"Question {number}?"
            )
            leaks.look(f"answer {number}", answer.text)
            leaks.look(f"headers {number}", repr(answer.headers.raw))
            if identifier := answer.headers.get("x-request-id"):
                path = f"{server.url}/v1/episodes/{identifier}"
                for reader in (ANN, BEN):
                    told = await server.client.get(path, headers={"x-api-key": reader[0]})
                    assert told.status_code == (200 if reader is key else 404)
                    leaks.look(f"episode {number}", told.text)
        assert {record.fate for record in faults.records} >= set(names)
        assert all(
            record.request.key == f"Bearer {VARIABLES['CANARY_API_KEY']}"
            for record in faults.records
        )

        def odd(**headers: str) -> Any:
            return server.client.post(
                f"{server.url}{PATHS['chat']}", json=request_body("chat"), headers=headers
            )

        said = [
            await odd(),
            await odd(authorization=f"Bearer {WRONG}"),
            await odd(authorization=f"Basic {WRONG}"),
            await odd(**{"x-api-key": ANN[0][:-1]}),
            await odd(authorization=f"Bearer {ANN[0]} x"),
        ]
        assert {one.status_code for one in said} == {401}
        said += [await server.ask("chat", key=ANN[0], model="nobody", user="x")]
        pages = (
            "/metrics",
            "/health/ready",
            "/openapi.json",
            "/v1/models",
            f"/v1/episodes/{'0' * 32}",
            "/nothing",
        )
        said += [await server.client.get(f"{server.url}{page}") for page in pages]
        for one in said:
            leaks.look(str(one.url), one.text + repr(one.headers.raw))
        await asyncio.sleep(0)
    leaks.look("journal", everything_in(tmp_path))
    leaks.look(
        "log",
        "\n".join(
            f"{record.getMessage()} {record.exc_text}"
            for record in caplog.records
            if record.name.split(".")[0] in ("openconductor", "uvicorn", "starlette")
        ),
    )
    out, err = capfd.readouterr()
    leaks.look("stdout", out)
    leaks.look("stderr", err)
    leaks.none()
