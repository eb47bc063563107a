"""A collector of OTLP over HTTP on loopback, in a thread. It keeps the spans that it is sent.

One that hangs reads a request and answers when the ``with`` ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """What came in."""

    url: str = ""
    hangs: bool = False
    spans: list[Any] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    server: ThreadingHTTPServer | None = None

    def kill(self) -> None:
        """Close its port; it can be closed twice."""
        self.over.set()
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@contextmanager
def collector(*, hangs: bool = False) -> Iterator[Collector]:
    made = Collector(hangs=hangs)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.asked.set()
            if made.hangs:
                made.over.wait(60)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                made.spans += [span for scope in resource.scope_spans for span in scope.spans]
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    made.server = server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        made.kill()


def attributes_of(span: Any) -> dict[str, Any]:
    """Return the attributes of a span as plain values."""
    plain: dict[str, Any] = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        if kind == "array_value":
            value = [getattr(item, item.WhichOneof("value")) for item in value.values]
        plain[pair.key] = value
    return plain
