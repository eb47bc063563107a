"""Dry runs of evaluations and servers: everything is checked at once, and nobody is asked."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
EVALUATIONS = [
    path
    for path in RECIPES
    if {"systems", "system"} & tomllib.loads(path.read_text("utf-8")).keys()
]
OF_A_SCRIPT = ROOT / "recipes" / "specialists_proof.toml"  # a script makes its pool
SERVERS = [path for path in RECIPES if "port" in tomllib.loads(path.read_text("utf-8"))]
POOL = """
[[worker]]
name = "big"
model = "big-1"
base_url = "http://127.0.0.1:9/v1"
api_key_env = "A_KEY_OF_BIG"
price = {input = 1, output = 10}
sampling = {max_tokens = 100}
[[worker]]
name = "small"
model = "small-1"
base_url = "http://127.0.0.1:9/v1"
price = {input = 0, output = 1}
"""
REMEDIES = ("network", "not set in the environment", "sandbox", "--port")

Checks = Callable[..., dict[str, list[str]]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool, ten questions, and no network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("A_KEY_OF_BIG", raising=False)
    (tmp_path / "pool.toml").write_text(POOL, "utf-8")
    with (tmp_path / "mine.jsonl").open("w") as file:
        for n in range(10):
            row = {"id": str(n), "problem": f"What is {n} + 1?", "answer": str(n + 1)}
            print(json.dumps(row), file=file)

    def refuse(*_: object) -> None:
        raise AssertionError("a dry run asks nobody")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


OWN = ("--task", "gsm8k", "--task-path", "gsm8k=mine.jsonl", "--pool", "pool.toml", "--dry-run")


@pytest.mark.parametrize("recipe", EVALUATIONS, ids=lambda path: path.stem)
def test_each_shipped_evaluation_starts(recipe: Path, run, monkeypatch) -> None:
    pool = str(Path("pool.toml").absolute())
    made = (f'pool="{pool}"', 'conductor.planner="worker:big"') if recipe == OF_A_SCRIPT else ()
    monkeypatch.chdir(ROOT)
    values = run("eval", "--config", recipe, *made, "--dry-run", "--offline", "--json").json()
    states = {check["state"] for check in values["checks"]}
    lacking = [check["text"] for check in values["checks"] if check["state"] == "absent"]
    assert "wrong" not in states
    assert [text for text in lacking if not any(word in text for word in REMEDIES)] == []
    assert values["needs"][-1]["calls"] > 1000


@pytest.mark.parametrize("recipe", SERVERS, ids=lambda path: path.stem)
def test_each_shipped_server_starts(recipe: Path, run, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    done = run("serve", "--config", recipe, "--dry-run", "--offline")
    assert done.code == 0, done.out
    assert "✗" not in done.out and "✓  models" in done.out and "ann, tagger" in done.out


def test_the_names_of_all_shipped_recipes_are_checked_in_two_seconds_without_torch() -> None:
    """scikit-learn, which some baselines are made of, takes long to import and is not counted."""
    program = f"""
import sys, time
from pathlib import Path
import sklearn.linear_model
from openconductor.cli import eval, serve, train
from openconductor.checklist import Checklist
from openconductor.config import load_toml
from openconductor.evaluation.dry_run import check_names
from openconductor.evaluation.eval_config import load_eval_config
from openconductor.serving.serve_config import ServeConfig, serve_checks
from openconductor.training.checks import require_names
from openconductor.training.train_config import load_train_config
begun = time.process_time()
for recipe in map(Path, {[str(path) for path in RECIPES]}):
    checklist = Checklist()
    if recipe == Path({str(OF_A_SCRIPT)!r}):
        continue
    if recipe in map(Path, {[str(path) for path in EVALUATIONS]}):
        check_names(load_eval_config(recipe), checklist)
        assert checklist.is_right, checklist
    elif recipe in map(Path, {[str(path) for path in SERVERS]}):
        config = load_toml(recipe, ServeConfig)
        offer = serve._make_offer(config, "x")
        for _, check in serve_checks(config, offer.pool, offer.systems, where="x"):
            check()
    elif recipe.stem not in ("mine", "specialists", "specialists_cards"):  # no pool here
        require_names(load_train_config(recipe))
print(time.process_time() - begun, "torch" in sys.modules)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    seconds, has_torch = done.stdout.split() or ("", done.stderr)
    assert has_torch == "False"
    assert float(seconds) <= 2


def test_all_faults_are_named_at_once(run) -> None:
    options = ["--pool", "pool.toml", "--task", "mats", "--task", "gsm8k", "--dry-run"]
    systems = ["worker:bog", "consensus:small?m=5", "worker:big"]
    done = run("eval", *systems, *options, "--task-path", "gsm8k=none.jsonl", "--against", "random")
    assert done.code == 1 and "5 checks failed" in done.err
    text = " ".join(done.out.split())
    for fault in ("got 'mats'", "none.jsonl: no such file", "worker 'bog'", "m=5", "against"):
        assert fault in text
    assert "calls" not in done.out, "wrong names have no estimate"


def test_what_is_absent_fails_only_online(run, monkeypatch) -> None:
    offline = run("eval", "worker:big", *OWN, "--offline")
    assert offline.code == 0 and "–  keys" in offline.out and "A_KEY_OF_BIG" in offline.out
    assert run("eval", "worker:big", *OWN).code == 1
    monkeypatch.setenv("A_KEY_OF_BIG", "x")
    ready = run("eval", "worker:big", *OWN)
    assert ready.code == 0 and "everything is ready" in ready.err
    run("eval", "worker:big", *OWN[:-1], "--offline").assert_refused("--offline requires --dry-run")


def test_calls_and_dollars_are_those_of_the_systems(run) -> None:
    systems = ["worker:big", "consensus:small?n=3", "conductor", "moa:big"]
    options = [*OWN, "--offline", "--conductor", "worker:big", "--repeats", "2", "--json"]
    values = run("eval", *systems, *options).json()
    rows = {row["system"]: row for row in values["needs"]}
    calls = {name: row["calls"] for name, row in rows.items()}
    cells = 10 * 2
    assert calls["worker:big"] == cells
    assert calls["consensus:small?n=3"] == 3 * cells
    assert calls["conductor"] == (1 + 3) * cells, "a plan and three steps"
    assert calls["moa:big"] == (2 + 1) * cells
    assert calls["together"] == sum(calls.values()) - calls["together"]
    written = Decimal(100 * cells * 10) / 1_000_000
    read = Decimal(rows["worker:big"]["tokens"] - 100 * cells) / 1_000_000
    assert Decimal(rows["worker:big"]["dollars"]) == written + read, "at most max_tokens written"
    assert Decimal(rows["consensus:small?n=3"]["dollars"]) == Decimal(3 * cells * 700) / 1_000_000


def test_a_price_that_is_unknown_is_not_zero(run) -> None:
    free = POOL.replace("price = {input = 0, output = 1}", "")
    Path("pool.toml").write_text(free, "utf-8")
    values = run("eval", "workers", *OWN, "--offline", "--json").json()
    assert [row["dollars"] is None for row in values["needs"]] == [False, True, True]
    done = run("eval", "workers", *OWN, "--offline", "--budget-dollars", "3")
    assert done.code == 1 and "worker 'small' has no price" in " ".join(done.out.split())


def test_learning_is_counted_and_a_folder_of_another_evaluation_is_refused(run) -> None:
    assert run("eval", "worker:jack", "--limit", "3", "--out", "runs/a").code == 0
    other = run("eval", "worker:jack", "--limit", "4", "--out", "runs/a", "--dry-run")
    assert other.code == 1 and "holds another evaluation" in " ".join(other.out.split())
    assert run("eval", "worker:jack", "--limit", "3", "--out", "runs/a", "--dry-run").code == 0
    Path("folder").mkdir()
    rows = Path("mine.jsonl").read_text("utf-8").splitlines(keepends=True)
    Path("folder/test.jsonl").write_text("".join(rows[:5]), "utf-8")
    Path("folder/train.jsonl").write_text("".join(rows[5:]), "utf-8")
    command = ["eval", "best_fixed", "worker:big", "--task", "gsm8k", "--task-path"]
    command += ["gsm8k=folder", "--pool", "pool.toml", "--dry-run", "--offline", "--json"]
    rows = {row["system"]: row["calls"] for row in run(*command).json()["needs"]}
    assert rows == {"best_fixed": 5, "worker:big": 5, "learning": 2 * 5, "together": 20}


def test_a_servers_faults_are_named_at_once(run) -> None:
    Path("serve.toml").write_text(
        'pool = "pool.toml"\nconductor = "worker:big"\nbaselines = ["consensus:bog?n=3"]\n'
        'host = "0.0.0.0"\njournal = "none/x.sqlite"\n'
    )
    done = run("serve", "--config", "serve.toml", "--dry-run", "--offline")
    assert done.code == 1 and "3 checks failed" in done.err
    text = " ".join(done.out.split())
    for fault in ("without a [[key]]", "worker 'bog'", "there is no folder none"):
        assert fault in text
    run("serve", "--offline").assert_refused("--offline requires --dry-run")


def test_a_server_with_the_page_needs_the_extra_of_the_page(run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    Path("serve.toml").write_text("ui = true\n")
    done = run("serve", "--config", "serve.toml", "--dry-run", "--offline")
    assert done.code == 1
    assert "openconductor[ui]" in " ".join(done.out.split())
    assert run("serve", "--dry-run", "--offline").code == 0


def test_a_port_that_is_taken_fails_only_online(run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = ["serve", "--dry-run", "--port", taken.getsockname()[1]]
        assert run(*options).code == 1
        done = run(*options, "--offline")
    assert done.code == 0 and "–  port" in done.out
