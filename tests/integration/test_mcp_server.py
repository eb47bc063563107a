"""``openconductor mcp`` with the official client over stdio: one tool, its progress, its bill, how
it fails.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra 'mcp': pip install 'openconductor[mcp]'")

from chat_server import Answer, ChatServer, chat_server, completion, hangs, says, write_pool
from mcp import Client, MCPError, StdioServerParameters, stdio_client

from openconductor.cli import main
from openconductor.prompt import render_workflow
from openconductor.store import read_store
from openconductor.types import Step, Workflow

PLAN = render_workflow(Workflow((Step(1, "Think.", []), Step(2, "Answer.", "all"))))
PRICE = (
    'price = {input = 1000, output = 0}\napi_key_env = "NO_KEY"'  # a call reads 12 tokens: $0.012
)


def planned(*answers: Answer) -> list[Answer]:
    return [says(completion(PLAN)), *answers]


@asynccontextmanager
async def offered(
    folder: Path, *answers: Answer, options: str = "", **environment: str
) -> AsyncIterator[tuple[Client, ChatServer]]:
    """A client of the command over a pool of a planner and two workers; what it wrote to stderr is
    printed.
    """
    async with chat_server(*answers) as server:
        pool = write_pool(folder, server.url, "planner", "thinker", "writer", more=PRICE)
        command = f"-m openconductor mcp --pool {pool} --conductor worker:planner {options}"
        started = StdioServerParameters(
            command=sys.executable,
            args=command.split(),
            env={"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "NO_KEY": "none", **environment},
        )
        with (folder / "stderr").open("w+") as errors:
            async with asyncio.timeout(30), Client(stdio_client(started, errlog=errors)) as client:
                yield client, server
            errors.seek(0)
            print(errors.read())


async def ask(client: Client, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """Return the text and the structured content of an answer, which is an error as they say."""
    got = await client.call_tool("ask", {"question": "2 + 2?", **arguments})
    (block,) = got.content
    assert got.is_error == ("error" in got.structured_content)
    return block.text, got.structured_content


async def test_the_tool_answers_with_its_bill_and_tells_of_each_step(tmp_path: Path) -> None:
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    question = {"question": "2 + 2?"}
    answers = planned(says(completion("2 + 2")), says(completion("4")))
    async with offered(tmp_path, *answers) as (client, server):
        (tool,) = (await client.list_tools()).tools
        assert tool.name == "ask" and "planner, thinker, writer" in tool.description
        assert tool.input_schema["required"] == ["question"]
        got = await client.call_tool("ask", question, progress_callback=hear)
        with pytest.raises(MCPError, match="no tool 'answer'"):
            await client.call_tool("answer", question)
    assert (got.is_error, got.content[0].text) == (False, "4")
    assert got.structured_content["answer"] == "4"
    bill = got.structured_content["orchestration"]
    assert (bill["dollars"], bill["input_tokens"]) == ("0.036", 36)
    assert [call["worker"] for call in bill["calls"]] == ["conductor", "thinker", "writer"]
    assert heard == [
        (1, "planned: thinker, writer (17 tokens, $0.012)"),
        (2, "step 1 started: thinker"),
        (3, "step 1 ended: thinker (17 tokens, $0.012)"),
        (4, "step 2 started: writer"),
        (5, "step 2 ended: writer (17 tokens, $0.012)"),
    ]
    assert [body["model"] for body in server.bodies] == ["planner", "thinker", "writer"]


async def test_an_answer_is_traced_as_a_part_of_the_client_s_trace(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from integration.collector import attributes_of, collector

    above = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answers = planned(says(completion("2 + 2")), says(completion("4")))
    with collector() as collected:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collected.url}
        async with offered(tmp_path, *answers, options="--traces", **endpoint) as (client, _):
            question = {"question": "2 + 2?"}
            got = await client.call_tool("ask", question, meta={"traceparent": above})
    bill = got.structured_content["orchestration"]
    tokens = [attributes_of(span).get("gen_ai.usage.input_tokens", 0) for span in collected.spans]
    assert sum(tokens) == bill["input_tokens"] == 36
    assert {span.trace_id.hex() for span in collected.spans} == {above[3:35]}
    (root,) = [span for span in collected.spans if span.name == "invoke_workflow ask"]
    assert root.parent_span_id.hex() == above[36:52]


async def test_failures_are_errors_of_the_tool_with_their_code_and_what_was_spent(
    tmp_path: Path,
) -> None:
    answers = [
        *planned(says({"error": "no"}, status=400)),
        says(completion("I cannot plan.")),
        *planned(says(completion("2 + 2"))),
    ]
    limits = "--no-fallback --on-no-plan error --budget-calls 2"
    async with offered(tmp_path, *answers, options=limits) as (client, server):
        text, content = await ask(client, max_dollars=0.013)
        assert text.startswith("budget_exceeded: ")
        assert content["error"]["code"] == "budget_exceeded"
        assert not server.bodies  # the plan alone might have cost more
        text, content = await ask(client)
        assert text.startswith("worker_failed: ")
        assert content["orchestration"]["dollars"] == "0.012"
        text, _ = await ask(client)
        assert text.startswith("no_workflow: ")
        text, content = await ask(client)
        assert text.startswith("budget_exceeded: ")
        assert content["orchestration"]["dollars"] == "0.024"
    assert not server.answers


async def test_without_a_plan_the_tool_answers_by_one_worker_and_says_so(tmp_path: Path) -> None:
    nonsense = says(completion("I cannot plan."))
    async with offered(tmp_path, nonsense, nonsense, says(completion("4"))) as (client, server):
        text, content = await ask(client, workers=["writer"])
    assert (text, content["orchestration"]["rule"]) == ("4", "default_worker")
    assert content["orchestration"]["no_plan"].startswith("missing_list: ")
    assert [body["model"] for body in server.bodies] == ["planner", "planner", "writer"]


async def test_all_answers_together_have_a_budget_and_a_journal(tmp_path: Path) -> None:
    journal = tmp_path / "mcp.sqlite"
    answers = [*planned(says(completion("2 + 2")), says(completion("4")))]
    limits = f"--total-dollars 9 --total-calls 3 --journal {journal}"
    async with offered(tmp_path, *answers, options=limits) as (client, server):
        text, _ = await ask(client)
        assert text == "4"
        text, _ = await ask(client)
        assert text.startswith("budget_exceeded: ") and "the run's budget" in text
    assert not server.answers
    with read_store(journal) as reader:
        assert reader.totals().spent.calls == 3


async def test_a_call_chooses_its_workers_and_a_wrong_argument_is_an_error_of_the_tool(
    tmp_path: Path,
) -> None:
    alone = render_workflow(Workflow((Step(2, "Answer.", []),)))
    answers = [says(completion(alone)), says(completion("4"))]
    async with offered(tmp_path, *answers) as (client, server):
        text, _ = await ask(client, workers=["writer"], max_steps=1)
        assert text == "4"
        assert "Model 1" not in str(server.bodies[0])
        for wrong, words in (
            ({"workers": ["thinkr"]}, "the nearest is 'thinker'"),
            ({"max_seconds": 0}, "max_seconds: Input should be greater than 0, got 0"),
            ({"max_dolars": 1}, "max_dolars: unknown key; the nearest known key is 'max_dollars'"),
            ({"cheap": True}, "cheap: unknown key; the nearest known key is '"),
        ):
            text, content = await ask(client, **wrong)
            code, _, message = text.partition(": ")
            assert (code, words in message) == ("invalid_value", True)
            assert content == {"error": {"code": code, "message": message}}


async def test_a_call_that_is_cancelled_and_a_client_that_goes_end_all_work(tmp_path: Path) -> None:
    async def begun() -> asyncio.Task[Any]:
        asking = asyncio.create_task(client.call_tool("ask", {"question": "2 + 2?"}))
        for _ in range(2):  # the plan, the first step
            server.asked.clear()
            await server.asked.wait()
        return asking

    async def hung_up() -> None:
        async with asyncio.timeout(1):
            await server.hung_up.wait()
        server.hung_up.clear()

    async with offered(tmp_path, *planned(hangs()), *planned(hangs()), says(completion("4"))) as (
        client,
        server,
    ):
        (await begun()).cancel()
        await hung_up()
        asking = await begun()
    await hung_up()
    await asyncio.gather(asking, return_exceptions=True)
    assert len(server.answers) == 1


def test_a_pool_that_cannot_be_read_ends_the_command_with_nothing_on_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pool = str(tmp_path / "none.toml")
    assert main(["mcp", "--pool", pool, "--conductor", "worker:planner"]) == 2
    said, complained = capfd.readouterr()
    assert said == "" and "none.toml" in complained
