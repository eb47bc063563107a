"""What a client must be able to do with our server, whatever it is written in: each client is a script that is asked.

In: lines of JSON to a script (``clients/``, ``node/``), beside a server over scripted workers. Out: what the client
made of the answers, compared with what the workers saw and counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from integration.orchestra import PLAN, USED, Orchestra, orchestra
from openconductor.errors import ConnectionLost, RateLimited
from openconductor.serving.serve_config import ServeConfig

SHOWN = "1. anna: Think about it."
PLACE = {"city": "Bern", "people": 134794}
IDLE_S = 1.0  # a client's patience
SILENT_S = 3.0


FAILURES = {
    "unknown": "model_not_found",
    "rate": "worker_rate_limited",
    "budget": "budget_exceeded",
    "lost": "worker_failed",  # after a part of the answer was shown
}
"""Failures, and the code that a client tells of each."""


class Client:
    """A script that runs, as long as it is wanted."""

    def __init__(self, command: Sequence[object], how: str, environment: dict[str, str], log: Path) -> None:
        self._how = how
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(part) for part in command], text=True, env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    def do(self, name: str, url: str, **options: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"do": name, "url": url, "how": self._how, **options}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


Clients = Callable[[str], Client]


@contextmanager
def scripts(command: Callable[[str], tuple[list[object], str]], folders: pytest.TempPathFactory) -> Iterator[Clients]:
    """Clients by their names, each started when it is first wanted, with an empty home and a clean environment.

    Args:
        command: from a name the command, and which of its ways the script is to go.
        folders: where homes are made.
    """
    started: dict[str, Client] = {}

    def find(name: str) -> Client:
        if name not in started:
            line, how = command(name)
            home = folders.mktemp(name)
            clean = {"PATH": os.environ["PATH"], "HOME": str(home), "LANGSMITH_TRACING": "false"}
            started[name] = Client(line, how, clean, home / "log")
        return started[name]

    try:
        yield find
    finally:
        for client in started.values():
            client.close()


def installed(name: str, what: object, install: Callable[[Path], Sequence[Sequence[object]]]) -> Path:
    """A folder in the user's cache with packages in it; skips where they cannot be had.

    Args:
        name: the folder's.
        what: all that decides what is in it.
        install: from the folder the commands that fill it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openconductor-tests"
    folder = cache / f"{name}-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]}"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for command in install(folder):
            line = [str(part) for part in command]
            try:
                done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
            except subprocess.TimeoutExpired as error:
                pytest.skip(f"{name} could not be installed: {error}")
            if done.returncode:
                pytest.skip(f"{name} could not be installed: {done.stderr[-500:]}")
        (folder / ".ready").touch()
    return folder


def counted(server: Orchestra) -> list[int]:
    """Tokens read, written, and both, as the workers and the planner counted them."""
    calls = sum(len(one.sent) for one in (server.planner, *server.workers.values()))
    return [calls * USED.input_tokens, calls * USED.output_tokens, calls * USED.tokens]


# ── capabilities ─────────────────────────────────────────────────────────────────────────────────────────────────────
def text_and_usage(client: Client, folder: Path) -> None:
    with orchestra(folder, "thought", "42") as server:
        told = client.do("ask", server.url)
        assert told["text"] == "42"
        assert told["usage"] == counted(server) == [300, 60, 360]
        if "details" in told:
            numbers = set(re.findall(r"\d+", json.dumps(told["details"])))
            assert {str(3 * USED.cached_tokens), str(3 * USED.reasoning_tokens)} <= numbers, told["details"]
    assert SHOWN in told.get("thoughts", SHOWN)  # some clients show none


def stream_and_usage(client: Client, folder: Path) -> None:
    with orchestra(folder, "thought", ["4", 0.2, "2", 0.2, "!"]) as server:
        told = client.do("ask", server.url, stream=True)
        assert told["text"] == "42!"
        assert told["pieces"] >= 3, "it came piece by piece"
        assert told["usage"] == counted(server)
    assert SHOWN in told.get("thoughts", SHOWN)  # some clients show none


def tools_loop(client: Client, folder: Path, *, stream: bool) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        results = [turn for turn in messages if turn.role == "tool"]
        return f"it is {results[-1].content}" if results else ["let me see", {"add": {"a": 6, "b": 7}}]

    with orchestra(folder, "thought", bert) as server:
        told = client.do("tools", server.url, stream=stream)
        planner, anna, bert_ = server.planner, server.workers["anna"], server.workers["bert"]
    assert told["text"] == "it is 13"
    assert (len(planner.sent), len(anna.sent), len(bert_.sent)) == (1, 1, 2), "the very worker goes on by itself"
    assert "tools" not in anna.sent[0][1].body
    (first, sampling), (second, _) = bert_.sent
    assert [tool["function"]["name"] for tool in sampling.body["tools"]] == ["add"]
    assert second[: len(first)] == first
    assert second[-2].parts[0]["tool_calls"][0]["id"] == "own0"
    assert (second[-1].content, second[-1].parts[0]["tool_call_id"]) == ("13", "own0")


def structured_output(client: Client, folder: Path, **options: Any) -> None:
    """A form reaches the last worker, as a schema, a tool or an instruction; what it fills comes back parsed."""

    def bert(messages: Any, sampling: Any) -> Any:
        tools, text = sampling.body.get("tools"), json.dumps(PLACE)
        return {tools[0]["function"]["name"]: PLACE} if tools else [text[:9], 0.2, text[9:]]

    with orchestra(folder, "thought", bert) as server:
        assert client.do("structured", server.url, **options) == PLACE
        (_, alone), (messages, sampling) = (server.workers[name].sent[0] for name in ("anna", "bert"))
    assert not set(alone.body) & {"tools", "response_format"}
    told = json.dumps(sampling.body.get("response_format", {}).get("json_schema") or sampling.body.get("tools"))
    told += "".join(turn.content for turn in messages)
    assert all(f'"{name}"' in told for name in PLACE)


def several_turns(client: Client, folder: Path) -> None:
    with orchestra(folder, "thought", "42") as server:
        first, second = client.do("turns", server.url)
        asked = server.planner.sent[-1][0]
        seen = server.workers["bert"].sent[-1][0]
    assert (first["text"], second["text"]) == ("42", "42")
    for told in (asked, seen):
        words = "\n".join(turn.content for turn in told)
        places = [words.find(text) for text in ("What is 6 * 7?", "42", "And 7 * 7?")]
        assert -1 not in places and places == sorted(places)


def failure(client: Client, folder: Path, *, kind: str, stream: bool, errors: Sequence[str], amid: str | None) -> None:
    """An unknown model, a worker's failures and a budget that is too small are errors of the client's own.

    Args:
        client, folder: as everywhere.
        kind: which of the ``FAILURES``.
        stream: whether it happens amid a stream, as all but the first can.
        errors: the names of the errors that the client raises, one a kind.
        amid: those that it raises amid a stream.
    """
    plays: Any = {"rate": RateLimited("slow down", retry_after=1), "lost": ["4", 0.1, ConnectionLost("gone")]}
    options: Any = {"unknown": {"model": "conductr"}, "budget": {"conductor": {"max_calls": 1}}}
    with orchestra(folder, "thought", plays.get(kind, "42")) as server:
        told = client.do("ask", server.url, stream=stream, **options.get(kind, {}))
        assert len(server.planner.sent) == (0 if kind == "unknown" else 1), "nothing is paid for twice"
    assert FAILURES[kind] in json.dumps(told), told
    raised = amid if stream and kind != "unknown" else errors
    assert told["error"] == raised[list(FAILURES).index(kind)], told


def silence(clients: dict[str, Client], folder: Path) -> None:
    """Clients, all at once, survive three silences: before the plan, in a step, and amid the answer."""
    beat, pause = ServeConfig().heartbeat_s, SILENT_S
    with (
        orchestra(folder, [pause, "thought"], ["4", pause, "2"], plan=[pause, PLAN], heartbeat_s=beat) as server,
        ThreadPoolExecutor(len(clients)) as together,
    ):
        asked = {
            name: together.submit(client.do, "ask", server.url, stream=True, idle=IDLE_S)
            for name, client in clients.items()
        }
        told = {name: one.result() for name, one in asked.items()}
    assert {name: one.get("text", one) for name, one in told.items()} == dict.fromkeys(clients, "42")
