"""``pool check``, ``init`` and ``calibrate`` over loopback."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_server import (
    DONE,
    Answer,
    chunk,
    completion,
    event,
    hangs,
    raw,
    says,
    streams,
    write_pool,
)
from test_cli import serving

from openconductor.cli import pool_init
from openconductor.cli.pool_init import KEYS, VENDORS
from openconductor.gym.questions import read_question
from openconductor.gym.world import write_value
from openconductor.pool import WorkerPool, read_card

CANARY = "canary-0a1b2c3d"
PRICE = "price = { input = 1, output = 2 }"
WIRE_USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
COUNTED = [chunk("1\n"), chunk("2\n"), chunk("3", finish="stop")]
CALL = {
    "id": "t1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
}
REJECTED = says({"error": {"message": "this model takes text alone"}}, status=400)
SILENT = {key: value for key, value in completion("1\n2\n3").items() if key != "usage"}


def kind(body: dict) -> str:
    """Return the name of the check's call that a body belongs to."""
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
SHY = {
    "plain": says(SILENT),
    "stream": streams([*COUNTED, DONE]),
    "tools": says(completion("It is sunny.")),
}
HOUSE: dict[str, dict[str, Answer]] = {
    "whole": {},
    "shy": SHY,
    "half": {"stream": streams([*COUNTED, DONE])},
    "text": {"tools": REJECTED, "images": REJECTED},
    "lumpy": {"stream": says(completion("1\n2\n3"))},
    "cutter": {"plain": says(completion("1\n2", finish=None))},
    "stream-cutter": {"stream": streams([chunk("1\n"), chunk("2\n"), DONE])},
    "website": {"plain": raw(b"<html>Welcome</html>", content_type="text/html")},
    "locked": {"plain": says({"error": {"message": "no such key"}}, status=401)},
    "unknown": {"plain": says({"error": {"message": "no such model"}}, status=404)},
    "broke": {
        "plain": says({"error": {"code": "insufficient_quota", "message": "pay"}}, status=429)
    },
    "silent": {"plain": says(completion(""))},
    "down": {"plain": says({"error": {"message": "overloaded"}}, status=503)},
    "sleepy": {"plain": hangs()},
}


async def houses(request: web.Request) -> web.StreamResponse:
    """Answer as the model that is asked for does."""
    body = await request.json()
    return await {**WHOLE, **HOUSE[body["model"]]}[kind(body)](request)


@pytest.fixture
def pool_file(tmp_path: Path) -> Callable[..., str]:
    """Writes a pool file of these models at this address."""
    return partial(write_pool, tmp_path, more=PRICE)


def test_a_worker_without_fault_is_reported_with_the_cost_of_its_check(
    run, pool_file, monkeypatch
) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", CANARY)
    with serving(*[houses] * 4) as server:
        path = pool_file(server.url, "whole", more=f'{PRICE}\napi_key_env = "HOUSE_API_KEY"')
        ran = run("pool", "check", path, "--json")
    report = ran.json()
    assert (ran.code, ran.err, report["ok"], report["calls"]) == (0, "", True, 4)
    [worker] = report["workers"]
    assert (worker["usable"], worker["reachable"], worker["faults"]) == (True, True, [])
    assert worker["key"] == {"env": "HOUSE_API_KEY", "present": True}
    assert (worker["finish_reason"], worker["usage_reported"]) == ("stop", True)
    assert (worker["tools"], worker["images"]) == ("yes", "accepted")
    stream = worker["streaming"]
    assert (stream["works"], stream["pieces"], stream["usage_reported"]) == ("yes", 3, True)
    assert 0 < stream["first_text_seconds"] < 5 and 0 < worker["latency_seconds"] < 5
    assert Decimal(report["spent"]["dollars"]) == 4 * Decimal("0.000022")
    assert report["spent"]["unpriced_calls"] == 0
    assert CANARY not in ran.out
    assert {body.get("max_tokens") for body in server.bodies} == {64}


@pytest.mark.parametrize(
    ("model", "what", "message", "fix"),
    [
        ("cutter", "answer", "without a finish reason", "update the server"),
        ("stream-cutter", "streaming", "without a finish reason", "update the server"),
        ("website", "answer", "text/html", "correct base_url"),
        ("locked", "answer", "no such key", "export HOUSE_API_KEY="),
        ("unknown", "answer", "no such model", "correct model (it is 'unknown')"),
        ("broke", "answer", "pay", "add credit"),
        ("silent", "answer", "neither text nor tool call", "max_tokens"),
        ("down", "answer", "overloaded", "try again later"),
        ("sleepy", "answer", "deadline", "--timeout"),
    ],
)
def test_each_fault_has_its_fix_and_fails_the_check(
    run, pool_file, monkeypatch, model, what, message, fix
) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", CANARY)
    timeout = "0.3" if model == "sleepy" else "5"
    with serving(*[houses] * 8) as server:
        path = pool_file(server.url, model, more=f'{PRICE}\napi_key_env = "HOUSE_API_KEY"')
        command = ("pool", "check", path, "--timeout", timeout)
        ran, shown = run(*command, "--json"), run(*command)
    [worker] = ran.json()["workers"]
    assert (ran.code, shown.code, worker["usable"]) == (1, 1, False)
    [fault] = worker["faults"]
    assert (fault["what"], fault["fatal"]) == (what, True)
    assert message in fault["message"] and fix in fault["fix"]
    flat = " ".join(shown.out.split())
    assert f"{model} {what}: " in flat and fix in flat
    assert "0 of 1 workers can be used" in shown.err
    assert CANARY not in ran.out + ran.err + shown.out + shown.err


def test_what_a_worker_cannot_do_is_told_and_is_no_failure(run, pool_file) -> None:
    with serving(*[houses] * 20) as server:
        path = pool_file(server.url, "whole", "shy", "half", "text", "lumpy")
        ran = run("pool", "check", path, "--json")
    assert ran.code == 0
    whole, shy, half, text, lumpy = ran.json()["workers"]
    assert (whole["tools"], shy["tools"], text["tools"]) == ("yes", "accepted", "no")
    assert (whole["images"], text["images"]) == ("accepted", "no")
    assert (lumpy["streaming"]["works"], lumpy["streaming"]["pieces"]) == ("accepted", 1)
    for fault in (*shy["faults"], *half["faults"]):
        assert (fault["what"], fault["fatal"]) == ("usage", False)
    assert len(shy["faults"]) == len(half["faults"]) == 1
    assert (half["usage_reported"], half["streaming"]["usage_reported"]) == (True, False)
    assert shy["spent"]["unpriced_calls"] == 2 and half["spent"]["unpriced_calls"] == 1
    assert text["faults"] == []


def test_one_broken_worker_does_not_hide_the_others(run, pool_file) -> None:
    with serving(*[houses] * 4) as server:
        path = Path(pool_file(server.url, "whole"))
        more = (
            '[[worker]]\nname = "nobody"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
            '[[worker]]\nname = "misspelt"\nprovider = "opnai"\nmodel = "m"\n'
            '[[worker]]\nname = "keyless"\nmodel = "m"\napi_key_env = "UNSET_KEY"\n'
            f'base_url = "{server.url}"\n'
        )
        path.write_text(path.read_text("utf-8") + more, "utf-8")
        ran = run("pool", "check", str(path), "--json", "--timeout", "5")
        asked = len(server.bodies)
    assert (ran.code, asked) == (2, 4)  # a provider that is not there is a mistake in the file
    whole, nobody, misspelt, keyless = ran.json()["workers"]
    assert whole["usable"]
    assert not any(worker["usable"] for worker in (nobody, misspelt, keyless))
    assert any("start the server" in fault["fix"] for fault in nobody["faults"] if fault["fatal"])
    [fault] = misspelt["faults"]
    assert fault["what"] == "settings" and "'openai" in fault["message"]
    [fix] = [fault["fix"] for fault in keyless["faults"] if fault["what"] == "key"]
    assert fix == "export UNSET_KEY=…"
    assert (keyless["reachable"], keyless["calls"]) == (None, 0)


def test_offline_no_call_is_made_and_a_known_price_comes_as_the_line_to_paste(
    run, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    path = tmp_path / "pool.toml"
    path.write_text(
        '[[worker]]\nname = "a"\nprovider = "openai"\nmodel = "gpt-5"\n'
        '[[worker]]\nname = "b"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n',
        "utf-8",
    )
    asked = ("pool", "check", str(path), "--offline")
    ran, shown = run(*asked, "--json"), run(*asked)
    first, second = ran.json()["workers"]
    assert (ran.code, first["calls"], second["calls"], first["reachable"]) == (0, 0, 0, None)
    line = "price = { input = 1.25, cached = 0.125, output = 10 }"
    assert [(it["what"], it["fatal"], it["fix"]) for it in first["faults"]] == [
        ("price", False, line)
    ]
    assert first["known_price"]["price"] == {"input": "1.25", "cached": "0.125", "output": "10"}
    assert "no price list is known for http://127.0.0.1:9/v1" in second["faults"][0]["message"]
    assert f"fix: {line}" in shown.out and "2 of 2 workers can be used" in shown.err


WORKER = '[[worker]]\nname = "a"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'


@pytest.mark.parametrize(
    ("text", "said", "where"),
    [
        (None, "no such file", "err"),
        ('[[worker]]\nname = "a"\nmodel = "m"\nprise = 1\n', "'price'", "err"),
        (WORKER * 2, "two workers of the name 'a'", "err"),
        ("", "worker: missing", "err"),
        (
            f"{WORKER}price = {{ input = -1, output = 2 }}",
            "expected US dollars a million tokens, from 0",
            "out",
        ),
        (f"{WORKER}timeout_s = -5", "timeout_s: got -5.0, expected seconds above 0", "out"),
        (f'{WORKER}provider = "vlm"', "'vllm'", "out"),
    ],
)
def test_a_file_or_a_worker_that_is_wrong_exits_with_2(run, tmp_path, text, said, where) -> None:
    path = tmp_path / "pool.toml"
    if text is not None:
        path.write_text(text, "utf-8")
    ran = run("pool", "check", str(path), "--offline")
    assert (ran.code, ran.out == "") == (2, where == "err")
    assert said in " ".join(getattr(ran, where).split())
    if where == "out":
        assert "a settings: " in ran.out and "fix: change the worker 'a' in" in ran.out


def test_a_body_that_says_how_long_to_think_keeps_the_workers_own_limit(run, pool_file) -> None:
    more = f"{PRICE}\nsampling = {{ max_tokens = 3000 }}\nrpm = 1\n"
    more += "body = { thinking = { budget_tokens = 2000 } }"
    with serving(*[houses] * 4) as server:
        ran = run("pool", "check", pool_file(server.url, "whole", more=more), "--json")
    assert ran.code == 0  # one request a minute would not have let four calls through
    assert {body["max_tokens"] for body in server.bodies} == {3000}
    assert all(body["thinking"] == {"budget_tokens": 2000} for body in server.bodies)


# ── init ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place without keys and without local servers."""
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(pool_init, "LOCAL", {"vllm": "http://127.0.0.1:9/v1"})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_a_pool_that_loads_explains_itself_and_holds_no_key(
    run, bare, monkeypatch
) -> None:
    for key in KEYS:
        monkeypatch.setenv(key, CANARY)
    ran = run("pool", "init")
    text = Path("pool.toml").read_text("utf-8")
    assert ran.code == 0
    assert CANARY not in text + ran.out + ran.err
    assert "openconductor pool check pool.toml" in ran.err
    workers = [worker for _, worker in WorkerPool.from_toml("pool.toml")]
    assert all(worker.price is not None for worker in workers)
    addresses = [vendor.base_url for vendor in VENDORS for _ in vendor.models]
    assert [worker.provider.base_url for worker in workers] == addresses
    assert [worker.provider.api_key_env for worker in workers][4] == "GEMINI_API_KEY", (
        "the first name that is set"
    )
    head, *tables = text.split("[[worker]]")
    settings = {
        line.partition(" = ")[0]
        for table in tables
        for line in table.splitlines()[1:]
        if line[:1] != "#"
    }
    assert all(head.count(f"#   {name} ") == 1 for name in settings if name), (
        "every setting is explained once"
    )
    checked = run("pool", "check", "pool.toml", "--offline", "--json")
    assert checked.code == 0
    assert not any(worker["faults"] for worker in checked.json()["workers"])


def test_init_never_writes_over_a_file_unless_it_is_told_to(run, bare, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " ")  # a blank key is none
    monkeypatch.setenv("GOOGLE_API_KEY", CANARY)
    Path("mine.toml").write_text("# mine\n", "utf-8")
    ran = run("pool", "init", "mine.toml")
    assert (ran.code, ran.out) == (2, "")
    assert "--force" in ran.err
    assert Path("mine.toml").read_text("utf-8") == "# mine\n"
    forced = run("pool", "init", "mine.toml", "--force", "--json")
    assert forced.code == 0
    drafted = forced.json()["workers"]
    assert [one["name"] for one in drafted] == [
        worker.name for _, worker in WorkerPool.from_toml("mine.toml")
    ]
    assert {one["api_key_env"] for one in drafted} == {"GOOGLE_API_KEY"}


def test_init_takes_the_models_of_a_local_server_and_leaves_out_names_that_are_none(
    run, bare, monkeypatch
) -> None:
    names = ['"]\nevil = 1', "org/qwen3", 7, "qwen3", "x" * 500, "llama3:8b", "one-too-many"]
    with serving(says({"object": "list", "data": [{"id": name} for name in names]})) as server:
        monkeypatch.setattr(
            pool_init, "LOCAL", {"ollama": server.url, "vllm": "http://127.0.0.1:9/v1"}
        )
        ran = run("pool", "init")
    assert ran.code == 0
    workers = [worker for _, worker in WorkerPool.from_toml("pool.toml")]
    assert [worker.name for worker in workers] == ["qwen3", "qwen3-2", "llama3:8b"]
    assert server.paths == ["/v1/models"]
    assert {worker.provider.base_url for worker in workers} == {server.url}
    assert all(worker.price is None for worker in workers)  # not known is not free
    assert "not known: a server of your own" in Path("pool.toml").read_text("utf-8")


@pytest.mark.parametrize(
    "body", [b"<html>", [1, 2], {"data": "models"}, {"data": []}, b"[" * 100_000]
)
def test_init_without_a_key_or_a_server_says_what_it_looked_for(
    run, bare, monkeypatch, body
) -> None:
    with serving(raw(body) if isinstance(body, bytes) else says(body)) as server:
        monkeypatch.setattr(pool_init, "LOCAL", {"vllm": server.url})
        ran = run("pool", "init")
    assert (ran.code, ran.out) == (1, "")
    assert "OPENAI_API_KEY" in ran.err and server.url in ran.err
    assert not Path("pool.toml").exists()


# ── calibrate ─────────────────────────────────────────────────────────────────────────────────────
async def knows_singles(request: web.Request) -> web.Response:
    """A worker that is right on questions of one operation, unless it is called novice."""
    body = await request.json()
    question = read_question(body["messages"][-1]["content"])
    right = question.kind == "single" and body["model"] != "novice"
    return web.json_response(completion(write_value(question.answer) if right else "7"))


def test_calibrate_writes_what_was_measured_and_leaves_the_rest_of_the_file(
    tmp_path: Path, run: Any
) -> None:
    with serving(*[knows_singles] * 200) as server:
        pool = Path(
            write_pool(tmp_path, server.url, "solver", "novice", more=f"{PRICE}  # by hand")
        )
        before = pool.read_text("utf-8")
        options = ("--task", "gym", "--limit", "100", "--out", str(tmp_path / "run"))
        words = ("pool", "calibrate", str(pool), *options)
        short = run(*words, "--budget-calls", "3")
        assert (short.code, pool.read_text("utf-8")) == (1, before)
        ran = run(*words, "--json")
        assert ran.code == 0, ran.err
        again = run(*words, "--json")
        assert len(server.paths) == 200, "what was asked is not asked again"
    cards = json.loads(ran.out)["cards"]
    assert json.loads(again.out)["cards"] == cards
    assert re.fullmatch(r"single 100%; \$0\.000022 and [\d.]+ s an answer", cards["solver"])
    assert read_card(cards["solver"]) == {"single": 1.0}
    assert set(read_card(cards["novice"]).values()) == {0.0}
    assert WorkerPool.from_toml(pool).cards == {0: cards["solver"], 1: cards["novice"]}
    after = pool.read_text("utf-8").splitlines()
    assert [line for line in after if not line.startswith("description")] == before.splitlines()
