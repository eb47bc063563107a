"""Calls that were not sent, because a circuit is open, wait; whatever was sent does not come to wait."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from openconductor import Conductor, Worker, WorkerPool
from openconductor.errors import BudgetExceeded, CircuitOpen, Refused, ServerFailed
from openconductor.events import CallEnded, StepEnded, StepStarted
from openconductor.executor import execute
from openconductor.graders.freeform import FreeFormAnswer, FreeFormGrader
from openconductor.patience import LOOK_S, PATIENCE_S
from openconductor.protocols import CallContext, OnText
from openconductor.types import Budget, Completion, Message, Problem, Sampling, Step, Workflow

Runs = Callable[[Coroutine[Any, Any, Any]], Any]
ONE = Workflow((Step(0, "Say it."),))
PLAN = "model_id = [0]\nsubtasks = ['Say it.']\naccess_list = [[]]"


@dataclass
class Server:
    """A model behind a network that is down between two times (of a clock that starts at 1000)."""

    says: str = "hi"
    down: tuple[float, float] = (0.0, 0.0)
    sent: list[float] = field(default_factory=list[float])
    remote = True

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        now = asyncio.get_running_loop().time()
        self.sent.append(now)
        await asyncio.sleep(0.01)
        if self.down[0] <= now < self.down[1]:
            raise ServerFailed("down")
        return Completion(self.says)


@dataclass
class Refusing:
    """A model behind a network that declines, after some seconds."""

    seconds: float = 0.0
    remote = True

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        await asyncio.sleep(self.seconds)
        raise Refused("no")


async def opened(server: Server, name: str = "w") -> Worker:
    """A worker whose circuit has just opened, at about 1002; it is next tried 5 s later."""
    worker = Worker(server, name=name, retries=0)
    while worker.healthy:
        with pytest.raises(ServerFailed):
            await worker.complete((Message("user", "hello"),), call=CallContext())
        await asyncio.sleep(0.2)
    server.sent.clear()
    return worker


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_step_waits_until_the_only_worker_is_tried_again(in_virtual_time: Runs) -> None:
    server = Server(down=(0, 1004))
    events: list[object] = []

    async def run() -> None:
        pool = WorkerPool([await opened(server)])
        begun = now()
        transcript = await execute(ONE, pool, "Well?", on_event=events.append)
        assert (transcript.answer, transcript.error) == ("hi", None)
        assert 4.5 < now() - begun < 5.0 + 2 * LOOK_S

    in_virtual_time(run())
    assert len(server.sent) == 1
    assert sum(isinstance(event, CallEnded) for event in events) == 1, "what was not sent is no call"
    assert isinstance([event for event in events if isinstance(event, StepStarted | StepEnded)][-1], StepEnded)


def test_a_planner_waits_too(in_virtual_time: Runs) -> None:
    server = Server(PLAN, down=(0, 1004))

    async def run() -> None:
        planner = await opened(server, "planner")
        episode = await Conductor(planner, pool=WorkerPool([Worker(Server(), name="w")])).ask("Well?")
        assert (episode.answer, len(server.sent)) == ("hi", 1)

    in_virtual_time(run())


def test_of_many_that_wait_one_probes_and_all_are_answered(in_virtual_time: Runs) -> None:
    server = Server(down=(0, 1030))

    async def run() -> None:
        pool = WorkerPool([await opened(server)])
        transcripts = await asyncio.gather(*(execute(ONE, pool, f"Question {number}?") for number in range(200)))
        answered = [transcript.answer == "hi" for transcript in transcripts]
        assert sum(answered) == 200 - 2, "only the probes at 5 and 15 seconds were sent while it was down"

    in_virtual_time(run())
    assert len([moment for moment in server.sent if moment < 1030]) == 2


def test_with_fallback_nobody_waits_while_another_worker_is_healthy(in_virtual_time: Runs) -> None:
    async def run() -> None:
        pool = WorkerPool([await opened(Server(down=(0, 1e9))), Worker(Server("there"), name="other")])
        begun = now()
        transcript = await execute(ONE, pool, "Well?", fallback=True)
        assert (transcript.answer, now() - begun) == ("there", pytest.approx(0.01))

    in_virtual_time(run())


def test_with_fallback_the_first_that_heals_answers(in_virtual_time: Runs) -> None:
    async def run() -> None:
        later = Server("later", down=(0, 1e9))
        pool = WorkerPool([await opened(later), await opened(Server("sooner", down=(0, 1005)), "other")])
        transcript = await execute(ONE, pool, "Well?", fallback=True)
        # The first one's probe was sent, and failed; the step then waited for the other's.
        assert (transcript.answer, len(later.sent)) == ("sooner", 1)

    in_virtual_time(run())


def test_with_fallback_what_the_plan_itself_has_caused_waits_for_nobody(in_virtual_time: Runs) -> None:
    async def run() -> None:
        pool = WorkerPool([Worker(Refusing(), name="prim"), await opened(Server(down=(0, 1e9)), "closed")])
        begun = now()
        transcript = await execute(ONE, pool, "Well?", fallback=True)
        assert isinstance(transcript.error, Refused)
        assert now() - begun < 1

    in_virtual_time(run())


def test_nobody_waits_for_one_that_has_been_down_for_long(in_virtual_time: Runs) -> None:
    server = Server(down=(0, 1e9))

    async def run() -> None:
        worker = await opened(server)
        pool, begun = WorkerPool([worker]), now()
        first = await execute(ONE, pool, "First?")
        assert isinstance(first.error, ServerFailed), "it was the probe"
        errors = [(await execute(ONE, pool, f"Question {number}?")).error for number in range(1000)]
        # All the time one call or another is the probe and fails; the others wait for two minutes in all.
        assert PATIENCE_S - 5 < now() - begun < PATIENCE_S + 35
        assert sum(isinstance(error, CircuitOpen) for error in errors) > 980

    in_virtual_time(run())
    assert len(server.sent) < 10


def test_a_short_outage_fails_what_was_under_way_and_not_what_came_after(in_virtual_time: Runs) -> None:
    server = Server(down=(1000.1, 1025))
    at_once = 32

    async def run() -> None:
        pool = WorkerPool([Worker(server, name="w")])
        numbers, answers = iter(range(1000)), list[str | None]()

        async def lane() -> None:
            for number in numbers:
                answers.append((await execute(ONE, pool, f"Question {number}?")).answer)

        await asyncio.gather(*(lane() for _ in range(at_once)))
        failed = answers.count(None)
        assert at_once <= failed <= 3 * at_once, f"{failed}: those under way until the circuit opened, and the probes"

    in_virtual_time(run())


def test_a_budget_counts_no_call_that_was_not_sent(in_virtual_time: Runs) -> None:
    async def run() -> None:
        pool = WorkerPool([await opened(Server(down=(0, 1004)))])
        transcript = await execute(ONE, pool, "Well?", budget=Budget(calls=1))
        assert transcript.answer == "hi"
        planner = await opened(Server(PLAN, down=(0, now() + 3)), "planner")
        episode = await Conductor(planner, pool=pool).ask("Well?", budget=Budget(calls=2))
        assert episode.answer == "hi"

    in_virtual_time(run())


def test_a_race_for_the_probe_counts_no_call_either(in_virtual_time: Runs) -> None:
    """Both steps find the circuit about to be tried; one is the probe, the other one was counted and is not sent."""

    async def run() -> None:
        worker = await opened(Server(down=(0, 1004)))
        await asyncio.sleep(6)
        two = Workflow((Step(0, "One.", []), Step(0, "Two.", [])))
        transcript = await execute(two, WorkerPool([worker]), "Well?", budget=Budget(calls=2))
        assert (transcript.answer, transcript.error) == ("hi", None)

    in_virtual_time(run())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_while_a_step_waits_the_failure_of_another_is_the_workflows(
    in_virtual_time: Runs, order: tuple[int, int]
) -> None:
    events: list[object] = []

    async def run() -> None:
        pool = WorkerPool([await opened(Server(down=(0, 1e9))), Worker(Refusing(1.0), name="prim")])
        side_by_side = Workflow(tuple(Step(worker, "Say it.", []) for worker in order))
        transcript = await execute(side_by_side, pool, "Well?", on_event=events.append)
        assert isinstance(transcript.error, Refused), "so that the reward is not masked by the order of the steps"
        waited = transcript.results[order.index(0)]
        assert (waited.completion, waited.error) == (None, None)

    in_virtual_time(run())
    started = [event.step for event in events if isinstance(event, StepStarted)]
    assert started == [event.step for event in events if isinstance(event, StepEnded)] == [order.index(1)]


def test_a_wait_draws_nothing_from_the_shared_generator(in_virtual_time: Runs) -> None:
    async def run() -> None:
        pool = WorkerPool([await opened(Server(down=(0, 1004)))])
        random.seed(1)
        await execute(ONE, pool, "Well?")
        assert random.random() == random.Random(1).random()

    in_virtual_time(run())


def test_a_judge_is_waited_for_too(in_virtual_time: Runs) -> None:
    async def run() -> None:
        judge = await opened(Server("VERDICT: RIGHT", down=(0, 1004)), "judge")
        grader = FreeFormGrader(judge)
        problem = Problem("p", "What carries blood away?", FreeFormAnswer("the arteries", "text"), "anatomy")
        grade = await grader.grade(problem, "The answer is \\boxed{vessels called arteries}")
        assert grade.correct is True, grade

    in_virtual_time(run())


@pytest.mark.parametrize("planning", [False, True])
def test_the_seconds_of_the_question_end_the_wait(in_virtual_time: Runs, planning: bool) -> None:
    server = Server(down=(0, 1e9))

    async def run() -> None:
        closed, healthy = await opened(server), Worker(Server(PLAN), name="healthy")
        planner, worker = (closed, healthy) if planning else (healthy, closed)
        begun = now()
        with pytest.raises(BudgetExceeded, match="seconds"):
            await Conductor(planner, pool=WorkerPool([worker])).ask("Well?", budget=Budget(seconds=3))
        assert now() - begun == pytest.approx(3, abs=0.1)

    in_virtual_time(run())
    assert not server.sent


def test_a_call_that_was_sent_and_failed_does_not_wait(in_virtual_time: Runs) -> None:
    server = Server(down=(0, 1e9))

    async def run() -> None:
        worker = Worker(server, name="w", retries=0)
        transcript = await execute(ONE, WorkerPool([worker]), "Well?")
        assert isinstance(transcript.error, ServerFailed)
        assert now() == pytest.approx(1000.01)

    in_virtual_time(run())


def test_a_wait_can_be_cancelled(in_virtual_time: Runs) -> None:
    async def run() -> None:
        pool = WorkerPool([await opened(Server(down=(0, 1e9)))])
        asking = asyncio.create_task(execute(ONE, pool, "Well?"))
        await asyncio.sleep(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    in_virtual_time(run())
