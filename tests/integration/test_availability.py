"""Never worse than the pool: whatever the planner or a worker does, each request is answered.

The short form of ``benchmarks/availability.py``: a server of ours over workers behind real sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest

from faults.script import Switchboard
from faults.server import FaultServer, counted, exact, fault_server
from integration.served import PLAN, PRICES, Served, served

CLIENTS = 4  # fewer than the failures that open a circuit: each asks the planner itself
HANGS_S = 0.3  # the deadline of who never answers
BOLD = '**model_id**: [0]\n**subtasks**: ["Answer."]\n**access_list**: [[]]'
JSON = '{"model_id": [0], "subtasks": ["Answer."], "access_list": [[]]}'
WORKERS = ("a", "b", "c")
MENDING = {"on_no_plan": "default_worker", "fallback": True}


@asynccontextmanager
async def serving(
    folder: Path, fates: dict[str, str] | None = None, conductor: dict[str, Any] = MENDING
) -> AsyncIterator[tuple[Served, FaultServer]]:
    """Serve over workers with these fates; only those that hang have a short deadline."""
    script = Switchboard(fates or {})
    deadlines = {name: HANGS_S for name, fate in script.fates.items() if fate == "hang"}
    async with (
        fault_server(script, {"planner": PLAN}) as faults,
        served(folder, faults, conductor=conductor, retries=1, deadlines=deadlines) as server,
    ):
        yield server, faults


async def ask_all(server: Served) -> list[httpx.Response]:
    """Ask by as many clients at once."""
    questions = [server.ask("chat", question=f"What is {n} * 7?") for n in range(CLIENTS)]
    return await asyncio.gather(*questions)


def of_orchestration(answers: list[httpx.Response], name: str) -> list[Any]:
    return [answer.json()["usage"]["orchestration"].get(name) for answer in answers]


async def check_bills(server: Served, faults: FaultServer, answers: list[httpx.Response]) -> None:
    """Compare what the answers say with the journal, and with what the workers counted."""
    await server.until_idle()
    spent = exact(server.journal.totals().spent.usage)
    assert (*spent[:4], Fraction(spent[4]), spent[5]) == counted(faults, PRICES)
    dollars = sum(map(Fraction, of_orchestration(answers, "dollars")))
    assert dollars == Fraction(spent[4])
    assert sum(of_orchestration(answers, "input_tokens")) == spent[0]


@pytest.mark.parametrize(
    ("fate", "text", "reason"),
    [
        ("reset_before", "", "reset"),
        ("hang", "", "no whole answer by the deadline"),
        ("503", "", "status 503"),
        ("ok", "I would ask anna, and then bert.", "missing_list"),
        ("ok", BOLD, "missing_list"),
        ("ok", JSON, "missing_list"),
        ("cut_at_limit", PLAN, "truncated"),
        ("429", "", "worker 'planner'"),
        ("429_quota", "", "status 429"),
        ("401", "", "status 401"),
    ],
)
async def test_a_request_is_answered_whatever_the_planner_does(
    tmp_path: Path, fate: str, text: str, reason: str
) -> None:
    async with serving(tmp_path, {"planner": fate}) as (server, faults):
        faults.texts["planner"] = text
        answers = await ask_all(server)
        assert {answer.status_code for answer in answers} == {200}, answers[0].text
        assert set(of_orchestration(answers, "rule")) == {"default_worker"}
        assert all(reason in no_plan for no_plan in of_orchestration(answers, "no_plan"))
        assert {record.request.model for record in faults.records} == {"planner", "a"}
        page = (await server.client.get(f"{server.url}/metrics")).text
        assert 'openconductor_unplanned_total{reason="' in page
        await check_bills(server, faults, answers)


@pytest.mark.parametrize("fate", ["reset_before", "hang", "401", "429_quota", "no_body"])
@pytest.mark.parametrize("alive", WORKERS)
async def test_a_request_is_answered_while_one_worker_lives(
    tmp_path: Path, fate: str, alive: str
) -> None:
    fates = dict.fromkeys({*WORKERS, "planner"} - {alive}, fate)
    async with serving(tmp_path, fates) as (server, faults):
        answers = await ask_all(server)
        assert {answer.status_code for answer in answers} == {200}, answers[0].text
        await check_bills(server, faults, answers)


async def test_with_a_healthy_planner_answers_are_those_without_a_default_worker(
    tmp_path: Path,
) -> None:
    answered: list[list[str]] = []
    for on_no_plan in ("error", "default_worker"):
        folder = tmp_path / on_no_plan
        folder.mkdir()
        async with serving(folder, conductor={"on_no_plan": on_no_plan}) as (server, faults):
            answers = await ask_all(server)
            assert of_orchestration(answers, "rule") == [None] * CLIENTS
            assert len(faults.records) == 4 * CLIENTS  # the plan and its three steps
            texts = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
            answered.append(texts)
    assert answered[0] == answered[1]


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_a_stream_says_that_there_was_no_plan(tmp_path: Path, api: str) -> None:
    async with serving(tmp_path) as (server, faults):
        faults.texts["planner"] = BOLD
        answer = await server.ask(api, stream=True)
        assert answer.status_code == 200
        assert "Without a plan: a answers alone." in answer.text
        assert "default_worker" in answer.text and "missing_list" in answer.text


async def test_a_short_question_goes_to_the_default_worker_and_the_answer_says_so(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, conductor={"direct_below_tokens": 20}) as (server, faults):
        answer = await server.ask("chat", question="Hello!")
        assert of_orchestration([answer], "rule") == ["direct"]
        assert [record.request.model for record in faults.records] == ["a"]
