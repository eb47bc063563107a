"""The sockets: what a provider, a task, a grader and an orchestrator must offer.

In: values of ``types``. Out: structural types only; nothing here runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from openconductor.events import Event
from openconductor.types import (
    Budget,
    Completion,
    Episode,
    Grade,
    Message,
    Problem,
    Question,
    Sampling,
)

OnText = Callable[[str], None]
OnEvent = Callable[[Event], None]
"""Gets each event in order. A sink may be more than a function; where it has these attributes, they count:

- ``wants_text`` (bool, default True): whether steps are streamed for it, and StepText sent to it.
- ``wait_durable`` (async, no arguments): awaited after Answered, before ``ask`` returns.
"""


@dataclass(frozen=True, slots=True)
class CallContext:
    """Which call this is, so that cache, journal, budget and simulated draws need no second door.

    Attributes:
        episode: the episode's id.
        round: 0-based round of the Conductor.
        step: 0-based step of the workflow; None for the Conductor's own call.
        attempt: 0-based attempt at this call.
        sample: 0-based index among repeats of the same question (a rollout of a group, a repeat of
            an evaluation).
        depth: how many orchestrators stand above this call.
        deadline: the event loop's time by which the call must have ended; None is no limit.
        origin: the event loop's time at which the episode began.
        on_event: gets each attempt, as CallEnded.
        subtask: the step's own subtask, which is in its messages too; None for the Conductor's own
            call.
        last: whether the call's response is a user's answer: that of a workflow's last step, not
            nested in another.
    """

    episode: str = ""
    round: int = 0
    step: int | None = None
    attempt: int = 0
    sample: int = 0
    depth: int = 0
    deadline: float | None = None
    origin: float = 0.0
    on_event: OnEvent | None = None
    subtask: str | None = None
    last: bool = False


@runtime_checkable
class Provider(Protocol):
    """Anything that completes a conversation: a model behind HTTP, a function, a simulated worker, a wrapper."""

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Complete the conversation.

        Raises:
            WorkerError: the call failed; the kind says how.
        """
        ...


class Grader(Protocol):
    """Decides whether an answer is right."""

    async def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade one answer; undecided is ``Grade(None)``.

        Raises:
            GradingError: the grader itself failed.
        """
        ...


class Task(Protocol):
    """A benchmark: problems and the grader that judges their answers."""

    @property
    def name(self) -> str:
        """The name in the registry of tasks."""
        ...

    @property
    def grader(self) -> Grader:
        """The judge of this task's answers."""
        ...

    def load(self, split: str) -> Sequence[Problem]:
        """The problems of one split.

        Raises:
            TaskError: the data are absent or changed.
        """
        ...


class Orchestrator(Protocol):
    """Whatever answers a question with a pool: the Conductor and every baseline."""

    async def ask(
        self,
        question: Question,
        *,
        budget: Budget | None = None,
        on_event: OnEvent | None = None,
        context: CallContext | None = None,
    ) -> Episode:
        """Answer the question.

        Args:
            question: a text, or a chat whose last turn is the user's.
            budget: what this question may cost.
            on_event: gets every event in order.
            context: what the question works for. Its ``sample`` tells repeats of a question apart.
        """
        ...
