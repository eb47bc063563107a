"""The bill for people: one line a worker, and what of it was wasted or paid for before."""

from __future__ import annotations

import io
from decimal import Decimal

from rich.console import Console

from openconductor.cli.live import bill, dollars_text
from openconductor.ledger import draw_up
from openconductor.types import (
    Call,
    Completion,
    Episode,
    Round,
    Sampling,
    Step,
    StepResult,
    Transcript,
    Usage,
    Workflow,
)

COST = Usage(1000, output_tokens=200, dollars=Decimal("0.0123"), seconds=1.0)


def made(worker: str, outcome: str, usage: Usage = COST, **more: object) -> Call:
    return Call(worker, outcome, (), Sampling(), usage=usage, **more)


def drawn(planning: tuple[Call, ...], *calls: Call) -> list[str]:
    workflow = Workflow((Step(0, "Say yes."),))
    used = sum((call.usage for call in calls), Usage())
    result = StepResult(workflow.steps[0], Completion("yes"), worker=0, usage=used, calls=calls)
    one = Round(Completion("plan"), workflow, Transcript(workflow, (result,)), calls=planning)
    file = io.StringIO()
    ledger = draw_up(Episode("Yes?", (one,), "yes", None, one.usage, 1.0))
    Console(file=file, width=180, markup=False, highlight=False).print(bill(ledger))
    return [" ".join(line.split()) for line in file.getvalue().splitlines()]


def test_each_worker_has_a_line_and_wasted_calls_are_named_with_what_they_cost() -> None:
    lost = Usage(1000, dollars=Decimal("0.001"))
    lines = drawn(
        (made("conductor", "answered", Usage(40, output_tokens=30, unpriced_calls=1)),),
        made("ada", "rate_limited", Usage()),
        made("ada", "connection_lost", lost),
        made("bob", "answered"),
    )
    assert lines == [
        "Bill conductor 1 call 40 + 30 tokens price unknown",
        "ada 2 calls 1,000 + 0 tokens $0.001000",
        "bob 1 call 1,000 + 200 tokens $0.012300",
        "ada: wasted: rate_limited, connection_lost ($0.001000)",
    ]


def test_what_a_journal_gave_is_marked_as_not_paid_again() -> None:
    lines = drawn(
        (made("conductor", "answered", replayed=True),),
        made("ada", "timeout", Usage(unpriced_calls=1)),
        made("ada", "answered", replayed=True),
    )
    assert lines[2:] == [
        "conductor: replayed, not paid again",
        "ada: wasted: timeout (price unknown); 1 replayed ($0.012300), not paid again",
    ]


def test_an_answer_that_was_replaced_is_wasted_too() -> None:
    lines = drawn((), made("ada", "answered"), made("bob", "answered"))
    assert lines[-1] == "ada: wasted: not used ($0.012300)"


def test_a_price_that_is_known_in_part_says_so() -> None:
    assert dollars_text(Usage(dollars=Decimal("1.5"), unpriced_calls=2)) == "$1.50 + 2 calls of unknown price"
    assert dollars_text(Usage(dollars=Decimal("1.5"), unpriced_calls=1)) == "$1.50 + 1 call of unknown price"
    assert dollars_text(Usage()) == ""
    assert dollars_text(Usage(), zero=True) == "$0.000000"
