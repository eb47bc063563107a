"""Evaluation: any Orchestrator over any problems, judged, counted, and said with how much certainty.

In: an Orchestrator, problems, a grader. Out: an Outcome a problem and sample, in that order,
whatever came first; ``grid`` makes a whole evaluation of it, with estimates, intervals and tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from openconductor.errors import ConfigError
from openconductor.protocols import CallContext, Grader, Orchestrator
from openconductor.reward import episode_correct, grade_answer
from openconductor.types import Episode, Grade, Problem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One problem, asked once: the episode, and its grade (None where there was no answer to grade).

    ``sample`` is which repeat of the problem this is, from 0.
    """

    problem: Problem
    episode: Episode
    grade: Grade | None
    sample: int = 0

    @property
    def correct(self) -> bool | None:
        """Whether it counts as right; None is undecided (``reward.episode_correct``)."""
        return episode_correct(self.episode, self.grade)


async def evaluate(
    orchestrator: Orchestrator,
    problems: Sequence[Problem],
    grader: Grader,
    *,
    concurrency: int = 64,
    samples: int = 1,
    on_result: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Ask every problem and grade the answers.

    Args:
        orchestrator: the Conductor or a baseline.
        problems: what to ask.
        grader: the judge.
        concurrency: the most episodes under way at once.
        samples: how often each problem is asked.
        on_result: gets each outcome as it is known; what it raises ends the evaluation.

    Returns:
        The outcomes: all samples of the first problem, then of the second, and so on.

    Raises:
        ConfigError: ``concurrency`` or ``samples`` is below 1.
        OpenConductorError: one whose fate is *stop*, of the orchestrator or of the grader; what
            runs is cancelled.
    """
    if concurrency < 1 or samples < 1:
        raise ConfigError(
            f"evaluate: got concurrency {concurrency} and samples {samples}, expected at least 1 each"
        )
    outcomes: dict[tuple[int, int], Outcome] = {}

    async def ask(place: tuple[int, int]) -> None:
        problem, sample = problems[place[0]], place[1]
        episode = await orchestrator.ask(problem.question, context=CallContext(sample=sample))
        outcomes[place] = await judged(problem, episode, grader, sample)
        if on_result is not None:
            on_result(outcomes[place])

    await at_once(
        ((index, sample) for index in range(len(problems)) for sample in range(samples)),
        ask,
        concurrency,
    )
    return [outcomes[place] for place in sorted(outcomes)]


async def judged(problem: Problem, episode: Episode, grader: Grader, sample: int) -> Outcome:
    """The episode with the grade of its answer, if it has one."""
    grade = None if episode.answer is None else await grade_answer(grader, problem, episode.answer)
    return Outcome(problem, episode, grade, sample)


async def at_once(items: Iterable[T], work: Callable[[T], Awaitable[None]], most: int) -> None:
    """Do the work on every item, at most ``most`` at once; its first error cancels what runs and comes out as it is."""
    waiting = iter(items)

    async def lane() -> None:
        for item in waiting:  # all lanes draw from one iterator
            await work(item)

    try:
        async with asyncio.TaskGroup() as lanes:
            for _ in range(most):
                lanes.create_task(lane())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
