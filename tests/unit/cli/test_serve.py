"""``openconductor serve`` in this process: keys, options, and the checks before it listens."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from openconductor.conductor import Conductor
from openconductor.config import load_toml
from openconductor.pool import WorkerPool
from openconductor.serving.key_ring import KeyRing, hash_key
from openconductor.serving.serve_config import (
    KeyTable,
    ServeConfig,
    check_serve_config,
    make_baseline,
)

ROOT = Path(__file__).parents[3]
POOL = """
[[worker]]
name = "a"
model = "m"
base_url = "http://127.0.0.1:9/v1"
price = {input = 1, output = 2}
"""
CONFIG = f"""
port = 1
pool = "pool.toml"
conductor = "worker:a"
max_steps = 2
baselines = ["consensus:a?n=3"]
[[key]]
name = "ann"
hash = "{hash_key("oc-ann")}"
dollars = 1
"""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[SimpleNamespace]:
    """Record the gateways that would be served, without a server."""
    monkeypatch.chdir(tmp_path)
    gateways: list[SimpleNamespace] = []

    def gateway(pool, journal, systems, **options) -> SimpleNamespace:
        return SimpleNamespace(pool=pool, journal=journal, systems=systems, **options)

    def run(config, gateway, keys, listeners, door) -> None:
        for listener in listeners:
            listener.close()
        gateways.append(SimpleNamespace(config=config, keys=keys, door=door, **vars(gateway)))

    for name, module in (
        ("app", SimpleNamespace(run=run)),
        ("gateway", SimpleNamespace(Gateway=gateway)),
    ):
        monkeypatch.setitem(sys.modules, f"openconductor.serving.{name}", module)
    return gateways


def test_a_new_key_is_printed_once_with_the_table_that_lets_it_in(run, tmp_path: Path) -> None:
    ran = run("serve", "--new-key", 'Ann "the boss"')
    assert ran.code == 0 and "oc-" not in ran.err
    key, table = ran.out.split("\n\n", 1)
    assert key.startswith("oc-") and key not in table
    (tmp_path / "serve.toml").write_text(table, "utf-8")
    config = load_toml(tmp_path / "serve.toml", ServeConfig)
    assert config.key == (KeyTable('Ann "the boss"', hash_key(key)),)
    assert KeyRing(config.key).find({"authorization": f"Bearer {key}"}).name == 'Ann "the boss"'
    assert run("serve", "--new-key", "ann").out != ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--new-key", "ann", "--port", "9"), "--new-key allows no other option"),
        (("--new-key", " "), "--new-key: the name is blank"),
        (("port=9",), "'port=9': key=value requires --config"),
        (("--pool", ROOT / "recipes/pools/paper.toml"), "the bundled Conductor knows only the gym"),
        (("--host", "0.0.0.0"), "command line: host: got '0.0.0.0' without a [[key]]"),
        (("--port", "0"), "--port"),
        (("--config", "none.toml"), "none.toml: no such file"),
    ],
)
def test_wrong_options_are_refused_before_anything_listens(
    run, served, arguments, message: str
) -> None:
    ran = run("serve", *arguments)
    assert (ran.code, ran.out, served) == (2, "", [])
    assert message in " ".join(ran.err.split())
    assert not Path("serve.sqlite").exists()


def test_without_options_the_gym_is_served_to_anyone_on_loopback(run, served) -> None:
    pytest.importorskip("tokenizers")
    ran = run("serve")
    assert (ran.code, ran.out) == (0, "")
    (gateway,) = served
    config, conductor = gateway.config, gateway.systems["conductor"]
    assert (config.host, config.port, config.key) == ("127.0.0.1", 8080, ())
    assert gateway.reasoning == "summary"
    assert (len(conductor.pool), conductor.fallback, conductor.max_rounds) == (8, True, 1)
    assert gateway.journal.path == Path.cwd() / "serve.sqlite"
    said = " ".join(ran.err.split())
    assert "serving at http://127.0.0.1:8080/v1" in said and "direct:" in said
    assert 'curl http://127.0.0.1:8080/v1/chat/completions -d \'{"model": "conductor"' in said
    assert f"every call is kept in {Path.cwd() / 'serve.sqlite'}" in said
    assert "pool.toml" not in said
    Path("pool.toml").write_text(POOL, "utf-8")
    assert "pool.toml is here: add --pool pool.toml" in run("serve").err


def test_the_page_is_opened_by_a_link_or_where_there_are_keys_by_a_key(
    run, served, tmp_path: Path
) -> None:
    (tmp_path / "pool.toml").write_text(POOL, "utf-8")
    (tmp_path / "serve.toml").write_text(CONFIG, "utf-8")
    words = ["serve", "--pool", "pool.toml", "--conductor", "worker:a", "--port", "1"]
    assert run(*words).code == 0 and served[0].door is None
    ran = run(*words, "--ui")
    assert "look at http://127.0.0.1:1/ui/episodes#token=" in ran.err
    token = ran.err.partition("#token=")[2].split()[0]
    assert served[1].door.exchange(token=token) and not served[1].door.exchange(token=token)
    ran = run("serve", "--config", "serve.toml", "ui=true", 'origins=["https://ai.example"]')
    assert "each key sees its own episodes" in ran.err and "#token=" not in ran.err
    door = served[2].door
    assert door.holder({"authorization": "Bearer oc-ann"}).key == "ann"
    assert door.exchange(key="oc-eve") is None
    assert door.is_known_host("ai.example") and not door.is_known_host("evil.example")
    proxied = {"host": "127.0.0.1:1", "origin": "https://ai.example"}
    assert door.is_own_page(proxied) and not served[1].door.is_own_page(proxied)


def test_rounds_and_steps_are_chosen_as_in_ask(run, served, tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text(POOL, "utf-8")
    words = "serve --pool pool.toml --conductor worker:a --port 1 --rounds 3 --max-steps 2"
    ran = run(*words.split())
    assert ran.code == 0, ran.err
    conductor = served[0].systems["conductor"]
    assert (conductor.max_rounds, conductor.max_steps) == (3, 2)
    assert "pool.toml is here" not in ran.err


def test_options_win_over_overrides_and_these_over_the_file(run, served, tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text(POOL, "utf-8")
    (tmp_path / "serve.toml").write_text(CONFIG, "utf-8")
    words = "serve --config serve.toml port=2 max_rounds=3 --port 3 --host ::1"
    ran = run(*words.split())
    assert ran.code == 0, ran.err
    (gateway,) = served
    assert (gateway.config.host, gateway.config.port) == ("::1", 3)
    conductor = gateway.systems["conductor"]
    assert (conductor.max_steps, conductor.max_rounds) == (2, 3)
    assert "consensus:a?n=3" in gateway.systems
    assert gateway.keys.find({"x-api-key": "oc-ann"}).name == "ann"
    said = " ".join(ran.err.split())
    assert "http://[::1]:3/v1" in said and "authorization: Bearer $KEY" in said
    assert "no limit of tokens: a." in said


def test_what_the_extra_lacks_is_named(run, served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "openconductor.serving.app")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ran = run("serve")
    assert ran.code == 2
    assert 'pip install "openconductor[serve]"' in " ".join(ran.err.split())


def test_the_recipe_sets_every_field_and_can_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    path = Path("recipes/serve.toml")
    recipe = tomllib.loads(path.read_text("utf-8"))
    every = {field.name for field in fields(ServeConfig)}
    assert set(recipe) == every - {"traces", "processes"}, "they want an extra, or a database"
    assert set().union(*recipe["key"]) == {field.name for field in fields(KeyTable)}
    config = load_toml(path, ServeConfig)
    pool = WorkerPool.from_toml(config.pool)
    systems = {"conductor": Conductor(config.conductor, pool=pool)}
    for text in config.baselines:
        baseline = make_baseline(text, config, pool, str(path))
        systems[baseline.name] = baseline.orchestrator
    check_serve_config(config, pool, systems, where=str(path))
