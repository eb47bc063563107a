"""Replay a system's plans: elsewhere as a whole, and with one thing taken away at a time.

With ``load_conductor`` its planner is asked again, too.
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import blake2b
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, cast

from openconductor.baselines.pools import changed_pool
from openconductor.calls.budget import RunBudget
from openconductor.calls.worker import Worker
from openconductor.conductor import Conductor
from openconductor.errors import ConfigError, JournalError
from openconductor.evaluation.counterfactual import (
    Counterfactuals,
    Watch,
    counterfactuals,
    watch_exactly,
    watch_pool,
)
from openconductor.evaluation.eval_config import CONDUCTOR, MOST_REPEATS, PLANNER, read_spec
from openconductor.evaluation.grid import open_run_budget
from openconductor.evaluation.records import (
    Record,
    Results,
    journal_place,
    kept_calibrations,
    read_folder,
    sample_number,
)
from openconductor.evaluation.sheets import (
    load_sheets,
    open_judge,
    read_questions,
    settle_sheets,
)
from openconductor.evaluation.statistics import Key
from openconductor.evaluation.systems import Workshop, load_pool
from openconductor.protocols import CallContext, Grader, OnEvent
from openconductor.report.answers import merge_questions
from openconductor.report.orchestration import NO_SIBLINGS, Siblings
from openconductor.report.plays.again import AGAIN, Replan, plan_again
from openconductor.report.plays.transplants import Plays, play_plans, unread_workers
from openconductor.store import CompletionStore, StoreReader, open_store, read_store
from openconductor.store.serialisation import dumps, load, plain
from openconductor.store.storage import write_whole
from openconductor.types import Budget, Completion, Problem, Round, Transcript

OnProgress = Callable[[int, int], None]
"""Told how many plays are done, of how many."""
REPLAYS = "counterfactual.sqlite"
"""The journal of the calls that replays made, beside the run's own."""
KEPT = "replays.json"
"""The results of the replays of each system."""


def replays_are_free(results: Results, folder: Path) -> bool:
    """Return True if replays cost nothing: over simulated workers, and over recorded models."""
    if results.config.simulated:
        return True
    inputs = cast("Mapping[str, Any]", read_folder(folder)[1].get("inputs", {}))
    identities = [str(worker["identity"]) for worker in inputs["workers"]]
    return all(identity.startswith("replay_pool ") for identity in identities)


@dataclass(frozen=True, slots=True)
class Replays:
    """The results of the replays of a system's plans.

    Attributes:
        questions: those whose plans were replayed.
        digest: of the system's answers to them.
        plays: of whole plans: on other questions, as constants and in other words.
        edits: of plans with one thing taken away.
    """

    questions: tuple[Key, ...]
    digest: str
    plays: Plays
    edits: Counterfactuals


async def replay_plans(
    results: Results,
    folder: Path,
    *,
    system: str = CONDUCTOR,
    siblings: Siblings = NO_SIBLINGS,
    limit: int | None = None,
    dollars: Decimal | None = None,
    on_progress: OnProgress | None = None,
    conductor: Conductor | None = None,
    planned: int = AGAIN,
) -> Replays:
    """Replay a system's plans, whole ones elsewhere and with one thing taken away at a time.

    The results are kept in the run's folder (``read_replays``). Planning that was repeated before
    stays in them.

    Args:
        results: the results of the evaluation in ``folder``.
        folder: the run's; new calls are journaled there in ``counterfactual.sqlite``, so that a
            second replay is free.
        system: the system whose plans are replayed.
        siblings: systems whose whole plans take turns with its own.
        limit: the plans of this many questions only, evenly spread.
        dollars: the most that all replays may cost; None: no limit.
        on_progress: called with the number of replays done, and of all.
        conductor: the system, whose planner is asked again; None: it is not.
        planned: the number of questions for which it is.

    Raises:
        ConfigError: there is no record of the system.
        TaskError: the run's problems are not there any more.
        BudgetExceeded: the dollars are spent; what was paid for is kept.
    """
    shared: dict[str, Any] = {
        "workers": results.workers,
        "seed": results.config.seed or 0,
        "concurrency": results.config.concurrency,
        "on_progress": on_progress,
    }
    earlier = read_replays(results, folder, system)
    again = None if earlier is None else earlier.plays.again
    async with _open_stage(results, folder, system, limit, dollars, siblings, conductor) as stage:
        plays = await play_plans(
            stage.records,
            stage.problems,
            stage.watch,
            unread=unread_workers(results.records),
            roomy=stage.roomy,
            **shared,
        )
        watch = stage.exact or stage.watch
        edits = await counterfactuals(stage.own, stage.problems, watch, **shared)
        if stage.replan is not None:
            again = await plan_again(
                _select_questions(stage.own, planned),
                stage.problems,
                stage.replan,
                stage.watch,
                concurrency=results.config.concurrency,
            )
    plays = replace(plays, again=again)
    questions = dict.fromkeys(record.key for record in stage.own)
    replays = Replays(tuple(questions), _digest(stage.own), plays, edits)
    if again is not None or not results.config.simulated:
        kept = _read_kept(folder) | {system: replays}
        write_whole(folder / KEPT, json.dumps(plain(kept)) + "\n")
    return replays


async def load_conductor(results: Results, folder: Path, system: str) -> Conductor:
    """Load a Conductor of a run, so that its planner can be asked again; close its provider.

    Raises:
        ConfigError: the system is none, its planner cannot be loaded, or is another model now.
    """
    spec = read_spec(system)
    pool = load_pool(results.config, calibrations=kept_calibrations(folder))
    made = None
    if spec.kind in (CONDUCTOR, PLANNER):
        made = Workshop(results.config, pool).make(spec).orchestrator
    if not isinstance(made, Conductor):
        raise ConfigError(f"{system} is no Conductor that writes its own plans")
    inputs = cast("Mapping[str, Any]", read_folder(folder)[1].get("inputs", {}))
    known = inputs.get("planners", {}).get(spec.argument or CONDUCTOR)
    if made.planner.identity != known:
        await made.planner.resolved.aclose()
        raise ConfigError(
            f"the planner of {system} is another model now: got {made.planner.identity!r}, "
            f"expected {known!r}"
        )
    return made


def read_replays(results: Results, folder: Path, system: str) -> Replays | None:
    """Return the replays that a run's folder keeps of a system's plans.

    None: there are none, or the system has answered otherwise since.
    """
    replays = _read_kept(folder).get(system)
    if replays is None:
        return None
    records = merge_questions(results.of(system), read_questions(folder))
    replayed = [record for record in records if record.key in replays.questions]
    return replays if _digest(replayed) == replays.digest else None


def _read_kept(folder: Path) -> dict[str, Replays]:
    """Return the replays in a folder by system; empty: there are none that can be read."""
    try:
        values = json.loads((folder / KEPT).read_text("utf-8"), object_hook=_with_questions)
        return load(dict[str, Replays], values)
    except (OSError, ValueError):  # calls are in the journal, so nothing is lost
        return {}


def _with_questions(values: dict[str, object]) -> dict[object, object]:
    """Return an object with questions as names, which JSON holds as texts."""
    return {literal_eval(name) if name.startswith("(") else name: values[name] for name in values}


def _digest(records: Iterable[Record]) -> str:
    """Return a digest of answers, and of the plans that led to them."""
    digest = blake2b(digest_size=16)
    for record in records:
        digest.update(dumps([record.cell, record.correct, record.workflows]).encode())
    return digest.hexdigest()


class _Stage(NamedTuple):
    """The records whose plans are played, their problems, and ways to play.

    ``own`` are the system's without those of its siblings. ``roomy`` plays as ``watch`` does, with
    twice as many tokens for a worker's answer. ``exact`` computes the chances of simulated workers;
    None: there are none. ``replan`` asks the planner again; None: it is not there.
    """

    records: Sequence[Record]
    own: Sequence[Record]
    problems: Mapping[Key, Problem]
    watch: Watch
    roomy: Watch
    exact: Watch | None = None
    replan: Replan | None = None


@asynccontextmanager
async def _open_stage(
    results: Results,
    folder: Path,
    system: str,
    limit: int | None,
    dollars: Decimal | None,
    siblings: Siblings,
    conductor: Conductor | None,
) -> AsyncGenerator[_Stage]:
    """Open what plays plans: the pool, its journals and its budget."""
    systems = (system, *siblings.systems)
    planned = [record for name in systems for record in results.of(name)]
    questions = read_questions(folder)
    records = merge_questions(siblings.join(planned, system), questions)
    records = _select_questions(records, limit)
    own = _select_questions(merge_questions(results.of(system), questions), limit)
    if not own:
        known = ", ".join(results.systems)
        raise ConfigError(f"report: no record of {system!r}, expected one of {known}")
    config = results.config
    sheets = load_sheets(config)
    problems = {
        (name, problem.id): problem for name, sheet in sheets.items() for problem in sheet.problems
    }
    task_of = {id(problem): name for (name, _), problem in problems.items()}

    def number(problem: Problem, repeat: int) -> int:
        """Return the number of the evaluation's own calls, so that its journal answers them."""
        place, own_repeat = divmod(repeat, MOST_REPEATS)  # as ``Siblings.join`` numbers them
        asker = systems[place] if place < len(systems) else system
        shared = "" if config.share_calls else asker
        return sample_number(shared, task_of[id(problem)], problem.id, own_repeat)

    graders = {name: sheet.grader for name, sheet in sheets.items()}

    def grader(problem: Problem) -> Grader:
        return graders[task_of[id(problem)]]

    ordinals = {name: ordinal for ordinal, name in results.workers.items()}
    pool = load_pool(config).numbered(ordinals)
    try:
        watch = watch_pool(pool, grader, sample=number)
        simulated = _Stage(records, own, problems, watch, watch, watch_exactly)
        if config.simulated and conductor is None:  # free, so nothing is kept
            yield simulated
            return
        with read_store(journal_place(folder)) as run, open_store(folder / REPLAYS) as journal:
            paid: dict[str, Any] = {"sample": number, "budget": None, "on_event": journal}
            if dollars is not None:
                paid["budget"] = open_run_budget(Budget(dollars=dollars), journal.totals().spent)
            replan = None
            if conductor is not None:
                replaying = conductor.replaying(_Replays(journal, run))
                replan = _ask_again(replaying, run, problems, journal, paid["budget"])
            if config.simulated:
                yield simulated._replace(replan=replan)
                return
            workers = pool.replaying(_Replays(journal, run))
            judge = open_judge(config, workers, journal, paid["budget"])
            for sheet in settle_sheets(sheets.values(), config.undecided, judge):
                graders[sheet.name] = sheet.grader
            watch = watch_pool(workers, grader, **paid)
            roomy = watch_pool(changed_pool(workers, _with_double_room), grader, **paid)
            yield _Stage(records, own, problems, watch, roomy, replan=replan)
    finally:
        await pool.aclose()
        if conductor is not None:
            await conductor.planner.resolved.aclose()


def _ask_again(
    conductor: Conductor,
    run: StoreReader,
    problems: Mapping[Key, Problem],
    on_event: OnEvent,
    budget: RunBudget | None,
) -> Replan:
    """Return what asks a Conductor's planner again, with the answers of the run's journal."""

    async def replan(record: Record, shown: Record | None) -> Round:
        task, problem = record.key
        sample = sample_number(f"again:{record.system}", task, problem, record.sample)
        previous = None
        if shown is not None:
            try:
                previous = _with_answers(run, record, shown)
            except JournalError as error:
                return Round(None, error=error)
        return await conductor.plan(
            problems[record.key].question,
            previous=previous,
            on_event=on_event,
            context=CallContext(sample=sample, budget=budget),
        )

    return replan


def _with_answers(run: StoreReader, record: Record, other: Record) -> Round:
    """Return the first round of a record with the answers of another one, the last ones first.

    Raises:
        JournalError: the run's journal lacks one of them.
    """
    own, transcript = _find_first_round(run, record)
    _, given = _find_first_round(run, other)
    answers = cycle(reversed(given.results))
    results = [
        replace(result, completion=next(answers).completion)
        for result in reversed(transcript.results)
    ]
    return replace(own, transcript=replace(transcript, results=tuple(reversed(results))))


def _find_first_round(run: StoreReader, record: Record) -> tuple[Round, Transcript]:
    """Return the first round of a record's episode, and its transcript.

    Raises:
        JournalError: the run's journal lacks them.
    """
    episode = run.episode(record.episode)
    if episode is None or not episode.rounds:
        raise JournalError(f"{run!r}: episode {record.episode} is not there any more")
    first = episode.rounds[0]
    if first.transcript is None:
        raise JournalError(f"{run!r}: episode {record.episode} has no answers in its first round")
    return first, first.transcript


def _with_double_room(worker: Worker) -> Worker:
    """Return a worker that may write twice as many tokens."""
    limit = worker.sampling.max_tokens
    if limit is None:
        return worker
    return replace(worker, sampling=replace(worker.sampling, max_tokens=2 * limit))


def _select_questions(records: Sequence[Record], limit: int | None) -> list[Record]:
    """Return the records of ``limit`` questions, evenly spread over all; None: of all."""
    keys = list(dict.fromkeys(record.key for record in records))
    if limit is None or limit >= len(keys):
        return list(records)
    places = [place * len(keys) // limit for place in range(limit)]
    selected = {keys[place] for place in places}
    return [record for record in records if record.key in selected]


@dataclass(frozen=True, slots=True)
class _Replays:
    """The calls that were paid for: those of the replays' own journal, then those of the run's."""

    journal: CompletionStore
    run: CompletionStore

    def find_completion(self, key: str) -> Completion | None:
        """Return the completion of a call; None: neither journal has it."""
        return self.journal.find_completion(key) or self.run.find_completion(key)
