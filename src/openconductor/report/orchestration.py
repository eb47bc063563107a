"""The figures of the report: a Conductor between chance, its workers, its rivals and the oracle.

``measure_orchestration`` makes an ``Orchestration`` from the records of one evaluation, and from
those of the untrained Conductor where they are given. Everything in it has a 95 % interval
clustered by question.

Each question weighs the same. Differences are paired by question. What could not be decided is left
out of every share and counted by system, with its reason. The best single worker is given twice: on
these very questions, which flatters it because it was chosen on them, and chosen on other questions
(``evaluation.headroom``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
    MOST_REPEATS,
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
    by_task,
    cross_fitted,
    difference,
    grouped,
    scores_by_problem,
)
from openconductor.evaluation.strategies import Pattern, TimedPlan, first_patterns
from openconductor.measures import group_by
from openconductor.report.plays.transplants import (
    UNREAD,
    PlayFigures,
    Plays,
    is_read,
    measure_plays,
    unread_share,
)
from openconductor.report.rivals import (
    Change,
    Effort,
    count_answers,
    find_effort,
    measure_change,
    relative_cost,
    validity_by_problem,
)
from openconductor.report.routing import Routing, measure_routing

ORACLES = (ORACLE, HINDSIGHT)
"""The oracles of an evaluation, the better known first."""
UNSURE = 0.1
"""The share of undecided answers above which a system's accuracy may count as unknown."""
NEGLIGIBLE = 0.03
"""The share of undecided answers above which a lead is also looked at with these as wrong."""
SMALL = 30
"""Kinds with fewer questions are counted together."""


@dataclass(frozen=True, slots=True)
class Level:
    """One system beside the Conductor.

    Attributes:
        system: its name.
        accuracy: its share of right answers; None: nothing was decided.
        lead: the Conductor's accuracy less its, several tasks pooled where their signs agree; None:
            no question was decided by both.
        alike: the same with every task weighing the same; None: there is one task.
        strict: the same if what could not be decided, or was not asked, counts as wrong for both,
            which shows whether the lead rests on what was left out; None: next to nothing was.
        cost: its cost, the Conductor's cost being 1; None: a price is unknown.
        unsure: True if more than a tenth of its answers could not be decided, and it may be as good
            as the Conductor.
        unread: the share of its decided answers that could not be read, or were declined.
    """

    system: str
    accuracy: Estimate | None
    lead: Difference | None
    strict: Difference | None = None
    cost: float | None = None
    unsure: bool = False
    unread: float = 0.0
    alike: Difference | None = None

    @property
    def name(self) -> str:
        """The system's name; of a worker alone the worker's."""
        return self.system.removeprefix(ALONE)


@dataclass(frozen=True, slots=True)
class Siblings:
    """Systems that were trained by the recipe of the one that is reported on, with other seeds.

    Attributes:
        systems: those of the evaluation.
        absent: seeds of the same study that the evaluation lacks.
        base: the system that is the model which all were trained from, asked alone; "": unknown.
    """

    systems: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    base: str = ""

    def join(self, records: Iterable[Record], system: str) -> list[Record]:
        """Return the records with those of siblings as further repeats of the system."""
        joined: list[Record] = []
        for record in records:
            if record.system in self.systems:
                number = 1 + self.systems.index(record.system)
                sample = record.sample + number * MOST_REPEATS
                joined.append(replace(record, system=system, sample=sample))
            else:
                joined.append(record)
        return joined


NO_SIBLINGS = Siblings()


@dataclass(frozen=True, slots=True)
class Captured:
    """The share of the oracle's headroom that the Conductor wins.

    It is the Conductor's lead over the best worker, divided by the oracle's.

    Attributes:
        value: the share; below 0 if the best worker is better.
        low, high: Fieller's interval; None: the headroom itself may be nothing.
        questions: the number of questions that all three have decided.
    """

    value: float
    low: float | None
    high: float | None
    questions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestration:
    """The figures of the report.

    Attributes:
        system: the system that is reported on.
        tasks: the tasks.
        questions, repeats: the number of different questions, and the most repeats of one.
        rounds: the most rounds of an answer.
        counts: the number of records of each status, for every system.
        invalid: how often plans of the system were no workflows, by the parser's reason.
        validity: the share of its completions that are workflows; None: no Conductor planned.
        accuracy: its share of right answers.
        given_valid: the same of its valid plans.
        best_single: the worker that does best alone on these very questions.
        best_fitted: the worker that does best on other questions, scored on these (``system`` is
            the worker chosen most).
        absent: seeds of the system's study that the evaluation lacks.
        chosen: how often each worker is the best on other questions.
        random, best_fixed, oracle: those levels; None: the evaluation lacks them.
        oracle_corrected: the best worker of each question without luck; None: questions were asked
            once.
        captured: the share of the headroom that is won.
        planner_alone: the Conductor's own model, asked as a worker is; None: it was not asked.
        base: the system that is the model which it was trained from, asked alone; "": unknown.
        base_alone: that level; None: it was not asked.
        by_itself: ``planner_alone`` or ``base_alone`` where its answer can be read, else
            ``best_single``, on the kinds of question where that is better; None: neither is better
            than ``best_single``.
        parts: its lead over the best worker by task, or of one task by kind of question.
        others: all further systems; ablations of this one have its name and other options.
        workers: every worker alone, by its name.
        unasked: the pool's workers that were not asked alone, or never decided.
        unsure: workers of whose answers more than a tenth could not be decided, and which may be as
            good as the system.
        effort: the best worker with a vote, at about the system's cost.
        routing: who gets the work, and the shapes of plans.
        change: the change against the untrained system, where that is known.
        patterns: the first distinct patterns of its plans.
        counterfactuals: what replays have shown.
        plays: what plays of whole plans have shown.
    """

    system: str
    tasks: tuple[str, ...]
    questions: int
    repeats: int
    rounds: int
    counts: Mapping[str, Mapping[str, int]]
    invalid: Mapping[str, int]
    validity: Estimate | None
    accuracy: Estimate | None
    given_valid: Estimate | None
    best_single: Level | None = None
    best_fitted: Level | None = None
    chosen: Mapping[str, float] = field(default_factory=dict[str, float])
    lessons: int | None = None
    absent: tuple[str, ...] = ()
    random: Level | None
    best_fixed: Level | None
    oracle: Level | None
    oracle_corrected: Level | None
    captured: Captured | None = None
    planner_alone: Level | None
    base: str = ""
    base_alone: Level | None = None
    by_itself: Level | None = None
    parts: Mapping[str, Difference] = field(default_factory=dict[str, Difference])
    others: tuple[Level, ...]
    workers: Mapping[str, Level]
    unasked: tuple[str, ...]
    unsure: tuple[str, ...]
    effort: Effort | None = None
    routing: Routing
    change: Change | None
    patterns: tuple[Pattern, ...]
    counterfactuals: Counterfactuals | None
    plays: PlayFigures | None = None

    @property
    def planner(self) -> str:
        """The system that is the model which plans, asked alone; "": there is none."""
        return _planner_alone(self.system)

    @property
    def masked(self) -> int:
        """The number of the system's records that could not be decided."""
        counts = self.counts[self.system]
        return sum(counts[status] for status in MASKED)

    @property
    def no_validity(self) -> str:
        """The reason why there is no validity."""
        if self.masked == self.counts[self.system]["records"]:
            return "nothing was decided"
        return f"{self.system} writes no plans in words"

    def to_json(self) -> dict[str, Any]:
        """Return plain values: shares are fractions, entropies bits, unknown values null."""
        values = asdict(self)
        values["masked"] = self.masked
        for pattern, plain in zip(self.patterns, values["patterns"], strict=True):
            del plain["example"]
            plain["example"] = [
                [step.worker, step.subtask, step.access] for step in pattern.example
            ]
        return values


def measure_orchestration(
    records: Iterable[Record],
    *,
    system: str = CONDUCTOR,
    before: Sequence[Record] = (),
    workers: Mapping[int, str] = MappingProxyType({}),
    counterfactuals: Counterfactuals | None = None,
    plays: Plays | None = None,
    siblings: Siblings = NO_SIBLINGS,
    aggregators: Container[int] = (),
    lessons: int | None = None,
    seed: int = 0,
) -> Orchestration:
    """Measure a system of an evaluation against all others.

    Args:
        records: the records of all systems.
        system: the system that is reported on.
        before: the records of the same system before its training.
        workers: the pool's names by ordinal.
        counterfactuals: the replays of its plans.
        plays: the plays of its whole plans.
        siblings: systems of the same recipe with other seeds, which are judged with it as one, and
            the model that they were trained from.
        aggregators: the ordinals of workers without a model, whose answers cost nothing.
        lessons: the number of questions that trained baselines learnt from; None: unknown.
        seed: of folds, bootstraps and permutations.

    Raises:
        ConfigError: there is no record of the system.
    """
    joined = siblings.join(records, system)
    counted = [replace(one, calls=count_answers(one, aggregators)) for one in joined]
    by_system = group_by(counted, lambda record: record.system)
    if system not in by_system:
        known = ", ".join(by_system) or "none"
        raise ConfigError(f"report: no record of {system!r}, expected one of {known}")
    if plays is not None:
        by_system |= _in_form(by_system, plays)
    ours = by_system[system]
    lineup = _Lineup(by_system, system, seed)
    levels = {name: lineup.level(name) for name in by_system}
    alone = {
        name: scores for name, scores in lineup.scores.items() if name.startswith(ALONE) and scores
    }
    oracle_scores: Scores = naive_oracle(alone)
    oracle = lineup.bare_level(HINDSIGHT, oracle_scores)
    for name in reversed(ORACLES):
        if lineup.scores.get(name):
            oracle, oracle_scores = levels[name], lineup.scores[name]
    planner = _planner_alone(system)
    placed = {system, planner, "random", "best_fixed", *ORACLES, *alone}
    asked = Counter(record.key for record in ours)
    figures = Orchestration(
        system=system,
        tasks=tuple(dict.fromkeys(record.task for record in ours)),
        questions=len(asked),
        repeats=max(asked.values()),
        rounds=max(len(record.rounds) for record in ours),
        counts={name: _count_statuses(of_system) for name, of_system in by_system.items()},
        invalid=_count_reasons(ours),
        validity=_estimate(validity_by_problem(ours)),
        accuracy=_estimate(lineup.ours),
        given_valid=_estimate(scores_by_problem(record for record in ours if record.valid)),
        random=levels.get("random"),
        best_fixed=levels.get("best_fixed"),
        oracle=oracle if oracle_scores else None,
        oracle_corrected=lineup.bare_level("oracle_observed, corrected", corrected_oracle(alone)),
        planner_alone=levels.get(planner),
        base=siblings.base,
        base_alone=levels.get(siblings.base),
        others=tuple(level for name, level in levels.items() if name not in placed),
        workers={name.removeprefix(ALONE): levels[name] for name in alone},
        unasked=tuple(name for name in workers.values() if f"{ALONE}{name}" not in alone),
        unsure=tuple(name for name in alone if levels[name].unsure),
        routing=measure_routing(ours, workers, seed=seed),
        change=measure_change(before, ours, workers=len(workers), seed=seed) if before else None,
        patterns=first_patterns(_timed_plans(ours)),
        counterfactuals=counterfactuals,
        lessons=lessons,
        absent=siblings.absent,
    )
    best = best_single(alone, seed=seed)
    if plays is not None:
        of_best: Scores = {} if best is None else best.naive
        figures = replace(figures, plays=measure_plays(plays, ours, of_best, seed))
    if best is None:
        return figures
    groups = _group_questions(ours)
    chosen = dict(best.chosen)
    most_chosen = max(chosen, key=lambda name: chosen[name])
    by_itself = None
    models = [by_system[name] for name in (planner, siblings.base) if name in by_system]
    if models:
        by_itself = _planner_or_best(groups, models, best.naive, seed)
    return replace(
        figures,
        best_single=levels[best.name],
        best_fitted=lineup.bare_level(most_chosen, best.fitted),
        chosen=chosen,
        captured=_share_of_headroom(lineup.ours, best, oracle_scores),
        by_itself=lineup.bare_level("the planner where it answers, or the best worker", by_itself),
        parts=_leads_by_group(groups, lineup.ours, best.naive, seed),
        effort=find_effort(by_system, system, best.name, seed),
    )


class _Lineup:
    """The systems of an evaluation, beside the one that is reported on."""

    def __init__(self, by_system: Mapping[str, Sequence[Record]], system: str, seed: int) -> None:
        self.scores = {name: scores_by_problem(records) for name, records in by_system.items()}
        self.ours = self.scores[system]
        self._by_system = by_system
        self._our_records = by_system[system]
        self._seed = seed

    def level(self, name: str) -> Level:
        """Measure a system of the evaluation."""
        records, scores = self._by_system[name], self.scores[name]
        lead = difference(self.ours, scores, self._seed, pooled=True)
        alike = None
        if len(by_task(self.ours)) > 1:
            alike = difference(self.ours, scores, self._seed)
        return Level(
            system=name,
            accuracy=_estimate(scores),
            lead=lead,
            strict=None if lead is None else self._strict_lead(records),
            cost=relative_cost(records, self._our_records),
            unsure=self._is_unsure(records),
            unread=unread_share(records),
            alike=alike,
        )

    def bare_level(self, name: str, scores: Scores | None) -> Level | None:
        """Measure scores that no system of the evaluation has; None: there are none."""
        if scores is None:
            return None
        lead = difference(self.ours, scores, self._seed, pooled=True)
        return Level(name, _estimate(scores), lead)

    def _strict_lead(self, records: Sequence[Record]) -> Difference | None:
        """Measure the lead if what was left out counts as wrong; None: next to nothing was."""
        ours, theirs = _as_wrong(self._our_records), _as_wrong(records)
        masked = max(_masked_share(self._our_records), _masked_share(records))
        if masked <= NEGLIGIBLE and ours.keys() == theirs.keys():
            return None
        asked = ours | theirs
        first = {key: ours.get(key, [0.0]) for key in asked}
        second = {key: theirs.get(key, [0.0]) for key in asked}
        return difference(first, second, self._seed, pooled=True)

    def _is_unsure(self, records: Sequence[Record]) -> bool:
        """Return True if so much of a system is undecided that it may be as good as ours.

        What could not be read counts like it, of a worker alone.
        """
        alone = records[0].system.startswith(ALONE)
        unread = alone and unread_share(records) > UNREAD
        if _masked_share(records) <= UNSURE and not unread:
            return False
        kind_scores = grouped(
            (record.key, record.correct is not False or (unread and not is_read(record)))
            for record in records
        )
        lead = difference(self.ours, kind_scores, self._seed)
        return lead is None or lead.low <= 0


def _in_form(by_system: Mapping[str, Sequence[Record]], plays: Plays) -> dict[str, list[Record]]:
    """Return the records of workers that were asked once more: the better of both."""
    better: dict[str, list[Record]] = {}
    for system, scores in plays.in_form.items():
        records = by_system.get(system, ())
        if not records or not all(record.key in scores for record in records):
            continue
        again = [replace(one, correct=fmean(scores[one.key]) > 0.5) for one in records]
        kept = max(records, again, key=_count_right)
        better[system] = [replace(one, status="graded", rounds=()) for one in kept]
    return better


def _count_right(records: Sequence[Record]) -> int:
    return sum(bool(record.correct) for record in records)


def _as_wrong(records: Iterable[Record]) -> dict[Key, list[float]]:
    """Return scores in which what could not be decided is wrong."""
    return grouped((record.key, bool(record.correct)) for record in records)


def _masked_share(records: Sequence[Record]) -> float:
    return fmean(record.correct is None for record in records)


def _planner_alone(system: str) -> str:
    """Return the name of the system that is the planner of this one, asked alone; "": none is."""
    kind, colon, model = system.partition("?")[0].partition(":")
    if kind not in (CONDUCTOR, PLANNER):
        return ""
    return PLANNER_ALONE + colon + model


def _count_statuses(records: Sequence[Record]) -> dict[str, int]:
    counts = {"records": len(records), **dict.fromkeys(get_args(Status), 0)}
    return counts | Counter(record.status for record in records)


def _count_reasons(records: Iterable[Record]) -> dict[str, int]:
    """Count the parser's reasons of invalid plans, the most frequent first."""
    invalid = (record for record in records if record.status == "invalid" and record.rounds)
    reasons = Counter(record.rounds[0].reason for record in invalid)
    return dict(reasons.most_common())


def _timed_plans(records: Iterable[Record]) -> Iterable[TimedPlan]:
    for record in records:
        for workflow in record.workflows:
            yield TimedPlan(workflow, 0, record.correct, "/".join(record.key))


def _estimate(scores: Scores) -> Estimate | None:
    return statistics.estimate(scores) if scores else None


# ── what a lead rests on ──────────────────────────────────────────────────────────────────────────
def _group_questions(records: Sequence[Record]) -> dict[Key, str]:
    """Return the task of each question, or of one task its kind, the small kinds together."""
    if len({record.task for record in records}) > 1:
        return {record.key: record.task for record in records}
    kinds = {record.key: record.kind for record in records}
    sizes = Counter(kinds.values())
    return {key: kind if sizes[kind] >= SMALL else "other kinds" for key, kind in kinds.items()}


def _leads_by_group(
    groups: Mapping[Key, str], ours: Scores, theirs: Scores, seed: int
) -> dict[str, Difference]:
    """Measure the lead in each group; empty: there are not several groups with a lead."""
    leads: dict[str, Difference] = {}
    for group in dict.fromkeys(groups.values()):
        of_group = {key: scores for key, scores in ours.items() if groups[key] == group}
        lead = difference(of_group, theirs, seed)
        if lead is not None:
            leads[group] = lead
    return leads if len(leads) > 1 else {}


def _planner_or_best(
    groups: Mapping[Key, str], planners: Sequence[Sequence[Record]], best: Scores, seed: int
) -> Scores | None:
    """Return the better of two on each group: the best worker, or a planner where it answers.

    Of several planners the better one counts. None: none is shown to be better than the best
    worker.
    """
    best_gain, best_scores = 0.0, None
    for planner in planners:
        read = scores_by_problem(record for record in planner if is_read(record))
        where_read = {key: read.get(key, scores) for key, scores in best.items()}
        either = _choose_by_group(groups, where_read, best)
        gained = difference(either, best, seed)
        if gained is not None and gained.low > 0 and gained.value > best_gain:
            best_gain, best_scores = gained.value, either
    return best_scores


def _choose_by_group(groups: Mapping[Key, str], first: Scores, second: Scores) -> Scores:
    """Return the scores of the better of two on each group of questions.

    It is chosen on the other half of the group.
    """
    chosen: dict[Key, Sequence[float]] = {}
    shared = [key for key in groups if key in first and key in second]
    for group in dict.fromkeys(groups.values()):
        keys = [key for key in shared if groups[key] == group]
        chosen |= cross_fitted((first, second), keys)
    return chosen


def _share_of_headroom(ours: Scores, best: BestSingle, oracle: Scores) -> Captured | None:
    """Return the share of the headroom that is won; None: the oracle has no lead."""
    keys = [key for key in ours if key in best.naive and key in oracle]
    our_leads = [fmean(ours[key]) - fmean(best.naive[key]) for key in keys]
    oracle_leads = [fmean(oracle[key]) - fmean(best.naive[key]) for key in keys]
    if not keys or fmean(oracle_leads) <= 0:
        return None
    low, high = statistics.ratio_interval(our_leads, oracle_leads) or (None, None)
    won = fmean(our_leads) / fmean(oracle_leads)
    return Captured(won, low, high, len(keys))
