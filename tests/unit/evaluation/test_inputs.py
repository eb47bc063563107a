"""Questions and workers, loaded and described: what a resumed run must find again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scripted import write_sums

from openconductor.errors import ConfigError, TaskError
from openconductor.evaluation.config import EvalConfig, make_eval_config
from openconductor.evaluation.inputs import (
    check_tasks,
    describe_pool,
    describe_problems,
    in_sandbox,
    load_learning,
    load_pool,
    load_sheets,
    open_for,
)
from openconductor.types import Problem

POOL = """
[[worker]]
name = "big"
model = "big-1"
base_url = "http://127.0.0.1:9/v1"
api_key_env = "A_KEY_OF_MINE"
price = { input = 1.5, output = 2 }
sampling = { max_tokens = 32000, temperature = 0.2 }
body = { reasoning_effort = "high", top_k = 5 }
[[worker]]
name = "small"
model = "small-1"
base_url = "http://127.0.0.1:9/v1"
sampling = { max_tokens = 900 }
[[worker]]
name = "free"
model = "free-1"
base_url = "http://127.0.0.1:9/v1"
"""


def config(tmp_path: Path, **values: object) -> EvalConfig:
    (tmp_path / "pool.toml").write_text(POOL, "utf-8")
    write_sums(tmp_path / "test.jsonl", range(1, 5))
    write_sums(tmp_path / "train.jsonl", range(5, 9))
    told = {"pool": str(tmp_path / "pool.toml"), "task": [{"name": "gsm8k", "path": str(tmp_path)}], **values}
    return make_eval_config(told, where="test")


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_constrained_setting_lays_limits_over_every_workers_own(tmp_path: Path) -> None:
    limits = {"big": {"body": {"reasoning_effort": "minimal"}}, "small": {"max_tokens": 5000}}
    pool = load_pool(config(tmp_path, setting="constrained", constrained=limits))
    told = {worker.name: (worker.sampling.max_tokens, dict(worker.sampling.body)) for _, worker in pool}
    assert told == {
        "big": (4096, {"reasoning_effort": "minimal", "top_k": 5}),
        "small": (900, {}),  # never more than its own
        "free": (4096, {}),  # without a limit of its own
    }
    assert pool[0].sampling.temperature == 0.2


def test_the_unconstrained_setting_leaves_workers_as_they_are(tmp_path: Path) -> None:
    pool = load_pool(config(tmp_path, constrained={"big": {"max_tokens": 7}}))
    assert [worker.sampling.max_tokens for _, worker in pool] == [32000, 900, None]


def test_a_limit_for_a_worker_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nearest is 'small'"):
        load_pool(config(tmp_path, constrained={"smal": {}}))


def test_a_pools_description_holds_what_answers_and_costs_depend_on_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY_OF_MINE", "zebra-secret")
    described = describe_pool(load_pool(config(tmp_path)))
    assert json.loads(json.dumps(described)) == described
    big = described[0]
    assert (big["ordinal"], big["name"], big["price"]) == (0, "big", {"input": "1.5", "output": "2"})
    assert big["sampling"] == {
        "temperature": 0.2,
        "max_tokens": 32000,
        "seed": None,
        "body": {"reasoning_effort": "high", "top_k": 5},
    }
    assert described[1]["price"] is None
    assert "big-1" in str(big["identity"])
    assert "zebra-secret" not in json.dumps(described)


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_digest_moves_with_everything_that_is_asked_or_right() -> None:
    problem = Problem("p", "Q?", "A", "t", kind="easy")
    others = [
        Problem("o", "Q?", "A", "t", kind="easy"),
        Problem("p", "Q!", "A", "t", kind="easy"),
        Problem("p", "Q?", "B", "t", kind="easy"),
        Problem("p", "Q?", "A", "t", kind="hard"),
    ]
    digests = {str(describe_problems([one])["digest"]) for one in (problem, *others)}
    assert len(digests) == 5
    assert describe_problems([problem]) == describe_problems([problem])
    assert describe_problems([problem, others[0]])["digest"] != describe_problems([others[0], problem])["digest"]


def test_every_task_is_loaded_under_its_name_with_where_it_came_from(tmp_path: Path) -> None:
    loaded = load_sheets(config(tmp_path, task=[{"name": "gsm8k", "path": str(tmp_path), "limit": 3}, {"name": "gym"}]))
    assert list(loaded) == ["gsm8k", "gym"]
    sheet, described = loaded["gsm8k"]
    assert (len(sheet.problems), described["problems"]) == (3, 3)
    assert "test.jsonl" in json.dumps(described["source"])


def test_a_tasks_own_seed_goes_before_the_recipes(tmp_path: Path) -> None:
    def drawn(task: dict[str, object], **values: object) -> list[str]:
        loaded = load_sheets(config(tmp_path, task=[{"name": "gym", "limit": 5, **task}], **values))
        return [str(problem.question) for problem in loaded["gym"][0].problems]

    assert drawn({"seed": 3}, seed=4) == drawn({}, seed=3) != drawn({}, seed=4)


@pytest.mark.parametrize("named", [{"task": [{"name": "gym"}, {"name": "math500"}]}, {"task": [{"name": "gsm8k"}]}])
def test_the_gyms_workers_are_asked_nothing_but_the_gym(tmp_path: Path, named: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"can read only the gym's questions; expected a pool file: --pool FILE"):
        check_tasks(config(tmp_path, pool="gym", **named))
    check_tasks(config(tmp_path, **named))
    check_tasks(make_eval_config({}, where="test"))


def test_the_gyms_workers_learn_from_nothing_but_the_gym() -> None:
    told = make_eval_config({"learn": {"task": "gsm8k"}}, where="test")
    with pytest.raises(ConfigError, match="task gsm8k: got the gym's simulated workers"):
        load_learning(told, {})


def test_a_task_that_is_not_there_is_told_before_the_pool_it_would_need(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'math500'"):
        check_tasks(config(tmp_path, pool="gym", task=[{"name": "math50"}]))


# ── what is learnt from ──────────────────────────────────────────────────────────────────────────────────────────────
def test_the_splits_of_a_folder_lie_side_by_side(tmp_path: Path) -> None:
    told = config(tmp_path, learn={"limit": 3})
    sheet, described = load_learning(told, load_sheets(told))
    assert sheet.name == "learn:gsm8k"
    assert (len(sheet.problems), described["problems"]) == (3, 3)
    assert "train.jsonl" in json.dumps(described["source"])


def test_questions_that_are_evaluated_are_not_learnt_from(tmp_path: Path) -> None:
    told = config(tmp_path, learn={"split": "test"})
    with pytest.raises(TaskError, match=r"4 of 4 questions are evaluated, too .*; expected others"):
        load_learning(told, load_sheets(told))


def test_data_to_learn_from_that_are_not_there_are_told_from_those_that_are_evaluated(tmp_path: Path) -> None:
    told = config(tmp_path, learn={"path": str(tmp_path / "nowhere.jsonl")})
    with pytest.raises(TaskError, match=r"learn, what .* \[learn\]\): .*nowhere\.jsonl"):
        load_learning(told, load_sheets(told))


def test_the_gyms_splits_never_meet() -> None:
    told = make_eval_config({"task": [{"name": "gym", "limit": 200}], "learn": {"limit": 200}}, where="test")
    sheet, _ = load_learning(told, load_sheets(told))
    assert len(sheet.problems) == 200


# ── sandboxes ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_no_sandbox_is_opened_where_no_program_is_run(tmp_path: Path) -> None:
    loaded = load_sheets(config(tmp_path))
    assert open_for(loaded, unsafe=False) is None
    sheet, _ = loaded["gsm8k"]
    assert in_sandbox(sheet, None) is sheet
