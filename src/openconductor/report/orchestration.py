"""The figures of the orchestration report: where a Conductor stands between chance, its workers, and the oracle.

In: the records of one evaluation (the Conductor, workers alone, random, best_fixed, an oracle), and
if wanted those of the untrained Conductor. Out: an Orchestration, everything in it with a 95 %
interval clustered by question.

Each question weighs the same. Differences are paired by question. What could not be decided is left
out of every share and counted by system, with its reason. The best single worker is given twice: as
it seems on these questions (too good: it was chosen on them) and chosen on other questions
(``evaluation.headroom``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from types import MappingProxyType
from typing import Any, get_args

from openconductor.errors import ConfigError
from openconductor.evaluation import statistics
from openconductor.evaluation.counterfactual import Counterfactuals
from openconductor.evaluation.eval_config import (
    ALONE,
    CONDUCTOR,
    HINDSIGHT,
    ORACLE,
    PLANNER,
    PLANNER_ALONE,
)
from openconductor.evaluation.headroom import (
    BestSingle,
    best_single,
    corrected_oracle,
    naive_oracle,
)
from openconductor.evaluation.records import MASKED, Record, Status
from openconductor.evaluation.statistics import (
    Difference,
    Estimate,
    Key,
    Scores,
    difference,
    scores_by_problem,
)
from openconductor.evaluation.strategies import Pattern, TimedPlan, first_patterns
from openconductor.report.rivals import (
    Change,
    Effort,
    Told,
    change,
    effort,
    relative_cost,
    said_by,
    told,
    validity_by_problem,
)
from openconductor.report.routing import Routing, routing

ORACLES = (ORACLE, HINDSIGHT)
"""The oracles of an evaluation, the better known first."""
UNSURE = 0.1
"""The share of a system's answers that may be undecided before its accuracy counts as not known."""
NEGLIGIBLE = 0.03
"""The share of a system's answers that may be undecided before a lead is looked at with these as wrong."""
SMALL = 30
"""Kinds with fewer questions are counted together."""


@dataclass(frozen=True, slots=True)
class Level:
    """One system beside the Conductor.

    Attributes:
        system: its name.
        accuracy: its share of right answers; None where nothing was decided.
        lead: the Conductor's accuracy less its; None where no question was decided by both.
        strict: the same where what could not be decided, or was not asked, counts as wrong for
            both: it shows whether the lead rests on what was left out; None where next to nothing
            was.
        cost: what it costs, the Conductor's cost being 1; None where a price is not known.
        unsure: whether more than a tenth of its answers could not be decided, and it may be as good
            as the Conductor.
    """

    system: str
    accuracy: Estimate | None
    lead: Difference | None
    strict: Difference | None = None
    cost: float | None = None
    unsure: bool = False

    @property
    def name(self) -> str:
        """The system's name; of a worker alone the worker's."""
        return self.system.removeprefix(ALONE)


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
        questions, repeats: how many different questions it was asked, and how often the one asked
            most.
        counts: of every system, how many records there are of each status.
        invalid: why plans of the system were no workflows, by the parser's reason.
        validity: the share of its completions that are workflows; None where no Conductor planned.
        accuracy: its share of right answers.
        given_valid: the same of its valid plans.
        best_single: the worker that does best alone on these very questions.
        best_fitted: the worker that does best on other questions, scored on these (``system`` is
            the one chosen most).
        chosen: how often each worker is the best on other questions.
        random, best_fixed, oracle: those levels, where the evaluation has them.
        oracle_corrected: the best worker of each question without luck; None where questions were
            asked once.
        captured: the share of the headroom that is won.
        planner_alone: the Conductor's own model, asked as a worker is; None where it was not.
        by_itself: the better of ``planner_alone`` and ``best_single`` on each kind of question,
            where both are there.
        told: whether the subtasks of its first round say the answers that come back.
        told_later: the same of later rounds, which may repeat what was answered before.
        parts: its lead over the best worker by task where there are several, else by kind of
            question.
        others: all further systems; ablations of this one are those of its name with other options.
        workers: every worker alone, by its name.
        unasked: the pool's workers that were not asked alone, or of whom nothing was decided.
        unsure: workers of whose answers more than a tenth could not be decided, and which may be as
            good as the system.
        effort: the best worker with a vote, at about the system's cost; None where no worker was
            asked alone.
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
    planner_alone: Level | None
    by_itself: Level | None
    told: Told | None
    told_later: Told | None
    parts: Mapping[str, Difference]
    others: tuple[Level, ...]
    workers: Mapping[str, Level]
    unasked: tuple[str, ...]
    unsure: tuple[str, ...]
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

    def to_json(self) -> dict[str, Any]:
        """The same as plain values; shares are fractions, entropies bits, what is not known is null."""
        values = asdict(self)
        values["masked"] = self.masked
        for one, known in zip(self.patterns, values["patterns"], strict=True):
            del known["example"]
            known["example"] = [[step.worker, step.subtask, step.access] for step in one.example]
        return values


def orchestration(
    records: Iterable[Record],
    *,
    system: str = "conductor",
    before: Sequence[Record] = (),
    workers: Mapping[int, str] = MappingProxyType({}),
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
    by_system: dict[str, list[Record]] = {}
    for record in records:
        by_system.setdefault(record.system, []).append(record)
    if system not in by_system:
        raise ConfigError(
            f"report: no record of {system!r}, expected one of {', '.join(by_system) or 'none'}"
        )
    mine = by_system[system]
    scores = {name: scores_by_problem(of_one) for name, of_one in by_system.items()}
    ours = scores[system]
    alone = {name: each for name, each in scores.items() if name.startswith(ALONE) and each}
    best = best_single(alone, seed=seed)
    bound = next((name for name in ORACLES if scores.get(name)), None)
    oracle = scores[bound] if bound is not None else naive_oracle(alone) or None

    def level(name: str, theirs: Scores | None) -> Level | None:
        """A level, where it has scores; of a system of the evaluation also with what was left out as wrong."""
        if theirs is None:
            return None
        lead = difference(ours, theirs, seed)
        if name not in by_system or theirs is not scores[name]:
            return Level(name, _estimate(theirs), lead)
        both = by_system[name]
        unsure = _is_unsure(both, ours, seed)
        strict = None if lead is None else _strict(mine, both, seed)
        return Level(name, _estimate(theirs), lead, strict, relative_cost(both, mine), unsure)

    levels = {
        name: one for name, theirs in scores.items() if (one := level(name, theirs)) is not None
    }
    itself = levels.get(_planner_alone(system))
    known = {system, _planner_alone(system), "random", "best_fixed", *ORACLES, *alone}
    groups = _groups(mine)
    by_itself = None
    if best is not None and itself is not None:
        by_itself = _best_of_each(groups, scores[itself.system], best.naive)
    asked = Counter((record.task, record.problem) for record in mine)
    chosen = {} if best is None else dict(best.chosen)
    return Orchestration(
        system=system,
        tasks=tuple(dict.fromkeys(record.task for record in mine)),
        questions=len(asked),
        repeats=max(asked.values()),
        counts={
            name: {
                "records": len(some),
                **dict.fromkeys(get_args(Status), 0),
                **Counter(one.status for one in some),
            }
            for name, some in by_system.items()
        },
        invalid=dict(
            Counter(
                r.rounds[0].reason for r in mine if r.status == "invalid" and r.rounds
            ).most_common()
        ),
        validity=_estimate(validity_by_problem(mine)),
        accuracy=_estimate(ours),
        given_valid=_estimate(scores_by_problem(record for record in mine if record.valid)),
        best_single=None if best is None else levels[best.name],
        best_fitted=None
        if best is None
        else level(max(chosen, key=chosen.__getitem__), best.fitted),
        chosen=chosen,
        random=levels.get("random"),
        best_fixed=levels.get("best_fixed"),
        oracle=level(bound or HINDSIGHT, oracle),
        oracle_corrected=level("oracle_observed, corrected", corrected_oracle(alone)),
        captured=_captured(ours, best, oracle),
        planner_alone=itself,
        by_itself=level("the better of both on each kind", by_itself),
        told=None if best is None else told(mine, _wrong_answers(by_system), best.naive, seed),
        told_later=None
        if best is None
        else told(mine, _wrong_answers(by_system), best.naive, seed, later=True),
        parts={} if best is None else _parts(groups, ours, best.naive, seed),
        others=tuple(one for name, one in levels.items() if name not in known),
        workers={name.removeprefix(ALONE): levels[name] for name in alone},
        unasked=tuple(name for name in workers.values() if f"{ALONE}{name}" not in alone),
        unsure=tuple(name for name in alone if levels[name].unsure),
        effort=None if best is None else effort(by_system, system, best.name, seed),
        routing=routing(mine, workers, seed=seed),
        change=change(before, mine, workers=len(workers), seed=seed) if before else None,
        patterns=first_patterns(
            TimedPlan(flow, 0, one.correct, f"{one.task}/{one.problem}")
            for one in mine
            for flow in one.workflows
        ),
        counterfactuals=counterfactuals,
    )


def _planner_alone(system: str) -> str:
    """The name of the system that is the planner of this one, asked alone."""
    kind, colon, rest = system.partition("?")[0].partition(":")
    return PLANNER_ALONE + colon + rest if kind in (CONDUCTOR, PLANNER) else ""


# ── what a lead rests on ──────────────────────────────────────────────────────────────────────────
def _groups(records: Sequence[Record]) -> dict[Key, str]:
    """What each question is counted under: its task where there are several, else its kind, the small ones together."""
    tasks = {one.task for one in records}
    kinds = {(one.task, one.problem): one.kind for one in records}
    sizes = Counter(kinds.values())
    if len(tasks) > 1:
        return {key: key[0] for key in kinds}
    return {key: kind if sizes[kind] >= SMALL else "other kinds" for key, kind in kinds.items()}


def _parts(
    groups: Mapping[Key, str], ours: Scores, theirs: Scores, seed: int
) -> dict[str, Difference]:
    """The lead by group, where there are several."""
    found: dict[str, Difference] = {}
    for group in dict.fromkeys(groups.values()):
        lead = difference({key: ours[key] for key in ours if groups[key] == group}, theirs, seed)
        found |= {} if lead is None else {group: lead}
    return found if len(found) > 1 else {}


def _best_of_each(groups: Mapping[Key, str], first: Scores, second: Scores) -> Scores:
    """The scores of whichever of two is better on each group of questions, chosen on the other half of the group."""
    found: dict[Key, Sequence[float]] = {}
    for group in dict.fromkeys(groups.values()):
        keys = [key for key in groups if groups[key] == group and key in first and key in second]
        for scored, chosen in ((keys[::2], keys[1::2]), (keys[1::2], keys[::2])):
            better = max(
                (first, second),
                key=lambda side: fmean([fmean(side[key]) for key in chosen] or [0.0]),
            )
            found |= {key: better[key] for key in scored}
    return found


def _strict(mine: Sequence[Record], theirs: Sequence[Record], seed: int) -> Difference | None:
    """The lead where what was left out counts as wrong; None where next to nothing was."""
    sides = [
        scores_by_problem(replace(one, correct=bool(one.correct)) for one in side)
        for side in (mine, theirs)
    ]
    asked = sides[0].keys() | sides[1].keys()
    masked = max(fmean(one.correct is None for one in side) for side in (mine, theirs))
    if masked <= NEGLIGIBLE and all(asked == side.keys() for side in sides):
        return None
    first, second = ({key: side.get(key, [0.0]) for key in asked} for side in sides)
    return difference(first, second, seed)


def _wrong_answers(by_system: Mapping[str, Sequence[Record]]) -> dict[Key, set[str]]:
    """What workers alone wrongly answered to each question."""
    found: dict[Key, set[str]] = {}
    for one in (one for name, some in by_system.items() if name.startswith(ALONE) for one in some):
        if one.correct is False:
            found.setdefault((one.task, one.problem), set()).add(said_by(one))
    return found


def _is_unsure(records: Sequence[Record], ours: Scores, seed: int) -> bool:
    """Whether so much of a system is undecided that it may be as good as the one that is reported on."""
    if fmean(one.correct is None for one in records) <= UNSURE:
        return False
    kindly = scores_by_problem(replace(one, correct=one.correct is not False) for one in records)
    lead = difference(ours, kindly, seed)
    return lead is None or lead.low <= 0


def _estimate(scores: Scores) -> Estimate | None:
    return statistics.estimate(scores) if scores else None


def _captured(ours: Scores, best: BestSingle | None, oracle: Scores | None) -> Captured | None:
    if best is None or oracle is None:
        return None
    keys = [key for key in ours if key in best.naive and key in oracle]
    tops, bottoms = (
        [fmean(side[key]) - fmean(best.naive[key]) for key in keys] for side in (ours, oracle)
    )
    if not keys or fmean(bottoms) <= 0:
        return None
    low, high = statistics.ratio_interval(tops, bottoms) or (None, None)
    return Captured(fmean(tops) / fmean(bottoms), low, high, len(keys))
