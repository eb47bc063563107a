"""The numbers in the figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from openconductor.evaluation.eval_config import EvalConfig, TaskTable
from openconductor.evaluation.records import Record, Results
from openconductor.evaluation.statistics import wilson_interval
from openconductor.evaluation.tables import AVERAGE, make_table
from openconductor.plots.estimates import accuracy, mean_cost, share

Make = Callable[..., Record]


def dollars(record: Record) -> float:
    return float(record.usage.dollars)


def test_an_accuracy_is_that_of_the_table(record: Make) -> None:
    records: list[Record] = []
    for task, size in (("small", 4), ("large", 40)):
        for problem, sample in product(range(size), range(2)):
            right = (problem + sample) % 3 == 0
            records.append(record("random", problem, right, task=task, sample=sample))
    config = EvalConfig(
        systems=("random",), task=(TaskTable("small"), TaskTable("large")), repeats=2
    )
    table = make_table(Results.of_records(config, records, workers={0: "anna"}))
    for task, of_task in (("small", records[:8]), (AVERAGE, records)):
        row = table.row("random", task)
        ours = accuracy(of_task)
        assert ours.value == pytest.approx(row.accuracy)
        assert (ours.low, ours.high) == pytest.approx(row.ci95)
        assert ours.problems == row.n
        assert mean_cost(of_task, dollars).value == pytest.approx(row.dollars_per_question)


def test_what_is_masked_is_no_wrong_answer_and_is_counted(record: Make) -> None:
    right, masked, wrong = (record("s", 0, True), record("s", 1, None), record("s", 2, False))
    found: Any = accuracy([right, masked, wrong])
    assert (found.value, found.problems, found.masked) == (0.5, 2, 1)
    assert accuracy([masked]) is None


def test_a_share_weighs_things_and_knows_that_those_of_a_question_hang_together() -> None:
    """Ten questions: in half of them all four steps are of the worker, in the others none.

    Ten draws, not forty; the sample variance makes nine of ten.
    """
    clustered: Any = share([0.0, 4.0] * 5, [4.0] * 10)
    assert clustered.value == 0.5
    assert (clustered.low, clustered.high) == pytest.approx(wilson_interval(4.5, 9))
    unequal: Any = share([1.0, 0.0, 0.0], [1.0, 3.0, 0.0])
    assert (unequal.value, unequal.problems) == (0.25, 2)
    assert share([0.0], [0.0]) is None
    none: Any = share([0.0] * 10, [5.0] * 10)  # as sure as its questions are many
    assert (none.low, none.high) == pytest.approx(wilson_interval(0, 10))


def test_a_cost_has_an_interval_above_zero_and_counts_what_failed(record: Make) -> None:
    records = [record("s", 0, True, dollars="0.01"), record("s", 1, None, dollars="0.03")]
    cost: Any = mean_cost(records, dollars)
    assert cost.value == pytest.approx(0.02)
    # The means' standard error is 0.01: half the mean.
    assert cost.high / cost.value == pytest.approx(math.exp(1.959964 * 0.5))
    assert cost.low == pytest.approx(cost.value**2 / cost.high)
    free: Any = mean_cost([record("s", 0, True, dollars="0")], dollars)
    assert (free.value, free.low, free.high) == (0, 0, 0)
    assert mean_cost([], dollars) is None
