"""What a training learns from and is measured on, and what every phase of it needs.

In: a recipe. Out: one list of problems for training (in order, iteration after iteration) and one held out, and who
grades them. A problem depends only on its index and the seed, so a resumed run sees what an uninterrupted one would
have seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openconductor.errors import TaskError
from openconductor.gym.questions import EQUAL_MIX, KINDS, Kind, draw_questions
from openconductor.pool import WorkerPool
from openconductor.protocols import Grader
from openconductor.reward import RewardFunction
from openconductor.tasks import load_task
from openconductor.tasks.paper_mix import MixGrader
from openconductor.training.train_config import TrainConfig
from openconductor.types import Problem

HELD_OUT_SEED = 2_000_000  # no training draws with it


@dataclass(frozen=True, slots=True)
class Questions:
    """Where a training's questions come from.

    Attributes:
        grader: judges the answers to all of them.
        learnt: the problems that are learnt from; none in the gym, which draws them.
        held_out: those that a run is measured on; none of them is learnt from.
    """

    grader: Grader
    learnt: Sequence[Problem] = ()
    held_out: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True)
class Setup:
    """What every phase of a run needs."""

    config: TrainConfig
    folder: Path
    pool: WorkerPool
    questions: Questions
    score: RewardFunction
    say: Callable[[str], None]


def load_questions(config: TrainConfig) -> Questions:
    """Load a recipe's problems, before anything is paid for.

    Raises:
        ConfigError: there is no such task.
        TaskError: data are absent, or a question is both learnt from and held out.
    """
    data, held_out = config.data, config.held_out
    learning = load_task(data.task, path=data.path or None)
    if data.task == "gym":
        return Questions(learning.grader)
    measuring = learning
    if held_out.path or (held_out.task or data.task) != data.task:
        measuring = load_task(held_out.task or data.task, path=held_out.path or None)
    loaded: list[Sequence[Problem]] = []
    for section, task, split in (("data", learning, data.split), ("held_out", measuring, held_out.split)):
        try:
            loaded.append(task.load(split))
        except TaskError as error:
            raise TaskError(f"{section}: {error}") from error
        if not loaded[-1]:
            raise TaskError(f"{section}: task {task.name} has no problems in its split {split!r}")
    learnt, tested = loaded
    known = {problem.question for problem in learnt}
    if both := [problem for problem in tested if problem.question in known]:
        raise TaskError(
            f"held_out: {len(both)} of {len(tested)} questions are learnt from, too, such as {both[0].id!r}; expected "
            "another split, path or task (held_out.split, held_out.path, held_out.task)"
        )
    if learning.name == measuring.name:
        return Questions(learning.grader, learnt, tested)
    graders: dict[str, Grader] = {}
    for task in (learning, measuring):
        graders |= task.grader.graders if isinstance(task.grader, MixGrader) else {task.name: task.grader}
    return Questions(MixGrader(graders), learnt, tested)


def training_problems(config: TrainConfig, questions: Questions, *, after: int = 0) -> list[Problem]:
    """``rollout.questions`` problems an iteration; those of the ``after`` iterations before are not drawn again."""
    iterations, each = config.rollout.iterations, config.rollout.questions
    if questions.learnt:
        return _shuffled(config, questions.learnt, config.data.split, iterations * each)
    return [
        question.problem()
        for iteration in range(iterations)
        for question in draw_questions(
            "train", each, seed=config.data.seed, mix=_mix(config, iteration), start=(after + iteration) * each
        )
    ]


def held_out_problems(config: TrainConfig, questions: Questions) -> list[Problem]:
    """``held_out.questions`` problems that no training sees; all there are where a task has fewer."""
    count = config.held_out.questions
    if questions.held_out:
        return _shuffled(config, questions.held_out, config.held_out.split, min(count, len(questions.held_out)))
    return [question.problem() for question in draw_questions("test", count, seed=HELD_OUT_SEED)]


def _shuffled(config: TrainConfig, problems: Sequence[Problem], split: str, count: int) -> list[Problem]:
    """Problems shuffled by seed; walked through again when they run out."""
    order, chosen = list(problems), list[Problem]()
    while len(chosen) < count:
        random.Random(f"{config.data.seed}/{split}/{len(chosen)}").shuffle(order)
        chosen += order
    return chosen[:count]


def _mix(config: TrainConfig, iteration: int) -> Mapping[Kind, float]:
    """The weights of the kinds: from ``easy`` in a straight line to even."""
    easy = config.data.easy
    length = config.data.curriculum * config.rollout.iterations
    if not easy or iteration >= length:
        return EQUAL_MIX
    done = iteration / length
    total = sum(easy)
    return {kind: (1 - done) * weight / total + done / len(KINDS) for kind, weight in zip(KINDS, easy, strict=True)}
