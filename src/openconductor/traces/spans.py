"""The spans of an episode, made of its events when it has ended.

An episode is a span. Its children are the plans and the steps, whose children are the attempts at
their calls. A step links to the steps that it sees. Tokens and dollars are on the attempts alone,
so that their sum over all spans is the bill.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from openconductor.errors import OpenConductorError, WorkerError, WorkflowError
from openconductor.events import Asked, CallEnded, Event, Planned, StepEnded
from openconductor.privacy import Privacy
from openconductor.traces import names
from openconductor.types import Call, Episode, Message, Question, TraceSpan, Usage, is_object

Attributes = dict[str, str | bool | int | float | Sequence[str] | Sequence[int]]

_CANCELLED = "cancelled"
_FAILED = Status(StatusCode.ERROR)
_NOT_FAILED = Status()
_SUCCESSES = frozenset({"answered", "cut", "refused"})
_Place = tuple[int, int | None]


@dataclass(frozen=True, slots=True)
class SpanRecorder:
    """Hands spans that have ended to OpenTelemetry's SDK.

    Attributes:
        processor: takes in the spans.
        sampler: chooses the traces that are recorded.
        resource: describes the process.
        scope: the name and the version of this package.
        content: True: spans hold texts, too.
        longest: the most characters of a text. None: no limit.
        cost_as: a second name for the cost of a call. "": none.
    """

    processor: SpanProcessor
    sampler: Sampler
    resource: Resource
    scope: InstrumentationScope
    content: bool = False
    longest: int | None = None
    cost_as: str = ""


class EpisodeSpans:
    """Collects the events of an episode under way, and makes its spans.

    Args:
        recorder: records them.
        root: the ids of the episode's own span.
        parent: the span above it. None: it is the root of its trace.
        attributes: of the episode's own span.
    """

    def __init__(
        self,
        recorder: SpanRecorder,
        root: SpanContext,
        parent: SpanContext | None,
        attributes: Attributes,
    ) -> None:
        self._recorder = recorder
        self._root = root
        self._parent = parent
        self._attributes = attributes
        self._origin = time.time_ns()
        self._privacy: Privacy | None = None  # None: no texts
        # By round and step; the plan of a round has no step.
        self._calls: dict[_Place, list[CallEnded]] = {}
        self._plans: dict[_Place, Planned] = {}
        self._steps: dict[_Place, StepEnded] = {}

    def take(self, event: Event) -> None:
        """Take in an event."""
        match event:
            case CallEnded():
                self._calls.setdefault((event.round, event.step), []).append(event)
            case StepEnded():
                self._steps[event.round, event.step] = event
                self._calls.setdefault((event.round, event.step), [])
            case Planned():
                self._plans[event.round, None] = event
            case Asked():
                if self._recorder.content and event.keep_texts:
                    self._privacy = Privacy(None)
                    self._privacy.refresh()
                self._add_turns(self._attributes, names.INPUT_MESSAGES, event.question)
            case _:
                pass

    def record(self, outcome: Episode | None) -> None:
        """Record the spans of the episode; None: it was cancelled."""
        contexts = {place: self._context_of(self._new_span()) for place in self._calls}
        for place, calls in self._calls.items():
            self._record_part(place, calls, contexts)
            for event in calls:
                self._record_attempt(event, contexts[place])
        error = _CANCELLED
        ended = (time.time_ns() - self._origin) / 1e9
        if outcome is not None:
            error = kind_of(outcome.error)
            ended = outcome.seconds
            self._add_answer(self._attributes, outcome.answer or "")
        self._record(self._root, self._parent, (0.0, ended), self._attributes, error=error)

    def _record_part(
        self, place: _Place, calls: list[CallEnded], contexts: dict[_Place, SpanContext]
    ) -> None:
        """Record a plan or a step."""
        number, step = place
        began = [event.call.started for event in calls]
        ended = [event.at for event in calls]
        attributes: Attributes = {names.OPERATION: names.PLAN}
        if number:
            attributes[names.ROUND] = number
        links: list[Link] = []
        error = _CANCELLED
        if calls:
            attributes[names.AGENT_NAME] = calls[-1].call.worker
            error = error_of(calls[-1].call)
        if place in self._plans:
            error = kind_of(self._plans[place].error)
            attributes[names.VALID] = not error
        if step is not None:
            attributes |= {names.OPERATION: names.INVOKE_AGENT, names.STEP: step}
        if step is not None and place in self._steps:
            event = self._steps[place]
            result = event.result
            seen = result.step.visible(step)
            if seen:
                attributes[names.ACCESS] = seen
            links = [Link(contexts[number, earlier]) for earlier in seen]
            began.append(event.at if result.started is None else result.started)
            ended.append(event.at)
            error = kind_of(result.error) or error
        times = min(began), max(ended)
        self._record(contexts[place], self._root, times, attributes, error=error, links=links)

    def _record_attempt(self, event: CallEnded, parent: SpanContext) -> None:
        call = event.call
        context = self._context_of(event.span or self._new_span())
        common = names.name_worker(call.worker, call.identity, nested=call.nested)
        attributes: Attributes = {**common}
        if call.attempt:
            attributes[names.ATTEMPT] = call.attempt
        if call.replayed:  # it was paid for in another trace
            attributes[names.REPLAYED] = True
        else:
            self._add_usage(attributes, call.usage)
        self._add_turns(attributes, names.INPUT_MESSAGES, call.messages)
        if call.completion is not None:
            attributes[names.FINISH_REASONS] = (call.completion.finish_reason,)
            self._add_answer(attributes, call.completion.text, call.completion.tool_calls)
        times = call.started, event.at
        self._record(context, parent, times, attributes, error=error_of(call))

    def _record(
        self,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[float, float],
        attributes: Attributes,
        *,
        error: str,
        links: Sequence[Link] = (),
    ) -> None:
        """Record a span, from and to seconds since the episode began.

        A span of the SDK that is made when it has ended costs a tenth of one that is begun, changed
        and ended.
        """
        if error:
            attributes[names.ERROR_TYPE] = error
        is_remote = names.SERVER_ADDRESS in attributes
        recorder = self._recorder
        began, ended = times
        span = ReadableSpan(
            names.name_span(attributes),
            context,
            parent,
            recorder.resource,
            attributes,
            links=links,
            kind=SpanKind.CLIENT if is_remote else SpanKind.INTERNAL,
            instrumentation_scope=recorder.scope,
            status=_FAILED if error else _NOT_FAILED,
            start_time=self._origin + int(began * 1e9),
            end_time=self._origin + int(ended * 1e9),
        )
        recorder.processor.on_end(span)

    # ── what a span holds ─────────────────────────────────────────────────────────────────────────
    def _new_span(self) -> TraceSpan:
        return TraceSpan(self._root.trace_id, 0).child()

    def _context_of(self, span: TraceSpan) -> SpanContext:
        root = self._root
        return SpanContext(span.trace, span.span, False, root.trace_flags, root.trace_state)

    def _add_usage(self, attributes: Attributes, usage: Usage) -> None:
        tokens = {
            names.INPUT_TOKENS: usage.input_tokens,
            names.CACHED_TOKENS: usage.cached_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.REASONING_TOKENS: usage.reasoning_tokens,
        }
        for name, count in tokens.items():
            if count:
                attributes[name] = count
        if usage.dollars or not usage.unpriced_calls:  # an unknown price is not 0
            attributes[names.COST] = float(usage.dollars)
            if self._recorder.cost_as:
                attributes[self._recorder.cost_as] = float(usage.dollars)

    def _add_answer(self, attributes: Attributes, text: str, calls: Sequence[object] = ()) -> None:
        answer = Message("assistant", text, ({"tool_calls": calls},))
        self._add_turns(attributes, names.OUTPUT_MESSAGES, (answer,))

    def _add_turns(self, attributes: Attributes, name: str, question: Question) -> None:
        """Add a question or an answer in the conventions' form, if texts are sent."""
        if self._privacy is not None:
            turns = (Message("user", question),) if isinstance(question, str) else question
            shown = [{"role": turn.role, "parts": _parts(turn)} for turn in turns]
            written = json.dumps(shown, default=str)
            attributes[name] = self._privacy.text(written)[: self._recorder.longest]


def _parts(turn: Message) -> list[Mapping[str, object]]:
    """Return the parts of a turn; of images and other media only their kind."""
    parts: list[Mapping[str, object]] = [{"type": "text", "content": turn.content}]
    parts += [{"type": media["type"]} for media in turn.media]
    for call in turn.tool_calls:
        function = call.get("function")
        named = function if is_object(function) else {}
        parts.append({"id": call.get("id"), **named, "type": "tool_call"})
    return parts


def error_of(call: Call) -> str:
    """Return the kind of a call's failure. "": its completion came."""
    return "" if call.outcome in _SUCCESSES else call.outcome


def kind_of(error: OpenConductorError | None) -> str:
    """Return the kind of a failure, which quotes nothing. "": there is none."""
    if error is None:
        return ""
    if isinstance(error, WorkerError):
        return error.outcome
    if isinstance(error, WorkflowError):
        return error.reason.value
    return type(error).__name__
