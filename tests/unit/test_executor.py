"""Running workflows: order, failure, cancellation, fallback, events. Budgets are in test_budget.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openconductor.episode import execute
from openconductor.errors import (
    AuthFailed,
    ContextTooLong,
    EmptyResponse,
    JournalError,
    OpenConductorError,
    RateLimited,
    Refused,
    WorkerError,
    WorkflowError,
    WorkflowReason,
)
from openconductor.events import Answered, Asked, CallEnded, Event, RoundEnded, StepEnded, StepStarted, StepText
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, OnText
from openconductor.types import Completion, Message, Sampling, Step, Usage, Workflow

TREE = [[], [], [0], [1], [2, 3]]


class Scripted:
    """A provider that does what its function says, and notes each call."""

    def __init__(self, act: Callable[[CallContext], object] = lambda call: None) -> None:
        self._act = act
        self.calls: list[tuple[CallContext, tuple[Message, ...]]] = []
        self.ended: list[int | None] = []
        self.cancelled: list[int | None] = []

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        self.calls.append((call, tuple(messages)))
        try:
            await asyncio.sleep(0)
            done = self._act(call)
            if asyncio.iscoroutine(done):
                done = await done
        except asyncio.CancelledError:
            self.cancelled.append(call.step)
            raise
        self.ended.append(call.step)
        if isinstance(done, OpenConductorError):
            raise done
        if isinstance(done, Completion):
            return done
        text = done if isinstance(done, str) else f"answer {call.step}"
        if on_text is not None:
            for word in text.split():
                on_text(word)
        return Completion(text, usage=Usage(input_tokens=10, output_tokens=1))

    @property
    def steps(self) -> list[int | None]:
        return [call.step for call, _ in self.calls]


def pool_of(*providers: object) -> WorkerPool:
    return WorkerPool([Worker(provider, name=f"w{i}") for i, provider in enumerate(providers)])  # type: ignore[arg-type]


def plan(accesses: Sequence[object], workers: Sequence[int] | None = None) -> Workflow:
    ids = workers or [0] * len(accesses)
    return Workflow([Step(w, f"Subtask {i}.", a) for i, (w, a) in enumerate(zip(ids, accesses, strict=True))])  # type: ignore[arg-type]


async def never(call: CallContext) -> str:
    await asyncio.Event().wait()
    return "never"


def for_step(**acts: object) -> Callable[[CallContext], object]:
    """What to do at which step (s0, s1 …): a value, or a function of the call."""

    def act(call: CallContext) -> object:
        wanted = acts.get(f"s{call.step}")
        return wanted(call) if callable(wanted) else wanted

    return act


# --- order ------------------------------------------------------------------------------------------------------------


async def test_a_step_waits_for_what_it_sees_and_for_nothing_else() -> None:
    gate = asyncio.Event()

    async def hold(call: CallContext) -> None:
        await gate.wait()

    async def release(call: CallContext) -> None:
        gate.set()

    # Step 1 is held until step 2, which sees only step 0, has run; by levels it would deadlock.
    provider = Scripted(for_step(s1=hold, s2=release))
    await asyncio.wait_for(execute(plan(TREE), pool_of(provider), "Why?"), 5)
    assert provider.ended == [0, 2, 1, 3, 4]


async def test_a_chain_needs_no_task_of_its_own() -> None:
    made: list[object] = []
    loop = asyncio.get_running_loop()

    def factory(loop: asyncio.AbstractEventLoop, coroutine: object, **options: object) -> asyncio.Task[object]:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)  # type: ignore[arg-type]

    loop.set_task_factory(factory)  # type: ignore[arg-type]
    try:
        await execute(plan([[], [0], "all", "all"]), pool_of(Scripted()), "Why?")
        assert made == []
    finally:
        loop.set_task_factory(None)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 7).flatmap(
        lambda n: st.tuples(
            *(
                st.one_of(st.just("all"), st.lists(st.integers(0, max(0, i - 1)), max_size=3 if i else 0))
                for i in range(n)
            )
        )
    ),
    st.randoms(use_true_random=False),
)
def test_whatever_the_timing_each_step_gets_what_a_serial_execution_gives_it(accesses: tuple, random) -> None:
    naps = [random.randrange(4) for _ in accesses]

    async def nap(call: CallContext) -> str:
        for _ in range(naps[call.step or 0]):
            await asyncio.sleep(0)
        return f"answer {call.step}"

    provider = Scripted(nap)
    workflow = plan(accesses)
    transcript = asyncio.run(execute(workflow, pool_of(provider), "Why?"))
    assert transcript.answer == f"answer {len(accesses) - 1}"
    for index, result in enumerate(transcript.results):
        seen = range(index) if accesses[index] == "all" else sorted(set(accesses[index]))
        texts = ["Why?", *(text for i in seen for text in (f"Subtask {i}.", f"answer {i}")), f"Subtask {index}."]
        assert "\n\n".join(turn.content for turn in result.messages) == "\n\n".join(texts)
        assert result.started is not None
        assert all(result.started >= (transcript.results[i].ended or 0) for i in seen)


# --- what a call is told ----------------------------------------------------------------------------------------------


async def test_calls_say_which_episode_step_and_sample_they_are() -> None:
    provider = Scripted()
    await execute(plan([[], [0]]), pool_of(provider), "Why?", sample=3)
    (episode,) = {call.episode for call, _ in provider.calls}
    assert len(episode) == 32
    assert [replace(call, origin=0.0, on_event=None) for call, _ in provider.calls] == [
        CallContext(episode, 0, 0, 0, 3),
        CallContext(episode, 0, 1, 0, 3),
    ]


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workflow", "reason"),
    [
        (Workflow([]), WorkflowReason.NO_STEPS),
        (Workflow([Step(7, "Do.")]), WorkflowReason.UNKNOWN_WORKER),
        (Workflow([Step(0, " ")]), WorkflowReason.BAD_SUBTASK),
        (Workflow([Step(0, "Do.", [0])]), WorkflowReason.FORWARD_ACCESS),
    ],
)
async def test_a_hand_built_workflow_is_validated(workflow: Workflow, reason: WorkflowReason) -> None:
    provider = Scripted()
    with pytest.raises(WorkflowError) as caught:
        await execute(workflow, pool_of(provider), "Why?")
    assert caught.value.reason is reason
    assert provider.calls == []


async def test_max_steps_limits_a_hand_built_workflow_only_where_it_is_given() -> None:
    six = plan([[]] * 6)
    assert (await execute(six, pool_of(Scripted()), "Why?")).answer == "answer 5"
    with pytest.raises(WorkflowError, match="too_many_steps"):
        await execute(six, pool_of(Scripted()), "Why?", max_steps=5)


# --- failure ----------------------------------------------------------------------------------------------------------


async def test_a_failure_cancels_the_other_steps_and_stands_in_the_transcript() -> None:
    provider = Scripted(for_step(s0=RateLimited("slow down"), s1=never))
    transcript = await asyncio.wait_for(execute(plan(TREE), pool_of(provider), "Why?"), 5)
    assert isinstance(transcript.error, RateLimited)
    assert transcript.error.worker == "w0"
    assert transcript.answer is None
    assert provider.cancelled == [1]
    failed, cancelled, *unreached = transcript.results
    assert failed.error is transcript.error and failed.ended is not None
    assert cancelled.error is None and cancelled.completion is None
    assert cancelled.started is not None and cancelled.worker == 0 and cancelled.messages
    assert all(result.started is None and result.messages == () for result in unreached)


async def test_steps_that_ended_before_a_failure_keep_their_results() -> None:
    provider = Scripted(for_step(s2=WorkerError("broken")))
    transcript = await execute(plan([[], [0], [1], [2]]), pool_of(provider), "Why?")
    assert [bool(result.completion) for result in transcript.results] == [True, True, False, False]
    assert transcript.usage.tokens == 22
    assert provider.steps == [0, 1, 2]


async def test_an_answer_of_an_independent_last_step_does_not_hide_a_failure() -> None:
    async def late(call: CallContext) -> object:
        for _ in range(5):
            await asyncio.sleep(0)
        return WorkerError("broken")

    transcript = await execute(plan([[], []]), pool_of(Scripted(for_step(s0=late))), "Why?")
    assert isinstance(transcript.error, WorkerError)


async def test_a_missing_key_is_raised_and_carries_the_episode() -> None:
    provider = Scripted(for_step(s1=AuthFailed("no key"), s0=never))
    with pytest.raises(AuthFailed) as caught:
        await asyncio.wait_for(execute(plan(TREE), pool_of(provider), "Why?"), 5)
    assert provider.cancelled == [0]
    episode = caught.value.episode
    assert episode is not None and episode.question == "Why?" and episode.answer is None
    assert episode.rounds[0].transcript is not None
    assert episode.rounds[0].transcript.results[1].error is caught.value


async def test_a_bug_in_a_provider_is_a_failure_of_its_worker_with_its_cause_and_cancels_the_rest() -> None:
    def bug(call: CallContext) -> str:
        raise KeyError("bug")

    provider = Scripted(for_step(s0=never, s1=bug))
    transcript = await asyncio.wait_for(execute(plan(TREE), pool_of(provider), "Why?"), 5)
    assert isinstance(transcript.error, WorkerError) and not transcript.error.retryable
    assert isinstance(transcript.error.__cause__, KeyError)
    assert provider.cancelled == [0]


@pytest.mark.parametrize("accesses", [[[]], [[], []]])
async def test_a_worker_that_cancels_itself_has_failed(accesses: list[list[int]]) -> None:
    async def cancel_itself(call: CallContext) -> str:
        raise asyncio.CancelledError

    transcript = await asyncio.wait_for(execute(plan(accesses), pool_of(Scripted(cancel_itself)), "Why?"), 5)
    assert isinstance(transcript.error, WorkerError)
    assert "from inside" in str(transcript.error)


@pytest.mark.parametrize(
    ("completion", "kind", "retryable"),
    [
        (Completion(""), EmptyResponse, True),
        (Completion(" \n"), EmptyResponse, True),
        (Completion("", finish_reason="length"), EmptyResponse, False),
        (Completion("", tool_calls=({"name": "f"},), finish_reason="tool_calls"), EmptyResponse, True),
        (Completion("I can", usage=Usage(5, 0, 2), finish_reason="content_filter"), Refused, False),
    ],
)
async def test_what_is_no_answer_is_an_error(completion: Completion, kind: type, retryable: bool) -> None:
    transcript = await execute(plan([[]]), pool_of(Scripted(lambda call: completion)), "Why?")
    error = transcript.error
    assert type(error) is kind and isinstance(error, WorkerError)
    assert (error.worker, error.retryable) == ("w0", retryable)
    assert transcript.answer is None


# --- cancellation -----------------------------------------------------------------------------------------------------


async def test_cancelling_execute_cancels_its_steps_and_waits_for_them() -> None:
    cleaned: list[int | None] = []
    both_run = asyncio.Event()

    async def cleans_up(call: CallContext) -> str:
        if call.step == 1:
            both_run.set()
        try:
            return await never(call)
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cleaned.append(call.step)

    task = asyncio.create_task(execute(plan([[], [], [0, 1]]), pool_of(Scripted(cleans_up)), "Why?"))
    await both_run.wait()
    before = asyncio.all_tasks()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(cleaned) == [0, 1]  # type: ignore[type-var]
    assert len(before) == 4 and asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_second_cancellation_still_leaves_no_step_behind() -> None:
    async def slow_to_die(call: CallContext) -> str:
        try:
            return await never(call)
        finally:
            for _ in range(10):
                await asyncio.sleep(0)

    task = asyncio.create_task(execute(plan([[], []]), pool_of(Scripted(slow_to_die)), "Why?"))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


# --- fallback ---------------------------------------------------------------------------------------------------------


def failing(*kinds: type[WorkerError]) -> list[Scripted]:
    return [Scripted(lambda call, kind=kind: kind("down")) for kind in kinds]


async def test_fallback_goes_on_in_ordinal_order_around_the_pool() -> None:
    down = failing(RateLimited, ContextTooLong)
    providers = [Scripted(), *down, Scripted(lambda call: Completion(""))]
    events: list[Event] = []
    pool = pool_of(*providers, Scripted()).subset([0, 1, 2, 3])
    transcript = await execute(plan([[]], [1]), pool, "Why?", fallback=True, on_event=events.append)
    assert [event.worker for event in events if isinstance(event, StepStarted)] == [1, 2, 3, 0]
    assert sum(isinstance(event, StepEnded) for event in events) == 1
    (result,) = transcript.results
    assert (result.step.worker, result.worker) == (1, 0)
    assert result.error is None and transcript.answer == "answer 0"
    assert [len(provider.calls) for provider in providers] == [1, 1, 1, 1]


async def test_a_missing_key_is_not_fallen_back_from() -> None:
    second = Scripted()
    with pytest.raises(AuthFailed):
        await execute(plan([[]]), pool_of(*failing(AuthFailed), second), "Why?", fallback=True)
    assert second.calls == []


# --- events -----------------------------------------------------------------------------------------------------------


async def test_events_tell_what_happens_in_order() -> None:
    events: list[Event] = []
    transcript = await execute(
        plan([[], [0]]), pool_of(Scripted(lambda call: "one two")), "Why?", on_event=events.append
    )
    of_a_step = [StepStarted, StepText, StepText, CallEnded, StepEnded]
    assert [type(event) for event in events] == [Asked, *of_a_step, *of_a_step, RoundEnded, Answered]
    assert [event.text for event in events if isinstance(event, StepText)] == ["one", "two"] * 2
    assert [event.result for event in events if isinstance(event, StepEnded)] == list(transcript.results)
    assert len({event.episode for event in events}) == 1 and {event.round for event in events} == {0}
    assert [event.at for event in events] == sorted(event.at for event in events)


async def test_without_a_sink_nothing_is_streamed() -> None:
    seen: list[object] = []

    class Curious(Scripted):
        async def complete(self, messages, sampling, *, call, on_text=None):  # type: ignore[no-untyped-def]
            seen.append(on_text)
            return await super().complete(messages, sampling, call=call, on_text=on_text)

    await execute(plan([[]]), pool_of(Curious()), "Why?")
    assert seen == [None]


async def test_each_step_that_started_has_ended_for_the_sink() -> None:
    events: list[Event] = []
    provider = Scripted(for_step(s0=WorkerError("down"), s1=never))
    await execute(plan(TREE), pool_of(provider), "Why?", on_event=events.append)
    started = [event.step for event in events if isinstance(event, StepStarted)]
    ended = [event.step for event in events if isinstance(event, StepEnded)]
    assert sorted(started) == sorted(ended) == [0, 1]


@pytest.mark.parametrize("failure", [JournalError("disk full"), ValueError("bug"), WorkerError("a liar")])
@pytest.mark.parametrize("kind", [StepStarted, StepText, StepEnded])
async def test_a_failing_sink_stops_everything_and_is_told_nothing_more(failure: Exception, kind: type) -> None:
    events: list[Event] = []

    def sink(event: Event) -> None:
        events.append(event)
        if isinstance(event, kind) and event.step == 1:
            raise failure

    provider = Scripted(for_step(s0=never))
    with pytest.raises(type(failure)) as caught:
        await asyncio.wait_for(execute(plan(TREE), pool_of(provider), "Why?", on_event=sink), 5)
    assert caught.value is failure
    assert isinstance(events[-1], kind) and events[-1].step == 1  # type: ignore[union-attr]
    assert 0 not in provider.ended


class Wrapping(Scripted):
    """A provider that turns whatever its caller's sink raises into an error of its own, or into nothing."""

    def __init__(self, swallow: bool) -> None:
        super().__init__()
        self._swallow = swallow

    async def complete(self, messages, sampling, *, call, on_text=None):  # type: ignore[no-untyped-def]
        try:
            return await super().complete(messages, sampling, call=call, on_text=on_text)
        except Exception as error:
            if self._swallow:
                return Completion("fine")
            raise WorkerError(f"stream: {error}") from error


@pytest.mark.parametrize("swallow", [True, False])
async def test_a_sink_that_fails_in_the_middle_of_a_stream_is_not_hidden_by_the_provider(swallow: bool) -> None:
    def sink(event: Event) -> None:
        if isinstance(event, StepText):
            raise JournalError("disk full")

    with pytest.raises(JournalError, match="disk full"):
        await execute(plan([[], [0]]), pool_of(Wrapping(swallow)), "Why?", on_event=sink, fallback=True)


async def test_a_sink_that_fails_while_a_failure_closes_the_other_steps_is_heard() -> None:
    def sink(event: Event) -> None:
        if isinstance(event, StepEnded) and event.step == 0:
            raise JournalError("disk full")

    provider = Scripted(for_step(s0=never, s1=Refused("no")))
    with pytest.raises(JournalError, match="disk full"):
        await execute(plan([[], []]), pool_of(provider), "Why?", on_event=sink)


@pytest.mark.parametrize("failure", [WorkerError("of the sink"), asyncio.CancelledError("of the sink")])
@pytest.mark.parametrize("accesses", [[[]], [[], []]])
async def test_a_failing_sink_is_not_taken_for_the_worker(failure: BaseException, accesses: list[object]) -> None:
    def sink(event: Event) -> None:
        if isinstance(event, CallEnded):
            raise failure

    other = Scripted()
    with pytest.raises(type(failure), match="of the sink"):
        await execute(plan(accesses), pool_of(Scripted(), other), "Why?", on_event=sink, fallback=True)
    assert not other.calls


async def test_nothing_begins_after_a_cancellation_that_a_worker_swallowed() -> None:
    class Stubborn(Scripted):
        async def complete(self, messages, sampling, *, call, on_text=None):  # type: ignore[no-untyped-def]
            try:
                return await super().complete(messages, sampling, call=call, on_text=on_text)
            except asyncio.CancelledError:
                return Completion("late")

    both = asyncio.Event()

    async def waits(call: CallContext) -> str:
        if call.step == 1:
            both.set()
        return await never(call)

    provider = Stubborn(waits)
    task = asyncio.create_task(execute(plan([[], [], [0], [1]]), pool_of(provider), "Why?"))
    await both.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(call.step for call, _ in provider.calls) == [0, 1]  # type: ignore[type-var]
