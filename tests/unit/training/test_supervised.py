"""Plans that are drawn at random. (What is learnt from them is seen in tests/learning.)"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from openconductor.graders.exact import ExactGrader
from openconductor.gym.sampling import phrases
from openconductor.gym.workers import gym_pool
from openconductor.parser import parse_workflow
from openconductor.pool import WorkerPool
from openconductor.prompt import count_steps, render_workflow
from openconductor.store import open_store
from openconductor.tasks.prompts import boxed_prompt
from openconductor.tasks.specialists import SKILLS, write_instruction
from openconductor.testing import Scripted, pool_of
from openconductor.training import supervised
from openconductor.training.models import build_tokenizer
from openconductor.training.scoring import Scorer
from openconductor.training.setup import (
    Learner,
    Questions,
    Setup,
    load_questions,
    open_workers,
)
from openconductor.training.supervised import (
    ACCEPTED,
    SHAPES,
    _draw_plan,
    fresh_phrases,
    random_plan,
    shaped_plan,
)
from openconductor.training.train_config import TrainConfig
from openconductor.types import Problem, Workflow

pytestmark = pytest.mark.train


def config_of(access: str) -> TrainConfig:
    tables = {"prompt": {"access": access}, "rollout": {"max_steps": 4}}
    return TrainConfig.model_validate(tables)


def is_about(count: int, total: int, share: float, room: float) -> bool:
    return abs(count / total - share) < room


def favours_nobody(used: Counter[int], workers: int) -> bool:
    """Return True if all workers were used about equally often."""
    return len(used) == workers and all(
        is_about(count, used.total(), 1 / workers, 0.06) for count in used.values()
    )


@pytest.mark.parametrize("access", ["binary", "index"])
def test_a_random_plan_is_valid_for_any_pool_and_favours_no_worker(access: str) -> None:
    used = Counter[int]()
    pool = gym_pool(1).subset([1, 4, 6])
    for seed in range(300):
        plan, thought = random_plan(random.Random(seed), pool, config_of(access))
        assert parse_workflow(render_workflow(plan), (1, 4, 6), max_steps=4) == plan
        assert access == "index" or all(step.access in ((), "all") for step in plan)
        assert len(plan) == 1 or plan.steps[-1].access
        assert thought.startswith(f"{len(plan)} step")
        used.update(step.worker for step in plan)
    assert favours_nobody(used, 3)


def test_the_steps_of_a_random_plan_share_out_the_parts_of_a_question_in_order() -> None:
    parts = ["Sort them", "Reverse them"]
    shares: set[tuple[str, ...]] = set()
    for seed in range(50):
        plan, _ = random_plan(random.Random(seed), gym_pool(1), config_of("index"), parts)
        shares.add(tuple(step.subtask for step in plan))
    assert shares == {tuple(parts), ("Sort them, then Reverse them",)}


def test_a_random_plan_can_quote_the_cards_of_its_workers_in_order() -> None:
    config = TrainConfig.model_validate(
        {
            "data": {"task": "specialists"},
            "pool": "gym",
            "prompt": {"cards": True},
            "cold_start": {"quote_cards": True},
        }
    )
    pool = gym_pool(1)
    for seed in range(20):
        plan, thought = random_plan(random.Random(seed), pool, config)
        cards = [f"{pool.cards[step.worker]}: Model {step.worker}" for step in plan]
        assert thought == f"{count_steps(len(plan))}: {', then '.join(cards)}."


def test_a_cold_start_names_the_parts_that_the_task_knows() -> None:
    tables = {"data": {"task": "specialists"}, "pool": "gym"}
    config = TrainConfig.model_validate(tables)
    questions = load_questions(config)
    plans = [_draw_plan(config, questions, gym_pool(1), index) for index in range(60)]
    wordings = {write_instruction(text) for skill in SKILLS.values() for text in skill.wordings}
    for plan in plans:
        subtasks = [step.subtask for step in plan.workflow]
        first, _, _ = subtasks[0].partition(", then ")
        assert first in wordings


POOL = pool_of(*[Scripted("A")] * 6)


def plans_over(pool: WorkerPool, access: str, draws: int) -> list[Workflow]:
    """Return plans of named shapes, each read back from the text that the model learns."""
    plans: list[Workflow] = []
    for seed in range(draws):
        plan, thought = shaped_plan(random.Random(seed), pool, config_of(access))
        assert thought == SHAPES[len(plan) > 1].format(count_steps(len(plan)))
        text = render_workflow(plan, thought)
        assert parse_workflow(text, pool.ordinals, max_steps=4) == plan
        plans.append(plan)
    return plans


def sees_all(plan: Workflow) -> bool:
    return plan.steps[-1].access in ("all", tuple(range(len(plan) - 1)))


@pytest.mark.parametrize("access", ["binary", "index"])
def test_every_number_of_attempts_is_drawn_as_often_and_no_worker_is_favoured(access: str) -> None:
    alone, last, sizes = Counter[int](), Counter[int](), Counter[int]()
    for plan in plans_over(POOL, access, 1_200):
        workers = [step.worker for step in plan]
        attempts = workers[:-1]
        assert len(set(workers)) == len(workers)
        assert attempts == sorted(attempts)
        assert all(not step.access for step in plan.steps[:-1])
        assert len(plan) == 1 or sees_all(plan)
        sizes[len(plan)] += 1
        (alone if len(plan) == 1 else last)[workers[-1]] += 1

    assert len(sizes) == 4
    assert all(is_about(count, 1_200, 0.25, 0.04) for count in sizes.values())
    assert favours_nobody(alone, 6)
    assert favours_nobody(last, 6)


def test_workers_that_merge_come_last_and_never_alone() -> None:
    referees = {2, 5}
    providers = [Scripted("A", merges=ordinal in referees) for ordinal in range(6)]

    plans = plans_over(pool_of(*providers), "binary", 200)

    merged = [plan for plan in plans if len(plan) > 1]
    attempts = {step.worker for plan in merged for step in plan.steps[:-1]}
    assert {plan.steps[-1].worker for plan in merged} == referees
    assert not attempts & referees
    assert not {plan.steps[0].worker for plan in plans if len(plan) == 1} & referees
    assert {len(plan) for plan in plans} == {1, 2, 3, 4}


def test_two_workers_without_a_tool_that_merges_give_plans_of_at_most_two_steps() -> None:
    plans = plans_over(POOL.subset([1, 4]), "binary", 50)
    assert {len(plan) for plan in plans} == {1, 2}


POOL_FILE = str(Path(__file__).parents[3] / "recipes/pools/mmlu_pro_replay.toml")
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
    plan, _ = random_plan(random.Random(1), gym_pool(1), TrainConfig())
    tokenizer = build_tokenizer(known)
    written = render_workflow(plan, "5 steps will do here.")
    assert len(tokenizer.encode(written)) <= 5 + 6 * len(plan)
    assert tokenizer.decode(tokenizer.encode(written)) == written


def test_half_of_a_start_in_recursion_is_second_rounds_of_plans_that_were_played(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They accept an answer that workers gave, or ask workers that had not been asked."""
    monkeypatch.setattr(supervised, "FIRST_ROUNDS_PLAYED", 30)
    tables: dict[str, object] = TABLES | {
        "pool": POOL_FILE,
        "model": {"base": "", "positions": 512},
        "prompt": {"template": "compact"},
        "cold_start": {"shapes": True, "steps": 1},
        "rollout": {"iterations": 0, "rounds": 2, "max_tokens": 90},
    }
    config = TrainConfig.model_validate(tables)
    questions = load_questions(config)
    with open_store(tmp_path / "journal.sqlite") as journal:
        pool = open_workers(config, questions, journal)
        scorer = Scorer(config, pool, questions.grader, journal)
        setup = Setup(config, tmp_path, pool, questions, scorer, print)
        played = supervised._play_first_rounds(setup)
        tokenizer = supervised.fresh_tokenizer(config, questions, pool)
        rows = [supervised._cold_start_row(setup, tokenizer, n, played) for n in range(200)]
        scorer.close()

    texts = [(tokenizer.decode(prompt), tokenizer.decode(plan)) for prompt, plan in rows]
    later = [(prompt, plan) for prompt, plan in texts if "\nBefore:" in prompt]
    assert is_about(len(later), 200, 0.5, 0.12)
    assert is_about(sum(ACCEPTED in plan for _, plan in later), len(later), 0.5, 0.15)
    for prompt, plan in later:
        assert re.search(r": Answer: [A-J]|No answer by", prompt)
        if ACCEPTED in plan:
            assert parse_workflow(plan, pool.ordinals, accept_allowed=True) == Workflow(())
    assert not any(ACCEPTED in plan for prompt, plan in texts if "\nBefore:" not in prompt)
