"""Ask any Orchestrator any problems, and grade the answers.

``evaluate`` does this for one system in memory. ``grid.run_grid`` makes a whole evaluation of it,
with a folder that it can be resumed from, and tables. Both ask by ``ask_and_settle``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from openconductor.errors import ConfigError
from openconductor.graders import grade_answer
from openconductor.protocols import CallContext, Grader, OnEvent, Orchestrator
from openconductor.reward import episode_correct
from openconductor.types import Episode, Grade, Problem

T = TypeVar("T")

SETTLING = 3
"""Episodes that may wait for their graders and the disk, for each that asks workers."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One problem, asked once.

    Attributes:
        grade: the verdict on the answer; None if there was no answer to grade.
        sample: which repeat of the problem this is, from 0.
    """

    problem: Problem
    episode: Episode
    grade: Grade | None
    sample: int = 0

    @property
    def correct(self) -> bool | None:
        """True if it counts as right, None if undecided (``reward.episode_correct``)."""
        return episode_correct(self.episode, self.grade)


async def evaluate(
    orchestrator: Orchestrator,
    problems: Sequence[Problem],
    grader: Grader,
    *,
    concurrency: int = 64,
    samples: int = 1,
    on_result: Callable[[Outcome], None] | None = None,
    on_event: OnEvent | None = None,
) -> list[Outcome]:
    """Ask every problem and grade the answers.

    Args:
        orchestrator: the Conductor or a baseline.
        problems: the problems to ask.
        grader: the judge.
        concurrency: the most episodes that ask workers at once.
        samples: how often each problem is asked.
        on_result: gets each outcome as it is known. An error that it raises ends the evaluation.
        on_event: gets every event of every episode, as a store that keeps them does.

    Returns:
        The outcomes: all samples of the first problem, then of the second, and so on.

    Raises:
        ConfigError: ``concurrency`` or ``samples`` is below 1.
        OpenConductorError: an error of the orchestrator or the grader whose fate is *stop*. What
            runs is cancelled.
    """
    if concurrency < 1 or samples < 1:
        got = f"concurrency {concurrency} and samples {samples}"
        raise ConfigError(f"evaluate: got {got}, expected at least 1 each")
    outcomes: dict[tuple[int, int], Outcome] = {}

    async def ask(cell: tuple[int, int]) -> Episode:
        index, sample = cell
        context = CallContext(sample=sample)
        question = problems[index].question
        return await orchestrator.ask(question, on_event=on_event, context=context)

    async def settle(cell: tuple[int, int], episode: Episode) -> None:
        index, sample = cell
        outcomes[cell] = await judge(problems[index], episode, grader, sample)
        if on_result is not None:
            on_result(outcomes[cell])

    cells = [(index, sample) for index in range(len(problems)) for sample in range(samples)]
    await ask_and_settle(one_by_one(cells), ask, settle, concurrency=concurrency)
    return [outcomes[cell] for cell in cells]


async def one_by_one(cells: Iterable[T]) -> AsyncIterator[T]:
    """Return the cells as ``ask_and_settle`` takes them."""
    for cell in cells:
        yield cell


async def ask_and_settle(
    cells: AsyncIterator[T],
    ask: Callable[[T], Awaitable[Episode | None]],
    settle: Callable[[T, Episode], Awaitable[None]],
    *,
    concurrency: int,
) -> None:
    """Ask every cell, and settle each episode: grade it, and keep it.

    There are two limits: how many cells are asked at once (``concurrency``), and how many are
    asked or settled at once (``SETTLING`` more for each). So a slow grader holds no worker up.

    Args:
        cells: what is asked, in order. A cell is drawn when it can be asked at once.
        ask: returns the episode of a cell; None: the cell is left out.
        settle: gets the cell and its episode.
        concurrency: the most cells that are asked at once.

    Raises:
        Exception: the first error of ``ask`` or ``settle``; everything else is cancelled.
    """
    asking = asyncio.Semaphore(concurrency)

    async def lane() -> None:
        while True:
            async with asking:
                try:
                    cell = await anext(cells)
                except StopAsyncIteration:
                    return
                episode = await ask(cell)
            if episode is not None:
                await settle(cell, episode)

    await _run_lanes(lane, (1 + SETTLING) * concurrency)


async def judge(problem: Problem, episode: Episode, grader: Grader, sample: int) -> Outcome:
    """Grade the answer of an episode, if it has one."""
    grade = None
    if episode.answer is not None:
        grade = await grade_answer(grader, problem, episode.answer)
    return Outcome(problem, episode, grade, sample)


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]], *, limit: int) -> None:
    """Do the work on every item, on at most ``limit`` at once.

    Raises:
        Exception: the first error of ``work``, as it is; everything else is cancelled.
    """
    waiting = iter(items)

    async def lane() -> None:
        for item in waiting:  # all lanes draw from one iterator
            await work(item)

    await _run_lanes(lane, limit)


async def _run_lanes(lane: Callable[[], Coroutine[None, None, None]], count: int) -> None:
    """Run ``count`` copies of a lane at once.

    Raises:
        Exception: the first error of a lane, as it is; the others are cancelled.
    """
    try:
        async with asyncio.TaskGroup() as lanes:
            for _ in range(count):
                lanes.create_task(lane())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
