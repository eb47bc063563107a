"""The explorer: collaborations drawn at random, played to see what comes of them. In: a pool and a seed. Out: Episodes.

What it plays on a training split is what MASRouter learns from (``trials``). A draw is keyed by (seed, question,
sample): each repeat of a question tries another one.
"""

from __future__ import annotations

import random

from openconductor.baselines.collaboration import COLLABORATIONS, Collaboration
from openconductor.baselines.observed import text_of
from openconductor.baselines.playing import Baseline, Stage
from openconductor.baselines.pools import check_count
from openconductor.pool import WorkerPool
from openconductor.types import Question


class Explorer(Baseline):
    """Plays a collaboration drawn uniformly, with workers drawn uniformly.

    Args:
        pool: the workers.
        seed: keys the draws.

    Raises:
        ConfigError: the seed is below 0.
    """

    def __init__(self, pool: WorkerPool, *, seed: int = 0) -> None:
        check_count("Explorer.seed", seed, 0)
        super().__init__(pool, "explorer")
        self._seed = seed

    async def play(self, stage: Stage) -> str | None:
        """One round, of the collaboration that is drawn."""
        drawn, workers = self.draw(stage.question, sample=stage.sample)
        return (await stage.run(drawn.workflow(workers, stage.question))).answer

    def draw(self, question: Question, *, sample: int = 0) -> tuple[Collaboration, list[int]]:
        """The collaboration and the workers that are drawn for a question."""
        rng = random.Random(f"explorer/{self._seed}/{sample}/{text_of(question)}")
        drawn = rng.choice(COLLABORATIONS)
        return drawn, [rng.choice(self.pool.ordinals) for _ in drawn.seats]
