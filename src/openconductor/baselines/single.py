"""Baselines of one worker: alone, with a larger token budget, or revising its own attempts."""

from __future__ import annotations

from dataclasses import replace

from openconductor.baselines.pools import Baseline, check_count, ordinal_in
from openconductor.episode import LiveEpisode
from openconductor.errors import ConfigError, caused_by_plan
from openconductor.pool import WorkerPool
from openconductor.tasks.instructions import ALONE
from openconductor.tasks.simulated import instructions_for
from openconductor.types import Message, Question, Step, Workflow


class SingleWorker(Baseline):
    """Asks one worker of a pool, which is sent only the question.

    Args:
        pool: the pool.
        worker: the worker's name or ordinal.

    Attributes:
        worker: the worker's ordinal.

    Raises:
        ConfigError: the pool has no such worker.
    """

    def __init__(self, pool: WorkerPool, worker: int | str) -> None:
        self.worker = ordinal_in(pool, worker)
        super().__init__(pool, pool[self.worker].name)

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """Return one step that adds nothing to the question."""
        return Workflow((Step(self.worker, ALONE),))


class LongContext(SingleWorker):
    """Asks one worker, which may write ``times`` as many tokens as else (the paper's "5x context").

    Only ``max_tokens`` grows; what a worker's ``body`` says about reasoning is sent as it is.

    Args:
        pool: the workers.
        worker: the worker's name or ordinal.
        times: the factor.
        max_tokens: the limit that is multiplied; default: the worker's own.

    Raises:
        ConfigError: the pool has no such worker, a number is below 1, or the worker has no limit to
            multiply: then the row would be the worker alone under another name.
    """

    def __init__(
        self, pool: WorkerPool, worker: int | str, *, times: int = 5, max_tokens: int | None = None
    ) -> None:
        ordinal = ordinal_in(pool, worker)
        check_count("LongContext.times", times, 1)
        if max_tokens is not None:
            check_count("LongContext.max_tokens", max_tokens, 1)
        chosen = pool[ordinal]
        limit = max_tokens or chosen.sampling.max_tokens
        if limit is None:
            raise ConfigError(
                f"LongContext: worker {chosen.name!r} has no max_tokens, expected a limit to "
                "multiply: give max_tokens"
            )
        sampling = replace(chosen.sampling, max_tokens=times * limit)
        super().__init__(WorkerPool({ordinal: replace(chosen, sampling=sampling)}), ordinal)
        self.name += f", {times}x context"


class Reflection(SingleWorker):
    """Lets one worker revise its own answer up to ``n`` times, until it lets it stand.

    The earlier attempts are in its context. The idea is Self-Refine's (Madaan et al. 2023, arXiv
    2303.17651), without a separate turn of feedback: the worker says that its answer stands
    (``STANDS``), or gives another one. A revision that is declined leaves the attempt before it
    standing, and ends it, as a Conductor's later round does. A failure of transport or provider
    ends the episode unanswered, because cut short it would be scored as less than it is. An
    admitted failure (``Instructions.is_answer``) is not an attempt: the question is asked again,
    and no failure takes the place of an answer.

    Args:
        pool: the workers.
        worker: the worker's name or ordinal.
        n: how often it is asked to revise.

    Raises:
        ConfigError: the pool has no such worker, or an option is out of its range.
    """

    def __init__(self, pool: WorkerPool, worker: int | str, *, n: int = 5) -> None:
        super().__init__(pool, worker)
        check_count("Reflection.n", n, 1)
        self.name += f", {n}x reflection"
        self._n = n

    async def play(self, live: LiveEpisode) -> str | None:
        """Play a first attempt, and the rounds of revision."""
        answer = await super().play(live)
        if answer is None:
            return None
        words = instructions_for(live.question)
        response, instruction = answer, ALONE
        opening = list(live.opening)
        for _ in range(self._n):
            if words.is_answer(response):
                answer = response
                opening += [Message("user", instruction), Message("assistant", answer)]
                instruction = words.revise()
            step = Step(self.worker, instruction)
            transcript = await live.run(Workflow((step,)), opening=opening)
            if transcript.error is not None and not caused_by_plan(transcript.error):
                return None
            if transcript.answer is None or words.stands(answer, transcript.answer):
                return answer
            response = transcript.answer
        return response if words.is_answer(response) else answer
