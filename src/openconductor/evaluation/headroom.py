"""What a pool could give to orchestration, before anyone pays for a training; and the gym's levels for the demo.

In: the records of every worker alone on the same questions. Out: Headroom: who is right where, who
adds what nobody else has, who could be left out, the oracle's lead over the best worker, and how
many questions it takes to see a gain.

The best of noisy scores looks better than it is, so it is given as it seems (naive) and without
luck: the best worker is fitted on other questions than those it is scored on, the best of each
question chosen by its other repeats. Not covered: workflows of several steps, which may reach far
beyond any choice of one worker a question.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean, median

from openconductor.baselines.planned import BestFixed, PlannedOrchestrator, RandomWorkflows
from openconductor.baselines.single import SingleWorker
from openconductor.conductor import Conductor
from openconductor.errors import ConfigError
from openconductor.evaluation import Outcome, evaluate
from openconductor.evaluation.eval_config import ALONE, GYM, ORACLE
from openconductor.evaluation.records import Record, record_of
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
from openconductor.evaluation.tables import make_row
from openconductor.graders.exact import ExactGrader
from openconductor.gym.exact import oracle_workflow
from openconductor.gym.levels import BEST_FIXED
from openconductor.gym.questions import KINDS, GymQuestion, Kind, draw_questions, read_question
from openconductor.gym.workers import PROFILES
from openconductor.measures import Topology, group_by, mean_steps, topology_shares, worker_shares
from openconductor.pool import WorkerPool
from openconductor.protocols import Orchestrator
from openconductor.types import Question, Usage

OnProgress = Callable[[int, int, str], None]

GAINS = (0.01, 0.02, 0.05, 0.10)
FEWEST = 30  # questions on which a worker is called redundant
NEXT_TO_NOTHING = (
    0.02  # the loss that a pool can bear: a worker without which no more is lost is redundant
)
FOLDS = 10
PARTITIONS = 20
LEVELS = ("conductor", "random", "best_worker", "best_fixed", "oracle")


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker of a pool.

    Attributes:
        name, accuracy: its name, and its share of right answers alone.
        only: the share of questions that it alone gets (right in most repeats).
        loss: by how much the pool's oracle falls without it (without luck where there are repeats).
        redundant: True where a loss of more than two points is excluded, False where there is one
            for certain.
    """

    name: str
    accuracy: Estimate
    only: Estimate
    loss: Difference
    redundant: bool | None


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a pool has to offer; ``masked`` counts the records that could not be decided, which are left out.

    Attributes:
        repeats: the most decided answers of a worker to one question.
        workers: a row each, the best first.
        best_naive, best_fitted: accuracy of the best worker on these questions, and of the best on
            other questions.
        room_naive, room_corrected: the oracle's lead; corrected is None where questions were asked
            once.
        got_by: how many questions are got by no worker, by one, by two …
        complementary: [row][column] is the share of questions that the row's worker gets and the
            column's does not.
        patterns: which workers get a question, and how many questions are like that.
        needed: (gain, low, middle, high): questions to see the gain, over the workers that the best
            is paired with.
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
    patterns: tuple[tuple[tuple[str, ...], int], ...]
    needed: tuple[tuple[float, *tuple[int, ...]], ...]
    visible: float | None

    def to_json(self) -> dict[str, object]:
        """The same as plain values; shares are fractions, what is not known is null."""
        return {
            **asdict(self),
            "patterns": [
                {"workers": list(names), "questions": count} for names, count in self.patterns
            ],
            "needed": [
                {"gain": gain, "questions": middle, "low": low, "high": high}
                for gain, low, middle, high in self.needed
            ],
        }


def headroom(
    records: Iterable[Record], *, seed: int = 0, gains: Sequence[float] = GAINS
) -> Headroom | None:
    """What the workers of a pool leave to gain (``gains``: in (0, 1]); None where none alone has a decided answer."""
    by_worker = alone(records)
    scores = {
        name: found for name, of_one in by_worker.items() if (found := scores_by_problem(of_one))
    }
    best = best_single(scores, seed=seed)
    if best is None:
        return None
    naive, corrected = naive_oracle(scores), corrected_oracle(scores)
    got: dict[Key, set[str]] = {key: set() for each in scores.values() for key in each}
    for name, each in scores.items():
        for key, of_one in each.items():
            if fmean(of_one) > 0.5:
                got[key].add(name)
    masked = {
        name: sum(one.correct is None for one in of_one) for name, of_one in by_worker.items()
    }
    rows = [_row(name, scores, got, masked[name], seed) for name in scores]
    rows.sort(key=lambda row: -row.accuracy.value)
    names = [row.name for row in rows]
    sizes = Counter(len(winners) for winners in got.values())
    spreads = _spreads(best.name, scores)
    room = difference(naive, best.naive, seed)
    assert room is not None  # the best worker's questions are the oracle's, too
    return Headroom(
        questions=len(naive),
        repeats=max(len(of_one) for each in scores.values() for of_one in each.values()),
        masked=sum(masked.values()),
        workers=tuple(rows),
        best=best.name,
        best_naive=estimate(best.naive),
        best_fitted=estimate(best.fitted),
        oracle_naive=estimate(naive),
        oracle_corrected=None if corrected is None else estimate(corrected),
        room_naive=room,
        room_corrected=None if corrected is None else difference(corrected, best.fitted, seed),
        got_by=tuple(sizes[size] for size in range(len(scores) + 1)),
        complementary=tuple(
            tuple(
                sum(row in got[key] and column not in got[key] for key in got) / len(got)
                for column in names
            )
            for row in names
        ),
        patterns=tuple(
            Counter(tuple(name for name in names if name in got[key]) for key in got).most_common(
                20
            )
        ),
        needed=tuple(
            (
                gain,
                *(
                    questions_needed(gain, spread)
                    for spread in (spreads[0], median(spreads), spreads[-1])
                ),
            )
            for gain in (gains if spreads else ())
        ),
        visible=visible_gain(len(naive), median(spreads)) if spreads else None,
    )


def outcome_matrix(records: Iterable[Record]) -> dict[str, object]:
    """Who is right where, as plain values: ``right[question][worker]`` is the share of right answers.

    It is None where none was decided. A question is its task, id and kind; other systems than
    workers are passed over.
    """
    by_worker = alone(records)
    every = [record for of_one in by_worker.values() for record in of_one]
    questions = list(dict.fromkeys((record.task, record.problem, record.kind) for record in every))
    scores = [scores_by_problem(of_one) for of_one in by_worker.values()]
    right = [
        [fmean(each[task, one]) if (task, one) in each else None for each in scores]
        for task, one, _ in questions
    ]
    return {"workers": list(by_worker), "questions": questions, "right": right}


def questions_needed(gain: float, spread: float, *, power: float = 0.8) -> int:
    """How many questions a paired test at 5 % needs to see a gain with so much power (R. J. Connor, 1987).

    ``spread`` is the variance over questions of the paired difference where there is no gain: for
    single answers the share of questions on which the two differ, at least the gain.

    Raises:
        ValueError: a gain outside (0, 1], a negative spread, a power outside (0.5, 1).

    >>> questions_needed(0.05, 0.2), questions_needed(0.1, 0.2)
    (626, 155)
    """
    if not 0 < gain <= 1 or spread < 0 or not 0.5 < power < 1:
        raise ValueError(
            f"got gain {gain}, spread {spread}, power {power}: expected (0, 1], at least 0, (0.5, 1)"
        )
    null = max(spread, gain)
    normal = NormalDist()
    reach = normal.inv_cdf(0.975) * math.sqrt(null) + normal.inv_cdf(power) * math.sqrt(
        max(0.0, null - gain * gain)
    )
    return math.ceil((reach / gain) ** 2)


def visible_gain(questions: int, spread: float) -> float | None:
    """The smallest gain, in whole thousandths, that this many questions show with 80 % power; None where none does."""
    return next(
        (
            mark / 1000
            for mark in range(1, 1001)
            if questions_needed(mark / 1000, spread) <= questions
        ),
        None,
    )


def alone(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of the workers that were asked alone, by worker."""
    asked = (record for record in records if record.system.startswith(ALONE))
    return group_by(asked, lambda record: record.system.removeprefix(ALONE))


def _row(
    name: str, scores: Mapping[str, Scores], got: Mapping[Key, set[str]], masked: int, seed: int
) -> WorkerRow:
    others = {other: each for other, each in scores.items() if other != name}
    whole, without = (
        corrected_oracle(scores) or naive_oracle(scores),
        corrected_oracle(others) or naive_oracle(others),
    )
    loss = difference(whole, {key: without.get(key, [0.0]) for key in whole}, seed)
    assert loss is not None
    alone = [float(winners == {name}) for winners in got.values()]
    needed = not others or loss.low > 0
    excluded = loss.high <= NEXT_TO_NOTHING and loss.problems >= FEWEST
    return WorkerRow(
        name=name,
        accuracy=estimate(scores[name], masked),
        only=Estimate(fmean(alone), *share_interval(alone, len(alone)), len(alone)),
        loss=loss,
        redundant=False if needed else True if excluded else None,
    )


def _spreads(best: str, scores: Mapping[str, Scores]) -> list[float]:
    """The variances of the paired differences between the best worker and each other one, in order."""
    found: list[float] = []
    for name, each in scores.items():
        both = [
            fmean(of_one) - fmean(each[key]) for key, of_one in scores[best].items() if key in each
        ]
        if name != best and len(both) > 1:
            found.append(variance(both))
    return sorted(found)


@dataclass(frozen=True, slots=True)
class BestSingle:
    """The best of several systems on these questions, of those that have decided at least half as many as any.

    ``naive`` are its scores; ``fitted`` of each question the score of the system that is best on
    other questions (what that one has not decided is left out), ``chosen`` how often each was that.
    """

    name: str
    naive: Scores
    fitted: Scores
    chosen: Mapping[str, float]


def best_single(systems: Mapping[str, Scores], *, seed: int = 0) -> BestSingle | None:
    """The best system, every task weighing the same; None without any score.

    As it seems, and by cross-fitting over ten folds, drawn 20 times.
    """
    means = {
        name: {key: fmean(of_one) for key, of_one in scores.items()}
        for name, scores in systems.items()
        if scores
    }
    if not means:
        return None
    most = max(
        map(len, means.values())
    )  # one that failed on all but a few easy questions is not the best
    means = {name: of_one for name, of_one in means.items() if 2 * len(of_one) >= most}
    name = max(means, key=lambda one: task_mean(means[one]))
    questions = sorted({key for scores in means.values() for key in scores})
    rng = random.Random(f"folds/{seed}")
    found: dict[Key, list[float]] = {}
    chosen = dict.fromkeys(means, 0)
    for _ in range(PARTITIONS):
        rng.shuffle(questions)
        for part in range(min(FOLDS, len(questions))):
            inside = questions[part::FOLDS]
            best = _best_outside(means, frozenset(inside)) or name
            chosen[best] += len(inside)
            for key in inside:
                if key in means[best]:
                    found.setdefault(key, []).append(means[best][key])
    total = sum(chosen.values())
    fitted = {key: [fmean(found[key])] for key in sorted(found)}
    return BestSingle(
        name, systems[name], fitted, {one: count / total for one, count in chosen.items()}
    )


def _best_outside(means: Mapping[str, Mapping[Key, float]], inside: frozenset[Key]) -> str | None:
    """The best system on the questions outside a fold, of equals the first; None where nothing was decided there."""
    outside: dict[str, float] = {}
    for name, of_one in means.items():
        if rest := {key: mean for key, mean in of_one.items() if key not in inside}:
            outside[name] = round(
                task_mean(rest), 12
            )  # what was added up in another order is equal
    return max(outside, key=lambda name: outside[name], default=None)


def naive_oracle(systems: Mapping[str, Scores]) -> dict[Key, list[float]]:
    """For each question the best mean score of any system: what hindsight reaches, noise included."""
    found: dict[Key, list[float]] = {}
    for scores in systems.values():
        for key, of_one in scores.items():
            found[key] = [max([fmean(of_one), *found.get(key, ())])]
    return found


def corrected_oracle(systems: Mapping[str, Scores]) -> dict[Key, list[float]] | None:
    """For each question the mean score, on each repeat, of the systems that are best on its other repeats.

    None where no question has two decided repeats of a system.
    """
    found: dict[Key, list[float]] = {}
    for key in {key: None for scores in systems.values() for key in scores}:
        repeated = [one for scores in systems.values() if len(one := scores.get(key, ())) > 1]
        held_out: list[float] = []
        for repeat in range(max(map(len, repeated), default=0)):
            there = [one for one in repeated if repeat < len(one)]
            rest = [((sum(one) - one[repeat]) / (len(one) - 1), one[repeat]) for one in there]
            best = max(others for others, _ in rest)
            held_out.append(fmean(score for others, score in rest if others == best))
        if held_out:
            found[key] = [fmean(held_out)]
    return found or None


@dataclass(frozen=True, slots=True)
class GymTable:
    """What was measured on the held-out questions, by ``LEVELS``, by worker, and of the Conductor's own workflows.

    ``best_worker`` is the worker that did best on just these questions, which flatters it (and
    never the Conductor).
    """

    questions: int
    seed: int
    levels: Mapping[str, Estimate]
    workers: Mapping[str, float]
    masked: int
    validity: float
    accuracy_given_valid: float | None
    routing_entropy_bits: float
    worker_share: Mapping[str, float]
    topology_share: Mapping[Topology, float]
    mean_steps: float | None
    mean_steps_by_kind: Mapping[Kind, float | None]
    usage: Usage
    seconds: float

    def to_json(self) -> dict[str, object]:
        """The object that ``demo --json`` prints; all shares are fractions."""
        values = asdict(self)
        levels, usage = self.levels, self.usage
        return {
            **{name: values.pop(name) for name in ("questions", "seed")},
            "accuracy": {name: level.value for name, level in levels.items()},
            "ci95": {name: [level.low, level.high] for name, level in levels.items()},
            **{name: value for name, value in values.items() if name != "levels"},
            "usage": {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "dollars": float(usage.dollars),
            },
        }


async def gym_table(
    conductor: Conductor,
    *,
    questions: int = 400,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> GymTable:
    """Ask the Conductor and every reference the same questions of the test split; nothing is an expectation.

    The Conductor's pool is ``gym_pool(seed)``, or some of its workers; the references have the
    same. ``on_progress`` is told after each answer; the references come first.

    Raises:
        ConfigError: ``questions`` is below 1.
        OpenConductorError: the Conductor's provider failed on every question, or in a way that
            stops a run.
    """
    if questions < 1:
        raise ConfigError(f"gym_table.questions: got {questions}, expected at least 1")
    begun = time.perf_counter()
    problems = [question.problem() for question in draw_questions("test", questions, seed=seed)]
    pool = conductor.pool
    levels: dict[str, Estimate] = {}
    ours: list[Record] = []
    for name, system in {**references(pool, seed), "conductor": conductor}.items():
        done = itertools.count(1)

        def told(_: Outcome, name: str = name, done: Iterator[int] = done) -> None:
            if on_progress is not None:
                on_progress(next(done), questions, name)

        outcomes = await evaluate(system, problems, ExactGrader(), on_result=told)
        ours = [record_of(outcome, system=name) for outcome in outcomes]
        scores = scores_by_problem(ours)
        if not scores:
            raise next(
                outcome.episode.error for outcome in outcomes if outcome.episode.error is not None
            )
        levels[name] = estimate(scores, sum(record.correct is None for record in ours))
    workers = {worker.name: levels[worker.name].value for _, worker in pool}
    levels["best_worker"] = levels[max(workers, key=lambda name: workers[name])]
    row = make_row("conductor", GYM, ours, 1)
    workflows = [workflow for record in ours for workflow in record.workflows]
    shares = worker_shares(workflows)
    return GymTable(
        questions=questions,
        seed=seed,
        levels={name: levels[name] for name in LEVELS if name in levels},
        workers=workers,
        masked=row.masked,
        validity=row.validity or 0.0,
        accuracy_given_valid=row.accuracy_given_valid,
        routing_entropy_bits=row.routing_entropy_bits or 0.0,
        worker_share={worker.name: shares.get(ordinal, 0.0) for ordinal, worker in pool},
        topology_share=topology_shares(workflows),
        mean_steps=row.mean_steps,
        mean_steps_by_kind={
            kind: mean_steps(
                workflow for record in ours if record.kind == kind for workflow in record.workflows
            )
            for kind in KINDS
        },
        usage=sum((record.usage for record in ours), Usage()),
        seconds=time.perf_counter() - begun,
    )


def references(pool: WorkerPool, seed: int = 0) -> dict[str, Orchestrator]:
    """What the Conductor is measured against in the gym, by name: each worker alone, and the planned levels.

    The best fixed workflow is one of them where all its workers are in the pool.
    """
    offered = {ordinal: PROFILES[ordinal] for ordinal in pool.ordinals}
    systems: dict[str, Orchestrator] = {
        worker.name: SingleWorker(pool, ordinal) for ordinal, worker in pool
    }
    systems["random"] = RandomWorkflows(pool, seed=seed)
    if offered.keys() >= set(BEST_FIXED.workers):
        systems["best_fixed"] = BestFixed(pool)
    systems[ORACLE] = PlannedOrchestrator(
        pool, lambda asked: oracle_workflow(_of_the_gym(asked), offered)[0]
    )
    return systems


def _of_the_gym(asked: Question) -> GymQuestion:
    question = read_question(asked) if isinstance(asked, str) else None
    if question is None:
        raise ConfigError(f"the question {str(asked)[:80]!r}: expected one of the gym")
    return question
