"""Plans that are drawn at random. (What is learnt from them is seen in tests/learning.)"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from openconductor.graders.exact import ExactGrader
from openconductor.gym.sampling import phrases
from openconductor.gym.workers import gym_pool
from openconductor.parser import parse_workflow
from openconductor.prompt import render_workflow
from openconductor.tasks.prompts import boxed_prompt
from openconductor.training import supervised
from openconductor.training.models import build_tokenizer
from openconductor.training.setup import Learner, Questions, Setup, load_questions
from openconductor.training.supervised import SHAPES, fresh_phrases, random_plan, shaped_plan
from openconductor.training.train_config import TrainConfig
from openconductor.types import Problem

pytestmark = pytest.mark.train


def config_of(access: str) -> TrainConfig:
    tables = {"prompt": {"access": access}, "rollout": {"max_steps": 4}}
    return TrainConfig.model_validate(tables)


def is_about(count: int, total: int, share: float, room: float) -> bool:
    return abs(count / total - share) < room


def favours_nobody(used: Counter[int], workers: int) -> bool:
    """Return True if so many workers were used about equally often."""
    return len(used) == workers and all(
        is_about(count, used.total(), 1 / workers, 0.06) for count in used.values()
    )


@pytest.mark.parametrize("access", ["binary", "index"])
def test_a_random_plan_is_valid_for_any_pool_and_favours_no_worker(access: str) -> None:
    used = Counter[int]()
    for seed in range(300):
        plan, thought = random_plan(random.Random(seed), (1, 4, 6), config_of(access))
        assert parse_workflow(render_workflow(plan), (1, 4, 6), max_steps=4) == plan
        assert access == "index" or all(step.access in ((), "all") for step in plan)
        assert len(plan) == 1 or plan.steps[-1].access
        assert thought.startswith(f"{len(plan)} step")
        used.update(step.worker for step in plan)
    assert favours_nobody(used, 3)


@pytest.mark.parametrize("access", ["binary", "index"])
def test_a_named_plan_has_the_shape_that_its_thought_names_and_favours_no_worker(
    access: str,
) -> None:
    """Attempts before a last step see nothing, and stand in the order of their workers."""
    shapes, first, last = Counter[tuple[int, str]](), Counter[int](), Counter[int]()
    for seed in range(1_200):
        plan, thought = shaped_plan(random.Random(seed), range(6), config_of(access))
        assert parse_workflow(render_workflow(plan, thought), range(6), max_steps=4) == plan
        workers = [step.worker for step in plan]
        assert len(set(workers)) == len(workers)
        is_chain = len(plan) < 3 or thought == SHAPES[1].format(f"{len(plan)} steps")
        middle = [bool(step.access) for step in plan.steps[1:-1]]
        assert middle == [is_chain] * len(middle)
        assert not plan.steps[0].access
        assert len(plan) == 1 or plan.steps[-1].access
        if len(plan) < 3:
            first[workers[0]] += 1
        last[workers[-1]] += 1
        shapes[len(plan), thought.partition(":")[2]] += 1
    assert len(shapes) == 6
    for (size, _), count in shapes.items():
        assert is_about(count, 1_200, 0.25 if size < 3 else 0.125, 0.04)
    assert favours_nobody(first, 6)
    assert favours_nobody(last, 6)


TABLES = {
    "data": {"task": "replay"},
    "imitate": {"rounds": 1},
    "rollout": {"iterations": 0},
    "cold_start": {"shapes": True},
}


def test_a_start_over_a_benchmark_is_of_its_own_questions_without_grpo_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervised, "supervised_arguments", lambda *_, **__: None)
    monkeypatch.setattr(supervised, "WholeCheckpoints", lambda train_dataset, **_: train_dataset[0])
    monkeypatch.setattr(supervised, "resume_training", lambda *_: None)
    config = TrainConfig.model_validate(TABLES)
    questions, tokenizer = load_questions(config), build_tokenizer(phrases())
    setup = Setup(config, Path(), gym_pool(1), questions, None, print)
    rows = supervised.cold_start(setup, Learner(None, tokenizer, Path()))
    prompt, plan = [tokenizer.decode(tokens) for tokens in rows]
    assert any(problem.question in prompt for problem in questions.learnt)
    assert any(shape.partition(":")[2] in plan for shape in SHAPES)


def test_a_fresh_tokenizer_has_one_token_for_what_recurs_in_plans_and_questions() -> None:
    many = [Problem("a", boxed_prompt("[a] law"), "A", "replay")] * 200
    learnt = [*many, Problem("b", "[b] torts", "A", "replay")]
    known = fresh_phrases(TrainConfig(), Questions(ExactGrader(), learnt=learnt))
    assert " law" in known and " torts" not in known
    assert " step" not in known, "the Conductor is not shown the form of the answer"
    plan, _ = random_plan(random.Random(1), range(8), TrainConfig())
    tokenizer = build_tokenizer(known)
    written = render_workflow(plan, "5 steps will do here.")
    assert len(tokenizer.encode(written)) <= 5 + 6 * len(plan)
    assert tokenizer.decode(tokenizer.encode(written)) == written
