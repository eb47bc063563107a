"""Mixture-of-Agents (Wang et al. 2024, arXiv 2406.04692): every worker answers, one worker merges the answers.

In: a pool and the worker that merges. Out: Episodes of one round: a layer of proposals, further layers that each see
the one before, and the merge.
"""

from __future__ import annotations

from openconductor.baselines.instructions import merge, solve
from openconductor.baselines.pools import Baseline, check_count, forgiving_pool, ordinal_in, spoken
from openconductor.episode import Stage
from openconductor.errors import Refused
from openconductor.pool import WorkerPool
from openconductor.types import Question, Step, Workflow


class MixtureOfAgents(Baseline):
    """All workers propose side by side, one aggregator merges what they propose.

    A worker that declines to propose is passed over; where the aggregator declines, the episode ends in that.

    Args:
        pool: the workers, all of which propose, the aggregator too.
        aggregator: the name or ordinal of the worker that merges.
        layers: layers of proposals before the merge: in each but the first, every worker sees all proposals of the one
            before. The original counts the merge as one more: its default of 3 layers is ``layers=2`` here; the
            Conductor paper's 8 calls for 7 workers are ``layers=1``.

    Raises:
        ConfigError: the pool has no such worker, or ``layers`` is below 1.
    """

    def __init__(self, pool: WorkerPool, aggregator: int | str, *, layers: int = 1) -> None:
        self._aggregator = ordinal_in(pool, aggregator)
        check_count("MixtureOfAgents.layers", layers, 1)
        super().__init__(forgiving_pool(pool), f"MoA, merged by {pool[self._aggregator].name}")
        self._layers = layers

    async def play(self, stage: Stage) -> str | None:
        """One round, of the whole mixture."""
        workflow = self.workflow(stage.question)
        said = await spoken(stage, workflow)
        if said is not None and len(workflow) - 1 not in said:
            raise Refused("declined to answer")
        return None if said is None else said[len(workflow) - 1]

    def workflow(self, question: Question) -> Workflow:
        """The mixture as a workflow: ``layers`` times the pool's workers, and the merge."""
        steps = [Step(worker, solve(question)) for worker in self.pool.ordinals]
        size = len(steps)
        for layer in range(1, self._layers):
            before = range((layer - 1) * size, layer * size)
            steps += [Step(worker, merge(question), before) for worker in self.pool.ordinals]
        return Workflow((*steps, Step(self._aggregator, merge(question), range(len(steps) - size, len(steps)))))
