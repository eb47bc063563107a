"""Check what the workers of a pool can do, by asking them.

A worker is asked up to four times, in a few tokens each: plainly, streaming, with a tool, with an
image. It is usable if the first two bring whole answers; tools and images are only reported. A call
that fails is repeated as any call of the worker, but none waits for the worker's own limits.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from openconductor.calls.prices import FoundPrice, find_price, price_line
from openconductor.calls.worker import Worker
from openconductor.config import one_of
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
from openconductor.pool import WorkerPool, WorkerTable, read_pool_file
from openconductor.protocols import CallContext
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.providers.wire.rate_limits import RateLimits, read_limits
from openconductor.types import Completion, Message, Price, Usage

Able = Literal["yes", "no", "accepted", "failed", "untried"]

MAX_TOKENS = 64
"""The most tokens of an answer, unless the worker's ``body`` says how long it thinks."""
SETTINGS = "settings"

_COUNT = (Message("user", "Count from 1 to 5 in digits, one a line, nothing else."),)
_WEATHER = (Message("user", "What is the weather in Paris? Use the tool."),)
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_FUNCTION = {"name": "weather", "description": "The weather in a city.", "parameters": _CITY}
_TOOLS = {"tools": [{"type": "function", "function": _FUNCTION}]}
_VENDORS = ("anthropic", "google", "pydantic_ai")
"""Providers that are asked about tools and images, beside the OpenAI-compatible ones."""

# A white square of 32 x 32 pixels: some vision models reject smaller ones.
_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAFklEQVR42mP4TwAwjCoYVTCqYKQqAAA/aPwuqUTQyAAAAABJ"
    "RU5ErkJggg=="
)
_PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}"}}
_SIGHT = (Message("user", "What colour is this? One word.", (_PICTURE,)),)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a worker.

    Attributes:
        what: key, settings, answer, streaming, usage, limits, repeated or price.
        message: the observation.
        fix: a command, a line of the pool file, or advice.
        fatal: True if the worker cannot be used.
    """

    what: str
    message: str
    fix: str
    fatal: bool = True


@dataclass(slots=True)
class KeyReport:
    """The environment variable of a worker's key (None: no key), and whether it is set."""

    env: str | None = None
    present: bool | None = None


@dataclass(slots=True)
class StreamReport:
    """The outcome of a streamed call; ``works`` is ``yes`` if the answer came in pieces."""

    works: Able = "untried"
    pieces: int | None = None
    first_text_seconds: float | None = None
    usage_reported: bool | None = None


@dataclass(slots=True)
class WorkerReport:
    """The report on a worker, in the form of ``--json``. None and ``untried``: unknown.

    Attributes:
        price: the price in the pool file.
        prices_itself: True if each answer says what it cost, so that no price is needed.
        known_price: the price in the price list.
        reachable: True if a plain call brought a whole answer.
        latency_seconds: its time.
        finish_reason: its reason to end.
        usage_reported: True if the server reported the tokens.
        tools: ``yes`` if it called one; ``accepted`` if it answered without.
        images: ``accepted`` or not.
        rpm, tpm: the calls and tokens a minute that the server says it takes.
        calls, spent: the calls of the check, and their usage.
    """

    ordinal: int
    name: str
    provider: str
    model: str
    base_url: str | None = None
    usable: bool = True
    key: KeyReport = field(default_factory=KeyReport)
    price: Price | None = None
    prices_itself: bool = False
    known_price: FoundPrice = field(default_factory=lambda: FoundPrice(None))
    reachable: bool | None = None
    latency_seconds: float | None = None
    finish_reason: str | None = None
    usage_reported: bool | None = None
    streaming: StreamReport = field(default_factory=StreamReport)
    tools: Able = "untried"
    images: Able = "untried"
    rpm: int | None = None
    tpm: int | None = None
    calls: int = 0
    spent: Usage = field(default_factory=Usage)
    faults: list[Fault] = field(default_factory=list[Fault])

    def add(self, fault: Fault) -> None:
        """Add a fault; a fatal one makes the worker unusable."""
        self.faults.append(fault)
        if fault.fatal:
            self.usable = False


async def check_pool(
    path: Path, timeout_s: float | None, on_progress: Callable[[int, int], None] | None = None
) -> list[WorkerReport]:
    """Check every worker of a pool file, side by side.

    Args:
        path: the pool file.
        timeout_s: the deadline of each call and its repeats, in seconds (a worker takes at most
            twice that). None: make no call.
        on_progress: told how many workers are checked, of how many.

    Raises:
        ConfigError: the file cannot be read, has an unknown key, names a worker twice, or has an
            unknown default worker. Faults of a single worker are in its report.
    """
    file = read_pool_file(path)
    tables = file.worker
    if not tables:
        raise ConfigError(f"{path}: no worker; expected at least one table [[worker]]")
    if file.default_worker is not None:
        names = [table.name for table in tables]
        one_of(f"{path}: default_worker", file.default_worker, names)
    reports: list[WorkerReport] = []
    built: list[tuple[WorkerReport, Worker]] = []
    for ordinal, table in enumerate(tables):
        report = WorkerReport(
            ordinal, table.name, table.provider, table.model, table.base_url, price=table.price
        )
        reports.append(report)
        try:
            worker = table.build()
        except ConfigError as error:
            report.add(Fault(SETTINGS, str(error), f"change the worker {table.name!r} in {path}"))
        else:
            _check_settings(report, table, worker)
            built.append((report, worker))
    checked = itertools.count(1)

    async def ask(report: WorkerReport, worker: Worker, timeout_s: float) -> None:
        await _Probe(report, worker, timeout_s).run()
        if on_progress is not None:
            on_progress(next(checked), len(built))

    if built:
        pool = WorkerPool([worker for _, worker in built])  # rejects two of one name
        try:
            if timeout_s is not None:
                await asyncio.gather(*(ask(*pair, timeout_s) for pair in built))
        finally:
            await pool.aclose()
    return reports


def _check_settings(report: WorkerReport, table: WorkerTable, worker: Worker) -> None:
    """Report the worker's key and price."""
    provider = worker.resolved
    report.base_url = provider.base_url or table.base_url
    named = (provider.api_key_env or table.api_key_env, *provider.variables)
    keys = [key for key in named if key]
    missing = [key for key in keys if not os.environ.get(key, "").strip()]
    if keys:
        report.key = KeyReport((missing or keys)[0], not missing)
    for key in missing:
        unset = f"the environment variable {key} is not set"
        report.add(Fault("key", unset, f"export {key}=…"))
    report.prices_itself = provider.prices_itself
    if not provider.prices_itself:
        report.known_price = find_price(table.model, base_url=report.base_url, body=table.body)
        if report.price is None:
            report.add(_price_fault(report.known_price))


def _price_fault(known: FoundPrice) -> Fault:
    if known.price is None:
        message = f"the pool file has no price, and none is known: {known.reason}"
        fix = "price = { input = …, output = … }  # US dollars a million tokens; 0 if it is free"
    else:
        message = f"the pool file has no price; {known.source} knows one"
        fix = price_line(known.price)
    return Fault("price", message, fix, fatal=False)


# ── the calls ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class _Call:
    """A call of the check: its answer or error, its seconds, and when pieces of text came."""

    answer: Completion | None = None
    error: OpenConductorError | None = None
    seconds: float = 0.0
    texts: list[float] = field(default_factory=list[float])

    @property
    def ability(self) -> Able:
        """The server's reaction to a request that it may not support."""
        if self.answer is not None:
            return "accepted"
        status = self.error.status if isinstance(self.error, WorkerError) else None
        if isinstance(self.error, Rejected) or status in (400, 404, 415, 422, 501):
            return "no"
        return "failed"


class _Probe:
    """Asks one worker and fills in its report."""

    def __init__(self, report: WorkerReport, worker: Worker, timeout_s: float) -> None:
        sampling = worker.sampling
        if not sampling.body:  # a body may hold a budget for thinking, above a small limit
            limit = min(sampling.max_tokens or MAX_TOKENS, MAX_TOKENS)
            sampling = replace(sampling, max_tokens=limit)
        self.report = report
        self.limits = RateLimits(worker.rpm, worker.tpm)
        self.timeout_s = timeout_s
        self.repeated: list[WorkerError] = []
        self.worker = replace(
            worker,
            sampling=sampling,
            timeout_s=min(worker.timeout_s or timeout_s, timeout_s),
            max_concurrency=None,
            rpm=None,
            tpm=None,
        )

    async def run(self) -> None:
        """Make up to four calls, or none if the server cannot be reached."""
        report = self.report
        if report.key.present is False:
            return
        try:
            await self.worker.reach()
        except WorkerError as error:
            report.reachable = False
            self._add_failure("answer", error)
            return
        plain = await self._call(self.worker, _COUNT)
        report.reachable = plain.answer is not None
        if plain.answer is None:
            self._add_failure("answer", plain.error)
            return
        report.latency_seconds = plain.seconds
        report.finish_reason = plain.answer.finish_reason
        report.usage_reported = bool(plain.answer.usage.tokens)
        provider = self.worker.provider
        if isinstance(provider, OpenAICompatibleProvider) or report.provider in _VENDORS:
            sampling = self.worker.sampling
            body = {**sampling.body, **_TOOLS}
            with_tool = replace(self.worker, sampling=replace(sampling, body=body))
            streamed, tool, picture = await asyncio.gather(
                self._call(self.worker, _COUNT, stream=True),
                self._call(with_tool, _WEATHER),
                self._call(self.worker, _SIGHT),
            )
            called = tool.answer is not None and bool(tool.answer.tool_calls)
            report.tools = "yes" if called else tool.ability
            report.images = picture.ability
        else:
            streamed = await self._call(self.worker, _COUNT, stream=True)
        self._report_stream(streamed)
        self._report_usage()
        self._report_limits()
        self._report_repeated()

    async def _call(
        self, worker: Worker, messages: Sequence[Message], *, stream: bool = False
    ) -> _Call:
        """Call, and repeat as the worker does; add the usage of each attempt to the report."""
        call = _Call()
        clock = asyncio.get_running_loop().time
        begun = clock()
        failures: list[WorkerError] = []

        def add_attempt(event: Event) -> None:
            if isinstance(event, CallEnded):
                self.report.calls += 1
                self.report.spent += event.call.usage
                if isinstance(event.call.error, WorkerError):
                    failures.append(event.call.error)

        def note_text(text: str) -> None:
            if text:
                call.texts.append(clock() - begun)

        deadline = begun + self.timeout_s
        context = CallContext(origin=begun, deadline=deadline, on_event=add_attempt)
        on_text = note_text if stream else None
        try:
            call.answer = await worker.complete(messages, call=context, on_text=on_text)
            self.repeated += failures
        except OpenConductorError as error:
            call.error = error
        call.seconds = clock() - begun
        return call

    def _report_stream(self, call: _Call) -> None:
        stream = self.report.streaming
        if call.answer is None:
            stream.works = "failed"
            self._add_failure("streaming", call.error)
            return
        stream.pieces = len(call.texts)
        stream.works = "yes" if stream.pieces > 1 else "accepted"
        stream.first_text_seconds = call.texts[0] if call.texts else None
        stream.usage_reported = bool(call.answer.usage.tokens)

    def _report_usage(self) -> None:
        """Add a fault if the plain or the streamed answer came without its number of tokens."""
        reported = (self.report.usage_reported, self.report.streaming.usage_reported)
        if False not in reported:
            return
        message = "the server does not report how many tokens it used"
        if self.report.usage_reported:
            message = f"while streaming, {message}"
        fix = (
            "let it report usage (OpenAI's `stream_options.include_usage`); "
            "until then its cost is unknown"
        )
        self.report.add(Fault("usage", message, fix, fatal=False))

    def _report_limits(self) -> None:
        """Report the server's limits, and add a fault if the pool file has none, or higher ones."""
        known = read_limits(self.worker.resolved.response_headers)
        self.report.rpm, self.report.tpm = known
        lines: list[str] = []
        for name, own, limit in zip(known._fields, self.limits, known, strict=True):
            if limit is not None and (own is None or own > limit):
                lines.append(f"{name} = {limit}")
        if lines:
            message = "the server says how many calls or tokens a minute it takes"
            self.report.add(Fault("limits", message, "\n".join(lines), fatal=False))

    def _report_repeated(self) -> None:
        """Add a fault if a call that was answered had failed before."""
        if self.repeated:
            failure = self.repeated[-1]
            message = f"a call failed at first, and was repeated: {failure.message}"
            fix = _fix(failure, self.report)
            self.report.add(Fault("repeated", message, fix, fatal=False))

    def _add_failure(self, what: str, error: OpenConductorError | None) -> None:
        message = error.message if isinstance(error, WorkerError) else str(error)
        self.report.add(Fault(what, message, _fix(error, self.report)))


_FIXES: dict[type[OpenConductorError], str] = {
    RateLimited: "wait, and slow the worker down: rpm = …, tpm = … or max_concurrency = …",
    WorkerTimeout: "wait longer (--timeout, timeout_s), or check whether the server is busy",
    Unreachable: "start the server, or correct base_url (it is {0.base_url})",
    Rejected: "correct model (it is {0.model!r}), base_url (it is {0.base_url}; most end in /v1), "
    "sampling or body",
    MalformedResponse: "correct base_url (it is {0.base_url}): the address of the API; most end "
    "in /v1",
    TruncatedResponse: "update the server: its answers end without a finish reason, so that a cut "
    "one looks like a whole one",
    EmptyResponse: "let it write more (sampling.max_tokens) or think less (body)",
    ServerFailed: "the server itself fails: try again later, or see its log",
    ConfigError: "correct sampling or body",
}


def _fix(error: OpenConductorError | None, report: WorkerReport) -> str:
    """Return advice for a failed call."""
    if isinstance(error, AuthFailed):
        if report.key.env is None:
            return 'api_key_env = "…", the name of the environment variable that holds its key'
        return f"export {report.key.env}=… with a key that this server knows"
    if isinstance(error, RateLimited) and not error.retryable:
        return "the quota is spent: add credit at the provider, or take another model"
    for kind, fix in _FIXES.items():
        if isinstance(error, kind):
            return fix.format(report)
    return "see the message"
