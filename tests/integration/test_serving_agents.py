"""Claude Code and the Codex CLI do their work through our server: on loopback alone, with empty
homes.

They come from npm into folders of the tests' own; where npm or a package cannot be had, the tests
are skipped.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.orchestra import USED, Orchestra, orchestra
from openconductor.errors import ContextTooLong, ServerFailed
from openconductor.types import Message

PACKAGES = {"claude": "@anthropic-ai/claude-code@2.1.330", "codex": "@openai/codex@0.169.0"}
PROGRAMS = {"claude": "@anthropic-ai/claude-code-*/claude", "codex": ".bin/codex"}
# A proxy that does not run, so that requests to other machines fail at once.
NOWHERE = "http://127.0.0.1:9"
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CLAUDE = {
    "ANTHROPIC_API_KEY": "none",
    "ANTHROPIC_MODEL": "conductor",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "API_TIMEOUT_MS": "2000",
}
CODEX = """
model = "conductor"
model_catalog_json = "{catalog}"
model_provider = "ours"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
analytics.enabled = false

[model_providers.ours]
name = "OpenConductor"
base_url = "{url}/v1"
env_key = "OUR_KEY"
wire_api = "responses"
stream_idle_timeout_ms = 1000
stream_max_retries = 0
request_max_retries = 0

[mcp_servers.tools]
command = "{python}"
args = ["{server}"]
required = true
startup_timeout_sec = 60
"""
# What Codex wants to know of a model: with it there is no warning, and files are edited by its
# free-form tool.
CATALOG = """{"models": [{
  "slug": "conductor",
  "display_name": "Conductor",
  "base_instructions": "Do what you are asked.",
  "priority": 1,
  "visibility": "list",
  "supported_in_api": true,
  "shell_type": "shell_command",
  "apply_patch_tool_type": "freeform",
  "truncation_policy": {
    "mode": "tokens",
    "limit": 10000
  },
  "supports_parallel_tool_calls": true,
  "supports_reasoning_summaries": true,
  "supported_reasoning_levels": [],
  "support_verbosity": false,
  "experimental_supported_tools": [],
  "context_window": 200000
}]}"""
PATCH = "*** Begin Patch\n*** Add File: joined.txt\n+{text}\n*** End Patch\n"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class Work:
    """An agent's exit status, its events, the folder that it worked in, and its complaints."""

    status: int
    events: list[dict[str, Any]]
    folder: Path
    errors: str

    def blocks(self, kind: str) -> list[dict[str, Any]]:
        """Return the blocks of one kind in Claude Code's turns, in order."""
        turns = [event for event in self.events if event["type"] in ("assistant", "user")]
        blocks = [block for turn in turns for block in turn["message"]["content"]]
        return [block for block in blocks if block["type"] == kind]

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Return what Codex did of one kind, in order."""
        done = [event["item"] for event in self.events if event["type"] == "item.completed"]
        return [item for item in done if item["type"] == kind]


Agents = Callable[[str], Path]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """The command of an agent by its name."""

    @functools.cache
    def install(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        folders.append(folder)
        command = f"npm install --prefix {folder} --no-audit --no-fund --ignore-scripts"
        try:
            npm = [*command.split(), PACKAGES[name]]
            subprocess.run(npm, check=True, capture_output=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"npm cannot install {name}: {error}")
        programs = [*(folder / "node_modules").glob(PROGRAMS[name])]
        return programs[0] if programs else pytest.skip(f"there is no {name} for this machine")

    folders: list[Path] = []
    yield install
    for folder in folders:
        shutil.rmtree(folder)  # hundreds of MB


def work(
    name: str, agents: Agents, server: Orchestra, folder: Path, task: str, *options: str
) -> Work:
    """Let an agent do a task, in a folder that has a file."""
    home, place = folder / "home", folder / "work"
    home.mkdir(exist_ok=True)
    place.mkdir(exist_ok=True)
    (place / "left.txt").write_text("left\n")
    node = Path(shutil.which("node") or "node").parent
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE)
    environment = {"PATH": f"{node}:/usr/local/bin:/usr/bin:/bin", "HOME": str(home)}
    environment |= {"NO_PROXY": "127.0.0.1", **proxies}
    if name == "claude":
        environment |= CLAUDE | {"ANTHROPIC_BASE_URL": server.url}
        flags = "--output-format stream-json --verbose --allowedTools Bash,Read"
        asked = ["-p", task, *flags.split(), *options]
    else:
        environment |= {"CODEX_HOME": str(home), "OUR_KEY": "none"}
        catalog, tools = home / "catalog.json", Path(__file__).parent / "mcp_tools.py"
        catalog.write_text(CATALOG)
        config = CODEX.format(url=server.url, catalog=catalog, python=sys.executable, server=tools)
        (home / "config.toml").write_text(config)
        asked = ["exec", "--json", "--skip-git-repo-check", task]
    done = subprocess.run(
        [agents(name), *asked],
        check=False,
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return Work(done.returncode, events, place, done.stderr)


def results(messages: Sequence[Message]) -> list[str]:
    return [turn.content for turn in messages if turn.role == "tool"]


def offered(sampling: Any) -> set[str]:
    return {tool["function"]["name"] for tool in sampling.body["tools"]}


def test_claude_code_does_a_task_with_calls_of_its_tools(tmp_path: Path, agents: Agents) -> None:
    read = {"file_path": str(tmp_path / "work" / "left.txt")}
    search = {"query": "select:WebFetch", "max_results": 1}

    def bert(messages: Any, sampling: Any) -> Any:
        match results(messages):
            case []:
                return ["I look.", {"Read": read, "ToolSearch": search}]
            case [one, other]:  # in the order in which they ended
                word = next(text for text in (one, other) if "left" in text).split()[1]
                command = f"printf %sRIGHT {word} > joined.txt"
                return [{"Bash": {"command": command, "description": "Joins"}}]
            case [_, _, _]:
                return [{"Bash": {"command": "cat nothing.txt", "description": "Fails"}}]
            case _:
                return "It is joined."

    task = "Join what left.txt says and RIGHT into joined.txt."
    with orchestra(tmp_path, "thought", bert) as server:
        done = work("claude", agents, server, tmp_path, task)
        sent = server.workers["bert"].sent
        planned = [len(asked.sent) for asked in (server.planner, server.workers["anna"])]
    assert done.status == 0, done.events[-1]
    assert (done.folder / "joined.txt").read_text() == "leftRIGHT"
    assert [block["text"] for block in done.blocks("text")] == ["I look.", "It is joined."]
    tools = [block["name"] for block in done.blocks("tool_use")]
    assert tools == ["Read", "ToolSearch", "Bash", "Bash"]
    failed = [bool(block.get("is_error")) for block in done.blocks("tool_result")]
    assert failed == [False, False, False, True]
    assert "1. anna: Think about it." in done.blocks("thinking")[0]["thinking"]
    assert planned == [1, 1], "the worker that called the tools goes on"
    assert len(sent) == 4 and results(sent[3][0])[3].startswith("Error: Exit code 1")
    first, second = offered(sent[0][1]), offered(sent[1][1])
    assert {"Read", "Bash"} <= first
    assert not {"DeferredToolPlaceholder", "WebFetch"} & first and "WebFetch" in second
    rules = sent[0][0][0]
    assert rules.role == "system" and rules.content.startswith("You are")
    assert str(done.folder) in rules.content
    usage = done.events[-1]["usage"]
    assert usage["cache_read_input_tokens"] == 6 * USED.cached_tokens
    assert usage["output_tokens"] == 6 * USED.output_tokens


def test_claude_code_shows_a_picture_and_goes_on_with_the_conversation(
    tmp_path: Path, agents: Agents
) -> None:
    dot = tmp_path / "work" / "dot.png"

    def bert(messages: Any, sampling: Any) -> Any:
        return "I see it." if results(messages) else [{"Read": {"file_path": str(dot)}}]

    dot.parent.mkdir()
    dot.write_bytes(b64decode(PICTURE))
    with orchestra(tmp_path, "thought", bert) as server:
        first = work("claude", agents, server, tmp_path, "Look at dot.png.")
        second = work("claude", agents, server, tmp_path, "And now?", "--continue")
        _, seen, going_on = (messages for messages, _ in server.workers["bert"].sent)
    for done in (first, second):
        assert done.events[-1]["result"] == "I see it.", done.errors
    parts = [part for turn in seen for part in turn.parts]
    (picture,) = [part for part in parts if part.get("type") == "image_url"]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    told = [turn.content for turn in going_on]
    assert "I see it." in told and any(text.startswith("And now?") for text in told)
    assert len(server.planner.sent) == 2


def test_codex_does_a_task_with_calls_of_its_tools(tmp_path: Path, agents: Agents) -> None:
    look, shout = {"cmd": "cat left.txt"}, {"text": "right"}

    def gave(output: str) -> str:
        return json.loads(output.splitlines()[-1])["result"]

    def bert(messages: Any, sampling: Any) -> Any:
        match results(messages):
            case []:
                return ["I look.", {"exec_command": look, "mcp__tools__shout": shout}]
            case [left, shouted]:
                return [{"mcp__tools__join": {"left": left.split()[-1], "right": gave(shouted)}}]
            case [_, _, joined]:
                return [{"apply_patch": {"input": PATCH.format(text=gave(joined))}}]
            case _:
                return "It is joined."

    task = "Join what left.txt says and RIGHT! into joined.txt."
    with orchestra(tmp_path, "thought", bert) as server:
        done = work("codex", agents, server, tmp_path, task)
        asked = (server.planner, *server.workers.values())
    assert done.status == 0, done.errors
    assert (done.folder / "joined.txt").read_text() == "leftRIGHT!\n"
    assert [item["text"] for item in done.items("agent_message")] == ["I look.", "It is joined."]
    assert [item["exit_code"] for item in done.items("command_execution")] == [0]
    assert [item["tool"] for item in done.items("mcp_tool_call")] == ["shout", "join"]
    (edit,) = done.items("file_change")
    assert [change["kind"] for change in edit["changes"]] == ["add"]
    assert not done.items("error")
    assert "1. anna: Think about it." in done.items("reasoning")[0]["text"]
    assert [len(one.sent) for one in asked] == [1, 1, 4], "the worker that called tools goes on"
    (usage,) = [event["usage"] for event in done.events if event["type"] == "turn.completed"]
    assert usage["cached_input_tokens"] == 6 * USED.cached_tokens
    assert usage["output_tokens"] == 6 * USED.output_tokens


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize("level", ["summary", "off"])
def test_an_agent_waits_while_workers_are_silent_for_longer_than_its_patience(
    tmp_path: Path, agents: Agents, name: str, level: Any
) -> None:
    with orchestra(tmp_path, [3, "thought"], [3, "It ", 3, "took long."]) as server:
        server.gateway.reasoning = level
        done = work(name, agents, server, tmp_path, "Take your time.")
    assert done.status == 0, done.errors
    texts = [item["text"] for item in done.items("agent_message")]
    assert "It took long." in (done.events[-1].get("result"), *texts)
    assert not [event for event in done.events if event["type"] == "error"]
    assert len(server.planner.sent) == 1


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("claude", {"bert": ContextTooLong("too much")}, "Prompt is too long"),
        ("claude", {"bert": ServerFailed("it broke", status=500)}, "it broke"),
        ("claude", {"plan": "no plan"}, "missing_list"),
        (
            "codex",
            {"bert": ContextTooLong("too much")},
            "ran out of room in the model's context window",
        ),
    ],
)
def test_an_agent_is_told_what_failed_and_does_not_pay_for_it_again(
    tmp_path: Path, agents: Agents, name: str, options: Any, words: str
) -> None:
    with orchestra(tmp_path, **options) as server:
        done = work(name, agents, server, tmp_path, "Read everything.")
    assert (done.status, len(server.planner.sent)) == (1, 1)
    assert words in str(done.events[-1])
