"""What a training learns from and is measured on: problems with the kind they belong to.

In: a recipe. Out: one list of examples for training (in order, iteration after iteration) and one held out. An example
depends only on its index and the seed, so a resumed run sees what an uninterrupted one would have seen.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from openconductor.errors import ConfigError
from openconductor.gym.questions import KINDS, GymQuestion, Kind, Split, draw_questions
from openconductor.protocols import Task
from openconductor.tasks import load_task
from openconductor.training.config import TrainConfig
from openconductor.types import Problem


@dataclass(frozen=True, slots=True)
class Example:
    """A problem and its kind (the gym's kinds; elsewhere the task's name)."""

    problem: Problem
    kind: str


def training_examples(config: TrainConfig, *, after: int = 0) -> list[Example]:
    """``rollout.questions`` examples an iteration; those of the ``after`` iterations before are not drawn again."""
    if config.data.task != "gym":
        return _from_task(config, "train", config.rollout.iterations * config.rollout.questions, again=True)
    examples: list[Example] = []
    for iteration in range(config.rollout.iterations):
        examples += gym_examples(
            "train",
            config.rollout.questions,
            seed=config.data.seed,
            mix=_mix(config, iteration),
            start=(after + iteration) * config.rollout.questions,
        )
    return examples


def held_out_examples(config: TrainConfig, split: Split, count: int, *, seed: int) -> list[Example]:
    """Examples of a split that no training sees; all there are where a task has fewer than ``count``."""
    if config.data.task != "gym":
        return _from_task(config, split, count, again=False)
    return gym_examples(split, count, seed=seed)


def gym_examples(
    split: Split, count: int, *, seed: int, mix: Mapping[Kind, float] | None = None, start: int = 0
) -> list[Example]:
    """Questions of the gym as examples."""
    questions: list[GymQuestion] = draw_questions(split, count, seed=seed, mix=mix or _even(), start=start)
    return [Example(question.problem(), question.kind) for question in questions]


def _from_task(config: TrainConfig, split: str, count: int, *, again: bool) -> list[Example]:
    """Problems of a benchmark, shuffled by seed; walked through ``again`` when they run out, or each given once."""
    task: Task = load_task(config.data.task)
    problems = list(task.load(split))
    if not problems:
        raise ConfigError(f"data.task: {config.data.task} has no problems in its split {split!r}")
    examples: list[Example] = []
    while len(examples) < (count if again else min(count, len(problems))):
        random.Random(f"{config.data.seed}/{split}/{len(examples)}").shuffle(problems)
        examples += [Example(problem, problem.task) for problem in problems]
    return examples[:count]


def _even() -> dict[Kind, float]:
    return dict.fromkeys(KINDS, 1.0)


def _mix(config: TrainConfig, iteration: int) -> Mapping[Kind, float]:
    """The weights of the kinds: from ``easy`` in a straight line to even."""
    easy = config.data.easy
    length = config.data.curriculum * config.rollout.iterations
    if not easy or iteration >= length:
        return _even()
    done = iteration / length
    total = sum(easy)
    return {kind: (1 - done) * weight / total + done / len(KINDS) for kind, weight in zip(KINDS, easy, strict=True)}
