"""Official clients against our server, as people install them: each is a script that is asked
(`clients/`, `node/`).

Compared is what a client made of the answers with what the workers saw and counted. Clients of the
development environment are always run, wrappers of them and those for Node (from npm, or skipped)
with the slow tests.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.orchestra import PLAN, USED, Orchestra, orchestra
from openconductor.errors import ConnectionLost, RateLimited
from openconductor.serving.serve_config import ServeConfig

HERE = Path(__file__).parent
SHOWN = "1. anna: Think about it."
PLACE = {"city": "Bern", "people": 134794}
IDLE_S = 1.0  # a client's patience
FAILURES = {
    "unknown": "model_not_found",
    "rate": "worker_rate_limited",
    "budget": "budget_exceeded",
    "lost": "worker_failed",
}
"""Failures, and the code that a client tells of each; ``lost`` comes after a part of the answer was
shown.
"""
STATUS = ("NotFoundError", "RateLimitError", "APIStatusError", "InternalServerError")
ANTHROPIC = (*STATUS[:2], "PaymentRequiredError", "InternalServerError")
PYDANTIC = (
    "ModelNotFoundError",
    "ModelRateLimitError",
    "ModelQuotaExceededError",
    "ModelServerError",
)
NODE = ("NotFoundError", "RateLimitError", "APIError", "InternalServerError")
VERCEL = ("APICallError",) * 4
CHAIN = ("OpenAIModelNotFoundError", "OpenAIRateLimitError", "APIStatusError", "OpenAIAPIError")
CHAINED = (
    "AnthropicModelNotFoundError",
    "AnthropicRateLimitError",
    "PaymentRequiredError",
    "AnthropicAPIError",
)
ENVIRONMENTS = {
    "langchain": ("langchain-openai==1.7.3", "langchain-anthropic==1.7.7", "tiktoken==0.14.0"),
    "instructor": (
        "instructor==1.17.0",
        "llm==0.36",
        "openai==3.3.0",
        "jiter==0.14.0",
        "rich==14.3.4",
    ),
}
"""What is installed where; the rest is as ``constraints.txt`` has it, but for what one of these
wants otherwise.
"""


@dataclass(frozen=True)
class Kind:
    """A client: its script, its way to work, the errors that it raises for each failure, and those
    amid a stream.

    The Python environment that it lives in is that of development, or one of its own.
    """

    script: str
    how: str
    errors: Sequence[str]
    amid: Sequence[str] = ("APIError",) * 4
    fast: bool = False
    environment: str = ""


KINDS = {
    "openai": Kind("with_openai.py", "chat", STATUS, fast=True),
    "openai-responses": Kind("with_openai.py", "responses", STATUS, fast=True),
    "anthropic": Kind("with_anthropic.py", "", ANTHROPIC, ("APIStatusError",) * 4, fast=True),
    "pydantic-ai": Kind("with_pydantic_ai.py", "chat", PYDANTIC, PYDANTIC),
    "pydantic-ai-responses": Kind("with_pydantic_ai.py", "responses", PYDANTIC, PYDANTIC),
    "pydantic-ai-anthropic": Kind(
        "with_pydantic_ai.py", "anthropic", PYDANTIC, (*PYDANTIC[:3], "ModelAPIError")
    ),
    "langchain": Kind("with_langchain.py", "chat", CHAIN, environment="langchain"),
    "langchain-responses": Kind("with_langchain.py", "responses", CHAIN, environment="langchain"),
    "langchain-anthropic": Kind(
        "with_langchain.py", "anthropic", CHAINED, ("APIStatusError",) * 4, False, "langchain"
    ),
    "instructor": Kind("with_instructor.py", "", STATUS, environment="instructor"),
    "llm": Kind("with_llm.py", "chat", STATUS, environment="instructor"),
    "llm-responses": Kind("with_llm.py", "responses", STATUS, environment="instructor"),
    "node-openai": Kind("with_openai.mjs", "chat", NODE),
    "node-openai-responses": Kind("with_openai.mjs", "responses", NODE),
    "ai-compatible": Kind("with_ai.mjs", "compatible", VERCEL, ("StreamProviderError",) * 4),
    "ai-responses": Kind("with_ai.mjs", "openai", VERCEL, ("StreamProviderError",) * 4),
    "ai-anthropic": Kind("with_ai.mjs", "anthropic", VERCEL, ("StreamProviderError",) * 4),
}
MODES = {
    "langchain": ("function_calling",),
    "instructor": ("TOOLS_STRICT", "JSON", "JSON_SCHEMA", "MD_JSON"),
}
"""How else a client can ask for a form."""
FAST = [name for name, kind in KINDS.items() if kind.fast]
SLOW = (pytest.mark.slow, pytest.mark.timeout(600))
each = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else SLOW) for name in KINDS]
)
both = pytest.mark.parametrize("stream", [False, True])


class Client:
    """A script that runs, as long as it is wanted."""

    def __init__(self, command: Sequence[object], how: str, home: Path) -> None:
        self._how, self._log = how, home / "log"
        clean = {"PATH": os.environ["PATH"], "HOME": str(home), "LANGSMITH_TRACING": "false"}
        with self._log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                text=True,
                env=clean,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def do(self, name: str, url: str, **options: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(
            json.dumps({"do": name, "url": url, "how": self._how, **options}) + "\n"
        )
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


Clients = Callable[[str], Client]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Clients by their names, each started when it is first wanted, with an empty home and a clean
    environment.
    """
    started: dict[str, Client] = {}

    def find(name: str) -> Client:
        if name not in started:
            kind, home = KINDS[name], tmp_path_factory.mktemp(name)
            if kind.script.endswith(".py"):
                command = [interpreter(kind.environment), HERE / "clients" / kind.script]
            else:  # beside the packages
                shutil.copytree(HERE / "node", home, dirs_exist_ok=True)
                (home / "node_modules").symlink_to(packages())
                command = ["node", home / kind.script]
            started[name] = Client(command, kind.how, home)
        return started[name]

    yield find
    for client in started.values():
        client.close()


def packages() -> Path:
    """What ``node/package.json`` names; skips where it cannot be had from npm."""
    package = HERE / "node" / "package.json"
    command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    return installed("node", package, [command]) / "node_modules"


def interpreter(environment: str) -> Path:
    """The Python of an environment, which is made where there is none yet; skips where that cannot
    be done.
    """
    if not environment:
        return Path(sys.executable)
    wanted = ENVIRONMENTS[environment]
    own = {line.partition("==")[0] for line in wanted}
    lines = (HERE.parent.parent / "constraints.txt").read_text().splitlines()
    pins = Path(tempfile.mkdtemp()) / "constraints.txt"
    pins.write_text("\n".join(line for line in lines if line.partition("==")[0] not in own))
    pip = [
        "bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--retries",
        "1",
        "--constraint",
    ]
    commands = [[sys.executable, "-m", "venv", "."], [*pip, "constraints.txt", *wanted]]
    return installed(environment, pins, commands) / "bin" / "python"


def installed(name: str, beside: Path, commands: Sequence[Sequence[str]]) -> Path:
    """A folder in the user's cache, with a copy of the file ``beside``, filled by commands; skips
    where they fail.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openconductor-tests"
    folder = (
        cache
        / f"{name}-{hashlib.sha256(beside.read_bytes() + repr(commands).encode()).hexdigest()[:12]}"
    )
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(beside, folder)
        try:
            for command in commands:
                subprocess.run(command, cwd=folder, capture_output=True, timeout=400, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"what {name} needs cannot be installed: {error}")
        (folder / ".ready").touch()
    return folder


@each
@both
def test_text_comes_with_its_usage_and_streamed_piece_by_piece(
    name: str, stream: bool, clients: Clients, server: Orchestra
) -> None:
    server.play("thought", ["4", 0.1, "2", 0.1, "!"])
    told = clients(name).do("ask", server.url, stream=stream)
    assert told["text"] == "42!"
    assert not stream or told["pieces"] >= 3
    assert (
        told["usage"]
        == [3 * USED.input_tokens, 3 * USED.output_tokens, 3 * USED.tokens]
        == [300, 60, 360]
    )
    if not stream and (details := told.get("details")):  # some clients show none
        assert {str(3 * USED.cached_tokens), str(3 * USED.reasoning_tokens)} <= {
            *re.findall(r"\d+", json.dumps(details))
        }
    assert SHOWN in told.get("thoughts", SHOWN)  # some clients show none


@each
@both
def test_the_clients_tool_is_called_and_its_result_comes_back(
    name: str, stream: bool, clients: Clients, server: Orchestra
) -> None:
    if name == "instructor":
        pytest.skip("instructor has no tools but the form of its answers")

    def bert(messages: Any, sampling: Any) -> Any:
        results = [turn for turn in messages if turn.role == "tool"]
        return (
            f"it is {results[-1].content}" if results else ["let me see", {"add": {"a": 6, "b": 7}}]
        )

    server.play("thought", bert)
    told = clients(name).do("tools", server.url, stream=stream)
    planner, anna, bert_ = server.planner, server.workers["anna"], server.workers["bert"]
    assert told["text"] == "it is 13"
    assert (len(planner.sent), len(anna.sent), len(bert_.sent)) == (1, 1, 2), (
        "the very worker goes on by itself"
    )
    (first, sampling), (second, _) = bert_.sent
    assert [tool["function"]["name"] for tool in sampling.body["tools"]] == ["add"]
    assert second[: len(first)] == first
    assert second[-2].parts[0]["tool_calls"][0]["id"] == "own0"
    assert (second[-1].content, second[-1].parts[0]["tool_call_id"]) == ("13", "own0")


@each
def test_a_form_of_the_answer_reaches_the_last_worker_and_is_read(
    name: str, clients: Clients, server: Orchestra
) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        tools = sampling.body.get("tools")
        return {tools[0]["function"]["name"]: PLACE} if tools else json.dumps(PLACE)

    server.play("thought", bert)
    for mode in MODES.get(name, ()):
        assert clients(name).do("structured", server.url, mode=mode) == PLACE
        server.workers["anna"].sent.clear()
        server.workers["bert"].sent.clear()
    assert clients(name).do("structured", server.url) == PLACE
    (_, alone), (_, sampling) = (server.workers[one].sent[0] for one in ("anna", "bert"))
    assert not set(alone.body) & {"tools", "response_format"}
    form: Any = sampling.body
    told = json.dumps(form["tools"] if "tools" in form else form["response_format"]["json_schema"])
    assert all(f'"{field}"' in told for field in PLACE)


@each
def test_a_conversation_goes_on(name: str, clients: Clients, server: Orchestra) -> None:
    server.play("thought", "42")
    first, second = clients(name).do("turns", server.url)
    told = server.planner.sent[-1][0], server.workers["bert"].sent[-1][0]
    assert (first["text"], second["text"]) == ("42", "42")
    for turns in told:
        words = "\n".join(turn.content for turn in turns)
        places = [words.find(text) for text in ("What is 6 * 7?", "42", "And 7 * 7?")]
        assert -1 not in places and places == sorted(places)


@each
@both
def test_a_failure_is_the_clients_own_error_and_paid_for_once(
    name: str, stream: bool, clients: Clients, server: Orchestra
) -> None:
    kind, client = KINDS[name], clients(name)
    plays: Any = {
        "rate": RateLimited("slow down", retry_after=1),
        "lost": ["4", 0.1, ConnectionLost("gone")],
    }
    options: Any = {"unknown": {"model": "conductr"}, "budget": {"conductor": {"max_calls": 1}}}
    for number, (failure, code) in enumerate(FAILURES.items()):
        server.workers["bert"].plays = plays.get(failure, "42")
        server.planner.sent.clear()
        told = client.do("ask", server.url, stream=stream, **options.get(failure, {}))
        assert code in json.dumps(told), told
        amid = stream and failure != "unknown"
        assert told["error"] == (kind.amid if amid else kind.errors)[number], told
        assert len(server.planner.sent) == (0 if failure == "unknown" else 1), failure


@pytest.mark.alone
@pytest.mark.parametrize(
    ("names", "pause"), [(FAST, 1.6), pytest.param([*KINDS], 3.0, marks=SLOW, id="all")]
)
def test_every_client_survives_silence_before_the_plan_in_a_step_and_amid_the_answer(
    names: list[str], pause: float, clients: Clients, tmp_path: Path
) -> None:
    beat, said = ServeConfig().heartbeat_s, ["4", pause, "2"]
    asked = {name: clients(name) for name in names}
    with (
        orchestra(
            tmp_path, [pause, "thought"], said, plan=[pause, PLAN], heartbeat_s=beat
        ) as server,
        ThreadPoolExecutor(len(names)) as together,
    ):
        begun = {
            name: together.submit(client.do, "ask", server.url, stream=True, idle=IDLE_S)
            for name, client in asked.items()
        }
        told = {name: one.result() for name, one in begun.items()}
    assert {name: one.get("text", one) for name, one in told.items()} == dict.fromkeys(names, "42")
