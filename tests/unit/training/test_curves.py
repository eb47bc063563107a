"""The curve of a training and its warnings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from openconductor.errors import WorkerError, WorkflowError, WorkflowReason
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.workers import gym_pool
from openconductor.training.curves import Curve, Record, Rollout, measure, warnings
from openconductor.types import Completion, Episode, Round, Step, Usage, Workflow


def _rollout(reward: float | None, workers: list[int] | None, kind: str = "single") -> Rollout:
    error = None
    if workers is None:
        error = WorkflowError(WorkflowReason.TRUNCATED, "cut")
    elif reward is None:
        error = WorkerError("reset")
    workflow = None if workers is None else Workflow(tuple(Step(worker, "sort the list") for worker in workers))
    answer = None if error is not None else "1 2"
    outcome = Round(Completion("..."), workflow, None, error)
    correct = None if reward is None else reward == 1.0
    return Rollout(kind, reward, Episode("q", (outcome,), answer, error, Usage(), 0.0), correct)


def test_what_is_masked_counts_neither_as_right_nor_as_wrong() -> None:
    rollouts = [_rollout(1.0, [3]), _rollout(0.5, [3, 1]), _rollout(None, [3]), _rollout(0.0, None)]
    record = measure(rollouts, gym_pool(), group=4)
    assert record["rollouts"] == 4
    assert record["masked"] == 1
    assert record["validity"] == pytest.approx(2 / 3)
    assert record["accuracy"] == pytest.approx(1 / 3)
    assert record["accuracy_given_valid"] == pytest.approx(1 / 2)
    assert record["truncated"] == pytest.approx(1 / 3)
    assert record["groups_without_spread"] == 0
    assert record["worker_share"]["lister"] == pytest.approx(2 / 3)  # type: ignore[index]
    assert record["steps_by_kind"] == {"single": 1.5}


def test_where_nothing_is_valid_there_is_no_accuracy_given_valid() -> None:
    record = measure([_rollout(0.0, None), _rollout(None, [3])], gym_pool())
    assert (record["validity"], record["accuracy"], record["accuracy_given_valid"]) == (0.0, 0.0, None)


def test_a_group_with_one_reward_has_no_spread() -> None:
    rollouts = [_rollout(0.5, [3]), _rollout(0.5, [1]), _rollout(0.5, [3]), _rollout(1.0, [1])]
    assert measure(rollouts, gym_pool(), group=2)["groups_without_spread"] == 0.5


def test_routing_that_depends_on_the_subtask_has_no_entropy_given_it() -> None:
    def plan(worker: int, subtask: str) -> Rollout:
        outcome = Round(Completion(""), Workflow((Step(worker, subtask),)))
        return Rollout("single", 0.5, Episode("q", (outcome,), "1", None, Usage(), 0.0), False)

    record = measure([plan(3, "sort the list"), plan(1, "double every number")] * 5, gym_pool())
    assert record["routing_entropy_bits"] == pytest.approx(1.0)
    assert record["routing_entropy_by_subtask_bits"] == 0.0


def _records(count: int, **values: float | None) -> list[Record]:
    base = {"validity": 0.9, "accuracy_given_valid": 0.5, "routing_entropy_bits": 2.0, "groups_without_spread": 0.1}
    return [{**base, "masked": 0, "rollouts": 16, "iteration": index, **values} for index in range(count)]


@pytest.mark.parametrize("after", [0.4, 0.5, 0.515])
def test_format_gain_alone_is_warned_about(after: float) -> None:
    found = warnings(_records(20, validity=0.6) + _records(20, validity=1.0, accuracy_given_valid=after))
    assert len(found) == 1
    assert f"validity rises (0.60 -> 1.00) while accuracy given valid does not (0.50 -> {after:.2f})" in found[0]


def test_validity_that_rises_with_accuracy_given_valid_is_no_format_gain() -> None:
    assert warnings(_records(20, validity=0.6) + _records(20, validity=1.0, accuracy_given_valid=0.53)) == []


def test_what_was_never_valid_is_compared_with_nothing() -> None:
    nothing = {"validity": 0.0, "accuracy_given_valid": None}
    assert warnings(_records(20, **nothing) + _records(20)) == []
    assert warnings(_records(20) + _records(20, **nothing)) == []
    assert len(warnings(_records(1) + _records(19, **nothing) + _records(20))) == 1


def test_the_bundled_training_never_learnt_format_alone() -> None:
    lines = (bundled_folder() / "run" / "curves.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert [found for end in range(len(records)) for found in warnings(records[: end + 1])] == []


def test_a_collapse_of_routing_is_warned_about() -> None:
    assert "collapsing" in warnings(_records(20) + _records(20, routing_entropy_bits=0.1))[0]


def test_masked_rollouts_and_flat_groups_are_warned_about() -> None:
    found = warnings(_records(20) + _records(20, masked=8, groups_without_spread=0.95))
    assert len(found) == 2


def test_a_healthy_curve_gives_no_warning() -> None:
    assert warnings(_records(40)) == []
    assert warnings(_records(39)) == []


def test_reopening_drops_what_came_after_the_checkpoint_and_a_half_written_line(tmp_path: Path) -> None:
    path = tmp_path / "curves.jsonl"
    lines = [json.dumps({"iteration": index}) for index in range(5)]
    path.write_text("\n".join(lines) + '\n{"iterat', encoding="utf-8")
    assert [record["iteration"] for record in Curve.open(path, done=3).records] == [0, 1, 2]
    assert path.read_text(encoding="utf-8").splitlines() == lines[:3]
    assert len(Curve.open(path, done=99).records) == 3


def test_accuracy_does_not_hang_on_the_scale_of_the_reward() -> None:
    one = _rollout(1.0, [3])
    assert measure([replace(one, reward=2.0)], gym_pool())["accuracy"] == 1.0
