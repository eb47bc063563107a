"""The live picture of an episode, drawn from events made by hand, and its bill."""

from __future__ import annotations

import io
from decimal import Decimal

import pytest
from rich.console import Console

import openconductor as oc
from openconductor.cli.bill import bill, dollars_text
from openconductor.cli.live import SHOWN_LINES, EpisodeView, live_view
from openconductor.gym.workers import gym_pool
from openconductor.ledger import draw_up

POOL = gym_pool()
STEPS = (oc.Step(1, "try it"), oc.Step(6, "try it, too"), oc.Step(4, "compare the answers", "all"))
WORKFLOW = oc.Workflow(STEPS)
TEXT = oc.render_workflow(WORKFLOW, "Two attempts, then a check.")
PLAN = oc.Completion(TEXT, usage=oc.Usage(40, output_tokens=30))
PLANNED = oc.Planned("e", 0, 0.5, PLAN, WORKFLOW)
SLOW = oc.WorkerTimeout("no answer within 3 s", worker="counter")


def drawn(view: object, *, width: int = 100) -> str:
    file = io.StringIO()
    Console(file=file, width=width, markup=False, highlight=False, emoji=False).print(view)
    return file.getvalue()


def view_of(*events: oc.Event, **options: object) -> EpisodeView:
    view = EpisodeView("What is it?", POOL.names, **options)
    for event in events:
        view(event)
    return view


def answer(index: int, text: str) -> oc.StepEnded:
    usage = oc.Usage(5, output_tokens=2, dollars=Decimal("0.000012"), seconds=0.5)
    completion = oc.Completion(text)
    result = oc.StepResult(STEPS[index], completion, worker=STEPS[index].worker, usage=usage)
    return oc.StepEnded("e", 0, 1.0, index, result)


def failure(index: int, error: Exception) -> oc.StepEnded:
    return oc.StepEnded("e", 0, 1.0, index, oc.StepResult(STEPS[index], error=error, started=0.5))


def failed_call(step: int | None, error: Exception) -> oc.CallEnded:
    call = oc.Call("worker", error.outcome, (), oc.Sampling(), error=error)
    return oc.CallEnded("e", 0, 0.6, step, call)


@pytest.fixture
def view() -> EpisodeView:
    """An episode whose two attempts have just begun."""
    first = oc.StepStarted("e", 0, 0.5, 0, 1, ())
    return view_of(PLANNED, first, oc.StepStarted("e", 0, 0.5, 1, 6, ()))


def test_the_conductors_text_is_shown_and_each_step_with_its_state(view) -> None:
    assert "writes a workflow" in drawn(view_of())
    view(oc.StepText("e", 0, 0.6, 1, "first "))
    view(oc.StepText("e", 0, 0.7, 1, "words"))
    text = drawn(view)
    steps = ["first words", "referee  sees 0, 1  compare the answers"]
    head = ["What is it?", "a workflow of 3 steps", "40 + 30 tokens", *TEXT.splitlines()]
    assert [part for part in (*head, *steps) if part not in text] == []
    assert (text.count("works"), text.count("waits")) == (1, 1)
    view(answer(0, "900 1020"))
    assert "5 + 2 tokens  $0.000012  0.5 s  → 900 1020" in drawn(view)


def test_the_last_failed_attempt_is_named(view) -> None:
    view(failed_call(0, oc.RateLimited("slow down")))
    view(failed_call(0, SLOW))
    assert "after timeout: " in drawn(view)
    view(answer(0, "4"))
    assert "after timeout: → 4" in drawn(view)


def test_the_conductors_own_failures_stand_beside_its_plan() -> None:
    slow = view_of(failed_call(None, SLOW))
    assert "after timeout: " in drawn(slow) and "writes a workflow" in drawn(slow)
    slow(PLANNED)
    assert "after timeout: ✓ a workflow of 3 steps" in drawn(slow)


def test_a_conductor_that_wrote_no_workflow_is_shown_with_the_reason() -> None:
    gone = oc.Round(None, error=oc.WorkerTimeout("gone", worker="conductor"))
    unreached = drawn(view_of(oc.RoundEnded("e", 0, 0.1, gone)))
    assert "gone" in unreached and "writes" not in unreached
    error = oc.WorkflowError(oc.WorkflowReason.MISSING_LIST, "no list")
    refusing = oc.Planned("e", 0, 0.1, oc.Completion("I would rather not."), None, error)
    text = drawn(view_of(refusing))
    assert "no workflow: missing_list" in text and "I would rather not." in text


def test_a_workflow_that_a_rule_chose_is_shown_below_what_it_replaces() -> None:
    error = oc.WorkflowError(oc.WorkflowReason.MISSING_LIST, "no list")
    refusing = oc.Planned("e", 0, 0.1, oc.Completion("I would rather not."), None, error)
    alone = oc.Workflow((oc.Step(1, ""),))
    view = view_of(refusing, oc.Chosen("e", 1, 0.2, "default_worker", alone, error))
    view(oc.StepStarted("e", 1, 0.3, 0, 1, ()))
    text = drawn(view)
    assert "no workflow: missing_list" in text
    assert "Without a plan  one worker answers alone" in text and "works" in text


def test_an_answered_episode_ends_with_its_cost_and_a_verdict_if_the_answer_is_known(view) -> None:
    ended = [answer(index, "42") for index in range(3)]
    transcript = oc.Transcript(WORKFLOW, tuple(event.result for event in ended))
    played = oc.Round(PLAN, WORKFLOW, transcript)
    episode = oc.Episode("What is it?", (played,), "42", None, played.usage, 1.0, "e")
    judged = view_of(PLANNED, expected="43", simulated=True)
    for event in (*ended, oc.RoundEnded("e", 0, 1.0, played), oc.Answered("e", 0, 1.0, episode)):
        view(event)
        judged(event)
    cost = "3 steps · 55 + 36 tokens · $0.000036"
    plain, verdict = drawn(view), drawn(judged)
    assert f"{cost} · 1.0 s in all" in plain and "Answer" not in plain
    assert "Answer     42" in verdict and "wrong: expected 43" in verdict
    assert f"{cost} · 1.5 s of simulated work\n" in verdict


def test_a_failure_and_the_steps_that_it_ended_are_told_apart(view) -> None:
    view(failed_call(0, SLOW))
    view(failure(0, SLOW))
    view(oc.RoundEnded("e", 0, 1.0, oc.Round(PLAN, WORKFLOW, None, SLOW)))
    text = drawn(view)
    assert "no answer within 3 s" in text and "after" not in text
    assert "cancelled" in text and "not reached" in text


def test_every_round_is_drawn(view) -> None:
    view(oc.Planned("e", 1, 2.0, oc.Completion("Fine.\nmodel_id = []"), oc.Workflow(())))
    text = drawn(view)
    assert "Conductor, round 1" in text and "Conductor, round 2" in text
    assert "accepts the answer" in text


def test_a_long_text_of_the_conductor_keeps_its_end() -> None:
    thought = "\n".join(f"line {number}" for number in range(200))
    completion = oc.Completion(oc.render_workflow(WORKFLOW, thought))
    text = drawn(view_of(oc.Planned("e", 0, 0.1, completion, WORKFLOW)))
    assert "access_list" in text and "line 0\n" not in text and text.count("line ") < SHOWN_LINES


@pytest.mark.parametrize("width", [40, 200])
def test_a_workers_text_is_neither_markup_nor_control_and_fits_the_terminal(view, width) -> None:
    view(answer(0, "\x1b[2J[bold]4[/bold]\x07" + "x" * 300))
    text = drawn(view, width=width)
    assert "\x1b" not in text and "\x07" not in text
    assert max(map(len, text.splitlines())) <= width
    assert ("[bold]4[/bold]" in text) == (width == 200)


def test_without_a_terminal_the_picture_comes_once_at_the_end(view) -> None:
    file = io.StringIO()
    with live_view(view, Console(file=file, width=100)):
        assert file.getvalue() == ""
    assert file.getvalue().count("What is it?") == 1


# ── the bill ──────────────────────────────────────────────────────────────────────────────────────
COST = oc.Usage(1000, output_tokens=200, dollars=Decimal("0.0123"), seconds=1.0)


def call(worker: str, outcome: str, usage: oc.Usage = COST, **more: object) -> oc.Call:
    return oc.Call(worker, outcome, (), oc.Sampling(), usage=usage, **more)


def billed(planning: tuple[oc.Call, ...], *calls: oc.Call) -> list[str]:
    workflow = oc.Workflow((oc.Step(0, "Say yes."),))
    used = sum((call.usage for call in calls), oc.Usage())
    yes = oc.StepResult(workflow.steps[0], PLAN, worker=0, usage=used, calls=calls)
    transcript = oc.Transcript(workflow, (yes,))
    played = oc.Round(oc.Completion("plan"), workflow, transcript, calls=planning)
    ledger = draw_up(oc.Episode("Yes?", (played,), "yes", None, played.usage, 1.0))
    return [" ".join(line.split()) for line in drawn(bill(ledger), width=180).splitlines()]


def test_each_worker_has_a_line_and_wasted_calls_are_named_with_their_cost() -> None:
    lost = oc.Usage(1000, dollars=Decimal("0.001"))
    plan = call("conductor", "answered", oc.Usage(40, output_tokens=30, unpriced_calls=1))
    wasted = (call("ada", "rate_limited", oc.Usage()), call("ada", "connection_lost", lost))
    assert billed((plan,), *wasted, call("bob", "answered")) == [
        "Bill conductor 1 call 40 + 30 tokens price unknown",
        "ada 2 calls 1,000 + 0 tokens $0.001000",
        "bob 1 call 1,000 + 200 tokens $0.012300",
        "ada: wasted: rate_limited, connection_lost ($0.001000)",
    ]
    replaced = billed((), call("ada", "answered"), call("bob", "answered"))
    assert replaced[-1] == "ada: wasted: not used ($0.012300)"


def test_replayed_calls_are_marked_as_not_paid_again() -> None:
    timeout = call("ada", "timeout", oc.Usage(unpriced_calls=1))
    plan = call("conductor", "answered", replayed=True)
    assert billed((plan,), timeout, call("ada", "answered", replayed=True))[2:] == [
        "conductor: replayed, not paid again",
        "ada: wasted: timeout (price unknown)",
        "ada: 1 replayed ($0.012300), not paid again",
    ]


def test_a_price_that_is_known_in_part_says_so() -> None:
    partly = oc.Usage(dollars=Decimal("1.5"), unpriced_calls=2)
    assert dollars_text(partly) == "$1.50 + 2 calls of unknown price"
    assert (dollars_text(oc.Usage()), dollars_text(oc.Usage(), zero=True)) == ("", "$0.000000")
