"""The setting of a training: the questions to learn from, the questions to measure on, its phases.

A problem depends only on its index and the seed, so a resumed run sees what an uninterrupted run
would have seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from openconductor.errors import ConfigError, TaskError
from openconductor.pool import WorkerPool, open_pool
from openconductor.prompt import drop_answer_form
from openconductor.protocols import Grader, Task
from openconductor.tasks import Benchmark, load_task
from openconductor.tasks.paper_mix import MixGrader
from openconductor.tasks.prompts import ANSWER_FORMS
from openconductor.tasks.simulated import Simulation, find_simulation
from openconductor.training.scoring import Scorer, keeps_calls, reward_value
from openconductor.training.train_config import BudgetConfig, TrainConfig
from openconductor.types import Problem

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

    from openconductor.store import CompletionStore

HELD_OUT_SEED = 2_000_000
"""The seed of drawn questions that a run is measured on; no training draws with it."""


@dataclass(frozen=True, slots=True)
class Questions:
    """The source of a training's questions.

    Attributes:
        grader: judges the answers to all of them.
        simulation: draws the problems; None: they are read from data.
        tasks: the tasks that the problems are read from.
        learnt: the problems that are learnt from, where they are read.
        held_out: the problems that a run is measured on, task by task; none of them is learnt from.
    """

    grader: Grader
    simulation: Simulation | None = None
    tasks: Sequence[Benchmark] = ()
    learnt: Sequence[Problem] = ()
    held_out: Sequence[Sequence[Problem]] = ()

    @property
    def recorded(self) -> frozenset[str]:
        """The names of the workers whose answers the tasks hold."""
        return frozenset(name for task in self.tasks for name in task.recorded)

    @property
    def answer_forms(self) -> tuple[str, ...]:
        """The texts at the end of questions that ask workers for a form of the answer."""
        if self.simulation is not None:
            return ()
        own = [form for task in self.tasks for form in task.answer_forms]
        return tuple(dict.fromkeys((*ANSWER_FORMS, *own)))

    def planned(self, problem: Problem) -> str:
        """Return the question as the Conductor is shown it: without the form of the answer.

        So it plans alike for a user's question, which asks for none.
        """
        return drop_answer_form(problem.question, self.answer_forms)

    def draw_subtasks(self, problem: Problem, rng: random.Random) -> Sequence[str]:
        """Return an instruction for each part of a learnt problem; (): its task knows no parts."""
        return self.tasks[0].draw_subtasks(problem, rng) if self.tasks else ()


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that a phase of a run needs.

    Attributes:
        config: the recipe.
        folder: of the run.
        pool: all workers.
        questions: to learn from and to measure on.
        scorer: plays and grades completions; None in all processes but the first.
        say: gets lines for people.
    """

    config: TrainConfig
    folder: Path
    pool: WorkerPool
    questions: Questions
    scorer: Scorer | None
    say: Callable[[str], None]

    @property
    def curve_path(self) -> Path:
        """The file with a record of each round of imitation and each iteration of GRPO."""
        return self.folder / "curves.jsonl"


@dataclass(frozen=True, slots=True)
class Learner:
    """A model that a phase trains in place.

    Attributes:
        model: the model of the phase before.
        tokenizer: of the model.
        checkpoints: the folder for the phase's checkpoints.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    checkpoints: Path


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a training, which makes one model of another.

    Attributes:
        name: of the phase.
        run: trains the model from the last whole checkpoint on; returns the trainer.
        is_wanted: returns True if the recipe has this phase.
        graded: True if it learns from graded answers. The start is measured before the first such
            phase.
        folder: of the trained model, in the run's folder; "": the name.
        checkpoints: the folder of its checkpoints; "": the name and ``_checkpoints``.
    """

    name: str
    run: Callable[[Setup, Learner], Trainer]
    is_wanted: Callable[[TrainConfig], bool] = lambda _: True
    graded: bool = True
    folder: str = ""
    checkpoints: str = ""

    def model_folder(self, run: Path) -> Path:
        """Return the folder of the trained model."""
        return run / (self.folder or self.name)

    def checkpoint_folder(self, run: Path) -> Path:
        """Return the folder of the checkpoints."""
        return run / (self.checkpoints or f"{self.name}_checkpoints")


# ── questions ─────────────────────────────────────────────────────────────────────────────────────
def load_questions(config: TrainConfig) -> Questions:
    """Load a recipe's problems, before anything is paid for.

    Raises:
        ConfigError: a task is unknown, two of them have one name, or the function of the reward is
            unknown.
        TaskError: data are absent, or a question is both learnt from and held out.
    """
    data, held_out = config.data, config.held_out
    reward_value(config)
    learning = load_task(data.task, path=data.path or None)
    simulation = find_simulation(data.task)
    if simulation is not None:
        return Questions(learning.grader, simulation)
    measuring: list[Benchmark] = []
    for name, path in config.held_out_paths.items():
        same = (name, path) == (data.task, data.path)
        measuring.append(learning if same else load_task(name, path=path or None))
    learnt = _load_split("data", learning, data.split)
    if data.judged_inside == "left_out":
        learnt = [problem for problem in learnt if not _is_judged_inside(problem)]
        if not learnt:
            raise TaskError(
                f"data: all problems of {learning.name} are judged in the program's own process; "
                'use another task, or data.judged_inside = "learnt"'
            )
    known = {problem.question for problem in learnt}
    tested = [_load_split("held_out", task, held_out.split) for task in measuring]
    for problems in tested:
        both = [problem for problem in problems if problem.question in known]
        if both:
            raise TaskError(
                f"held_out: {len(both)} of {len(problems)} questions are also learnt from, such as "
                f"{both[0].id!r}; use another split, path or task (held_out.split, held_out.path, "
                "held_out.task)"
            )
    tasks = list(dict.fromkeys([learning, *measuring]))
    return Questions(_joint_grader(tasks), tasks=tasks, learnt=learnt, held_out=tested)


def _is_judged_inside(problem: Problem) -> bool:
    """Return True if an answer's program and its tests share a process (``CodeTests``)."""
    return getattr(problem.reference, "judged_by", "outside") == "inside"


def open_workers(
    config: TrainConfig, questions: Questions, journal: CompletionStore | None = None
) -> WorkerPool:
    """Open the pool; the workers answer from recorded answers, and else from the journal.

    Raises:
        ConfigError: the pool is wrong, or the answers are recorded and live calls have no limit.
    """
    pool = open_pool(config.pool, config.seed)
    if journal is not None and keeps_calls(config, pool):
        pool = pool.replaying(journal)
    for task in questions.tasks:
        pool = task.with_records(pool)
    recorded = questions.recorded & set(pool.names.values())
    if recorded and config.budget == BudgetConfig():
        _check_all_recorded(config, pool, recorded)
    return pool


def _check_all_recorded(config: TrainConfig, pool: WorkerPool, recorded: Set[str]) -> None:
    """Check that a training from recorded answers without a budget makes no live call."""
    live = [name for name in pool.names.values() if name not in recorded]
    reason = ""
    if live:
        reason = f"{config.data.path} has no answers of {', '.join(live)}"
    elif config.rollout.rounds > 1:
        reason = "steps of second rounds see earlier answers (rollout.rounds)"
    elif config.rollout.max_steps > 1:
        reason = "steps may see earlier answers (rollout.max_steps above 1)"
    if reason:
        raise ConfigError(
            f"budget.calls: got no limit, and {reason}, which asks workers live; expected a limit "
            "on live calls (budget.calls or budget.dollars), or rollout.max_steps = 1 and only "
            "recorded workers"
        )


def _joint_grader(tasks: Sequence[Task]) -> MixGrader:
    """Return a grader that asks the grader of a problem's own task.

    Raises:
        ConfigError: two tasks with different graders have one name.
    """
    graders: dict[str, Grader] = {}
    for task in tasks:
        own = {task.name: task.grader}
        if isinstance(task.grader, MixGrader):
            own = dict(task.grader.graders)
        for name, grader in own.items():
            if type(graders.get(name, grader)) is not type(grader):
                raise ConfigError(
                    f"held_out.task: two tasks call themselves {name!r}; give them different names"
                )
        graders |= own
    return MixGrader(graders)


def _load_split(section: str, task: Task, split: str) -> Sequence[Problem]:
    try:
        problems = task.load(split)
    except TaskError as error:
        raise TaskError(f"{section}: {error}") from error
    if not problems:
        raise TaskError(f"{section}: task {task.name} has no problems in its split {split!r}")
    return problems


def training_problems(config: TrainConfig, questions: Questions) -> list[Problem]:
    """Return the problems of all GRPO iterations, in order; they follow those of imitation.

    An iteration has ``rollout.questions`` problems; half as many in recursion, where each has two
    rounds.
    """
    start = config.imitate.rounds * _questions_per_round(config)
    count = config.rollout.iterations * config.rollout.questions // config.rollout.rounds
    return _problems(config, questions, start, count)


def imitation_problems(
    config: TrainConfig, questions: Questions, number: int, weights: Mapping[str, float]
) -> list[Problem]:
    """Return the problems of one round of imitation; drawn ones are weighted by kind.

    A round has ``imitate.questions`` problems; half as many in recursion, where each is asked
    twice.
    """
    count = _questions_per_round(config)
    return _problems(config, questions, number * count, count, weights)


def _questions_per_round(config: TrainConfig) -> int:
    return config.imitate.questions // config.rollout.rounds


def _problems(
    config: TrainConfig,
    questions: Questions,
    start: int,
    count: int,
    weights: Mapping[str, float] | None = None,
) -> list[Problem]:
    """Return ``count`` problems from the index ``start`` on."""
    simulation = questions.simulation
    if simulation is None:
        return _shuffle(config, questions.learnt, config.data.split, start + count)[start:]
    mix = dict.fromkeys(simulation.kinds, 1.0)
    if config.data.mix:
        mix = dict(zip(simulation.kinds, config.data.mix, strict=True))
    for kind, weight in (weights or {}).items():
        if kind in mix:
            mix[kind] *= weight
    return simulation.draw(simulation.learnt, count, seed=config.data.seed, start=start, mix=mix)


def held_out_problems(config: TrainConfig, questions: Questions) -> list[Problem]:
    """Return at most ``held_out.questions`` problems that no training sees, the tasks in turn."""
    count, tasks = config.held_out.questions, questions.held_out
    simulation = questions.simulation
    if simulation is not None:
        return simulation.draw(simulation.tested, count, seed=HELD_OUT_SEED)
    share = -(-count // len(tasks))
    split = config.held_out.split
    chosen = [_shuffle(config, problems, split, min(share, len(problems))) for problems in tasks]
    # In turn, so that the first few, too, are an equal share of each task.
    mixed = [problem for turn in zip_longest(*chosen) for problem in turn if problem is not None]
    return mixed[:count]


def _shuffle(
    config: TrainConfig, problems: Sequence[Problem], split: str, count: int
) -> list[Problem]:
    """Return problems shuffled by seed; they are shuffled again when they run out."""
    order = list(problems)
    chosen: list[Problem] = []
    while len(chosen) < count:
        rng = random.Random(f"{config.data.seed}/{split}/{len(chosen)}")
        rng.shuffle(order)
        chosen += order
    return chosen[:count]
