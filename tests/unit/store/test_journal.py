"""The journal: what is written, what is found again, and many callers at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from journaled import ASKED, PLAN, PRICE, ask, key_for, one_call, pool_of, says, talker
from tests.places import Place

from openconductor import Conductor, Worker
from openconductor.errors import ConfigError, JournalError, Refused, ServerFailed, WorkerError
from openconductor.events import Answered, Asked, CallEnded
from openconductor.store import Journal
from openconductor.store.episode_json import episode_json
from openconductor.types import Completion, Episode, Message, Sampling, Step, Usage, Workflow

ACCEPT = "model_id = []\nsubtasks = []\naccess_list = []"


@pytest.fixture
def journal(place: Place) -> Iterator[Journal]:
    with place.open() as journal:
        yield journal


def keep(journal: Journal, *events: CallEnded, sample: int = 0) -> str:
    """Write calls of episodes that began; the key of the first."""
    for event in events:
        journal(Asked(event.episode, 0, 0.0, "Q", sample))
        journal(event)
    journal.flush()
    return key_for(events[0], sample=sample)


# ── what is written ───────────────────────────────────────────────────────────────────────────────
async def test_an_answered_episode_stands_in_the_file_when_ask_returns(
    journal: Journal, place: Place
) -> None:
    episode = await ask(journal)
    with place.read() as reader:  # another connection: only what is committed
        (kept,) = reader.episodes()
        calls = list(reader.calls(episode.id))
    assert (kept.id, kept.outcome, kept.answer) == (episode.id, "answered", "4")
    assert (kept.usage, kept.seconds) == (episode.usage, episode.seconds)
    places = [(call.worker, call.step, call.outcome) for call in calls]
    assert places == [
        ("conductor", None, "answered"),
        ("w0", 0, "answered"),
        ("w1", 1, "answered"),
    ]
    played = Workflow((Step(0, "Think."), Step(1, "Say it.", (0,))))
    assert list(journal.workflows()) == [(1, 1, played)]
    assert place.rows("SELECT valid, accepted, text FROM rounds") == [(1, 0, PLAN)]
    columns = "step, worker, answered_by, outcome, subtask"
    assert place.rows(f"SELECT {columns} FROM steps ORDER BY step") == [
        (0, 0, 0, "answered", "Think."),
        (1, 1, 1, "answered", "Say it."),
    ]


@pytest.mark.parametrize(
    ("plans", "answers", "options"),
    [
        ([PLAN, ACCEPT], (says("Two."), says("4")), {"max_rounds": 2}),
        ([PLAN], (ServerFailed("down", status=503), says("4")), {}),
        ([PLAN], (ServerFailed("down"), says("4")), {"fallback": True}),
        (["I would rather not."], (says("Two."), says("4")), {}),
        ([Refused("no")], (says("Two."), says("4")), {}),
    ],
    ids=["accepted", "failed", "fallback", "no plan", "refused"],
)
async def test_every_kind_of_episode_reads_back_as_it_was(
    journal: Journal, plans: list[Any], answers: tuple[Any, ...], options: dict[str, Any]
) -> None:
    pool = pool_of(*(talker(answer) for answer in answers), retries=0)
    replies = [says(plan) if isinstance(plan, str) else plan for plan in plans]
    planner = Worker(talker(*replies), name="conductor", price=PRICE)
    asked = Conductor(planner, pool=pool, **options)
    episode = await asked.ask("What is 2 + 2?", on_event=journal)
    stored = journal.episode(episode.id)
    assert stored is not None
    assert stored.outcome == ("failed" if episode.answer is None else "answered")
    assert stored.workers == pool.names
    assert episode_json(stored, stored.workers) == episode_json(episode, pool.names)


async def test_an_episode_that_was_cut_off_is_unfinished_and_keeps_its_calls(
    journal: Journal,
) -> None:
    keep(journal, one_call(), sample=3)
    (kept,) = journal.episodes()
    assert (kept.outcome, kept.sample, kept.seconds, kept.answer) == ("unfinished", 3, 0.0, None)
    assert len(list(journal.calls("e1"))) == 1


async def test_a_call_comes_back_from_the_file_as_it_was(journal: Journal) -> None:
    image = {"type": "image_url", "image_url": MappingProxyType({"url": "data:,x"})}
    stored_image = {"type": "image_url", "image_url": {"url": "data:,x"}}
    system = Message("system", "Be brief.\x00")
    text = "Sëe \ud800 “this”:\n"
    tool_call = {"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}
    said = Completion(
        'Fi"ne\\\n',
        "thought \udfff",
        (tool_call,),
        Usage(10, 2, 5, 3, Decimal("0.00012300"), 0, 1.25),
        "tool_calls",
        {"model": "m1", "messages": [{"role": "user", "content": "Sëe"}], "top_p": 0.1},
    )
    sampling = Sampling(0.2, 9, 7, {"effort": "minimal", "top_p": 0.1, "stop": ["\n"]})
    asked = {"sampling": sampling, "price": PRICE, "identity": "talker m1", "attempt": 2}
    messages = (system, Message("user", text, (image,)))
    journal(Asked("e1", 0, 0.0, messages))
    journal(one_call(said, usage=said.usage, messages=messages, **asked))
    await journal.wait_durable()
    (call,) = journal.calls()
    stored = (system, Message("user", text, (stored_image,)))
    assert journal.find_completion(call.key or "") == said
    assert journal.episodes()[0].question == stored
    assert call.messages == stored
    assert {name: getattr(call, name) for name in asked} == asked
    assert (call.completion, call.usage) == (said, said.usage)


def test_what_many_calls_saw_is_written_once_and_found_in_each(
    journal: Journal, place: Place
) -> None:
    turns = [{"role": "user", "content": "What is 2 + 2?"}]
    sent = {"model": "m", "messages": turns, "stream": True}
    event = one_call(says("4", body_sent=sent))
    key = keep(journal, event, replace(event, episode="e2"))
    found = journal.find_completion(key)
    assert found is not None and found.body_sent == sent
    assert place.rows("SELECT body_sent FROM calls LIMIT 1") == [
        ('{"model":"m","messages":null,"stream":true}',)
    ]
    assert place.rows("SELECT count(*) FROM messages") == [(1,)]
    assert place.rows("SELECT call, turn, role, content FROM turns ORDER BY call") == [
        (number, 0, "user", "What is 2 + 2?") for number in (1, 2)
    ]


def test_messages_that_were_forgotten_are_written_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openconductor.store.writer._REMEMBERED", 0)
    with place.open() as journal:
        keep(journal, one_call())
        keep(journal, one_call(episode="e2"))
        assert [call.messages for call in journal.calls()] == [ASKED, ASKED]
    assert place.rows("SELECT count(*), count(DISTINCT hash) FROM messages") == [(2, 1)]


async def test_numbers_and_bodies_that_no_file_can_hold_break_nothing(journal: Journal) -> None:
    body: dict[Any, Any] = {"n": object(), 3: "three", "x": "\udc00"}
    odd = one_call(usage=Usage(10**30, -(10**30), 5), sampling=Sampling(body=body))
    journal(Asked("e1", 0, 0.0, "\ud800"))
    journal(odd)
    journal(
        Answered("e1", 0, 1.0, Episode("\ud800", (), "\ud800", None, odd.call.usage, 1.0, "e1"))
    )
    await journal.wait_durable()
    assert journal.episodes()[0].answer == "\\ud800"
    assert journal.totals().spent.usage.input_tokens > 10**15


def test_an_id_that_was_heard_before_keeps_its_row(place: Place) -> None:
    for _ in range(2):
        with place.open() as journal:
            keep(journal, one_call(), one_call())
    assert place.rows("SELECT count(*) FROM episodes") == [(1,)]
    assert place.rows("SELECT count(*) FROM calls JOIN episodes ON id = episode") == [(4,)]


def test_reading_a_long_journal_leaves_out_nothing(journal: Journal) -> None:
    ids = [f"e{number}" for number in range(1234)]
    keep(journal, *(one_call(episode=one) for one in ids))
    assert [call.episode for call in journal.calls()] == ids
    assert [episode.id for episode in journal.episodes(limit=None)] == ids[::-1]


# ── what is found again ───────────────────────────────────────────────────────────────────────────
def test_a_call_is_found_when_it_is_on_the_disk_and_in_another_process_later(place: Place) -> None:
    event = one_call()
    with place.open() as journal:
        assert journal.find_completion(keep(journal, event, sample=2)) is not None
        assert journal.find_completion(key_for(event, sample=1)) is None
    with place.read() as reader:
        found = reader.find_completion(key_for(event, sample=2, episode="another", attempt=4))
    assert found is not None and found.text == "4"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"completion": None, "error": ServerFailed("no"), "outcome": "server_failed"}, False),
        ({"completion": None, "outcome": "cancelled"}, False),
        ({"outcome": "empty", "error": WorkerError("blank")}, False),
        ({"replayed": True}, False),
        ({"outcome": "cut"}, True),  # what was cut or filtered was paid for
        ({"outcome": "refused"}, True),
    ],
    ids=["failed", "cancelled", "empty", "replayed", "cut", "refused"],
)
def test_only_a_call_that_was_paid_for_here_is_found(
    journal: Journal, changes: dict[str, Any], found: bool
) -> None:
    assert (journal.find_completion(keep(journal, one_call(**changes))) is not None) is found
    assert len(list(journal.calls())) == 1


def test_a_call_of_an_episode_that_began_unheard_is_kept_and_has_no_key(journal: Journal) -> None:
    # Which sample it is stands in Asked alone; with a guess, one sample would be answered with
    # another's completion.
    journal(one_call())
    journal.flush()
    assert journal.find_completion(key_for(one_call())) is None
    assert [call.key for call in journal.calls("e1")] == [None]


def test_of_two_calls_of_one_key_the_first_is_found(journal: Journal) -> None:
    found = journal.find_completion(
        keep(journal, one_call(says("first")), one_call(says("second"), episode="e2"))
    )
    assert found is not None and found.text == "first"


def test_a_replayed_call_is_written_and_not_counted_as_spent(journal: Journal) -> None:
    keep(journal, one_call(), one_call(replayed=True))
    assert [call.replayed for call in journal.calls()] == [False, True]
    assert journal.totals().spent.calls == 1


# ── durability, many callers ──────────────────────────────────────────────────────────────────────
def test_event_loops_in_several_threads_share_a_journal(place: Place) -> None:
    async def ask_five(journal: Journal) -> None:
        await asyncio.gather(*(ask(journal) for _ in range(5)))

    with place.open() as journal, ThreadPoolExecutor(4) as threads:
        for _ in range(4):
            threads.submit(asyncio.run, ask_five(journal))
    counted = place.rows("SELECT outcome, count(*) FROM episodes GROUP BY outcome")
    assert counted == [("answered", 20)]


async def test_a_waiter_that_is_cancelled_holds_up_nobody(journal: Journal) -> None:
    waiters = [asyncio.create_task(journal.wait_durable()) for _ in range(3)]
    await asyncio.sleep(0)
    waiters[1].cancel()
    outcomes = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(one) for one in outcomes] == [type(None), asyncio.CancelledError, type(None)]


async def test_closing_writes_what_was_handed_over_and_then_all_use_is_an_error(
    place: Place,
) -> None:
    journal = place.open()
    for number in range(500):
        journal(one_call(episode=f"e{number}"))
    journal.close()
    journal.close()
    assert place.rows("SELECT count(*) FROM calls") == [(500,)]
    for use in (lambda: journal(one_call()), journal.flush, lambda: journal.put_record("k", {})):
        with pytest.raises(JournalError, match="closed"):
            use()
    with pytest.raises(JournalError, match="closed"):
        await journal.wait_durable()
    with pytest.raises(JournalError):
        journal.totals()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_error_of_the_writing_itself_reaches_everyone_who_uses_the_journal(
    place: Place,
) -> None:
    journal = place.open()
    journal(one_call(worker=3))  # type: ignore[arg-type] - no such event comes from here
    with pytest.raises(JournalError, match="the writer ended in"):
        await asyncio.wait_for(journal.wait_durable(), 60)
    with pytest.raises(JournalError):
        journal.close()


def test_an_error_on_the_way_out_is_not_hidden_by_the_journals_own(place: Place) -> None:
    def fail() -> None:
        with place.open(redact=lambda text: str(1 / 0)) as journal:
            journal(one_call())
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        fail()
    assert any("redact" in note for note in caught.value.__notes__)


# ── outcomes ──────────────────────────────────────────────────────────────────────────────────────
def test_an_outcome_comes_back_as_it_was_in_another_process_later(place: Place) -> None:
    record = {
        "correct": None,
        "answer": "²\ud800\0",
        "rounds": [{"steps": [[0, "Do.", "all"]]}],
        "seconds": 0.25,
    }
    before = time.time()
    with place.open() as journal:
        journal.put_record("gym/1", record)
        journal.put_record("gym/2", {})
    with place.read() as reader:
        first, second = reader.records()
    assert [(one.key, one.value) for one in (first, second)] == [("gym/1", record), ("gym/2", {})]
    assert before <= first.written <= time.time()


def test_of_several_outcomes_of_one_key_the_last_counts_and_none_is_lost(journal: Journal) -> None:
    for number in range(1200):
        journal.put_record(f"k{number % 600}", {"number": number})
    journal.flush()
    assert [one.value["number"] for one in journal.records()] == list(range(600, 1200))
    assert [one.value["number"] for one in journal.records(history=True)] == list(range(1200))


def test_what_content_may_be_is_said(place: Place) -> None:
    with pytest.raises(ConfigError, match="'full' or 'none'"):
        place.open(content="some")  # type: ignore[arg-type]
