"""Kill -9 of a process that claims calls, and of the database: nothing acknowledged is lost, and
only what was in flight is made once more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.places import DatabasePlace
from tests.postgres_server import PostgresServer, running

from openconductor import Conductor, Worker, WorkerPool
from openconductor.store import open_store
from openconductor.store.postgres import postgres_writer

QUESTIONS = 40
AT_ONCE = 4
PLAN = "model_id = [0]\nsubtasks = ['Answer.']\naccess_list = [[]]"

pytestmark = pytest.mark.slow


# ── a process that answers the questions: this file as a program ──────────────────────────────────
async def answer_all(store: Any, made: Path, acknowledged: Path) -> None:
    """Answer every question; write a line for each call when it begins, and for each answer."""

    def note(path: Path, line: str) -> None:
        with path.open("a") as file:
            file.write(f"{line}\n")

    async def answer(messages: Any) -> str:
        question = messages[0].content.split()[1]
        note(made, question)
        await asyncio.sleep(0.05)
        return f"answer to {question}"

    pool = WorkerPool([Worker(answer, name="w")])
    conductor = Conductor(lambda messages: PLAN, pool=pool).replaying(store)
    numbers = iter(range(QUESTIONS))

    async def lane() -> None:
        for number in numbers:
            episode = await conductor.ask(f"Question {number} ?", on_event=store)
            assert episode.answer == f"answer to {number}", episode.error
            note(acknowledged, episode.id)

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))


def live(url: str, made: str, acknowledged: str) -> None:
    postgres_writer.LEASE_S = 1.0
    with open_store(url) as store:
        asyncio.run(answer_all(store, Path(made), Path(acknowledged)))


def start(url: str, made: Path, acknowledged: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, url, str(made), str(acknowledged)]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})


# ── the tests ─────────────────────────────────────────────────────────────────────────────────────
def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def wait_for_lines(path: Path, count: int) -> None:
    end = time.monotonic() + 60
    while len(lines(path)) < count:
        assert time.monotonic() < end, f"{path.name}: {len(lines(path))} lines"
        time.sleep(0.02)


def check(place: DatabasePlace, acknowledged: list[str], made: list[str], again: int) -> None:
    """Check that all that was acknowledged is there, and what was asked for more than once."""
    counts = Counter(made)
    assert len(counts) == QUESTIONS
    assert len(made) <= QUESTIONS + again
    with place.read() as reader:
        outcomes = {episode.id: episode.outcome for episode in reader.episodes(limit=None)}
        paid = [
            call.messages for call in reader.calls() if call.worker == "w" and not call.replayed
        ]
    assert {outcomes[episode] for episode in acknowledged} == {"answered"}
    assert len(paid) <= len(made)
    assert len(set(paid)) == QUESTIONS


def test_a_process_that_is_killed_loses_only_the_calls_in_flight(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    place = DatabasePlace(postgres.new_place())
    made = tmp_path / "made"
    files = [tmp_path / "first", tmp_path / "second"]
    first, second = (start(place.name, made, file) for file in files)
    wait_for_lines(made, 10)
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait(30) == -signal.SIGKILL
    assert second.wait(120) == 0
    check(place, lines(files[0]) + lines(files[1]), lines(made), again=AT_ONCE)
    assert len(lines(files[1])) == QUESTIONS
    started = len(lines(made))
    third = start(place.name, made, tmp_path / "third")
    assert third.wait(120) == 0
    assert len(lines(made)) == started  # everything was there


def test_a_database_that_is_killed_is_waited_for(tmp_path: Path) -> None:
    with running() as server:
        place = DatabasePlace(server.new_place())
        made, acknowledged = tmp_path / "made", tmp_path / "acknowledged"
        child = start(place.name, made, acknowledged)
        for count in (8, 24):
            wait_for_lines(acknowledged, count)
            server.kill()
            before = lines(acknowledged)
            server.start()
            with place.read() as reader:
                there = {episode.id for episode in reader.episodes(limit=None)}
            assert there >= set(before)
        assert child.wait(120) == 0
        check(place, lines(acknowledged), lines(made), again=0)
        assert place.rows("SELECT count(*) FROM calls WHERE worker = 'w'") == [(QUESTIONS,)]
        assert place.rows("SELECT count(*) FROM episodes") == [(QUESTIONS,)]


if __name__ == "__main__":
    live(*sys.argv[1:])
