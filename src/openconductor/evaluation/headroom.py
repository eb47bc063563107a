"""What a pool could give to orchestration, before anyone pays for a training.

In: the records of every worker alone on the same questions. Out: Headroom: who is right where, who adds what nobody
else has, who could be left out, how far the best worker of each question is above the best worker, and how many
questions it takes to see a gain.

Two numbers stand for the oracle wherever there are repeats (``selection``): the naive one, which takes luck for skill,
and the corrected one. Not covered: what workflows of several steps can do. In the gym those reach far beyond any choice
of one worker a question.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean, median

from openconductor.evaluation.intervals import share_interval, variance
from openconductor.evaluation.records import Record
from openconductor.evaluation.selection import Key, Scores, best_single, corrected_oracle, naive_oracle
from openconductor.evaluation.statistics import Difference, Estimate, clustered_mean, difference, scores_by_problem

WORKER = "worker:"
"""How the name of a system begins that is one worker alone."""
GAINS = (0.01, 0.02, 0.05, 0.10)
POWER = 0.8
FEWEST = 30
"""The fewest questions on which a worker is called redundant."""
NEXT_TO_NOTHING = 0.02
"""The loss that a pool can bear: a worker without which no more is lost is redundant."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker of a pool.

    Attributes:
        name: its name.
        accuracy: its share of right answers alone.
        only: the share of questions that it gets and no other worker does (a question is got where most repeats are).
        loss: by how much the oracle of the pool falls without it (corrected where there are repeats).
        redundant: whether leaving it out costs next to nothing: True where a loss of more than two points is excluded
            (by the interval of ``loss``), False where there is a loss for certain, None where neither can be said.
    """

    name: str
    accuracy: Estimate
    only: Estimate
    loss: Difference
    redundant: bool | None


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a pool has to offer.

    Attributes:
        questions, repeats: how many questions, and the most decided answers of a worker to one.
        masked: records that could not be decided; they are left out.
        workers: a row each, the best first.
        best: the name of the best worker on these questions.
        best_naive, best_fitted: its accuracy; and that of the worker that is best on other questions.
        oracle_naive, oracle_corrected: the best worker of each question, as it seems and without luck; the latter None
            where questions were asked once.
        room_naive, room_corrected: the oracle's lead over the best worker: naive over naive, corrected over fitted.
        got_by: how many questions are got by no worker, by one, by two, and so on.
        complementary: [row][column] is the share of questions that the row's worker gets and the column's does not.
        patterns: which workers get a question, and how many questions are like that; the most frequent first.
        needed: questions to see a gain of so much with 80 % power: (gain, low, middle, high) over the workers that the
            best one is paired with.
        visible: the smallest gain that so many questions as these show with 80 % power (middle).
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
    patterns: tuple[tuple[tuple[str, ...], int], ...]
    needed: tuple[tuple[float, int, int, int], ...]
    visible: float | None

    def to_json(self) -> dict[str, object]:
        """The same as plain values; shares are fractions, what is not known is null."""
        values = asdict(self)
        values["patterns"] = [{"workers": list(names), "questions": count} for names, count in self.patterns]
        values["needed"] = [
            {"gain": gain, "questions": middle, "low": low, "high": high} for gain, low, middle, high in self.needed
        ]
        return values


@dataclass(frozen=True, slots=True)
class Matrix:
    """Who is right where.

    Attributes:
        workers: the columns, in the order in which they come.
        questions: the rows: task, id and kind.
        right: [row][column] is the share of right answers among those decided; None where none was.
    """

    workers: tuple[str, ...]
    questions: tuple[tuple[str, str, str], ...]
    right: tuple[tuple[float | None, ...], ...]


def outcome_matrix(records: Iterable[Record]) -> Matrix:
    """The outcome matrix of workers alone; systems other than ``worker:NAME`` are passed over."""
    alone = [record for record in records if record.system.startswith(WORKER)]
    workers = tuple(dict.fromkeys(record.system.removeprefix(WORKER) for record in alone))
    questions = tuple(dict.fromkeys((record.task, record.problem, record.kind) for record in alone))
    answers: dict[tuple[str, str, str], list[float]] = {}
    for record in alone:
        if record.correct is not None:
            key = (record.task, record.problem, record.system.removeprefix(WORKER))
            answers.setdefault(key, []).append(float(record.correct))

    def share(task: str, problem: str, worker: str) -> float | None:
        found = answers.get((task, problem, worker))
        return fmean(found) if found else None

    return Matrix(
        workers, questions, tuple(tuple(share(task, one, name) for name in workers) for task, one, _ in questions)
    )


def headroom(records: Iterable[Record], *, seed: int = 0, gains: Sequence[float] = GAINS) -> Headroom | None:
    """What the workers of a pool, alone on the same questions, leave to gain.

    Args:
        records: of systems ``worker:NAME``; others are passed over.
        seed: of folds and bootstraps.
        gains: the differences of shares, in (0, 1], for which the number of questions is said.

    Returns:
        None where no worker has a decided answer.
    """
    by_worker: dict[str, list[Record]] = {}
    for record in records:
        if record.system.startswith(WORKER):
            by_worker.setdefault(record.system.removeprefix(WORKER), []).append(record)
    scores = {name: found for name, of_one in by_worker.items() if (found := scores_by_problem(of_one))}
    best = best_single(scores, seed=seed)
    if best is None:
        return None
    naive, corrected = naive_oracle(scores), corrected_oracle(scores)
    got = _got(scores)
    rows = [_row(name, scores, got, by_worker[name], seed) for name in scores]
    rows.sort(key=lambda row: -row.accuracy.value)
    names = [row.name for row in rows]
    counts = Counter(tuple(name for name in names if name in got[key]) for key in got)
    sizes = Counter(len(of_one) for of_one in got.values())
    spreads = _spreads(best.name, scores)
    room = difference(naive, best.naive, seed)
    assert room is not None  # the best worker's questions are the oracle's, too
    return Headroom(
        questions=len(naive),
        repeats=max(len(of_one) for each in scores.values() for of_one in each.values()),
        masked=sum(record.correct is None for of_one in by_worker.values() for record in of_one),
        workers=tuple(rows),
        best=best.name,
        best_naive=estimate(best.naive),
        best_fitted=estimate(best.fitted),
        oracle_naive=estimate(naive),
        oracle_corrected=None if corrected is None else estimate(corrected),
        room_naive=room,
        room_corrected=None if corrected is None else difference(corrected, best.fitted, seed),
        got_by=tuple(sizes[size] for size in range(len(scores) + 1)),
        complementary=tuple(tuple(_without(row, column, got) for column in names) for row in names),
        patterns=tuple(counts.most_common(20)),
        needed=_needed(spreads, gains),
        visible=visible_gain(len(naive), median(spreads)) if spreads else None,
    )


def questions_needed(gain: float, spread: float, *, power: float = POWER) -> int:
    """How many questions a paired test at 5 % needs to see a gain with so much power (R. J. Connor, 1987).

    Args:
        gain: the difference of two shares, in (0, 1].
        spread: the variance over questions of the paired difference where there is no gain. For single answers that is
            the share of questions on which the two differ; never less than the gain, which makes them differ.
        power: how often the gain is to be seen.

    Raises:
        ValueError: a gain outside (0, 1], a negative spread, a power outside (0.5, 1).

    >>> questions_needed(0.05, 0.2), questions_needed(0.1, 0.2)
    (626, 155)
    """
    if not 0 < gain <= 1 or spread < 0 or not 0.5 < power < 1:
        raise ValueError(f"got gain {gain}, spread {spread}, power {power}: expected (0, 1], at least 0, (0.5, 1)")
    null = max(spread, gain)
    normal = NormalDist()
    reach = normal.inv_cdf(0.975) * math.sqrt(null) + normal.inv_cdf(power) * math.sqrt(max(0.0, null - gain * gain))
    return math.ceil((reach / gain) ** 2)


def visible_gain(questions: int, spread: float, *, power: float = POWER) -> float | None:
    """The smallest gain, in whole thousandths, that so many questions show; None where none does."""
    return next(
        (mark / 1000 for mark in range(1, 1001) if questions_needed(mark / 1000, spread, power=power) <= questions),
        None,
    )


def estimate(scores: Scores) -> Estimate:
    """The mean of scores by problem, with its interval."""
    mean = clustered_mean(list(scores.values()))
    return Estimate(mean.mean, mean.low, mean.high, len(scores))


def _row(
    name: str, scores: Mapping[str, Scores], got: Mapping[Key, set[str]], of_one: list[Record], seed: int
) -> WorkerRow:
    others = {other: each for other, each in scores.items() if other != name}
    whole, without = corrected_oracle(scores) or naive_oracle(scores), corrected_oracle(others) or naive_oracle(others)
    loss = difference(whole, {key: without.get(key, [0.0]) for key in whole}, seed)
    assert loss is not None
    alone = [float(winners == {name}) for winners in got.values()]
    mean = clustered_mean(list(scores[name].values()))
    masked = sum(record.correct is None for record in of_one)
    return WorkerRow(
        name=name,
        accuracy=Estimate(mean.mean, mean.low, mean.high, len(scores[name]), masked),
        only=Estimate(fmean(alone), *share_interval(alone, len(alone)), len(alone)),
        loss=loss,
        redundant=_redundant(loss) if others else False,
    )


def _redundant(loss: Difference) -> bool | None:
    if loss.low > 0:
        return False
    return True if loss.high <= NEXT_TO_NOTHING and loss.problems >= FEWEST else None


def _got(scores: Mapping[str, Scores]) -> dict[Key, set[str]]:
    """Which workers get each question: right in more than half of the decided repeats."""
    got: dict[Key, set[str]] = {}
    for name, each in scores.items():
        for key, of_one in each.items():
            winners = got.setdefault(key, set())
            if fmean(of_one) > 0.5:
                winners.add(name)
    return got


def _without(row: str, column: str, got: Mapping[Key, set[str]]) -> float:
    return sum(row in winners and column not in winners for winners in got.values()) / len(got)


def _spreads(best: str, scores: Mapping[str, Scores]) -> list[float]:
    """The variance of the paired difference between the best worker and each other one."""
    found: list[float] = []
    for name, each in scores.items():
        both = [fmean(of_one) - fmean(each[key]) for key, of_one in scores[best].items() if key in each]
        if name != best and len(both) > 1:
            found.append(variance(both))
    return sorted(found)


def _needed(spreads: Sequence[float], gains: Sequence[float]) -> tuple[tuple[float, int, int, int], ...]:
    if not spreads:
        return ()
    low, middle, high = spreads[0], median(spreads), spreads[-1]
    return tuple(
        (gain, questions_needed(gain, low), questions_needed(gain, middle), questions_needed(gain, high))
        for gain in gains
    )
