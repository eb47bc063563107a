"""Traces of OpenTelemetry (extra ``otel``): a sink of events that sends spans over OTLP and HTTP.

OpenTelemetry's own environment variables say where spans go, and set all else. A thread of its SDK
sends them in batches. Its queue is bounded and drops spans when it is full, so a collector that
hangs or is away delays no answer.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from openconductor.config import needing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

    from openconductor.traces.tracer import Traces

CLOSE_S = 3.0
"""The most seconds that the end of a process waits for the last spans to be sent."""


@dataclass(frozen=True, slots=True)
class TracesTable:
    """The table ``[traces]`` of a config: spans are sent if it is there.

    Attributes:
        content: True: spans hold the texts, too.
        cost_as: a second name for the cost of a call (``gen_ai.usage.cost`` for Langfuse). "":
            none.
    """

    content: bool = False
    cost_as: str = ""


@contextmanager
def open_traces(
    table: TracesTable | None, *, processor: SpanProcessor | None = None
) -> Generator[Traces | None]:
    """Open a sink that sends spans until the block ends.

    Args:
        table: says what spans hold. None: there is no sink.
        processor: takes the spans in place of the SDK's batches; its owner shuts it down.

    Raises:
        ConfigError: the extra is not installed, or the environment asks for what is unknown.
    """
    if table is None:
        yield None
        return
    with needing("traces", "otel"):
        from openconductor.traces.tracer import make_processor, make_traces
    taken = processor or make_processor()
    traces = make_traces(taken, content=table.content, cost_as=table.cost_as)
    try:
        yield traces
    finally:
        if processor is None:
            # With a collector that hangs, the SDK's own end takes half a minute.
            end = Thread(target=taken.shutdown, name="openconductor-traces", daemon=True)
            end.start()
            end.join(CLOSE_S)
