"""Running workflows: order, failure, cancellation, fallback, events (not budgets)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from openconductor import errors
from openconductor.episode import execute
from openconductor.events import (
    Answered,
    Asked,
    CallEnded,
    Event,
    RoundEnded,
    StepEnded,
    StepStarted,
    StepText,
)
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext
from openconductor.testing import Scripted, ScriptedCall, pool_of
from openconductor.types import Completion, Step, Transcript, Workflow

TREE = [[], [], [0], [1], [2, 3]]


class Swallowing(Scripted):
    """Answers where an error is raised inside it, or hides it behind one of its own."""

    def __init__(self, swallows: type[BaseException], script: Any = "fine") -> None:
        super().__init__(script)
        self.swallows = swallows
        self.dresses = False

    async def complete(self, *given: Any, **named: Any) -> Completion:
        try:
            return await super().complete(*given, **named)
        except self.swallows as error:
            if self.dresses:
                raise errors.WorkerError(f"stream: {error}") from error
            return Completion("fine")


def by_step(**acts: Any) -> Scripted:
    """A provider with an answer for each step (``s0`` …): an answer, or a function of the call."""
    return Scripted(script_of(**acts))


def script_of(**acts: Any) -> Callable[[ScriptedCall], Any]:
    async def answer(call: ScriptedCall) -> Any:
        step = call.context.step
        act = acts.get(f"s{step}", acts.get("otherwise", f"answer {step}"))
        if callable(act):
            act = act(call)
        return await act if inspect.isawaitable(act) else act

    return answer


def steps_of(provider: Scripted) -> list[int | None]:
    return [call.context.step for call in provider.calls]


def plan(accesses: Sequence[object], worker: int = 0) -> Workflow:
    steps: list[Step] = []
    for index, access in enumerate(accesses):
        steps.append(Step(worker, f"Subtask {index}.", access))  # type: ignore[arg-type]
    return Workflow(steps)


async def run(
    provider: Scripted, accesses: Sequence[object] = TREE, **options: object
) -> Transcript:
    return await asyncio.wait_for(execute(plan(accesses), pool_of(provider), "Why?", **options), 5)  # type: ignore[arg-type]


async def never(call: ScriptedCall) -> str:
    await asyncio.Event().wait()
    return "never"


# ── order ─────────────────────────────────────────────────────────────────────────────────────────
async def test_a_step_waits_for_what_it_sees_and_for_nothing_else() -> None:
    gate = asyncio.Event()
    ended: list[int | None] = []

    async def act(call: ScriptedCall) -> str:
        step = call.context.step
        # Step 1 is held until step 2, which sees only step 0, has run; by levels it would deadlock.
        if step == 1:
            await gate.wait()
        elif step == 2:
            gate.set()
        ended.append(step)
        return "done"

    await run(Scripted(act))
    assert ended == [0, 2, 1, 3, 4]


def accesses_of(size: int) -> st.SearchStrategy[tuple[object, ...]]:
    lists = [st.just([])]
    lists += [st.lists(st.integers(0, index - 1), max_size=3) for index in range(1, size)]
    return st.tuples(*(st.just("all") | seen for seen in lists))


@settings(max_examples=60)
@given(st.integers(1, 7).flatmap(accesses_of), st.randoms(use_true_random=False))
def test_whatever_the_timing_each_step_gets_what_a_serial_execution_gives_it(
    accesses: tuple, random
) -> None:
    naps = [random.randrange(4) for _ in accesses]

    async def nap(call: ScriptedCall) -> str:
        step = call.context.step
        for _ in range(naps[step or 0]):
            await asyncio.sleep(0)
        return f"answer {step}"

    transcript = asyncio.run(run(Scripted(nap), accesses))
    assert transcript.answer == f"answer {len(accesses) - 1}"
    for index, result in enumerate(transcript.results):
        texts = ["Why?"]
        for seen in result.step.visible(index):
            texts += [f"Subtask {seen}.", f"answer {seen}"]
            assert result.started >= transcript.results[seen].ended
        texts.append(f"Subtask {index}.")
        assert "\n\n".join(turn.content for turn in result.messages) == "\n\n".join(texts)


async def test_calls_say_which_episode_step_and_sample_they_are() -> None:
    provider = Scripted()
    await run(provider, [[], [0]], context=CallContext(sample=3))
    contexts = [received.context for received in provider.calls]
    (episode,) = {call.episode for call in contexts}
    assert len(episode) == 32
    for step, call in enumerate(contexts):
        expected = CallContext(episode, step=step, sample=3, subtask=f"Subtask {step}.")
        own = {"last": step == 1, "origin": call.origin, "on_event": call.on_event}
        assert call == replace(expected, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("workflow", "reason"),
    [
        (Workflow([]), "no_steps"),
        (Workflow([Step(7, "Do.")]), "unknown_worker"),
        (Workflow([Step(0, "Do.", [0])]), "forward_access"),
        (plan([[]] * 6), "too_many_steps"),
    ],
)
async def test_a_hand_built_workflow_is_validated(workflow: Workflow, reason: str) -> None:
    provider = Scripted()
    with pytest.raises(errors.WorkflowError) as caught:
        await execute(workflow, pool_of(provider), "Why?", max_steps=5)
    assert caught.value.reason == reason and provider.calls == []


# ── failure ───────────────────────────────────────────────────────────────────────────────────────
async def test_a_failure_cancels_the_other_steps_and_stands_in_the_transcript() -> None:
    events: list[Event] = []
    provider = by_step(s0=errors.RateLimited("slow down"), s1=never)
    transcript = await run(provider, on_event=events.append)
    assert isinstance(transcript.error, errors.RateLimited) and transcript.error.worker == "w0"
    assert transcript.answer is None and provider.cancelled == 1
    failed, cancelled, *unreached = transcript.results
    assert failed.error is transcript.error and failed.ended is not None
    assert cancelled.error is None and cancelled.completion is None
    assert cancelled.started is not None and cancelled.worker == 0 and cancelled.messages
    assert all(result.started is None and result.messages == () for result in unreached)
    for kind in (StepStarted, StepEnded):  # each step that started has ended for the sink
        assert sorted(event.step for event in events if isinstance(event, kind)) == [0, 1]


async def test_an_answer_of_an_independent_last_step_does_not_hide_a_failure() -> None:
    async def late(call: ScriptedCall) -> Exception:
        for _ in range(5):
            await asyncio.sleep(0)
        return errors.WorkerError("broken")

    assert isinstance((await run(by_step(s0=late), [[], []])).error, errors.WorkerError)


@pytest.mark.parametrize(
    ("completion", "kind", "retryable"),
    [
        (Completion(""), errors.EmptyResponse, True),
        (Completion(" \n"), errors.EmptyResponse, True),
        (Completion("", finish_reason="length"), errors.EmptyResponse, False),
        (Completion("", tool_calls=({"name": "f"},)), errors.EmptyResponse, True),
        (Completion("I can", finish_reason="content_filter"), errors.Refused, False),
    ],
)
async def test_what_is_no_answer_is_an_error(
    completion: Completion, kind: type, retryable: bool
) -> None:
    transcript = await run(Scripted(completion), [[]])
    error = transcript.error
    assert type(error) is kind and transcript.answer is None
    assert (error.worker, error.retryable) == ("w0", retryable)


# ── cancellation ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("times", [1, 2])
async def test_cancelling_execute_however_often_waits_for_its_steps(times: int) -> None:
    cleaned: list[int | None] = []
    both_run = asyncio.Event()

    async def cleans_up(call: ScriptedCall) -> str:
        if call.context.step == 1:
            both_run.set()
        try:
            return await never(call)
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned.append(call.context.step)

    provider = Scripted(cleans_up)
    task = asyncio.create_task(execute(plan([[], [], [0, 1]]), pool_of(provider), "Why?"))
    await both_run.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(cleaned) == 2 or times == 2


async def test_nothing_begins_after_a_cancellation_that_a_worker_swallowed() -> None:
    both_run = asyncio.Event()

    async def waits(call: ScriptedCall) -> str:
        if call.context.step == 1:
            both_run.set()
        return await never(call)

    provider = Swallowing(asyncio.CancelledError, waits)
    task = asyncio.create_task(run(provider, [[], [], [0], [1]]))
    await both_run.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps_of(provider) == [0, 1]


# ── fallback ──────────────────────────────────────────────────────────────────────────────────────
async def test_fallback_goes_on_in_ordinal_order_around_the_pool() -> None:
    down = (errors.RateLimited("down"), errors.ContextTooLong("down"), Completion(""))
    providers = [Scripted("answer 0"), *map(Scripted, down)]
    events: list[Event] = []
    pool = pool_of(*providers, Scripted()).subset([0, 1, 2, 3])
    transcript = await execute(
        plan([[]], worker=1), pool, "Why?", fallback=True, on_event=events.append
    )
    assert [event.worker for event in events if isinstance(event, StepStarted)] == [1, 2, 3, 0]
    assert sum(isinstance(event, StepEnded) for event in events) == 1
    (result,) = transcript.results
    assert (result.step.worker, result.worker) == (1, 0)
    assert result.error is None and transcript.answer == "answer 0"
    assert [len(provider.calls) for provider in providers] == [1, 1, 1, 1]


async def test_the_best_measured_worker_takes_over_and_workers_without_a_card_come_last() -> None:
    cards = ("law 90%", "law 0%", "", "law 80%", "law 90%")
    workers = [
        Worker(Scripted(errors.Refused("no")), name=f"w{number}", description=card)
        for number, card in enumerate(cards)
    ]
    transcript = await execute(plan([[]], worker=1), WorkerPool(workers), "Why?", fallback=True)
    (result,) = transcript.results
    assert [call.worker for call in result.calls] == ["w1", "w4", "w0", "w3", "w2"]


# ── events ────────────────────────────────────────────────────────────────────────────────────────
async def test_events_tell_what_happens_in_order() -> None:
    events: list[Event] = []
    transcript = await run(Scripted(("one", "two")), [[], [0]], on_event=events.append)
    step = [StepStarted, StepText, StepText, CallEnded, StepEnded]
    assert [type(event) for event in events] == [Asked, *step, *step, RoundEnded, Answered]
    assert [event.text for event in events if isinstance(event, StepText)] == ["one", "two"] * 2
    ended = tuple(event.result for event in events if isinstance(event, StepEnded))
    assert ended == transcript.results
    assert {(event.episode, event.round) for event in events} == {(events[0].episode, 0)}
    times = [event.at for event in events]
    assert times == sorted(times)


def failing(kind: type, failure: BaseException, step: int | None = None) -> Callable[[Event], None]:
    """A sink that fails at an event of a kind, at one step or at any."""

    def sink(event: Event) -> None:
        if isinstance(event, kind) and step in (None, event.step):  # type: ignore[attr-defined]
            raise failure

    return sink


@pytest.mark.parametrize(
    "failure", [errors.JournalError("disk full"), ValueError("bug"), errors.WorkerError("a liar")]
)
@pytest.mark.parametrize("kind", [StepStarted, StepText, StepEnded])
async def test_a_failing_sink_cancels_the_other_steps(failure: Exception, kind: type) -> None:
    provider = by_step(s0=never)
    with pytest.raises(type(failure)) as caught:
        await run(provider, on_event=failing(kind, failure, 1))
    assert caught.value is failure
    assert provider.cancelled >= 1


@pytest.mark.parametrize("dresses", [True, False])
async def test_a_sink_that_fails_in_the_middle_of_a_stream_is_not_hidden_by_the_provider(
    dresses: bool,
) -> None:
    provider = Swallowing(Exception)
    provider.dresses = dresses
    with pytest.raises(errors.JournalError, match="disk full"):
        await run(provider, [[], [0]], on_event=failing(StepText, errors.JournalError("disk full")))


async def test_a_sink_that_fails_while_a_failure_closes_the_other_steps_is_heard() -> None:
    provider = by_step(s0=never, s1=errors.Refused("no"))
    sink = failing(StepEnded, errors.JournalError("disk full"), 0)
    with pytest.raises(errors.JournalError, match="disk full"):
        await run(provider, [[], []], on_event=sink)


@pytest.mark.parametrize(
    "failure", [errors.WorkerError("of the sink"), asyncio.CancelledError("of the sink")]
)
@pytest.mark.parametrize("accesses", [[[]], [[], []]])
async def test_a_failing_sink_is_not_taken_for_the_worker(
    failure: BaseException, accesses: list[object]
) -> None:
    other = Scripted()
    pool, sink = pool_of(Scripted(), other), failing(CallEnded, failure)
    with pytest.raises(type(failure), match="of the sink"):
        await execute(plan(accesses), pool, "Why?", on_event=sink, fallback=True)
    assert not other.calls
