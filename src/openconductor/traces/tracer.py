"""The sink of events that records spans, and places episodes in traces."""

from __future__ import annotations

import os
from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import openconductor
from openconductor.errors import ConfigError
from openconductor.events import Answered, Event
from openconductor.traces import names
from openconductor.traces.spans import Attributes, EpisodeSpans, SpanRecorder
from openconductor.types import TraceSpan, new_trace_id

CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_PROPAGATOR = TraceContextTextMapPropagator()
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Traces:
    """The sink of events that records spans. It waits for nothing.

    Args:
        recorder: records the spans.
        attributes: of the spans of its episodes.
        parent: holds the span above its episodes. None: the span that is current where a question
            is asked.
        live: the episodes under way, by id; all sinks of a recorder share them.
    """

    wants_text = False

    def __init__(
        self,
        recorder: SpanRecorder,
        attributes: Mapping[str, str],
        parent: Context | None,
        live: dict[str, EpisodeSpans],
    ) -> None:
        self._recorder = recorder
        self._attributes = attributes
        self._parent = parent
        self._live = live

    @property
    def tracer(self) -> Traces:
        """The sink itself."""
        return self

    def named(
        self, workflow: str, *, key: str = "", headers: Mapping[str, str] | None = None
    ) -> Traces:
        """Return the sink of a system, or of a request.

        Args:
            workflow: the name of the system.
            key: the name of the client's key. "": none.
            headers: the request's, of which ``traceparent`` names the span above. None: no request.
        """
        attributes = {names.WORKFLOW_NAME: workflow}
        if key:
            attributes[names.KEY] = key
        parent = self._parent
        if headers is not None:
            parent = Context()
            if "traceparent" in headers:
                parent = _PROPAGATOR.extract(headers, parent)
        return Traces(self._recorder, attributes, parent, self._live)

    def begin(self, episode: str) -> TraceSpan:
        """Return the span of an episode, before its first event."""
        above = trace.get_current_span(self._parent).get_span_context()
        trace_id = above.trace_id
        if not above.is_valid:
            trace_id = new_trace_id(128)
        choice = self._recorder.sampler.should_sample(self._parent, trace_id, names.INVOKE_WORKFLOW)
        span = TraceSpan(trace_id, 0, choice.decision.is_sampled()).child()
        if span.sampled:
            root = SpanContext(trace_id, span.span, False, _SAMPLED, choice.trace_state)
            attributes: Attributes = {
                names.OPERATION: names.INVOKE_WORKFLOW,
                names.EPISODE: episode,
                **self._attributes,
            }
            parent = above if above.is_valid else None
            self._live[episode] = EpisodeSpans(self._recorder, root, parent, attributes)
        return span

    def __call__(self, event: Event) -> None:
        """Take in an event; those of a trace that is not recorded are dropped."""
        spans = self._live.get(event.episode)
        if spans is None:
            return
        spans.take(event)
        if isinstance(event, Answered):
            del self._live[event.episode]
            spans.record(event.outcome)

    def end(self, episode: str) -> None:
        """Record an episode that was cancelled, which has no answer."""
        spans = self._live.pop(episode, None)
        if spans is not None:
            spans.record(None)


# ── the SDK, as the environment sets it up ────────────────────────────────────────────────────────
def make_processor() -> SpanProcessor:
    """Return the SDK's processor, whose thread sends spans in batches.

    Raises:
        ConfigError: a variable of the environment has a value that the SDK rejects.
    """
    try:
        return BatchSpanProcessor(OTLPSpanExporter())
    except ValueError as error:
        raise ConfigError(f"traces: a variable OTEL_… of the environment: {error}") from error


def make_traces(processor: SpanProcessor, *, content: bool, cost_as: str) -> Traces:
    """Return a sink whose spans go to a processor.

    Args:
        processor: takes the spans.
        content: True: spans hold texts, too, as they do if the environment says so.
        cost_as: a second name for the cost of a call. "": none.
    """
    version = openconductor.__version__
    described = Resource.create({"service.name": "openconductor", "service.version": version})
    provider = TracerProvider(
        resource=described.merge(OTELResourceDetector().detect()), shutdown_on_exit=False
    )
    is_off = _says("OTEL_SDK_DISABLED", "true") or _says("OTEL_TRACES_EXPORTER", "none")
    recorder = SpanRecorder(
        processor,
        ALWAYS_OFF if is_off else provider.sampler,
        provider.resource,
        InstrumentationScope("openconductor", version),
        content=content or _says(CAPTURE_CONTENT, "true"),
        longest=SpanLimits().max_span_attribute_length,
        cost_as=cost_as,
    )
    return Traces(recorder, {names.WORKFLOW_NAME: "openconductor"}, None, {})


def _says(variable: str, value: str) -> bool:
    """Return True if a variable has this value, in upper or lower case (OpenTelemetry's rule)."""
    return os.environ.get(variable, "").strip().lower() == value
