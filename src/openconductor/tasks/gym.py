"""The gym as a benchmark: problems drawn by seed, judged by exact comparison.

In: a split and a seed. Out: problems; the kind of each can be read off its text with ``read_question``.
"""

from __future__ import annotations

from openconductor.errors import ConfigError, TaskError
from openconductor.graders.exact import ExactGrader
from openconductor.gym.questions import SPLITS, draw_questions
from openconductor.gym.world import write_value
from openconductor.protocols import Grader
from openconductor.tasks.items import Benchmark, Item, Loaded, Source


class GymTask(Benchmark):
    """``limit`` questions of the gym, all kinds alike.

    Raises:
        ConfigError: a limit below 1, or no such split.
    """

    def __init__(self, *, limit: int = 400, seed: int | None = None, split: str = "test") -> None:
        if limit < 1:
            raise ConfigError(f"task option limit: got {limit}, expected 1 or more")
        if split not in SPLITS:
            raise ConfigError(f"task gym: got the split {split!r}, expected one of {', '.join(SPLITS)}")
        about = "drawn questions about lists, for simulated workers; no data needed"
        super().__init__("gym", about, tuple(dict.fromkeys((split, *SPLITS))))
        self.limit = limit
        self.seed = seed or 0

    def _grader(self) -> Grader:
        return ExactGrader()

    def _read(self, split: str) -> Loaded:
        if split not in SPLITS:
            raise TaskError(f"task gym: got split {split!r}, expected one of {', '.join(SPLITS)}")
        items = tuple(
            Item(question.problem(), canonical=write_value(question.answer), subject=question.kind)
            for question in draw_questions(split, self.limit, seed=self.seed)
        )
        note = f"{self.limit} questions drawn with seed {self.seed}"
        source = Source("drawn", split, pinned=True, licence="Apache-2.0", problems=len(items), notes=(note,))
        return Loaded(items, source)
