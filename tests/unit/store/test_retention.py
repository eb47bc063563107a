"""Old episodes leave the file, with what only they refer to; all else reads as before."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.places import Place
from tests.unit.store.journaled import pool_of, says, talker

from openconductor import Conductor, Journal, JournalError, Message
from openconductor.cli import main
from openconductor.config import load_toml
from openconductor.serving.key_ring import SERVED, past_charges
from openconductor.serving.serve_config import ServeConfig
from openconductor.store.episode_json import episode_json
from openconductor.store.sqlite.retention import DAY_S, prune_file
from openconductor.store.store import SHOWN

PLAN = "model_id = [0, 0]\nsubtasks = ['Think.', 'Say it.']\naccess_list = [[], [0]]"
SHARED = "This turn is in old and new conversations, and must stay: " + "s" * 40
OLD, NEW = ("Only in the old one: " + "o" * 80, "Only in the new one: " + "n" * 80)


async def ask(journal: Journal, *turns: str) -> str:
    chat = [Message("user", turn) for turn in turns]
    conductor = Conductor(talker(says(PLAN)), pool=pool_of(talker(says("4"))))
    return (await conductor.ask(chat, on_event=journal)).id


async def fill(place: Place, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[str, str]:
    """Write an episode of 40 days ago and one of now; return their ids."""
    now = time.time()
    with place.open(**options) as journal:
        with monkeypatch.context() as clock:
            clock.setattr("openconductor.store.sink.time.time", lambda: now - 40 * DAY_S)
            old = await ask(journal, SHARED, OLD)
            killed = {"key": "k", "model": "conductor", "began": now - 40 * DAY_S}
            journal.put_record(f"{SERVED}{old}", {**killed, "charged": None}, texts=False)
            journal.put_record(f"{SHOWN}{old}", {"thoughts": [OLD]})
            journal.flush()
        new = await ask(journal, SHARED, NEW)
    return old, new


async def test_prune_removes_old_episodes_and_gives_the_disk_back(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = await fill(place, monkeypatch)
    with place.read() as journal:
        before = journal.episode(new)
        owed = list(past_charges(journal, {"k": 0.0}))
    assert main(["store", "prune", place.name, "--older-than", "30d"]) == 0
    assert "removed 1 episode, 3 calls, " in capsys.readouterr().out
    raw = place.everything()
    assert (OLD.encode() in raw, NEW.encode() in raw, SHARED.encode() in raw) == (False, True, True)
    with place.read() as journal:
        assert journal.episode(old) is None
        assert journal.episode(new) == before is not None
        assert list(past_charges(journal, {"k": 0.0})) == owed != []
    for table in ("rounds", "steps", "calls", "episodes"):
        column = "id" if table == "episodes" else "episode"
        assert place.rows(f"SELECT DISTINCT {column} FROM {table}") == [(new,)]
    with place.open() as journal:  # numbers of what is left are not used again
        again = await ask(journal, SHARED, NEW)
        first, second = (journal.episode(each) for each in (new, again))
        assert first is not None and second is not None
        assert episode_json(first, {})["question"] == episode_json(second, {})["question"]


async def test_a_journal_removes_old_episodes_while_it_is_written(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openconductor.store.sqlite.retention._PAUSE_S", 0.0)
    old, new = await fill(place, monkeypatch)
    with place.open(keep_days=30) as journal:
        end = time.monotonic() + 60
        old_texts = "SELECT count(*) FROM texts WHERE text LIKE 'Only in the old%'"
        while place.rows(old_texts) != [(0,)] and time.monotonic() < end:
            await ask(journal, NEW)
        assert place.rows(old_texts) == [(0,)]
        later = await ask(journal, SHARED, NEW)
        assert journal.episode(old) is None
        for identifier in (new, later):
            episode = journal.episode(identifier)
            assert episode is not None
            assert [turn.content for turn in episode.question] == [SHARED, NEW]
            assert all(call.messages for call in journal.calls(identifier))


async def test_a_file_that_is_written_is_not_pruned(path: Path) -> None:
    with Journal(path) as journal:
        await ask(journal, NEW)
        with pytest.raises(JournalError, match="another writer has it open"):
            prune_file(path, time.time() + 1)
        assert main(["store", "prune", str(path), "--older-than", "0h"]) == 1
        assert len(journal.episodes()) == 1


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--older-than", "30"], 2, "expected an age such as 30d"),
        (["--older-than", "30d"], 1, "no such file"),
    ],
)
def test_prune_says_what_is_wrong(path: Path, capsys, words, code: int, told: str) -> None:
    assert main(["store", "prune", str(path), *words]) == code
    assert told in capsys.readouterr().err
    assert not path.exists()


def test_keep_days_stands_in_the_servers_config(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("keep_days = 30\n")
    assert load_toml(config, ServeConfig, ()).keep_days == 30
