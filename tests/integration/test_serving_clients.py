"""Official clients against our server, as people install them: each is a script that is asked
(`clients/`, `node/`).

Compared is what a client made of the answers with what the workers saw and counted. Clients of the
development environment are always run, wrappers of them and those for Node (from npm, or skipped)
with the slow tests.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.installing import installed, node_packages
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
PLAYS: dict[str, Any] = {
    "rate": RateLimited("slow down", retry_after=1),
    "lost": ["4", 0.1, ConnectionLost("gone")],
}
OPTIONS = {"unknown": {"model": "conductr"}, "budget": {"conductor": {"max_calls": 1}}}
ERRORS_OF_CLIENTS = """
api           APIError APIError APIError APIError
status        APIStatusError APIStatusError APIStatusError APIStatusError
openai        NotFoundError RateLimitError APIStatusError InternalServerError
anthropic     NotFoundError RateLimitError PaymentRequiredError InternalServerError
pydantic      ModelNotFoundError ModelRateLimitError ModelQuotaExceededError ModelServerError
pydantic-amid ModelNotFoundError ModelRateLimitError ModelQuotaExceededError ModelAPIError
node          NotFoundError RateLimitError APIError InternalServerError
vercel        APICallError APICallError APICallError APICallError
vercel-amid   StreamProviderError StreamProviderError StreamProviderError StreamProviderError
chain         OpenAIModelNotFoundError OpenAIRateLimitError APIStatusError OpenAIAPIError
chained AnthropicModelNotFoundError AnthropicRateLimitError PaymentRequiredError AnthropicAPIError
"""
"""What clients raise for each failure."""
CLIENTS = """
openai                 with_openai.py      chat        openai     api
openai-responses       with_openai.py      responses   openai     api
anthropic              with_anthropic.py   -           anthropic  status
pydantic-ai            with_pydantic_ai.py chat        pydantic   pydantic
pydantic-ai-responses  with_pydantic_ai.py responses   pydantic   pydantic
pydantic-ai-anthropic  with_pydantic_ai.py anthropic   pydantic   pydantic-amid
langchain              with_langchain.py   chat        chain      api
langchain-responses    with_langchain.py   responses   chain      api
langchain-anthropic    with_langchain.py   anthropic   chained    status
instructor             with_instructor.py  -           openai     api
llm                    with_llm.py         chat        openai     api
llm-responses          with_llm.py         responses   openai     api
node-openai            with_openai.mjs     chat        node       api
node-openai-responses  with_openai.mjs     responses   node       api
ai-compatible          with_ai.mjs         compatible  vercel     vercel-amid
ai-responses           with_ai.mjs         openai      vercel     vercel-amid
ai-anthropic           with_ai.mjs         anthropic   vercel     vercel-amid
"""
"""By name: the script, its way to work, the errors that it raises, and those amid a stream."""
WRAPPERS = "instructor==1.17.0 llm==0.36 openai==3.3.0 jiter==0.14.0 rich==14.3.4"
ENVIRONMENTS = {
    "with_langchain.py": "langchain-openai==1.7.3 langchain-anthropic==1.7.7 tiktoken==0.14.0",
    "with_instructor.py": WRAPPERS,
    "with_llm.py": WRAPPERS,
}
"""What is installed where; the rest is as ``constraints.txt`` has it, but for what one of these
wants otherwise.
"""


@dataclass(frozen=True)
class Kind:
    """A client: its script, its way to work, the errors that it raises for each failure, and those
    amid a stream.
    """

    script: str
    how: str
    errors: Sequence[str]
    amid: Sequence[str]


def rows(table: str) -> dict[str, list[str]]:
    """Return the words of each line by its first one."""
    lines = [line.split() for line in table.strip().splitlines()]
    return {name: words for name, *words in lines}


ERRORS = rows(ERRORS_OF_CLIENTS)
KINDS = {
    name: Kind(script, how, ERRORS[errors], ERRORS[amid])
    for name, (script, how, errors, amid) in rows(CLIENTS).items()
}
MODES = {
    "langchain": ("function_calling",),
    "instructor": ("TOOLS_STRICT", "JSON", "JSON_SCHEMA", "MD_JSON"),
}
"""How else a client can ask for a form."""
FAST = ["openai", "openai-responses", "anthropic"]
SLOW = (pytest.mark.slow, pytest.mark.timeout(600))
SLOW_KINDS = [pytest.param(name, marks=SLOW) for name in KINDS if name not in FAST]
each = pytest.mark.parametrize("name", [*FAST, *SLOW_KINDS])
both = pytest.mark.parametrize("stream", [False, True])


class Client:
    """A script that runs, as long as it is wanted."""

    def __init__(self, command: Sequence[object], how: str, home: Path) -> None:
        self._how, self._log = how, home / "log"
        clean = {"PATH": os.environ["PATH"], "HOME": str(home), "LANGSMITH_TRACING": "false"}
        with self._log.open("w") as errors:
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            words = [str(part) for part in command]
            self._process = subprocess.Popen(words, text=True, env=clean, **pipes)

    def do(self, name: str, url: str, **options: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        order = {"do": name, "url": url, "how": self._how, **options}
        self._process.stdin.write(json.dumps(order) + "\n")
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
    with ExitStack() as closing:

        @functools.cache
        def start(name: str) -> Client:
            kind, home = KINDS[name], tmp_path_factory.mktemp(name)
            if kind.script.endswith(".py"):
                command = [interpreter(kind.script), HERE / "clients" / kind.script]
            else:  # beside the packages
                shutil.copytree(HERE / "node", home, dirs_exist_ok=True)
                (home / "node_modules").symlink_to(packages())
                command = ["node", home / kind.script]
            client = Client(command, kind.how, home)
            closing.callback(client.close)
            return client

        yield start


def packages() -> Path:
    """Return what ``node/package.json`` names; skip where it cannot be had from npm."""
    return node_packages("node", HERE / "node" / "package.json")


def interpreter(script: str) -> Path:
    """Return the Python that a script needs, in an environment that is made where there is none
    yet; skip where that cannot be done.
    """
    if script not in ENVIRONMENTS:
        return Path(sys.executable)
    wanted = ENVIRONMENTS[script]
    own = {requirement.partition("==")[0] for requirement in wanted.split()}
    lines = (HERE.parent.parent / "constraints.txt").read_text().splitlines()
    pins = Path(tempfile.mkdtemp()) / "constraints.txt"
    kept = [line for line in lines if line.partition("==")[0] not in own]
    pins.write_text("\n".join(kept))
    make = f"{sys.executable} -m venv ."
    pip = f"bin/python -m pip install --quiet --no-compile --retries 1 --constraint {pins.name}"
    folder = installed(Path(script).stem, pins, [make, f"{pip} {wanted}"])
    return folder / "bin" / "python"


@each
@both
def test_text_comes_with_its_usage_and_streamed_piece_by_piece(
    name: str, stream: bool, clients: Clients, server: Orchestra
) -> None:
    server.play("thought", ["4", 0.1, "2", 0.1, "!"])
    told = clients(name).do("ask", server.url, stream=stream)
    assert told["text"] == "42!"
    assert not stream or told["pieces"] >= 3
    assert told["usage"] == [300, 60, 360]
    details = told.get("details")  # some clients show neither them nor thoughts
    if details and not stream:
        cached = 3 * USED.cached_tokens
        reasoning = 3 * USED.reasoning_tokens
        numbers = re.findall(r"\d+", json.dumps(details))
        assert str(cached) in numbers
        assert str(reasoning) in numbers
    assert SHOWN in told.get("thoughts", SHOWN)


@each
@both
def test_the_clients_tool_is_called_and_its_result_comes_back(
    name: str, stream: bool, clients: Clients, server: Orchestra
) -> None:
    if name == "instructor":
        pytest.skip("instructor has no tools but the form of its answers")

    def bert(messages: Any, sampling: Any) -> Any:
        if messages[-1].role == "tool":
            return f"it is {messages[-1].content}"
        return ["let me see", {"add": {"a": 6, "b": 7}}]

    server.play("thought", bert)
    told = clients(name).do("tools", server.url, stream=stream)
    assert told["text"] == "it is 13"
    asked = (server.planner, *server.workers.values())
    assert [len(one.sent) for one in asked] == [1, 1, 2], "the very worker goes on by itself"
    (first, sampling), (second, _) = server.workers["bert"].sent
    assert [tool["function"]["name"] for tool in sampling.body["tools"]] == ["add"]
    *before, calling, result = second
    assert tuple(before) == first
    assert calling.parts[0]["tool_calls"][0]["id"] == "own0"
    assert (result.content, result.parts[0]["tool_call_id"]) == ("13", "own0")


@each
def test_a_form_of_the_answer_reaches_the_last_worker_and_is_read(
    name: str, clients: Clients, server: Orchestra
) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        tools = sampling.body.get("tools")
        return {tools[0]["function"]["name"]: PLACE} if tools else json.dumps(PLACE)

    for mode in (*MODES.get(name, ()), ""):
        server.play("thought", bert)
        assert clients(name).do("structured", server.url, mode=mode) == PLACE
    (_, alone), (_, sampling) = (worker.sent[0] for worker in server.workers.values())
    assert not set(alone.body) & {"tools", "response_format"}
    form = sampling.body.get("tools") or sampling.body["response_format"]["json_schema"]
    told = json.dumps(form)
    assert all(f'"{field}"' in told for field in PLACE)


@each
def test_a_conversation_goes_on(name: str, clients: Clients, server: Orchestra) -> None:
    server.play("thought", "42")
    first, second = clients(name).do("turns", server.url)
    assert (first["text"], second["text"]) == ("42", "42")
    for worker in (server.planner, server.workers["bert"]):
        words = "\n".join(turn.content for turn in worker.sent[-1][0])
        places = [words.find(text) for text in ("What is 6 * 7?", "42", "And 7 * 7?")]
        assert -1 not in places
        assert places == sorted(places)


@each
@both
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_is_the_clients_own_error_and_paid_for_once(
    name: str, stream: bool, failure: str, clients: Clients, server: Orchestra
) -> None:
    client = clients(name)
    number = list(FAILURES).index(failure)
    server.play("thought", PLAYS.get(failure, "42"))
    told = client.do("ask", server.url, stream=stream, **OPTIONS.get(failure, {}))
    assert FAILURES[failure] in json.dumps(told), told
    unknown = failure == "unknown"
    errors = KINDS[name].amid if stream and not unknown else KINDS[name].errors
    assert told["error"] == errors[number], told
    assert len(server.planner.sent) == (0 if unknown else 1)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("names", "pause"), [(FAST, 1.6), pytest.param([*KINDS], 3.0, marks=SLOW, id="all")]
)
def test_every_client_survives_silence_before_the_plan_in_a_step_and_amid_the_answer(
    names: list[str], pause: float, clients: Clients, tmp_path: Path
) -> None:
    plays = {"plan": [pause, PLAN], "anna": [pause, "thought"], "bert": ["4", pause, "2"]}
    started = [clients(name) for name in names]
    with (
        orchestra(tmp_path, **plays, heartbeat_s=ServeConfig().heartbeat_s) as server,
        ThreadPoolExecutor(len(names)) as together,
    ):

        def ask(client: Client) -> Any:
            return client.do("ask", server.url, stream=True, idle=IDLE_S)

        told = dict(zip(names, together.map(ask, started), strict=True))
    texts = {name: answer.get("text", answer) for name, answer in told.items()}
    assert texts == dict.fromkeys(names, "42")
