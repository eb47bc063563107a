"""How events reach several sinks at once."""

from __future__ import annotations

import pytest

from openconductor.conductor import Conductor
from openconductor.emit import FanOut
from openconductor.events import Answered, Asked, CallEnded, Event, StepText
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import render_workflow
from openconductor.types import Message, Step, Workflow

PLAN = render_workflow(Workflow((Step(0, "Say yes."),)))


class Sink:
    """Keeps what it gets."""

    def __init__(self, *, text: bool = True, nested: bool = False) -> None:
        self.wants_text, self.wants_nested = text, nested
        self.events: list[Event] = []
        self.durable: list[int] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    async def wait_durable(self) -> None:
        self.durable.append(len(self.events))


def nested_conductor() -> Conductor:
    inner = Conductor(lambda messages: PLAN, pool=WorkerPool([Worker(lambda messages: "yes", name="hand")]))
    return Conductor(lambda messages: PLAN, pool=WorkerPool([Worker(inner, name="inner")]))


def test_each_sink_gets_what_it_wants_and_all_in_order() -> None:
    everything, view, plain = Sink(text=False, nested=True), Sink(), []
    conductor = nested_conductor()
    episode = conductor.ask_sync("Yes?", on_event=FanOut(everything, view, plain.append))
    assert {event.episode for event in view.events} == {episode.id}
    assert view.events == plain
    assert any(isinstance(event, StepText) for event in view.events)
    assert not any(isinstance(event, StepText) for event in everything.events)
    mine = [event for event in everything.events if event.episode == episode.id]
    assert mine == [event for event in view.events if not isinstance(event, StepText)]
    assert sum(isinstance(event, CallEnded) for event in everything.events) == 2


def test_an_episode_asked_for_inside_a_worker_is_nobodys_nested_one_to_its_own_sinks() -> None:
    heard = Sink()
    inner = Conductor(lambda messages: PLAN, pool=WorkerPool([Worker(lambda messages: "yes", name="hand")]))

    async def asks(messages: list[Message]) -> str:
        episode = await inner.ask("Yes?", on_event=FanOut(heard))
        return episode.answer or ""

    Conductor(lambda messages: PLAN, pool=WorkerPool([Worker(asks, name="asks")])).ask_sync("Yes?")
    assert isinstance(heard.events[0], Asked) and isinstance(heard.events[-1], Answered)


def test_every_sink_is_waited_for_before_the_answer() -> None:
    first, second = Sink(), Sink(nested=True)
    nested_conductor().ask_sync("Yes?", on_event=FanOut(first, print_nothing, second))
    assert isinstance(first.events[-1], Answered) and isinstance(second.events[-1], Answered)
    assert first.durable[-1] == len(first.events) and second.durable[-1] == len(second.events)


def print_nothing(event: Event) -> None:
    """A sink that is just a function."""


def test_nobody_is_streamed_for_where_no_sink_wants_text() -> None:
    silent = FanOut(Sink(text=False), Sink(text=False))
    assert (silent.wants_text, silent.wants_nested) == (False, False)
    assert FanOut(silent, print_nothing).wants_text


def test_what_a_sink_raises_ends_the_episode() -> None:
    def breaks(event: Event) -> None:
        raise OSError("no room")

    heard = Sink()
    with pytest.raises(OSError, match="no room"):
        nested_conductor().ask_sync("Yes?", on_event=FanOut(heard, breaks))
    assert len(heard.events) == 1
