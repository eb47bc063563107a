"""The nouns: frozen, slotted dataclasses for every value that travels between the floors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, cast

if TYPE_CHECKING:
    from openconductor.errors import OpenConductorError

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
Access = tuple[int, ...] | Literal["all"]
OnNoPlan = Literal["error", "default_worker"]
"""What happens where there is no valid plan: the episode ends in an error, or the planner gets one
more try, and then the pool's default worker answers alone."""

Undecided = Literal["wrong", "masked"]
"""The fate of an answer that its grader cannot decide."""
Rule = Literal["default_worker", "direct"]
"""Chooses a workflow in place of a plan: ``default_worker`` where no plan could be had, ``direct``
for a question that is too short to be planned. Both ask the pool's default worker alone."""

_ids = Random()  # draws nothing from the generators that results depend on
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.seed)
_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; ``parts`` holds images and other media in the wire's own form.

    A part without a ``type`` holds fields of the turn itself: an assistant's ``{"tool_calls":
    [...]}``, a tool's ``{"tool_call_id": "..."}``.
    """

    role: Role
    content: str
    parts: tuple[Mapping[str, object], ...] = ()

    @property
    def media(self) -> tuple[Mapping[str, object], ...]:
        """The parts that are images and other media."""
        return tuple(part for part in self.parts if "type" in part)

    @property
    def tool_calls(self) -> tuple[Mapping[str, Any], ...]:
        """The calls of tools in its parts."""
        parts = cast("tuple[Mapping[str, Any], ...]", self.parts)
        return tuple(call for part in parts for call in part.get("tool_calls", ()))


Question = str | Sequence[Message]
"""A user's question: a text, or a chat whose last turn is the question."""


def text_of(question: Question) -> str:
    """Return a question as one text: of a chat the last turn."""
    return question if isinstance(question, str) else question[-1].content


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling options. None is left to the provider; ``body`` is sent as it is."""

    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    body: Mapping[str, object] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class TrainedWorker:
    """A worker that a Conductor was trained with; ``model`` is "" where it is unknown."""

    ordinal: int
    name: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars a million tokens; ``cached`` is for cached input tokens (None: as ``input``)."""

    input: Decimal
    output: Decimal
    cached: Decimal | None = None

    def dollars(self, usage: Usage) -> Decimal:
        """Return the exact price of one call's tokens, in US dollars."""
        cached_price = self.input if self.cached is None else self.cached
        fresh_tokens = usage.input_tokens - usage.cached_tokens
        total = (
            fresh_tokens * self.input
            + usage.cached_tokens * cached_price
            + usage.output_tokens * self.output
        )
        return total / 1_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, dollars and seconds that were used; values add up with ``+``.

    Attributes:
        input_tokens: tokens read, the cached among them.
        cached_tokens: the part of the input that the provider had cached.
        output_tokens: tokens written, the reasoning among them.
        reasoning_tokens: the part of the output that was reasoning.
        dollars: the price of the priced calls, in US dollars.
        unpriced_calls: calls whose price is unknown (never counted as free).
        seconds: work, summed over calls (an Episode's ``seconds`` is wall time).
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    dollars: Decimal = Decimal(0)
    unpriced_calls: int = 0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.dollars + other.dollars,
            self.unpriced_calls + other.unpriced_calls,
            self.seconds + other.seconds,
        )

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Completion:
    """A provider's answer: its text, reasoning and calls of tools, and what it cost."""

    text: str
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, object], ...] = ()
    usage: Usage = Usage()
    finish_reason: FinishReason = "stop"
    body_sent: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt at a call of a worker: the request, its outcome and its cost.

    Attributes:
        worker: the worker's name.
        outcome: ``answered``; ``cut`` (at the token limit); ``refused`` (by a filter);
            ``cancelled``; else the ``outcome`` of the error's class.
        messages, sampling: the request.
        completion, error: the result; None both if it was cancelled.
        attempt: 0-based attempt at this call.
        usage: what it used. Without a price or reported tokens it is an unpriced call.
        price: the price that it was billed at; None: unknown, or not needed.
        started: seconds since the episode began.
        identity: the worker's identity (``"openai_compatible gpt-5 https://..."``).
        nested: True if the worker is an orchestrator.
        replayed: True if the completion came out of a journal, and was paid for before.
    """

    worker: str
    outcome: str
    messages: tuple[Message, ...]
    sampling: Sampling
    completion: Completion | None = None
    error: OpenConductorError | None = None
    attempt: int = 0
    usage: Usage = Usage()
    price: Price | None = None
    started: float = 0.0
    identity: str = ""
    nested: bool = False
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a workflow: a worker's ordinal, its subtask, and the earlier steps that it sees.

    ``access`` takes any sequence of 0-based step indices, ``"all"`` or ``["all"]``, and holds a
    tuple or ``"all"``.

    >>> Step(2, "Check the sum.", [0, 1, 0]).access
    (0, 1)
    """

    worker: int
    subtask: str
    access: Sequence[int] | Sequence[str] | Access = ()

    def __post_init__(self) -> None:
        if isinstance(self.access, str) or not isinstance(cast("object", self.access), Iterable):
            return  # a wrong value is kept as it is, for validation to name it
        items = cast("tuple[object, ...]", tuple(self.access))
        access: object = items
        if items == ("all",):
            access = "all"
        elif all(type(item) is int for item in items):
            # Repeats and order do not matter, because a step sees the others in step order.
            access = tuple(sorted(set(cast("tuple[int, ...]", items))))
        object.__setattr__(self, "access", access)

    def visible(self, index: int) -> tuple[int, ...]:
        """Return the earlier steps that this step sees at place ``index``, in step order."""
        if self.access == "all":
            return tuple(range(index))
        return cast("tuple[int, ...]", self.access)


@dataclass(frozen=True, slots=True)
class Workflow:
    """Steps in order. No step at all is *accept*: the previous round's answer stands."""

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def visible(self, index: int) -> tuple[int, ...]:
        """Return the earlier steps that step ``index`` sees, in step order."""
        return self.steps[index].visible(index)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step: a completion or an error, and its calls.

    Attributes:
        step: the step as planned.
        completion: the worker's answer; None: the step failed or was not reached.
        error: the failure.
        messages: the turns that the worker was sent.
        worker: the ordinal that answered; differs from ``step.worker`` only after a fallback.
        usage: the whole cost of the step, failed attempts included: the sum over ``calls``.
        started, ended: seconds since the episode began; None: the step was not reached.
        calls: every attempt, in the order in which they ended.
    """

    step: Step
    completion: Completion | None = None
    error: OpenConductorError | None = None
    messages: tuple[Message, ...] = ()
    worker: int | None = None
    usage: Usage = Usage()
    started: float | None = None
    ended: float | None = None
    calls: tuple[Call, ...] = ()

    @property
    def asked(self) -> int:
        """The ordinal of the worker that was asked last; by default the planned one."""
        return self.step.worker if self.worker is None else self.worker


@dataclass(frozen=True, slots=True)
class Transcript:
    """A workflow as it was executed, one result a step."""

    workflow: Workflow
    results: tuple[StepResult, ...]

    @property
    def answer(self) -> str | None:
        """The last step's response; None: it has none."""
        if not self.results or self.results[-1].completion is None:
            return None
        return self.results[-1].completion.text

    @property
    def error(self) -> OpenConductorError | None:
        """The first failure, in step order; None: every step answered."""
        return next((result.error for result in self.results if result.error is not None), None)

    @property
    def usage(self) -> Usage:
        """The cost of all steps."""
        return sum((result.usage for result in self.results), Usage())


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of the Conductor: its completion, the workflow in it, and the transcript.

    ``completion`` is None only if the Conductor itself could not be reached (then ``error`` says
    why). An *accept* is a round whose workflow has no steps and whose transcript is None. ``calls``
    are the attempts at the Conductor's own completion. ``rule`` chose the workflow; None: it was
    planned, or given.
    """

    completion: Completion | None
    workflow: Workflow | None = None
    transcript: Transcript | None = None
    error: OpenConductorError | None = None
    calls: tuple[Call, ...] = ()
    rule: Rule | None = None

    @property
    def planning(self) -> Usage:
        """The cost of the Conductor's own completion, failed attempts included."""
        if self.calls or self.completion is None:
            return sum((call.usage for call in self.calls), Usage())
        return self.completion.usage

    @property
    def usage(self) -> Usage:
        """The cost of the round: planning and all steps."""
        if self.transcript is None:
            return self.planning
        return self.planning + self.transcript.usage

    @property
    def answer(self) -> str | None:
        """The round's own answer; None: it failed, or accepted the one before."""
        if self.transcript is None or self.error is not None:
            return None
        return self.transcript.answer

    @property
    def calls_tools(self) -> bool:
        """True if its answer is a call of the user's tools."""
        if self.error is not None or self.transcript is None or not self.transcript.results:
            return False
        last = self.transcript.results[-1].completion
        return last is not None and bool(last.tool_calls)

    @property
    def accepted(self) -> bool:
        """True if the Conductor let the previous round's answer stand."""
        return self.workflow is not None and not self.workflow.steps


@dataclass(frozen=True, slots=True)
class Episode:
    """One question from asking to answer.

    Attributes:
        question: the question, as it was asked.
        rounds: the Conductor's rounds in order; an orchestrator without a Conductor has one round
            per workflow.
        answer: the user's answer; None: ``error`` ended the episode.
        error: the WorkflowError or WorkerError that ended the episode.
        usage: everything: the Conductor, each step, each failed attempt.
        seconds: wall time.
        id: names the episode in events and in the journal.
    """

    question: Question
    rounds: tuple[Round, ...]
    answer: str | None
    error: OpenConductorError | None
    usage: Usage
    seconds: float
    id: str = ""

    def __repr__(self) -> str:
        ending = f"answer={_shorten(self.answer)}"
        if self.answer is None:
            ending = f"error={_shorten(self.error)}"
        rounds = "1 round" if len(self.rounds) == 1 else f"{len(self.rounds)} rounds"
        cost = f"{self.usage.tokens} tokens, {self.seconds:.1f} s"
        question = _shorten(text_of(self.question))
        return f"Episode({question}, {rounds}, {ending}, {cost}, id={self.id!r})"

    def show(self) -> None:
        """Print the question, each round's steps with their answers, the answer and the cost."""
        lines = [f"Question: {text_of(self.question)}"]
        for number, played in enumerate(self.rounds):
            lines += [f"Round {number}", *_describe_round(played)]
        if self.answer is None:
            lines.append(f"No answer: {self.error}")
        else:
            lines.append(f"Answer: {self.answer}")
        usage = self.usage
        cost = f"Cost: {usage.tokens} tokens, ${usage.dollars:f}, {self.seconds:.1f} s"
        if usage.unpriced_calls:
            cost += f"; calls of unknown price: {usage.unpriced_calls}"
        lines.append(cost)
        print("\n".join(lines))

    @property
    def rule(self) -> Rule | None:
        """The rule that chose the workflow of the answer; None: the Conductor's own plan."""
        return next((played.rule for played in self.rounds if played.rule is not None), None)

    @property
    def no_plan(self) -> OpenConductorError | None:
        """Why the first attempt at a plan gave none; None: it gave one, or none was needed."""
        for played in self.rounds:
            if played.workflow is None:
                return played.error
            if played.answer is not None:
                break
        return None


def _shorten(value: object) -> str:
    """Return the beginning of a value as Python writes it."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."


def _describe_round(played: Round) -> list[str]:
    """Return a line for each step of a round and one for its answer, or for what failed."""
    lines: list[str] = []
    results = () if played.transcript is None else played.transcript.results
    for number, result in enumerate(results):
        worker = result.calls[-1].worker if result.calls else f"worker {result.asked}"
        seen = ", ".join(str(index) for index in result.step.visible(number))
        sight = f" (sees {seen})" if seen else ""
        lines.append(f"  {number}. {worker}{sight}: {result.step.subtask}")
        if result.completion is not None:
            lines.append(f"     -> {result.completion.text}")
        elif result.error is not None:
            lines.append(f"     failed: {result.error}")
    if played.accepted:
        lines.append("  The answer stands.")
    if played.error is not None and not any(result.error for result in results):
        lines.append(f"  No workflow: {played.error}")
    return lines


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a question may cost; None: no limit. ``calls`` counts every attempt."""

    calls: int | None = None
    tokens: int | None = None
    dollars: Decimal | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span of a distributed trace.

    Attributes:
        trace: the id of the trace, 128 bits.
        span: the id of the span, 64 bits.
        sampled: False: nothing of this trace is recorded.
    """

    trace: int
    span: int
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The header of W3C Trace Context that makes this span the parent of a request.

        >>> TraceSpan(1, 2).traceparent
        '00-00000000000000000000000000000001-0000000000000002-01'
        """
        return f"00-{self.trace:032x}-{self.span:016x}-{int(self.sampled):02x}"

    def child(self) -> TraceSpan:
        """Return a new span of the same trace."""
        return TraceSpan(self.trace, new_trace_id(64), self.sampled)


def new_trace_id(bits: int) -> int:
    """Return a random id of a trace (128 bits) or of a span (64)."""
    return _ids.getrandbits(bits)


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with its reference answer.

    Attributes:
        id: names it within its task.
        question: the question.
        reference: the right answer, in the shape that the task's grader expects.
        task: the task's name.
        kind: the difficulty, subject or level that tables break results down by; "": none.
    """

    id: str
    question: str
    reference: object
    task: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Grade:
    """A grader's verdict: right, wrong, or undecided (None); the answer that it read; and why.

    ``judged_by``: of programs, ``"outside"`` where all tests were compared outside of the answer's
    process, else ``"inside"``, which a program that tries can get past; "" for other answers.
    """

    correct: bool | None
    extracted: str | None = None
    note: str = ""
    judged_by: str = ""


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────
def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return True if a value of JSON's types is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return True if a value of JSON's types is an array."""
    return isinstance(value, list)
