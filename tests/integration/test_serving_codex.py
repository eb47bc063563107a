"""The Codex CLI does its work through our server: on loopback alone, with an empty home and a clean environment.

It comes from npm into a folder of the test's own; where npm or the package cannot be had, the tests are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.orchestra import USED, Orchestra, orchestra
from openconductor.errors import ContextTooLong
from openconductor.types import Message

PACKAGE = "@openai/codex@0.169.0"
MCP_SERVER = Path(__file__).parent / "mcp_tools.py"
NOWHERE = "http://127.0.0.1:9"  # a proxy that nobody runs: what would go out of this machine fails at once
CONFIG = """
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
# What Codex wants to know of a model: with it there is no warning, and files are edited by its free-form tool.
CATALOG = {
    "slug": "conductor", "display_name": "Conductor", "base_instructions": "Do what you are asked.", "priority": 1,
    "visibility": "list", "supported_in_api": True, "shell_type": "shell_command", "apply_patch_tool_type": "freeform",
    "truncation_policy": {"mode": "tokens", "limit": 10_000}, "supports_parallel_tool_calls": True,
    "supports_reasoning_summaries": True, "supported_reasoning_levels": [], "support_verbosity": False,
    "experimental_supported_tools": [], "context_window": 200_000,
}  # fmt: skip
PATCH = "*** Begin Patch\n*** Add File: joined.txt\n+{text}\n*** End Patch\n"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class Work:
    """What Codex did: its exit status, its events, the folder that it worked in."""

    status: int
    events: list[dict[str, Any]]
    folder: Path
    errors: str

    def items(self, kind: str) -> list[dict[str, Any]]:
        """What it did of one kind, in order."""
        done = [event["item"] for event in self.events if event["type"] == "item.completed"]
        return [item for item in done if item["type"] == kind]


@pytest.fixture(scope="module")
def codex(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm, which is not there")
    folder = tmp_path_factory.mktemp("codex")
    install = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
    done = subprocess.run(install, check=False, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"npm cannot install {PACKAGE}: {done.stderr.strip()[-300:]}")
    return folder / "node_modules" / ".bin" / "codex"


def work(codex: Path, server: Orchestra, folder: Path, task: str) -> Work:
    """Let Codex do a task."""
    home, place = folder / "home", folder / "work"
    home.mkdir()
    place.mkdir(exist_ok=True)
    catalog = home / "catalog.json"
    catalog.write_text(json.dumps({"models": [CATALOG]}))
    config = CONFIG.format(url=server.url, catalog=catalog, python=sys.executable, server=MCP_SERVER)
    (home / "config.toml").write_text(config)
    node = Path(shutil.which("node") or "node").parent
    environment = {
        "PATH": f"{node}:/usr/bin:/bin",
        "HOME": str(home),
        "CODEX_HOME": str(home),
        "OUR_KEY": "none",
        "NO_PROXY": "127.0.0.1",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE),
    }
    command = [str(codex), "exec", "--json", "--skip-git-repo-check", task]
    options: Any = {"capture_output": True, "text": True, "timeout": 120, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, check=False, cwd=place, env=environment, **options)
    return Work(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], place, done.stderr)


def results(messages: Sequence[Message]) -> list[str]:
    return [turn.content for turn in messages if turn.role == "tool"]


def result(output: str) -> str:
    """What a tool of our MCP server gave."""
    return json.loads(output.splitlines()[-1])["result"]


def test_codex_does_a_task_with_calls_of_its_tools(tmp_path: Path, codex: Path) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        match results(messages):
            case []:
                return ["I look.", {"exec_command": {"cmd": "cat left.txt"}, "mcp__tools__shout": {"text": "right"}}]
            case [left, shouted]:
                return [{"mcp__tools__join": {"left": left.split()[-1], "right": result(shouted)}}]
            case [_, _, joined]:
                return [{"apply_patch": {"input": PATCH.format(text=result(joined))}}]
            case _:
                return "It is joined."

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "left.txt").write_text("left\n")
    with orchestra(tmp_path, "thought", bert) as server:
        done = work(codex, server, tmp_path, "Join what left.txt says and RIGHT! into joined.txt.")
        workers, planner = server.workers, server.planner
    assert done.status == 0, done.errors
    assert (done.folder / "joined.txt").read_text() == "leftRIGHT!\n"
    assert [item["text"] for item in done.items("agent_message")] == ["I look.", "It is joined."]
    assert [item["exit_code"] for item in done.items("command_execution")] == [0]
    assert [item["tool"] for item in done.items("mcp_tool_call")] == ["shout", "join"]
    assert [change["kind"] for item in done.items("file_change") for change in item["changes"]] == ["add"]
    assert not done.items("error")
    assert "1. anna: Think about it." in done.items("reasoning")[0]["text"]
    assert len(planner.sent) == len(workers["anna"].sent) == 1, "the worker that called the tools goes on"
    assert len(workers["bert"].sent) == 4
    (usage,) = [event["usage"] for event in done.events if event["type"] == "turn.completed"]
    assert usage["input_tokens"] == 6 * USED.input_tokens
    assert usage["cached_input_tokens"] == 6 * USED.cached_tokens
    assert usage["output_tokens"] == 6 * USED.output_tokens


@pytest.mark.parametrize("level", ["summary", "off"])
def test_codex_waits_while_workers_are_silent_for_longer_than_its_patience(
    tmp_path: Path, codex: Path, level: Any
) -> None:
    with orchestra(tmp_path, [3, "thought"], [3, "It ", 3, "took long."]) as server:
        server.gateway.reasoning = level
        done = work(codex, server, tmp_path, "Take your time.")
        asked = len(server.planner.sent)
    assert done.status == 0, done.errors
    assert [item["text"] for item in done.items("agent_message")] == ["It took long."]
    assert asked == 1
    assert not [event for event in done.events if event["type"] == "error"]


def test_codex_is_told_what_failed(tmp_path: Path, codex: Path) -> None:
    with orchestra(tmp_path, "thought", ContextTooLong("too much")) as server:
        done = work(codex, server, tmp_path, "Read everything.")
    assert done.status != 0
    assert "ran out of room in the model's context window" in str(done.events[-1])
