"""A client that goes away: the sockets to the workers are closed within a second, and what was
spent is on the bill.

Over real sockets: in planning, in a step, in the answer before and amid its text, of each API,
streamed and not. The client goes in order (with a FIN), or as a process does that is killed (with a
RST).
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from faults.script import Played
from faults.server import FaultServer, fault_server
from integration.served import PATHS, PLAN, PRICES, Served, request_body, served
from openconductor.serving.key_ring import cost_of, new_key
from openconductor.serving.serve_config import KeyTable
from openconductor.types import Usage

SECONDS = 1.0
"""Within this time every connection to a worker must be closed on a machine with nothing else to
do; beside other tests it may take ten times as long.
"""

KEY = new_key()
WHERE = {
    "planning": ("planner", "hang"),
    "step": ("b", "hang"),
    "amid a step": ("b", "hang_midway"),
    "answer": ("c", "hang"),
    "amid the answer": ("c", "hang_midway"),
    "a dripping answer": ("c", "drip_text"),
}
"""The worker that does not come to an end, and how."""


def asked_models(faults: FaultServer) -> list[str]:
    """Return the models of the requests that are under way."""
    return [record.request.model for record in faults.busy]


async def ask_and_leave(
    server: Served, faults: FaultServer, api: str, where: str, *, stream: bool
) -> float:
    """Send a request on a connection of its own, and leave when its worker hangs; return when that
    was.
    """
    asked = request_body(api, stream=stream)
    body = json.dumps(asked).encode()
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {PATHS[api]} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {KEY[0]}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    hanging, _ = WHERE[where]
    await faults.until(lambda one: hanging in asked_models(one))
    if stream and where in ("amid the answer", "a dripping answer"):
        said = b""
        while said.count(b"delta") < 8:
            said += await asyncio.wait_for(reader.read(65536), 20)
    if stream != (api == "messages"):  # one way or the other
        sock = writer.get_extra_info("socket")
        at_once = struct.pack("ii", 1, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        writer.transport.abort()
    else:
        writer.close()
    left = asyncio.get_running_loop().time()
    with suppress(OSError):
        await writer.wait_closed()
    return left


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("api", "where"),
    [
        pytest.param(
            api, where, marks=[pytest.mark.slow] * (api != "chat" and where.startswith("a"))
        )
        for api in PATHS
        for where in WHERE
    ],
)
async def test_who_leaves_is_worked_for_no_more_and_pays_what_was_done(
    tmp_path: Path, api: str, where: str, stream: bool
) -> None:
    await check_leaving(tmp_path, api, where, stream=stream, seconds=10 * SECONDS)


@pytest.mark.alone
@pytest.mark.parametrize("stream", [False, True])
async def test_who_leaves_is_worked_for_no_more_within_a_second(
    tmp_path: Path, stream: bool
) -> None:
    await check_leaving(tmp_path, "chat", "amid the answer", stream=stream, seconds=SECONDS)


async def check_leaving(
    folder: Path, api: str, where: str, *, stream: bool, seconds: float
) -> None:
    """Check that within so many seconds of a client's leaving all work for it has ended."""
    table = KeyTable("ann", KEY[1], dollars=Decimal(1), period="total")
    hanging, fault = WHERE[where]
    script = Played({hanging: [fault, "ok"]})
    async with (
        fault_server(script, {"planner": PLAN}) as faults,
        served(folder, faults, key=[table]) as server,
    ):
        left = await ask_and_leave(server, faults, api, where, stream=stream)
        await faults.until(lambda one: not one.busy, seconds)
        (record,) = [one for one in faults.records if one.ended == "left"]
        assert record.closed - left <= seconds
        await server.until_idle(seconds)
        (episode,) = server.journal.episodes()
        assert episode.outcome == "unfinished"
        check_bill(server, faults, episode.id)
        requests = len(faults.records)
        answer = await server.ask(api, key=KEY[0], stream=stream)
        assert answer.status_code == 200
        assert len(faults.records) == requests + 4, "nothing was asked again behind anyone's back"


def check_bill(server: Served, faults: FaultServer, episode: str) -> None:
    """Check that the key pays what is known, and the most that the broken call may have cost."""
    *answered, broken = server.journal.calls(episode)
    assert {call.outcome for call in answered} <= {"answered"}
    assert broken.outcome == "cancelled"
    told = faults.usage()
    used = sum((call.usage for call in (*answered, broken)), Usage())
    assert (used.input_tokens, used.output_tokens) == (told.input, told.output)
    assert used.unpriced_calls == faults.unreported() == 1
    record = server.journal.find_record(f"serve/{episode}") or {}
    charged = Decimal(str(record["charged"]))
    assert charged == sum(map(cost_of, (*answered, broken)))
    most = 300 * Decimal(PRICES[broken.worker]["output"]) / 10**6
    assert most <= charged - used.dollars <= 2 * most, "its tokens, and what it read"


@pytest.mark.parametrize("api", PATHS)
async def test_many_that_leave_at_once_leave_no_socket(tmp_path: Path, api: str) -> None:
    async with (
        fault_server(Played({"c": ["drip_text"]}), {"planner": PLAN}) as faults,
        served(tmp_path, faults) as server,
        asyncio.TaskGroup() as group,
    ):
        asking: list[asyncio.Task[Any]] = []
        for number in range(24):
            call = server.ask(api, stream=True, question=f"{number}?")
            asking.append(group.create_task(call))
        await faults.until(lambda one: asked_models(one) == ["c"] * 24)
        for task in asking:
            task.cancel()
        await faults.until(lambda one: not one.busy)
        await server.until_idle()
        assert faults.unreported() == 24
        spent = server.journal.totals().spent
        assert spent.usage.unpriced_calls == 24
