"""Find out what each worker of a pool can do, by asking it.

A worker is asked up to four times, in a few tokens each: plainly, streaming, with a tool, with an
image. It counts as usable if the first two bring whole answers; tools and images are reported and
are no faults. Each call is made once, without the worker's retries and limits, so that the report
is about the worker itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import openconductor as oc
from openconductor.calls.prices import FoundPrice, find_price, price_line
from openconductor.config import load_toml
from openconductor.pool import PoolFile, WorkerTable
from openconductor.providers.openai_compatible import OpenAICompatibleProvider

Able = Literal["yes", "no", "accepted", "failed", "untried"]

MAX_TOKENS = 64
"""The most that one call of the check writes, unless the worker's ``body`` says how long it thinks."""
SETTINGS = "settings"

_COUNT = (oc.Message("user", "Count from 1 to 5 in digits, one a line, nothing else."),)
_WEATHER = (oc.Message("user", "What is the weather in Paris? Use the tool."),)
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_FUNCTION = {"name": "weather", "description": "The weather in a city.", "parameters": _CITY}
_TOOLS = {"tools": [{"type": "function", "function": _FUNCTION}]}
_VENDORS = ("anthropic", "google", "pydantic_ai")
"""Beside the OpenAI-compatible ones, the providers that are asked about tools and images."""

# A white square of 32 x 32 pixels: some vision models refuse smaller ones.
_PNG = "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAFklEQVR42mP4TwAwjCoYVTCqYKQqAAA/aPwuqUTQyAAAAABJRU5ErkJggg=="
_PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}"}}
_SIGHT = (oc.Message("user", "What colour is this? One word.", (_PICTURE,)),)


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
class KeyReport:
    """The environment variable that holds a worker's key (None: it needs none), and whether that is set."""

    env: str | None = None
    present: bool | None = None


@dataclass(slots=True)
class StreamReport:
    """Whether a streamed call brought a whole answer (``yes``: in pieces), and how."""

    works: Able = "untried"
    pieces: int | None = None
    first_text_seconds: float | None = None
    usage_reported: bool | None = None


@dataclass(slots=True)
class WorkerReport:
    """What is known of a worker, as ``--json`` prints it; None (and ``untried``) is not known.

    Attributes:
        price: what the pool file says.
        known_price: what the price list says.
        reachable: whether a plain call brought a whole answer.
        latency_seconds: how long this took.
        finish_reason: why the plain answer ended.
        usage_reported: whether the server said how many tokens it used.
        tools: ``yes`` called one; ``accepted`` did not call it.
        images: ``accepted`` or not.
        calls, spent: how many calls the check made, and what they used.
    """

    ordinal: int
    name: str
    provider: str
    model: str
    base_url: str | None = None
    usable: bool = True
    key: KeyReport = field(default_factory=KeyReport)
    price: oc.Price | None = None
    known_price: FoundPrice = field(default_factory=lambda: FoundPrice(None))
    reachable: bool | None = None
    latency_seconds: float | None = None
    finish_reason: str | None = None
    usage_reported: bool | None = None
    streaming: StreamReport = field(default_factory=StreamReport)
    tools: Able = "untried"
    images: Able = "untried"
    calls: int = 0
    spent: oc.Usage = field(default_factory=oc.Usage)
    faults: list[Fault] = field(default_factory=list[Fault])

    def add(self, fault: Fault) -> None:
        """Add a fault; a fatal one makes the worker unusable."""
        self.faults.append(fault)
        self.usable = self.usable and not fault.fatal


async def check_pool(path: Path, timeout_s: float | None) -> list[WorkerReport]:
    """Check every worker of a pool file, side by side.

    Args:
        path: the pool file.
        timeout_s: the deadline of each call, in seconds (a worker takes at most twice that); None
            makes no call.

    Raises:
        ConfigError: the file cannot be read, has an unknown key, or names a worker twice. What is
            wrong with a single worker is a fault in its report.
    """
    reports: list[WorkerReport] = []
    built: list[tuple[WorkerReport, oc.Worker]] = []
    for ordinal, entry in enumerate(load_toml(path, PoolFile).worker):
        report = WorkerReport(
            ordinal, entry.name, entry.provider, entry.model, entry.base_url, price=entry.price
        )
        reports.append(report)
        try:
            worker = entry.build()
        except oc.ConfigError as error:
            report.add(Fault(SETTINGS, str(error), f"change the worker {entry.name!r} in {path}"))
        else:
            _check_settings(report, entry, worker)
            built.append((report, worker))
    if built:
        pool = oc.WorkerPool([worker for _, worker in built])  # refuses two of one name
        try:
            if timeout_s is not None:
                await asyncio.gather(*(_ask(report, worker, timeout_s) for report, worker in built))
        finally:
            await pool.aclose()
    return reports


def _check_settings(report: WorkerReport, entry: WorkerTable, worker: oc.Worker) -> None:
    provider = worker.resolved
    report.base_url = provider.base_url or entry.base_url
    report.key.env = provider.api_key_env or entry.api_key_env
    if report.key.env is not None:
        report.key.present = bool(os.environ.get(report.key.env, "").strip())
        if not report.key.present:
            unset = f"the environment variable {report.key.env} is not set"
            report.add(Fault("key", unset, f"export {report.key.env}=…"))
    if provider.prices_itself:
        return
    report.known_price = known = find_price(entry.model, base_url=report.base_url, body=entry.body)
    if report.price is None:
        fix = "price = { input = …, output = … }  # US dollars a million tokens; 0 where it costs you nothing"
        seen = f"the pool file has no price, and none is known: {known.reason}"
        if known.price is not None:
            seen, fix = (
                f"the pool file has no price; {known.source} knows one",
                price_line(known.price),
            )
        report.add(Fault("price", seen, fix, fatal=False))


# ── the calls ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class _Probe:
    """One call of the check: its answer or its error, how long it took, and when pieces of text came."""

    said: oc.Completion | None = None
    error: oc.OpenConductorError | None = None
    seconds: float = 0.0
    texts: list[float] = field(default_factory=list[float])


async def _ask(report: WorkerReport, worker: oc.Worker, timeout_s: float) -> None:
    """Make up to four calls, and write into the report what they brought to light."""
    if report.key.present is False:
        return
    sampling = worker.sampling
    if (
        not sampling.body
    ):  # a body may hold a budget for thinking, which a small limit would contradict
        sampling = replace(sampling, max_tokens=min(sampling.max_tokens or MAX_TOKENS, MAX_TOKENS))
    seconds = min(worker.timeout_s or timeout_s, timeout_s)
    asked = replace(
        worker,
        sampling=sampling,
        timeout_s=seconds,
        retries=0,
        max_concurrency=None,
        rpm=None,
        tpm=None,
    )
    first = await _probe(report, asked, _COUNT)
    report.reachable = first.said is not None
    if first.said is None:
        report.add(_failed("answer", first.error, report))
        return
    report.latency_seconds, report.finish_reason = first.seconds, first.said.finish_reason
    report.usage_reported = bool(first.said.usage.tokens)
    further = [_probe(report, asked, _COUNT, stream=True)]
    if isinstance(worker.provider, OpenAICompatibleProvider) or report.provider in _VENDORS:
        with_tool = replace(asked, sampling=replace(sampling, body={**sampling.body, **_TOOLS}))
        further += [_probe(report, with_tool, _WEATHER), _probe(report, asked, _SIGHT)]
    streamed, *others = await asyncio.gather(*further)
    stream = report.streaming
    if streamed.said is None:
        stream.works = "failed"
        report.add(_failed("streaming", streamed.error, report))
    else:
        stream.pieces = len(streamed.texts)
        stream.works = "yes" if stream.pieces > 1 else "accepted"
        stream.first_text_seconds = streamed.texts[0] if streamed.texts else None
        stream.usage_reported = bool(streamed.said.usage.tokens)
    if report.usage_reported is False or stream.usage_reported is False:
        when = "while streaming, " if report.usage_reported else ""
        said = f"{when}the server does not say how many tokens it used"
        fix = "let it report usage (OpenAI's `stream_options.include_usage`); until then its cost is not known"
        report.add(Fault("usage", said, fix, fatal=False))
    if others:
        tool, picture = others
        report.tools = "yes" if tool.said is not None and tool.said.tool_calls else _able(tool)
        report.images = _able(picture)


async def _probe(
    report: WorkerReport, worker: oc.Worker, messages: Sequence[oc.Message], *, stream: bool = False
) -> _Probe:
    """Call once; what it used is added to the report."""
    probe = _Probe()
    clock = asyncio.get_running_loop().time
    begun = clock()

    def hear(event: oc.Event) -> None:
        if isinstance(event, oc.CallEnded):
            report.calls += 1
            report.spent += event.call.usage

    def hear_text(text: str) -> None:
        if text:
            probe.texts.append(clock() - begun)

    try:
        call = oc.CallContext(origin=begun, on_event=hear)
        probe.said = await worker.complete(
            messages, call=call, on_text=hear_text if stream else None
        )
    except oc.OpenConductorError as error:
        probe.error = error
    probe.seconds = clock() - begun
    return probe


def _able(probe: _Probe) -> Able:
    """Whether the server took a request that it may not know; a limit reached before any text is no refusal."""
    if probe.said is not None:
        return "accepted"
    status = getattr(probe.error, "status", None)
    return (
        "no"
        if isinstance(probe.error, oc.Rejected) or status in (400, 404, 415, 422, 501)
        else "failed"
    )


def _failed(what: str, error: oc.OpenConductorError | None, report: WorkerReport) -> Fault:
    message = error.message if isinstance(error, oc.WorkerError) else str(error)
    return Fault(what, message, _fix(error, report))


_FIXES: dict[type[oc.OpenConductorError], str] = {
    oc.RateLimited: "wait, and slow the worker down: rpm = …, tpm = … or max_concurrency = …",
    oc.WorkerTimeout: "wait longer (--timeout, timeout_s), or look whether the server is busy",
    oc.Unreachable: "start the server, or correct base_url (it is {0.base_url})",
    oc.Rejected: "correct model (it is {0.model!r}), base_url, sampling or body",
    oc.MalformedResponse: "correct base_url (it is {0.base_url}): where the API begins; most of them end in /v1",
    oc.TruncatedResponse: "its answers end without saying why, so a cut one looks like a whole one: update the server",
    oc.EmptyResponse: "let it write more (sampling.max_tokens) or think less (body)",
    oc.ServerFailed: "the server itself fails: try again later, or look at its log",
    oc.ConfigError: "correct sampling or body",
}


def _fix(error: oc.OpenConductorError | None, report: WorkerReport) -> str:
    """What would put a failed call right."""
    if isinstance(error, oc.AuthFailed) and report.key.env is None:
        return 'api_key_env = "…", the name of the environment variable that holds its key'
    if isinstance(error, oc.AuthFailed):
        return f"export {report.key.env}=… with a key that this server knows"
    if isinstance(error, oc.RateLimited) and not error.retryable:
        return "the quota is spent: add credit at the provider, or take another model"
    return next(
        (fix.format(report) for kind, fix in _FIXES.items() if isinstance(error, kind)),
        "see the message",
    )
