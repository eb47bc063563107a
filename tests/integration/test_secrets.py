"""Keys stay where they are: canaries in environment, pool file, server error bodies and headers turn up nowhere.

The server here is a gateway that talks too much: it repeats the key that it was sent, one of
another worker, and one of its own, in status lines, headers and bodies of every kind. Looked
through are the errors (message, repr, traceback and causes), the events, the log at its most
talkative, the journal's files, its export, and what the command line prints; for each key as it is,
in halves, in Base64, quoted as in a URL.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from chat_server import write_pool
from journaled import everything_in

from faults import plays
from faults.plays import END, STREAM, Fault, Play, delta, event, head, piece
from faults.script import Played
from faults.server import Exchange, FaultServer, fault_server
from openconductor import Conductor, Worker, WorkerPool
from openconductor.calls import policies
from openconductor.episode import FanOut
from openconductor.errors import ConfigError, OpenConductorError
from openconductor.events import Event
from openconductor.prompt import render_workflow
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.store import Journal
from openconductor.store.episode_json import episode_json
from openconductor.types import Step, Workflow

SENT = "sk-canary/A7f3+b1c9d5e2=8642"  # with what Base64, URLs and JSON write differently
OTHER = "canary-of-another-worker-5d1e77"
FOREIGN = "sk-proj-canaryOfTheGateway0123456789"
CANARIES = {"sent": SENT, "another worker's": OTHER, "the server's own": FOREIGN}
VARIABLES = {"CANARY_API_KEY": SENT, "OTHER_API_KEY": OTHER}
PLAN = render_workflow(Workflow((Step(0, "Answer."),)))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(policies, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(policies, "UNREACHABLE_S", 0.5)
    for name, play in (ECHOES | {"an answer": in_the_answer}).items():
        monkeypatch.setitem(plays.FAULTS, name, Fault(play, "", ""))  # type: ignore[arg-type]
    caplog.set_level(logging.DEBUG)


class Leaks:
    """Finds canaries; a find names the canary, the form and the place."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def look(self, where: str, text: str | bytes) -> None:
        raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
        for whose, canary in CANARIES.items():
            seen = [form for form, value in forms(canary).items() if value in raw]
            if seen:
                start = raw.index(forms(canary)[seen[0]])
                self.found.append(
                    f"{where}: the key {whose} ({', '.join(seen)}): …{raw[max(0, start - 60) :][:120]!r}…"
                )

    def none(self) -> None:
        assert not self.found, "\n".join(sorted(set(self.found)))


def forms(canary: str) -> dict[str, bytes]:
    raw = canary.encode()
    return {
        "plain": raw,
        "its first half": raw[: len(raw) // 2],
        "its second half": raw[len(raw) // 2 :],
        "quoted": quote(canary, safe="").encode(),
        "Base64": base64.b64encode(raw)[:-4],
        "in JSON": json.dumps(canary)[1:-1].encode(),
    }


# ── the talkative gateway ─────────────────────────────────────────────────────────────────────────
def words(x: Exchange) -> str:
    """All the keys, in all their forms."""
    sent = x.request.key.removeprefix("Bearer ")
    assert sent == SENT
    coded = [base64.b64encode(f"{before}{sent}".encode()).decode() for before in ("", "u", "u:")]
    return f"bad key {sent}, not {OTHER} nor {FOREIGN}; as {quote(sent, safe='')}, {sent[:20]}… or {' '.join(coded)}"


def headers(x: Exchange) -> str:
    """Every header that a client may read, with a key in it."""
    sent = x.request.key.removeprefix("Bearer ")
    named = (
        "WWW-Authenticate",
        "X-Request-Id",
        "Retry-After",
        "Location",
        "Set-Cookie",
        "Server",
        "X-Other",
    )
    return "".join(f"{name}: {sent} {OTHER} {FOREIGN}\r\n" for name in named)


def refusal(code: int, body: str = "json") -> Play:
    def play(x: Exchange) -> None:
        said = {
            "json": json.dumps(
                {"error": {"message": words(x), "code": words(x), "type": words(x)}}
            ),
            "list": json.dumps([{"error": {"message": words(x)}}]),
            "html": f"<html><title>{words(x)}</title></html>",
            "text": words(x),
            "odd": json.dumps({"detail": {"request": words(x)}}),
        }[body].encode()
        kind = "text/html" if body == "html" else "application/json"
        x.send(head(kind, status=code, length=len(said), extra=headers(x)) + said, status=code)

    return play


def says(text: str, kind: str = "application/json") -> Play:
    """Under status 200; ``KEYS`` stands for all the keys."""

    def play(x: Exchange) -> None:
        said = text.replace("KEYS", json.dumps(words(x))[1:-1]).encode()
        x.send(head(kind, length=len(said), extra=headers(x)) + said, status=200)

    return play


def streams(text: str) -> Play:
    """Half an answer, then this event."""

    def play(x: Exchange) -> None:
        said = text.replace("KEYS", json.dumps(words(x))[1:-1]).encode()
        begun = head(STREAM, extra=headers(x)) + delta("Half an")
        x.send(begun + piece(b"data: %s\n\n" % said) + END, status=200)

    return play


def on_the_wire(text: str) -> Play:
    """These bytes for a response, whatever HTTP thinks of them; ``OK`` begins one well."""

    def play(x: Exchange) -> None:
        said = text.replace("OK\r\n", "HTTP/1.1 200 OK\r\n").replace("KEYS", words(x))
        x.send(said.encode("latin-1", "replace"), status=200)
        x.close()

    return play


def finishes(x: Exchange) -> None:
    """A finish reason that is a key."""
    if x.request.stream:
        x.send(
            head(STREAM)
            + event({"choices": [{"index": 0, "delta": {}, "finish_reason": words(x)}]})
            + END,
            status=200,
        )
    else:
        said = plays.body("4", finish=words(x))
        x.send(head(length=len(said)) + said, status=200)


def in_the_answer(x: Exchange) -> None:
    """A model that repeats what it should not know."""
    plays.answer(x, text=words(x))


ECHOES: dict[str, Play] = {
    **{
        f"status {code}": refusal(code)
        for code in (302, 400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 503)
    },
    **{f"{kind} under 500": refusal(500, kind) for kind in ("list", "html", "text", "odd")},
    "error under 200": says('{"error": {"message": "KEYS", "code": "KEYS"}}'),
    "no JSON": says("KEYS"),
    "another shape": says('{"KEYS": "KEYS"}'),
    "a list": says('["KEYS"]'),
    "choices that are none": says('{"choices": "KEYS"}'),
    "a content that is none": says('{"choices": [{"message": {"content": {"KEYS": 1}}}]}'),
    "a refusal": says('{"choices": [{"message": {"refusal": "KEYS"}, "finish_reason": "stop"}]}'),
    "a filter": says(
        '{"choices": [{"message": {"content": ""}, "finish_reason": "content_filter: KEYS"}]}'
    ),
    "HTML": says("<html>KEYS</html>", "text/html"),
    "a content type": says("KEYS", f"text/{SENT}"),
    "an error in a stream": streams('{"error": {"message": "KEYS"}}'),
    "no JSON in a stream": streams("KEYS"),
    "a finish reason": finishes,
    "a status line": on_the_wire("HTTP/1.1 500 KEYS\r\nContent-Length: 0\r\n\r\n"),
    "a version that is none": on_the_wire("HTTP/9 KEYS\r\n\r\n"),
    "another place": on_the_wire(
        "HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:9/KEYS\r\nContent-Length: 0\r\n\r\n"
    ),
    "no status line": on_the_wire("KEYS\r\n\r\n"),
    "a header that is none": on_the_wire("OK\r\nKEYS\r\nContent-Length: 0\r\n\r\n"),
    "a length that is none": on_the_wire("OK\r\nContent-Length: KEYS\r\n\r\n"),
    "an encoding that is none": on_the_wire(
        "HTTP/1.1 200 OK\r\nContent-Encoding: KEYS\r\nContent-Length: 4\r\n\r\nKEYS"
    ),
    "a chunk that is none": on_the_wire("OK\r\nTransfer-Encoding: chunked\r\n\r\nKEYS\r\nKEYS\r\n"),
    "a body cut short": on_the_wire(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\nKEYS"
    ),
}


def worker(server: FaultServer) -> Worker:
    provider = OpenAICompatibleProvider("w", base_url=server.url, api_key_env="CANARY_API_KEY")
    return Worker(provider, name="w", retries=1, timeout_s=10.0)


def told(error: BaseException) -> Iterator[str]:
    """Everything that can be shown of an error."""
    yield str(error)
    yield repr(error)
    yield repr(vars(error))
    yield "".join(traceback.format_exception(error))  # its causes, too


# ── errors, events, logs, journal, export ─────────────────────────────────────────────────────────
@pytest.mark.parametrize("stream", [False, True], ids=["piece", "stream"])
@pytest.mark.parametrize("name", ECHOES)
async def test_a_key_that_the_server_repeats_is_nowhere(
    name, stream, tmp_path, caplog, capfd
) -> None:
    leaks, events = Leaks(), list[Event]()
    async with fault_server(Played({"w": [name]})) as server:
        pool = WorkerPool([worker(server)])
        conductor = Conductor(lambda messages: PLAN, pool=pool)
        with Journal(tmp_path / "journal.sqlite") as journal:
            sinks = (journal, events.append) if stream else (journal,)
            try:
                episode = await conductor.ask("How many?", on_event=FanOut(*sinks))
            except OpenConductorError as error:
                for shown in told(error):
                    leaks.look("the error raised", shown)
                assert error.episode is not None  # noqa: PT017
                episode = error.episode
            journal.flush()
            leaks.look("journal", everything_in(tmp_path))
            leaks.look(
                "what is read of it",
                repr([*journal.episodes(limit=None), *journal.calls(), *journal.workflows()]),
            )
        await pool.aclose()
    assert server.records  # else nothing was tested
    assert episode.error is not None
    for shown in told(episode.error):
        leaks.look("the episode's error", shown)
    transcript = episode.rounds[0].transcript
    for call in transcript.results[0].calls if transcript is not None else ():
        assert call.error is not None
        for shown in told(call.error):
            leaks.look("a call's error", shown)
    leaks.look("the episode", repr(episode))
    leaks.look("the events", repr(events))
    leaks.look(
        "--json",
        json.dumps(episode_json(episode, {ordinal: worker.name for ordinal, worker in pool})),
    )
    leaks.look("the pool", repr(pool) + repr(pool[0]) + repr(pool[0].provider))
    leaks.look("the log", caplog.text)
    leaks.look("stdout and stderr", "".join(capfd.readouterr()))
    leaks.none()


async def test_a_key_in_an_answer_is_the_answer_but_does_not_reach_the_journal(
    tmp_path: Path,
) -> None:
    async with fault_server(Played({"w": ["an answer"]})) as server:
        pool = WorkerPool([worker(server)])
        with Journal(tmp_path / "journal.sqlite") as journal:
            episode = await Conductor(lambda messages: PLAN, pool=pool).ask(
                "How many?", on_event=journal
            )
        await pool.aclose()
    assert episode.answer is not None and SENT in episode.answer
    for known in (
        SENT,
        OTHER,
    ):  # what the environment holds; the gateway's own key is a text like another one
        assert known.encode() not in everything_in(tmp_path)


# ── the pool file ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "line",
    [
        f'api_key = "{SENT}"',
        f'key = "{SENT}"',
        f'api_key_env = "{SENT}"',
        f'api_key_env = ["{FOREIGN}"]',
        f'base_url = "http://user:{OTHER}@127.0.0.1:1/v1"',
        f'base_url = "http://127.0.0.1:1/v1?key={FOREIGN}"',
        f'headers = {{ Authorization = "Bearer {SENT}" }}',
        f'body = "{FOREIGN}"',
        f'timeout_s = "{FOREIGN}"',
        f'api_key = "{SENT}',
    ],
)
def test_a_key_in_the_pool_file_is_refused_and_not_repeated(line: str, tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    base = "" if "base_url" in line else 'base_url = "http://127.0.0.1:1/v1"\n'
    path.write_text(f'[[worker]]\nname = "w"\nmodel = "m"\n{base}{line}\n')
    leaks = Leaks()
    with pytest.raises(ConfigError) as caught:
        WorkerPool.from_toml(path)
    for shown in (str(caught.value), repr(caught.value), *map(str, chain(caught.value))):
        leaks.look("the error", shown)
    leaks.none()


def chain(error: BaseException) -> Iterator[BaseException]:
    while (error := error.__cause__ or error.__context__) is not None:  # type: ignore[assignment]
        yield error


# ── the command line ──────────────────────────────────────────────────────────────────────────────
async def openconductor(*arguments: str) -> tuple[int, str]:
    """(exit code, stdout and stderr) of the command."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-X",
        "dev",  # asyncio's log and every warning
        "-m",
        "openconductor",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


@pytest.mark.parametrize("name", ["status 401", "html under 500", "a header that is none"])
async def test_neither_ask_nor_pool_check_prints_a_key(name: str, tmp_path: Path) -> None:
    leaks = Leaks()
    async with fault_server(Played({"w": [name]}), {"planner": PLAN}) as server:
        path = write_pool(
            tmp_path, server.url, "w", "planner", more='api_key_env = "CANARY_API_KEY"\nretries = 0'
        )
        asking = (
            "ask",
            "How many?",
            "--pool",
            path,
            "--conductor",
            "worker:planner",
            "--no-fallback",
        )
        for arguments in (
            asking,
            (*asking, "--json"),
            (*asking, "--json", "--journal", str(tmp_path / "journal.sqlite")),
            ("pool", "check", path, "--timeout", "5"),
            ("pool", "check", path, "--timeout", "5", "--json"),
        ):
            code, printed = await openconductor(*arguments)
            assert code == 1, printed
            assert "127.0.0.1" in printed or "status" in printed, printed  # the error is told of
            leaks.look(" ".join(arguments[:2]), printed)
    leaks.look("journal", everything_in(tmp_path))
    assert {record.request.key for record in server.records} == {f"Bearer {SENT}"}
    leaks.none()
