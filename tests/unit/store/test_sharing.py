"""A text that a client sends again, or that many calls see, is in the file once."""

from __future__ import annotations

import base64
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.places import OpenPlace, Place
from tests.unit.store.journaled import rows

import openconductor as oc
from openconductor import Completion, Episode, Journal, Message, Sampling, Usage
from openconductor.protocols import CallContext, Provider
from openconductor.providers.wire.chat import request_body
from openconductor.store.sqlite import sqlite_file

PLAN = """model_id = [0, 0, 0]
subtasks = ["Think about it.", "Check what was thought.", "Answer it."]
access_list = [[], "all", "all"]"""
DRAW = random.Random(1)
DATA = base64.b64encode(DRAW.randbytes(30_000)).decode()
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
MARK = 48  # characters at the beginning of a text by which it is found in the file


def draw_text(words: int) -> str:
    return " ".join(f'"{DRAW.getrandbits(40):x}"' for _ in range(words))


class Wired(Provider):
    """Answers each call anew, and says what body a server would have been sent."""

    def __init__(self, identity: str, text: str = "") -> None:
        self.identity = identity
        self._text = text

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, **_: Any
    ) -> Completion:
        body = request_body("m", messages, sampling, stream=True)
        return Completion(self._text or draw_text(12), usage=Usage(1, 0, 1), body_sent=body)


CONDUCTOR = oc.Conductor(
    oc.Worker(Wired("planner", PLAN), name="planner"),
    pool=oc.WorkerPool([oc.Worker(Wired("worker"), name="worker")]),
)


async def ask(journal: Journal, chat: list[Message], **body: object) -> Episode:
    context = CallContext(options=Sampling(body=body))
    return await CONDUCTOR.ask(chat, on_event=journal, context=context)


def check_same(stored: Episode | None, episode: Episode) -> None:
    """Check that an episode was read as it was."""
    assert stored is not None
    assert stored.question == tuple(episode.question)
    for kept, played in zip(stored.rounds, episode.rounds, strict=True):
        assert kept.completion == played.completion
        assert kept.transcript is not None and played.transcript is not None
        for step, result in zip(kept.transcript.results, played.transcript.results, strict=True):
            assert (step.messages, step.completion) == (result.messages, result.completion)
            assert [call.sampling for call in step.calls] == [
                call.sampling for call in result.calls
            ]


def copies(place: Place, text: str) -> int:
    """Return how often a text is in the file."""
    journal = place.everything()
    escaped = text[:MARK].replace('"', '\\"').encode()
    return max(journal.count(text[:MARK].encode()), journal.count(escaped))


async def test_a_conversation_that_is_sent_again_each_turn_is_stored_once(place: Place) -> None:
    tool = {"type": "function", "function": {"name": "look", "description": draw_text(30)}}
    chat = [Message("system", draw_text(40))]
    with place.open() as journal:
        for _ in range(8):
            arguments = {"function": {"name": "look", "arguments": draw_text(20)}, "id": "c1"}
            chat += [
                Message("user", draw_text(20)),
                Message("assistant", "", ({"tool_calls": [arguments]},)),
                Message("tool", draw_text(20), ({"tool_call_id": "c1"},)),
            ]
            episode = await ask(journal, list(chat), tools=[tool])
            check_same(journal.episode(episode.id), episode)
            assert episode.answer is not None
            chat.append(Message("assistant", episode.answer))
        sought = chat[1].content.split()[0]
        assert len(journal.episodes(text=sought)) == 8
        assert len(journal.episodes(text=draw_text(1))) == 0
    sent = [turn.content for turn in chat if turn.role in ("system", "user", "tool")]
    assert [copies(place, text) for text in sent] == [1] * len(sent)
    assert copies(place, tool["function"]["description"]) == 1
    shown = place.rows("SELECT content FROM turns WHERE role = 'system'")
    assert (chat[0].content,) in shown


async def test_an_image_is_stored_once_whoever_saw_it(place: Place) -> None:
    chat = [Message("user", "What is in this picture?", (IMAGE,))]
    with place.open() as journal:
        for _ in range(2):
            episode = await ask(journal, chat)
            check_same(journal.episode(episode.id), episode)
    slices = [DATA[start : start + MARK] for start in range(0, 4_000, 500)]
    assert max(copies(place, text) for text in slices) == 1


async def test_texts_are_written_again_once_they_are_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openconductor.store.writer._HELD", 0)
    chat = [Message("user", draw_text(20))]
    with place.open() as journal:
        for _ in range(3):
            episode = await ask(journal, chat)
            check_same(journal.episode(episode.id), episode)
    assert 1 <= copies(place, chat[0].content) <= 15


async def test_shared_texts_are_cleaned_or_left_out_as_all_else(new_place: OpenPlace) -> None:
    text = draw_text(20)
    secret = text.split()[3]
    chat = [Message("user", text, (IMAGE,))]
    cleaned, empty = new_place(), new_place()
    with cleaned.open(redact=lambda text: text.replace(secret, "-")) as journal:
        episode = await ask(journal, chat)
        stored = journal.episode(episode.id)
    assert stored is not None and stored.question[0].content == text.replace(secret, "-")
    with empty.open(content="none") as journal:
        await ask(journal, chat)
    assert empty.rows("SELECT count(*) FROM texts") == [(0,)]
    for place in (cleaned, empty):
        assert secret.strip('"').encode() not in place.everything()


def test_a_file_of_each_earlier_version_is_migrated(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        version_6 = sqlite_file._TABLES + sqlite_file._CHANGES[6]
        connection.executescript(f"{version_6} PRAGMA user_version = 6;")
        connection.execute(f"PRAGMA application_id = {sqlite_file._APPLICATION_ID}")
    with Journal.reading(path) as reader:
        assert reader.episodes(text="?") == []
        Journal(path).close()
        assert reader.episodes(text="?") == []
    assert rows(path, "SELECT count(*) FROM whole_messages") == [(0,)]
