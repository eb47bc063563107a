"""How systems are named on command lines, in recipes and in tables."""

from __future__ import annotations

import pytest

from openconductor.errors import ConfigError
from openconductor.evaluation.specs import Spec, expand, read_spec


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("conductor", "conductor"),
        (" worker: gpt-5 ", "worker:gpt-5"),
        ("worker:qwen3:32b", "worker:qwen3:32b"),
        ("consensus:a?n=05&key=x", "consensus:a?key=x&n=5"),
        ("conductor?subtasks=FALSE&access=index", "conductor?access=index&subtasks=false"),
        ("planner:openai:gpt-5?rounds=unlimited&calls=9", "planner:openai:gpt-5?calls=9&rounds=unlimited"),
        ("moa:what?", "moa:what?"),
        ("masrouter?cost_weight=2.50", "masrouter?cost_weight=2.5"),
    ],
)
def test_a_spec_has_one_name_however_it_is_written(text: str, name: str) -> None:
    assert read_spec(text).name == name
    assert read_spec(name) == read_spec(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("conducter", "nearest: 'conductor'"),
        ("single:a", "no 'single'"),
        ("worker:", "nothing behind the colon"),
        ("consensus:a?n=5&n=6", "each option once"),
        ("consensus:a?n=5&", "expected option=value"),
        ("", "no ''"),
    ],
)
def test_what_is_no_spec_says_why(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_spec(text)


def test_workers_stands_for_every_worker_that_is_not_named_already() -> None:
    names = [spec.name for spec in expand(["worker:b", "workers", "conductor"], ["a", "b", "c"])]
    assert names == ["worker:b", "worker:a", "worker:c", "conductor"]


def test_a_system_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        expand(["moa:a?layers=1", "moa: a?layers=01"], ["a"])
    with pytest.raises(ConfigError, match="every worker"):
        expand(["workers?n=1"], ["a"])


def test_a_value_is_a_switch_a_number_or_a_word() -> None:
    spec = read_spec("conductor?a=true&b=3&c=-1.5&d=1_000&e=nan")
    assert spec == Spec("conductor", "", (("a", True), ("b", 3), ("c", -1.5), ("d", "1_000"), ("e", "nan")))
