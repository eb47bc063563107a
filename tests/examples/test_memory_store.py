"""The example store, and the one in a file, do the same: replay, records, episodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from memory_store import MemoryStore

import openconductor as oc
from openconductor.store import SERVED, EpisodeFilter, Store, open_store
from openconductor.store.episode_json import episode_json
from openconductor.testing import Scripted

PLAN = oc.Workflow([oc.Step(1, "Add."), oc.Step(0, "Check.", "all")])


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    with open_store(tmp_path / "store.sqlite") as store:
        yield store


def pool(answer: object) -> oc.WorkerPool:
    workers = [
        oc.Worker(Scripted(answer, identity=f"scripted {name}"), name=name)
        for name in ("anna", "bert")
    ]
    return oc.WorkerPool(workers)


async def ask(
    store: Store, question: Any, pool: oc.WorkerPool, context: oc.CallContext | None = None
) -> oc.Episode:
    planner = Scripted(PLAN, identity="scripted planner")
    conductor = oc.Conductor(planner, pool=pool).replaying(store)
    return await conductor.ask(question, on_event=store, context=context)


async def test_a_question_that_is_asked_again_is_replayed(store: Store) -> None:
    first = await ask(store, "2 + 2?", pool("4"))
    again = await ask(store, "2 + 2?", pool(AssertionError("called again")))
    assert again.answer == first.answer == "4"
    totals = store.totals()
    assert totals.spent.calls == 3
    assert set(totals.by_worker) == {"conductor", "anna", "bert"}
    assert [workflow for _, _, workflow in store.workflows()] == [PLAN, PLAN]


async def test_an_episode_reads_back_as_it_was(store: Store) -> None:
    episode = await ask(store, "2 + 2?", pool("4"), oc.CallContext(sample=3))
    stored = store.episode(episode.id)
    assert stored is not None
    assert (stored.sample, stored.outcome) == (3, "answered")
    assert stored.workers == {0: "anna", 1: "bert"}
    assert episode_json(stored, stored.workers) == episode_json(episode, stored.workers)
    assert store.episode("unknown") is None


async def test_episodes_are_listed_latest_first_and_filtered(store: Store) -> None:
    one = (await ask(store, "One?", pool("1"))).id
    two = (await ask(store, "Two?", pool(oc.Rejected("no")))).id
    three = (await ask(store, "100%?", pool("yes"))).id

    def listed(**options: Any) -> list[str]:
        return [episode.id for episode in store.episodes(**options)]

    assert listed() == [three, two, one]
    assert listed(limit=1) == [three]
    assert listed(before=three) == [two, one]
    assert listed(outcome="failed") == [two]
    assert listed(text="0%") == listed(text="YES") == [three]
    assert listed(text="n_e") == []


async def test_the_text_of_a_chat_is_searched_and_its_form_is_not(store: Store) -> None:
    chat = [oc.Message("system", "Be brief."), oc.Message("user", 'Say "hi".')]
    await ask(store, chat, pool("Hi."))
    assert len(store.episodes(text='say "HI"')) == 1
    assert len(store.episodes(text="brief")) == 1
    assert store.episodes(text="user") == []


def test_the_last_record_of_a_key_counts(store: Store) -> None:
    for key, number in (("a", 1), ("b", 2), ("a", 3)):
        store.put_record(key, {"number": number})
    store.flush()
    assert store.find_record("a") == {"number": 3}
    assert store.find_record("c") is None
    latest = {record.key: record.value["number"] for record in store.records()}
    assert list(latest.items()) == [("b", 2), ("a", 3)]
    assert [record.value["number"] for record in store.records(history=True)] == [1, 2, 3]


async def test_a_worker_has_a_line_of_its_latest_calls(store: Store) -> None:
    await ask(store, "2 + 2?", pool("4"))
    store.flush()
    first = {line.name: line for line in store.workers()}
    assert set(first) >= {"anna", "bert"}
    anna = first["anna"]
    assert (anna.calls, anna.failed, dict(anna.outcomes)) == (1, 0.0, {"answered": 1})
    assert anna.median_s == anna.slow_s is not None
    await ask(store, "3 + 3?", pool(oc.Rejected("no")))
    store.flush()
    failing = [line for line in store.workers(latest=1) if line.failed]
    assert [(line.calls, line.failed, line.median_s) for line in failing] == [(1, 1.0, None)]


async def test_a_list_shows_a_line_for_each_chosen_episode(store: Store) -> None:
    first = await ask(store, "2 + 2?", pool("4"))
    second = await ask(store, "3 + 3?", pool("6"))
    store.put_record(f"{SERVED}{first.id}", {"key": "kim", "model": "conductor"}, texts=False)
    store.flush()
    latest = store.lines()
    assert [line.id for line in latest] == [second.id, first.id]
    assert (latest[1].question, latest[1].answer) == ("2 + 2?", "4")
    assert (latest[1].key, latest[1].model, latest[0].key) == ("kim", "conductor", None)
    assert sorted(latest[0].workers) == ["anna", "bert"]
    assert (latest[0].rounds, latest[0].steps, latest[0].usage) == (1, 2, second.usage)
    for chosen in (
        EpisodeFilter(text="3 + 3"),
        EpisodeFilter(identifier=second.id),
        EpisodeFilter(worker="anna", since=latest[0].started),
    ):
        assert [line.id for line in store.lines(chosen)] == [second.id], chosen
    assert [line.id for line in store.lines(EpisodeFilter(key="kim"))] == [first.id]
    assert store.lines(EpisodeFilter(worker="carl")) == []
    assert store.lines(EpisodeFilter(error="Refused", outcome="failed")) == []
    assert [line.id for line in store.lines(offset=1, limit=1)] == [first.id]
    for order in ("dollars", "tokens", "seconds"):
        assert len(store.lines(EpisodeFilter(order=order))) == 2
