"""What a server is told: fields, and what cannot be served or paid for."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from openconductor.conductor import Conductor
from openconductor.config import load_toml
from openconductor.errors import ConfigError
from openconductor.pool import Worker, WorkerPool
from openconductor.serving.key_ring import hash_key
from openconductor.serving.serve_config import (
    KeyTable,
    ServeConfig,
    check_serve_config,
    make_baseline,
)
from openconductor.types import Sampling

HASHES = [hash_key(name) for name in ("one", "two")]
PRICE = {"input": 1, "output": 2}
POOL = WorkerPool(
    [
        Worker(lambda messages: "paid", name="paid", price=PRICE, sampling=Sampling(max_tokens=9)),
        Worker(lambda messages: "dark", name="dark"),
    ]
)
SOMEWHERE = KeyTable("ann", HASHES[0])


def check(config: ServeConfig, planner: object = POOL[0]) -> None:
    systems = {"conductor": Conductor(planner, pool=POOL)}
    for text in config.baselines:
        baseline = make_baseline(text, config, POOL, "serve.toml")
        systems[baseline.name] = baseline.orchestrator
    check_serve_config(config, POOL, systems, where="serve.toml")


def with_key(**options: object) -> ServeConfig:
    return ServeConfig(key=(KeyTable("ann", HASHES[0], **options),))


def test_a_file_says_what_differs_and_overrides_win_over_it(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(
        'port = 9\nbaselines = ["random"]\n[[key]]\nname = "ann"\n'
        f'hash = "{HASHES[0]}"\ndollars = 2.50\n',
        "utf-8",
    )
    config = load_toml(path, ServeConfig, ["port=10", "key.0.rpm=5", "reasoning=off"])
    assert (config.host, config.port, config.reasoning, config.baselines) == (
        "127.0.0.1",
        10,
        "off",
        ("random",),
    )
    assert config.key == (KeyTable("ann", HASHES[0], dollars=Decimal("2.5"), rpm=5),)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("prot=1", "nearest known key is 'port'"),
        ("port=65536", "port: got 65536"),
        ("key.0.dolars=1", "unknown key 'key.0.dolars'; the nearest known key is 'dollars'"),
        ("key.0.period=week", "'day', 'month' or 'total'"),
        ("key.0.rpm=0", "got 0, expected greater than or equal to 1"),
        ('key.0.name=" "', "key.0.name"),
        ("key.0.workers=[]", "key.0.workers"),
        ("reasoning=loud", "'off', 'summary' or 'full'"),
        ("heartbeat_s=0", "greater than 0"),
    ],
)
def test_what_is_out_of_its_range_is_refused_with_its_place(
    tmp_path: Path, override: str, said: str
) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(f'[[key]]\nname = "ann"\nhash = "{HASHES[0]}"\n', "utf-8")
    with pytest.raises(ConfigError, match=said):
        load_toml(path, ServeConfig, [override])


def test_an_address_beyond_loopback_needs_a_key() -> None:
    for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        check(ServeConfig(host=host))
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""):
        with pytest.raises(ConfigError, match=r"host: got .*use 127.0.0.1, or make a key"):
            check(ServeConfig(host=host))
        check(ServeConfig(host=host, key=(SOMEWHERE,)))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ((SOMEWHERE, KeyTable("ann", HASHES[1])), "key: name: got 'ann' twice"),
        ((SOMEWHERE, KeyTable("bob", HASHES[0])), "key: hash: got one twice"),
        ((KeyTable("ann", HASHES[0], period="day"),), "period 'day' requires dollars"),
        ((KeyTable("ann", HASHES[0], models=("condutor",)),), "nearest: 'conductor'"),
        ((KeyTable("ann", HASHES[0], models=("direct:pad",)),), "nearest: 'direct:paid'"),
        ((KeyTable("ann", HASHES[0], workers=("drak",)),), "nearest: 'dark'"),
    ],
)
def test_keys_that_contradict_are_refused(keys: tuple[KeyTable, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check(ServeConfig(key=keys))


def test_a_key_in_the_place_of_its_hash_is_never_shown() -> None:
    with pytest.raises(ConfigError, match="hash: got something else") as caught:
        check(ServeConfig(key=(KeyTable("ann", "oc-canary-canary-canary"),)))
    assert "canary" not in str(caught.value)


def test_a_budget_over_a_worker_without_a_price_is_refused() -> None:
    for more in (
        {"max_dollars": 1},
        {"dollars": 1},
        {"dollars": 1, "workers": ("dark",)},
        {"dollars": 1, "models": ("direct:dark",)},
    ):
        with pytest.raises(ConfigError, match="key 'ann': worker 'dark' has no price"):
            check(with_key(**more))


def test_a_budget_needs_a_planner_with_a_price_where_the_conductor_may_be_asked() -> None:
    nobody_knows = lambda messages: "plan"  # noqa: E731
    with pytest.raises(ConfigError, match="worker 'conductor' has no price"):
        check(with_key(dollars=Decimal(1), workers=("paid",)), nobody_knows)
    check(with_key(dollars=Decimal(1), models=("direct:paid",)), nobody_knows)
    check(with_key(dollars=Decimal(1), workers=("paid",), period="total"))


def test_baselines_are_models_under_the_names_that_evaluations_give_them() -> None:
    config = ServeConfig(baselines=("consensus:paid?n=3", "random"))
    check(config)
    made = [make_baseline(text, config, POOL, "serve.toml") for text in config.baselines]
    assert [system.name for system in made] == ["consensus:paid?n=3", "random"]


@pytest.mark.parametrize(
    ("baseline", "said"),
    [
        ("consnsus:paid", "nearest: 'consensus'"),
        ("consensus:pad", "nearest is 'paid'"),
        ("consensus:paid?m=3", "got the option 'm'"),
        ("conductor", "baselines: got 'conductor'"),
        ("routerdc-lite", "learns from questions"),
    ],
)
def test_a_baseline_that_cannot_be_made_is_refused_before_anything_listens(
    baseline: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check(ServeConfig(baselines=(baseline,)))


def test_a_key_is_not_named_as_a_secret_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRETS_NAMESPACE", "production")
    with pytest.raises(ConfigError, match="key: name: one \\(not shown\\)"):
        check(ServeConfig(key=(KeyTable("production-2", hash_key("x")),)))


def test_asking_on_the_page_is_for_a_page_without_keys() -> None:
    check(ServeConfig(ui=True, allow_asking=True))
    with pytest.raises(ConfigError, match=r"allow_asking requires ui = true"):
        check(ServeConfig(allow_asking=True))
    with pytest.raises(ConfigError, match="each holder may ask on the page"):
        check(replace(with_key(), ui=True, allow_asking=True))


def test_the_page_is_refused_beside_several_processes_which_share_no_sessions() -> None:
    config = ServeConfig(ui=True, processes=2, journal="postgresql://ann@host/calls")
    check(replace(config, processes=1))
    check(replace(config, ui=False))
    with pytest.raises(ConfigError, match=r"ui: got true with 2 processes.*openconductor view"):
        check(config)
