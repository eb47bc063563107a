"""Claude Code does its work through our server: on loopback alone, with an empty home and a clean environment.

It comes from npm into a folder of the test's own; where npm or the package cannot be had, the tests are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.orchestra import USED, Orchestra, orchestra
from openconductor.errors import ContextTooLong, ServerFailed
from openconductor.types import Message

PACKAGE = "@anthropic-ai/claude-code@2.1.330"
NOWHERE = "http://127.0.0.1:9"  # a proxy that nobody runs: what would go out of this machine fails at once
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class Work:
    """What Claude Code did: its exit status, its events, its last one, the folder that it worked in."""

    status: int
    events: list[dict[str, Any]]
    folder: Path
    errors: str

    def blocks(self, kind: str) -> list[dict[str, Any]]:
        """The blocks of one kind in the turns, in order."""
        turns = [event["message"]["content"] for event in self.events if event["type"] in ("assistant", "user")]
        return [block for turn in turns for block in turn if block["type"] == kind]

    @property
    def result(self) -> dict[str, Any]:
        """How it ended."""
        return self.events[-1]


@pytest.fixture(scope="module")
def claude(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The command."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm, which is not there")
    folder = tmp_path_factory.mktemp("claude")
    install = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
    done = subprocess.run(install, check=False, capture_output=True, text=True, timeout=300)
    found = [*(folder / "node_modules" / "@anthropic-ai").glob("claude-code-*/claude")]
    if done.returncode != 0 or not found:
        pytest.skip(f"npm cannot install {PACKAGE} for this machine: {done.stderr.strip()[-300:]}")
    yield found[0]
    shutil.rmtree(folder)  # 380 MB


def work(claude: Path, server: Orchestra, folder: Path, task: str, *options: str) -> Work:
    """Let Claude Code do a task."""
    home, place = folder / "home", folder / "work"
    home.mkdir(exist_ok=True)
    place.mkdir(exist_ok=True)
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_MODEL": "conductor",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "API_TIMEOUT_MS": "2000",
        "NO_PROXY": "127.0.0.1",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), NOWHERE),
    }
    command = [str(claude), "-p", task, "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash,Read"]
    given: Any = {"capture_output": True, "text": True, "timeout": 120, "stdin": subprocess.DEVNULL}
    done = subprocess.run([*command, *options], check=False, cwd=place, env=environment, **given)
    return Work(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], place, done.stderr)


def results(messages: Sequence[Message]) -> list[str]:
    return [turn.content for turn in messages if turn.role == "tool"]


def offered(sampling: Any) -> set[str]:
    return {tool["function"]["name"] for tool in sampling.body["tools"]}


def test_claude_code_does_a_task_with_calls_of_its_tools(tmp_path: Path, claude: Path) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        match results(messages):
            case []:
                search = {"query": "select:WebFetch", "max_results": 1}
                return ["I look.", {"Read": {"file_path": str(tmp_path / "work" / "left.txt")}, "ToolSearch": search}]
            case [one, other]:  # in the order in which they ended
                word = next(text for text in (one, other) if "left" in text).split()[1]
                return [{"Bash": {"command": f"printf %sRIGHT {word} > joined.txt", "description": "Joins"}}]
            case [_, _, _]:
                return [{"Bash": {"command": "cat nothing.txt", "description": "Fails"}}]
            case _:
                return "It is joined."

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "left.txt").write_text("left\n")
    with orchestra(tmp_path, "thought", bert) as server:
        done = work(claude, server, tmp_path, "Join what left.txt says and RIGHT into joined.txt.")
        anna, sent, planner = server.workers["anna"].sent, server.workers["bert"].sent, server.planner.sent
    assert done.status == 0, done.result
    assert (done.folder / "joined.txt").read_text() == "leftRIGHT"
    assert [block["text"] for block in done.blocks("text")] == ["I look.", "It is joined."]
    assert [block["name"] for block in done.blocks("tool_use")] == ["Read", "ToolSearch", "Bash", "Bash"]
    assert [bool(block.get("is_error")) for block in done.blocks("tool_result")] == [False, False, False, True]
    assert "1. anna: Think about it." in done.blocks("thinking")[0]["thinking"]
    assert len(planner) == len(anna) == 1, "the worker that called the tools goes on"
    assert len(sent) == 4 and results(sent[3][0])[3].startswith("Error: Exit code 1")
    assert {"Read", "Bash"} <= offered(sent[0][1]) and "DeferredToolPlaceholder" not in offered(sent[0][1])
    assert "WebFetch" not in offered(sent[0][1]) and "WebFetch" in offered(sent[1][1])
    rules = sent[0][0][0]
    assert rules.role == "system" and rules.content.startswith("You are") and str(done.folder) in rules.content
    usage = done.result["usage"]
    assert usage["input_tokens"] == 6 * (USED.input_tokens - USED.cached_tokens)
    assert usage["cache_read_input_tokens"] == 6 * USED.cached_tokens
    assert usage["output_tokens"] == 6 * USED.output_tokens


def test_claude_code_shows_a_picture_and_goes_on_with_the_conversation(tmp_path: Path, claude: Path) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        return "I see it." if results(messages) else [{"Read": {"file_path": str(tmp_path / "work" / "dot.png")}}]

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "dot.png").write_bytes(b64decode(PICTURE))
    with orchestra(tmp_path, "thought", bert) as server:
        first = work(claude, server, tmp_path, "Look at dot.png.")
        second = work(claude, server, tmp_path, "And now?", "--continue")
        sent = [messages for messages, _ in server.workers["bert"].sent]
    assert [one.result["result"] for one in (first, second)] == ["I see it."] * 2, first.errors + second.errors
    (picture,) = [part for turn in sent[1] for part in turn.parts if part.get("type") == "image_url"]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    told = [turn.content for turn in sent[2]]
    assert "I see it." in told and any(text.startswith("And now?") for text in told), "the conversation before it"
    assert len(server.planner.sent) == 2


@pytest.mark.parametrize("level", ["summary", "off"])
def test_claude_code_waits_while_workers_are_silent_for_longer_than_its_patience(
    tmp_path: Path, claude: Path, level: Any
) -> None:
    with orchestra(tmp_path, [3, "thought"], [3, "It ", 3, "took long."]) as server:
        server.gateway.reasoning = level
        done = work(claude, server, tmp_path, "Take your time.")
        asked = len(server.planner.sent)
    assert done.status == 0, done.result
    assert (done.result["result"], asked) == ("It took long.", 1)


@pytest.mark.parametrize(
    ("plan", "bert", "words"),
    [
        (None, ContextTooLong("too much"), "Prompt is too long"),
        (None, ServerFailed("it broke", status=500), "it broke"),
        ("no plan", "fine", "missing_list"),
    ],
)
def test_claude_code_is_told_what_failed_and_does_not_pay_for_it_again(
    tmp_path: Path, claude: Path, plan: Any, bert: Any, words: str
) -> None:
    with orchestra(tmp_path, "thought", bert, **({"plan": plan} if plan else {})) as server:
        done = work(claude, server, tmp_path, "Read everything.")
        asked = len(server.planner.sent)
    assert (done.status, done.result["is_error"], asked) == (1, True, 1)
    assert words in done.result["result"]
