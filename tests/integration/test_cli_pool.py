"""``pool check``, ``init`` and ``calibrate`` over loopback."""

from __future__ import annotations

import datetime as dt
import re
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
from test_frozen_output import check

from openconductor.calls import policies
from openconductor.calls.cards import read_card
from openconductor.cli import pool_init
from openconductor.cli.pool_init import KEYS, VENDORS
from openconductor.gym.questions import read_question
from openconductor.gym.world import write_value
from openconductor.pool import WorkerPool

CANARY = "canary-0a1b2c3d"
LOCAL_SERVERS = dict(pool_init.LOCAL)
PRICE = "price = { input = 1, output = 2 }"
WIRE_USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
COUNTED = [chunk("1\n"), chunk("2\n"), chunk("3", finish="stop")]
CALL = {
    "id": "t1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
}
SILENT = {key: value for key, value in completion("1\n2\n3").items() if key != "usage"}


def refuses(status: int, message: str, **more: str) -> Answer:
    return says({"error": {"message": message, **more}}, status=status)


def kind(body: dict) -> str:
    """Return the name of the check's call that a body belongs to."""
    if "tools" in body:
        return "tools"
    if body.get("stream"):
        return "stream"
    return "images" if isinstance(body["messages"][-1]["content"], list) else "plain"


UNCOUNTED = streams([*COUNTED, DONE])
USED = event({"choices": [], "usage": WIRE_USAGE})
WHOLE: dict[str, Answer] = {
    "plain": says(completion("1\n2\n3")),
    "stream": streams([*COUNTED, USED, DONE]),
    "tools": says(completion(None, finish="tool_calls", tool_calls=[CALL])),
    "images": says(completion("white")),
}
SHY = {
    "plain": says(SILENT),
    "stream": UNCOUNTED,
    "tools": says(completion("It is sunny.")),
}
REJECTED = refuses(400, "this model takes text alone")
HOUSE: dict[str, dict[str, Answer]] = {
    "whole": {},
    "shy": SHY,
    "half": {"stream": UNCOUNTED},
    "text": {"tools": REJECTED, "images": REJECTED},
    "lumpy": {"stream": WHOLE["plain"]},
}
"""What models that can be used answer otherwise."""
USABLE = len(HOUSE)
HOUSE["cutter"] = {"plain": says(completion("1\n2", finish=None))}
HOUSE["stream-cutter"] = {"stream": streams([*COUNTED[:2], DONE])}
USELESS = {
    "website": raw(b"<html>Welcome</html>", content_type="text/html"),
    "locked": refuses(401, "no such key"),
    "unknown": refuses(404, "no such model"),
    "broke": refuses(429, "pay", code="insufficient_quota"),
    "silent": says(completion("")),
    "down": refuses(503, "overloaded"),
}
HOUSE |= {name: {"plain": answer} for name, answer in USELESS.items()}


async def houses(request: web.Request) -> web.StreamResponse:
    """Answer as the model that is asked for does."""
    body = await request.json()
    if body["model"] == "sleepy":
        return await hangs()(request)
    answers = {**WHOLE, **HOUSE[body["model"]]}
    return await answers[kind(body)](request)


OTHERS = """
[[worker]]
name = "sleepy"
model = "sleepy"
base_url = "URL"
timeout_s = 0.3
[[worker]]
name = "keyless"
model = "m"
base_url = "URL"
api_key_env = "UNSET_KEY"
[[worker]]
name = "nobody"
model = "m"
base_url = "http://127.0.0.1:9/v1"
"""


def test_each_worker_is_reported_with_its_faults_their_fixes_and_what_its_check_cost(
    run, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOUSE_API_KEY", CANARY)
    monkeypatch.setattr(policies, "UNREACHABLE_S", 0.0)
    more = f'{PRICE}\napi_key_env = "HOUSE_API_KEY"'
    with serving(*[houses] * 120) as server:
        path = Path(write_pool(Path(), server.url, *HOUSE, more=more))
        path.write_text(path.read_text("utf-8") + OTHERS.replace("URL", server.url), "utf-8")
        command = ("pool", "check", path, "--timeout", "30")
        ran, shown = run(*command, "--json"), run(*command)
        assert {body.get("max_tokens") for body in server.bodies} == {64}
    assert (ran.code, ran.err, shown.code) == (1, "", 1)
    check("pool-check", ran.out.replace(server.url, "<url>"), str(tmp_path))
    assert f"{USABLE} of {len(HOUSE) + 3} workers can be used" in shown.err
    text = " ".join(shown.out.split())
    for worker in ran.json()["workers"]:
        for fault in worker["faults"]:
            fix = " ".join(fault["fix"].split())
            names = rf"\b{worker['name']}(, \w+)* {fault['what']}: "
            assert re.search(names, text), "workers that share a fault are named together"
            assert f"fix: {fix}" in text
    assert CANARY not in ran.out + ran.err + shown.out + shown.err


def test_a_pool_without_fault_passes_and_its_stated_limits_are_kept(run, tmp_path) -> None:
    more = f"{PRICE}\nsampling = {{ max_tokens = 3000 }}\nrpm = 1\n"
    more += "body = { thinking = { budget_tokens = 2000 } }"
    with serving(*[houses] * 4) as server:
        ran = run("pool", "check", write_pool(tmp_path, server.url, "whole", more=more), "--json")
    assert ran.code == 0  # one request a minute would not have let four calls through
    assert {body["max_tokens"] for body in server.bodies} == {3000}
    assert all(body["thinking"] == {"budget_tokens": 2000} for body in server.bodies)


def test_offline_no_call_is_made_and_a_known_price_comes_as_the_line_to_paste(
    run, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.chdir(tmp_path)
    Path("pool.toml").write_text(
        '[[worker]]\nname = "a"\nprovider = "openai"\nmodel = "gpt-5"\n'
        '[[worker]]\nname = "b"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n',
        "utf-8",
    )
    command = ("pool", "check", "pool.toml", "--offline")
    ran, shown = run(*command, "--json"), run(*command)
    assert (ran.code, ran.json()["calls"]) == (0, 0)
    check("pool-check-offline", ran.out, str(tmp_path))
    line = "price = { input = 1.25, cached = 0.125, output = 10 }"
    assert f"fix: {line}" in shown.out
    assert "2 of 2 workers can be used" in shown.err


def test_a_worker_that_bills_itself_needs_no_price(run, tmp_path) -> None:
    """A pool file rejects a price of such a worker."""
    pool = tmp_path / "pool.toml"
    pool.write_text(
        '[[worker]]\nname = "v"\nprovider = "replay_pool"\nmodel = "mmlu_pro:vote"\n', "utf-8"
    )
    shown = run("pool", "check", pool, "--offline").out
    assert "needs none" in shown and "not known" not in shown


WORKER = '[[worker]]\nname = "a"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'


WRONG_WORKERS = """
price = { input = -1, output = 2 } → expected US dollars a million tokens, from 0
timeout_s = -5                     → timeout_s: got -5.0, expected seconds above 0
provider = "vlm"                   → 'vllm'
"""


def check_offline(run, folder: Path, text: str) -> Any:
    path = folder / "pool.toml"
    path.write_text(text.replace("; ", "\n").replace("WORKER", WORKER), "utf-8")
    ran = run("pool", "check", path, "--offline")
    assert ran.code == 2
    return ran


@pytest.mark.parametrize("line", WRONG_WORKERS.strip().splitlines())
def test_a_worker_that_is_wrong_exits_with_2_and_its_fix(run, tmp_path, line) -> None:
    setting, _, message = line.partition("→")
    shown = " ".join(check_offline(run, tmp_path, f"WORKER; {setting}").out.split())
    assert message.strip() in shown
    assert "a settings: " in shown
    assert "fix: change the worker 'a' in" in shown


def test_a_file_that_is_absent_exits_with_2(run, tmp_path) -> None:
    run("pool", "check", tmp_path / "pool.toml", "--offline").assert_refused("no such file")


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
    addresses = [vendor.base_url for vendor in VENDORS for _ in vendor.models]
    assert [worker.provider.base_url for worker in workers] == addresses
    first_that_is_set = workers[4].provider.api_key_env
    assert first_that_is_set == "GEMINI_API_KEY"
    head, _, tables = text.partition("[[worker]]")
    settings = set(re.findall(r"^(\w+) = ", tables, re.MULTILINE))
    unexplained = [name for name in settings if head.count(f"#   {name} ") != 1]
    assert settings
    assert not unexplained
    assert all(worker.description and worker.tags for worker in workers)
    assert workers[0].description == (
        "GPT-5 is OpenAI's flagship model for coding, reasoning, and agentic tasks across domains; "
        "context of 400,000 tokens"
    )
    checked = run("pool", "check", "pool.toml", "--offline", "--json").json()["workers"]
    assert not any(worker["faults"] for worker in checked)  # each has a price, among other things


def test_init_never_writes_over_a_file_unless_it_is_told_to(run, bare, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " ")  # a blank key is none
    monkeypatch.setenv("GOOGLE_API_KEY", CANARY)
    Path("mine.toml").write_text("# mine\n", "utf-8")
    run("pool", "init", "mine.toml").assert_refused("--force")
    assert Path("mine.toml").read_text("utf-8") == "# mine\n"
    drafted = run("pool", "init", "mine.toml", "--force", "--json").json()["workers"]
    written = [worker.name for _, worker in WorkerPool.from_toml("mine.toml")]
    assert [worker["name"] for worker in drafted] == written
    assert {worker["api_key_env"] for worker in drafted} == {"GOOGLE_API_KEY"}


def test_init_takes_the_models_of_a_local_server_and_leaves_out_names_that_are_none(
    run, bare, monkeypatch
) -> None:
    names = ['"]\nevil = 1', "org/qwen3", 7, "qwen3", "x" * 500, "llama3:8b", "one-too-many"]
    models = [{"id": name} for name in names]
    with serving(says({"object": "list", "data": models})) as server:
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
    left_out = "left out 1 model beyond the first 3", "left out 3 models without a usable name"
    for words in left_out:
        assert f"{server.url}: {words}" in ran.err
    assert "not known: a server of your own" in Path("pool.toml").read_text("utf-8")


ENTRIES = [
    {
        "id": "vendor/seer",
        "name": "Seer",
        "description": "Sees\nwell. Buy it now!",
        "context_length": 32768,
        "architecture": {"input_modalities": ["text", "image"], "output_modalities": ["text"]},
        "supported_parameters": ["tools", "seed"],
    },
    {"id": "plain", "max_model_len": 8192},
    {"id": "models/local.gguf", "meta": {"n_ctx": 4096}},
    {"id": "strict", "capabilities": {"function_calling": True, "vision": "no"}},
    {"id": "odd", "name": 7, "description": ["x"], "context_length": "y", "architecture": "z"},
    {"id": "text-embedding-3", "architecture": None},
    {"id": "painter", "architecture": {"output_modalities": ["image"]}},
]
DESCRIBED = {
    "seer": ("Seer: Sees well; context of 32,768 tokens", ("tools", "images")),
    "plain": ("context of 8,192 tokens", ()),
    "local": ("context of 4,096 tokens", ()),
    "strict": ("", ("tools",)),
    "odd": ("", ()),
}


def test_init_takes_the_models_of_any_endpoint_and_writes_what_it_says_of_them(
    run, bare, monkeypatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not asked for, because --url names the server")
    monkeypatch.setenv("MINE", CANARY)
    with serving(*[says({"data": ENTRIES})] * 2) as server:
        words = ("pool", "init", "--url", f"{server.url}/", "--key-env", "MINE")
        ran = run(*words)
        again = run(*words, "--force", "--json")
    assert server.headers[0]["authorization"] == f"Bearer {CANARY}"
    assert f"{server.url}: left out 2 models not meant for chat" in ran.err
    assert again.json()["left_out"] == {server.url: {"not meant for chat": 2}}
    workers = [worker for _, worker in WorkerPool.from_toml("pool.toml")]
    written = {worker.name: (worker.description, worker.tags) for worker in workers}
    assert written == DESCRIBED
    assert {worker.resolved.api_key_env for worker in workers} == {"MINE"}
    assert CANARY not in Path("pool.toml").read_text("utf-8") + ran.out + ran.err


MOVED = says({}, status=302, headers={"Location": "http://127.0.0.1:9/"})


@pytest.mark.parametrize(
    ("answer", "options", "code", "message"),
    [
        (refuses(401, f"bad key {CANARY}"), (), 2, "expected --key-env with the variable"),
        (refuses(404, "no"), (), 2, "most end in /v1"),
        (MOVED, (), 2, "HTTP Error 302"),
        (says({"data": 7}), (), 2, "got no list of models"),
        (says({"data": [{"id": "whisper-1"}]}), (), 1, "lists no model that can be a worker"),
        (says({}), ("--key-env", "UNSET_KEY"), 2, "UNSET_KEY is not set"),
    ],
)
def test_init_says_why_an_endpoint_gave_no_models(
    run, bare, answer: Answer, options: tuple[str, ...], code: int, message: str
) -> None:
    with serving(answer) as server:
        ran = run("pool", "init", "--url", server.url, *options)
    assert ran.code == code
    assert message in " ".join(ran.err.split())
    assert CANARY not in ran.err
    assert not Path("pool.toml").exists()


def test_init_refuses_a_key_without_a_server(run, bare) -> None:
    run("pool", "init", "--key-env", "MINE").assert_refused("--key-env requires --url")


def test_init_knows_the_ports_of_local_servers() -> None:
    ports = {name: int(url.split(":")[2][:-3]) for name, url in LOCAL_SERVERS.items()}
    assert ports == {
        "ollama": 11434,
        "vllm": 8000,
        "llama.cpp": 8080,
        "lm studio": 1234,
        "sglang": 30000,
    }


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
    assert "OPENAI_API_KEY" in ran.err
    assert server.url in ran.err
    assert not Path("pool.toml").exists()


# ── calibrate ─────────────────────────────────────────────────────────────────────────────────────
OWN_WORDS = 'description = "Adds up."  # my words'
LAW = """
[calibration.solver.law]  # last year's
date = 2025-11-24
right = 10
n = 40
seconds = 2.0
"""


async def knows_singles(request: web.Request) -> web.Response:
    """Answer questions of one operation rightly, unless called novice."""
    body = await request.json()
    question = read_question(body["messages"][-1]["content"])
    right = question.kind == "single" and body["model"] != "novice"
    text = write_value(question.answer) if right else "7"
    return web.json_response(completion(text))


def test_calibrate_adds_a_task_to_the_pool_file_and_leaves_the_rest_as_it_is(
    tmp_path: Path, run: Any
) -> None:
    with serving(*[knows_singles] * 200) as server:
        more = f"{PRICE}  # by hand\n{OWN_WORDS}"
        pool = Path(write_pool(tmp_path, server.url, "solver", "novice", more=more))
        pool.write_text(pool.read_text("utf-8") + LAW, "utf-8")
        before = pool.read_text("utf-8")
        options = ("--task", "gym", "--limit", "100", "--out", str(tmp_path / "run"))
        words = ("pool", "calibrate", str(pool), *options)
        short = run(*words, "--budget-calls", "3")
        assert (short.code, pool.read_text("utf-8")) == (1, before)
        ran = run(*words, "--json")
        assert ran.code == 0, ran.err
        written = pool.read_text("utf-8")
        assert run(*words).code == 0
        assert len(server.paths) == 200, "what was asked is not asked again"
    assert written.startswith(before)
    assert pool.read_text("utf-8") == written, "the same measurement takes the place of itself"

    cards = ran.json()["cards"]
    pattern = r"Adds up; law 25%; gym single 100%; [\d.]+ s an answer"
    assert re.fullmatch(pattern, cards["solver"])  # what the old figures cost is not known
    assert read_card(cards["solver"]) == {"law": 0.25, "gym single": 1.0}
    assert re.fullmatch(r"Adds up; .* 0%; \$0\.000022 and [\d.]+ s an answer", cards["novice"])
    workers = WorkerPool.from_toml(pool)
    assert workers.cards == {0: cards["solver"], 1: cards["novice"]}
    assert workers.default_worker == 0
    measured = workers[0].calibrations["gym"]
    assert (measured.date, measured.n) == (dt.date.today(), 100)
    assert measured.right == measured.categories["single"].n == measured.categories["single"].right


@pytest.mark.parametrize(
    ("paths", "message"),
    [(["here"], "expected NAME=FILE"), (["other=here"], "got 'other=here'")],
)
def test_local_data_of_several_tasks_name_their_task(tmp_path, run, paths, message) -> None:
    pool = write_pool(tmp_path, "http://127.0.0.1:9/v1", "solver")
    options = ("--task", "gym", "--task", "mmlu", "--task-path", *paths)
    run("pool", "calibrate", pool, *options).assert_refused(message)
