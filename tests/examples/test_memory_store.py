"""The example store, and the one in a file, do the same: replay, records, episodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_store import MemoryStore

import openconductor as oc
from openconductor.store import Store, open_store
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


def pool(*answers: object) -> oc.WorkerPool:
    workers = [Scripted(*answers, identity=f"scripted {name}") for name in ("anna", "bert")]
    return oc.WorkerPool(
        [
            oc.Worker(worker, name=name)
            for worker, name in zip(workers, ("anna", "bert"), strict=True)
        ]
    )


def conductor(store: Store, workers: oc.WorkerPool) -> oc.Conductor:
    planner = Scripted(PLAN, identity="scripted planner")
    return oc.Conductor(planner, pool=workers).replaying(store)


async def test_a_question_that_is_asked_again_is_replayed(store: Store) -> None:
    first = await conductor(store, pool("4")).ask("2 + 2?", on_event=store)
    silent = pool(AssertionError("called again"))
    again = await conductor(store, silent).ask("2 + 2?", on_event=store)
    assert again.answer == first.answer == "4"
    assert store.totals().spent.calls == 3
    assert set(store.totals().by_worker) == {"conductor", "anna", "bert"}
    assert [workflow for _, _, workflow in store.workflows()] == [PLAN, PLAN]


async def test_an_episode_reads_back_as_it_was(store: Store) -> None:
    workers = pool("4")
    asked = await conductor(store, workers).ask(
        "2 + 2?", on_event=store, context=oc.CallContext(sample=3)
    )
    stored = store.episode(asked.id)
    assert stored is not None
    assert (stored.sample, stored.outcome) == (3, "answered")
    assert stored.workers == {0: "anna", 1: "bert"}
    assert episode_json(stored, stored.workers) == episode_json(asked, workers.names)
    assert store.episode("unknown") is None


async def test_episodes_are_listed_latest_first_and_filtered(store: Store) -> None:
    asked = [
        await conductor(store, pool(answer)).ask(question, on_event=store)
        for question, answer in (("One?", "1"), ("Two?", oc.Rejected("no")), ("100%?", "yes"))
    ]
    one, two, three = (episode.id for episode in asked)
    assert [episode.id for episode in store.episodes()] == [three, two, one]
    assert [episode.id for episode in store.episodes(limit=1)] == [three]
    assert [episode.id for episode in store.episodes(before=three)] == [two, one]
    assert [episode.id for episode in store.episodes(outcome="failed")] == [two]
    assert [episode.id for episode in store.episodes(text="0%")] == [three]
    assert [episode.id for episode in store.episodes(text="YES")] == [three]
    assert store.episodes(text="n_e") == []


async def test_the_text_of_a_chat_is_searched_and_its_form_is_not(store: Store) -> None:
    chat = [oc.Message("system", "Be brief."), oc.Message("user", 'Say "hi".')]
    await conductor(store, pool("Hi.")).ask(chat, on_event=store)
    assert len(store.episodes(text='say "HI"')) == 1
    assert len(store.episodes(text="brief")) == 1
    assert store.episodes(text="user") == []


def test_the_last_record_of_a_key_counts(store: Store) -> None:
    for key, number in (("a", 1), ("b", 2), ("a", 3)):
        store.put_record(key, {"number": number})
    store.flush()
    assert store.find_record("a") == {"number": 3}
    assert store.find_record("c") is None
    assert [(record.key, record.value["number"]) for record in store.records()] == [
        ("b", 2),
        ("a", 3),
    ]
    assert [record.value["number"] for record in store.records(history=True)] == [1, 2, 3]
