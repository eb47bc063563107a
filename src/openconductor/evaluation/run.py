"""Ask and grade: every problem, as often as wanted, many at once.

In: an Orchestrator, problems, a grader. Out: an Outcome a problem and sample, in that order, whatever came first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from openconductor.errors import ConfigError
from openconductor.protocols import Grader, Orchestrator
from openconductor.reward import episode_correct, grade_answer
from openconductor.types import Episode, Grade, Problem


@dataclass(frozen=True, slots=True)
class Outcome:
    """One problem, asked once.

    Attributes:
        problem: the problem.
        episode: how it went.
        grade: the verdict, undecided where the grader failed; None where there was no answer to grade.
        sample: which repeat of the problem this is, from 0.
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
        OpenConductorError: one whose fate is *stop*, of the orchestrator or of the grader; what runs is cancelled.
    """
    if concurrency < 1 or samples < 1:
        raise ConfigError(f"evaluate: got concurrency {concurrency} and samples {samples}, expected at least 1 each")
    outcomes: list[Outcome | None] = [None] * (len(problems) * samples)

    async def lane(places: Iterator[int]) -> None:
        for place in places:  # all lanes draw from one iterator
            outcome = await _ask(orchestrator, problems[place // samples], grader, place % samples)
            outcomes[place] = outcome
            if on_result is not None:
                on_result(outcome)

    places = iter(range(len(outcomes)))
    try:
        async with asyncio.TaskGroup() as lanes:
            for _ in range(min(concurrency, len(outcomes))):
                lanes.create_task(lane(places))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # the first one ended it all
    return [outcome for outcome in outcomes if outcome is not None]


async def _ask(orchestrator: Orchestrator, problem: Problem, grader: Grader, sample: int) -> Outcome:
    episode = await orchestrator.ask(problem.question, sample=sample)
    grade: Grade | None = None
    if episode.answer is not None:
        grade = await grade_answer(grader, problem, episode.answer)
    return Outcome(problem, episode, grade, sample)
