"""Cards: measurements of several tasks in one line, and the worker that they like best."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from openconductor.calls.cards import Calibration, Count, describe, read_card
from openconductor.errors import ConfigError
from openconductor.pool import Worker, WorkerPool


def measured(right: int, dollars: float | None = 0.002, **categories: int) -> Calibration:
    """Return a measurement of 100 answers, and of 20 in each category."""
    return Calibration(
        right=right,
        n=100,
        date=dt.date(2026, 11, 24),
        seconds=1.44,
        dollars=dollars,
        categories={name: Count(of_name, 20) for name, of_name in categories.items()},
    )


def worker(name: str, description: str = "", **calibrations: Calibration) -> Worker:
    return Worker(
        lambda messages: "", name=name, description=description, calibrations=calibrations
    )


def test_a_card_speaks_of_every_task_and_begins_with_the_users_own_words() -> None:
    one = {"mmlu": measured(60, law=10, algebra=18, music=13)}
    assert describe(one) == "algebra 90%, music 65%; $0.002 and 1.4 s an answer"
    two = one | {"aime": measured(30, dollars=None)}
    assert describe(two) == "mmlu algebra 90%, mmlu music 65%; aime 30%; 1.4 s an answer"
    assert read_card(describe(two)) == {"mmlu algebra": 0.9, "mmlu music": 0.65, "aime": 0.3}
    assert worker("a", "Good at sums.", **two).card == f"Good at sums; {describe(two)}"
    assert worker("a", "Good at sums.").card == "Good at sums."
    assert describe({}) == worker("a").card == ""


@pytest.mark.parametrize(
    ("workers", "best"),
    [
        ([worker("a"), worker("b", "Good at sums.")], 0),
        ([worker("a"), worker("b", aime=measured(10))], 1),
        ([worker("a", aime=measured(40)), worker("b", aime=measured(30))], 0),
        # Only tasks that all were measured on count: b was also asked an easy one.
        ([worker("a", aime=measured(40)), worker("b", aime=measured(30), mmlu=measured(99))], 0),
        # What could not be decided counts as wrong.
        (
            [
                worker("a", aime=replace(measured(25), n=25, answers=60)),
                worker("b", aime=measured(60)),
            ],
            1,
        ),
        # Cards of earlier versions are descriptions.
        ([worker("a", "law 60%; 2 s an answer"), worker("b", "law 80%, art 70%; 9 s")], 1),
    ],
)
def test_the_default_worker_is_the_one_with_the_best_mean_rate(workers, best) -> None:
    assert WorkerPool(workers).default_worker == best


@pytest.mark.parametrize(("answers", "said"), [(60, " (25 of 60 decided)"), (25, ""), (None, "")])
def test_a_card_says_of_how_many_answers_if_many_could_not_be_decided(
    answers: int | None, said: str
) -> None:
    calibration = replace(measured(24), right=24, n=25, answers=answers)
    assert describe({"aime": calibration}) == f"aime 96%{said}; $0.002 and 1.4 s an answer"
    assert read_card(describe({"aime": calibration})) == {"aime": 0.96}


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((3, 2, None), "right = 3, n = 2: expected"),
        ((-1, 2, None), "right = -1, n = 2: expected"),
        ((0, 0, None), "right = 0, n = 0: expected"),
        ((1, 2, 1), "answers = 1, n = 2: expected"),
    ],
)
def test_counts_that_cannot_be_are_refused(
    counts: tuple[int, int, int | None], message: str
) -> None:
    right, n, answers = counts
    with pytest.raises(ConfigError, match=message):
        Count(right, n, answers=answers)
