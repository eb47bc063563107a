"""An episode that is handed over as a whole reads as if its events had come one by one."""

from __future__ import annotations

import pytest
from tests.places import OpenPlace, Place
from tests.unit.store.journaled import PLAN, pool_of, says, talker

from openconductor import Conductor, Episode, Journal, Message, Unreachable, WorkerPool
from openconductor.baselines.single import SingleWorker
from openconductor.events import Answered, CallEnded, Event
from openconductor.protocols import Orchestrator
from openconductor.store.episode_json import episode_json

ROWS = "SELECT count(*) FROM {}"


def direct(*said: object) -> SingleWorker:
    pool: WorkerPool = pool_of(talker(*said), retries=1)  # type: ignore[arg-type]
    return SingleWorker(pool, 0)


CASES: dict[str, tuple[Orchestrator, bool]] = {
    "answered": (direct(says("4")), True),
    "answered at the second attempt": (direct(Unreachable("down"), says("4")), True),
    "tools called": (direct(says("", tool_calls=({"id": "c", "function": {"name": "f"}},))), True),
    "failed": (direct(Unreachable("down")), True),
    "planned": (Conductor(talker(says(PLAN)), pool=pool_of(talker(says("4")), talker())), False),
}


async def play(orchestrator: Orchestrator) -> list[Event]:
    events: list[Event] = []
    question = [Message("system", "Be short."), Message("user", "What is 2 + 2?")]
    await orchestrator.ask(question, on_event=events.append)
    return events


def read(journal: Journal) -> Episode:
    journal.flush()
    (episode,) = journal.episodes()
    return episode


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("content", ["full", "none"])
async def test_a_whole_episode_reads_as_its_events_do(
    new_place: OpenPlace, case: str, content
) -> None:
    orchestrator, is_one_row = CASES[case]
    events = await play(orchestrator)
    place = new_place()
    whole = place.open(content=content)
    single = new_place().open(content=content)
    with whole, single:
        whole.put_episode(events)
        for event in events:
            single(event)
        forms = [episode_json(read(journal), {0: "w0"}) for journal in (whole, single)]
        assert forms[0] == forms[1]
        assert whole.totals() == single.totals()
        assert abs((whole.episodes()[0].started or 0) - (single.episodes()[0].started or 0)) < 5
        first, second = ([call.key for call in journal.calls()] for journal in (whole, single))
        assert first == second
    for table in ("steps", "rounds"):
        (count,) = place.rows(ROWS.format(table))[0]
        assert (count == 0) is is_one_row


async def test_an_episode_that_was_cut_off_keeps_its_calls(place: Place) -> None:
    events = await play(direct(says("4")))
    kept = [event for event in events if not isinstance(event, Answered)]
    with place.open() as journal:
        journal.put_episode(kept)
        episode = read(journal)
        ended = [event for event in events if isinstance(event, CallEnded)]
        assert episode.rounds[0].transcript is not None
        assert len(list(journal.calls())) == len(ended) == 1
        assert journal.episodes(outcome="unfinished") == [episode]
