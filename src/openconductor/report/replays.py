"""Replays of a run's plans with one thing taken away at a time: what each step is worth.

In: Results and their folder. Out: Counterfactuals. In the gym replays are exact and free; elsewhere they go to the
run's own pool, where calls that were made before are found in the journals.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from openconductor.budget import BudgetMeter, PaidCall
from openconductor.errors import ConfigError
from openconductor.evaluation.counterfactual import (
    Counterfactuals,
    Options,
    Replay,
    counterfactuals,
    exact_replay,
    pool_replay,
)
from openconductor.evaluation.eval_config import GYM
from openconductor.evaluation.grid import give_back, open_purse
from openconductor.evaluation.records import JOURNAL, Record, Results, sample_number
from openconductor.evaluation.systems import load_pool, load_sheets
from openconductor.events import CallEnded, Event
from openconductor.journal import Journal, JournalReader
from openconductor.types import Budget, Completion, Problem, Workflow

REPLAYS = "counterfactual.sqlite"
"""The journal of the calls that replays made, beside the run's own."""


async def replayed(
    results: Results,
    folder: Path,
    *,
    system: str = "conductor",
    options: Options | None = None,
    limit: int | None = None,
    dollars: Decimal | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Counterfactuals:
    """Replay a system's plans with one thing taken away at a time.

    Args:
        results: of the evaluation in ``folder``.
        folder: the run's; new calls are journaled there in ``counterfactual.sqlite``, so that a second replay is free.
        system: whose plans.
        options: what is taken away.
        limit: the plans of so many questions only, evenly spread.
        dollars: what all replays may cost; None is no limit.
        on_progress: told how many replays are done, of how many.

    Raises:
        ConfigError: there is no record of the system.
        TaskError: the run's problems are not there any more.
        BudgetExceeded: the dollars are spent; what was paid for is kept.
    """
    records = _some(results.of(system), limit)
    if not records:
        raise ConfigError(f"report: no record of {system!r}, expected one of {', '.join(results.systems)}")
    sheets = load_sheets(results.config)
    problems = {(name, one.id): one for name, sheet in sheets.items() for one in sheet.problems}
    workers = results.workers
    options = options or Options(seed=results.config.seed or 0, concurrency=results.config.concurrency)
    if results.config.pool == GYM and all(one.task == GYM for one in records):
        return await counterfactuals(records, problems, exact_replay, workers, options=options, on_progress=on_progress)
    named = {id(problem): name for name, sheet in sheets.items() for problem in sheet.problems}

    def sample(problem: Problem, repeat: int) -> int:
        """The number that the evaluation's own calls have, so that unedited plans are found in its journal."""
        asked = "" if results.config.share_calls else system
        return sample_number(asked, named[id(problem)], problem.id, repeat)

    with ExitStack() as stack:
        run = stack.enter_context(JournalReader(folder / JOURNAL))
        journal = stack.enter_context(Journal(folder / REPLAYS))
        pool = load_pool(results.config)
        replaying = pool.replaying(_Both(journal, run))
        purse = None if dollars is None else open_purse(Budget(dollars=dollars), journal.totals().spent)
        replay = pool_replay(
            replaying,
            lambda problem: sheets[named[id(problem)]].grader,
            on_event=_Hearing(journal, purse),
            sample=sample,
        )
        try:
            return await counterfactuals(
                records, problems, _paid(replay, purse), workers, options=options, on_progress=on_progress
            )
        finally:
            await pool.aclose()


def _some(records: tuple[Record, ...], limit: int | None) -> list[Record]:
    """The records of so many questions, evenly spread over all."""
    keys = list(dict.fromkeys((record.task, record.problem) for record in records))
    if limit is None or limit >= len(keys):
        return list(records)
    chosen = {keys[place * len(keys) // limit] for place in range(limit)}
    return [record for record in records if (record.task, record.problem) in chosen]


def _paid(replay: Replay, purse: BudgetMeter | None) -> Replay:
    if purse is None:
        return replay

    async def paid(problem: Problem, workflow: Workflow, repeat: int) -> float | None:
        with PaidCall(purse):  # what is asked inside is charged to it
            return await replay(problem, workflow, repeat)

    return paid


@dataclass(frozen=True, slots=True)
class _Both:
    """Completions of the replays' journal, else of the run's."""

    journal: Journal
    run: JournalReader

    def find_completion(self, key: str) -> Completion | None:
        """The completion of a call of this key."""
        return self.journal.find_completion(key) or self.run.find_completion(key)


@dataclass(frozen=True, slots=True)
class _Hearing:
    """The replays' sink: their journal, and a purse that gets back what was paid for before."""

    journal: Journal
    purse: BudgetMeter | None
    wants_text = False

    def __call__(self, event: Event) -> None:
        self.journal(event)
        if isinstance(event, CallEnded):
            give_back(self.purse, event.call)

    async def wait_durable(self) -> None:
        """Wait until all that was heard is on the disk."""
        await self.journal.wait_durable()
