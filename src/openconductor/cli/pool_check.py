"""The check of a pool: what each worker can do, found out by asking it. In: a pool file. Out: a WorkerReport a worker.

A worker is asked up to four times, in a few tokens each: plainly, streaming, with a tool, with an image. It counts as
usable where the first two bring whole answers; tools and images are told of and are no faults. Each call is made once,
without the worker's retries and limits, so that what is seen is the worker itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from openconductor.config import load_toml
from openconductor.errors import (
    AuthFailed,
    ConfigError,
    EmptyResponse,
    MalformedResponse,
    OpenConductorError,
    RateLimited,
    Rejected,
    ServerFailed,
    TruncatedResponse,
    Unreachable,
    WorkerError,
    WorkerTimeout,
)
from openconductor.events import CallEnded, Event
from openconductor.pool import PoolFile, Worker, WorkerPool, WorkerTable
from openconductor.prices import FoundPrice, find_price, price_line
from openconductor.protocols import CallContext
from openconductor.types import Completion, Message, Price, Sampling, Usage

Able = Literal["yes", "no", "accepted", "failed", "untried"]

MAX_TOKENS = 64
"""The most that one call of the check writes, unless the worker's ``body`` says how long it thinks."""

WORKERS_AT_ONCE = 16
SETTINGS = "settings"

_COUNT = (Message("user", "Count from 1 to 5 in digits, one a line, nothing else."),)
_WEATHER = (Message("user", "What is the weather in Paris? Use the tool."),)
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_NAMED = {"name": "weather", "description": "The weather in a city."}
_TOOLS: Mapping[str, object] = {
    "chat": {"type": "function", "function": {**_NAMED, "parameters": _CITY}},
    "anthropic": {**_NAMED, "input_schema": _CITY},
    "google": {"functionDeclarations": [{**_NAMED, "parameters": _CITY}]},
}
"""A tool as each wire has it; workers of other kinds are not asked about tools and images."""

# A white square of 32 x 32 pixels: some vision models refuse smaller ones.
_PNG = "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAFklEQVR42mP4TwAwjCoYVTCqYKQqAAA/aPwuqUTQyAAAAABJRU5ErkJggg=="
_PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}"}}
_SIGHT = (Message("user", "What colour is this? One word.", (_PICTURE,)),)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong with a worker.

    Attributes:
        what: key, settings, answer, streaming, usage or price.
        message: what was seen.
        fix: what would put it right: a command, a line of the pool file, or advice.
        fatal: whether the worker cannot be used like that.
    """

    what: str
    message: str
    fix: str
    fatal: bool = True


@dataclass(slots=True)
class WorkerReport:
    """What is known of a worker; None (and ``untried``) is not known.

    Attributes:
        key_env: the environment variable that holds its key; None: it needs none.
        key_present: whether that is set.
        price: what the pool file says.
        known: what the price list says.
        reachable: whether a plain call brought a whole answer.
        latency_s: seconds that this took.
        first_text_s: seconds until the first text of a streamed answer.
        pieces: in how many pieces that came.
        streams: whether a streamed call brought a whole answer, in pieces.
        finish_reason: why the plain answer ended.
        usage_reported: whether its tokens were told; ``stream_usage_reported`` while streaming.
        tools: ``yes`` called one; ``accepted`` did not call it.
        images: ``accepted`` or not.
        spent: what the check's calls used.
        calls: how many there were.
    """

    ordinal: int
    name: str
    provider: str
    model: str
    base_url: str | None = None
    key_env: str | None = None
    key_present: bool | None = None
    price: Price | None = None
    known: FoundPrice = field(default_factory=lambda: FoundPrice(None))
    reachable: bool | None = None
    latency_s: float | None = None
    first_text_s: float | None = None
    pieces: int | None = None
    streams: Able = "untried"
    finish_reason: str | None = None
    usage_reported: bool | None = None
    stream_usage_reported: bool | None = None
    tools: Able = "untried"
    images: Able = "untried"
    spent: Usage = field(default_factory=Usage)
    calls: int = 0
    faults: list[Fault] = field(default_factory=list[Fault])

    @property
    def usable(self) -> bool:
        """Whether nothing was seen that would keep the worker from answering."""
        return not any(fault.fatal for fault in self.faults)

    @property
    def misset(self) -> bool:
        """Whether the pool file itself is wrong about it: no such worker can be made."""
        return any(fault.what == SETTINGS for fault in self.faults)


async def check_pool(path: str | Path, *, offline: bool = False, timeout_s: float = 30.0) -> list[WorkerReport]:
    """Check every worker of a pool file, side by side.

    Args:
        path: the pool file.
        offline: make no call: only keys, settings and prices.
        timeout_s: the deadline of each call, in seconds; a worker takes at most twice that.

    Raises:
        ConfigError: the file cannot be read, has an unknown key, or names a worker twice. What is wrong with a single
            worker is a fault in its report.
    """
    entries = load_toml(path, PoolFile).worker
    reports: list[WorkerReport] = []
    workers: list[Worker | None] = []
    for ordinal, entry in enumerate(entries):
        report = WorkerReport(ordinal, entry.name, entry.provider, entry.model, entry.base_url, price=entry.price)
        try:
            worker = entry.build()
        except ConfigError as error:
            worker = None
            report.faults.append(Fault(SETTINGS, str(error), f"change the worker {entry.name!r} in {path}"))
        else:
            _check_settings(report, entry, worker)
        reports.append(report)
        workers.append(worker)
    built = [worker for worker in workers if worker is not None]
    pool = WorkerPool(built) if built else None  # refuses two of one name
    if not offline and pool is not None:
        gate = asyncio.Semaphore(WORKERS_AT_ONCE)
        pairs = zip(reports, workers, strict=True)
        try:
            await asyncio.gather(*(_ask(one, worker, gate, timeout_s) for one, worker in pairs if worker is not None))
        finally:
            await pool.aclose()
    return reports


# ── without a call ───────────────────────────────────────────────────────────────────────────────────────────────────
def _check_settings(report: WorkerReport, entry: WorkerTable, worker: Worker) -> None:
    provider: object = worker.provider
    report.base_url = getattr(provider, "base_url", entry.base_url)
    report.key_env = getattr(provider, "api_key_env", entry.api_key_env)
    if report.key_env is not None:
        report.key_present = bool(os.environ.get(report.key_env, "").strip())
        if not report.key_present:
            missing = f"the environment variable {report.key_env} is not set"
            report.faults.append(Fault("key", missing, f"export {report.key_env}=…"))
    if getattr(provider, "prices_itself", False):
        return
    report.known = find_price(entry.model, base_url=report.base_url, body=entry.body)
    if report.price is None:
        report.faults.append(_unpriced(report.known))


def _unpriced(known: FoundPrice) -> Fault:
    if known.price is not None:
        seen = f"the pool file has no price; {known.source} knows one"
        return Fault("price", seen, price_line(known.price), fatal=False)
    seen = f"the pool file has no price, and none is known: {known.reason}"
    template = "price = { input = …, output = … }  # US dollars a million tokens; 0 where it costs you nothing"
    return Fault("price", seen, template, fatal=False)


# ── with calls ───────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class _Probe:
    """One call of the check, and what came of it."""

    completion: Completion | None = None
    error: OpenConductorError | None = None
    seconds: float = 0.0
    texts: list[float] = field(default_factory=list[float])
    usage: Usage = field(default_factory=Usage)


async def _ask(report: WorkerReport, worker: Worker, gate: asyncio.Semaphore, timeout_s: float) -> None:
    from openconductor.providers.openai_compatible import OpenAICompatibleProvider

    if report.key_present is False:
        return
    async with gate:
        asked = _bare(worker, timeout_s)
        plain = await _probe(report, asked, _COUNT)
        _judge_plain(report, plain)
        if plain.completion is None:
            return
        further = [_probe(report, asked, _COUNT, stream=True)]
        wire = "chat" if isinstance(worker.provider, OpenAICompatibleProvider) else report.provider
        if wire in _TOOLS:
            further += [
                _probe(report, _with_tool(asked, _TOOLS[wire]), _WEATHER),
                _probe(report, asked, _SIGHT),
            ]
        streamed, *others = await asyncio.gather(*further)
        _judge_stream(report, streamed)
        if others:
            tool, picture = others
            called = tool.completion is not None and bool(tool.completion.tool_calls)
            report.tools = "yes" if called else _able(tool)
            report.images = _able(picture)


def _bare(worker: Worker, timeout_s: float) -> Worker:
    """The worker without retries and limits, for short answers."""
    sampling = worker.sampling
    if not sampling.body:  # a body may hold a budget for thinking, which a small limit would contradict
        sampling = replace(sampling, max_tokens=min(sampling.max_tokens or MAX_TOKENS, MAX_TOKENS))
    seconds = timeout_s if worker.timeout_s is None else min(worker.timeout_s, timeout_s)
    return replace(worker, sampling=sampling, timeout_s=seconds, retries=0, max_concurrency=None, rpm=None, tpm=None)


def _with_tool(worker: Worker, tool: object) -> Worker:
    sampling = worker.sampling
    body: Mapping[str, object] = MappingProxyType({**sampling.body, "tools": [tool]})
    return replace(worker, sampling=Sampling(sampling.temperature, sampling.max_tokens, sampling.seed, body))


async def _probe(report: WorkerReport, worker: Worker, messages: Sequence[Message], *, stream: bool = False) -> _Probe:
    """Call once; what it used is added to the report."""
    probe = _Probe()
    clock = asyncio.get_running_loop().time
    begun = clock()

    def hear(event: Event) -> None:
        if isinstance(event, CallEnded):
            report.calls += 1
            report.spent += event.call.usage

    def hear_text(text: str) -> None:
        if text:
            probe.texts.append(clock() - begun)

    call = CallContext(origin=begun, on_event=hear)
    try:
        probe.completion = await worker.complete(messages, call=call, on_text=hear_text if stream else None)
    except OpenConductorError as error:
        probe.error = error
    probe.seconds = clock() - begun
    return probe


def _judge_plain(report: WorkerReport, plain: _Probe) -> None:
    report.reachable = plain.completion is not None
    if plain.completion is None:
        report.faults.append(_fault("answer", plain.error, report))
        return
    report.latency_s = plain.seconds
    report.finish_reason = plain.completion.finish_reason
    report.usage_reported = bool(plain.completion.usage.tokens)
    if not report.usage_reported:
        report.faults.append(_no_usage("the server does not say how many tokens it used"))


def _judge_stream(report: WorkerReport, streamed: _Probe) -> None:
    if streamed.completion is None:
        report.streams = "failed"
        report.faults.append(_fault("streaming", streamed.error, report))
        return
    report.pieces = len(streamed.texts)
    report.streams = "yes" if report.pieces > 1 else "accepted"
    report.first_text_s = streamed.texts[0] if streamed.texts else None
    report.stream_usage_reported = bool(streamed.completion.usage.tokens)
    if report.usage_reported and not report.stream_usage_reported:
        report.faults.append(_no_usage("while streaming, the server does not say how many tokens it used"))


def _no_usage(seen: str) -> Fault:
    fix = "let the server report usage (OpenAI's `stream_options.include_usage`); until then its cost is not known"
    return Fault("usage", seen, fix, fatal=False)


def _able(probe: _Probe) -> Able:
    """Whether the server took a request that it may not know; a limit reached before any text is no refusal."""
    if probe.completion is not None:
        return "accepted"
    status = getattr(probe.error, "status", None)
    return "no" if isinstance(probe.error, Rejected) or status in (400, 404, 415, 422, 501) else "failed"


def _fault(what: str, error: OpenConductorError | None, report: WorkerReport) -> Fault:
    message = error.message if isinstance(error, WorkerError) else str(error)
    return Fault(what, message, _fix(error, report))


def _fix(error: OpenConductorError | None, report: WorkerReport) -> str:
    """What would put a failed call right."""
    match error:
        case AuthFailed():
            if report.key_env is None:
                return 'api_key_env = "…", the name of the environment variable that holds its key'
            return f"export {report.key_env}=… with a key that this server knows"
        case RateLimited():
            if error.retryable:
                return "wait, and slow the worker down: rpm = …, tpm = … or max_concurrency = …"
            return "the quota is spent: add credit at the provider, or take another model"
        case WorkerTimeout():
            return "wait longer (--timeout, timeout_s), or look whether the server is busy"
        case Unreachable():
            return f"start the server, or correct base_url (it is {report.base_url})"
        case Rejected():
            return f"correct model (it is {report.model!r}), base_url, sampling or body"
        case MalformedResponse():
            return f"correct base_url (it is {report.base_url}): where the API begins; most of them end in /v1"
        case TruncatedResponse():
            return "its answers end without saying why, so that a cut one cannot be told from a whole one: update it"
        case EmptyResponse():
            return "let it write more (sampling.max_tokens) or think less (body)"
        case ServerFailed():
            return "the server itself fails: try again later, or look at its log"
        case ConfigError():
            return "correct sampling or body"
        case _:
            return "see the message"
