"""``pool check`` and ``pool init`` over loopback: every fault has its fix, no key is shown, drafts load."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent))
from chat_server import DONE, Answer, chunk, completion, event, hangs, raw, says, streams
from test_cli import run, serving  # noqa: F401 - `run` is a fixture

from openconductor.cli import pool_init
from openconductor.cli.pool_init import KEYS
from openconductor.pool import WorkerPool

CANARY = "canary-0a1b2c3d"
WIRE_USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
COUNTED = [chunk("1\n"), chunk("2\n"), chunk("3", finish="stop")]
CALL = {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
REJECTED = says({"error": {"message": "this model takes text alone"}}, status=400)


def without_usage(body: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in body.items() if key != "usage"}


def kind(body: dict) -> str:
    """Which of the check's four calls this is."""
    if "tools" in body:
        return "tools"
    if body.get("stream"):
        return "stream"
    return "images" if isinstance(body["messages"][-1]["content"], list) else "plain"


WHOLE: dict[str, Answer] = {
    "plain": says(completion("1\n2\n3")),
    "stream": streams([*COUNTED, event({"choices": [], "usage": WIRE_USAGE}), DONE]),
    "tools": says(completion(None, finish="tool_calls", tool_calls=[CALL])),
    "images": says(completion("white")),
}
HOUSE: dict[str, dict[str, Answer]] = {
    "whole": WHOLE,
    "shy": {
        **WHOLE,
        "plain": says(without_usage(completion("1\n2\n3"))),
        "stream": streams([*COUNTED, DONE]),
        "tools": says(completion("It is sunny.")),
    },
    "half": {**WHOLE, "stream": streams([*COUNTED, DONE])},
    "text": {**WHOLE, "tools": REJECTED, "images": REJECTED},
    "lumpy": {**WHOLE, "stream": says(completion("1\n2\n3"))},
    "cutter": {**WHOLE, "plain": says(completion("1\n2", finish=None))},
    "stream-cutter": {**WHOLE, "stream": streams([chunk("1\n"), chunk("2\n"), DONE])},
    "website": {**WHOLE, "plain": raw(b"<html>Welcome</html>", content_type="text/html")},
    "locked": {**WHOLE, "plain": says({"error": {"message": "no such key"}}, status=401)},
    "unknown": {**WHOLE, "plain": says({"error": {"message": "no such model"}}, status=404)},
    "broke": {**WHOLE, "plain": says({"error": {"code": "insufficient_quota", "message": "pay"}}, status=429)},
    "silent": {**WHOLE, "plain": says(completion(""))},
    "down": {**WHOLE, "plain": says({"error": {"message": "overloaded"}}, status=503)},
    "sleepy": {**WHOLE, "plain": hangs()},
}


async def houses(request: web.Request) -> web.StreamResponse:
    """Answer as the model that is asked for does."""
    body = await request.json()
    return await HOUSE[body["model"]][kind(body)](request)


def pool_file(folder: Path, url: str, *models: str, more: str = "") -> str:
    path = folder / "pool.toml"
    tables = (f'[[worker]]\nname = "{name}"\nmodel = "{name}"\nbase_url = "{url}"\n{more}\n' for name in models)
    path.write_text("".join(tables), "utf-8")
    return str(path)


PRICE = "price = { input = 1, output = 2 }"


def test_a_worker_without_fault_is_told_of_with_what_its_check_cost(run, tmp_path, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setenv("HOUSE_API_KEY", CANARY)
    with serving(*[houses] * 4) as server:
        path = pool_file(tmp_path, server.url, "whole", more=f'{PRICE}\napi_key_env = "HOUSE_API_KEY"')
        ran = run("pool", "check", path, "--json")
    report = ran.json()
    assert (ran.code, ran.err, report["ok"], report["calls"]) == (0, "", True, 4)
    [only] = report["workers"]
    assert (only["usable"], only["reachable"], only["faults"]) == (True, True, [])
    assert only["key"] == {"env": "HOUSE_API_KEY", "present": True}
    assert (only["finish_reason"], only["usage_reported"]) == ("stop", True)
    assert only["streaming"].items() >= {"works": "yes", "pieces": 3, "usage_reported": True}.items()
    assert 0 < only["streaming"]["first_text_seconds"] < 5 and 0 < only["latency_seconds"] < 5
    assert (only["tools"], only["images"]) == ("yes", "accepted")
    assert Decimal(report["spent"]["dollars"]) == 4 * Decimal("0.000022")
    assert report["spent"]["unpriced_calls"] == 0
    assert CANARY not in ran.out
    assert {body.get("max_tokens") for body in server.bodies} == {64}


@pytest.mark.parametrize(
    ("model", "what", "message", "fix"),
    [
        ("cutter", "answer", "without a finish reason", "end without saying why"),
        ("stream-cutter", "streaming", "without a finish reason", "end without saying why"),
        ("website", "answer", "text/html", "correct base_url"),
        ("locked", "answer", "no such key", "export HOUSE_API_KEY="),
        ("unknown", "answer", "no such model", "correct model (it is 'unknown')"),
        ("broke", "answer", "pay", "add credit"),
        ("silent", "answer", "neither text nor tool call", "max_tokens"),
        ("down", "answer", "overloaded", "try again later"),
        ("sleepy", "answer", "deadline", "--timeout"),
    ],
)
def test_each_fault_has_its_fix_and_fails_the_check(run, tmp_path, monkeypatch, model, what, message, fix) -> None:  # noqa: F811
    monkeypatch.setenv("HOUSE_API_KEY", CANARY)
    with serving(*[houses] * 8) as server:
        path = pool_file(tmp_path, server.url, model, more=f'{PRICE}\napi_key_env = "HOUSE_API_KEY"')
        timeout = "0.3" if model == "sleepy" else "5"
        ran = run("pool", "check", path, "--json", "--timeout", timeout)
        shown = run("pool", "check", path, "--timeout", timeout)
    [only] = ran.json()["workers"]
    assert (ran.code, shown.code, only["usable"]) == (1, 1, False)
    [fault] = only["faults"]
    assert (fault["what"], fault["fatal"]) == (what, True)
    assert message in fault["message"] and fix in fault["fix"]
    flat = " ".join(shown.out.split())
    assert f"{model} {what}: " in flat and fix in flat
    assert "0 of 1 workers can be used" in shown.err
    assert CANARY not in ran.out + ran.err + shown.out + shown.err


def test_what_a_worker_cannot_do_is_told_and_is_no_failure(run, tmp_path) -> None:  # noqa: F811
    with serving(*[houses] * 20) as server:
        path = pool_file(tmp_path, server.url, "whole", "shy", "half", "text", "lumpy", more=PRICE)
        ran = run("pool", "check", path, "--json")
    assert ran.code == 0
    whole, shy, half, text, lumpy = ran.json()["workers"]
    assert (whole["tools"], shy["tools"], text["tools"]) == ("yes", "accepted", "no")
    assert (whole["images"], text["images"]) == ("accepted", "no")
    assert (lumpy["streaming"]["works"], lumpy["streaming"]["pieces"]) == ("accepted", 1)
    assert [one["what"] for one in shy["faults"] + half["faults"]] == ["usage", "usage"]
    assert not any(one["fatal"] for one in shy["faults"] + half["faults"])
    assert (half["usage_reported"], half["streaming"]["usage_reported"]) == (True, False)
    assert shy["spent"]["unpriced_calls"] == 2 and half["spent"]["unpriced_calls"] == 1
    assert text["faults"] == []


def test_one_broken_worker_does_not_hide_the_others(run, tmp_path) -> None:  # noqa: F811
    with serving(*[houses] * 4) as server:
        path = Path(pool_file(tmp_path, server.url, "whole", more=PRICE))
        path.write_text(
            path.read_text("utf-8")
            + '[[worker]]\nname = "nobody"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
            + '[[worker]]\nname = "misspelt"\nprovider = "opnai"\nmodel = "m"\n'
            + '[[worker]]\nname = "keyless"\nmodel = "m"\napi_key_env = "NOBODY_SET_THIS_KEY"\nbase_url = '
            + f'"{server.url}"\n',
            "utf-8",
        )
        ran = run("pool", "check", str(path), "--json", "--timeout", "5")
        asked = len(server.bodies)
    assert (ran.code, asked) == (2, 4)  # a provider that is not there is a mistake in the file
    whole, nobody, misspelt, keyless = ran.json()["workers"]
    assert [one["usable"] for one in (whole, nobody, misspelt, keyless)] == [True, False, False, False]
    assert "start the server" in next(one["fix"] for one in nobody["faults"] if one["fatal"])
    [fault] = misspelt["faults"]
    assert fault["what"] == "settings" and "'openai" in fault["message"]
    missing = next(one for one in keyless["faults"] if one["what"] == "key")
    assert missing["fix"] == "export NOBODY_SET_THIS_KEY=…"
    assert (keyless["reachable"], keyless["calls"]) == (None, 0)


def test_offline_no_call_is_made_and_a_known_price_comes_as_the_line_to_paste(run, tmp_path, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    path = tmp_path / "pool.toml"
    path.write_text(
        '[[worker]]\nname = "a"\nprovider = "openai"\nmodel = "gpt-5"\n'
        '[[worker]]\nname = "b"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n',
        "utf-8",
    )
    ran = run("pool", "check", str(path), "--offline", "--json")
    first, second = ran.json()["workers"]
    assert (ran.code, first["calls"], second["calls"], first["reachable"]) == (0, 0, 0, None)
    [known], [unknown] = first["faults"], second["faults"]
    assert (known["what"], known["fatal"]) == ("price", False)
    assert known["fix"] == "price = { input = 1.25, cached = 0.125, output = 10 }"
    assert first["known_price"]["price"] == {"input": "1.25", "cached": "0.125", "output": "10"}
    assert "no price list is known for http://127.0.0.1:9/v1" in unknown["message"]
    shown = run("pool", "check", str(path), "--offline")
    assert "fix: price = { input = 1.25, cached = 0.125, output = 10 }" in shown.out
    assert "2 of 2 workers can be used" in shown.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file"),
        ('[[worker]]\nname = "a"\nmodel = "m"\nprise = 1\n', "'price'"),
        (
            '[[worker]]\nname = "a"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n' * 2,
            "two workers of the name 'a'",
        ),
        ("", "worker: missing"),
    ],
)
def test_a_file_that_is_no_pool_is_a_wrong_setting(run, tmp_path, text, said) -> None:  # noqa: F811
    path = tmp_path / "pool.toml"
    if text is not None:
        path.write_text(text, "utf-8")
    ran = run("pool", "check", str(path), "--offline")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("price = { input = -1, output = 2 }", "expected US dollars a million tokens, from 0"),
        ("timeout_s = -5", "timeout_s: got -5.0, expected seconds above 0"),
        ('provider = "vlm"', "'vllm'"),
    ],
)
def test_a_worker_that_the_file_is_wrong_about_is_shown_and_exits_with_2(run, tmp_path, changed, said) -> None:  # noqa: F811
    path = tmp_path / "pool.toml"
    path.write_text(f'[[worker]]\nname = "a"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n{changed}\n', "utf-8")
    ran = run("pool", "check", str(path), "--offline")
    assert ran.code == 2
    assert "a settings: " in ran.out and said in " ".join(ran.out.split())
    assert "fix: change the worker 'a' in" in ran.out


def test_a_body_that_says_how_long_to_think_keeps_the_workers_own_limit(run, tmp_path) -> None:  # noqa: F811
    more = f"{PRICE}\nsampling = {{ max_tokens = 3000 }}\nbody = {{ thinking = {{ budget_tokens = 2000 }} }}\nrpm = 1"
    with serving(*[houses] * 4) as server:
        ran = run("pool", "check", pool_file(tmp_path, server.url, "whole", more=more), "--json")
    assert ran.code == 0  # one request a minute would not have let four calls through
    assert {body["max_tokens"] for body in server.bodies} == {3000}
    assert all(body["thinking"] == {"budget_tokens": 2000} for body in server.bodies)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("pool", "--help"), 0, "check"),
        (("pool", "check", "--help"), 0, "--offline"),
        (("pool", "init", "--help"), 0, "--force"),
        (("pool",), 2, "check"),
        (("pool", "chek"), 2, "'check'"),
        (("pool", "check", "pool.toml", "--ofline"), 2, "'--offline'"),
    ],
)
def test_the_verbs_have_help_and_name_the_nearest_of_what_there_is(run, arguments, code, said) -> None:  # noqa: F811
    ran = run(*arguments)
    assert ran.code == code
    assert said in (ran.out if code == 0 else ran.err)


# ── init ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@contextmanager
def local_server(body: object) -> Iterator[str]:
    """A server on loopback that lists models, in a thread of its own."""
    urls: list[str] = []
    started = threading.Event()
    stop: list[partial[object]] = []

    async def models(request: web.Request) -> web.Response:
        return web.Response(body=body) if isinstance(body, bytes) else web.json_response(body)

    async def serve() -> None:
        done = asyncio.Event()
        stop.append(partial(asyncio.get_running_loop().call_soon_threadsafe, done.set))
        app = web.Application()
        app.router.add_get("/v1/models", models)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        started.set()
        await done.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(10)
        yield urls[0]
    finally:
        stop[0]()
        thread.join(10)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place without keys and without local servers."""
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(pool_init, "LOCAL", {"vllm": "http://127.0.0.1:9/v1"})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_a_pool_that_loads_and_holds_no_key(run, bare, monkeypatch) -> None:  # noqa: F811
    for key in KEYS:
        monkeypatch.setenv(key, CANARY)
    ran = run("pool", "init")
    text = Path("pool.toml").read_text("utf-8")
    assert ran.code == 0
    assert CANARY not in text + ran.out + ran.err
    assert "openconductor pool check pool.toml" in ran.err
    pool = WorkerPool.from_toml("pool.toml")
    assert all(worker.price is not None for _, worker in pool)
    checked = run("pool", "check", "pool.toml", "--offline", "--json")
    assert checked.code == 0
    assert not any(worker["faults"] for worker in checked.json()["workers"])


def test_init_never_writes_over_a_file_unless_it_is_told_to(run, bare, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    Path("mine.toml").write_text("# mine\n", "utf-8")
    ran = run("pool", "init", "mine.toml")
    assert (ran.code, ran.out) == (2, "")
    assert "--force" in ran.err
    assert Path("mine.toml").read_text("utf-8") == "# mine\n"
    forced = run("pool", "init", "mine.toml", "--force", "--json")
    assert forced.code == 0
    drafted = json.loads(forced.out)["workers"]
    assert [one["name"] for one in drafted] == [worker.name for _, worker in WorkerPool.from_toml("mine.toml")]
    assert all(one["api_key_env"] == "OPENAI_API_KEY" for one in drafted)


def test_init_takes_the_models_of_a_local_server_and_leaves_out_names_that_are_none(run, bare, monkeypatch) -> None:  # noqa: F811
    names = ['"]\nevil = 1', "llama3:8b", 7, "org/qwen3", "x" * 500, "phi4", "one-too-many"]
    with local_server({"object": "list", "data": [{"id": name} for name in names]}) as url:
        monkeypatch.setattr(pool_init, "LOCAL", {"ollama": url, "vllm": "http://127.0.0.1:9/v1"})
        ran = run("pool", "init")
    assert ran.code == 0
    pool = WorkerPool.from_toml("pool.toml")
    assert [worker.name for _, worker in pool] == ["llama3:8b", "qwen3", "phi4"]
    assert {worker.provider.base_url for _, worker in pool} == {url}
    assert all(worker.price is None for _, worker in pool)  # not known is not free


@pytest.mark.parametrize("body", [b"<html>", [1, 2], {"data": "models"}, {"data": []}, b"[" * 100_000])
def test_init_without_a_key_or_a_server_says_what_it_looked_for(run, bare, monkeypatch, body) -> None:  # noqa: F811
    with local_server(body) as url:
        monkeypatch.setattr(pool_init, "LOCAL", {"vllm": url})
        ran = run("pool", "init")
    assert (ran.code, ran.out) == (1, "")
    assert "OPENAI_API_KEY" in ran.err and url in ran.err
    assert not Path("pool.toml").exists()
