"""Journals of schema version 5 are read, replayed from and appended to."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from openconductor import Conductor, Message, Sampling, Worker, WorkerPool
from openconductor.evaluation.records import kept_records
from openconductor.events import Asked
from openconductor.protocols import Provider
from openconductor.serving.key_ring import past_charges
from openconductor.store import open_store, read_store
from openconductor.store.episode_json import episode_json
from openconductor.store.sqlite.sqlite_file import VERSION

FOLDER = Path(__file__).parent / "journals"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text("utf-8"))


def unpack(name: str, folder: Path) -> Path:
    path = folder / f"{name}.sqlite"
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.sqlite.gz").read_bytes()))
    return path


def turns(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM turns ORDER BY call, turn").fetchall()


class Unreachable(Provider):
    """A provider that fails the test if it is called, with an identity of the golden file."""

    def __init__(self, name: str) -> None:
        self.identity = f"sayer {name} https://sayer.example"

    async def complete(self, messages: Sequence[Message], *_: object, **__: object) -> Any:
        raise AssertionError("a call that was paid for was made again")


@pytest.mark.parametrize("migrated", [False, True])
def test_episodes_of_an_earlier_version_read_as_they_were_printed(
    tmp_path: Path, migrated: bool
) -> None:
    path = unpack("ask", tmp_path)
    before = turns(path)
    expected = EXPECTED["ask"]
    with open_store(path) if migrated else read_store(path) as store:
        for printed in expected["episodes"]:
            episode = store.episode(printed["episode"]["id"])
            assert episode is not None
            assert episode.sample == printed["sample"]
            names = {int(ordinal): name for ordinal, name in printed["workers"].items()}
            assert json.loads(json.dumps(episode_json(episode, names))) == printed["episode"]
        for key, text in expected["keys"].items():
            completion = store.find_completion(key)
            assert completion is not None and completion.text == text
        (latest,) = store.episodes(limit=1)
        assert (latest.question, latest.outcome) == ("Cancelled.", "unfinished")
        totals = store.totals()
        assert totals.spent.calls == expected["calls"]
        assert str(totals.spent.usage.dollars) == expected["dollars"]
        assert {name: spent.calls for name, spent in totals.by_worker.items()} == expected[
            "by_worker"
        ]
    assert turns(path) == before != []


async def test_calls_of_an_earlier_version_are_replayed_and_new_ones_appended(
    tmp_path: Path,
) -> None:
    path = unpack("ask", tmp_path)
    sampling = Sampling(0.2, 9, 7, {"stop": ["\n"]})
    pool = WorkerPool(
        [
            Worker(Unreachable("a"), name="a", retries=0),
            Worker(Unreachable("b"), name="b", retries=0, sampling=sampling),
        ]
    )
    planner = Worker(Unreachable("planner"), name="conductor")
    with open_store(path) as store:
        asked = Conductor(planner, pool=pool, max_rounds=2).replaying(store)
        episode = await asked.ask("What is 2 + 2?", on_event=store)
        assert episode.answer == "4"
        stored = store.episode(episode.id)
        assert stored is not None
        assert stored.workers == {0: "a", 1: "b"}
        assert episode_json(stored, stored.workers) == episode_json(episode, pool.names)
        assert store.totals().spent.calls == EXPECTED["ask"]["calls"]  # replayed calls are free
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT count(*), count(hash) FROM messages"
        numbered, hashed = connection.execute(query).fetchone()
        assert 0 < hashed < numbered
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert turns(path)[-1][2] == "user"


def test_a_journal_without_content_is_read(tmp_path: Path) -> None:
    with read_store(unpack("none", tmp_path)) as store:
        (episode,) = store.episodes()
    assert (episode.question, episode.answer, episode.outcome) == ("", None, "answered")
    (played,) = episode.rounds
    assert played.transcript is not None
    (result,) = played.transcript.results
    assert result.completion is not None
    assert (result.completion.text, result.step.subtask) == ("", "")
    assert episode.usage.tokens == 214


def test_records_of_an_evaluation_and_of_a_server_are_read(tmp_path: Path) -> None:
    with open_store(unpack("eval", tmp_path)) as store:
        records = [[record.key, dict(record.value)] for record in store.records()]
        assert records == EXPECTED["eval"]["records"]
        assert len(kept_records(store)) == len(records)
        assert len(store.episodes(limit=None)) == EXPECTED["eval"]["episodes"]
        assert store.totals().spent.calls == EXPECTED["eval"]["calls"]
    with open_store(unpack("serve", tmp_path)) as store:
        records = [[record.key, dict(record.value)] for record in store.records()]
        assert records == EXPECTED["serve"]["records"]
        charges = past_charges(store, {"ann": 0.0})
        assert str(sum(dollars for _, _, dollars in charges)) == EXPECTED["serve"]["dollars"]
        identifier = EXPECTED["serve"]["tools"].removeprefix("chatcmpl-")
        episode = store.episode(identifier)
        assert episode is not None
        (result,) = episode.rounds[0].transcript.results  # type: ignore[union-attr]
        assert result.completion is not None
        (call,) = result.completion.tool_calls
        assert call["function"] == EXPECTED["serve"]["calls"][0]["function"]
        store(Asked("new", 0, 0.0, "Q", workers={0: "a"}))
        store.flush()
        assert [one.id for one in store.episodes(limit=1)] == ["new"]
