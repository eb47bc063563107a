"""The whole report of a run: its figures, its verdict, its pool's headroom, its training; and replays of its plans.

In: the Results of an evaluation. Out: a Report.

Two evaluations are only compared where both asked the same questions of the same workers: ids alone
do not tell, for another seed gives the same ids to other questions. So what the folders say of
their inputs must be equal.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from openconductor.calls.budget import PaidCall
from openconductor.errors import ConfigError
from openconductor.evaluation.counterfactual import (
    Counterfactuals,
    counterfactuals,
    exact_replay,
    pool_replay,
)
from openconductor.evaluation.eval_config import CONDUCTOR
from openconductor.evaluation.grid import open_purse
from openconductor.evaluation.headroom import Headroom, headroom
from openconductor.evaluation.records import JOURNAL, Record, Results, read_folder, sample_number
from openconductor.evaluation.statistics import Estimate, mean_interval
from openconductor.evaluation.strategies import (
    Diversity,
    Pattern,
    diversity,
    first_patterns,
    journaled_plans,
)
from openconductor.evaluation.systems import load_pool, load_sheets
from openconductor.plots.iterations import read_curve, terms, window_of
from openconductor.plots.material import Material
from openconductor.report.orchestration import Orchestration, orchestration
from openconductor.report.verdict import Judgement, judge
from openconductor.store import Journal, JournalReader
from openconductor.types import Budget, Completion, Problem, Workflow

_WORKER = ("ordinal", "name", "identity", "sampling")
"""What tells workers apart, but for their prices."""


@dataclass(frozen=True, slots=True)
class Course:
    """One measure at the beginning and at the end of a training; None where it could not be measured there."""

    begin: Estimate | None
    end: Estimate | None


@dataclass(frozen=True, slots=True)
class Training:
    """What a training's curve says: form, skill and routing at its beginning and its end.

    Rollouts are sampled on training questions, so nothing here is a result on held-out ones, and
    the verdict does not rest on it. Intervals are over iterations: they say how sure the level is,
    not how a repeated training would end.

    Attributes:
        iterations: how many there were.
        window: how many of them the beginning, and the end, are.
        validity, given_valid, accuracy: shares.
        routing_entropy: bits.
        shapes: the effective number of shapes of workflows.
        diversity: strategies and patterns in each tenth of the training, where a journal holds its
            plans.
        patterns: the first distinct patterns, from the same journal.
        terms: what its questions offered, where that is not what the evaluation's do.
        study: of a run of a study what ``train --study`` found: this seed and the others.
    """

    iterations: int
    window: int
    validity: Course
    given_valid: Course
    accuracy: Course
    routing_entropy: Course
    shapes: Course
    diversity: tuple[Diversity, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    terms: str = ""
    study: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        names = ("pattern", "strategy", "first", "count")
        return {
            **asdict(self),
            "patterns": [{name: getattr(one, name) for name in names} for one in self.patterns],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What one run says about one system.

    Attributes:
        name: the run's.
        setting: constrained or unconstrained.
        missing: records that a whole evaluation would have beyond these.
        orchestration: the figures.
        verdict: what they say.
        headroom: what the pool's workers leave to gain; None where none was asked alone.
        training: what a training's curve says, where one was given.
    """

    name: str
    setting: str
    missing: int
    orchestration: Orchestration
    verdict: Judgement
    headroom: Headroom | None = None
    training: Training | None = None

    def to_json(self) -> dict[str, Any]:
        """One object of plain values: the verdict first, then the figures."""
        verdict = asdict(self.verdict)
        return {
            "name": self.name,
            "setting": self.setting,
            "missing": self.missing,
            "verdict": verdict.pop("label"),
            **verdict,
            **self.orchestration.to_json(),
            "headroom": None if self.headroom is None else self.headroom.to_json(),
            "training": None if self.training is None else self.training.to_json(),
        }


# ── what a report is made of ──────────────────────────────────────────────────────────────────────
def make_report(
    results: Results,
    *,
    system: str | None = None,
    before: Results | None = None,
    training_folder: Path | None = None,
    found: Counterfactuals | None = None,
) -> Report:
    """The report of a run.

    Args:
        results: of the evaluation.
        system: which system is reported on; by default ``conductor``, else the first one that
            plans.
        before: an evaluation of the untrained Conductor on the same questions (``same_questions``):
            of the system of this name, else of ``conductor``.
        training_folder: a training's run, or its ``curves.jsonl``.
        found: what replays have shown (``replays.replayed``).

    Raises:
        ConfigError: there is no record of the system, before or after, or no curve.
        JournalError: a journal cannot be read.
    """
    system, seed = chosen(results, system), results.config.seed or 0
    earlier = () if before is None else before.of(system) or before.of(CONDUCTOR)
    if before is not None and not earlier:
        there = ", ".join(before.systems)
        raise ConfigError(
            f"before: no record of {system!r} or 'conductor', expected one of {there}"
        )
    figures = orchestration(
        results.records,
        system=system,
        before=earlier,
        workers=results.workers,
        counterfactuals=found,
        seed=seed,
    )
    if figures.change is not None and not figures.change.questions:
        raise ConfigError(
            "before: none of its questions was asked here, expected an evaluation on the same questions"
        )
    return Report(
        name=results.config.name,
        setting=results.config.setting,
        missing=results.missing,
        orchestration=figures,
        verdict=judge(figures),
        headroom=headroom(results.records, seed=seed),
        training=None if training_folder is None else training(training_folder),
    )


def chosen(results: Results, system: str | None) -> str:
    """The system that is reported on: the one that is named, else ``conductor``, else the first that plans.

    Raises:
        ConfigError: the named one has no record, or none plans.
    """
    there = [name for name in results.systems if results.of(name)]
    every = ", ".join(there) or "none: no record is there"
    if system is not None and system not in there:
        raise ConfigError(f"system: got {system!r}, expected one of {every}")
    ours = Material(results.records, system=system).ours
    if not ours:
        raise ConfigError(
            f"report: no system here writes plans, expected one, or --system with one of {every}"
        )
    return ours


def training(folder: Path) -> Training:
    """Read a training's folder, or its ``curves.jsonl``.

    Raises:
        ConfigError: there is no curve.
        JournalError: its journal cannot be read.
    """
    curve = read_curve(folder)
    window = window_of(len(curve))

    def course(measure: str) -> Course:
        values = [getattr(iteration, measure) for iteration in curve]
        return Course(_level(values[:window]), _level(values[len(values) - window :]))

    journal, study = folder / JOURNAL, folder.parent / "study.json"
    plans = list(journaled_plans(journal)) if journal.is_file() else []
    return Training(
        iterations=len(curve),
        window=window,
        **{
            name: course(name)
            for name in ("validity", "given_valid", "accuracy", "routing_entropy")
        },
        shapes=course("diversity"),
        diversity=diversity(plans),
        patterns=first_patterns(plans),
        terms=terms(folder),
        study={**json.loads(study.read_text("utf-8")), "run": folder.name}
        if study.is_file()
        else None,
    )


@dataclass(frozen=True, slots=True)
class Completions:
    """What a training's journal holds of the completions of some iterations.

    Attributes:
        sampled: how many.
        invalid: why those that are not workflows are none, with how often, the most frequent first.
        examples: the last one right, the last one wrong, and the last one of each reason, as they
            were kept.
    """

    sampled: int
    invalid: tuple[tuple[str, int], ...]
    examples: tuple[Mapping[str, Any], ...]


def completions(folder: Path, *, iterations: range) -> Completions:
    """What the Conductor wrote in some iterations of the training in ``folder``.

    Raises:
        JournalError: its journal is not there or cannot be read.
    """
    names = {f"iteration {number}" for number in iterations}
    invalid: Counter[str] = Counter()
    last: dict[str, Mapping[str, Any]] = {}
    with JournalReader(folder / JOURNAL) as journal:
        kept = (outcome.record for outcome in journal.outcomes())
        of_these = [one for one in kept if str(one.get("training")).partition(",")[0] in names]
    for one in of_these:
        reason = one["invalid"]
        invalid.update([reason] if reason else [])
        right = one.get(
            "correct", {1.0: True, 0.5: False}.get(one["reward"])
        )  # older journals have the reward alone
        last[reason or {True: "right", False: "wrong"}.get(right, "masked")] = one
    return Completions(len(of_these), tuple(invalid.most_common()), tuple(last.values()))


def _level(values: Sequence[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = mean_interval(known) if len(known) > 1 else (known[0], known[0])
    return Estimate(fmean(known), low, high, len(known))


# ── two evaluations ───────────────────────────────────────────────────────────────────────────────
def same_questions(folder: Path, before: Path) -> Results:
    """The results in ``before``, whose evaluation asked the same questions of the same workers as that in ``folder``.

    Raises:
        ConfigError: it did not; the message says what differs.
    """
    inputs: list[dict[str, Any]] = []
    for one in (folder, before):
        said = read_folder(one)[1].get("inputs")
        if not (isinstance(said, dict) and "tasks" in said and "workers" in said):
            raise ConfigError(
                f"{one}: its environment.json says nothing of its inputs, expected an evaluation's folder"
            )
        inputs.append(cast("dict[str, Any]", said))
    tasks, others = (one["tasks"] for one in inputs)
    shared = [name for name in tasks if name in others]
    if not shared:
        raise ConfigError(
            f"before: got tasks {', '.join(others)}, expected those of {folder}: {', '.join(tasks)}"
        )
    for name in shared:
        if tasks[name].get("digest") != others[name].get("digest"):
            raise ConfigError(
                f"before: task {name}: got {others[name].get('problems')} other questions than the "
                f"{tasks[name].get('problems')} of {folder}; expected the same: one split, limit and seed for both"
            )
    ours, theirs = (
        [[one.get(name) for name in _WORKER] for one in side["workers"]] for side in inputs
    )
    if ours != theirs:
        raise ConfigError(
            f"before: got other workers than {folder} has, expected the same pool and setting: else nobody can tell "
            "the Conductor's gain from the pool's"
        )
    return Results.load(before)


# ── replays ───────────────────────────────────────────────────────────────────────────────────────
REPLAYS = "counterfactual.sqlite"
"""The journal of the calls that replays made, beside the run's own."""


def replays_are_free(results: Results, folder: Path) -> bool:
    """Whether plans can be replayed at no cost: in a simulated task, and over workers that are recorded models."""
    said = cast("Mapping[str, Any]", read_folder(folder)[1].get("inputs", {}))
    return results.config.simulated or all(
        str(one["identity"]).startswith("replay_pool ") for one in said["workers"]
    )


async def replayed(
    results: Results,
    folder: Path,
    *,
    system: str = "conductor",
    limit: int | None = None,
    dollars: Decimal | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Counterfactuals:
    """Replay a system's plans with one thing taken away at a time.

    Args:
        results: of the evaluation in ``folder``.
        folder: the run's; new calls are journaled there in ``counterfactual.sqlite``, so that a
            second replay is free.
        system: whose plans.
        limit: the plans of this many questions only, evenly spread.
        dollars: what all replays may cost; None is no limit.
        on_progress: told how many replays are done, of how many.

    Raises:
        ConfigError: there is no record of the system.
        TaskError: the run's problems are not there any more.
        BudgetExceeded: the dollars are spent; what was paid for is kept.
    """
    records = _some(results.of(system), limit)
    if not records:
        raise ConfigError(
            f"report: no record of {system!r}, expected one of {', '.join(results.systems)}"
        )
    sheets, config = load_sheets(results.config), results.config
    problems = {(name, one.id): one for name, sheet in sheets.items() for one in sheet.problems}
    asked = partial(
        counterfactuals,
        records,
        problems,
        workers=results.workers,
        seed=config.seed or 0,
        concurrency=config.concurrency,
        on_progress=on_progress,
    )
    if config.simulated:
        return await asked(exact_replay)
    named = {id(problem): name for (name, _), problem in problems.items()}
    with JournalReader(folder / JOURNAL) as run, Journal(folder / REPLAYS) as journal:
        purse = (
            None if dollars is None else open_purse(Budget(dollars=dollars), journal.totals().spent)
        )
        pool = load_pool(config)
        replay = pool_replay(
            pool.replaying(_Replays(journal, run)),
            lambda problem: sheets[named[id(problem)]].grader,
            on_event=journal,
            # The number that the evaluation's own calls have, so that unedited plans are found in
            # its journal.
            sample=lambda problem, repeat: sample_number(
                "" if config.share_calls else system, named[id(problem)], problem.id, repeat
            ),
        )

        async def paid(problem: Problem, workflow: Workflow, repeat: int) -> float | None:
            with (
                nullcontext() if purse is None else PaidCall(purse)
            ):  # what is asked inside is charged to it
                return await replay(problem, workflow, repeat)

        try:
            return await asked(paid)
        finally:
            await pool.aclose()


def _some(records: tuple[Record, ...], limit: int | None) -> list[Record]:
    """The records of this many questions, evenly spread over all."""
    keys = list(dict.fromkeys((record.task, record.problem) for record in records))
    if limit is None or limit >= len(keys):
        return list(records)
    chosen = {keys[place * len(keys) // limit] for place in range(limit)}
    return [record for record in records if (record.task, record.problem) in chosen]


@dataclass(frozen=True, slots=True)
class _Replays:
    """Finds what was paid for in the replays' own journal, or else in the run's."""

    journal: Journal
    run: JournalReader

    def find_completion(self, key: str) -> Completion | None:
        """The completion of a call of this key: the replays', else the run's."""
        return self.journal.find_completion(key) or self.run.find_completion(key)
