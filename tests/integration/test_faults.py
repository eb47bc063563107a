"""Every fault, in one piece and streamed: one named outcome, its typed error, and never a success.

And a storm of them: 60 five-step episodes while more than a tenth of all calls fails
(``benchmarks/faults.py`` makes 10,000).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from faults.plays import FAULTS, HUGE, text_of
from faults.script import Played
from faults.server import FaultServer, dead_url, fault_server
from faults.storm import NAMES, RETRIES, storm, storm_script
from integration.clock import SILENT, skip
from openconductor import Conductor, Worker, WorkerPool, errors
from openconductor.calls import policies
from openconductor.calls.dispatcher import FanOut
from openconductor.errors import AuthFailed, WorkerError
from openconductor.events import CallEnded, Event, StepText
from openconductor.prompt import render_workflow
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.store import Journal
from openconductor.types import Episode, Message, Step, StepResult, Workflow

DEADLINE_S = 20.0
SUCCESSES = {"answered", "cut"}

ERROR_OF = {
    kind.outcome: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, WorkerError) and kind is not WorkerError
}
"""The error class of each outcome."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(policies, "UNREACHABLE_S", 0.5)


def worker(server: FaultServer | str, name: str) -> Worker:
    url = server if isinstance(server, str) else server.url
    price = {"input": 1, "output": 2}
    provider = OpenAICompatibleProvider(name, base_url=url)
    return Worker(provider, name=name, retries=1, timeout_s=DEADLINE_S, price=price)  # type: ignore[arg-type]


def plan_one_step(messages: list[Message]) -> str:
    return render_workflow(Workflow((Step(0, "Answer."),)))


class Listener:
    """Notes what was said and which calls ended; wants text, or not."""

    def __init__(self, *, wants_text: bool) -> None:
        self.wants_text = wants_text
        self.texts: list[str] = []
        self.outcomes: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepText):
            self.texts.append(event.text)
        elif isinstance(event, CallEnded) and event.step is not None:
            self.outcomes.append(event.call.outcome)


async def skip_deadline(server: FaultServer, listener: Listener, *, speaks: bool) -> None:
    """Let the deadline pass once the request has come, and its text, where the fault sends some."""
    await server.until(lambda s: bool(s.busy and (listener.texts or not speaks)))
    skip(DEADLINE_S)


async def ask(pool: WorkerPool, journal: Journal, listener: Listener) -> Episode:
    """Ask one question, journaled; an error whose fate is *stop* ends in its episode, too."""
    conductor = Conductor(plan_one_step, pool=pool, fallback=False)
    try:
        episode = await conductor.ask("How many?", on_event=FanOut(listener, journal))
    except AuthFailed as error:
        episode = error.episode or pytest.fail("an error whose fate is stop, and no episode")
    finally:
        await pool.aclose()
    return episode


def only_step(episode: Episode) -> StepResult:
    transcript = episode.rounds[0].transcript
    return transcript.results[0]


@pytest.mark.parametrize("stream", [False, True], ids=["piece", "stream"])
@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault_is_one_named_outcome_and_heals_where_it_can(
    name: str, stream: bool, tmp_path: Path
) -> None:
    fault = FAULTS[name]
    wanted = fault.streamed if stream else fault.outcome
    again = wanted not in SUCCESSES and fault.heals and not (stream and fault.speaks)
    listener = Listener(wants_text=stream)
    async with fault_server(Played({"w": [name, "ok"]})) as server, asyncio.TaskGroup() as group:
        if name in SILENT:
            group.create_task(skip_deadline(server, listener, speaks=stream and fault.speaks))
        with Journal(tmp_path / "journal.sqlite") as journal:
            episode = await ask(WorkerPool([worker(server, "w")]), journal, listener)
            rows = [row for row in journal.calls(episode.id) if row.step is not None]
        await server.until(lambda s: not s.busy)

    result = only_step(episode)
    assert [call.outcome for call in result.calls] == [wanted, "answered"] if again else [wanted]
    assert (
        [row.outcome for row in rows]
        == [call.outcome for call in result.calls]
        == listener.outcomes
    )
    assert [record.fate for record in server.records] == ([name, "ok"] if again else [name])

    first = result.calls[0]
    if wanted in SUCCESSES:
        text = "x" * HUGE if name == "huge" else text_of(server.records[0].request)
        assert first.error is None
        assert first.completion is not None and first.completion.text == text == episode.answer
    elif wanted == "refused":  # the answer came, and a filter had stopped it
        assert first.completion is not None and first.completion.finish_reason == "content_filter"
    else:
        assert type(first.error) is type(rows[0].error) is ERROR_OF[wanted]
        assert (first.error.worker, first.error.retryable) == ("w", fault.heals)
        assert first.completion is None
    if again:
        assert episode.answer == text_of(server.records[1].request)
    elif wanted not in SUCCESSES:
        assert episode.answer is None
        assert type(episode.error) is ERROR_OF[wanted]
    if not stream or episode.answer:
        assert "".join(listener.texts) == (episode.answer if stream else "")

    assert result.usage.unpriced_calls == sum(record.unreported for record in server.records)
    assert result.usage.tokens == server.usage().input + server.usage().output


async def test_a_refused_connection_is_an_outcome_of_its_own_and_costs_nothing(
    tmp_path: Path,
) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        listener = Listener(wants_text=False)
        episode = await ask(WorkerPool([worker(dead_url(), "w")]), journal, listener)
        rows = [row for row in journal.calls(episode.id) if row.step is not None]
    assert type(episode.error) is errors.Unreachable
    assert {row.outcome for row in rows} == {"unreachable"} and len(rows) >= 2
    assert only_step(episode).usage.unpriced_calls == 0


async def test_a_storm_ends_in_answers_in_time_and_with_bounded_attempts(
    tmp_path, monkeypatch
) -> None:
    seed, episodes = 1, 60
    monkeypatch.undo()  # patient again: as it is delivered
    async with fault_server(storm_script(seed)) as server:
        with Journal(tmp_path / "journal.sqlite") as journal:
            report = await storm(
                server.url,
                seed=seed,
                episodes=episodes,
                in_flight=15,
                on_event=journal,
            )
            totals = journal.totals()
            endings = Counter(episode.outcome for episode in journal.episodes(limit=None))
    assert report.episodes == report.answered == episodes
    assert report.untyped == []
    assert report.latest <= 1.0  # seconds after the deadline
    assert report.failing >= 0.1
    assert report.most_a_worker <= RETRIES + 1
    assert report.most_a_step <= (RETRIES + 1) * len(NAMES)
    assert report.lies == []
    assert report.misnamed == []
    # The journal has each of these calls, once, and the planner's.
    assert endings == {"answered": episodes}
    steps = Counter[str]()
    for (_, outcome), count in report.met.items():
        steps[outcome] += count
    journaled = {outcome: spent.calls for outcome, spent in totals.by_outcome.items()}
    assert journaled == steps + Counter(answered=totals.by_worker["conductor"].calls)
    assert totals.by_worker["conductor"].calls == episodes
