"""Kill -9 at random moments: no acknowledged step is lost, the store is whole, no call of the
journal is made again.

A nursery, a process with everything imported, forks one child a life. A child answers the questions
of one journal against a server in the test's process, and writes each acknowledged episode's id
into a file before it goes on. It is killed at a random moment; the next child takes up the same
questions with the same journal.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from counting_server import CountingServer, Turns, answered
from nursery import Nursery, nursery

from openconductor import Conductor, Worker, WorkerPool
from openconductor.errors import JournalError
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.store import Journal

AT_A_TIME = 2  # children with a journal and a server of their own
LONGEST_LIFE = 0.3  # seconds from the fork on; by then most questions of a journal are answered
QUESTIONS = 40
AT_ONCE = 6
SEED = 20_261_121
TREE = (
    "model_id = [0, 1, 0, 1, 0]\nsubtasks = ['A', 'B', 'C', 'D', 'E']\n"
    "access_list = [[], [], [0], [1], [2, 3]]"
)
STEPS = 5


# ── the server ────────────────────────────────────────────────────────────────────────────────────
class Server(CountingServer):
    """What it says tells one request from another, and a request made twice from one made once."""

    PAUSE_S = (0.0, 0.008)

    def text(self, model: str, turns: Turns, request: str) -> str:
        return TREE if model == "conductor" else f"Answer {len(self.asked)} to {turns[-1][1][:60]}"


# ── the child: this file as a program ─────────────────────────────────────────────────────────────
def live(order: list[str]) -> int:
    """Answer every question that has no acknowledged answer yet."""
    journal_path, acknowledged, url = order
    done = {int(line.split()[0]) for line in Path(acknowledged).read_text("ascii").splitlines()}
    out = os.open(acknowledged, os.O_WRONLY | os.O_APPEND)
    numbers = [number for number in range(QUESTIONS) if number not in done]
    asyncio.run(answer_all(numbers, journal_path, out, url))
    return 0


async def answer_all(numbers: list[int], journal_path: str, out: int, url: str) -> None:
    """Answer these questions, and write each one's number and episode as soon as it is
    acknowledged.
    """
    names = ("w0", "w1", "conductor")
    providers = [OpenAICompatibleProvider(name, base_url=url) for name in names]
    *workers, planner = (
        Worker(made, name=name) for name, made in zip(names, providers, strict=True)
    )
    todo = iter(numbers)
    with Journal(journal_path) as journal:
        conductor = Conductor(planner, pool=WorkerPool(workers)).replaying(journal)

        async def answer() -> None:
            for number in todo:
                episode = await conductor.ask(f"Question {number}?", on_event=journal)
                assert episode.answer is not None, episode.error
                os.write(out, f"{number} {episode.id}\n".encode())

        await asyncio.gather(*(answer() for _ in range(AT_ONCE)))


# ── the tests ─────────────────────────────────────────────────────────────────────────────────────
@dataclass
class Held:
    """What stands in a journal after a kill: the requests that were answered, and how much of it
    was unfinished.
    """

    requests: set[str] = field(default_factory=set[str])
    unfinished: int = 0
    replayed: int = 0


def checked(journal: Path, acknowledged: Path) -> Held:
    """Return what the journal holds, which is whole and lacks nothing that was acknowledged."""
    ids = [line.split()[1] for line in acknowledged.read_text("ascii").splitlines()]
    try:
        reader = Journal.reading(journal)
    except JournalError:
        assert not ids  # killed before the file was made
        return Held()
    held = Held()
    with reader:
        with closing(sqlite3.connect(journal)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            steps = dict(
                connection.execute(
                    "SELECT episode, count(*) FROM steps "
                    "WHERE outcome = 'answered' AND answered_by IS NOT NULL GROUP BY episode"
                )
            )
        outcomes = {summary.id: summary.outcome for summary in reader.episodes(limit=None)}
        calls: dict[str, list[int | None]] = {}
        for call in reader.calls():
            if call.outcome == "answered":
                calls.setdefault(call.episode, []).append(call.step)
                held.replayed += call.replayed
        held.requests = set(answered(reader))
    for episode in ids:
        assert outcomes[episode] == "answered"
        assert steps[episode] == STEPS
        assert sorted(calls[episode], key=str) == [0, 1, 2, 3, 4, None]
    held.unfinished = sum(outcome == "unfinished" for outcome in outcomes.values())
    return held


@dataclass
class Tally:
    """What some lives came to."""

    kills: int = 0
    in_the_middle: int = 0
    replayed: int = 0
    journals: int = 0


def lives(folder: Path, kills: int, seed: int) -> Tally:
    """Kill children of one journal after another, until all its questions are answered."""
    draws, tally = random.Random(seed), Tally()
    children, server = Nursery(__file__), Server(seed)
    try:
        while tally.kills < kills:
            tally.journals += 1
            journal = folder / f"{tally.journals}.sqlite"
            acknowledged = journal.with_suffix(".txt")
            acknowledged.touch()
            held, status, tried = Held(), int(signal.SIGKILL), 0
            while status == signal.SIGKILL:
                before, tried = len(server.asked), tried + 1
                # On a slow machine lives get longer, so that one ends.
                longest = LONGEST_LIFE * 2 ** (tried // 10)
                children.begin([str(journal), str(acknowledged), server.url])
                time.sleep(draws.uniform(0.0, longest))
                status = children.end("kill")
                assert status in (0, signal.SIGKILL)
                repeated = held.requests.intersection(server.asked[before:])
                assert not repeated, f"{len(repeated)} calls of the journal were made again"
                earlier, held = held, checked(journal, acknowledged)
                if status == signal.SIGKILL:
                    tally.kills += 1
                    tally.in_the_middle += held.unfinished > earlier.unfinished
            assert len(acknowledged.read_text("ascii").splitlines()) == QUESTIONS
            tally.replayed += held.replayed
    finally:
        children.close()
        server.close()
    return tally


@pytest.mark.parametrize("wanted", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_loses_nothing_acknowledged_and_repeats_no_call(
    tmp_path: Path, wanted: int
) -> None:
    folders = [tmp_path / str(number) for number in range(AT_A_TIME)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        seeds = range(SEED, SEED + AT_A_TIME)
        tallies = list(pool.map(lives, folders, [wanted // AT_A_TIME] * AT_A_TIME, seeds))
    kills = sum(tally.kills for tally in tallies)
    in_the_middle = sum(tally.in_the_middle for tally in tallies)
    print(f"{kills} kills, {in_the_middle} of them during episodes: {tallies}")
    assert kills >= wanted
    assert in_the_middle >= wanted // 3, (
        "too few of the kills came during episodes: the test lost its power"
    )
    assert all(tally.replayed for tally in tallies)


WRITER = """
import sys, time
from openconductor.errors import JournalError
from openconductor.store import Journal
try:
    journal = Journal(sys.argv[1])
except JournalError as error:
    print(error, flush=True)
else:
    print("open", flush=True)
    sys.stdin.read()
"""


def test_another_process_may_write_only_when_the_first_is_gone(tmp_path: Path) -> None:
    def writer() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(tmp_path / "journal.sqlite")]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    first = writer()
    assert first.stdout.readline() == "open\n"
    second, _ = writer().communicate(timeout=200)
    assert "another writer has it open" in second
    Journal.reading(tmp_path / "journal.sqlite").close()
    first.kill()
    first.communicate(timeout=200)
    third, _ = writer().communicate(timeout=200)
    assert third == "open\n"


COPY = """
import os, sys, warnings
from openconductor.errors import JournalError
from openconductor.store import Journal
journal = Journal(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        journal.flush()
    except JournalError as error:
        os._exit(7 if "in a fork of it" in str(error) else 8)
    os._exit(9)
_, status = os.waitpid(child, 0)
journal.flush()
journal.close()
print(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_copy_of_the_process_is_told_that_the_journal_is_not_its_own(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", COPY, str(tmp_path / "journal.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout == "7\n"


if __name__ == "__main__":
    nursery(live)
