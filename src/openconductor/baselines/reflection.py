"""Self-reflection: one worker answers, then looks at its attempts and answers again, several times.

In: a pool and a worker. Out: Episodes of up to n + 1 rounds of one step; each sees all attempts before it. The idea is
Self-Refine's (Madaan et al. 2023, arXiv 2303.17651), without a separate turn of feedback.
"""

from __future__ import annotations

from openconductor.baselines.instructions import ALONE, DONE, revise
from openconductor.baselines.pools import Baseline, check_count, ordinal_in
from openconductor.baselines.single import alone
from openconductor.episode import Stage
from openconductor.errors import ConfigError, caused_by_plan
from openconductor.pool import WorkerPool
from openconductor.types import Message, Step, Workflow


class Reflection(Baseline):
    """One worker revises its own answer up to ``n`` times, its earlier attempts in context; the last one counts.

    A revision that is declined leaves the attempt before it standing, and ends it, as a Conductor's later round does. A
    failure of transport or provider ends the episode unanswered: cut short, it would be scored as less than it is.

    Args:
        pool: the workers.
        worker: the worker's name or ordinal.
        n: how often it is asked to revise.
        may_stop: whether it is told that it may say that it is done, and is then asked no more.

    Raises:
        ConfigError: the pool has no such worker, or an option is out of its range.
    """

    def __init__(self, pool: WorkerPool, worker: int | str, *, n: int = 5, may_stop: bool = False) -> None:
        self._worker = ordinal_in(pool, worker)
        check_count("Reflection.n", n, 1)
        if type(may_stop) is not bool:
            raise ConfigError(f"Reflection.may_stop: got {may_stop!r}, expected true or false")
        super().__init__(pool, f"{pool[self._worker].name}, {n}x reflection")
        self._n = n
        self._may_stop = may_stop

    async def play(self, stage: Stage) -> str | None:
        """A first attempt, and the rounds of revision."""
        answer = await stage.answer_by(alone(self._worker))
        if answer is None:
            return None
        instruction = revise(stage.question, may_stop=self._may_stop)
        attempts: list[Message] = []
        for _ in range(self._n):
            attempts += [Message("user", instruction if attempts else ALONE), Message("assistant", answer)]
            transcript = await stage.run(Workflow((Step(self._worker, instruction),)), after=attempts)
            if transcript.error is not None and not caused_by_plan(transcript.error):
                return None
            revised = transcript.answer
            if revised is None or (self._may_stop and revised.strip().strip(".!*\"'").upper() == DONE):
                break
            answer = revised
        return answer
