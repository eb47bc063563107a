"""Python's clients against our server, as people install them: text, streams, tools, formats, errors, usage, silence.

openai, anthropic and pydantic-ai are those of the development environment. The others live in environments of their
own, in the user's cache: what they need would not fit beside it, or does not belong into it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration import client_contract as contract
from integration.client_contract import Clients

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ENVIRONMENTS = {
    "langchain": ["langchain-openai==1.7.3", "langchain-anthropic==1.7.7", "tiktoken==0.14.0"],
    "instructor": ["instructor==1.17.0", "llm==0.36", "openai==3.3.0", "jiter==0.14.0", "rich==14.3.4"],
}
"""What is installed where; the rest is as ``constraints.txt`` has it, but for what one of these wants otherwise."""
STATUS = ("NotFoundError", "RateLimitError", "APIStatusError", "InternalServerError")
ANTHROPIC = (*STATUS[:2], "PaymentRequiredError", "InternalServerError")
CHAIN = ("OpenAIModelNotFoundError", "OpenAIRateLimitError", "APIStatusError", "OpenAIAPIError")
PYDANTIC = ("ModelNotFoundError", "ModelRateLimitError", "ModelQuotaExceededError", "ModelServerError")
CLIENTS = {
    # script, how it is to work, environment; the errors that it raises for each of the contract's failures, and those
    # that it raises amid a stream
    "openai": ("with_openai.py", "chat", "", STATUS, ("APIError",) * 4),
    "openai-responses": ("with_openai.py", "responses", "", STATUS, ("APIError",) * 4),
    "anthropic": ("with_anthropic.py", "", "", ANTHROPIC, ("APIStatusError",) * 4),
    "pydantic-ai": ("with_pydantic_ai.py", "chat", "", PYDANTIC, PYDANTIC),
    "pydantic-ai-responses": ("with_pydantic_ai.py", "responses", "", PYDANTIC, PYDANTIC),
    "pydantic-ai-anthropic": ("with_pydantic_ai.py", "anthropic", "", PYDANTIC, (*PYDANTIC[:3], "ModelAPIError")),
    "langchain": ("with_langchain.py", "chat", "langchain", CHAIN, ("APIError",) * 4),
    "langchain-responses": ("with_langchain.py", "responses", "langchain", CHAIN, ("APIError",) * 4),
    "langchain-anthropic": (
        "with_langchain.py", "anthropic", "langchain",
        ("AnthropicModelNotFoundError", "AnthropicRateLimitError", "PaymentRequiredError", "AnthropicAPIError"),
        ("APIStatusError",) * 4,
    ),
    "instructor": ("with_instructor.py", "", "instructor", STATUS, ("APIError",) * 4),
    "llm": ("with_llm.py", "chat", "instructor", STATUS, ("APIError",) * 4),
    "llm-responses": ("with_llm.py", "responses", "instructor", STATUS, ("APIError",) * 4),
}  # fmt: skip
MODES = {
    "langchain": ("function_calling",),
    "instructor": ("TOOLS_STRICT", "JSON", "JSON_SCHEMA", "MD_JSON"),
}
"""How else a client can ask for a form."""
each = pytest.mark.parametrize("name", CLIENTS)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Clients]:
    """A client by its name; each script is started once."""

    def command(name: str) -> tuple[list[object], str]:
        script, how, environment, *_ = CLIENTS[name]
        return [interpreter(environment, root), Path(__file__).parent / "clients" / script], how

    with contract.scripts(command, tmp_path_factory) as find:
        yield find


def interpreter(environment: str, root: Path) -> Path:
    """The Python of an environment, which is made where there is none yet; skips where that cannot be done."""
    if not environment:
        return Path(sys.executable)
    wanted = ENVIRONMENTS[environment]
    own = {line.partition("==")[0] for line in wanted}
    lines = (root / "constraints.txt").read_text().splitlines()
    pinned = [line for line in lines if line.partition("==")[0] not in own]

    def install(folder: Path) -> list[list[object]]:
        (folder / "constraints.txt").write_text("\n".join(pinned))
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile", "--retries", "1"]
        return [[sys.executable, "-m", "venv", folder], [*pip, "--constraint", folder / "constraints.txt", *wanted]]

    return contract.installed(environment, [wanted, pinned, sys.version], install) / "bin" / "python"


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
    contract.failure(clients(name), tmp_path, kind=kind, stream=stream, errors=errors, amid=amid)


def test_every_client_survives_silence(clients: Clients, tmp_path: Path) -> None:
    contract.silence({name: clients(name) for name in CLIENTS}, tmp_path)
