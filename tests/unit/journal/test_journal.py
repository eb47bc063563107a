"""The journal: what is written, what is found again, and many callers at once."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from journaled import PLAN, PRICE, Talker, ask, key_for, one_call, pool_of, rows, says

from openconductor import Conductor, Worker, WorkerPool
from openconductor.errors import ConfigError, JournalError, ServerFailed, WorkerError
from openconductor.events import Answered, Asked
from openconductor.journal import Journal
from openconductor.types import Completion, Episode, Message, Price, Sampling, Step, Usage, Workflow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────────────
async def test_an_answered_episode_stands_in_the_file_when_ask_returns(path: Path) -> None:
    with Journal(path) as journal:
        episode = await ask(journal)
        with Journal.reading(path) as reader:  # another connection: only what is committed
            kept = list(reader.episodes())
            calls = list(reader.calls(episode.id))
        assert [(one.id, one.outcome, one.answer, one.question) for one in kept] == [
            (episode.id, "answered", "4", "What is 2 + 2?")
        ]
        assert kept[0].usage == episode.usage
        assert kept[0].seconds == episode.seconds
        assert [(call.worker, call.round, call.step, call.outcome) for call in calls] == [
            ("conductor", 0, None, "answered"),
            ("w0", 0, 0, "answered"),
            ("w1", 0, 1, "answered"),
        ]
        assert list(journal.workflows()) == [(1, 1, Workflow((Step(0, "Think."), Step(1, "Say it.", (0,)))))]
    assert rows(path, "SELECT valid, accepted, text FROM rounds") == [(1, 0, PLAN)]
    assert rows(path, "SELECT step, worker, answered_by, outcome, subtask FROM steps ORDER BY step") == [
        (0, 0, 0, "answered", "Think."),
        (1, 1, 1, "answered", "Say it."),
    ]


async def test_the_sums_agree_to_the_token_and_the_last_digit_of_a_dollar(path: Path) -> None:
    price = Price(Decimal("0.1000000000000000001"), Decimal("0.3"))
    workers = [Worker(Talker(ServerFailed("no"), says("Two.")), name="a", price=price, retries=1)]
    workers.append(Worker(Talker(says("4")), name="b"))  # no price: unknown, and not free
    with Journal(path) as journal:
        episode = await ask(journal, pool=WorkerPool(workers))
        totals = journal.totals()
        charged = journal.calls()
        assert sum((call.usage for call in charged), Usage()) == episode.usage
    assert totals.spent.usage.dollars == episode.usage.dollars
    assert totals.spent.usage.tokens == episode.usage.tokens == 3 * 107
    assert totals.spent.usage.unpriced_calls == 1
    assert totals.by_worker["b"].usage.unpriced_calls == 1
    assert totals.by_worker["a"].usage.dollars == price.dollars(Usage(input_tokens=100, output_tokens=7))
    assert totals.by_outcome["answered"].calls == 3


async def test_money_spent_below_another_orchestrator_is_counted_once(path: Path) -> None:
    inner = Conductor(
        Worker(Talker(says(PLAN)), name="inner", price=PRICE), pool=pool_of(Talker(says("Two.")), Talker(says("4")))
    )
    plan = "model_id = [0]\nsubtasks = ['Ask the others.']\naccess_list = [[]]"
    with Journal(path) as journal:
        outer = await ask(journal, pool=WorkerPool([Worker(inner, name="team")]), plan=plan)
        assert [one.id for one in journal.episodes()] == [outer.id]
        assert journal.totals().spent.usage.dollars == outer.usage.dollars
        assert journal.totals().spent.calls == 2
        assert [call.nested for call in journal.calls(outer.id)] == [False, True]


async def test_what_failed_is_named_and_what_was_not_reached_has_its_row(path: Path) -> None:
    pool = pool_of(Talker(ServerFailed("overloaded", status=503)), Talker(says("4")), retries=0)
    with Journal(path) as journal:
        episode = await ask(journal, pool=pool)
        assert episode.answer is None
        (kept,) = journal.episodes()
        assert (kept.outcome, kept.error_type) == ("failed", "ServerFailed")
        failed = list(journal.calls())[-1]
        assert (failed.outcome, failed.status, failed.completion, failed.usage.tokens) == (
            "server_failed",
            503,
            None,
            0,
        )
        assert "overloaded" in (failed.error or "")
    assert rows(path, "SELECT step, outcome, answered_by FROM steps ORDER BY step") == [
        (0, "failed", None),
        (1, "not_reached", None),
    ]


async def test_an_invalid_plan_is_kept_with_its_reason(path: Path) -> None:
    with Journal(path) as journal:
        await ask(journal, plan="I would rather not.")
    assert rows(
        path, "SELECT valid, json_extract(error, '$.type'), json_extract(error, '$.reason'), text FROM rounds"
    ) == [(0, "WorkflowError", "missing_list", "I would rather not.")]


async def test_an_accepting_round_is_kept_as_one(path: Path) -> None:
    accept = "model_id = []\nsubtasks = []\naccess_list = []"
    planner = Talker(says(PLAN), says(accept))
    conductor = Conductor(planner, pool=pool_of(Talker(says("Two.")), Talker(says("4"))), max_rounds=2)
    with Journal(path) as journal:
        await conductor.ask("What is 2 + 2?", on_event=journal)
    assert rows(path, "SELECT round, accepted FROM rounds") == [(0, 0), (1, 1)]


async def test_a_step_that_another_worker_answered_says_so(path: Path) -> None:
    pool = pool_of(Talker(ServerFailed("down")), Talker(says("4")), retries=0)
    with Journal(path) as journal:
        await ask(journal, pool=pool, fallback=True)
        assert [call.worker for call in journal.calls() if call.step == 0] == ["w0", "w1"]
    assert rows(path, "SELECT worker, answered_by FROM steps WHERE step = 0") == [(0, 1)]


async def test_an_episode_that_was_cut_off_is_unfinished_and_keeps_its_calls(path: Path) -> None:
    with Journal(path) as journal:
        journal(Asked("e1", 0, 0.0, "What is 2 + 2?", 3))
        journal(one_call())
        await journal.wait_durable()
        (kept,) = journal.episodes()
        assert (kept.outcome, kept.sample, kept.seconds, kept.answer) == ("unfinished", 3, None, None)
        assert len(list(journal.calls("e1"))) == 1


async def test_a_call_comes_back_from_the_file_as_it_was(path: Path) -> None:
    image = {"type": "image_url", "image_url": MappingProxyType({"url": "data:,x"})}
    messages = (Message("system", "Be brief.\x00"), Message("user", "Sëe \ud800 “this”:\n", (image,)))
    sampling = Sampling(0.2, 9, 7, {"effort": "minimal", "top_p": 0.1, "stop": ["\n"]})
    said = Completion(
        'Fi"ne\\\n',
        "thought \udfff",
        ({"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}},),
        Usage(10, 2, 5, 3, Decimal("0.00012300"), 0, 1.25),
        "tool_calls",
        {"model": "m1", "messages": [{"role": "user", "content": "Sëe"}], "top_p": 0.1},
    )
    event = one_call(
        said, messages=messages, sampling=sampling, usage=said.usage, price=PRICE, identity="talker m1", attempt=2
    )
    with Journal(path) as journal:
        journal(Asked("e1", 0, 0.0, messages))
        journal(event)
        await journal.wait_durable()
        (call,) = journal.calls()
        assert journal.find_completion(call.key or "") == said
        assert next(iter(journal.episodes())).question == tuple(
            replace(one, parts=tuple(dict(part) | {"image_url": {"url": "data:,x"}} for part in one.parts))
            for one in messages
        )
    assert call.messages == messages
    assert call.sampling == sampling
    assert call.completion == said
    assert (call.price, call.usage, call.attempt, call.identity) == (PRICE, said.usage, 2, "talker m1")


async def test_a_body_that_repeats_the_messages_is_kept_whole_and_written_once(path: Path) -> None:
    sent = {"model": "m", "messages": [{"role": "user", "content": "What is 2 + 2?"}], "stream": True}
    event = one_call(says("4", body_sent=sent))
    with Journal(path) as journal:
        journal(Asked("e1", 0, 0.0, "Q"))
        journal(event)
        journal.flush()
        found = journal.find_completion(key_for(event))
        assert found is not None
        assert found.body_sent == sent
    kept = rows(path, "SELECT body_sent FROM calls")
    assert kept == [('{"model":"m","messages":null,"stream":true}',)]


async def test_the_turns_of_a_request_can_be_asked_for_in_sql(path: Path) -> None:
    with Journal(path) as journal:
        await ask(journal)
        (call,) = (one for one in journal.calls() if one.step == 1)
    turns = rows(path, "SELECT turn, role, content FROM turns JOIN calls ON call = calls.number WHERE step = 1")
    assert turns == [(index, turn.role, turn.content) for index, turn in enumerate(call.messages or ())]
    assert turns[-2][2] == "Two and two."


async def test_numbers_and_bodies_that_no_file_can_hold_break_nothing(path: Path) -> None:
    body: dict[Any, Any] = {"n": object(), 3: "three", "x": "\udc00"}
    odd = one_call(usage=Usage(10**30, -(10**30), 5), sampling=Sampling(body=body))
    with Journal(path) as journal:
        journal(Asked("e1", 0, 0.0, "\ud800"))
        journal(odd)
        journal(Answered("e1", 0, 1.0, Episode("\ud800", (), "\ud800", None, odd.call.usage, 1.0, "e1")))
        await journal.wait_durable()
        assert next(iter(journal.episodes())).answer == "\\ud800"
        assert journal.totals().spent.usage.input_tokens > 10**15


async def test_a_call_of_an_episode_that_began_unheard_is_kept_and_has_no_key(path: Path) -> None:
    # Which sample it is stands in Asked alone; with a guess, one sample would be answered with another's completion.
    event = one_call()
    with Journal(path) as journal:
        journal(event)
        assert journal.find_completion(key_for(event)) is None
        journal.flush()
        assert journal.find_completion(key_for(event)) is None
        assert [call.key for call in journal.calls("e1")] == [None]


async def test_an_id_that_was_heard_before_keeps_its_row(path: Path) -> None:
    for _ in range(2):
        with Journal(path) as journal:
            for _ in range(2):
                journal(Asked("e1", 0, 0.0, "Q"))
                journal(one_call())
    assert rows(path, "SELECT count(*) FROM episodes") == [(1,)]
    assert rows(path, "SELECT count(*) FROM calls JOIN episodes ON id = episode") == [(4,)]


def test_reading_a_long_journal_leaves_out_nothing(path: Path) -> None:
    with Journal(path) as journal:
        for number in range(1234):
            journal(Asked(f"e{number}", 0, 0.0, "Q"))
            journal(one_call(episode=f"e{number}"))
        journal.flush()
        assert [one.id for one in journal.episodes()] == [f"e{number}" for number in range(1234)]
        assert len(list(journal.calls())) == 1234


# ── what is found again ──────────────────────────────────────────────────────────────────────────────────────────────
async def test_a_call_is_found_when_it_is_on_the_disk_and_in_another_process_later(path: Path) -> None:
    event = one_call()
    with Journal(path) as journal:
        journal(Asked("e1", 0, 0.0, "Q", 2))
        journal(event)
        journal.flush()
        assert journal.find_completion(key_for(event, sample=2)) is not None
        assert journal.find_completion(key_for(event, sample=1)) is None
    with Journal.reading(path) as reader:
        found = reader.find_completion(key_for(event, sample=2, episode="another", attempt=4))
        assert found is not None
        assert found.text == "4"


@pytest.mark.parametrize(
    "changes",
    [
        {"completion": None, "error": ServerFailed("no"), "outcome": "server_failed"},
        {"completion": None, "outcome": "cancelled"},
        {"outcome": "empty", "error": WorkerError("blank")},
        {"replayed": True},
    ],
    ids=["failed", "cancelled", "empty", "replayed"],
)
async def test_a_call_that_did_not_succeed_here_is_not_found(path: Path, changes: dict[str, Any]) -> None:
    event = one_call(**changes)
    with Journal(path) as journal:
        journal(Asked("e1", 0, 0.0, "Q"))
        journal(event)
        journal.flush()
        assert journal.find_completion(key_for(event)) is None
        assert len(list(journal.calls())) == 1


@pytest.mark.parametrize("outcome", ["cut", "refused"])
async def test_what_was_cut_or_filtered_was_paid_for_and_is_found(path: Path, outcome: str) -> None:
    event = one_call(outcome=outcome)
    with Journal(path) as journal:
        journal(Asked("e1", 0, 0.0, "Q"))
        journal(event)
        journal.flush()
        assert journal.find_completion(key_for(event)) is not None


async def test_of_two_calls_of_one_key_the_first_is_found(path: Path) -> None:
    with Journal(path) as journal:
        for episode, text in (("e1", "first"), ("e2", "second")):
            journal(Asked(episode, 0, 0.0, "Q"))
            journal(one_call(says(text), episode=episode))
        journal.flush()
        found = journal.find_completion(key_for(one_call()))
        assert found is not None
        assert found.text == "first"


async def test_a_replayed_call_is_written_and_not_counted_as_spent(path: Path) -> None:
    with Journal(path) as journal:
        journal(one_call())
        journal(one_call(replayed=True))
        journal.flush()
        assert [call.replayed for call in journal.calls()] == [False, True]
        assert journal.totals().spent.calls == 1


# ── durability, many callers ─────────────────────────────────────────────────────────────────────────────────────────
def test_event_loops_in_several_threads_share_a_journal(path: Path) -> None:
    journal = Journal(path)
    threads = [threading.Thread(target=lambda: asyncio.run(self_made(journal))) for _ in range(4)]

    async def self_made(journal: Journal) -> None:
        await asyncio.gather(*(ask(journal) for _ in range(5)))

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    assert rows(path, "SELECT outcome, count(*) FROM episodes GROUP BY outcome") == [("answered", 20)]


async def test_a_waiter_that_is_cancelled_holds_up_nobody(path: Path) -> None:
    with Journal(path) as journal:
        waiters = [asyncio.create_task(journal.wait_durable()) for _ in range(3)]
        await asyncio.sleep(0)
        waiters[1].cancel()
        outcomes = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(one) for one in outcomes] == [type(None), asyncio.CancelledError, type(None)]


async def test_a_closed_journal_says_so(path: Path) -> None:
    journal = Journal(path)
    journal.close()
    journal.close()
    for use in (lambda: journal(one_call()), journal.flush, lambda: journal.put_outcome("k", {})):
        with pytest.raises(JournalError, match="closed"):
            use()
    with pytest.raises(JournalError, match="closed"):
        await journal.wait_durable()
    with pytest.raises(JournalError):
        journal.totals()


async def test_what_was_handed_over_is_written_by_closing(path: Path) -> None:
    with Journal(path) as journal:
        for number in range(500):
            journal(one_call(episode=f"e{number}"))
    assert rows(path, "SELECT count(*) FROM calls") == [(500,)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_error_of_the_writing_itself_reaches_everyone_who_uses_the_journal(path: Path) -> None:
    journal = Journal(path)
    journal(one_call(worker=3))  # type: ignore[arg-type] - no such event comes from here
    with pytest.raises(JournalError, match="the writer ended in"):
        await asyncio.wait_for(journal.wait_durable(), 60)
    with pytest.raises(JournalError):
        journal.close()


def test_an_error_on_the_way_out_is_not_hidden_by_the_journals_own(path: Path) -> None:
    def fail() -> None:
        with Journal(path, redact=lambda text: str(1 / 0)) as journal:
            journal(one_call())
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        fail()
    assert any("redact" in note for note in caught.value.__notes__)


# ── outcomes ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_outcome_comes_back_as_it_was_in_another_process_later(path: Path) -> None:
    record = {"correct": None, "answer": "²\ud800\0", "rounds": [{"steps": [[0, "Do.", "all"]]}], "seconds": 0.25}
    before = time.time()
    with Journal(path) as journal:
        journal.put_outcome("gym/1", record)
        journal.put_outcome("gym/2", {})
        journal.flush()
        assert [one.key for one in journal.outcomes()] == ["gym/1", "gym/2"]
    with Journal.reading(path) as reader:
        first, second = reader.outcomes()
    assert (first.record, second.record) == (record, {})
    assert before <= first.written <= time.time()


def test_of_several_outcomes_of_one_key_the_last_counts_and_none_is_lost(path: Path) -> None:
    with Journal(path) as journal:
        for number in range(1200):
            journal.put_outcome(f"k{number % 600}", {"number": number})
        journal.flush()
        assert [one.record["number"] for one in journal.outcomes()] == list(range(600, 1200))
        assert [one.record["number"] for one in journal.outcomes(history=True)] == list(range(1200))


def test_what_content_may_be_is_said(path: Path) -> None:
    with pytest.raises(ConfigError, match="'full' or 'none'"):
        Journal(path, content="some")  # type: ignore[arg-type]
