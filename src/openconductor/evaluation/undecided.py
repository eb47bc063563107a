"""Settle what graders cannot decide: such answers are wrong, masked, or judged by a worker.

Evaluations and trainings have the same rules (``settled``) and the same judge (``PoolJudge``). Only
a free-form grader asks a judge. What fails, a judge, grader or sandbox, masks an answer by any
rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from openconductor.episode import LiveEpisode
from openconductor.graders.code import CodeGrader
from openconductor.graders.freeform import FreeFormGrader, Judge, read_verdict
from openconductor.pool import WorkerPool
from openconductor.protocols import CallContext, Grader, OnEvent
from openconductor.store import Store
from openconductor.tasks.instructions import ALONE
from openconductor.tasks.paper_mix import MixGrader
from openconductor.types import (
    Completion,
    Episode,
    Grade,
    Message,
    Problem,
    Step,
    Undecided,
    Workflow,
    text_of,
)


class PoolJudge:
    """A worker of a pool as a judge, whose calls are billed, kept and replayed like all others.

    Equal questions are asked one after the other, so that the journal answers all but the first.
    With ``asks_again`` a question whose kept answers hold no verdict is asked once more.

    Args:
        pool: the workers, which answer from the journal.
        name: the worker that judges.
        journal: keeps its calls; None: they are not kept.
        context: carries the budget that pays for them.
        on_event: gets their events in place of the journal, and hands them on to it.
        asks_again: False: an answer without a verdict is replayed, too.

    Raises:
        ConfigError: the pool has no such worker.
    """

    def __init__(
        self,
        pool: WorkerPool,
        name: str,
        journal: Store | None,
        context: CallContext,
        on_event: OnEvent | None = None,
        *,
        asks_again: bool = False,
    ) -> None:
        self._pool = pool
        self._workflow = Workflow((Step(pool.ordinal_of(name), ALONE),))
        self._journal = journal
        self._context = context
        self._on_event = on_event or journal
        self._asks_again = asks_again
        self._samples: dict[str, int] = {}  # of the last answer to each question
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def complete(self, messages: Sequence[Message], *, call: CallContext) -> Completion:
        """Complete the conversation of a verdict, in an episode of its own.

        Raises:
            WorkerError: the call failed.
            BudgetExceeded, AuthFailed, JournalError: no later call can succeed.
        """
        del call
        question = text_of(messages)
        async with self._locks.setdefault(question, asyncio.Lock()):
            episode = await self._ask(question, self._samples.get(question, 0))
            if self._asks_again and question not in self._samples:
                self._samples[question] = 0
                while _is_kept(episode) and read_verdict(episode.answer or "") is None:
                    self._samples[question] += 1
                    episode = await self._ask(question, self._samples[question])
            if self._journal is not None:
                await self._journal.wait_durable()
        if episode.error is not None:
            raise episode.error
        return Completion(episode.answer or "")

    async def _ask(self, question: str, sample: int) -> Episode:
        context = replace(self._context, sample=sample)
        live = LiveEpisode(self._pool, question, context=context, on_event=self._on_event)
        async with live.play():
            live.answer = await live.answer_by(self._workflow)
        return live.episode


def _is_kept(episode: Episode) -> bool:
    """Return True if a journal answered the only call of an episode."""
    transcript = episode.rounds[-1].transcript
    return transcript is not None and transcript.results[0].calls[-1].replayed


def settled(grader: Grader, *, undecided: Undecided, judge: Judge | None) -> Grader:
    """Return a grader that settles what it cannot decide.

    Args:
        grader: of a task.
        undecided: the fate of what no judge is asked about. The verdicts of programs have none:
            they are undecided only if a sandbox failed, and masked.
        judge: is asked about free-form answers. What it cannot decide, either, is masked.
    """
    if isinstance(grader, MixGrader):
        parts: dict[str, Grader] = {}
        for name, part in grader.graders.items():
            parts[name] = settled(part, undecided=undecided, judge=judge)
        return MixGrader(parts)
    if isinstance(grader, CodeGrader):
        return grader
    if judge is not None and isinstance(grader, FreeFormGrader):
        return FreeFormGrader(judge)
    return _UndecidedIsWrong(grader) if undecided == "wrong" else grader


class _UndecidedIsWrong:
    """A grader that takes an undecided answer for a wrong one; a grader that fails still masks."""

    def __init__(self, inner: Grader) -> None:
        self._inner = inner

    async def grade(self, problem: Problem, answer: str) -> Grade:
        grade = await self._inner.grade(problem, answer)
        if grade.correct is not None:
            return grade
        note = grade.note
        if not note.startswith("undecided"):
            note = f"undecided: {note}"
        return replace(grade, correct=False, note=note)


def may_be_judged(problem: Problem, grader: Grader) -> bool:
    """Return True if a judge may be asked about answers to a problem."""
    if isinstance(grader, MixGrader):
        part = grader.graders.get(problem.task)
        return part is None or may_be_judged(problem, part)
    return isinstance(grader, FreeFormGrader)
