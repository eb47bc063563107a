"""The numbers in the figures."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from openconductor.evaluation.eval_config import EvalConfig, TaskTable
from openconductor.evaluation.records import Record, Results
from openconductor.evaluation.statistics import wilson_interval
from openconductor.evaluation.tables import AVERAGE, make_table
from openconductor.plots.estimates import accuracy, mean_cost, share

Make = Callable[..., Record]


def test_an_accuracy_is_that_of_the_table(record: Make) -> None:
    records = [
        record("random", problem, (problem + sample) % 3 == 0, task=task, sample=sample)
        for task, size in (("small", 4), ("large", 40))
        for problem in range(size)
        for sample in range(2)
    ]
    config = EvalConfig(
        systems=("random",), task=(TaskTable("small"), TaskTable("large")), repeats=2
    )
    table = make_table(Results.of_records(config, records, workers={0: "anna"}))
    for task, of_task in (("small", records[:8]), ("large", records[8:]), (AVERAGE, records)):
        row, ours = table.row("random", task), accuracy(of_task)
        assert ours.value == pytest.approx(row.accuracy)
        assert (ours.low, ours.high) == pytest.approx(row.ci95)
        assert ours.problems == row.n
        cost = mean_cost(of_task, lambda one: float(one.usage.dollars))
        assert cost.value == pytest.approx(row.dollars_per_question)


def test_what_is_masked_is_no_wrong_answer_and_is_counted(record: Make) -> None:
    found = accuracy([record("s", 0, True), record("s", 1, None), record("s", 2, False)])
    assert (found.value, found.problems, found.masked) == (0.5, 2, 1)
    assert accuracy([record("s", 0, None)]) is None
    assert accuracy([]) is None


def test_a_share_weighs_things_and_knows_that_those_of_a_question_hang_together() -> None:
    # Ten questions: in half of them all four steps are of the worker, in the others none. Ten
    # draws, not forty.
    clustered = share([4.0 if place % 2 else 0.0 for place in range(10)], [4.0] * 10)
    assert clustered.value == 0.5
    low, high = wilson_interval(4.5, 9)  # the sample variance makes nine of ten
    assert (clustered.low, clustered.high) == pytest.approx((low, high))
    unequal = share([1.0, 0.0, 0.0], [1.0, 3.0, 0.0])
    assert (unequal.value, unequal.problems) == (0.25, 2)
    assert share([0.0], [0.0]) is None
    none = share([0.0] * 10, [5.0] * 10)
    assert none is not None, "as sure as its questions are many"
    assert (none.low, none.high) == pytest.approx(wilson_interval(0, 10))


@pytest.mark.slow
def test_the_intervals_of_shares_cover_as_they_claim() -> None:
    rng = random.Random(5)
    truth, covered, rounds = 0.3, 0, 400
    for _ in range(rounds):
        chances = [rng.choice((0.1, 0.5)) for _ in range(100)]  # by question, 0.3 in the mean
        totals = [rng.randint(2, 5) for _ in chances]
        counts = [
            sum(rng.random() < chance for _ in range(total))
            for chance, total in zip(chances, totals, strict=True)
        ]
        found = share(counts, totals)
        covered += found.low <= truth <= found.high
    assert 0.925 <= covered / rounds <= 0.975


def test_a_cost_has_an_interval_above_zero_and_counts_what_failed(record: Make) -> None:
    records = [record("s", 0, True, dollars="0.01"), record("s", 1, None, dollars="0.03")]
    cost = mean_cost(records, lambda one: float(one.usage.dollars))
    assert cost.value == pytest.approx(0.02)
    # The means' standard error is 0.01: half the mean.
    assert cost.high / cost.value == pytest.approx(math.exp(1.959964 * 0.5))
    assert cost.low == pytest.approx(cost.value**2 / cost.high)
    free = mean_cost([record("s", 0, True, dollars="0")], lambda one: float(one.usage.dollars))
    assert (free.value, free.low, free.high) == (0, 0, 0)
    assert mean_cost([], lambda one: 1.0) is None
