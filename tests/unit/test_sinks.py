"""How events reach several sinks at once."""

from __future__ import annotations

from openconductor.calls.dispatcher import FanOut
from openconductor.conductor import Conductor
from openconductor.events import Answered, CallEnded, Event, StepText
from openconductor.pool import Worker, WorkerPool
from openconductor.testing import Scripted, pool_of
from openconductor.types import Step, Workflow

PLAN = Workflow((Step(0, "Say yes."),))


class Sink:
    """Keeps what it gets."""

    def __init__(self, *, text: bool = True) -> None:
        self.wants_text = text
        self.events: list[Event] = []
        self.durable: list[int] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    async def wait_durable(self) -> None:
        self.durable.append(len(self.events))


def nested_conductor() -> Conductor:
    inner = Conductor(Scripted(PLAN), pool=pool_of("yes"))
    return Conductor(Scripted(PLAN), pool=WorkerPool([Worker(inner, name="inner")]))


def test_each_sink_gets_what_it_wants_of_this_episode_in_order_and_is_waited_for() -> None:
    quiet, view, plain = Sink(text=False), Sink(), []
    episode = nested_conductor().ask_sync("Yes?", on_event=FanOut(quiet, view, plain.append))
    assert view.events == plain
    assert any(isinstance(event, StepText) for event in view.events)
    assert quiet.events == [event for event in plain if not isinstance(event, StepText)]
    assert {event.episode for event in plain} == {episode.id}  # and none of the one below
    assert sum(isinstance(event, CallEnded) for event in plain) == 2
    for sink in (quiet, view):
        assert isinstance(sink.events[-1], Answered) and sink.durable == [len(sink.events)]
