"""Keys stay where they are: canaries in environment, pool file and responses turn up nowhere.

The server here is a gateway that talks too much: it repeats the key that it was sent, one of
another worker, and one of its own, in status lines, headers and bodies of every kind. Looked
through are the errors (message, repr, traceback and causes), the events, the log at its most
talkative, the journal's files and its export; for each key as it is,
in halves, in Base64, quoted as in a URL.
"""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from journaled import everything_in

from faults import plays
from faults.plays import END, STREAM, Fault, Play, delta, head, piece
from faults.script import Played
from faults.server import Exchange, FaultServer, fault_server
from openconductor import Conductor, Worker, WorkerPool
from openconductor.calls import policies
from openconductor.calls.dispatcher import FanOut
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
    for name, play in ECHOES.items():
        monkeypatch.setitem(plays.FAULTS, name, Fault(play, "", ""))  # type: ignore[arg-type]
    caplog.set_level(logging.DEBUG)


class Leaks:
    """Finds canaries; a find names the canary, its form and the place."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def look(self, where: str, text: str | bytes) -> None:
        raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        for whose, canary in CANARIES.items():
            for form, value in forms(canary).items():
                before, found, after = raw.partition(value)
                if found:
                    shown = before[-60:] + found + after[:60]
                    self.found.add(f"{where}: the key {whose}, {form}: {shown!r}")

    def look_at_error(self, where: str, error: BaseException) -> None:
        shown = [str(error), repr(error), repr(vars(error)), *traceback.format_exception(error)]
        self.look(where, "".join(shown))  # its causes, too

    def none(self) -> None:
        assert not self.found, "\n".join(sorted(self.found))


def forms(canary: str) -> dict[str, bytes]:
    raw = canary.encode()
    half = len(raw) // 2
    written = json.dumps(canary)
    found = {"plain": raw, "its first half": raw[:half], "its second half": raw[half:]}
    found["quoted"] = quote(canary, safe="").encode()
    found["Base64"] = base64.b64encode(raw)[:-4]
    found["in JSON"] = written[1:-1].encode()
    return found


# ── the talkative gateway ─────────────────────────────────────────────────────────────────────────
CODED = [base64.b64encode(f"{before}{SENT}".encode()).decode() for before in ("", "u", "u:")]
WORDS = f"bad key {SENT}, not {OTHER} nor {FOREIGN}; as {quote(SENT, safe='')}, {SENT[:20]}… or "
WORDS += " ".join(CODED)  # all the keys, in all their forms
IN_JSON = json.dumps(WORDS)[1:-1]
NAMES = "WWW-Authenticate X-Request-Id Retry-After Location Set-Cookie Server X-Other"
HEADERS = "".join(f"{name}: {SENT} {OTHER} {FOREIGN}\r\n" for name in NAMES.split())


def says(text: str, kind: str = "application/json", status: int = 200) -> Play:
    """``KEYS`` stands for all the keys."""
    said = text.replace("KEYS", WORDS if kind == "text/html" else IN_JSON).encode()

    def play(x: Exchange) -> None:
        assert x.request.key == f"Bearer {SENT}"
        response = head(kind, status=status, length=len(said), extra=HEADERS) + said
        x.send(response, status=status)

    return play


def streams(text: str) -> Play:
    """Half an answer, then this event."""
    said = piece(b"data: %s\n\n" % text.replace("KEYS", IN_JSON).encode())
    response = head(STREAM, extra=HEADERS) + delta("Half an") + said + END
    return lambda x: x.send(response, status=200)


def on_the_wire(text: str) -> Play:
    """These lines for a response, whatever HTTP thinks of them; ``OK`` begins one well."""
    whole = text.replace("OK⏎", "HTTP/1.1 200 OK⏎").replace("⏎", "\r\n")
    said = whole.replace("KEYS", WORDS)

    def play(x: Exchange) -> None:
        x.send(said.encode("latin-1", "replace"), status=200)
        x.close()

    return play


CODES = (302, 400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 503)
ERROR = '{"error": {"message": "KEYS", "code": "KEYS", "type": "KEYS"}}'
BODIES = """
error under 200         → {"error": {"message": "KEYS", "code": "KEYS"}}
no JSON                 → KEYS
another shape           → {"KEYS": "KEYS"}
a list                  → ["KEYS"]
choices that are none   → {"choices": "KEYS"}
a content that is none  → {"choices": [{"message": {"content": {"KEYS": 1}}}]}
a refusal → {"choices": [{"message": {"refusal": "KEYS"}, "finish_reason": "stop"}]}
a filter  → {"choices": [{"message": {"content": ""}, "finish_reason": "content_filter: KEYS"}]}
"""
RESPONSES = """
a status line           → HTTP/1.1 500 KEYS⏎Content-Length: 0⏎⏎
a version that is none  → HTTP/9 KEYS⏎⏎
another place           → HTTP/1.1 302 X⏎Location: http://127.0.0.1:9/KEYS⏎Content-Length: 0⏎⏎
no status line          → KEYS⏎⏎
a header that is none   → OK⏎KEYS⏎Content-Length: 0⏎⏎
a length that is none   → OK⏎Content-Length: KEYS⏎⏎
an encoding that is none → OK⏎Content-Encoding: KEYS⏎Content-Length: 4⏎⏎KEYS
a chunk that is none    → OK⏎Transfer-Encoding: chunked⏎⏎KEYS⏎KEYS⏎
a body cut short        → OK⏎Content-Type: text/event-stream⏎Content-Length: 9999⏎⏎KEYS
"""


def by_name(table: str, play: Callable[[str], Play]) -> dict[str, Play]:
    """Make a play of each line of a table."""
    rows = [line.split("→") for line in table.strip().splitlines()]
    return {name.strip(): play(text.strip()) for name, text in rows}


ECHOES: dict[str, Play] = {
    "list under 500": says('[{"error": {"message": "KEYS"}}]', status=500),
    "html under 500": says("<html><title>KEYS</title></html>", "text/html", 500),
    "text under 500": says("KEYS", status=500),
    "odd under 500": says('{"detail": {"request": "KEYS"}}', status=500),
}
ECHOES |= {f"status {code}": says(ERROR, status=code) for code in CODES}
ECHOES |= by_name(BODIES, says)
ECHOES |= by_name(RESPONSES, on_the_wire)
ECHOES |= {
    "HTML": says("<html>KEYS</html>", "text/html"),
    "a content type": says("KEYS", f"text/{SENT}"),
    "an error in a stream": streams('{"error": {"message": "KEYS"}}'),
    "no JSON in a stream": streams("KEYS"),
}
ECHOES["a finish reason"] = lambda x: plays.answer(x, text="4", finish=WORDS)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep calls that are rejected for their rate from waiting for a better minute."""
    monkeypatch.setattr(policies, "PATIENCE_S", 0.1)


def worker(server: FaultServer) -> Worker:
    provider = OpenAICompatibleProvider("w", base_url=server.url, api_key_env="CANARY_API_KEY")
    return Worker(provider, name="w", retries=1, timeout_s=10.0)


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
                leaks.look_at_error("the error raised", error)
                assert error.episode is not None  # noqa: PT017
                episode = error.episode
            journal.flush()
            leaks.look("journal", everything_in(tmp_path))
            read = [*journal.episodes(limit=None), *journal.calls(), *journal.workflows()]
            leaks.look("what is read of it", repr(read))
        await pool.aclose()
    assert server.records  # else nothing was tested
    leaks.look_at_error("the episode's error", episode.error)
    for call in episode.rounds[0].transcript.results[0].calls:
        leaks.look_at_error("a call's error", call.error)
    leaks.look("the episode", repr(episode))
    leaks.look("the events", repr(events))
    leaks.look("--json", json.dumps(episode_json(episode, pool.names)))
    for part in (pool, pool[0], pool[0].provider):
        leaks.look("the pool", repr(part))
    leaks.look("the log", caplog.text)
    leaks.look("stdout and stderr", "".join(capfd.readouterr()))
    leaks.none()


async def test_a_key_in_an_answer_is_the_answer_but_does_not_reach_the_journal(
    tmp_path: Path,
) -> None:
    async with fault_server(Played({}), {"w": WORDS}) as server:
        pool = WorkerPool([worker(server)])
        conductor = Conductor(lambda messages: PLAN, pool=pool)
        with Journal(tmp_path / "journal.sqlite") as journal:
            episode = await conductor.ask("How many?", on_event=journal)
        await pool.aclose()
    assert SENT in episode.answer
    kept = everything_in(tmp_path)
    for key in VARIABLES.values():
        assert key.encode() not in kept


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
    cause: BaseException | None = caught.value
    while cause is not None:
        leaks.look("the error and its causes", str(cause) + repr(cause))
        cause = cause.__cause__ or cause.__context__
    leaks.none()
