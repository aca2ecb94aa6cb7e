"""Sends spans to an OpenTelemetry collector. The only module that imports OpenTelemetry, which is an optional extra.

The SDK's exporter encodes, sends and retries, and reads the standard variables of the environment for the rest: headers
(`OTEL_EXPORTER_OTLP_HEADERS`), certificates, compression. Ids come from the spans, not from the SDK's generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from duetime import __version__
from duetime.telemetry.spans import Span

SEND_SECONDS = 5.0

_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT, "server": SpanKind.SERVER}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("duetime", __version__)


def open_collector(
    endpoint: str, service: str, node: str
) -> tuple[Callable[[Sequence[Span]], bool], Callable[[], None]]:
    """Returns functions that send spans and that end a send under way. `endpoint`: without /v1/traces."""
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=SEND_SECONDS)
    resource = Resource.create({"service.name": service, "service.version": __version__, "service.instance.id": node})

    def export(spans: Sequence[Span]) -> bool:
        readable = [_readable(span, resource) for span in spans]
        return exporter.export(readable) is SpanExportResult.SUCCESS

    return export, exporter.shutdown


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    return ReadableSpan(
        span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource=resource,
        attributes=span.attributes,
        links=[Link(_context(*link)) for link in span.links],
        kind=_KINDS[span.kind],
        status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
        start_time=int(span.began_at * 1_000_000),
        end_time=int(span.ended_at * 1_000_000),
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)
