"""What a training learns from and is measured on, and what every phase of it needs.

In: a recipe. Out: one list of problems for training (in order, iteration after iteration) and one
held out, and who grades them. A problem depends only on its index and the seed, so a resumed run
sees what an uninterrupted one would have seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from openconductor.errors import ConfigError, TaskError
from openconductor.pool import WorkerPool
from openconductor.protocols import Grader, Task
from openconductor.tasks import load_task
from openconductor.tasks.paper_mix import MixGrader
from openconductor.tasks.simulated import Simulation, find_simulation
from openconductor.training.rollout import Scorer, reward_value
from openconductor.training.train_config import TrainConfig
from openconductor.types import Problem

HELD_OUT_SEED = 2_000_000  # no training draws with it


@dataclass(frozen=True, slots=True)
class Questions:
    """Where a training's questions come from.

    Attributes:
        grader: judges the answers to all of them.
        simulation: draws the problems; None: they are read from data.
        learnt: the problems that are learnt from, where they are read.
        held_out: those that a run is measured on, task by task; none of them is learnt from.
    """

    grader: Grader
    simulation: Simulation | None = None
    learnt: Sequence[Problem] = ()
    held_out: Sequence[Sequence[Problem]] = ()


@dataclass(frozen=True, slots=True)
class Setup:
    """What every phase of a run needs; only the first of its processes has a scorer."""

    config: TrainConfig
    folder: Path
    pool: WorkerPool
    questions: Questions
    scorer: Scorer | None
    say: Callable[[str], None]


def load_questions(config: TrainConfig) -> Questions:
    """Load a recipe's problems, before anything is paid for.

    Raises:
        ConfigError: there is no such task, two of them have one name, or there is no such function
            for the reward.
        TaskError: data are absent, or a question is both learnt from and held out.
    """
    data, held_out = config.data, config.held_out
    reward_value(config)
    learning = load_task(data.task, path=data.path or None)
    simulation = find_simulation(data.task)
    if simulation is not None:
        return Questions(learning.grader, simulation)
    measuring = [
        load_task(name, path=held_out.path or (data.path if name == data.task else "") or None)
        for name in held_out.tasks or (data.task,)
    ]
    learnt = _loaded("data", learning, data.split)
    known = {problem.question for problem in learnt}
    tested = [_loaded("held_out", task, held_out.split) for task in measuring]
    for problems in tested:
        if both := [problem for problem in problems if problem.question in known]:
            raise TaskError(
                f"held_out: {len(both)} of {len(problems)} questions are learnt from, too, such as {both[0].id!r}; "
                "expected another split, path or task (held_out.split, held_out.path, held_out.task)"
            )
    graders: dict[str, Grader] = {}
    for task in (learning, *measuring):
        own = (
            task.grader.graders if isinstance(task.grader, MixGrader) else {task.name: task.grader}
        )
        if two := [
            name for name in own if type(own[name]) is not type(graders.get(name, own[name]))
        ]:
            raise ConfigError(
                f"held_out.task: got two tasks that call themselves {two[0]!r}, expected different names"
            )
        graders |= own
    return Questions(MixGrader(graders), learnt=learnt, held_out=tested)


def _loaded(section: str, task: Task, split: str) -> Sequence[Problem]:
    try:
        problems = task.load(split)
    except TaskError as error:
        raise TaskError(f"{section}: {error}") from error
    if not problems:
        raise TaskError(f"{section}: task {task.name} has no problems in its split {split!r}")
    return problems


def training_problems(config: TrainConfig, questions: Questions) -> list[Problem]:
    """The problems of each of GRPO's iterations, in order, behind those of all rounds of imitation.

    An iteration has ``rollout.questions`` problems; half as many in recursion, where each has two
    rounds.
    """
    count = config.rollout.iterations * config.rollout.questions // config.rollout.rounds
    return _walked(config, questions, config.imitate.rounds * _asked(config), count)


def imitation_problems(
    config: TrainConfig, questions: Questions, number: int, weights: Mapping[str, float]
) -> list[Problem]:
    """The problems of one round of imitation; where they are drawn, kinds count by weight, too.

    A round has ``imitate.questions`` problems; half as many in recursion, where each is asked
    twice.
    """
    return _walked(config, questions, number * _asked(config), _asked(config), weights)


def _asked(config: TrainConfig) -> int:
    """The questions of a round of imitation."""
    return config.imitate.questions // config.rollout.rounds


def _walked(
    config: TrainConfig,
    questions: Questions,
    start: int,
    count: int,
    weights: Mapping[str, float] | None = None,
) -> list[Problem]:
    """``count`` problems from the place ``start`` on."""
    simulation = questions.simulation
    if simulation is None:
        return _shuffled(config, questions.learnt, config.data.split, start + count)[start:]
    mix = dict.fromkeys(simulation.kinds, 1.0)
    if config.data.mix:
        mix = dict(zip(simulation.kinds, config.data.mix, strict=True))
    for kind, weight in (weights or {}).items():
        if kind in mix:
            mix[kind] *= weight
    return simulation.draw(simulation.learnt, count, seed=config.data.seed, start=start, mix=mix)


def held_out_problems(config: TrainConfig, questions: Questions) -> list[Problem]:
    """``held_out.questions`` problems that no training sees, the tasks in turn; all where there are fewer."""
    count, tasks = config.held_out.questions, questions.held_out
    simulation = questions.simulation
    if simulation is not None:
        return simulation.draw(simulation.tested, count, seed=HELD_OUT_SEED)
    split, share = config.held_out.split, -(-count // len(tasks))
    chosen = [_shuffled(config, problems, split, min(share, len(problems))) for problems in tasks]
    in_turn = zip_longest(*chosen)  # so that the first few, too, are an equal share of each
    return [problem for several in in_turn for problem in several if problem is not None][:count]


def _shuffled(
    config: TrainConfig, problems: Sequence[Problem], split: str, count: int
) -> list[Problem]:
    """Problems shuffled by seed; walked through again when they run out."""
    order, chosen = list(problems), list[Problem]()
    while len(chosen) < count:
        random.Random(f"{config.data.seed}/{split}/{len(chosen)}").shuffle(order)
        chosen += order
    return chosen[:count]
