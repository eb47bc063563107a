"""How long questions took: quantiles by system and task."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from rows_of import record, results_of

from openconductor.evaluation.latency import latency, quantile
from openconductor.types import Usage


def test_the_median_and_the_95th_percentile_lie_between_the_nearest_in_proportion() -> None:
    found = [record("+", f"p{place}", seconds=float(place), usage=Usage(seconds=2.0 * place)) for place in range(21)]
    (row,) = latency(results_of(found, ["conductor"]))
    assert row == {
        "system": "conductor",
        "task": "t",
        "episodes": 21,
        "p50_seconds": 10.0,
        "p95_seconds": pytest.approx(19.0),
        "mean_seconds": 10.0,
        "work_seconds": 20.0,
    }


def test_a_system_that_was_never_asked_has_no_latency() -> None:
    (row,) = latency(results_of([], ["conductor"]))
    assert row["episodes"] == 0
    assert {row[name] for name in ("p50_seconds", "p95_seconds", "mean_seconds", "work_seconds")} == {None}


def test_masked_episodes_took_their_time_too() -> None:
    (row,) = latency(results_of([record("f", seconds=9.0), record("+", "q", seconds=1.0)], ["conductor"]))
    assert (row["episodes"], row["p50_seconds"]) == (2, 5.0)


@pytest.mark.parametrize(("values", "share", "expected"), [([], 0.5, None), ([7.0], 0.95, 7.0), ([3.0, 1.0], 1.0, 3.0)])
def test_quantiles_of_little(values: list[float], share: float, expected: float | None) -> None:
    assert quantile(values, share) == expected


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=60))
def test_quartiles_are_those_of_the_standard_library(values: list[float]) -> None:
    expected = statistics.quantiles(values, n=4, method="inclusive")
    assert [quantile(values, share) for share in (0.25, 0.5, 0.75)] == pytest.approx(expected)
