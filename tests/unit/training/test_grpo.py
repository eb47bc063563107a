"""What TRL is told, and what it is told of a completion."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openconductor.gym.workers import gym_pool
from openconductor.reward import Scored
from openconductor.training.curves import Curve
from openconductor.training.examples import Setup
from openconductor.training.grpo import WorkflowReward, grpo_arguments
from openconductor.training.train_config import TrainConfig, load_train_config
from openconductor.types import Completion, Episode, Grade, Problem, Usage

RECIPE = Path(__file__).parents[3] / "recipes" / "gym.toml"


@pytest.mark.parametrize(
    ("overrides", "micro", "steps"),
    [
        ([], 256, 1),
        (["optim.micro_batch=64"], 64, 4),
        (["rollout.questions=4", "rollout.completions=4"], 16, 1),  # fewer than the recipe's micro batch of 256
    ],
)
def test_a_backward_pass_takes_the_micro_batch_or_all_there_is(
    overrides: list[str], micro: int, steps: int, tmp_path: Path
) -> None:
    config = load_train_config(RECIPE, overrides)
    told = grpo_arguments(config, tmp_path, cpu=True)
    assert (told.per_device_train_batch_size, told.gradient_accumulation_steps) == (micro, steps)
    assert micro * steps == told.generation_batch_size == config.rollout.batch


@pytest.mark.parametrize(("control", "expected"), [("none", [1.0, 0.5, None, 0.0]), ("flipped", [0.0, 0.5, None, 1.0])])
async def test_each_completion_is_scored_on_its_own_problem_and_what_is_undecided_stays_masked(
    control: str, expected: list[float | None], tmp_path: Path
) -> None:
    # Of a mix: a problem keeps the task that it is of, which says who grades it.
    problems = [Problem("1", "What is 1 + 1?", "2", "math500"), Problem("1", "Which one?", "B", "mmlu")]
    rewards = iter((1.0, 0.5, None, 0.0))
    seen: list[tuple[Problem, str, int]] = []

    async def score(problem: Problem, completion: Completion, *, sample: int) -> Scored:
        seen.append((problem, completion.finish_reason, sample))
        given = next(rewards)
        grade = None if given is None else Grade(given == 1.0, "2")
        return Scored(given, Episode(problem.question, (), "2", None, Usage(), 0.0), grade)

    config = TrainConfig.model_validate(
        {"data": {"task": "paper_mix"}, "rollout": {"completions": 2, "questions": 2}, "reward": {"control": control}}
    )
    said: list[str] = []
    curve = Curve(tmp_path / "curves.jsonl", after=10)
    setup = Setup(config, tmp_path, gym_pool(), None, score, said.append)  # type: ignore[arg-type]
    reward = WorkflowReward(setup, problems, curve, end=9)
    options: dict[str, Any] = {"trainer_state": SimpleNamespace(global_step=0)}
    completions = [[{"role": "assistant", "content": "text"}]] * 4
    given = await reward([], completions, [[1, 9], [1, 1], [9], [9]], problem=[0, 0, 1, 1], advantage=[], **options)
    assert given == expected
    assert [one[0] for one in seen] == [problems[0]] * 2 + [problems[1]] * 2
    assert [one[1] for one in seen] == ["stop", "length", "stop", "stop"]
    assert [one[2] for one in seen] == [20, 21, 20, 21], "the workers' luck differs within a group, and by iteration"
    (record,) = curve.records
    assert (record["iteration"], record["masked"], set(record["accuracy_by_kind"])) == (10, 1, {"math500", "mmlu"})
    assert said[0].startswith("iteration 10 of 210: accuracy 0.333")
