"""Node's clients against our server: OpenAI's own and Vercel's AI SDK, from npm.

They are installed into the user's cache; where there is no npm, or the packages cannot be had, the tests are skipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration import client_contract as contract
from integration.client_contract import Clients

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STATUS = ("NotFoundError", "RateLimitError", "APIError", "InternalServerError")
VERCEL = ("APICallError",) * 4
CLIENTS = {
    # script, how it is to work; its errors, and those amid a stream
    "openai": ("with_openai.mjs", "chat", STATUS, ("APIError",) * 4),
    "openai-responses": ("with_openai.mjs", "responses", STATUS, ("APIError",) * 4),
    "ai-compatible": ("with_ai.mjs", "compatible", VERCEL, ("StreamProviderError",) * 4),
    "ai-responses": ("with_ai.mjs", "openai", VERCEL, ("StreamProviderError",) * 4),
    "ai-anthropic": ("with_ai.mjs", "anthropic", VERCEL, ("StreamProviderError",) * 4),
}
SCRIPTS = Path(__file__).parent / "node"
each = pytest.mark.parametrize("name", CLIENTS)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """A client by its name; each script is started once, beside the packages."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs node and npm; they are not there")
    package = SCRIPTS / "package.json"

    def install(folder: Path) -> list[list[object]]:
        shutil.copy(package, folder)
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        return [[npm, "install", *quiet]]

    packages = contract.installed("node", package.read_text(), install) / "node_modules"
    folder = tmp_path_factory.mktemp("scripts")
    shutil.copytree(SCRIPTS, folder, dirs_exist_ok=True)
    (folder / "node_modules").symlink_to(packages)
    with contract.scripts(lambda name: ([node, folder / CLIENTS[name][0]], CLIENTS[name][1]), tmp_path_factory) as find:
        yield find


@each
def test_text_comes_with_its_usage(name: str, clients: Clients, tmp_path: Path) -> None:
    contract.text_and_usage(clients(name), tmp_path)


@each
def test_a_stream_comes_piece_by_piece_with_its_usage(name: str, clients: Clients, tmp_path: Path) -> None:
    contract.stream_and_usage(clients(name), tmp_path)


@each
@pytest.mark.parametrize("stream", [False, True])
def test_the_clients_tool_is_called_and_its_result_comes_back(
    name: str, stream: bool, clients: Clients, tmp_path: Path
) -> None:
    contract.tools_loop(clients(name), tmp_path, stream=stream)


@each
def test_a_form_of_the_answer_reaches_the_last_worker(name: str, clients: Clients, tmp_path: Path) -> None:
    contract.structured_output(clients(name), tmp_path)


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
