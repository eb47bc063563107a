"""Replay: calls in a journal are not made again, and are reported as they were."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from openconductor.conductor import Conductor
from openconductor.events import CallEnded, Event
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, OnText
from openconductor.store import Journal, call_key
from openconductor.testing import Scripted
from openconductor.types import Call, Completion, Message, Price, Sampling, Usage

HELLO = (Message("user", "hello"),)
CALL = CallContext("an episode", round=1, step=2, sample=3)
PRICE = Price(Decimal(1), Decimal(2))
SAID = Completion(
    "from before", "thought", usage=Usage(input_tokens=7, output_tokens=5, dollars=Decimal("0.1"))
)


class Desk(Scripted):
    """A server that numbers its answers, behind a journal in memory that may hold one."""

    def __init__(self, said: Completion | None = SAID, identity: str = "gpt at x") -> None:
        super().__init__(lambda call: f"answer {call.number + 1}", identity=identity)
        self.said = said

    def find_completion(self, key: str) -> Completion | None:
        known = call_key("w", "gpt at x", HELLO, Sampling(), CALL)
        return self.said if key == known else None

    async def ask(
        self,
        call: CallContext = CALL,
        *,
        messages: Sequence[Message] = HELLO,
        on_text: OnText | None = None,
        **options: Any,
    ) -> str:
        worker = Worker(self, name="w", price=PRICE, **options).replaying(self)
        return (await worker.complete(messages, call=call, on_text=on_text)).text


@pytest.mark.parametrize("name", ["episode", "attempt", "deadline", "origin"])
async def test_neither_episode_nor_attempt_nor_time_makes_it_another_call(name: str) -> None:
    desk = Desk()
    assert await desk.ask(replace(CALL, **{name: 9.0})) == SAID.text  # type: ignore[arg-type]
    assert not desk.calls


@pytest.mark.parametrize("name", ["sample", "round", "step"])
@pytest.mark.parametrize("value", [7, None])
async def test_what_stands_elsewhere_in_the_question_is_another_call(name, value) -> None:
    assert await Desk().ask(replace(CALL, **{name: value})) == "answer 1"


async def test_what_is_asked_of_something_else_or_otherwise_is_another_call() -> None:
    assert await Desk(identity="gpt at y").ask() == "answer 1"
    assert await Desk().ask(messages=(Message("user", "hullo"),)) == "answer 1"
    assert await Desk().ask(sampling=Sampling(temperature=0.5)) == "answer 1"


async def test_equal_calls_at_the_same_time_are_both_made() -> None:
    desk = Desk(said=None)
    assert await asyncio.gather(desk.ask(), desk.ask()) == ["answer 1", "answer 2"]


@pytest.mark.parametrize(
    ("finish", "outcome"), [("stop", "answered"), ("tool_calls", "answered"), ("length", "cut")]
)
async def test_a_replayed_call_is_told_of_with_what_it_cost_and_its_text_comes_in_one_piece(
    finish, outcome
) -> None:
    desk = Desk(replace(SAID, finish_reason=finish))
    events: list[Event] = []
    heard: list[str] = []
    call = replace(CALL, on_event=events.append, origin=asyncio.get_running_loop().time())
    await desk.ask(call, on_text=heard.append)
    (event,) = events
    assert isinstance(event, CallEnded)
    assert (event.episode, event.round, event.step) == ("an episode", 1, 2)
    made = event.call
    expected = Call("w", outcome, HELLO, Sampling(), desk.said, usage=SAID.usage, price=PRICE)
    started, identity = made.started, "gpt at x"
    assert made == replace(expected, started=started, identity=identity, replayed=True)
    assert 0 <= started < 60
    assert heard == ["from before"]


PLAN = """model_id = [0, 1, 0]
subtasks = ["Think.", "Think, too.", "Say it."]
access_list = [[], [], "all"]"""


class House:
    """A Conductor over a worker and another Conductor, all of which ask one counted server."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def conductor(self, journal: Journal) -> Conductor:
        """Return one that replays, as a process that starts anew would make it."""
        inner_pool = WorkerPool([self.server("deep"), self.server("deeper")])
        inner = Conductor(self.server("inner", PLAN), pool=inner_pool)
        pool = WorkerPool([self.server("plain"), Worker(inner, name="nested")])
        return Conductor(self.server("planner", PLAN), pool=pool).replaying(journal)

    def server(self, name: str, says: str = "") -> Worker:
        async def answer(messages: list[Message]) -> str:
            self.asked.append(name)
            return says or f"{name} said {len(self.asked)}"

        return Worker(answer, name=name)


async def test_a_question_that_was_answered_costs_nothing_when_it_is_asked_again(
    tmp_path: Path,
) -> None:
    house = House()
    with Journal(tmp_path / "journal.sqlite") as journal:
        first = await house.conductor(journal).ask("why?", on_event=journal)
    assert len(house.asked) == 3 + 4
    with Journal(tmp_path / "journal.sqlite") as journal:
        again = await house.conductor(journal).ask("why?", on_event=journal)
        assert len(house.asked) == 3 + 4
        assert again.answer == first.answer
        assert replace(again.usage, seconds=0) == replace(first.usage, seconds=0)
        (only,) = again.rounds
        for made in (only, *only.transcript.results):
            assert all(call.replayed for call in made.calls)
        sample = CallContext(sample=1)
        other = await house.conductor(journal).ask("why?", on_event=journal, context=sample)
    assert len(house.asked) == 2 * (3 + 4)
    assert other.answer != first.answer


async def test_of_a_question_that_was_broken_off_only_what_had_not_ended_is_asked_again(
    tmp_path: Path,
) -> None:
    house, events = House(), 0
    with Journal(tmp_path / "journal.sqlite") as journal:

        def stop_after_two_calls(event: Event) -> None:
            nonlocal events
            journal(event)
            events += isinstance(event, CallEnded)
            if events == 2:
                raise OSError("killed")

        with pytest.raises(OSError, match="killed"):
            await house.conductor(journal).ask("why?", on_event=stop_after_two_calls)
    before = Counter(house.asked)
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert (await house.conductor(journal).ask("why?", on_event=journal)).answer
    again = Counter(house.asked) - before
    assert (before["planner"], again["planner"]) == (1, 0)
    assert before["plain"] + again["plain"] == 2
