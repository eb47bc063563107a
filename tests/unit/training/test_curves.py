"""The curve of a training and its warnings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from openconductor.errors import WorkerError, WorkflowError, WorkflowReason
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.workers import gym_pool
from openconductor.reward import Scored
from openconductor.training.curves import Curve, Record, kind_of, measure, scalars, warnings
from openconductor.training.export import _curve_table
from openconductor.types import Completion, Episode, Grade, Problem, Round, Step, Usage, Workflow


def scored(reward: float | None, *steps: Step) -> Scored:
    """A workflow that was played; None: a worker failed."""
    error = answer = grade = None
    if reward is None:
        error = WorkerError("reset")
    else:
        answer = "1 2"
        grade = Grade(reward == 1.0, answer)
    played = Round(Completion("..."), Workflow(steps), None, error)
    return Scored(reward, Episode("q", (played,), answer, error, Usage(), 0.0), grade)


def cut() -> Scored:
    """A completion that was cut off."""
    error = WorkflowError(WorkflowReason.TRUNCATED, "cut")
    played = Round(Completion("..."), None, None, error)
    return Scored(0.0, Episode("q", (played,), None, error, Usage(), 0.0), None)


def measured(*given: Scored, group: int = 1) -> Record:
    return measure(["single"] * len(given), given, [gym_pool()] * len(given), group=group)


SORT, DOUBLE = Step(3, "sort the list"), Step(1, "double every number")


def test_what_is_masked_counts_neither_as_right_nor_as_wrong() -> None:
    given = [scored(1.0, SORT), scored(0.5, SORT, DOUBLE), scored(None, SORT), cut()]
    record = measured(*given, group=4)
    assert (record["rollouts"], record["masked"], record["groups_without_spread"]) == (4, 1, 0)
    assert record["validity"] == pytest.approx(2 / 3)
    assert record["accuracy"] == record["truncated"] == pytest.approx(1 / 3)
    assert record["accuracy_given_valid"] == 1 / 2
    assert record["worker_share"]["lister"] == pytest.approx(2 / 3)
    assert record["steps_by_kind"] == {"single": 1.5}


def test_how_long_completions_are_and_how_many_go_on_after_their_plan_is_measured() -> None:
    plan = 'model_id = [0]\nsubtasks = ["Answer."]\naccess_list = [[]]'
    given: list[Scored] = []
    for tokens, text in ((10, plan), (20, f"```\n{plan}\n```\n"), (60, f"{plan}\nThat is all.")):
        one = scored(1.0, SORT)
        completion = Completion(text, usage=Usage(output_tokens=tokens))
        played = replace(one.episode.rounds[0], completion=completion)
        given.append(replace(one, episode=replace(one.episode, rounds=(played,))))
    record = measured(*given)
    assert record["completion_tokens"] == 30
    assert record["trailing_text"] == pytest.approx(1 / 3)


def test_trackers_get_the_numbers_of_a_record_one_by_one() -> None:
    record = {"accuracy": 0.5, "phase": "grpo", "entropy": None, "worker_share": {"a": 0.25}}
    assert scalars(record) == {"accuracy": 0.5, "worker_share/a": 0.25}


def test_where_nothing_is_valid_there_is_no_accuracy_given_valid() -> None:
    record = measured(cut(), scored(None, SORT))
    assert record["validity"] == record["accuracy"] == 0.0
    assert record["accuracy_given_valid"] is None


def test_a_group_with_one_reward_has_no_spread_and_accuracy_ignores_the_scale() -> None:
    given = [scored(0.5, SORT), scored(0.5, DOUBLE), scored(0.5, SORT), scored(1.0, DOUBLE)]
    assert measured(*given, group=2)["groups_without_spread"] == 0.5
    assert measured(replace(given[3], reward=2.0))["accuracy"] == 1.0


def test_routing_that_depends_on_the_subtask_has_no_entropy_given_it() -> None:
    record = measured(*[scored(0.5, SORT), scored(0.5, DOUBLE)] * 5)
    assert record["routing_entropy_bits"] == pytest.approx(1.0)
    assert record["routing_entropy_by_subtask_bits"] == 0.0


@pytest.mark.parametrize(
    ("task", "group"), [("gym", "pair"), ("specialists", "pair"), ("mmlu_pro", "mmlu_pro")]
)
def test_kinds_are_told_apart_where_they_want_plans_of_different_shapes(task, group) -> None:
    problem = Problem("1", "q", "a", task, "pair")
    assert kind_of(problem) == group
    assert kind_of(problem, again=True) == f"{group}, again"


def test_routing_is_told_by_kind() -> None:
    given = [scored(0.5, SORT), scored(0.5, replace(SORT, worker=1))]
    given += [scored(0.5, DOUBLE)] * 2
    record = measure(["single", "single", "pair", "pair"], given, [gym_pool()] * 4)
    assert record["routing_entropy_by_kind_bits"] == {"single": 1.0, "pair": 0.0}


def test_workers_are_told_by_name_whatever_numbers_a_question_gives_them() -> None:
    pool = gym_pool()
    turned = pool.numbered({name: 7 - ordinal for ordinal, name in pool.names.items()})
    given = [scored(0.5, SORT), scored(0.5, replace(SORT, worker=7 - SORT.worker))]
    record = measure(["single"] * 2, given, [pool, turned])
    assert record["worker_share"][pool.names[SORT.worker]] == 1.0
    assert record["routing_entropy_bits"] == 0.0


USUAL = {
    "validity": 0.9,
    "accuracy_given_valid": 0.5,
    "routing_entropy_bits": 2.0,
    "groups_without_spread": 0.1,
    "masked": 0,
    "rollouts": 16,
}


def _records(count: int, **values: float | None) -> list[Record]:
    return [USUAL | {"iteration": index} | values for index in range(count)]


NOTHING = {"validity": 0.0, "accuracy_given_valid": None}
RISING = {"validity": 0.6}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (RISING, {"validity": 1.0, "accuracy_given_valid": 0.4}, "does not (0.50 -> 0.40)"),
        (RISING, {"validity": 1.0, "accuracy_given_valid": 0.515}, "does not (0.50 -> 0.52)"),
        (RISING, {"validity": 1.0, "accuracy_given_valid": 0.53}, ""),
        (NOTHING, {}, ""),
        ({}, NOTHING, ""),
        ({}, {"routing_entropy_bits": 0.1}, "collapsing"),
        ({}, {"groups_without_spread": 0.95}, "no spread"),
        ({"completion_tokens": 100}, {"completion_tokens": 130}, "from 100 to 130 tokens"),
        ({"completion_tokens": 100}, {"completion_tokens": 120}, ""),
        ({"completion_tokens": 100}, {"completion_tokens": 130, "accuracy": 0.9}, ""),
        ({"trailing_text": 0.1}, {"trailing_text": 0.25}, "after 25% of the plans the text goes"),
        ({"trailing_text": 0.6}, {"trailing_text": 0.6}, "trailing_text"),
        ({"trailing_text": 0.1}, {"trailing_text": 0.15}, ""),
        ({}, {}, ""),
    ],
)
def test_what_a_curve_should_make_one_worry_about(
    before: dict[str, float | None], after: dict[str, float | None], message: str
) -> None:
    curve = _records(20, **before) + _records(20, **after)
    messages = warnings(curve)
    assert len(messages) == bool(message)
    assert message in "".join(messages)
    assert warnings(curve[:-1]) == [], "looked at once a window"


def test_the_bundled_training_never_learnt_format_alone() -> None:
    lines = (bundled_folder() / "run" / "curves.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    for end in range(len(records)):
        assert warnings(records[: end + 1]) == []


def test_reopening_drops_what_came_after_the_checkpoint_and_a_half_written_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "curves.jsonl"
    lines = [f'{{"iteration": {index}}}' for index in range(5)]
    path.write_text("\n".join(lines) + '\n{"iterat', encoding="utf-8")
    records = Curve.open(path, done=3).records
    assert [record["iteration"] for record in records] == [0, 1, 2]
    assert path.read_text(encoding="utf-8").splitlines() == lines[:3]
    assert len(Curve.open(path, done=99).records) == 3


def test_a_model_card_compares_the_ends_of_a_short_training() -> None:
    rising = [USUAL | {"validity": n / 8, "accuracy": 0.5} for n in range(8)]
    assert "| validity | 0.062 | 0.812 |" in _curve_table(rising)
