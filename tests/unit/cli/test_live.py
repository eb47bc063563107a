"""The picture of an episode, drawn at chosen moments from events made by hand, and its bill."""

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
WORKFLOW = oc.Workflow(
    (oc.Step(1, "try it"), oc.Step(6, "try it, too"), oc.Step(4, "compare the answers", "all"))
)
PLAN = oc.Completion(
    oc.render_workflow(WORKFLOW, "Two attempts, then a check."),
    usage=oc.Usage(40, output_tokens=30),
)
SLOW = oc.WorkerTimeout("no answer within 3 s", worker="counter")


class Clock:
    """A clock that stands where a test puts it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def drawn(view: object, *, width: int = 100) -> str:
    file = io.StringIO()
    Console(file=file, width=width, markup=False, highlight=False, emoji=False).print(view)
    return file.getvalue()


def answer(index: int, text: str, ended: float = 1.0) -> oc.StepEnded:
    step = WORKFLOW.steps[index]
    usage = oc.Usage(5, output_tokens=2, dollars=Decimal("0.000012"), seconds=ended - 0.5)
    result = oc.StepResult(
        step, oc.Completion(text), worker=step.worker, usage=usage, started=0.5, ended=ended
    )
    return oc.StepEnded("e", 0, ended, index, result)


def failed_call(step: int | None, error: Exception) -> oc.CallEnded:
    return oc.CallEnded(
        "e", 0, 0.6, step, oc.Call("worker", error.outcome, (), oc.Sampling(), error=error)
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def view(clock: Clock) -> EpisodeView:
    """An episode whose two attempts have just begun."""
    made = EpisodeView("What is it?", POOL, clock=clock)
    for event in (
        oc.Planned("e", 0, 0.5, PLAN, WORKFLOW),
        oc.StepStarted("e", 0, 0.5, 0, 1, ()),
        oc.StepStarted("e", 0, 0.5, 1, 6, ()),
    ):
        made(event)
    clock.now = 0.75
    return made


def test_the_conductor_is_seen_writing_and_then_what_it_wrote(view) -> None:
    assert "writes a workflow" in drawn(EpisodeView("What is it?", POOL))
    text = drawn(view)
    assert "What is it?" in text and "a workflow of 3 steps" in text and "40 + 30 tokens" in text
    assert all(f"│ {line}" in text for line in PLAN.text.splitlines())


def test_steps_that_run_side_by_side_are_both_at_work_while_the_third_waits(view) -> None:
    view(oc.StepText("e", 0, 0.6, 1, "first "))
    view(oc.StepText("e", 0, 0.7, 1, "words"))
    lines = drawn(view).splitlines()
    assert sum("works" in line for line in lines) == sum("waits" in line for line in lines) == 1
    assert any("first words" in line for line in lines) and any(
        "sees 0, 1" in line for line in lines
    )
    assert "━" in next(line for line in lines if "counter" in line)
    assert "━" not in next(line for line in lines if "referee" in line)


def test_bars_say_when_a_step_ran_and_stay_in_their_place(view, clock) -> None:
    def bars() -> list[str]:
        return [line for line in drawn(view).splitlines() if "━" in line]

    before = bars()[0].index("━")
    view(answer(0, "4"))
    assert bars()[0].index("━") == before
    view(answer(1, "5", ended=1.5))
    view(oc.StepStarted("e", 0, 1.5, 2, 4, ()))
    clock.now = 2.5
    first, second, third = (line.count("━") for line in bars())
    assert first < second == third  # a quarter, a half and a half of the time
    assert bars()[2].index("━") > bars()[1].rindex("━") - 1


def test_attempts_that_failed_are_named_and_a_lasting_failure_is_told_once(view) -> None:
    view(failed_call(0, oc.RateLimited("slow down")))
    view(failed_call(0, SLOW))
    assert "after rate_limited, timeout: " in drawn(view)
    view(answer(0, "4"))
    assert "after rate_limited, timeout: → 4" in drawn(view)
    for _ in range(5):
        view(failed_call(1, SLOW))
    assert "after …, timeout, timeout: " in drawn(view)
    view(failed_call(2, SLOW))
    view(
        oc.StepEnded(
            "e",
            0,
            1.0,
            2,
            oc.StepResult(WORKFLOW.steps[2], error=SLOW, worker=4, started=0.5, ended=1.0),
        )
    )
    line = next(line for line in drawn(view).splitlines() if "✗" in line)
    assert "after" not in line and "no answer within 3 s" in line


def test_the_conductors_own_failures_stand_beside_its_plan() -> None:
    made = EpisodeView("What is it?", POOL)
    made(failed_call(None, SLOW))
    assert "after timeout: " in drawn(made) and "writes a workflow" in drawn(made)
    made(oc.Planned("e", 0, 0.5, PLAN, WORKFLOW))
    assert "after timeout: ✓ a workflow of 3 steps" in drawn(made)
    unreached = EpisodeView("What is it?", POOL)
    unreached(
        oc.RoundEnded(
            "e", 0, 0.1, oc.Round(None, error=oc.WorkerTimeout("gone", worker="conductor"))
        )
    )
    assert "gone" in drawn(unreached) and "writes" not in drawn(unreached)
    refused = EpisodeView("What is it?", POOL)
    error = oc.WorkflowError(oc.WorkflowReason.MISSING_LIST, "no list")
    refused(oc.Planned("e", 0, 0.1, oc.Completion("I would rather not."), None, error))
    assert "no workflow: missing_list" in drawn(refused) and "I would rather not." in drawn(refused)


def test_an_answered_episode_ends_with_its_cost_and_where_the_answer_is_known_with_a_verdict(
    view,
) -> None:
    ended = [answer(index, "42") for index in range(3)]
    outcome = oc.Round(
        PLAN, WORKFLOW, oc.Transcript(WORKFLOW, tuple(event.result for event in ended))
    )
    usage = PLAN.usage + outcome.transcript.usage
    judged = EpisodeView("What is it?", POOL, expected="43", simulated=True)
    judged(oc.Planned("e", 0, 0.001, PLAN, WORKFLOW))
    for picture in (view, judged):
        for event in (*ended, oc.RoundEnded("e", 0, 1.0, outcome)):
            picture(event)
        picture(
            oc.Answered(
                "e", 0, 1.0, oc.Episode("What is it?", (outcome,), "42", None, usage, 1.0, "e")
            )
        )
    assert "3 steps · 55 + 36 tokens · $0.000036 · 1.0 s in all" in drawn(
        view
    ) and "Answer" not in drawn(view)
    assert "Answer     42" in drawn(judged) and "wrong: expected 43" in drawn(judged)
    assert "$0.000036 · 1.5 s of simulated work\n" in drawn(judged), (
        "no wall time beside simulated seconds"
    )


def test_a_failure_and_what_it_ended_are_told_apart(view) -> None:
    view(
        oc.StepEnded(
            "e", 0, 1.0, 0, oc.StepResult(WORKFLOW.steps[0], error=SLOW, started=0.5, ended=1.0)
        )
    )
    view(oc.RoundEnded("e", 0, 1.0, oc.Round(PLAN, WORKFLOW, None, SLOW)))
    text = drawn(view)
    assert "no answer within 3 s" in text and "cancelled" in text and "not reached" in text


def test_every_round_has_its_place(view) -> None:
    view(oc.Planned("e", 1, 2.0, oc.Completion("Fine.\nmodel_id = []"), oc.Workflow(()), None))
    text = drawn(view)
    assert (
        "Conductor, round 1" in text
        and "Conductor, round 2" in text
        and "accepts the answer" in text
    )


def test_a_long_text_of_the_conductor_keeps_its_end() -> None:
    view = EpisodeView("What is it?", POOL)
    thought = "\n".join(f"line {number}" for number in range(200))
    view(oc.Planned("e", 0, 0.1, oc.Completion(oc.render_workflow(WORKFLOW, thought)), WORKFLOW))
    text = drawn(view)
    assert "access_list" in text and "line 0\n" not in text and text.count("line ") < SHOWN_LINES


def test_what_a_worker_wrote_is_neither_markup_nor_control(view) -> None:
    view(answer(0, "\x1b[2J[bold]4[/bold]\x07"))
    text = drawn(view)
    assert "[bold]4[/bold]" in text and "\x1b" not in text and "\x07" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_a_narrow_one_has_answers_for_bars(
    view, width
) -> None:
    view(answer(0, "900 1020 1140"))
    text = drawn(view, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert ("━" in text) == (width > 60)
    assert "→ 900 1020 1140 " in text or width == 40


def test_where_there_is_no_terminal_the_picture_comes_once_at_the_end(view) -> None:
    file = io.StringIO()
    with live_view(view, Console(file=file, width=100)):
        assert file.getvalue() == ""
    assert file.getvalue().count("What is it?") == 1


COST = oc.Usage(1000, output_tokens=200, dollars=Decimal("0.0123"), seconds=1.0)


def made(worker: str, outcome: str, usage: oc.Usage = COST, **more: object) -> oc.Call:
    return oc.Call(worker, outcome, (), oc.Sampling(), usage=usage, **more)


def billed(planning: tuple[oc.Call, ...], *calls: oc.Call) -> list[str]:
    workflow = oc.Workflow((oc.Step(0, "Say yes."),))
    used = sum((call.usage for call in calls), oc.Usage())
    result = oc.StepResult(
        workflow.steps[0], oc.Completion("yes"), worker=0, usage=used, calls=calls
    )
    one = oc.Round(
        oc.Completion("plan"), workflow, oc.Transcript(workflow, (result,)), calls=planning
    )
    ledger = draw_up(oc.Episode("Yes?", (one,), "yes", None, one.usage, 1.0))
    return [" ".join(line.split()) for line in drawn(bill(ledger), width=180).splitlines()]


def test_each_worker_has_a_line_and_wasted_calls_are_named_with_what_they_cost() -> None:
    lost = oc.Usage(1000, dollars=Decimal("0.001"))
    plan = made("conductor", "answered", oc.Usage(40, output_tokens=30, unpriced_calls=1))
    calls = (
        made("ada", "rate_limited", oc.Usage()),
        made("ada", "connection_lost", lost),
        made("bob", "answered"),
    )
    assert billed((plan,), *calls) == [
        "Bill conductor 1 call 40 + 30 tokens price unknown",
        "ada 2 calls 1,000 + 0 tokens $0.001000",
        "bob 1 call 1,000 + 200 tokens $0.012300",
        "ada: wasted: rate_limited, connection_lost ($0.001000)",
    ]
    replaced = billed((), made("ada", "answered"), made("bob", "answered"))
    assert replaced[-1] == "ada: wasted: not used ($0.012300)"


def test_what_a_journal_gave_is_marked_as_not_paid_again() -> None:
    timeout = made("ada", "timeout", oc.Usage(unpriced_calls=1))
    plan, again = (
        made("conductor", "answered", replayed=True),
        made("ada", "answered", replayed=True),
    )
    assert billed((plan,), timeout, again)[2:] == [
        "conductor: replayed, not paid again",
        "ada: wasted: timeout (price unknown)",
        "ada: 1 replayed ($0.012300), not paid again",
    ]


def test_a_price_that_is_known_in_part_says_so() -> None:
    assert (
        dollars_text(oc.Usage(dollars=Decimal("1.5"), unpriced_calls=2))
        == "$1.50 + 2 calls of unknown price"
    )
    assert (
        dollars_text(oc.Usage(dollars=Decimal("1.5"), unpriced_calls=1))
        == "$1.50 + 1 call of unknown price"
    )
    assert (dollars_text(oc.Usage()), dollars_text(oc.Usage(), zero=True)) == ("", "$0.000000")
