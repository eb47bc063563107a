"""The sockets: the base class of providers, and protocols of tasks, graders and orchestrators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from openconductor.errors import ConfigError
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
    TraceSpan,
    TrainedWorker,
)

if TYPE_CHECKING:
    from openconductor.calls.budget import Payer
    from openconductor.prompt import PromptOptions

OnText = Callable[[str], None]
OnEvent = Callable[[Event], None]
"""Gets each event in order. A sink may be more than a function, with these attributes:

- ``wants_text`` (bool, default True): whether steps are streamed for it, and StepText sent to it.
- ``wait_durable`` (async, no arguments): awaited after Answered, before ``ask`` returns.
- ``tracer`` (a Tracer, or None): places each episode in a distributed trace.
"""


class Tracer(Protocol):
    """Places episodes in distributed traces."""

    def begin(self, episode: str) -> TraceSpan:
        """Return the span of an episode, before its first event."""
        ...

    def end(self, episode: str) -> None:
        """Take note that an episode has ended: answered, failed or cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class CallContext:
    """Names a call of a worker, and carries everything that the call depends on.

    An episode makes one for each of its calls. An orchestrator that is asked with the context of a
    call works for that call: its ``sample``, ``budget``, ``options`` and ``unreachable_s`` hold for
    every call of the new episode, and ``depth`` counts on from there.

    Attributes:
        episode: the episode's id.
        round: 0-based round of the Conductor.
        step: 0-based step of the workflow; None: the Conductor's own call.
        attempt: 0-based attempt at this call.
        sample: 0-based index among repeats of the same question (a rollout of a group, a repeat of
            an evaluation).
        depth: the number of orchestrators above this call.
        deadline: the event loop's time by which the call must have ended; None: no limit.
        origin: the event loop's time at which the episode began.
        on_event: gets each attempt, as CallEnded.
        subtask: the step's own subtask, which is in its messages too; None: the Conductor's own
            call.
        last: True if the response is a user's answer: the last step of a workflow that is not
            nested in another one.
        budget: pays for the call; None: nothing limits it.
        options: what the request itself asks for, laid over the sampling of the workers
            (``calls/options.py``); None: nothing.
        unreachable_s: how long a worker that cannot be reached, or is loading, is retried, in
            seconds since it went down; None: 10 seconds.
        keep_texts: False: a store keeps no texts of the episode.
        trace: the span that the call belongs to; a provider that sends a request names it in the
            header ``traceparent``. None: nothing is traced.
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
    budget: Payer | None = None
    options: Sampling | None = None
    unreachable_s: float | None = None
    keep_texts: bool = True
    trace: TraceSpan | None = None

    def new_span(self) -> TraceSpan | None:
        """Return the span of a new attempt.

        The calls of a nested episode are not reported, so they belong to the span above it.
        """
        if self.trace is None or self.depth > 0:
            return self.trace
        return self.trace.child()


class Provider(ABC):
    """Base class of everything that completes a conversation: a model, a function, a simulation.

    A subclass writes ``complete``. Its other attributes have defaults, which a subclass overrides
    on the class or on the instance, before a Worker is made of it.

    Attributes:
        identity: the model and settings behind a worker's name. A journal replays an answer only
            to the same identity; workers of one name and identity share limits and circuit. "":
            unknown.
        remote: calls go over a network. A worker then retries failed calls and has a circuit.
        prices_itself: ``Completion.usage.dollars`` is the whole bill, 0 included. Such a worker
            takes no price.
        may_be_blank: blank text is an answer. Otherwise it is an EmptyResponse.
        nests: calls run workers of their own, whose calls are counted instead.
        merges: it only merges the answers that it sees; asked alone it has no answer.
        repeatable: the same call gets the same answer, for nothing, so a training without a budget
            keeps no record of its calls.
        phrases: texts that recur in its answers, which a fresh model reads as one token each.
        base_url: address of the server. None: no server, or unknown.
        api_key_env: environment variable that holds the key. None: no key.
        variables: further environment variables that its requests need.
        model: the model's name. "": unknown.
        prompt_options: how a trained Conductor is asked. None: the default prompt.
        max_steps: the most steps of a workflow that a trained Conductor writes. None: unknown.
        sampling: how a trained Conductor samples. None: the default.
        trained_with: the workers that a trained Conductor knows. Empty: it takes any.
        response_headers: the headers of its server's last response, with names in small letters.
    """

    __slots__ = ()

    identity: str = ""
    remote: bool = False
    prices_itself: bool = False
    may_be_blank: bool = False
    nests: bool = False
    merges: bool = False
    repeatable: bool = False
    phrases: tuple[str, ...] = ()
    base_url: str | None = None
    api_key_env: str | None = None
    variables: tuple[str, ...] = ()
    prompt_options: PromptOptions | None = None
    max_steps: int | None = None
    sampling: Sampling | None = None
    model: str = ""
    trained_with: tuple[TrainedWorker, ...] = ()
    response_headers: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Complete the conversation.

        Args:
            messages: the turns; the last one is the user's.
            sampling: temperature, token limit and seed; ``sampling.body`` is sent as it is.
            call: the call's place in its question, and its deadline.
            on_text: gets the text piece by piece. None: no streaming.

        Raises:
            WorkerError: the call failed. Its class decides whether it is retried. Any other
                exception becomes a WorkerError that is not retried.
        """

    async def reach(self) -> None:  # noqa: B027 - a provider without a server is always there
        """Connect to the server, which costs nothing.

        Raises:
            WorkerError: it cannot be reached.
        """

    def weights(self) -> str:
        """Return a digest of the model's weights, or the hub's name of them; "": unknown."""
        return ""

    async def aclose(self) -> None:  # noqa: B027 - a provider without connections has nothing to close
        """Close the running event loop's connections; a later call opens new ones."""


class SupportsComplete(Protocol):
    """An object with ``complete`` as Provider has it."""

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Complete the conversation, as ``Provider.complete``."""
        ...


class Grader(Protocol):
    """Decides whether an answer is right."""

    async def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade one answer; undecided is ``Grade(None)``.

        Raises:
            GradingError: the grader itself failed.
        """
        ...


def check_grade(value: object) -> Grade:
    """Return what a grader returned.

    Raises:
        ConfigError: it is not a verdict.
    """
    if not isinstance(value, Grade):
        kind = type(value).__name__
        raise ConfigError(f"the grader returned a {kind} ({value!r:.40}), expected a Grade")
    return value


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
    """Answers questions with a pool: the Conductor and every baseline."""

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
            question: a text, or a chat.
            budget: what this question may cost.
            on_event: gets every event in order.
            context: the call that the question works for, which an orchestrator hands on to what
                it asks in turn; None: it is a question of its own.
        """
        ...
