"""The figures of the orchestration report: where a Conductor stands between chance, its workers, and the oracle.

In: the records of one evaluation (the Conductor, workers alone, random, best_fixed, an oracle), and if wanted those of
the untrained Conductor. Out: an Orchestration, everything in it with a 95 % interval clustered by question.

Each question weighs the same. Differences are paired by question. What could not be decided is left out of every share
and counted by system, with its reason. The best single worker is given twice: as it seems on these questions (too
good: it was chosen on them) and chosen on other questions (``evaluation.selection``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, get_args

from openconductor.errors import ConfigError
from openconductor.evaluation.counterfactual import Counterfactuals
from openconductor.evaluation.headroom import WORKER, estimate
from openconductor.evaluation.intervals import ratio_interval
from openconductor.evaluation.patterns import Pattern, Planned, first_patterns
from openconductor.evaluation.records import MASKED, Record, Status
from openconductor.evaluation.selection import BestSingle, Scores, best_single, corrected_oracle, naive_oracle
from openconductor.evaluation.statistics import Difference, Estimate, difference, scores_by_problem
from openconductor.reporting.change import Change, change, validity_by_problem
from openconductor.reporting.effort import Effort, effort
from openconductor.reporting.routing import Routing, routing

ORACLES = ("oracle", "oracle_observed")
"""The oracles of an evaluation, the better known first."""
LEVELS = ("random", "best_fixed", *ORACLES)
"""The systems that stand for a level; all others but workers alone are compared with as they are."""
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Level:
    """One system beside the Conductor.

    Attributes:
        system: its name.
        accuracy: its share of right answers; None where nothing was decided.
        lead: the Conductor's accuracy less its; None where no question was decided by both.
        strict: the same where what could not be decided counts as wrong for both, which shows whether the lead rests on
            what was left out; None where nothing was.
    """

    system: str
    accuracy: Estimate | None
    lead: Difference | None
    strict: Difference | None = None


@dataclass(frozen=True, slots=True)
class Captured:
    """The share of the oracle's headroom that the Conductor wins: its lead over the best worker by the oracle's.

    Attributes:
        value: the share; below 0 where the best worker is better.
        low, high: Fieller's interval; None where the headroom itself may be nothing.
        questions: those that all three have decided.
    """

    value: float
    low: float | None
    high: float | None
    questions: int


@dataclass(frozen=True, slots=True)
class Orchestration:
    """The figures of the report.

    Attributes:
        system: which system is reported on.
        tasks: the tasks.
        questions, repeats: how many different questions it was asked, and how often the one asked most.
        counts: of every system, how many records there are of each status.
        invalid: why plans of the system were no workflows, by the parser's reason.
        validity: the share of its completions that are workflows; None where no Conductor planned.
        accuracy: its share of right answers.
        given_valid: the same of its valid plans.
        best_single: the worker that does best alone on these very questions.
        best_fitted: the worker that does best on other questions, scored on these (``system`` is the one chosen most).
        chosen: how often each worker is the best on other questions.
        random, best_fixed, oracle: those levels, where the evaluation has them.
        oracle_corrected: the best worker of each question without luck; None where questions were asked once.
        captured: the share of the headroom that is won.
        others: all further systems.
        workers: every worker alone, by its name.
        unasked: the pool's workers that were not asked alone, or of whom nothing was decided.
        effort: the best worker with a vote, at about the system's cost; None where no worker was asked alone.
        routing: who gets the work, and what the plans look like.
        change: against the untrained system, where that is known.
        patterns: the first distinct patterns of its plans.
        counterfactuals: what its steps are worth, where that was replayed.
    """

    system: str
    tasks: tuple[str, ...]
    questions: int
    repeats: int
    counts: Mapping[str, Mapping[str, int]]
    invalid: Mapping[str, int]
    validity: Estimate | None
    accuracy: Estimate | None
    given_valid: Estimate | None
    best_single: Level | None
    best_fitted: Level | None
    chosen: Mapping[str, float]
    random: Level | None
    best_fixed: Level | None
    oracle: Level | None
    oracle_corrected: Level | None
    captured: Captured | None
    others: tuple[Level, ...]
    workers: Mapping[str, Level]
    unasked: tuple[str, ...]
    effort: Effort | None
    routing: Routing
    change: Change | None
    patterns: tuple[Pattern, ...]
    counterfactuals: Counterfactuals | None = None

    @property
    def masked(self) -> int:
        """How many records of the system could not be decided."""
        return sum(self.counts[self.system].get(status, 0) for status in MASKED)

    @property
    def no_validity(self) -> str:
        """Why there is no validity, where there is none."""
        if self.masked == self.counts[self.system]["records"]:
            return "nothing was decided"
        return f"{self.system} writes no plans in words"

    def over_worker(self, name: str) -> Difference | None:
        """The lead over one worker alone; None where it was not asked."""
        level = self.workers.get(name)
        return None if level is None else level.lead

    def to_json(self) -> dict[str, Any]:
        """The same as plain values; shares are fractions, entropies bits, what is not known is null."""
        values = asdict(self)
        values["masked"] = self.masked
        values["patterns"] = [
            {
                **{name: value for name, value in asdict(one).items() if name != "example"},
                "example": [[step.worker, step.subtask, _plain(step.access)] for step in one.example],
            }
            for one in self.patterns
        ]
        return values


def orchestration(
    records: Iterable[Record],
    *,
    system: str = "conductor",
    before: Sequence[Record] = (),
    workers: Mapping[int, str] | None = None,
    counterfactuals: Counterfactuals | None = None,
    seed: int = 0,
) -> Orchestration:
    """The figures of the report.

    Args:
        records: of all systems of an evaluation.
        system: which one is reported on.
        before: the records of the same system before its training.
        workers: the pool's names by ordinal.
        counterfactuals: what was found by replaying its plans.
        seed: of folds, bootstraps and permutations.

    Raises:
        ConfigError: there is no record of the system.
    """
    by_system = _by_system(records, system)
    mine = by_system[system]
    scores = {name: scores_by_problem(of_one) for name, of_one in by_system.items()}
    ours = scores[system]
    alone = {name: each for name, each in scores.items() if name.startswith(WORKER) and each}
    names = workers or {}
    best = best_single(alone, seed=seed)
    bound, oracle = _oracle(scores, alone)
    lucky = corrected_oracle(alone)
    levels = {name: _level(name, by_system[name], mine, seed) for name in scores}
    return Orchestration(
        system=system,
        tasks=tuple(dict.fromkeys(record.task for record in mine)),
        questions=len({(record.task, record.problem) for record in mine}),
        repeats=max(Counter((record.task, record.problem) for record in mine).values()),
        counts={name: _statuses(of_one) for name, of_one in by_system.items()},
        invalid=_reasons(mine),
        validity=_estimate(validity_by_problem(mine)),
        accuracy=_estimate(ours),
        given_valid=_estimate(scores_by_problem(record for record in mine if record.valid)),
        best_single=None if best is None else levels[best.name],
        best_fitted=None if best is None else _of_scores(_favourite(best), best.fitted, ours, seed),
        chosen={} if best is None else dict(best.chosen),
        random=levels.get("random"),
        best_fixed=levels.get("best_fixed"),
        oracle=levels[bound] if scores.get(bound) else _of_scores(bound, oracle, ours, seed),
        oracle_corrected=_of_scores("oracle_observed, corrected", lucky, ours, seed),
        captured=_captured(ours, best, oracle),
        others=tuple(level for name, level in levels.items() if name not in {system, *LEVELS, *alone}),
        workers={name.removeprefix(WORKER): levels[name] for name in alone},
        unasked=tuple(name for name in names.values() if f"{WORKER}{name}" not in alone),
        effort=None if best is None else effort(by_system, system, best.name, seed),
        routing=routing(mine, names, seed=seed),
        change=change(before, mine, workers=len(names), seed=seed) if before else None,
        patterns=_patterns(mine),
        counterfactuals=counterfactuals,
    )


def _by_system(records: Iterable[Record], system: str) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.system, []).append(record)
    if system not in found:
        raise ConfigError(f"report: no record of {system!r}, expected one of {', '.join(found) or 'none'}")
    return found


def _reasons(records: Sequence[Record]) -> dict[str, int]:
    """Why plans were no workflows, the most frequent reason first."""
    reasons = Counter(one.rounds[0].reason for one in records if one.status == "invalid" and one.rounds)
    return dict(reasons.most_common())


def _patterns(records: Sequence[Record]) -> tuple[Pattern, ...]:
    return first_patterns(
        Planned(workflow, 0, one.correct, f"{one.task}/{one.problem}") for one in records for workflow in one.workflows
    )


def _oracle(scores: Mapping[str, Scores], alone: Mapping[str, Scores]) -> tuple[str, Scores | None]:
    """The oracle of the evaluation; where it has none, hindsight over the workers alone."""
    for name in ORACLES:
        if scores.get(name):
            return name, scores[name]
    return ORACLES[1], naive_oracle(alone) or None


def _favourite(best: BestSingle) -> str:
    return max(best.chosen, key=lambda name: best.chosen[name])


def _level(name: str, theirs: Sequence[Record], ours: Sequence[Record], seed: int) -> Level:
    scores = scores_by_problem(theirs)
    level = Level(name, _estimate(scores), difference(scores_by_problem(ours), scores, seed))
    if level.lead is None or not any(record.correct is None for record in (*ours, *theirs)):
        return level
    return replace(level, strict=difference(_all_scores(ours), _all_scores(theirs), seed))


def _of_scores(name: str, scores: Scores | None, ours: Scores, seed: int) -> Level | None:
    return None if scores is None else Level(name, _estimate(scores), difference(ours, scores, seed))


def _all_scores(records: Iterable[Record]) -> Scores:
    """Scores by problem, what could not be decided as wrong."""
    scores: dict[tuple[str, str], list[float]] = {}
    for record in records:
        scores.setdefault((record.task, record.problem), []).append(float(bool(record.correct)))
    return scores


def _estimate(scores: Scores) -> Estimate | None:
    return estimate(scores) if scores else None


def _statuses(records: Sequence[Record]) -> dict[str, int]:
    counts = Counter(record.status for record in records)
    return {"records": len(records), **{status: counts[status] for status in STATUSES}}


def _captured(ours: Scores, best: BestSingle | None, oracle: Scores | None) -> Captured | None:
    if best is None or oracle is None:
        return None
    keys = [key for key in ours if key in best.naive and key in oracle]
    if not keys:
        return None
    floor = [fmean(best.naive[key]) for key in keys]
    tops = [fmean(ours[key]) - low for key, low in zip(keys, floor, strict=True)]
    bottoms = [fmean(oracle[key]) - low for key, low in zip(keys, floor, strict=True)]
    room = fmean(bottoms)
    if room <= 0:
        return None
    interval = ratio_interval(tops, bottoms)
    low, high = interval if interval is not None else (None, None)
    return Captured(fmean(tops) / room, low, high, len(keys))


def _plain(access: Sequence[object]) -> object:
    return access if isinstance(access, str) else list(access)
