"""Python's clients against our server, as people install them: text, streams, tools, formats, errors, usage, silence.

openai, anthropic and pydantic-ai are those of the development environment. The others live in environments of their
own, in the user's cache: what they need would not fit beside it, or does not belong into it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration import client_contract as contract
from integration.client_contract import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ENVIRONMENTS = {
    "langchain": ["langchain-openai==1.7.3", "langchain-anthropic==1.7.7", "tiktoken==0.14.0"],
    "instructor": ["instructor==1.17.0", "llm==0.36", "openai==3.3.0", "jiter==0.14.0", "rich==14.3.4"],
}
"""What is installed where; the rest is as ``constraints.txt`` has it, but for what one of these wants otherwise."""
STATUS = ("NotFoundError", "RateLimitError", "APIStatusError")
CHAIN = ("OpenAIModelNotFoundError", "OpenAIRateLimitError", "APIStatusError")
PYDANTIC = ("ModelNotFoundError", "ModelRateLimitError", "ModelQuotaExceededError")
CLIENTS = {
    # script, how it is to work, environment; the errors that it raises for an unknown model, a rate limit and a budget,
    # and the one that it raises for the last two amid a stream (None: the same)
    "openai": ("with_openai.py", "chat", "", STATUS, "APIError"),
    "openai-responses": ("with_openai.py", "responses", "", STATUS, "APIError"),
    "anthropic": ("with_anthropic.py", "", "", (*STATUS[:2], "PaymentRequiredError"), "APIStatusError"),
    "pydantic-ai": ("with_pydantic_ai.py", "chat", "", PYDANTIC, None),
    "pydantic-ai-responses": ("with_pydantic_ai.py", "responses", "", PYDANTIC, None),
    "pydantic-ai-anthropic": ("with_pydantic_ai.py", "anthropic", "", PYDANTIC, None),
    "langchain": ("with_langchain.py", "chat", "langchain", CHAIN, "APIError"),
    "langchain-responses": ("with_langchain.py", "responses", "langchain", CHAIN, "APIError"),
    "langchain-anthropic": (
        "with_langchain.py", "anthropic", "langchain",
        ("AnthropicModelNotFoundError", "AnthropicRateLimitError", "PaymentRequiredError"), "APIStatusError",
    ),
    "instructor": ("with_instructor.py", "", "instructor", STATUS, "APIError"),
    "llm": ("with_llm.py", "chat", "instructor", STATUS, "APIError"),
    "llm-responses": ("with_llm.py", "responses", "instructor", STATUS, "APIError"),
}  # fmt: skip
MODES = {
    "langchain": ("function_calling",),
    "instructor": ("TOOLS_STRICT", "JSON", "JSON_SCHEMA", "MD_JSON"),
}
"""How else a client can ask for a form."""
each = pytest.mark.parametrize("name", CLIENTS)
Clients = Callable[[str], Client]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Clients]:
    """A client by its name; each script is started once."""
    started: dict[str, Client] = {}

    def find(name: str) -> Client:
        if name not in started:
            script, how, environment, *_ = CLIENTS[name]
            python = interpreter(environment, root)
            home = tmp_path_factory.mktemp(name)
            clean = {"PATH": os.environ["PATH"], "HOME": str(home), "LANGSMITH_TRACING": "false"}
            command = [python, Path(__file__).parent / "clients" / script]
            started[name] = Client(command, how, clean, home / "log")
        return started[name]

    yield find
    for client in started.values():
        client.close()


def interpreter(environment: str, root: Path) -> Path:
    """The Python of an environment, which is made where there is none yet; skips where that cannot be done."""
    if not environment:
        return Path(sys.executable)
    wanted = ENVIRONMENTS[environment]
    own = {line.partition("==")[0].lower() for line in wanted}
    pinned = [
        line for line in (root / "constraints.txt").read_text().splitlines() if line.partition("==")[0] not in own
    ]
    mark = hashlib.sha256(json.dumps([wanted, pinned, sys.version]).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "openconductor-tests" / f"{environment}-{mark}"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "constraints.txt").write_text("\n".join(pinned))
        install = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--retries", "1",
                   "--constraint", folder / "constraints.txt", *wanted]  # fmt: skip
        for command in ([sys.executable, "-m", "venv", folder], install):
            try:
                done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=400, check=False)
            except subprocess.TimeoutExpired as error:
                pytest.skip(f"{environment} could not be installed: {error}")
            if done.returncode:
                pytest.skip(f"{environment} could not be installed: {done.stderr[-500:]}")
        (folder / ".ready").touch()
    return python


@each
def test_text_comes_with_its_usage(name: str, clients: Clients, tmp_path: Path) -> None:
    contract.text_and_usage(clients(name), tmp_path)


@each
def test_a_stream_comes_piece_by_piece_with_its_usage(name: str, clients: Clients, tmp_path: Path) -> None:
    contract.stream_and_usage(clients(name), tmp_path)


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "instructor"])  # which has no tools
@pytest.mark.parametrize("stream", [False, True])
def test_the_clients_tool_is_called_and_its_result_comes_back(
    name: str, stream: bool, clients: Clients, tmp_path: Path
) -> None:
    contract.tools_loop(clients(name), tmp_path, stream=stream)


@each
def test_a_form_of_the_answer_reaches_the_last_worker(name: str, clients: Clients, tmp_path: Path) -> None:
    contract.structured_output(clients(name), tmp_path)


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, modes in MODES.items() for mode in modes])
def test_a_form_can_be_asked_for_in_other_ways(name: str, mode: str, clients: Clients, tmp_path: Path) -> None:
    contract.structured_output(clients(name), tmp_path, mode=mode)


def test_a_form_is_filled_as_it_streams(clients: Clients, tmp_path: Path) -> None:
    contract.structured_output(clients("instructor"), tmp_path, mode="JSON", stream=True)


@each
def test_a_conversation_goes_on(name: str, clients: Clients, tmp_path: Path) -> None:
    contract.several_turns(clients(name), tmp_path)


@each
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", contract.FAILURES)
def test_a_failure_is_the_clients_own_error(
    name: str, kind: str, stream: bool, clients: Clients, tmp_path: Path
) -> None:
    *_, errors, amid = CLIENTS[name]
    told = contract.failure(clients(name), tmp_path, kind=kind, stream=stream)
    whole = errors[list(contract.FAILURES).index(kind)]
    assert told["error"] == (amid or whole if stream and kind != "unknown" else whole), told


def test_every_client_survives_silence(clients: Clients, tmp_path: Path) -> None:
    told = contract.silence({name: clients(name) for name in CLIENTS}, tmp_path)
    assert {name: one.get("text", one) for name, one in told.items()} == dict.fromkeys(CLIENTS, "42")
