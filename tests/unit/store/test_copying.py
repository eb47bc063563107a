"""A journal that is copied into a database: all is there, and nothing in it is paid for again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden.test_journals import unpack
from tests.places import DatabasePlace
from tests.unit.store.journaled import ask, key_for, one_call, pool_of, says, talker
from tests.unit.store.test_sharing import IMAGE, ask as ask_chat, draw_text

from openconductor import Conductor, Journal, Message
from openconductor.cli import main
from openconductor.events import Asked
from openconductor.store import SHOWN, StoreReader
from openconductor.store.episode_json import episode_json

PLAN = "model_id = [0]\nsubtasks = ['Answer.']\naccess_list = [[]]"


async def fill(path: Path) -> None:
    chat = [Message("system", draw_text(30)), Message("user", draw_text(30), (IMAGE,))]
    tool = {"type": "function", "function": {"name": "look", "description": draw_text(30)}}
    with Journal(path) as journal:
        await ask(journal)
        await ask_chat(journal, chat, tools=[tool])
        journal(Asked("cut off", 0, 0.0, "2 + 2?", 3))
        journal(one_call(episode="cut off"))
        journal(one_call(episode="began unheard"))
        for number in range(3):
            journal.put_record(f"{SHOWN}{number % 2}", {"number": number, "text": "a\0b"})


async def test_everything_is_copied_as_it_was_and_once(
    path: Path, database: DatabasePlace, capsys: pytest.CaptureFixture[str]
) -> None:
    with database.open() as store:  # which others use already
        await ask_chat(store, [Message("user", draw_text(30))])
        others = store.episodes()
    await fill(path)
    assert main(["store", "copy", str(path), database.name]) == 0
    assert "copied 3 episodes, 9 calls, 3 records" in capsys.readouterr().out
    assert main(["store", "copy", str(path), database.name]) == 0
    told = "copied 0 episodes, 0 calls, 0 records; 4 episodes were there already"
    assert told in capsys.readouterr().out
    with Journal.reading(path) as journal, database.read() as store:
        assert store.episodes() == journal.episodes() + others
        calls = {call.episode: call for call in store.calls()}
        assert all(calls[call.episode].key == call.key for call in journal.calls("began unheard"))
        for history in (False, True):
            copied = [(record.key, record.value) for record in store.records(history=history)]
            own = [(record.key, record.value) for record in journal.records(history=history)]
            assert copied == own
        key = key_for(one_call(), sample=3)
        assert store.find_completion(key) == journal.find_completion(key) is not None


def printed(store: StoreReader) -> list[object]:
    return [episode_json(episode, episode.workers) for episode in store.episodes(limit=None)]


@pytest.mark.parametrize("name", ["ask", "eval", "serve"])
def test_a_file_of_an_earlier_version_is_copied(
    tmp_path: Path, database: DatabasePlace, name: str
) -> None:
    path = unpack(name, tmp_path)
    assert main(["store", "copy", str(path), database.name]) == 0
    with Journal.reading(path) as journal, database.read() as store:
        both = [reader.episodes(limit=None) for reader in (store, journal)]
        copied, own = (
            [episode_json(episode, episode.workers) for episode in episodes] for episodes in both
        )
        assert copied == own
        assert store.totals() == journal.totals()
        keys = [call.key or "" for call in journal.calls()]
        found = {key: journal.find_completion(key) for key in keys}
        assert store.find_completions(keys) == {k: one for k, one in found.items() if one}


async def test_what_was_copied_is_not_paid_for_again(path: Path, database: DatabasePlace) -> None:
    answers = talker(says("4"))
    conductor = Conductor(talker(says(PLAN)), pool=pool_of(answers))
    with Journal(path) as journal:
        await conductor.replaying(journal).ask("2 + 2?", on_event=journal)
    assert main(["store", "copy", str(path), database.name]) == 0
    made = len(answers.calls)
    with database.open() as store:
        episode = await conductor.replaying(store).ask("2 + 2?", on_event=store)
    assert (episode.answer, len(answers.calls)) == ("4", made)


def test_a_journal_is_copied_from_a_file_without_a_writer_to_a_url(
    path: Path, database: DatabasePlace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "copy", str(path), database.name]) == 1
    assert "no such file" in capsys.readouterr().err
    with Journal(path):
        assert main(["store", "copy", str(path), database.name]) == 1
        assert "another writer has it open" in capsys.readouterr().err
    assert main(["store", "copy", str(path), "other.sqlite"]) == 2
    assert "postgresql://USER@HOST/DATABASE" in capsys.readouterr().err
