"""Tools of MCP servers as workers, against a real server of the SDK, over stdio and HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra 'mcp': pip install 'openconductor[mcp]'")

from chat_server import chat_server, raw, says
from mcp_tools import LONGEST, serving

import openconductor as oc
from openconductor import errors
from openconductor.protocols import CallContext
from openconductor.providers import create
from openconductor.types import Completion, Message, Sampling

COMMAND = [sys.executable, str(Path(__file__).parent / "mcp_tools.py")]


async def ask(
    provider: Any, text: str = "hi", *, body: dict[str, object] | None = None, **call: Any
) -> Completion:
    turns = (Message("user", "before"), Message("assistant", "yes?"), Message("user", text))
    return await provider.complete(turns, Sampling(body=body or {}), call=CallContext(**call))


async def still_works(provider: Any) -> bool:
    """Return True if the session of a provider goes on."""
    session = await (await provider._held.get()).opened
    answer = await session.call_tool("shout", {"text": "still here"})
    return answer.content[0].text == "STILL HERE!"


def tool(name: str, **options: Any) -> Any:
    return create("mcp", name, **{"command": COMMAND, **options})


async def once(
    name: str, text: str = "hi", *, body: dict[str, object] | None = None, **options: Any
) -> Completion:
    """One call of a tool of a server of its own."""
    async with tool(name, **options) as provider:
        return await ask(provider, text, body=body)


async def over_http(name: str, text: str = "hi", **options: Any) -> Completion:
    """One call of a tool of a server in this process, which begins much sooner than another."""
    async with serving() as url:
        return await once(name, text, command=None, url=url, **options)


def lives(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────
async def test_the_last_turns_text_is_the_argument_and_the_answer_is_text() -> None:
    heard: list[str] = []
    turns, context = (Message("user", "hi"),), CallContext()
    async with tool("shout") as provider:
        got = await provider.complete(turns, Sampling(), call=context, on_text=heard.append)
    assert (got.text, heard) == ("HI!", ["HI!"])
    assert got.body_sent == {"name": "shout", "arguments": {"text": "hi"}}
    assert got.usage.seconds > 0


async def test_a_server_behind_a_url_is_called_the_same_way() -> None:
    async with serving() as url:
        provider: Any = create("mcp", "shout", url=url)
        assert provider.remote
        assert provider.identity == f"mcp shout {url}"
        async with provider:
            texts = await asyncio.gather(*(ask(provider, f"n{index}") for index in range(5)))
    assert [got.text for got in texts] == [f"N{index}!" for index in range(5)]


async def test_a_tool_may_be_sent_the_subtask_alone(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    table = f"""[[worker]]\nprovider = "mcp"\nmodel = "shout"\ncommand = {json.dumps(COMMAND)}\n"""
    file.write_text(f'{table}name = "both"\n{table}name = "alone"\nsend = "subtask"\n', "utf-8")
    pool = oc.WorkerPool.from_toml(file)
    workflow = oc.Workflow((oc.Step(0, "shout this"), oc.Step(1, "shout this")))
    transcript = await oc.execute(workflow, pool, "What do you say?")
    texts = [result.completion.text for result in transcript.results]
    assert texts == ["WHAT DO YOU SAY?\n\nSHOUT THIS!", "SHOUT THIS!"]
    got = await pool[1].complete((Message("user", "no step asks"),), call=CallContext())
    assert got.text == "NO STEP ASKS!"
    assert pool[0].identity != pool[1].identity, "a journal must tell apart what is sent"
    await pool.aclose()


async def test_further_arguments_come_from_the_body_and_the_argument_may_be_named() -> None:
    assert (await over_http("shout", body={"marks": 3})).text == "HI!!!"
    assert (await over_http("join", "hi", body={"left": "oh "})).text == "oh hi"
    assert (
        await over_http("join", "hi", argument="left", body={"right": " there"})
    ).text == "hi there"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("join", {}, r"required strings \['left', 'right'\], expected one, or `argument`"),
        ("count", {}, r"required strings \[\], .*\['number'\]"),
        ("shout", {"argument": "txt"}, "argument of tool 'shout': got 'txt', .*; nearest: 'text'"),
        ("shoot", {}, "got 'shoot', expected a tool of .*: shout, join.*; nearest: 'shout'"),
    ],
)
async def test_a_tool_or_an_argument_that_is_not_there_is_a_config_error(
    name, options, said
) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        await over_http(name, **options)


async def test_media_in_an_answer_are_noted_and_texts_are_joined() -> None:
    assert (await over_http("draw")).text == "hi\n[image/png]\ndone"


# ── failures ──────────────────────────────────────────────────────────────────────────────────────
async def test_an_error_of_the_tool_is_a_worker_error_that_is_not_repeated() -> None:
    said = r"tool 'fail' of .* reported an error: Error executing tool fail"
    with pytest.raises(errors.WorkerError, match=said) as caught:
        await over_http("fail")
    assert type(caught.value) is errors.WorkerError
    assert not caught.value.retryable


async def test_a_blank_answer_is_an_empty_response() -> None:
    with pytest.raises(errors.EmptyResponse):
        await over_http("nothing")


async def test_a_turn_with_an_image_is_rejected() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    turns = (Message("user", "see", (image,)),)
    with pytest.raises(errors.Rejected, match="parts"):
        await tool("shout").complete(turns, Sampling(), call=CallContext())


async def test_a_server_that_dies_is_a_lost_connection_and_the_next_call_starts_another() -> None:
    async with tool("die") as provider:
        for _ in range(2):
            with pytest.raises(errors.ConnectionLost):
                await ask(provider)


@pytest.mark.parametrize(
    ("command", "kind", "retryable"),
    [
        (["/no/such/program"], errors.Unreachable, False),
        ([sys.executable, "-c", "pass"], errors.Unreachable, True),
        ([sys.executable, "-c", "print('no JSON')"], errors.Unreachable, True),
    ],
    ids=["absent", "ends at once", "speaks something else"],
)
async def test_a_command_that_is_no_server_is_unreachable(command, kind, *, retryable) -> None:
    with pytest.raises(errors.WorkerError) as caught:
        await once("shout", command=command)
    assert (type(caught.value), caught.value.retryable) == (kind, retryable)


NOISE = "import os, sys; print('noise ' * 100_000, file=sys.stderr)"


async def test_the_end_of_a_servers_stderr_is_shown_if_it_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEARCH_AUTH", "not-a-real-value-8f3b1c")
    broken = f"{NOISE}; sys.exit('no index at ' + os.environ['SEARCH_AUTH'])"
    with pytest.raises(errors.Unreachable) as caught:
        await once("shout", command=[sys.executable, "-c", broken], env=["SEARCH_AUTH"])
    said = str(caught.value)
    assert "; its standard error ends in: …" in said
    assert said.endswith("no index at [key]") and len(said) < 600


async def test_a_servers_stderr_is_kept_from_ours(capfd: pytest.CaptureFixture[str]) -> None:
    works = f"{NOISE}; import runpy; runpy.run_path({COMMAND[1]!r}, run_name='__main__')"
    assert (await once("shout", command=[sys.executable, "-c", works])).text == "HI!"
    assert "noise" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, errors.Rejected), (429, errors.RateLimited), (503, errors.ServerFailed)],
)
async def test_a_status_of_the_http_server_is_a_typed_failure(
    status: int, kind: type[errors.WorkerError]
) -> None:
    async with chat_server(*[says("no", status=status)] * 4) as server:
        with pytest.raises(errors.WorkerError) as caught:
            await once("shout", command=None, url=server.url)
    assert (type(caught.value), caught.value.status) == (kind, status)


async def test_a_page_that_is_no_server_is_malformed() -> None:
    async with chat_server(*[raw(b"<html>", content_type="text/html")] * 4) as server:
        with pytest.raises(errors.MalformedResponse, match="does not speak MCP"):
            await once("shout", command=None, url=server.url)


async def test_an_http_server_that_goes_away_is_a_typed_failure() -> None:
    async with serving() as url:
        provider = tool("shout", command=None, url=url, timeout_s=30)
        assert (await ask(provider)).text == "HI!"
    with pytest.raises((errors.Unreachable, errors.ConnectionLost)):
        await ask(provider)
    await provider.aclose()


# ── deadlines, sessions, keys ─────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("by", ["timeout_s", "deadline"])
async def test_a_tool_that_is_late_is_cut_off_at_the_deadline_and_the_session_lives_on(
    by: str,
) -> None:
    options = {"timeout_s": 0.5} if by == "timeout_s" else {}
    async with tool("sleep", **options) as provider:
        assert await still_works(provider)
        deadline = None if options else asyncio.get_running_loop().time() + 0.5
        with pytest.raises(errors.WorkerTimeout, match="by the deadline"):
            await ask(provider, deadline=deadline)
        assert await still_works(provider)


@pytest.mark.parametrize("over", ["stdio", "HTTP"])
async def test_a_cancelled_call_ends_at_once_and_the_session_lives_on(over: str) -> None:
    async with serving() as url:
        where = {"command": None, "url": url} if over == "HTTP" else {}
        async with tool("sleep", **where) as provider:
            assert await still_works(provider)
            task = asyncio.create_task(ask(provider))
            await asyncio.sleep(0.1)
            task.cancel()
            async with asyncio.timeout(LONGEST / 2):
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await still_works(provider)


async def test_one_server_serves_all_calls_and_ends_when_it_is_closed() -> None:
    provider = tool("process")
    answers = await asyncio.gather(*(ask(provider) for _ in range(4)))
    (pid,) = {got.text.split()[0] for got in answers}
    assert lives(pid)
    await provider.aclose()
    assert not lives(pid)
    another = (await ask(provider)).text.split()[0]
    assert another != pid, "another is started where one is needed again"
    await provider.aclose()


def test_a_server_ends_with_its_event_loop() -> None:
    provider = tool("process")
    pids = [asyncio.run(ask(provider)).text.split()[0] for _ in range(2)]
    assert len(set(pids)) == 2
    assert not any(lives(pid) for pid in pids)


async def test_a_server_gets_those_variables_that_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENCONDUCTOR_TEST_KEY", "not-a-real-key-8f3b1c")
    got = await once("process", "OPENCONDUCTOR_TEST_KEY")
    assert got.text.endswith("is not set")
    got = await once("process", "OPENCONDUCTOR_TEST_KEY", env=["OPENCONDUCTOR_TEST_KEY"])
    assert got.text.endswith("not-a-real-key-8f3b1c")


async def test_a_key_goes_to_the_url_as_a_bearer_token_and_is_not_in_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENCONDUCTOR_TEST_KEY", "not-a-real-key-8f3b1c")
    async with chat_server(*[says("no", status=401)] * 4) as server:
        with pytest.raises(errors.AuthFailed) as caught:
            await once("shout", command=None, url=server.url, api_key_env="OPENCONDUCTOR_TEST_KEY")
    assert server.headers[0]["authorization"] == "Bearer not-a-real-key-8f3b1c"
    assert "not-a-real-key" not in repr(caught.value) + str(caught.value)


# ── settings ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "exactly one"),
        ({"command": ["x"], "url": "http://127.0.0.1:1/mcp"}, "exactly one"),
        ({"command": "python server.py"}, "a list of a program and its arguments"),
        ({"command": []}, "a program"),
        ({"command": ["x", 7]}, "a list"),
        ({"url": "ftp://x"}, "base_url"),
        ({"command": ["x"], "api_key_env": "KEY"}, "`env`"),
        ({"command": ["x"], "env": ["A=B"]}, "not shown"),
        ({"command": ["x"], "send": "subtasks"}, "expected one of turn, subtask"),
        ({"command": ["x"], "timeout_s": -1}, "timeout_s"),
    ],
)
def test_a_setting_that_is_wrong_is_a_config_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        create("mcp", "shout", **options)


def test_what_a_command_is_given_is_in_its_identity_as_a_digest() -> None:
    one: Any = create("mcp", "shout", command=["server", "--token", "private"])
    other: Any = create("mcp", "shout", command=["server", "--token", "other"])
    assert one.identity.startswith("mcp shout server#")
    assert "private" not in one.identity + repr(one)
    assert one.identity != other.identity
    assert not one.remote
