"""``serve --from`` and ``ask --from``: what an evaluation measured answers users.

Three workers over loopback are each wrong on another third of the questions, so that only their
vote is right on all. ``best_fixed`` learns that vote in the evaluation.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from anyio.from_thread import start_blocking_portal
from chat_server import completion, write_pool
from served import listening
from test_cli import serving

import openconductor as oc
from openconductor.serving.app import build_app
from openconductor.serving.gateway import Gateway
from openconductor.serving.key_ring import KeyRing, hash_key
from openconductor.serving.measured import AUTO, MeasuredRun, for_users
from openconductor.serving.serve_config import KeyTable, ServeConfig

pytest.importorskip("scipy")

WORKERS = ("ann", "bob", "cid")
RECIPE = """
systems = ["workers", "best_fixed", "consensus:ann?n=3"]
pool = "pool.toml"
seed = 1
[[task]]
name = "gsm8k"
path = "test.jsonl"
[learn]
path = "learn.jsonl"
limit = 30
"""
QUESTION = "What is 7 plus 14?"
down: set[str] = set()
"""The workers whose server fails."""


async def answer(request: web.Request) -> web.Response:
    """Answer as the worker of the request's model: wrong on its third of the questions."""
    body = await request.json()
    model = body["model"]
    if model in down:
        return web.json_response({"error": {"message": "down"}}, status=500)
    number = int(re.findall(r"What is (\d+) plus", body["messages"][0]["content"])[0])
    place = WORKERS.index(model)
    wrong = number % 3 == place
    return web.json_response(completion(f"The answer is {3 * number + wrong * (place + 1)}."))


def write_questions(path: Path, numbers: Sequence[int]) -> None:
    rows = [{"question": f"What is {n} plus {2 * n}?", "answer": f"#### {3 * n}"} for n in numbers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Evaluate in a folder, with the server of the workers still there."""
    folder = tmp_path_factory.mktemp("measured")
    with serving(*[answer] * 2000) as server:
        price = "retries = 0\nprice = {input = 1, output = 2}"
        write_pool(folder, server.url, *WORKERS, more=price)
        write_questions(folder / "test.jsonl", range(100, 160))
        write_questions(folder / "learn.jsonl", range(300, 330))
        (folder / "recipe.toml").write_text(RECIPE, "utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            from openconductor import cli

            assert cli.main(["eval", "--config", "recipe.toml", "--out", "run"]) == 0
        yield folder


@pytest.fixture
def there(measured: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(measured)
    yield measured
    down.clear()


@pytest.fixture
def url(there: Path) -> Iterator[str]:
    """Serve the run to three keys."""

    @asynccontextmanager
    async def gateway() -> AsyncIterator[str]:
        run = MeasuredRun(Path("run"))
        systems: dict[str, Any] = {}
        for name in run.names:
            systems[name] = for_users(run.make(name), fallback=True, on_no_plan="default_worker")
        evidence = {name: run.evidence(name) for name in run.names}
        keys = (
            KeyTable("all", hash_key("all")),
            KeyTable("ann", hash_key("ann"), workers=("ann",)),
            KeyTable("poor", hash_key("poor"), max_calls=2),
        )
        with oc.Journal(there / "serve.sqlite") as journal:
            config = ServeConfig(key=keys)
            served = Gateway(run.pool, journal, systems, evidence=evidence)
            async with listening(build_app(served, KeyRing(keys, journal), config)) as address:
                yield address
        await run.pool.aclose()

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(gateway()) as address:
        yield address


def post(url: str, model: str, key: str = "all", **more: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], **more}
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)


# ── ask ───────────────────────────────────────────────────────────────────────────────────────────
def test_ask_answers_by_the_system_that_won_and_says_why(run, there: Path) -> None:
    ran = run("ask", "--from", "run", QUESTION)
    assert (ran.code, ran.out) == (0, "The answer is 21.\n"), ran.err
    said = " ".join(ran.err.split())
    assert "auto: best_fixed, right on 100.0% of 60 questions for $0.00" in said
    assert "the best system: against the best worker, worker:ann, +33.3 points" in said


def test_ask_takes_any_measured_system_by_its_name_within_a_budget(run, there: Path) -> None:
    wrong = run("ask", "--from", "run", "--system", "worker:bob", QUESTION)
    assert wrong.out == "The answer is 23.\n"
    spent = run(
        "ask", "--from", "run", "--system", "best_fixed", "--budget-calls", "2", "--json", QUESTION
    )
    assert spent.code == 1
    assert "calls" in spent.err


def test_a_journal_answers_what_was_paid_for(run, there: Path) -> None:
    words = ("ask", "--from", "run", "--journal", "asked.sqlite", "--json", QUESTION)
    first = run(*words).json()
    assert [step["worker"] for step in first["rounds"][0]["steps"]] == [0, 1, 2]
    down.update(WORKERS)
    assert run(*words).json()["answer"] == first["answer"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--system", "oracle"), "got 'oracle', expected one of auto, worker:ann"),
        (("--rounds", "2"), "got --rounds beside a run"),
        (("--conductor", "worker:ann"), "got --conductor beside a run"),
        (("--pool", "other.toml"), "'ann' was 'ann' and is 'ann-2'"),
        (("--pool", "fewer.toml"), "'bob' is missing; 'cid' is missing"),
        (("--pool", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_what_a_run_cannot_answer_is_said(run, there: Path, options, said: str) -> None:
    pool = Path("pool.toml").read_text("utf-8")
    Path("other.toml").write_text(pool.replace('model = "ann"', 'model = "ann-2"'), "utf-8")
    Path("fewer.toml").write_text(pool.partition('[[worker]]\nname = "bob"')[0], "utf-8")
    ran = run("ask", "--from", "run", *options, QUESTION)
    assert ran.code == 2
    assert said in " ".join(ran.err.split())


def test_a_run_that_kept_no_lessons_says_how_to_add_them(run, there: Path) -> None:
    shutil.copytree("run", "older")
    Path("older/lessons.json").unlink()
    environment = json.loads(Path("older/environment.json").read_text("utf-8"))
    del environment["models"], environment["date"]
    Path("older/environment.json").write_text(json.dumps(environment), "utf-8")
    ran = run("ask", "--from", "older", QUESTION)
    assert ran.code == 2
    assert "`openconductor eval --out older` writes it" in " ".join(ran.err.split())
    assert run("ask", "--from", "older", "--system", "worker:ann", QUESTION).code == 0
    down.update(WORKERS)  # nothing is asked
    assert run("eval", "--out", "older").code == 0
    down.clear()
    assert run("ask", "--from", "older", QUESTION).out == "The answer is 21.\n"


def test_a_folder_that_is_no_evaluation_is_refused(run, there: Path) -> None:
    ran = run("ask", "--from", ".", QUESTION)
    assert ran.code == 2
    assert "expected the folder of an evaluation" in " ".join(ran.err.split())


# ── serve ─────────────────────────────────────────────────────────────────────────────────────────
def test_models_carry_their_evidence(url: str) -> None:
    listed = httpx.get(f"{url}/v1/models", headers={"authorization": "Bearer all"}).json()["data"]
    models = {model["id"]: model for model in listed}
    workers = [f"worker:{name}" for name in WORKERS]
    direct = [f"direct:{name}" for name in WORKERS]
    assert list(models) == [AUTO, *workers, "best_fixed", "consensus:ann?n=3", *direct]
    evidence = models[AUTO]["measured"]
    assert evidence["system"] == "best_fixed"
    assert (evidence["right"], evidence["questions"], evidence["run"]) == (1.0, 60, "run")
    assert evidence["won"] is True
    assert 0 < evidence["dollars_per_question"] < 0.001
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", evidence["date"])
    assert models["worker:bob"]["measured"]["right"] == pytest.approx(2 / 3)
    assert "measured" not in models["direct:ann"]
    home = httpx.get(url, headers={"authorization": "Bearer all"}).json()
    assert home["measured"][AUTO] == evidence
    assert httpx.get(url).json()["measured"] == {}, "without a key nothing is told"


def test_a_vote_is_answered_and_billed_as_every_model(url: str) -> None:
    answered = post(url, AUTO).json()
    assert answered["choices"][0]["message"]["content"] == "The answer is 21."
    orchestration = answered["usage"]["orchestration"]
    assert [step["worker"] for step in orchestration["calls"]] == list(WORKERS)
    assert float(orchestration["dollars"]) == pytest.approx(3 * (12 + 2 * 5) / 1_000_000)
    streamed = post(url, AUTO, stream=True)
    assert "The answer is 21." in streamed.text
    assert post(url, AUTO, key="poor").json()["error"]["code"] == "budget_exceeded"


def test_a_vote_whose_worker_fails_falls_back_to_another_one(url: str) -> None:
    down.add("cid")
    answered = post(url, AUTO).json()
    assert answered["choices"][0]["message"]["content"] == "The answer is 21."
    steps = answered["usage"]["orchestration"]["calls"]
    assert "cid" not in [step["worker"] for step in steps]
    down.update(WORKERS)
    failed = post(url, AUTO)
    assert failed.status_code in (502, 503)


def test_a_worker_by_its_measured_name_keeps_the_limits_of_keys(url: str) -> None:
    assert post(url, "worker:ann", key="ann").status_code == 200
    refused = post(url, "worker:bob", key="ann")
    assert refused.json()["error"]["code"] == "model_not_found"
    streamed = post(url, "worker:ann", stream=True)
    assert "The answer is 21." in streamed.text
