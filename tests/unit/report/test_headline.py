"""The first lines of a report: three numbers beside those of the best worker, and who works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from openconductor.evaluation.records import Record, Results
from openconductor.evaluation.tables import Cost, user_costs
from openconductor.report.headline import headline
from openconductor.report.report import Report, make_report

Make = Callable[..., Results]


def first_line(report: Report, ours: Cost, theirs: Cost) -> str:
    return headline(report.orchestration, {"conductor": ours, "worker:anna": theirs})


def test_right_answers_dollars_and_seconds_stand_beside_those_of_the_best_worker(report) -> None:
    assert first_line(report, Cost(0.34, 3.2), Cost(0.01, 1.1)) == (
        "conductor is right on 82 % of the 11 decided answers (of 12) instead of 50 % (anna, "
        "the best worker alone), for 34.0 times the price ($340 instead of $10.0 per 1,000 "
        "questions), in 3.20 instead of 1.10 seconds a question."
    )


def test_a_share_of_few_decided_answers_is_said_to_be_one(results: Make) -> None:
    whole = results()
    anna = [record for record in whole.records if record.system == "worker:anna"]
    masked = replace(anna[0], correct=None, status="ungraded")
    others = [record for record in whole.records if record.system != "worker:anna"]
    report = make_report(replace(whole, records=(*others, masked, *anna[1:])))
    assert "45 % of the 11 decided answers (of 12) (anna" in report.summary[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (0.0102, 0.01, "for about the same price ($10.2 instead of $10.0 per"),
        (0.005, 0.01, "for 0.500 times the price"),
        (None, 0.01, "at an unknown price (the pool file lacks prices)"),
        (0.0, 0.0, "both at no price per call"),
        (0.01, 0.0, "for $10.0 instead of $0 per 1,000 questions"),
    ],
)
def test_prices_are_compared_as_far_as_they_are_known(report, ours, theirs, said) -> None:
    assert said in first_line(report, Cost(ours, 1.0), Cost(theirs, 1.0))


def test_who_does_the_work_comes_after_the_headline_and_after_what_is_missing(report) -> None:
    line = "Who does the work of its 1.2 steps a question: bert 54 %, anna 46 %."
    assert report.summary[1].startswith("Missing for a verdict")
    assert report.summary[2] == line
    decided = replace(report, verdict=replace(report.verdict, missing=None))
    assert decided.summary[1] == line


def test_without_a_worker_or_a_decided_answer_that_is_said(results: Make) -> None:
    found = results(others=False)
    ours = found.of("conductor")
    alone = make_report(replace(found, records=ours)).summary[0]
    assert "there is nothing to compare with" in alone and "per 1,000 questions" in alone
    masked = [replace(record, correct=None, status="failed") for record in ours]
    nothing = make_report(replace(found, records=tuple(masked)))
    assert nothing.summary[0] == "No answer of conductor could be decided."


def test_costs_weigh_each_task_the_same_and_an_unknown_price_is_unknown(results: Make) -> None:
    found = results(unpriced=1)
    costs = user_costs(replace(found, config=replace(found.config, pool="pool.toml")))
    assert costs["conductor"].dollars is None
    assert costs["worker:anna"] == Cost(pytest.approx(0.01), 2.0)

    def elsewhere(record: Record) -> Record:
        return replace(record, task="other", seconds=4.0) if record.problem == "q00" else record

    tables = (found.config.task[0], replace(found.config.task[0], name="other"))
    config = replace(found.config, pool="pool.toml", task=tables)
    records = tuple(map(elsewhere, found.records))
    assert user_costs(replace(found, config=config, records=records))["random"].seconds == 3.0
