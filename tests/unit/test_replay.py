"""Replay: what a journal holds is not asked for again, and is told of as what it was."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

import pytest

from openconductor.conductor import Conductor
from openconductor.events import CallEnded, Event
from openconductor.journal import Journal, call_key
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, OnText
from openconductor.types import Completion, FinishReason, Message, Price, Sampling, Usage

HELLO = (Message("user", "hello"),)
CALL = CallContext("an episode", round=1, step=2, sample=3)
PRICE = Price(Decimal(1), Decimal(2))
SAID = Completion("from before", "thought", usage=Usage(input_tokens=7, output_tokens=5, dollars=Decimal("0.1")))


class Shelf:
    """A journal in memory: it keeps what it is told of, as the real one does, and finds it by its key."""

    def __init__(self) -> None:
        self.completions: dict[str, Completion] = {}
        self.looked_up = 0

    def find_completion(self, key: str) -> Completion | None:
        self.looked_up += 1
        return self.completions.get(key)

    def keep(self, said: Completion = SAID, *, call: CallContext = CALL, identity: str = "gpt at x") -> None:
        self.completions[call_key("w", identity, HELLO, Sampling(), call)] = said


@dataclass
class Server:
    """A provider that answers each call with its number."""

    calls: list[CallContext] = field(default_factory=list)
    identity: str = "gpt at x"

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        self.calls.append(call)
        said = f"answer {len(self.calls)}"
        await asyncio.sleep(0)
        return Completion(said)


@dataclass
class Desk:
    """A server behind a replay."""

    shelf: Shelf = field(default_factory=Shelf)
    server: Server = field(default_factory=Server)
    identity: str = "gpt at x"

    async def ask(
        self,
        call: CallContext = CALL,
        *,
        messages: Sequence[Message] = HELLO,
        sampling: Sampling | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.server.identity = self.identity
        worker = Worker(self.server, name="w", price=PRICE, sampling=sampling or Sampling()).replaying(self.shelf)
        return await worker.complete(messages, call=call, on_text=on_text)


async def test_what_the_journal_holds_is_not_asked_for_again() -> None:
    desk = Desk()
    desk.shelf.keep()
    assert await desk.ask() is SAID
    assert desk.server.calls == []


@pytest.mark.parametrize(
    "call",
    [
        replace(CALL, episode="another"),
        replace(CALL, attempt=2),
        replace(CALL, deadline=1e9, origin=5.0),
    ],
    ids=["episode", "attempt", "times"],
)
async def test_neither_the_episode_nor_the_attempt_nor_the_time_makes_it_another_call(call: CallContext) -> None:
    desk = Desk()
    desk.shelf.keep()
    assert await desk.ask(call) is SAID


@pytest.mark.parametrize(
    "call",
    [
        replace(CALL, sample=4),
        replace(CALL, round=0),
        replace(CALL, step=1),
        replace(CALL, step=None),
    ],
    ids=["sample", "round", "step", "the Conductor's own"],
)
async def test_what_stands_elsewhere_in_the_question_is_another_call(call: CallContext) -> None:
    desk = Desk()
    desk.shelf.keep()
    assert (await desk.ask(call)).text == "answer 1"


async def test_what_is_asked_of_something_else_or_otherwise_is_another_call() -> None:
    shelf = Shelf()
    shelf.keep()
    assert (await Desk(shelf, identity="gpt at y").ask()).text == "answer 1"
    assert (await Desk(shelf).ask(messages=(Message("user", "hullo"),))).text == "answer 1"
    assert (await Desk(shelf).ask(sampling=Sampling(temperature=0.5))).text == "answer 1"


async def test_the_conductors_own_call_is_replayed_too() -> None:
    desk, call = Desk(), CallContext("an episode")
    assert call.step is None
    desk.shelf.keep(call=call)
    assert await desk.ask(call) is SAID


async def test_equal_calls_at_the_same_time_are_both_made() -> None:
    desk = Desk()
    said = await asyncio.gather(desk.ask(), desk.ask())
    assert [completion.text for completion in said] == ["answer 1", "answer 2"]


@pytest.mark.parametrize(("finish", "outcome"), [("stop", "answered"), ("tool_calls", "answered"), ("length", "cut")])
async def test_a_replayed_call_is_told_of_with_what_it_cost_when_it_was_made(
    finish: FinishReason, outcome: str
) -> None:
    desk, events = Desk(), list[Event]()
    said = replace(SAID, finish_reason=finish)
    desk.shelf.keep(said)
    await desk.ask(replace(CALL, on_event=events.append, origin=asyncio.get_running_loop().time()))
    (event,) = events
    assert isinstance(event, CallEnded)
    assert (event.episode, event.round, event.step) == ("an episode", 1, 2)
    call = event.call
    assert (call.worker, call.outcome, call.identity, call.price) == ("w", outcome, "gpt at x", PRICE)
    assert (call.messages, call.sampling, call.completion, call.error) == (HELLO, Sampling(), said, None)
    assert call.usage == SAID.usage
    assert call.replayed
    assert 0 <= call.started < 60


async def test_the_text_of_a_replayed_call_is_handed_on_in_one_piece() -> None:
    desk, heard = Desk(), list[str]()
    desk.shelf.keep()
    await desk.ask(on_text=heard.append)
    assert heard == ["from before"]
    desk.shelf.keep(Completion("", finish_reason="length"))
    await desk.ask(on_text=heard.append)
    assert heard == ["from before"]


async def test_a_call_that_is_tried_again_is_looked_up_once() -> None:
    shelf, calls = Shelf(), list[int]()

    def fails_twice(messages: list[Message]) -> str:
        calls.append(len(calls))
        if len(calls) < 3:
            raise ValueError("not yet")
        return "at last"

    worker = Worker(fails_twice, name="w", retries=2).replaying(shelf)
    call = CallContext("id", on_event=lambda event: None)
    assert (await worker.complete(HELLO, call=call)).text == "at last"
    assert (len(calls), shelf.looked_up) == (3, 1)


# ── with the real journal ────────────────────────────────────────────────────────────────────────────────────────────
PLAN = 'model_id = [0, 1, 0]\nsubtasks = ["Think.", "Think, too.", "Say it."]\naccess_list = [[], [], "all"]'


class Killed(Exception):
    """The process is gone."""


class House:
    """A Conductor over two workers, one of which is a Conductor itself; all of them ask one counted server."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def conductor(self, journal: Journal) -> Conductor:
        """One that replays, as a process that starts anew would make it."""
        inner = Conductor(self.server("inner", PLAN), pool=WorkerPool([self.server("deep"), self.server("deeper")]))
        pool = WorkerPool([self.server("plain"), Worker(inner, name="nested")])
        return Conductor(self.server("planner", PLAN).replaying(journal), pool=pool.replaying(journal))

    def server(self, name: str, says: str = "") -> Worker:
        async def answer(messages: list[Message]) -> str:
            self.asked.append(name)
            return says or f"{name} said {len(self.asked)}"

        return Worker(answer, name=name)


async def test_a_question_that_was_answered_costs_nothing_when_it_is_asked_again(tmp_path: Path) -> None:
    house = House()
    with Journal(tmp_path / "journal.sqlite") as journal:
        first = await house.conductor(journal).ask("why?", on_event=journal)
    assert len(house.asked) == 3 + 4
    with Journal(tmp_path / "journal.sqlite") as journal:
        again = await house.conductor(journal).ask("why?", on_event=journal)
        assert len(house.asked) == 3 + 4
        assert again.answer == first.answer
        assert (again.usage.tokens, again.usage.dollars) == (first.usage.tokens, first.usage.dollars)
        assert again.usage.unpriced_calls == first.usage.unpriced_calls
        calls = [call for outcome in again.rounds for call in outcome.calls]
        assert calls
        assert all(call.replayed for call in calls)
        other = await house.conductor(journal).ask("why?", on_event=journal, sample=1)
    assert len(house.asked) == 2 * (3 + 4)
    assert other.answer != first.answer


async def test_of_a_question_that_was_broken_off_only_what_had_not_ended_is_asked_again(tmp_path: Path) -> None:
    house, events = House(), 0
    with Journal(tmp_path / "journal.sqlite") as journal:

        def stop_after_two_calls(event: Event) -> None:
            nonlocal events
            journal(event)
            events += isinstance(event, CallEnded)
            if events == 2:
                raise Killed

        with pytest.raises(Killed):
            await house.conductor(journal).ask("why?", on_event=stop_after_two_calls)
    before = Counter(house.asked)
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert (await house.conductor(journal).ask("why?", on_event=journal)).answer
    again = Counter(house.asked) - before
    assert before["planner"] == 1
    assert again["planner"] == 0
    assert before["plain"] + again["plain"] == 2
