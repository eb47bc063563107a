"""Traces of a server, as a collector gets them, and answers while the collector is away.

The collector, the workers and the clients are on loopback; the spans go through the SDK's own
exporter.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from test_serving_process import serve

from faults.script import Played
from faults.server import exact, fault_server
from integration.collector import attributes_of, collector
from integration.served import PLAN, request_body, served
from openconductor import traces
from openconductor.cli import main
from openconductor.gym.questions import EXAMPLE
from openconductor.store import read_store
from openconductor.traces import TracesTable, names, open_traces

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACE = "0af7651916cd43dd8448eb211c80319c"
ABOVE = f"00-{TRACE}-b7ad6b7169203331-01"
ACCESS = [[], [0], [0, 1]]  # of PLAN
NOBODY = "http://127.0.0.1:9"


async def test_a_collector_gets_the_bill_the_access_lists_and_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Played({"a": ["503", "ok"]})
    with collector() as collected:
        monkeypatch.setenv(ENDPOINT, collected.url)
        async with (
            fault_server(script, {"planner": PLAN}) as workers,
            served(tmp_path, workers, retries=1) as server,
        ):
            with open_traces(TracesTable()) as sink:
                server.gateway.traces = sink
                response = await server.client.post(
                    f"{server.url}/v1/chat/completions",
                    json=request_body("chat"),
                    headers={"traceparent": ABOVE},
                )
            await server.until_idle()
            episode = server.journal.episode(response.headers["x-request-id"])
        spans = collected.spans
    assert episode is not None
    assert response.status_code == 200
    kept = {span.span_id: attributes_of(span) for span in spans}

    # The bill.
    def total(name: str) -> Any:
        return sum(attributes.get(name, 0) for attributes in kept.values())

    usage = episode.usage
    told = response.json()["usage"]
    assert total(names.INPUT_TOKENS) == usage.input_tokens == told["prompt_tokens"]
    assert total(names.OUTPUT_TOKENS) == usage.output_tokens == told["completion_tokens"]
    assert total(names.CACHED_TOKENS) == usage.cached_tokens
    assert total(names.REASONING_TOKENS) == usage.reasoning_tokens
    assert abs(Decimal(total(names.COST)) - usage.dollars) < Decimal("1e-12")
    assert exact(usage)[:2] == (workers.usage().input, workers.usage().cached)

    # The tree: all in the client's trace, and each step's links are its access list.
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    (root,) = [span for span in spans if span.name == "invoke_workflow conductor"]
    assert root.parent_span_id.hex() == ABOVE[36:52]
    assert kept[root.span_id][names.EPISODE] == episode.id
    for span in spans:
        assert span.parent_span_id in kept or span is root
    steps = [span for span in spans if names.STEP in kept[span.span_id]]
    steps.sort(key=lambda span: kept[span.span_id][names.STEP])
    links = [[kept[link.span_id][names.STEP] for link in span.links] for span in steps]
    assert links == [kept[span.span_id].get(names.ACCESS, []) for span in steps]
    assert links == ACCESS

    # Each request to a worker, also the one that failed, names the span of its own attempt.
    sent = {record.request.traceparent for record in workers.records}
    attempts = [span for span in spans if span.name.startswith("chat ")]
    assert sent == {f"00-{TRACE}-{span.span_id.hex()}-01" for span in attempts}
    failures = [kept[span.span_id].get(names.ERROR_TYPE) for span in attempts]
    assert len(attempts) == 5
    assert failures.count(None) == 4

    # No text.
    written = b"".join(span.SerializeToString() for span in spans)
    for text in ("6 * 7", "Think.", "model_id", episode.answer or ""):
        assert text.encode() not in written


async def test_answers_are_the_same_without_a_collector_and_with_one_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "CLOSE_S", 0.2)
    with collector(hangs=True) as hanging:
        for url in (NOBODY, hanging.url):
            monkeypatch.setenv(ENDPOINT, url)
            monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")  # it overflows
            monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
            async with (
                fault_server(Played({}), {"planner": PLAN}) as workers,
                served(tmp_path, workers) as server,
            ):
                with open_traces(TracesTable()) as sink:
                    server.gateway.traces = sink
                    answers = [await server.ask("chat") for _ in range(20)]
                    began = time.monotonic()
                assert time.monotonic() - began < traces.CLOSE_S + 10
                assert {answer.status_code for answer in answers} == {200}
                await server.until_idle()
        assert hanging.asked.is_set()
        assert hanging.spans == []


async def test_a_collector_that_is_killed_between_answers_delays_and_changes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "CLOSE_S", 0.2)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    async with (
        fault_server(Played({}), {"planner": PLAN}) as workers,
        served(tmp_path, workers) as server,
    ):
        with ExitStack() as stack:
            collected = stack.enter_context(collector())
            monkeypatch.setenv(ENDPOINT, collected.url)
            server.gateway.traces = stack.enter_context(open_traces(TracesTable()))
            assert (await server.ask("chat")).status_code == 200
            assert await asyncio.to_thread(collected.asked.wait, 30)
            collected.kill()
            assert {(await server.ask("chat")).status_code for _ in range(20)} == {200}
        await server.until_idle()


def test_an_evaluation_sends_its_whole_bill_by_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "eval conductor worker:jack --limit 4 --out run --traces"
    with collector() as collected:
        monkeypatch.setenv(ENDPOINT, collected.url)
        assert main(words.split()) == 0
    kept = [attributes_of(span) for span in collected.spans]
    with read_store(tmp_path / "run" / "journal.sqlite") as journal:
        bill = journal.totals().spent.usage
    total = Counter[str]()
    for attributes in kept:
        for name in (names.INPUT_TOKENS, names.OUTPUT_TOKENS):
            total[name] += attributes.get(name, 0)
    assert total[names.INPUT_TOKENS] == bill.input_tokens > 0
    assert total[names.OUTPUT_TOKENS] == bill.output_tokens > 0
    episodes = Counter(span.name for span in collected.spans if not span.parent_span_id)
    assert episodes == {"invoke_workflow conductor": 4, "invoke_workflow worker:jack": 4}


def test_the_runs_of_a_study_have_no_traces(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "recipes/gym.toml", "--study", "study", "--traces"]) == 2
    assert "--traces cannot be combined with --study" in capsys.readouterr().err


async def test_a_server_that_does_not_trace_passes_no_trace_on(tmp_path: Path) -> None:
    async with (
        fault_server(Played({}), {"planner": PLAN}) as workers,
        served(tmp_path, workers) as server,
    ):
        await server.client.post(
            f"{server.url}/v1/chat/completions",
            json=request_body("chat"),
            headers={"traceparent": ABOVE},
        )
    assert {record.request.traceparent for record in workers.records} == {""}


@pytest.mark.slow
def test_a_served_gym_sends_its_traces_and_ends_in_time_though_the_collector_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as collected:
        monkeypatch.setenv(ENDPOINT, collected.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        with serve(tmp_path, "--traces", traces={"content": True}) as server:
            url = f"{server.url}/v1/chat/completions"
            answered = httpx.post(url, json=request_body("chat", EXAMPLE), timeout=30)
            assert answered.status_code == 200
            while not any(span.name == "invoke_workflow conductor" for span in collected.spans):
                time.sleep(0.05)
            collected.hangs = True
            answered = httpx.post(url, json=request_body("chat", EXAMPLE), timeout=30)
            assert answered.status_code == 200
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0
    written = b"".join(span.SerializeToString() for span in collected.spans)
    assert EXAMPLE.encode() in written  # the config asks for texts


def test_a_question_on_the_command_line_is_answered_before_its_traces_are_sent(
    tmp_path: Path,
) -> None:
    with collector(hangs=True) as hanging:
        command = [sys.executable, "-m", "openconductor", "ask", EXAMPLE, "--traces"]
        environment = {**os.environ, ENDPOINT: hanging.url}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip()
            assert process.poll() is None  # it waits for the collector
            assert process.wait(60) == 0
        assert hanging.asked.is_set()


def test_without_the_extra_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "openconductor.traces.tracer", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    for command, code in ((["ask", EXAMPLE], 2), (["serve", "--dry-run"], 1)):
        assert main([*command, "--traces"]) == code
        captured = capsys.readouterr()
        said = (captured.err + captured.out).replace("\n", "")
        assert "openconductor[otel]" in said


def test_nothing_of_opentelemetry_is_loaded_unless_traces_are_on(tmp_path: Path) -> None:
    program = (
        "import json, sys\nfrom openconductor.cli import main\n"
        f"assert main(['ask', {EXAMPLE!r}]) == 0\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('opentelemetry')]))"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(ended.stdout.splitlines()[-1]) == []
