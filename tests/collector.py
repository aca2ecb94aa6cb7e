"""A collector of traces on loopback: it takes OTLP over HTTP, as the real ones do, and keeps the spans."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from patience import PATIENCE_SECONDS


class Received(NamedTuple):
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began_at: float  # ms
    ended_at: float
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    failed: bool
    kind: int


class Collector:
    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.resources: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []  # and headers, as they came
        self._changed = threading.Condition()
        self.url = ""

    def take(self, headers: str, body: bytes) -> None:
        message = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.bodies += [headers.encode(), body]
            for of_resource in message.resource_spans:
                self.resources.append(_attributes(of_resource.resource.attributes))
                self.spans += [_received(span) for of_scope in of_resource.scope_spans for span in of_scope.spans]
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[list[Received]], bool]) -> list[Received]:
        """Returns the spans once they fulfil a condition."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.spans), PATIENCE_SECONDS), self.spans
            return list(self.spans)

    def of(self, execution_id: str, count: int) -> list[Received]:
        """Returns the spans of an execution's trace, in order of time, once there are so many."""
        trace_id = execution_id.replace("-", "")
        self.wait_for(lambda spans: sum(span.trace_id == trace_id for span in spans) >= count)
        return sorted((span for span in self.spans if span.trace_id == trace_id), key=lambda it: it.ended_at)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _received(span: Any) -> Received:
    return Received(
        span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
        span.start_time_unix_nano / 1e6, span.end_time_unix_nano / 1e6, _attributes(span.attributes),
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links], span.status.code == 2, span.kind,
    )  # fmt: skip


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            collector.take(str(self.headers), body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield collector
        finally:
            server.shutdown()
