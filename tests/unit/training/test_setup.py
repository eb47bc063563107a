"""The questions that a training learns from, and those that it is measured on."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from openconductor.errors import ConfigError, TaskError
from openconductor.tasks.paper_mix import MixGrader
from openconductor.training.curves import kind_of
from openconductor.training.setup import (
    held_out_problems,
    imitation_problems,
    load_questions,
    training_problems,
)
from openconductor.training.study import study
from openconductor.training.train_config import ImitateConfig, TrainConfig
from openconductor.types import Problem


def write(path: Path, numbers: range) -> None:
    rows = [{"question": f"What is {n} plus {n}?", "answer": f"#### {2 * n}"} for n in numbers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "train.jsonl", range(5))
    write(tmp_path / "test.jsonl", range(5, 8))
    return tmp_path


def recipe(folder: Path, **held_out: object) -> TrainConfig:
    data = {"task": "gsm8k", "path": str(folder)}
    rollout = {"iterations": 3, "questions": 4}
    return TrainConfig.model_validate({"data": data, "rollout": rollout, "held_out": held_out})


def lines(problems: Iterable[Problem]) -> list[str]:
    """The questions without how answers are asked for."""
    return [str(problem.question).splitlines()[0] for problem in problems]


def sums(numbers: range) -> set[str]:
    return {f"What is {n} plus {n}?" for n in numbers}


def test_a_conductor_learns_from_questions_without_the_form_of_the_answer(folder: Path) -> None:
    questions = load_questions(recipe(folder))
    shown = {questions.planned(problem) for problem in questions.learnt}
    assert shown == sums(range(5))
    assert all("boxed" in problem.question for problem in questions.learnt), "workers see it"


def test_a_benchmark_is_walked_through_again_for_training(folder: Path) -> None:
    config = recipe(folder)
    problems = training_problems(config, load_questions(config))
    seen = Counter(lines(problems))
    assert seen.total() == 12
    assert set(seen) == sums(range(5))
    assert set(seen.values()) == {2, 3}
    again = training_problems(config, load_questions(config))
    assert problems == again, "a resumed run sees the same"


def test_imitation_walks_through_a_benchmark_before_grpo_does(folder: Path) -> None:
    config = recipe(folder).model_copy(update={"imitate": ImitateConfig(rounds=2, questions=3)})
    questions = load_questions(config)
    first, second = (imitation_problems(config, questions, number, {}) for number in range(2))
    assert len(first) == len(second) == 3
    walked = lines([*first, *second, *training_problems(config, questions)])
    for start in (0, 5, 10):
        assert set(walked[start : start + 5]) == sums(range(5))


def test_the_gyms_kinds_are_drawn_by_weight_and_no_question_twice() -> None:
    imitate = {"rounds": 3, "questions": 40}
    data = {"task": "gym", "mix": [1.0, 0.0, 0.0, 3.0]}
    tables = {"data": data, "imitate": imitate, "rollout": {"iterations": 2}}
    config = TrainConfig.model_validate(tables)
    questions = load_questions(config)
    ids: list[str] = []
    for number in range(3):
        problems = imitation_problems(config, questions, number, {})
        kinds = Counter(problem.kind for problem in problems)
        assert set(kinds) == {"single", "smudged"}
        assert 8 <= kinds["single"] <= 12
        ids += [problem.id for problem in problems]
    ids += [problem.id for problem in training_problems(config, questions)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("count", "given"), [(2, 2), (3, 3), (400, 3)])
def test_no_held_out_question_counts_twice(folder: Path, count: int, given: int) -> None:
    config = recipe(folder, questions=count)
    held_out = lines(held_out_problems(config, load_questions(config)))
    assert len(held_out) == len(set(held_out)) == given
    assert set(held_out) <= sums(range(5, 8))


def test_a_question_that_is_learnt_from_is_not_held_out(folder: Path) -> None:
    write(folder / "test.jsonl", range(4, 8))
    with pytest.raises(TaskError, match="held_out: 1 of 4 questions are also learnt from"):
        load_questions(recipe(folder))
    with pytest.raises(TaskError, match="held_out: 5 of 5 questions are also learnt from"):
        load_questions(recipe(folder / "train.jsonl"))  # one file is every split


def test_another_task_may_be_held_out_and_each_has_its_own_grader(folder: Path) -> None:
    (folder / "other").mkdir()
    row = '{{"problem": "Add {0} to {0}.", "answer": "0", "unique_id": "t/{0}.json"}}\n'
    (folder / "other" / "test.jsonl").write_text("".join(map(row.format, range(3))), "utf-8")
    config = recipe(folder, task="math500", path=str(folder / "other"))
    questions = load_questions(config)
    assert isinstance(questions.grader, MixGrader)
    assert set(questions.grader.graders) == {"gsm8k", "math500"}
    assert {kind_of(problem) for problem in held_out_problems(config, questions)} == {"math500"}
    assert {kind_of(problem) for problem in training_problems(config, questions)} == {"gsm8k"}
    both = recipe(folder, task=["math500", "gsm8k"], path=str(folder / "other"), questions=4)
    held_out = held_out_problems(both, load_questions(both))
    assert [kind_of(problem) for problem in held_out] == ["math500", "gsm8k"] * 2, (
        "in turn: the first few are of each"
    )


def test_absent_data_say_which_of_the_two_they_are(folder: Path) -> None:
    (folder / "test.jsonl").unlink()
    with pytest.raises(TaskError, match=r"held_out: .*test\.jsonl"):
        load_questions(recipe(folder))
    with pytest.raises(TaskError, match=r"data: .*nowhere: no such file"):
        load_questions(recipe(folder / "nowhere"))


ALONE = r"""
data = {task = "gym", path = "a"}                        → data\.path: got 'a', expected none
data = {task = "gym"}\nheld_out = {path = "a"}           → held_out\.path: got 'a', expected none
data = {task = "gym"}\nheld_out = {task = "gsm8k"}       → 'gsm8k', expected the same as data.task
data = {task = "gsm8k"}\nheld_out = {task = "gym"}       → held_out\.task: got 'gym', expected
data = {task = "gsm8k", mix = [1.0]}                     → data\.mix: got .* expected none
data = {task = "gym", split = "test"}                    → data\.split: got 'test', expected 'train'
data = {task = "gym"}\nheld_out = {split = "train"}      → held_out\.split: got 'train', expected
"""


@pytest.mark.parametrize("line", ALONE.strip().splitlines())
def test_the_gym_goes_with_itself_alone(line: str) -> None:
    recipe, message = line.split("→")
    values = tomllib.loads(recipe.replace(r"\n", "\n"))
    with pytest.raises(ValueError, match=message.strip()):
        TrainConfig.model_validate(values)


def test_a_study_compares_with_the_gyms_levels_only(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="study: got task 'gsm8k'"):
        study(recipe(folder), tmp_path / "study", seeds=[1])
    assert not (tmp_path / "study").exists()


def test_programs_that_are_judged_inside_are_left_out_unless_they_are_asked_for(
    tmp_path: Path,
) -> None:
    apart = {"id": "apart", "question": "Add.", "entry_point": "f", "tests": "assert f(1, 2) == 3"}
    inside = apart | {"id": "inside", "tests": "from unittest import mock\nassert f(1) == f(1)"}
    for split, rows in {"train": [apart, inside], "test": [apart | {"question": "Sum."}]}.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(text, encoding="utf-8")
    data = {"task": "mbpp", "path": str(tmp_path)}
    learnt: dict[str, list[str]] = {}
    for choice in ("left_out", "learnt"):
        tables = {"data": {**data, "judged_inside": choice}, "held_out": {"split": "test"}}
        questions = load_questions(TrainConfig.model_validate(tables))
        learnt[choice] = [problem.id for problem in questions.learnt]
    assert learnt == {"left_out": ["apart"], "learnt": ["apart", "inside"]}
