"""The fault server itself: what it plays is what it says, and what it counts is what happened."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from faults.plays import FAULTS, usage_of
from faults.script import Played, Seeded, read_request
from faults.server import FaultServer, Tokens, dead_url, fault_process, fault_server

SCRIPT = Seeded(7, {"flaky": 0.3}, dict.fromkeys(FAULTS, 1.0))


def body(number: int, model: str = "flaky", *, stream: bool = False) -> bytes:
    return json.dumps(
        {"model": model, "messages": [{"role": "user", "content": f"{number}"}], "stream": stream}
    ).encode()


async def exchange(server: FaultServer, sent: bytes) -> bytes:
    """Everything that comes back for one request in a moment."""
    host, port = server.url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer k\r\nContent-Length: %d\r\n\r\n" % len(sent)
    writer.write(head + sent)
    received = b""
    try:
        async with asyncio.timeout(0.2):
            while more := await reader.read(2**16):
                received += more
    except TimeoutError:
        pass  # it keeps the connection, or says nothing
    finally:
        writer.close()
    return received


def test_a_fate_depends_on_nothing_but_seed_worker_content_and_repeat() -> None:
    requests = [read_request(body(number)) for number in range(300)]
    fates = {request.digest: SCRIPT.fate(request) for request in requests}
    random.Random(0).shuffle(requests)
    assert {request.digest: SCRIPT.fate(request) for request in requests} == fates
    assert {SCRIPT.fate(read_request(body(number, "steady"))) for number in range(300)} == {"ok"}
    other = Seeded(8, SCRIPT.shares, SCRIPT.weights)
    assert [other.fate(request) for request in requests] != [SCRIPT.fate(request) for request in requests]


def test_the_share_of_faulty_requests_and_the_weights_of_the_faults_are_kept() -> None:
    script = Seeded(1, {"flaky": 0.3}, {"500": 3.0, "hang": 1.0})
    fates = Counter(script.fate(read_request(body(number))) for number in range(10_000))
    assert fates["ok"] == pytest.approx(7000, abs=200)
    assert fates["500"] == pytest.approx(2250, abs=200)
    assert fates["hang"] == pytest.approx(750, abs=120)


async def test_a_repeat_of_a_request_is_another_draw() -> None:
    async with fault_server(Played({"w": ["500", "429", "ok"]})) as server:
        got = [await exchange(server, body(1, "w")) for _ in range(4)]
    assert [answer.split()[1] for answer in got] == [b"500", b"429", b"200", b"200"]
    assert [record.request.seen for record in server.records] == [0, 1, 2, 3]
    assert {record.request.key for record in server.records} == {"Bearer k"}


async def test_what_is_reported_is_counted_by_worker_and_what_is_not_is_counted_too() -> None:
    script = Played({"a": ["ok"], "b": ["ok"], "silent": ["usage_missing"], "liar": ["usage_absurd"], "gone": ["hang"]})
    async with fault_server(script) as server:
        for model in ("a", "a", "b", "silent", "liar", "gone"):
            await exchange(server, body(1, model, stream=model == "b"))
        await server.until(lambda s: not s.connections)
    once = Tokens(**usage_of(read_request(body(1, "a"))))
    assert server.usage("a") == once + once
    assert server.usage() == server.usage("a") + Tokens(**usage_of(read_request(body(1, "b", stream=True))))
    assert server.unreported() == 3
    assert server.fates == {"ok": 3, "usage_missing": 1, "usage_absurd": 1, "hang": 1}


async def test_the_bill_on_the_wire_is_the_one_that_is_counted() -> None:
    async with fault_server(Played()) as server:
        answer = json.loads((await exchange(server, body(1))).partition(b"\r\n\r\n")[2])
    told = server.usage()
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (told.input, told.output)


async def test_who_hung_up_is_known() -> None:
    async with fault_server(Played({"mute": ["hang"], "rude": ["reset_midway"]})) as server:
        await exchange(server, body(1, "mute"))
        with pytest.raises(ConnectionResetError):
            await exchange(server, body(1, "rude"))
        await exchange(server, body(1, "kind"))
        await server.until(lambda s: not s.busy)
    assert [record.ended for record in server.records] == ["left", "cut", "whole"]


async def test_nobody_listens_at_a_dead_address() -> None:
    host, port = dead_url().removeprefix("http://").removesuffix("/v1").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def test_in_a_process_of_its_own_it_counts_the_same_and_stops_with_its_block() -> None:
    with fault_process(Seeded(1, {}, {"500": 1.0})) as url:
        request = urllib.request.Request(f"{url}/chat/completions", data=body(1))
        with urllib.request.urlopen(request, timeout=10) as response:
            assert json.load(response)["choices"]
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}/stats", timeout=10) as response:
            summary = json.load(response)
    assert summary["requests"] == 1
    assert summary["fates"] == {"ok": 1}
    told = usage_of(read_request(body(1)))
    assert summary["usage"] == {"flaky": told}
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(request, timeout=5)
