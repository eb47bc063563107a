"""What a pool could give to orchestration, measured on its workers' answers alone.

``headroom`` shows who is right where, who adds what nobody else has, who could be left out, the
oracle's lead over the best worker, and how many questions it takes to see a gain.

The best of noisy scores looks better than it is. So each best is given twice: naive, and without
luck. The best worker is fitted on other questions than those it is scored on, and the best of a
question is chosen by its other repeats. Workflows of several steps are not covered: they may reach
far beyond any choice of one worker a question.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from statistics import NormalDist, fmean, median

from openconductor.calls.cards import Calibration, Count
from openconductor.evaluation.eval_config import ALONE
from openconductor.evaluation.records import Frame, Record, frame_of, plain_text
from openconductor.evaluation.statistics import (
    Difference,
    Estimate,
    Key,
    Scores,
    difference,
    estimate,
    scores_by_problem,
    share_interval,
    task_mean,
    variance,
)
from openconductor.evaluation.tables import total_usage
from openconductor.measures import group_by

GAINS = (0.01, 0.02, 0.05, 0.10)
FEWEST = 30
"""The fewest questions on which a worker may be called redundant."""
NEXT_TO_NOTHING = 0.02
"""The loss that a pool can bear: a worker without which no more is lost is redundant."""
FOLDS = 10
PARTITIONS = 20
MOST_PATTERNS = 20


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker of a pool.

    Attributes:
        name, accuracy: its name, and its share of right answers alone.
        only: the share of questions that it alone gets (right in most repeats).
        loss: the fall of the pool's oracle without it (without luck where there are repeats).
        redundant: True if a loss of more than two points is excluded, False if there is a loss
            for certain, None if neither is known.
    """

    name: str
    accuracy: Estimate
    only: Estimate
    loss: Difference
    redundant: bool | None


@dataclass(frozen=True, slots=True)
class Winners:
    """A set of workers, and how many questions just these get."""

    workers: tuple[str, ...]
    questions: int


@dataclass(frozen=True, slots=True)
class Needed:
    """How many questions show a gain: at the median spread, and at the least and the largest.

    The spreads are those between the best worker and each other one.
    """

    gain: float
    questions: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Headroom:
    """The headroom of a pool; ``masked`` counts undecided records, which are left out.

    Attributes:
        repeats: the most decided answers of a worker to one question.
        workers: a row each, the best first.
        best_naive, best_fitted: accuracy of the best worker on these questions, and of the best on
            other questions.
        room_naive, room_corrected: the oracle's lead. Corrected is None if each question was asked
            once.
        got_by: how many questions are got by no worker, by one, by two …
        complementary: [row][column] is the share of questions that the row's worker gets and the
            column's does not.
        patterns: the most frequent sets of workers that get a question.
        needed: for each gain.
        visible: the smallest gain that as many questions as these show.
    """

    questions: int
    repeats: int
    masked: int
    workers: tuple[WorkerRow, ...]
    best: str
    best_naive: Estimate
    best_fitted: Estimate
    oracle_naive: Estimate
    oracle_corrected: Estimate | None
    room_naive: Difference
    room_corrected: Difference | None
    got_by: tuple[int, ...]
    complementary: tuple[tuple[float, ...], ...]
    patterns: tuple[Winners, ...]
    needed: tuple[Needed, ...]
    visible: float | None

    def to_json(self) -> dict[str, object]:
        """Return plain values; shares are fractions, null is unknown."""
        return asdict(self)


def headroom(
    records: Iterable[Record], *, seed: int = 0, gains: Sequence[float] = GAINS
) -> Headroom | None:
    """Measure what the workers of a pool leave to gain.

    Args:
        records: the answers; those of other systems than single workers are ignored.
        seed: of folds and bootstraps.
        gains: in (0, 1]; how many questions show each of them is computed.

    Returns:
        None if no worker alone has a decided answer.
    """
    by_worker = alone(records)
    decided = {
        name: [record for record in answers if record.correct is not None]
        for name, answers in by_worker.items()
    }
    scores = {name: scores_by_problem(answers) for name, answers in decided.items() if answers}
    best = best_single(scores, seed=seed)
    if best is None:
        return None
    answers = [record for of_worker in decided.values() for record in of_worker]
    solved = _right(answers) > 0.5
    masked = {name: len(by_worker[name]) - len(decided[name]) for name in by_worker}
    rows = _worker_rows(scores, solved, masked, seed)
    solved = solved[[row.name for row in rows]]
    naive = naive_oracle(scores)
    corrected = corrected_oracle(scores)
    room = difference(naive, best.naive, seed)
    assert room is not None  # the oracle has decided every question of the best worker
    spreads = _spreads(best.name, scores)
    winners = solved.sum(axis=1).value_counts()
    repeats = [len(of_question) for each in scores.values() for of_question in each.values()]
    return Headroom(
        questions=len(naive),
        repeats=max(repeats),
        masked=sum(masked.values()),
        workers=tuple(rows),
        best=best.name,
        best_naive=estimate(best.naive),
        best_fitted=estimate(best.fitted),
        oracle_naive=estimate(naive),
        oracle_corrected=None if corrected is None else estimate(corrected),
        room_naive=room,
        room_corrected=None if corrected is None else difference(corrected, best.fitted, seed),
        got_by=tuple(winners.reindex(range(len(scores) + 1), fill_value=0).tolist()),
        complementary=_complementary(solved),
        patterns=_patterns(solved),
        needed=_questions_by_gain(gains, spreads),
        visible=visible_gain(len(naive), median(spreads)) if spreads else None,
    )


def outcome_matrix(records: Iterable[Record]) -> dict[str, object]:
    """Return who is right where, as plain values.

    ``right[question][worker]`` is the share of right answers; None: none was decided. A question is
    its task, id and kind. Systems that are not single workers are ignored.
    """
    by_worker = alone(records)
    answers = [record for of_worker in by_worker.values() for record in of_worker]
    shares = _right(answers, by=("task", "problem", "kind"))
    right = shares.astype(object).where(shares.notna(), None)
    return {
        "workers": list(by_worker),
        "questions": shares.index.tolist(),
        "right": right.to_numpy().tolist(),
    }


def questions_needed(gain: float, spread: float) -> int:
    """Return how many questions a paired test at 5 % needs to see a gain in 80 % of all cases.

    The formula is R. J. Connor's (1987).

    ``spread`` is the variance over questions of the paired difference where there is no gain. For
    single answers it is the share of questions on which the two differ, at least the gain.

    Raises:
        ValueError: a gain outside (0, 1], or a negative spread.

    >>> questions_needed(0.05, 0.2), questions_needed(0.1, 0.2)
    (626, 155)
    """
    if not 0 < gain <= 1 or spread < 0:
        raise ValueError(f"got gain {gain}, spread {spread}: expected (0, 1], at least 0")
    variance_without = max(spread, gain)
    variance_with = max(0.0, variance_without - gain * gain)
    normal = NormalDist()
    reach = normal.inv_cdf(0.975) * math.sqrt(variance_without)
    reach += normal.inv_cdf(0.8) * math.sqrt(variance_with)
    return math.ceil((reach / gain) ** 2)


def visible_gain(questions: int, spread: float) -> float | None:
    """Return the smallest gain, in whole thousandths, that is seen with 80 % power; None: none."""
    for thousandths in range(1, 1001):
        gain = thousandths / 1000
        if questions_needed(gain, spread) <= questions:
            return gain
    return None


def alone(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the records of the workers that were asked alone, by worker."""
    asked = (record for record in records if record.system.startswith(ALONE))
    return group_by(asked, lambda record: plain_text(record.system.removeprefix(ALONE)))


def _right(records: Iterable[Record], by: Sequence[str] = ("task", "problem")) -> Frame:
    """Return the share of right answers, with a row for each question and a column a worker.

    Rows and columns stand in the order in which they first come. NaN: no answer was decided.

    Args:
        records: the answers of workers alone.
        by: the columns of the frame that tell questions apart.
    """
    frame: Frame = frame_of(records)
    frame["worker"] = frame["system"].str.removeprefix(ALONE)
    means = frame.groupby([*by, "worker"], sort=False)["score"].mean()
    questions = frame.set_index(list(by)).index.unique()
    return means.unstack("worker").reindex(index=questions, columns=frame["worker"].unique())


def _complementary(solved: Frame) -> tuple[tuple[float, ...], ...]:
    """Return the share of questions that the row's worker gets and the column's does not."""
    shares = solved.T.astype(float) @ (~solved).astype(float) / len(solved)
    return tuple(tuple(row) for row in shares.to_numpy().tolist())


def _patterns(solved: Frame) -> tuple[Winners, ...]:
    """Return the most frequent sets of workers that get a question, with their counts."""
    counts = Counter(tuple(solved.columns[row]) for row in solved.to_numpy())
    return tuple(Winners(*pattern) for pattern in counts.most_common(MOST_PATTERNS))


def _worker_rows(
    scores: Mapping[str, Scores], solved: Frame, masked: Mapping[str, int], seed: int
) -> list[WorkerRow]:
    """Return a row for each worker, the most accurate first."""
    whole = corrected_oracle(scores) or naive_oracle(scores)
    once = solved.sum(axis=1) == 1
    rows: list[WorkerRow] = []
    for name in scores:
        others = {other: each for other, each in scores.items() if other != name}
        without = corrected_oracle(others) or naive_oracle(others)
        loss = difference(whole, {key: without.get(key, [0.0]) for key in whole}, seed)
        assert loss is not None
        if not others or loss.low > 0:
            redundant = False
        elif loss.high <= NEXT_TO_NOTHING and loss.problems >= FEWEST:
            redundant = True
        else:
            redundant = None
        row = WorkerRow(
            name=name,
            accuracy=estimate(scores[name], masked[name]),
            only=_share(once & solved[name]),
            loss=loss,
            redundant=redundant,
        )
        rows.append(row)
    return sorted(rows, key=lambda row: -row.accuracy.value)


def _share(holds: Frame) -> Estimate:
    """Return the share of questions for which a condition holds."""
    values = holds.astype(float).tolist()
    questions = len(values)
    return Estimate(fmean(values), *share_interval(values, questions), questions)


def _spreads(best: str, scores: Mapping[str, Scores]) -> list[float]:
    """Return the variances of the paired differences of the best worker and each other, sorted."""
    spreads: list[float] = []
    for name, others in scores.items():
        paired = [
            fmean(repeats) - fmean(others[key])
            for key, repeats in scores[best].items()
            if key in others
        ]
        if name != best and len(paired) > 1:
            spreads.append(variance(paired))
    return sorted(spreads)


def _questions_by_gain(gains: Sequence[float], spreads: Sequence[float]) -> tuple[Needed, ...]:
    """Return how many questions show each gain, given sorted spreads; empty: there are none."""
    if not spreads:
        return ()
    needed: list[Needed] = []
    for gain in gains:
        row = Needed(
            gain=gain,
            questions=questions_needed(gain, median(spreads)),
            low=questions_needed(gain, spreads[0]),
            high=questions_needed(gain, spreads[-1]),
        )
        needed.append(row)
    return tuple(needed)


# ── calibration ───────────────────────────────────────────────────────────────────────────────────
FEWEST_OF_KIND = 20
"""The fewest answers of a task or a kind whose rate is kept: few answers are mostly luck."""


def calibrate(
    records: Sequence[Record], day: date
) -> tuple[dict[str, Calibration], dict[str, int]]:
    """Return the measurement of a worker by task, and its decided answers where they are too few.

    Too few is a category of its own for a task of which no rate is kept. The categories of several
    tasks stand behind their task's name, as on a card.

    Args:
        records: the worker's answers.
        day: the day of the measurement.
    """
    calibrations: dict[str, Calibration] = {}
    too_few: dict[str, int] = {}
    tasks = group_by(records, lambda record: record.task)
    for task, answers in tasks.items():
        decided = _decided(answers)
        if len(decided) < FEWEST_OF_KIND:
            too_few[task] = len(decided)
            continue
        categories: dict[str, Count] = {}
        for kind, of_kind in group_by(answers, lambda record: record.kind).items():
            right = _decided(of_kind)
            if kind and len(right) >= FEWEST_OF_KIND:
                categories[kind] = Count(sum(right), len(right), answers=len(of_kind))
            elif kind:
                too_few[kind if len(tasks) == 1 else f"{task} {kind}"] = len(right)
        usage = total_usage(answers)
        calibrations[task] = Calibration(
            date=day,
            right=sum(decided),
            n=len(decided),
            answers=len(answers),
            seconds=round(median(record.usage.seconds for record in answers), 3),
            dollars=None if usage.unpriced_calls else float(usage.dollars / len(answers)),
            categories=categories,
        )
    return calibrations, too_few


def _decided(records: Sequence[Record]) -> list[bool]:
    return [record.correct for record in records if record.correct is not None]


# ── the best of several, with and without luck ────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class BestSingle:
    """The best of several systems, of those that have decided at least half as many as any.

    Attributes:
        name: the system that is best on these questions.
        naive: its scores.
        fitted: for each question the score of the system that is best on other questions; questions
            that this one has not decided are left out.
        chosen: the share of the questions for which each system was that one.
    """

    name: str
    naive: Scores
    fitted: Scores
    chosen: Mapping[str, float]


def best_single(systems: Mapping[str, Scores], *, seed: int = 0) -> BestSingle | None:
    """Find the best system, every task weighing the same; None without any score.

    It is found on these questions, and by cross-fitting over ten folds, drawn 20 times.
    """
    means = {
        name: {key: fmean(repeats) for key, repeats in scores.items()}
        for name, scores in systems.items()
        if scores
    }
    if not means:
        return None
    most = max(len(of_system) for of_system in means.values())
    # A system that failed on all but a few easy questions is not the best.
    means = {name: of_system for name, of_system in means.items() if 2 * len(of_system) >= most}
    best = max(means, key=lambda name: task_mean(means[name]))
    questions = sorted({key for scores in means.values() for key in scores})
    rng = random.Random(f"folds/{seed}")
    totals = {name: _Total(of_system) for name, of_system in means.items()}
    held_out: dict[Key, list[float]] = {}
    chosen = dict.fromkeys(means, 0)
    for _ in range(PARTITIONS):
        rng.shuffle(questions)
        for part in range(min(FOLDS, len(questions))):
            fold = questions[part::FOLDS]
            fitted = _best_outside(totals, fold) or best
            chosen[fitted] += len(fold)
            for key in fold:
                if key in means[fitted]:
                    held_out.setdefault(key, []).append(means[fitted][key])
    total = sum(chosen.values())
    return BestSingle(
        name=best,
        naive=systems[best],
        fitted={key: [fmean(held_out[key])] for key in sorted(held_out)},
        chosen={name: count / total for name, count in chosen.items()},
    )


class _Total:
    """The means of a system, by task: their sums and counts."""

    def __init__(self, means: Mapping[Key, float]) -> None:
        self._means = means
        self._sums: dict[str, float] = {}
        self._counts: Counter[str] = Counter()
        for (task, _), mean in means.items():
            self._sums[task] = self._sums.get(task, 0.0) + mean
            self._counts[task] += 1

    def without(self, fold: Sequence[Key]) -> float | None:
        """Return the mean outside a fold, every task weighing the same; None: nothing is there."""
        sums, counts = dict(self._sums), dict(self._counts)
        for key in fold:
            if key in self._means:
                task, _ = key
                sums[task] -= self._means[key]
                counts[task] -= 1
        rest = [sums[task] / count for task, count in counts.items() if count]
        # Rounded, so that equal means that were added up in another order are equal.
        return round(fmean(rest), 12) if rest else None


def _best_outside(totals: Mapping[str, _Total], fold: Sequence[Key]) -> str | None:
    """Return the best system on the questions outside a fold; None: nothing was decided there.

    A tie goes to the first.
    """
    outside: dict[str, float] = {}
    for name, total in totals.items():
        mean = total.without(fold)
        if mean is not None:
            outside[name] = mean
    return max(outside, key=lambda name: outside[name], default=None)


def naive_oracle(systems: Mapping[str, Scores]) -> dict[Key, list[float]]:
    """Return for each question the best mean score of any system, noise included."""
    best: dict[Key, list[float]] = {}
    for scores in systems.values():
        for key, repeats in scores.items():
            best[key] = [max([fmean(repeats), *best.get(key, ())])]
    return best


def corrected_oracle(systems: Mapping[str, Scores]) -> dict[Key, list[float]] | None:
    """Return for each question the mean score of the systems that are best on its other repeats.

    None: no question has two decided repeats of a system.
    """
    corrected: dict[Key, list[float]] = {}
    for key in dict.fromkeys(key for scores in systems.values() for key in scores):
        scores_of_key = [scores.get(key, ()) for scores in systems.values()]
        repeated = [repeats for repeats in scores_of_key if len(repeats) > 1]
        if repeated:
            corrected[key] = [_score_without_luck(repeated)]
    return corrected or None


def _score_without_luck(systems: Sequence[Sequence[float]]) -> float:
    """Score each repeat by the systems that are best on the other repeats; return the mean."""
    held_out: list[float] = []
    for repeat in range(max(len(repeats) for repeats in systems)):
        by_rest: dict[float, list[float]] = {}
        for repeats in systems:
            if repeat < len(repeats):
                rest = (sum(repeats) - repeats[repeat]) / (len(repeats) - 1)
                by_rest.setdefault(rest, []).append(repeats[repeat])
        held_out.append(fmean(by_rest[max(by_rest)]))
    return fmean(held_out)
