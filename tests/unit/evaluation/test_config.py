"""The recipe of an evaluation: strict, and written down so that it loads to the same."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from openconductor.errors import ConfigError
from openconductor.evaluation import eval_config
from openconductor.gym.workers import gym_pool
from openconductor.types import Budget

WHOLE = {
    "name": "everything",
    "systems": ["conductor", "worker:a b"],
    "task": [{"name": "gym", "limit": 7}, {"name": "math500", "path": 'ü\x7f"\\ x', "seed": 3}],
    "pool": "pool.toml",
    "conductor": {"planner": "openai:gpt-5", "rounds": 2},
    "repeats": 16,
    "seed": 5,
    "setting": "constrained",
    "constrained": {"gpt 5": {"body": {"reasoning_effort": "minimal", "x": {"y": [1, 2.5, True]}}}},
    "learn": {"limit": 9},
    "budget": {"dollars": "1.50", "calls": 3},
}


def made(**changes: object) -> eval_config.EvalConfig:
    return eval_config.make_eval_config({**WHOLE, **changes}, where="test")


def test_a_recipe_that_is_written_down_loads_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for config in (made(), eval_config.make_eval_config({}, where="test")):
        path.write_text(eval_config.dump_eval_config(config), encoding="utf-8")
        assert eval_config.load_eval_config(path) == config
    assert made().budget.budget() == Budget(calls=3, dollars=Decimal("1.50"))


def test_the_defaults_are_the_gym_with_the_bundled_conductor_and_cost_nothing() -> None:
    config = eval_config.make_eval_config({}, where="test")
    assert config.systems == ("conductor",)
    assert config.pool == "gym"
    assert [task.name for task in config.task] == ["gym"]
    assert config.budget.budget() is None


WRONG = """
repeat = 3                              → nearest known key is 'repeats'
task = [{name = "gym", pth = "x"}]      → nearest known key is 'path'
seed = -1                               → test: seed: got -1, expected greater than or equal to 0
repeats = 4097                          → repeats: got 4097, expected less than or equal to 4096
repeats = "3"                           → repeats: got '3'
systems = []                            → systems: got none
task = [{name = "gym"}, {name = "gym"}] → 'gym' twice
setting = "free"                        → setting: got 'free'
conductor.rounds = 0                    → conductor.rounds: got 0, expected greater than or equal
constrained.a.max_tokens = 0            → constrained.a.max_tokens: got 0
budget.dollars = "much"                 → budget.dollars: got 'much'
budget.dollars = "-1"                   → budget.dollars: got '-1', expected greater than or equal
conductor.api_key = "sk-123"            → keys come from the environment only
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_recipe_says_what_is_wrong(line: str) -> None:
    recipe, message = line.split("→")
    with pytest.raises(ConfigError, match=message.strip()):
        made(**tomllib.loads(recipe))


def test_a_recipe_of_a_training_and_what_no_toml_can_hold_are_refused(root: Path) -> None:
    message = r"gym\.toml: has \[model\], \[cold_start\].* `openconductor train`; expected"
    with pytest.raises(ConfigError, match=message):
        eval_config.load_eval_config(root / "recipes" / "gym.toml")
    limits = replace(made().constrained["gpt 5"], body={"effort": None})
    with pytest.raises(ConfigError, match="NoneType"):
        eval_config.dump_eval_config(replace(made(), constrained={"a": limits}))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "b", "against": "conductor", "concurrency": 1},
        {"budget": eval_config.SpendingTable()},
    ],
)
def test_what_answers_do_not_depend_on_makes_no_other_evaluation(changes) -> None:
    config = made()
    assert eval_config.differences(config, replace(config, **changes)) == []


def test_what_answers_depend_on_makes_an_evaluation_another_one() -> None:
    config = made()
    assert eval_config.differences(config, replace(config, seed=6, setting="unconstrained")) == [
        "seed: got 6, expected 5",
        'setting: got "unconstrained", expected "constrained"',
    ]


def test_a_pool_file_and_local_data_may_lie_elsewhere_but_the_gym_is_no_file() -> None:
    task = [{"name": "gsm8k", "path": "a.jsonl"}]
    config = eval_config.make_eval_config({"pool": "pool.toml", "task": task}, where="test")
    (table,) = config.task
    far = replace(table, path="/far/a.jsonl")
    learn = eval_config.LearnTable(path="b")
    moved = replace(config, pool="/far/pool.toml", task=(far,), learn=learn)
    assert eval_config.differences(config, moved) == []
    lines = eval_config.differences(config, moved, places=True)
    assert [line.partition(":")[0] for line in lines] == ["learn", "pool", "task 0"]
    gym = eval_config.differences(config, replace(config, pool="gym"))
    assert gym == ['pool: got "gym", expected "pool.toml"']
    fewer = replace(moved, task=(replace(far, limit=3),))
    assert eval_config.differences(config, fewer) == ["task 0: limit: got 3, expected null"]


def expanded(*texts: str) -> list[str]:
    specs = [eval_config.read_spec(text) for text in texts]
    return [spec.name for spec in eval_config.expand(specs, ["a", "b", "c"])]


def test_workers_stands_for_every_worker_that_is_not_named_already() -> None:
    names = ["worker:b", "worker:a", "worker:c", "conductor"]
    assert expanded("worker:b", "workers", "conductor") == names


@pytest.mark.parametrize(
    ("texts", "message"),
    [(["moa:a?layers=1", "moa: a?layers=01"], "twice"), (["workers?n=1"], "takes no name")],
)
def test_no_system_is_named_twice(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expanded(*texts)


SYSTEMS = [
    {"use": "consensus", "worker": "a", "n": 5},
    {"use": "moa", "aggregator": "a"},
    {"use": "planner", "model": "openai:gpt-5", "rounds": 2},
    {"use": "mine:Vote", "worker": "a", "loud": True},
]

NAMED = ["consensus:a?n=5", "moa:a", "planner:openai:gpt-5?rounds=2", "mine:Vote:a?loud=true"]


# ── how systems are named ─────────────────────────────────────────────────────────────────────────
NAMES = """
conductor                                      → conductor
 worker: gpt-5                                 → worker:gpt-5
worker:qwen3:32b                               → worker:qwen3:32b
consensus:a?n=05&key=x                         → consensus:a?key=x&n=5
conductor?subtasks=FALSE&access=index          → conductor?access=index&subtasks=false
planner:openai:gpt-5?rounds=unlimited&calls=9  → planner:openai:gpt-5?calls=9&rounds=unlimited
moa:what?                                      → moa:what?
best_fixed?share=2.50                          → best_fixed?share=2.5
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_a_spec_has_one_name_however_it_is_written(line: str) -> None:
    text, name = line.split(" → ")
    name = name.strip()
    assert eval_config.read_spec(text).name == name
    assert eval_config.read_spec(name) == eval_config.read_spec(text)


NO_SPECS = """
conducter         → nearest: 'conductor'
single:a          → got 'single'
worker:           → nothing behind the colon
consensus:a?n=5&n=6 → each option once
consensus:a?n=5&  → expected option=value
→ got ''
"""


@pytest.mark.parametrize("line", NO_SPECS.strip().splitlines())
def test_what_is_no_spec_says_why(line: str) -> None:
    text, message = line.split("→")
    with pytest.raises(ConfigError, match=message.strip()):
        eval_config.read_spec(text.strip())


def test_tables_of_systems_become_the_same_specs_as_names() -> None:
    config = eval_config.make_eval_config({"system": SYSTEMS}, where="test")
    assert config.specs == tuple(map(eval_config.read_spec, NAMED))
    again = eval_config.make_eval_config(eval_config.plain_config(config), where="test")
    assert again == config
    tables = {"systems": ["random"], "system": SYSTEMS}
    both = eval_config.make_eval_config(tables, where="test")
    assert [spec.name for spec in both.specs] == ["random", *NAMED]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"use": "consensu"}, "nearest: 'consensus'"),
        ({"worker": "a"}, "got ''"),
        ({"use": "worker", "worker": 5}, "got 5, expected the name"),
    ],
)
def test_a_table_of_no_system_is_refused(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        eval_config.table_spec(table)


def test_a_value_is_a_switch_a_number_or_a_word() -> None:
    spec = eval_config.read_spec("conductor?a=true&b=3&c=-1.5&d=1_000&e=nan")
    assert spec == eval_config.Spec(
        "conductor", "", (("a", True), ("b", 3), ("c", -1.5), ("d", "1_000"), ("e", "nan"))
    )


GROUPS = """
conductor            → Orchestrators
planner:openai:gpt-5 → Orchestrators
conductor?rounds=2   → Ablations
worker:a             → Workers alone
planner_alone        → Workers alone
oracle_observed      → Bounds
moa:a?layers=2       → Baselines
mine:Vote            → Baselines
"""


@pytest.mark.parametrize("line", GROUPS.strip().splitlines())
def test_systems_are_grouped_by_their_names(line: str) -> None:
    system, group = line.split("→")
    assert eval_config.group_of(system.strip()) == group.strip()


# ── who plans ─────────────────────────────────────────────────────────────────────────────────────
def test_a_worker_of_the_pool_can_plan() -> None:
    pool = gym_pool()
    assert eval_config.find_planner("worker:jack", pool) is pool[pool.ordinal_of("jack")]
    with pytest.raises(ConfigError, match="nearest is 'jack'"):
        eval_config.find_planner("worker:jac", pool)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (None, "require --conductor provider:model"),
        ("worker:jack", "from the pool file"),
        ("a/b", "'provider:model'"),
    ],
)
def test_a_url_without_a_provider_is_refused(named: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        eval_config.find_planner(named, gym_pool(), base_url="http://127.0.0.1:9/v1")
