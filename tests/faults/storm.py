"""A storm: many episodes over a pool whose calls fail all the time, and a report of them.

Each episode is a tree of five steps over 26 workers, drawn from the seed: 24 that fail in every way
there is, one where nobody listens, one that is healthy. Fallback is on and every episode has a
deadline. Half of them stream.

Afterwards each call is held against the fault that it met, which follows from the seed
(``script``): one that got no whole answer and counts as answered is a *lie*, one whose outcome has
another fault's name is *misnamed*.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from faults.plays import FAULTS, HUGE, text_of
from faults.script import Request, Seeded, read_request
from faults.server import dead_url
from openconductor import Conductor, Worker, WorkerPool
from openconductor.calls.dispatcher import FanOut
from openconductor.errors import OpenConductorError
from openconductor.events import Event
from openconductor.prompt import render_workflow
from openconductor.protocols import OnEvent
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.providers.wire.chat import encode, request_body
from openconductor.types import Budget, Call, Episode, Message, Step, Workflow

TREE: Sequence[Sequence[int]] = ([], [], [0], [1], [2, 3])
FLAKY = tuple(f"flaky-{number}" for number in range(24))
DEAD = "dead"
STEADY = "steady"
NAMES = (STEADY, DEAD, *FLAKY)  # so that a fallback comes to the healthy one last

SHARE = 0.28
"""The share of a flaky worker's requests that meet a fault; then a fifth of all requests fails."""

# A wrong key's fate is to stop everything, whoever else is healthy. Answers of megabytes are a few,
# for their bytes.
WEIGHTS = {name: 1.0 for name in FAULTS if name not in ("ok", "401", "403")} | {
    "huge": 0.05,
    "endless": 0.05,
}

SLOW = ("timeout", "cancelled")
"""Outcomes that this machine, where it is too busy, brings about by itself."""

RETRIES = 2
TIMEOUT_S = 1.0
READ_TIMEOUT_S = 0.5
"""Of the flaky ones. The healthy worker gets the whole deadline, on a slow machine too."""
DEADLINE_S = 20.0
PRICE = {"input": "1.25", "output": "10", "cached": "0.125"}


def storm_script(seed: int) -> Seeded:
    """Return the faults of the storm of this seed."""
    return Seeded(seed, dict.fromkeys(FLAKY, SHARE), WEIGHTS)


@dataclass(slots=True)
class Report:
    """The ends of a storm's episodes and calls.

    Attributes:
        answered: episodes with an answer.
        errors: episodes that ended in a typed error, by class.
        untyped: anything else that came out of ``ask``; expected none.
        latest: by how many seconds the latest episode passed its deadline; negative where none did.
        longest: the wall seconds of the longest episode.
        calls: attempts that were made (those that a circuit held back were not).
        met: how many calls met which (fault, outcome); the fault of a call to nobody is ``refused
            connection``.
        sent, failed: calls that came to the server (not those to nobody), and those of them without
            an answer.
        slow: calls whose outcome is a timeout or a cancellation though their fault is another one.
        lies, misnamed: calls whose outcome does not fit their fault; expected none.
        most_a_step, most_a_worker: the most calls of one step, and of one step at one worker.
        seconds: wall time of it all.
    """

    answered: int = 0
    errors: Counter[str] = field(default_factory=Counter[str])
    untyped: list[str] = field(default_factory=list[str])
    latest: float = float("-inf")
    longest: float = 0.0
    calls: int = 0
    met: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    sent: int = 0
    failed: int = 0
    slow: int = 0
    lies: list[str] = field(default_factory=list[str])
    misnamed: list[str] = field(default_factory=list[str])
    most_a_step: int = 0
    most_a_worker: int = 0
    seconds: float = 0.0

    @property
    def episodes(self) -> int:
        """The number of episodes."""
        return self.answered + sum(self.errors.values()) + len(self.untyped)

    @property
    def failing(self) -> float:
        """The share of the calls that came to the server and failed."""
        return self.failed / self.sent if self.sent else 0.0


def storm_pool(url: str) -> WorkerPool:
    """The workers, behind one server and one address where nobody listens."""
    dead = dead_url()
    return WorkerPool([storm_worker(name, dead if name == DEAD else url) for name in NAMES])


def storm_worker(name: str, url: str) -> Worker:
    """A worker whose model is its name."""
    total, silence = (DEADLINE_S, None) if name == STEADY else (TIMEOUT_S, READ_TIMEOUT_S)
    provider = OpenAICompatibleProvider(name, base_url=url, read_timeout_s=silence)
    return Worker(provider, name=name, price=PRICE, timeout_s=total, retries=RETRIES)  # type: ignore[arg-type]


def planner(seed: int):
    """Plan the tree for each question; its workers are drawn from the seed and the number.

    The healthy worker, 0, is never planned: it comes in where others failed.
    """

    def plan(messages: list[Message]) -> str:
        number = re.findall(r"Question (\d+):", messages[-1].content)[-1]
        draws = random.Random(f"{seed} {number}")
        steps = [
            Step(draws.randrange(1, len(NAMES)), f"Part {i} of {number}.", access)
            for i, access in enumerate(TREE)
        ]
        return render_workflow(Workflow(tuple(steps)))

    return plan


async def storm(
    url: str, *, seed: int, episodes: int, in_flight: int, on_event: OnEvent | None = None
) -> Report:
    """Ask questions of the server at ``url``, which plays ``storm_script(seed)``."""
    report, script = Report(), storm_script(seed)
    pool = storm_pool(url)
    conductor = Conductor(planner(seed), pool=pool, fallback=True)
    numbers = iter(range(episodes))
    sinks = () if on_event is None else (on_event,)

    async def lane() -> None:
        for number in numbers:
            streams = number % 2 == 1
            heard = FanOut(*sinks, _listen) if streams else FanOut(*sinks)
            episode = await _ask(conductor, number, report, heard)
            if episode is not None:
                _take_in(episode, report, script, streams=streams)

    begun = time.perf_counter()
    try:
        await asyncio.gather(*(lane() for _ in range(in_flight)))
    finally:
        await pool.aclose()
    report.seconds = time.perf_counter() - begun
    return report


def _listen(event: Event) -> None:
    """Wants text."""


async def _ask(conductor: Conductor, number: int, report: Report, sink: OnEvent) -> Episode | None:
    question, budget = f"Question {number}: how many?", Budget(seconds=DEADLINE_S)
    begun = time.perf_counter()
    try:
        episode = await conductor.ask(question, budget=budget, on_event=sink)
    except OpenConductorError as error:
        episode = error.episode
        report.errors[type(error).__name__] += 1
    except Exception as error:  # noqa: BLE001 - what must not be, counted
        report.untyped.append(f"question {number}: {error!r}")
        return None
    else:
        if episode.answer is not None:
            report.answered += 1
        else:
            report.errors[type(episode.error).__name__] += 1
    seconds = time.perf_counter() - begun
    report.longest = max(report.longest, seconds)
    report.latest = max(report.latest, seconds - DEADLINE_S)
    return episode


def _take_in(episode: Episode, report: Report, script: Seeded, *, streams: bool) -> None:
    """Hold every call of the steps against what it must have met."""
    transcripts = [played.transcript for played in episode.rounds if played.transcript]
    for result in (result for transcript in transcripts for result in transcript.results):
        report.most_a_step = max(report.most_a_step, len(result.calls))
        report.calls += len(result.calls)
        seen: Counter[str] = Counter()
        lost: Counter[str] = Counter()  # given up on, perhaps before they came to the server
        for call in result.calls:
            if call.worker == DEAD:
                _check_dead(call, report)
            else:
                request = read_request(
                    encode(request_body(call.worker, call.messages, call.sampling, stream=streams))
                )
                numbers = range(seen[call.worker], seen[call.worker] - lost[call.worker] - 1, -1)
                requests = [replace(request, seen=number) for number in numbers]
                _check(call, requests, report, script)
            seen[call.worker] += 1
            lost[call.worker] += call.outcome in SLOW
        report.most_a_worker = max(report.most_a_worker, *seen.values(), 0)


def _check_dead(call: Call, report: Report) -> None:
    """Check a call to the address where nobody listens."""
    report.met["refused connection", call.outcome] += 1
    if call.outcome != "unreachable" and call.outcome not in SLOW:
        report.misnamed.append(f"{DEAD}: recorded as {call.outcome!r} ({call.error})")


def _check(call: Call, requests: Sequence[Request], report: Report, script: Seeded) -> None:
    """Check one call, which came to the server as one of these requests."""
    fate = script.fate(requests[0])
    for request in requests:
        if _outcome(request, script.fate(request)) == call.outcome:
            fate = script.fate(request)
            break
    wanted = _outcome(requests[0], fate)
    report.met[fate, call.outcome] += 1
    report.sent += 1
    report.failed += call.outcome not in ("answered", "cut")
    form = "streamed" if requests[0].stream else "in one piece"
    where = f"{call.worker}: met {fate!r} ({form}), recorded as {call.outcome!r}"
    if call.outcome == wanted:
        texts = (text_of(requests[0]), "x" * HUGE)
        if call.completion is not None and call.completion.text not in texts:
            report.lies.append(f"{where}, with {call.completion.text[:80]!r}")
    elif call.outcome in SLOW:
        report.slow += 1
    elif call.outcome in ("answered", "cut"):
        report.lies.append(where)
    else:
        report.misnamed.append(f"{where}, expected {wanted!r} ({call.error})")


def _outcome(request: Request, fate: str) -> str:
    return FAULTS[fate].streamed if request.stream else FAULTS[fate].outcome
