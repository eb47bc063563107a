"""The gym as a benchmark: problems drawn by seed, judged by exact comparison.

In: a split and a seed. Out: problems; the kind of each can be read off its text with
``read_question``.
"""

from __future__ import annotations

from typing import cast

from openconductor.graders.exact import ExactGrader
from openconductor.gym.questions import SPLITS, Split, draw_questions
from openconductor.gym.world import write_value
from openconductor.tasks.items import Benchmark, Item, Loaded, Source


class GymTask(Benchmark):
    """``limit`` questions of the gym, all kinds alike.

    Raises:
        ConfigError: a limit below 1, or no such split.
    """

    def __init__(self, *, limit: int = 400, seed: int | None = None, split: str = "test") -> None:
        about = "drawn questions about lists, for simulated workers; no data needed"
        super().__init__("gym", about, SPLITS, ExactGrader(), split=split, limit=limit)
        self._count, self._seed = limit, seed or 0

    def _read(self, split: str) -> Loaded:
        items = tuple(
            Item(question.problem(), canonical=write_value(question.answer), subject=question.kind)
            for question in draw_questions(cast("Split", split), self._count, seed=self._seed)
        )
        note = f"{self._count} questions drawn with seed {self._seed}"
        source = Source(
            "drawn", split, pinned=True, licence="Apache-2.0", problems=len(items), notes=(note,)
        )
        return Loaded(items, source)
