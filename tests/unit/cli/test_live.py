"""The picture of an episode, drawn at chosen moments from events made by hand."""

from __future__ import annotations

import io
from decimal import Decimal

import pytest
from rich.console import Console

from openconductor.cli.live import SHOWN_LINES, EpisodeView, filling_in
from openconductor.errors import RateLimited, WorkerTimeout, WorkflowError, WorkflowReason
from openconductor.events import Answered, CallEnded, Planned, RoundEnded, StepEnded, StepStarted, StepText
from openconductor.gym.workers import gym_pool
from openconductor.prompt import render_workflow
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

POOL = gym_pool()
WORKFLOW = Workflow((Step(1, "try it"), Step(6, "try it, too"), Step(4, "compare the answers", "all")))
PLAN = Completion(render_workflow(WORKFLOW, "Two attempts, then a check."), usage=Usage(40, output_tokens=30))


class Clock:
    """A clock that stands where a test puts it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def drawn(view: EpisodeView, *, width: int = 100, file: io.StringIO | None = None) -> str:
    file = file or io.StringIO()
    Console(file=file, width=width, markup=False, highlight=False, emoji=False).print(view)
    return file.getvalue()


def answered(step: Step, text: str, *, started: float, ended: float) -> StepResult:
    usage = Usage(5, output_tokens=2, dollars=Decimal("0.000012"), seconds=ended - started)
    return StepResult(step, Completion(text), worker=step.worker, usage=usage, started=started, ended=ended)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def view(clock: Clock) -> EpisodeView:
    """An episode whose two attempts have just begun."""
    made = EpisodeView("What is it?", POOL, clock=clock)
    made(Planned("e", 0, 0.5, PLAN, WORKFLOW))
    made(StepStarted("e", 0, 0.5, 0, 1, ()))
    made(StepStarted("e", 0, 0.5, 1, 6, ()))
    clock.now = 0.75
    return made


def test_before_the_plan_the_conductor_is_seen_writing() -> None:
    assert "writes a workflow" in drawn(EpisodeView("What is it?", POOL))


def test_the_thought_and_the_three_lists_stand_there_as_they_were_written(view) -> None:
    text = drawn(view)
    assert "What is it?" in text
    for line in PLAN.text.splitlines():
        assert f"│ {line}" in text
    assert "a workflow of 3 steps" in text and "40 + 30 tokens" in text


def test_steps_that_run_side_by_side_are_both_at_work_while_the_third_waits(view) -> None:
    lines = drawn(view).splitlines()
    assert sum("works" in line for line in lines) == 2
    assert sum("waits" in line for line in lines) == 1
    counter = next(line for line in lines if "counter" in line)
    referee = next(line for line in lines if "referee" in line)
    assert "━" in counter and "━" not in referee
    assert any("sees 0, 1" in line for line in lines)


def test_the_bars_stay_in_their_place_while_steps_end(view) -> None:
    def place() -> int:
        return next(line for line in drawn(view).splitlines() if "counter" in line).index("━")

    before = place()
    view(StepEnded("e", 0, 1.0, 0, answered(WORKFLOW.steps[0], "4", started=0.5, ended=1.0)))
    assert place() == before


def failed_call(worker: str, error: Exception) -> Call:
    return Call(worker, error.outcome, (), Sampling(), error=error)


def test_attempts_that_failed_are_named_while_the_step_goes_on_and_after_it(view) -> None:
    view(CallEnded("e", 0, 0.6, 0, failed_call("counter", RateLimited("slow down"))))
    view(CallEnded("e", 0, 0.7, 0, failed_call("counter", WorkerTimeout("slow"))))
    assert "after rate_limited, timeout: " in drawn(view) and "works" in drawn(view)
    view(StepEnded("e", 0, 1.0, 0, answered(WORKFLOW.steps[0], "4", started=0.5, ended=1.0)))
    assert "after rate_limited, timeout: → 4" in drawn(view)


def test_many_failed_attempts_are_cut_short_and_a_lasting_failure_is_told_once(view) -> None:
    for _ in range(5):
        view(CallEnded("e", 0, 0.6, 0, failed_call("counter", WorkerTimeout("slow"))))
    assert "after …, timeout, timeout: " in drawn(view)
    view(CallEnded("e", 0, 0.6, 1, failed_call("jack", WorkerTimeout("slow"))))
    result = StepResult(WORKFLOW.steps[1], error=WorkerTimeout("slow", worker="jack"), worker=6, started=0.5, ended=1.0)
    view(StepEnded("e", 0, 1.0, 1, result))
    line = next(line for line in drawn(view).splitlines() if "✗" in line)
    assert "after" not in line and "slow" in line


def test_attempts_of_the_conductor_that_failed_are_named_beside_its_plan() -> None:
    made = EpisodeView("What is it?", POOL)
    made(CallEnded("e", 0, 0.1, None, failed_call("conductor", WorkerTimeout("slow"))))
    assert "after timeout: " in drawn(made) and "writes a workflow" in drawn(made)
    made(Planned("e", 0, 0.5, PLAN, WORKFLOW))
    assert "after timeout: ✓ a workflow of 3 steps" in drawn(made)


def test_text_is_shown_while_it_streams(view) -> None:
    view(StepText("e", 0, 0.6, 0, "first "))
    view(StepText("e", 0, 0.7, 0, "words"))
    assert "first words" in drawn(view)


def test_bars_say_when_a_step_ran(view, clock) -> None:
    view(StepEnded("e", 0, 1.0, 0, answered(WORKFLOW.steps[0], "4", started=0.5, ended=1.0)))
    view(StepEnded("e", 0, 1.5, 1, answered(WORKFLOW.steps[1], "5", started=0.5, ended=1.5)))
    view(StepStarted("e", 0, 1.5, 2, 4, ()))
    clock.now = 2.5
    bars = [line for line in drawn(view).splitlines() if "━" in line]
    first, second, third = (line.count("━") for line in bars)
    assert first < second == third  # a quarter, a half and a half of the time
    assert bars[2].index("━") > bars[1].rindex("━") - 1


def test_an_answered_episode_ends_with_answer_verdict_and_cost(view) -> None:
    results = tuple(answered(step, "42", started=0.5, ended=1.0) for step in WORKFLOW)
    for index, result in enumerate(results):
        view(StepEnded("e", 0, 1.0, index, result))
    outcome = Round(PLAN, WORKFLOW, Transcript(WORKFLOW, results))
    view(RoundEnded("e", 0, 1.0, outcome))
    usage = PLAN.usage + outcome.transcript.usage
    judged = EpisodeView("What is it?", POOL, expected="43")
    simulated = EpisodeView("What is it?", POOL, simulated=True)
    simulated(Planned("e", 0, 0.001, PLAN, WORKFLOW))
    for index, result in enumerate(results):
        simulated(StepEnded("e", 0, 0.002, index, result))
    for picture in (view, judged, simulated):
        picture(Answered("e", 0, 1.0, Episode("What is it?", (outcome,), "42", None, usage, 1.0, "e")))
    text = drawn(view)
    assert "Answer     42" in drawn(judged) and "Answer" not in text
    assert "3 steps · 55 + 36 tokens · $0.000036 · 1.0 s in all" in text
    assert "wrong: expected 43" in drawn(judged)
    assert "$0.000036 · 1.5 s of simulated work\n" in drawn(simulated), "no wall time beside simulated seconds"


def test_a_failure_and_what_it_ended_are_told_apart(view) -> None:
    error = WorkerTimeout("no answer within 3 s", worker="counter")
    view(StepEnded("e", 0, 1.0, 0, StepResult(WORKFLOW.steps[0], error=error, started=0.5, ended=1.0)))
    view(RoundEnded("e", 0, 1.0, Round(PLAN, WORKFLOW, None, error)))
    text = drawn(view)
    assert "no answer within 3 s" in text
    assert "cancelled" in text and "not reached" in text


def test_a_text_that_is_no_workflow_is_shown_with_the_reason() -> None:
    error = WorkflowError(WorkflowReason.MISSING_LIST, "no list")
    view = EpisodeView("What is it?", POOL)
    view(Planned("e", 0, 0.1, Completion("I would rather not."), None, error))
    text = drawn(view)
    assert "no workflow: missing_list" in text and "I would rather not." in text


def test_a_conductor_that_could_not_be_reached_is_an_error_in_its_place() -> None:
    view = EpisodeView("What is it?", POOL)
    view(RoundEnded("e", 0, 0.1, Round(None, error=WorkerTimeout("gone", worker="conductor"))))
    assert "gone" in drawn(view) and "writes" not in drawn(view)


def test_every_round_has_its_place(view) -> None:
    view(Planned("e", 1, 2.0, Completion("Fine.\nmodel_id = []"), Workflow(()), None))
    text = drawn(view)
    assert "Conductor, round 1" in text and "Conductor, round 2" in text and "accepts the answer" in text


def test_a_long_text_of_the_conductor_keeps_its_end() -> None:
    view = EpisodeView("What is it?", POOL)
    thought = "\n".join(f"line {number}" for number in range(200))
    view(Planned("e", 0, 0.1, Completion(render_workflow(WORKFLOW, thought)), WORKFLOW))
    text = drawn(view)
    assert "access_list" in text and "line 0\n" not in text
    assert text.count("line ") < SHOWN_LINES


def test_what_a_worker_wrote_is_neither_markup_nor_control(view) -> None:
    result = answered(WORKFLOW.steps[0], "\x1b[2J[bold]4[/bold]\x07", started=0.5, ended=1.0)
    view(StepEnded("e", 0, 1.0, 0, result))
    text = drawn(view)
    assert "[bold]4[/bold]" in text
    assert "\x1b" not in text and "\x07" not in text


def test_in_a_narrow_terminal_an_answer_has_the_room_of_the_bars(view) -> None:
    view(StepEnded("e", 0, 1.0, 0, answered(WORKFLOW.steps[0], "900 1020 1140", started=0.5, ended=1.0)))
    assert "→ 900 1020 1140 " in drawn(view, width=60)
    assert "━" not in drawn(view, width=60) and "━" in drawn(view, width=80)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(view, width) -> None:
    assert max(map(len, drawn(view, width=width).splitlines())) <= width


def test_where_there_is_no_terminal_the_picture_comes_once_at_the_end(view) -> None:
    file = io.StringIO()
    with filling_in(view, Console(file=file, width=100)):
        assert file.getvalue() == ""
    assert file.getvalue().count("What is it?") == 1
