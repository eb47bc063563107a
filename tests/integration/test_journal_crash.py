"""Kill -9 at random moments: no acknowledged step is lost, the store is whole, no call of the journal is made again.

A nursery, a process with everything imported, forks one child a life. A child answers the questions of one journal
against a server in the test's process, and writes each acknowledged episode's id into a file before it goes on. It is
killed at a random moment; the next child takes up the same questions with the same journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from openconductor import Conductor, Worker, WorkerPool
from openconductor.errors import JournalError
from openconductor.journal import Journal
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.types import Sampling

KILLS = 200
LONGEST_LIFE = 0.3  # seconds from the fork on; by then most questions of a journal are answered
QUESTIONS = 40
AT_ONCE = 6
SEED = 20_261_121
TREE = "model_id = [0, 1, 0, 1, 0]\nsubtasks = ['A', 'B', 'C', 'D', 'E']\naccess_list = [[], [], [0], [1], [2, 3]]"
STEPS = 5


# ── the server: counts what it is asked ──────────────────────────────────────────────────────────────────────────────
class CountingServer:
    """Answers each request after some milliseconds; what was asked is known by its model and its turns."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""
        self._draws = random.Random(SEED)
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._up.wait(30)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._up.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(request_id(body["model"], body["messages"]))
        number = len(self.asked)
        await asyncio.sleep(self._draws.uniform(0.0, 0.008))
        text = TREE if body["model"] == "conductor" else f"Answer {number} to {body['messages'][-1]['content'][:60]}"
        message = {"role": "assistant", "content": text}
        return web.json_response(
            {
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        )


def request_id(model: str, messages: list[dict[str, str]]) -> str:
    return json.dumps([model, [[turn["role"], turn["content"]] for turn in messages]])


# ── the child and its nursery: this file as a program ────────────────────────────────────────────────────────────────
def live(journal_path: str, acknowledged: str, url: str) -> None:
    """Answer every question that has no acknowledged answer yet."""
    done = {int(line.split()[0]) for line in Path(acknowledged).read_text("ascii").splitlines()}
    out = os.open(acknowledged, os.O_WRONLY | os.O_APPEND)
    asyncio.run(answer_all([number for number in range(QUESTIONS) if number not in done], journal_path, out, url))


async def answer_all(numbers: list[int], journal_path: str, out: int, url: str) -> None:
    """Answer these questions, and write each one's number and episode as soon as it is acknowledged."""
    workers = {name: Worker(OpenAICompatibleProvider(name, base_url=url), name=name) for name in ("w0", "w1")}
    planner = Worker(
        OpenAICompatibleProvider("conductor", base_url=url), name="conductor", sampling=Sampling(max_tokens=99)
    )
    todo = iter(numbers)
    with Journal(journal_path) as journal:
        conductor = Conductor(planner, pool=WorkerPool(list(workers.values()))).replaying(journal)

        async def answer() -> None:
            for number in todo:
                episode = await conductor.ask(f"Question {number}?", on_event=journal)
                assert episode.answer is not None, episode.error
                os.write(out, f"{number} {episode.id}\n".encode())

        await asyncio.gather(*(answer() for _ in range(AT_ONCE)))


def nursery() -> None:
    """Fork a child for each line of standard input, kill it at the next line, and say how it ended."""
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                live(*json.loads(line))
                os._exit(0)
            os._exit(1)
        sys.stdin.readline()
        os.kill(child, signal.SIGKILL)  # nobody has waited for it: where it has ended already, this does nothing
        print(os.waitpid(child, 0)[1], flush=True)


class Nursery:
    """The program above, from outside."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def life(self, journal: Path, acknowledged: Path, url: str, seconds: float) -> int:
        """One child's life, ended after so many seconds; returns how it ended, as ``os.waitpid`` says it."""
        orders, answers = self._process.stdin, self._process.stdout
        assert orders is not None
        assert answers is not None
        print(json.dumps([str(journal), str(acknowledged), url]), file=orders, flush=True)
        time.sleep(seconds)
        print("kill", file=orders, flush=True)
        return int(answers.readline())

    def close(self) -> None:
        self._process.communicate(timeout=30)


# ── the tests ────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass
class Found:
    """What stands in a journal after a kill: the requests that were answered, and how much of it was unfinished."""

    requests: set[str] = field(default_factory=set)
    unfinished: int = 0
    replayed: int = 0


def checked(journal: Path, acknowledged: Path) -> Found:
    """What the journal holds; fails where it is not whole, or lacks something that was acknowledged."""
    ids = [line.split()[1] for line in acknowledged.read_text("ascii").splitlines()]
    try:
        reader = Journal.reading(journal)
    except JournalError:
        assert not ids  # killed before the file was made
        return Found()
    found = Found()
    with reader:
        with closing(sqlite3.connect(journal)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            steps = dict(
                connection.execute(
                    "SELECT id, count(*) FROM steps JOIN episodes ON number = steps.episode "
                    "WHERE steps.outcome = 'answered' AND answered_by IS NOT NULL GROUP BY id"
                )
            )
        outcomes = {one.id: one.outcome for one in reader.episodes()}
        calls: dict[str, list[int | None]] = {}
        for call in reader.calls():
            if call.outcome == "answered":
                assert call.completion is not None
                assert call.messages is not None
                assert call.completion.text
                calls.setdefault(call.episode, []).append(call.step)
                turns = [{"role": turn.role, "content": turn.content} for turn in call.messages]
                found.requests.add(request_id(call.worker, turns))
                found.replayed += call.replayed
    for episode in ids:
        assert outcomes[episode] == "answered"
        assert steps[episode] == STEPS
        assert sorted(calls[episode], key=str) == [0, 1, 2, 3, 4, None]
    found.unfinished = sum(outcome == "unfinished" for outcome in outcomes.values())
    return found


@pytest.fixture
def server() -> Iterator[CountingServer]:
    server = CountingServer()
    yield server
    server.close()


def test_a_kill_at_any_moment_loses_nothing_acknowledged_and_repeats_no_call(
    tmp_path: Path, server: CountingServer
) -> None:
    draws = random.Random(SEED)
    nursery = Nursery()
    kills = in_the_middle = replayed = journals = 0
    try:
        while kills < KILLS:
            journals += 1
            journal, acknowledged = tmp_path / f"{journals}.sqlite", tmp_path / f"{journals}.txt"
            acknowledged.touch()
            found, status = Found(), signal.SIGKILL
            while status == signal.SIGKILL:
                before = len(server.asked)
                status = nursery.life(journal, acknowledged, server.url, draws.uniform(0.0, LONGEST_LIFE))
                assert status in (0, signal.SIGKILL)
                repeated = found.requests.intersection(server.asked[before:])
                assert not repeated, f"{len(repeated)} calls that stood in the journal were made again"
                earlier, found = found, checked(journal, acknowledged)
                kills += status == signal.SIGKILL
                in_the_middle += status == signal.SIGKILL and found.unfinished > earlier.unfinished
            assert len(acknowledged.read_text("ascii").splitlines()) == QUESTIONS
            replayed += found.replayed
    finally:
        nursery.close()
    print(f"{kills} kills, {in_the_middle} of them during episodes, {replayed} calls replayed, {journals} journals")
    assert in_the_middle >= KILLS // 3, "too few of the kills came during episodes: the test lost its power"
    assert replayed > 0


WRITER = """
import sys, time
from openconductor.errors import JournalError
from openconductor.journal import Journal
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
    assert first.stdout is not None
    assert first.stdout.readline() == "open\n"
    second, _ = writer().communicate(timeout=60)
    assert "another writer has it open" in second
    Journal.reading(tmp_path / "journal.sqlite").close()
    first.kill()
    first.communicate(timeout=60)
    third, _ = writer().communicate(timeout=60)
    assert third == "open\n"


COPY = """
import os, sys, warnings
from openconductor.errors import JournalError
from openconductor.journal import Journal
journal = Journal(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        journal.flush()
    except JournalError as error:
        os._exit(7 if "of which this one is a copy" in str(error) else 8)
    os._exit(9)
_, status = os.waitpid(child, 0)
journal.flush()
journal.close()
print(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_copy_of_the_process_is_told_that_the_journal_is_not_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COPY, str(tmp_path / "journal.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "7\n"


if __name__ == "__main__":
    nursery()
