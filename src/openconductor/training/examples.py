"""What a training learns from and is measured on: problems with the kind they belong to.

In: a recipe. Out: one list of examples for training (in order, iteration after iteration) and one held out, and who
grades them. An example depends only on its index and the seed, so a resumed run sees what an uninterrupted one would
have seen.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from openconductor.errors import TaskError
from openconductor.gym.questions import KINDS, GymQuestion, Kind, Split, draw_questions
from openconductor.protocols import Grader
from openconductor.tasks import load_task
from openconductor.tasks.items import Benchmark
from openconductor.tasks.paper_mix import MixGrader
from openconductor.training.config import TrainConfig
from openconductor.types import Problem

HELD_OUT_SEED = 2_000_000  # no training draws with it


@dataclass(frozen=True, slots=True)
class Example:
    """A problem and its kind (the gym's kinds; elsewhere the task's name)."""

    problem: Problem
    kind: str


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
    learnt = _problems(learning, data.split, "data")
    tested = _problems(measuring, held_out.split, "held_out")
    known = {problem.question for problem in learnt}
    both = [problem for problem in tested if problem.question in known]
    if both:
        raise TaskError(
            f"held_out: {len(both)} of {len(tested)} questions are learnt from, too, such as {both[0].id!r}; expected "
            "another split, path or task (held_out.split, held_out.path, held_out.task)"
        )
    return Questions(_graders(learning, measuring), learnt, tested)


def _problems(task: Benchmark, split: str, section: str) -> Sequence[Problem]:
    try:
        problems = task.load(split)
    except TaskError as error:
        raise TaskError(f"{section}: {error}") from error
    if not problems:
        raise TaskError(f"{section}: task {task.name} has no problems in its split {split!r}")
    return problems


def _graders(*tasks: Benchmark) -> Grader:
    """One judge for the problems of several tasks."""
    if len({task.name for task in tasks}) == 1:
        return tasks[0].grader
    graders: dict[str, Grader] = {}
    for task in tasks:
        own = task.grader
        graders |= own.graders if isinstance(own, MixGrader) else {task.name: own}
    return MixGrader(graders)


def training_examples(config: TrainConfig, questions: Questions, *, after: int = 0) -> list[Example]:
    """``rollout.questions`` examples an iteration; those of the ``after`` iterations before are not drawn again."""
    count = config.rollout.iterations * config.rollout.questions
    if questions.learnt:
        return _shuffled(config, questions.learnt, config.data.split, count)
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


def held_out_examples(config: TrainConfig, questions: Questions) -> list[Example]:
    """``held_out.questions`` examples that no training sees; all there are where a task has fewer."""
    count = config.held_out.questions
    if questions.held_out:
        return _shuffled(config, questions.held_out, config.held_out.split, min(count, len(questions.held_out)))
    return gym_examples("test", count, seed=HELD_OUT_SEED)


def gym_examples(
    split: Split, count: int, *, seed: int, mix: Mapping[Kind, float] | None = None, start: int = 0
) -> list[Example]:
    """Questions of the gym as examples."""
    questions: list[GymQuestion] = draw_questions(split, count, seed=seed, mix=mix or _even(), start=start)
    return [Example(question.problem(), question.kind) for question in questions]


def _shuffled(config: TrainConfig, problems: Sequence[Problem], split: str, count: int) -> list[Example]:
    """Problems shuffled by seed; walked through again when they run out."""
    order, examples = list(problems), cast("list[Example]", [])
    while len(examples) < count:
        random.Random(f"{config.data.seed}/{split}/{len(examples)}").shuffle(order)
        examples += [Example(problem, problem.task) for problem in order]
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
