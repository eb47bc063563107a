"""Rate limits over loopback, in real time."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web
from chat_server import chat_server, completion, says, write_pool

from openconductor import Message, OpenConductorError, Worker
from openconductor.probe import check_pool
from openconductor.protocols import CallContext
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from rate_limited import DIALECTS, QUESTIONS, Bucket, throughput

HELLO = (Message("user", "hello"),)
USED_UP = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "300ms"}
LIMITS = {"x-ratelimit-limit-requests": "60", "x-ratelimit-limit-tokens": "10000"}


async def test_a_call_goes_again_when_the_limit_is_back() -> None:
    async with chat_server(says({}, status=429, headers=USED_UP), says(completion())) as server:
        worker = Worker(OpenAICompatibleProvider("m", base_url=server.url), name="w")
        begun = time.monotonic()
        answer = await worker.complete(HELLO, call=CallContext())
        assert time.monotonic() - begun >= 0.3
        assert (answer.text, len(server.paths)) == ("4", 2)
        await worker.resolved.aclose()


@pytest.mark.parametrize(
    ("own", "fix"),
    [
        ("", "rpm = 60\ntpm = 10000"),
        ("rpm = 60\ntpm = 20000", "tpm = 10000"),
        ("rpm = 6\ntpm = 10000", None),
    ],
)
async def test_pool_check_shows_the_limits_that_a_server_tells(
    tmp_path, own: str, fix: str | None
) -> None:
    async with chat_server(*[says(completion(), headers=LIMITS)] * 4) as server:
        path = tmp_path / "pool.toml"
        write_pool(tmp_path, server.url, "m", more=f"price = {{ input = 1, output = 1 }}\n{own}")
        [report] = await check_pool(path, 20.0)
    assert (report.rpm, report.tpm) == (60, 10_000)
    fixes = [fault.fix for fault in report.faults if fault.what == "limits"]
    assert fixes == ([] if fix is None else [fix])


SOON = {"retry-after-ms": "100"}
LATE = {"retry-after": "30"}


@pytest.mark.parametrize(
    ("status", "headers", "failures", "requests", "fix"),
    [
        (429, SOON, 1, 5, "rpm = …"),
        (429, SOON, 2, 6, "rpm = …"),
        (429, LATE, 1, 1, "rpm = …"),
        (503, {}, 2, 6, "try again later"),
    ],
)
async def test_pool_check_repeats_a_call_that_fails_and_says_so(
    tmp_path, status: int, headers: dict[str, str], failures: int, requests: int, fix: str
) -> None:
    failed = says({"error": {"message": "slow down"}}, status=status, headers=headers)
    async with chat_server(*[failed] * failures, *[says(completion())] * 4) as server:
        write_pool(tmp_path, server.url, "m", more="price = { input = 1, output = 1 }")
        [report] = await check_pool(tmp_path / "pool.toml", 20.0)
    assert len(server.paths) == report.calls == requests
    assert report.usable is (requests > failures)
    [fault] = [fault for fault in report.faults if fault.what in {"answer", "repeated"}]
    assert f"status {status}" in fault.message
    assert fault.fatal is not report.usable
    assert fix in fault.fix


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", ["silent", "openai"])
async def test_in_real_time_no_question_is_lost_to_a_server_of_60_calls_a_minute(
    dialect: str,
) -> None:
    begun = time.monotonic()
    limit = Bucket(60)

    async def answer(request: web.Request) -> web.StreamResponse:
        now = time.monotonic() - begun
        wait = limit.take(1, now)
        if wait:
            headers, body = DIALECTS[dialect](wait, limit.reset(now))
            return web.json_response(body, status=429, headers=headers)
        return await says(completion())(request)

    async with chat_server(*[answer] * 3 * QUESTIONS) as server:
        worker = Worker(OpenAICompatibleProvider("m", base_url=server.url), name=dialect)
        ended: list[float] = []
        failed: list[OpenConductorError] = []

        async def ask() -> None:
            try:
                await worker.complete(HELLO, call=CallContext())
                ended.append(time.monotonic() - begun)
            except OpenConductorError as error:
                failed.append(error)

        await asyncio.gather(*(ask() for _ in range(QUESTIONS)))
        await worker.resolved.aclose()
    assert failed == []
    assert throughput(ended, 1, 60) >= 0.9
