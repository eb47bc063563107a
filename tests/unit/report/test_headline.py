"""The first lines of a report: what to deploy and what it costs, and what a verdict lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from openconductor.evaluation.choice import Candidate, Choice
from openconductor.evaluation.records import Record, Results
from openconductor.evaluation.tables import Cost, user_costs
from openconductor.report.headline import headline, price_missing
from openconductor.report.report import Report, make_report
from openconductor.report.verdict import Missing

Make = Callable[..., Results]

ROUTER = Candidate(0.93, 0.0, Cost(0.0000111, 0.8, 1.0))
CONDUCTOR = Candidate(0.91, 0.0, Cost(0.000138, 2.5, 4.0))
ANNA = Candidate(0.53, 0.0, Cost(0.00001, 0.5, 1.0))
BERT = Candidate(0.5, 0.0, Cost(0.000001, 0.1, 1.0))
SYSTEMS = {
    "router": ROUTER,
    "conductor": CONDUCTOR,
    "worker:anna": ANNA,
    "worker:bert": BERT,
}


def first_lines(
    report: Report, system: str, *, won: bool = True, cheaper: str = "", **systems: Candidate
) -> list[str]:
    choice = Choice(
        system=system,
        worker="worker:anna",
        cheaper=cheaper,
        won=won,
        reason="no other system is shown to be better, or as good for less",
        candidates=SYSTEMS | systems,
        questions=400,
    )
    return headline(report.orchestration, choice, {})


def test_the_first_line_names_the_system_to_deploy_and_what_the_others_cost(report) -> None:
    assert first_lines(report, "router") == [
        (
            "Deploy router: right on 93 % of the questions, $0.0111 per 1,000 questions, 0.800 "
            "seconds each."
        ),
        "conductor: right on 91 %, for 12 times the price, 2.50 seconds each.",
        "anna, the best worker alone: right on 53 %, for 90 % of the price, 0.500 seconds each.",
    ]


def test_the_system_reported_on_is_named_once_where_it_is_the_one_to_deploy(report) -> None:
    first, *others = first_lines(report, "conductor")
    assert first.startswith("Deploy conductor: right on 91 % of the questions, $0.138 per 1,000")
    named = " ".join((first, *others))
    assert named.count("conductor") == 1 and "router" not in named


def test_a_cheaper_system_that_may_be_as_good_is_named(report) -> None:
    _, cheaper, other = first_lines(report, "conductor", cheaper="router")
    assert cheaper == (
        "router: right on 93 %, for 8 % of the price, 0.800 seconds each; more questions would "
        "tell whether it is as good."
    )
    assert "more questions" not in other
    _, cheaper, *_ = first_lines(report, "router", cheaper="worker:bert")
    assert cheaper.startswith("bert, a worker alone: right on 50 %, for 9 % of the price, 0.100 s")


def test_a_run_without_a_winner_deploys_the_best_worker_and_says_why(report) -> None:
    assert first_lines(report, "worker:anna", won=False) == [
        (
            "Deploy anna, the best worker alone: right on 53 % of the questions, $0.0100 per 1,000 "
            "questions, 0.500 seconds each."
        ),
        "Why: no other system is shown to be better, or as good for less.",
        "conductor: right on 91 %, for 14 times the price, 2.50 seconds each.",
    ]
    few = "Why: 12 questions are too few to show that another system is better (30 are the fewest)."
    assert report.advice[1] == few


@pytest.mark.parametrize(
    ("dollars", "said"),
    [
        (0.0000112, "conductor: right on 91 %, for the same price, 2.50 seconds"),
        (0.0000001, "conductor: right on 91 %, for less than 1 % of the price"),
        (None, "conductor: right on 91 %, for 4.0 times the calls, 2.50 seconds"),
    ],
)
def test_costs_are_compared_in_calls_where_a_price_is_unknown(report, dollars, said) -> None:
    ours = CONDUCTOR._replace(cost=Cost(dollars, 2.5, 4.0))
    assert first_lines(report, "router", conductor=ours)[1].startswith(said)


def test_a_free_or_unpriced_system_is_said_to_be_one(report) -> None:
    free = ROUTER._replace(cost=Cost(0.0, 0.8, 1.0))
    first, second, *_ = first_lines(report, "router", router=free)
    assert "router: right on 93 % of the questions, $0 per 1,000" in first
    assert "conductor: right on 91 %, for $0.138 per 1,000 questions, 2.50 seconds" in second
    unpriced = ROUTER._replace(cost=Cost(None, 0.8, 1.0))
    first, *_ = first_lines(report, "router", router=unpriced)
    assert "of the questions, at an unknown price (the pool file lacks prices), 0.800 sec" in first


def test_many_unknown_answers_are_said_to_count_as_wrong(report) -> None:
    lines = first_lines(report, "router", conductor=CONDUCTOR._replace(unknown=0.58))
    end = "58 % of the answers of conductor are undecided or missing, and count as wrong."
    assert [line for line in lines if "undecided" in line] == lines[-1:] == [end]
    nothing = {name: one._replace(unknown=1.0, right=0.0) for name, one in SYSTEMS.items()}
    lines = first_lines(report, "router", **nothing)
    assert lines == ["No answer could be decided, so nothing says what to deploy."]


def test_the_command_that_deploys_stands_below_the_first_line(report) -> None:
    *_, command = replace(report, folder="runs/a b").advice
    serving = "openconductor serve --from 'runs/a b'"
    assert command == f"To serve worker:anna, under the model name auto: {serving}"
    assert report.to_json()["auto"]["system"] == "worker:anna"


def test_without_a_worker_or_a_decided_answer_nothing_is_deployed(results: Make) -> None:
    found = results(others=False)
    ours = found.of("conductor")
    alone = make_report(replace(found, records=ours), folder=None)
    nothing_to_deploy = "No worker was asked alone, so nothing says what to deploy."
    assert alone.advice == [
        (
            "conductor is right on 82 % of 11 decided answers, $20.0 per 1,000 questions, 1.00 "
            "seconds each."
        ),
        nothing_to_deploy,
    ]
    masked = [replace(record, correct=None, status="failed") for record in ours]
    nothing = make_report(replace(found, records=tuple(masked)))
    assert nothing.advice == ["No answer of conductor could be decided.", nothing_to_deploy]


# ── what is missing ───────────────────────────────────────────────────────────────────────────────
def test_who_does_the_work_comes_after_what_is_missing(report) -> None:
    line = "Who does the work of its 1.2 steps a question: bert 54 %, anna 46 %."
    assert report.notes[0].startswith("Missing for a verdict")
    assert report.notes[-1] == line
    decided = replace(report, verdict=replace(report.verdict, missing=None))
    assert decided.notes == [line]


def test_a_file_with_too_few_questions_is_named(results: Make) -> None:
    found = results()
    (table,) = found.config.task
    task = (replace(table, task="gsm8k", path="mine.jsonl", limit=20),)
    report = make_report(replace(found, config=replace(found.config, task=task)))
    missing = Missing(questions=30)
    undecided = replace(report, verdict=replace(report.verdict, missing=missing), folder="r")
    lacking, command, _ = undecided.notes
    assert lacking == "Missing for a verdict: about 18 more questions in mine.jsonl."
    assert command.startswith("To ask for it once it is there (at most about ")
    assert command.endswith("): openconductor report r --complete")
    more = replace(undecided, sources=()).notes
    assert more[0] == "Missing for a verdict: about 30 questions in all (12 were asked)."
    assert more[1].startswith("To ask for it (at most about ")


def test_the_price_of_what_is_missing_is_that_of_the_answers_so_far(report) -> None:
    figures = report.orchestration
    costs = {"conductor": Cost(0.02, 1.0, 2.0), "worker:anna": Cost(0.01, 1.0, 1.0)}
    more = price_missing(figures, Missing(questions=20), costs)
    assert more == (8 * 3, pytest.approx(8 * 0.03))
    vote = price_missing(figures, Missing(systems=("consensus:anna?n=5",)), costs)
    assert vote == (12 * 5, pytest.approx(12 * 5 * 0.01)), "five answers of anna for each question"
    repeated = replace(figures, repeats=2)
    assert price_missing(repeated, Missing(systems=("consensus:anna?n=5",)), costs).calls == 2 * 60
    assert price_missing(repeated, Missing(systems=("best_fixed",)), costs).calls == 2 * 12 * 2
    replays = price_missing(figures, Missing(replays=True), costs)
    assert replays == (16 * 24, pytest.approx(16 * 12 * 0.02))
    again = price_missing(figures, Missing(planning=10), costs)
    assert again == (10, pytest.approx(10 * 0.02)), "a call each"
    looking = price_missing(replace(figures, rounds=2), Missing(planning=10), costs)
    assert looking == (40, pytest.approx(20 * 0.02))
    costs["worker:anna"] = Cost(None, 1.0, 1.0)
    unpriced = price_missing(figures, Missing(questions=20), costs)
    assert str(unpriced) == "at most about 24 calls, at an unknown price"
    assert str(more) == "at most about 24 calls and $0.240"


# ── costs ─────────────────────────────────────────────────────────────────────────────────────────
def test_costs_weigh_each_task_the_same_and_an_unknown_price_is_unknown(results: Make) -> None:
    found = results(unpriced=1)
    costs = user_costs(replace(found, config=replace(found.config, pool="pool.toml")))
    assert costs["conductor"].dollars is None
    assert costs["worker:anna"] == Cost(pytest.approx(0.01), 2.0, 1.0)

    def elsewhere(record: Record) -> Record:
        return replace(record, task="other", seconds=4.0) if record.problem == "q00" else record

    tables = (found.config.task[0], replace(found.config.task[0], name="other"))
    config = replace(found.config, pool="pool.toml", task=tables)
    records = tuple(map(elsewhere, found.records))
    assert user_costs(replace(found, config=config, records=records))["random"].seconds == 3.0
