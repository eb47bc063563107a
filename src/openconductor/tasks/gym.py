"""The gym as a benchmark: problems drawn by seed, judged by exact comparison.

In: a split and a seed. Out: problems; the kind of each can be read off its text with ``read_question``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from openconductor.errors import TaskError
from openconductor.graders.exact import ExactGrader
from openconductor.gym.questions import SPLITS, draw_questions
from openconductor.protocols import Grader
from openconductor.types import Problem


@dataclass(frozen=True, slots=True)
class GymTask:
    """``count`` questions of the gym, all kinds alike."""

    count: int = 400
    seed: int = 0
    name: str = "gym"
    grader: Grader = field(default_factory=ExactGrader)

    def load(self, split: str = "test") -> Sequence[Problem]:
        """Draw the problems of a split.

        Raises:
            TaskError: there is no such split.
        """
        if split not in SPLITS:
            raise TaskError(f"task gym: got split {split!r}, expected one of {', '.join(SPLITS)}")
        return [question.problem() for question in draw_questions(split, self.count, seed=self.seed)]
