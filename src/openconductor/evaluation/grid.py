"""Asking a grid of cells: many at once, each kept in the journal as soon as it is graded.

In: cells, a journal. Out: a Record a cell, in the journal's ``outcomes``; nothing of it stays in memory.

- **Places.** At most ``concurrency`` episodes ask workers at once. An episode whose answer is there gives its place to
  the next one, while it waits for the disk and for its grader; of these there is a bound, too.
- **A cell is done** when its record is in the journal. One that was cut off is asked again, by systems that answer from
  the journal what stands there, so that nothing acknowledged is paid for twice.
- **Two kinds of stop.** Where the budget of the evaluation is spent, no episode is begun, and those that need nothing
  more come to their end; one that does ends, with its steps in flight. Every other error whose fate is *stop* cancels
  what runs. Either way the journal holds all that came.

Not covered: which systems and tasks (``systems``, ``inputs``), what becomes of the records (``results``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from openconductor.budget import BudgetMeter, PaidCall
from openconductor.errors import BudgetExceeded
from openconductor.evaluation.cells import Cell
from openconductor.evaluation.records import Record, record_of, to_json
from openconductor.evaluation.run import Outcome
from openconductor.events import Answered, Asked, CallEnded, Event
from openconductor.journal import Journal, Spending
from openconductor.reward import grade_answer
from openconductor.types import Budget, Call, Episode, Usage

SETTLING = 3
"""Episodes that may wait for the disk and their graders, for each that asks workers."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an evaluation is.

    Attributes:
        record: the cell that was just done.
        done: cells done, those of earlier runs among them.
        total: all cells.
        spent: what was paid for so far, in all runs of this evaluation; what was answered from the journal is not.
    """

    record: Record
    done: int
    total: int
    spent: Spending


OnProgress = Callable[[Progress], None]


class Purse(BudgetMeter):
    """What a whole evaluation may still spend; a call that a journal answered is given back.

    Args:
        budget: what all runs of the evaluation may cost together.
        spent: what earlier runs have paid.
    """

    __slots__ = ()

    def __init__(self, budget: Budget, spent: Spending) -> None:
        dollars, calls = budget.dollars, budget.calls
        if dollars is not None:
            dollars = max(Decimal(0), dollars - spent.usage.dollars)
            if budget.dollars and not dollars:
                calls = 0  # a budget of 0 dollars would still pay for workers of unknown cost, once
        if calls is not None:
            calls = max(0, calls - spent.calls)
        super().__init__(Budget(calls=calls, dollars=dollars), now=0.0)

    def give_back(self, call: Call) -> None:
        """Take a call for not made: it was paid for by an earlier one."""
        self._calls -= 1
        self.charge(replace(_NOTHING, dollars=-call.usage.dollars))


class Grid:
    """Asks cells.

    Args:
        journal: takes in all events and records.
        concurrency: the most episodes that ask workers at once.
        shared: whether systems share the completions of equal calls (``cells``).
        budget: what all runs of the evaluation may cost together; None is no limit.
        on_progress: told after each cell.

    Attributes:
        spent: what was paid for, in all runs of the evaluation.
        purse: what may still be spent; None is no limit.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        concurrency: int,
        shared: bool = False,
        budget: Budget | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._journal = journal
        self._places = asyncio.Semaphore(concurrency)
        self._tasks = asyncio.Semaphore((1 + SETTLING) * concurrency)
        self._shared = shared
        self.spent = journal.totals().spent
        self.purse = None if budget is None else Purse(budget, self.spent)
        self._on_progress = on_progress
        self._empty: BudgetExceeded | None = None
        self._done = self._total = 0

    async def play(self, cells: Iterable[Cell], *, done: int, total: int) -> None:
        """Ask the cells and keep their records.

        Args:
            cells: those that are to be asked.
            done: how many of the total are done already.
            total: how many there are in all; both for ``on_progress``.

        Raises:
            BudgetExceeded: the evaluation's budget is spent; asking the same cells again goes on.
            OpenConductorError: another one whose fate is *stop*.
        """
        self._done, self._total = done, total
        try:
            async with asyncio.TaskGroup() as group:
                for cell in cells:
                    await self._tasks.acquire()
                    await self._places.acquire()
                    if self._empty is not None:
                        break
                    group.create_task(self._play(cell))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first one ended it all
        if self._empty is not None:
            calls = "1 call" if self.spent.calls == 1 else f"{self.spent.calls} calls"
            raise BudgetExceeded(
                f"the evaluation's budget is spent, {self._done} of {self._total} questions are done: paid {calls} and "
                f"${self.spent.usage.dollars}; with a larger budget it goes on from there",
                limit=self._empty.limit,
            ) from self._empty

    async def _play(self, cell: Cell) -> None:
        place = _Place(self._places)
        try:
            episode = await self._ask(cell, place)
            place.leave()
            grade = (
                None if episode.answer is None else await grade_answer(cell.sheet.grader, cell.problem, episode.answer)
            )
            outcome = Outcome(cell.problem, episode, grade, cell.repeat)
            record = replace(record_of(outcome, system=cell.system.name), task=cell.sheet.name)
            self._journal.put_outcome(cell.key, to_json(record))
        except BudgetExceeded as error:  # the evaluation's: a question's own is data
            self._empty = error
        else:
            self._done += 1
            if self._on_progress is not None:
                self._on_progress(Progress(record, self._done, self._total, self.spent))
        finally:
            place.leave()
            self._tasks.release()

    async def _ask(self, cell: Cell, place: _Place) -> Episode:
        system = cell.system
        hears = _Hearing(self, place)
        sample = cell.sample(shared=self._shared)
        question, budget = cell.problem.question, system.budget
        try:
            if self.purse is None:
                return await system.orchestrator.ask(question, budget=budget, on_event=hears, sample=sample)
            with PaidCall(self.purse):  # what is asked inside is charged to it
                return await system.orchestrator.ask(question, budget=budget, on_event=hears, sample=sample)
        except BudgetExceeded as error:
            if error.episode is None or (self.purse is not None and self.purse.ended_in(error)):
                raise
            return error.episode

    def hear(self, event: Event) -> None:
        """Take in an event of any episode."""
        self._journal(event)
        if not isinstance(event, CallEnded):
            return
        call = event.call
        if call.replayed:
            if self.purse is not None:
                self.purse.give_back(call)
        else:
            self.spent += Spending(1, call.usage)

    async def wait_durable(self) -> None:
        """Wait until all that was heard is on the disk."""
        await self._journal.wait_durable()


_NOTHING = Usage()


class _Place:
    """One of the places of those who ask workers; left once."""

    __slots__ = ("_places",)

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places: asyncio.Semaphore | None = places

    def leave(self) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.release()


class _Hearing:
    """The sink of one cell: everything goes to the grid, and the place is left when the episode is over."""

    wants_text = False
    __slots__ = ("_episode", "_grid", "_place")

    def __init__(self, grid: Grid, place: _Place) -> None:
        self._grid = grid
        self._place = place
        self._episode = ""

    def __call__(self, event: Event) -> None:
        self._grid.hear(event)
        if isinstance(event, Asked):
            self._episode = self._episode or event.episode
        elif isinstance(event, Answered) and event.episode == self._episode:
            self._place.leave()

    async def wait_durable(self) -> None:
        await self._grid.wait_durable()
