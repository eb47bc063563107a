"""The gym as a benchmark: problems drawn by seed, judged by exact comparison.

In: a split and a seed. Out: problems; the kind of each can be read off its text with ``read_question``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from openconductor.errors import ConfigError, TaskError
from openconductor.graders.exact import ExactGrader
from openconductor.gym.questions import SPLITS, draw_questions
from openconductor.gym.world import write_value
from openconductor.protocols import Grader
from openconductor.tasks.items import Item, Loaded, Source
from openconductor.types import Problem


@dataclass(frozen=True, slots=True)
class GymTask:
    """``count`` questions of the gym, all kinds alike."""

    count: int = 400
    seed: int = 0
    name: str = "gym"
    grader: Grader = field(default_factory=ExactGrader)
    split: str = "test"

    @property
    def about(self) -> str:
        """What it is, in a line."""
        return "drawn questions about lists, for simulated workers; no data needed"

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits, the default one first."""
        return (self.split, *(split for split in SPLITS if split != self.split))

    @property
    def dataset(self) -> None:
        """None: it is drawn."""
        return

    @property
    def source(self) -> Source:
        """How the default split is drawn."""
        return self.read().source

    def load(self, split: str = "") -> Sequence[Problem]:
        """Draw the problems of a split; "" is the default one.

        Raises:
            TaskError: there is no such split.
        """
        return self.read(split).problems

    def read(self, split: str = "") -> Loaded:
        """The problems with their kinds; of errors see ``load``."""
        split = split or self.split
        if split not in SPLITS:
            raise TaskError(f"task gym: got split {split!r}, expected one of {', '.join(SPLITS)}")
        items = tuple(
            Item(question.problem(), canonical=write_value(question.answer), subject=question.kind)
            for question in draw_questions(split, self.count, seed=self.seed)
        )
        note = f"{self.count} questions drawn with seed {self.seed}"
        return Loaded(
            items, Source("drawn", split, pinned=True, licence="Apache-2.0", problems=len(items), notes=(note,))
        )

    def canonical(self, problem: Problem) -> str:
        """The right answer to any of the gym's problems."""
        if not isinstance(problem.reference, str):
            raise TaskError(f"task gym: got the problem {problem.id!r}, expected one of the gym's")
        return problem.reference


def gym_task(*, limit: int = 400, seed: int | None = None, split: str = "test") -> GymTask:
    """The gym with the options that all tasks share.

    Raises:
        ConfigError: a limit below 1, or no such split.
    """
    if limit < 1:
        raise ConfigError(f"task option limit: got {limit}, expected 1 or more")
    if split not in SPLITS:
        raise ConfigError(f"task gym: got the split {split!r}, expected one of {', '.join(SPLITS)}")
    return GymTask(count=limit, seed=seed or 0, split=split)
