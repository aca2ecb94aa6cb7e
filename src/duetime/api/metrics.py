"""Serves /metrics for Prometheus on its own port: a scraper needs no token and no access to the API."""

from __future__ import annotations

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send
from prometheus_client import CONTENT_TYPE_LATEST

from duetime.api.context import ApiContext
from duetime.domain.errors import DuetimeError


def create_metrics_app(context: ApiContext) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        status, kind, body = 404, b"text/plain", b"the metrics are at /metrics\n"
        if scope["type"] == ScopeType.HTTP and scope["path"] == "/metrics":
            try:
                body = context.metrics.render(
                    await context.store.get_load(), context.limits.capacity, context.engine.cluster().clock_offset
                )
                status, kind = 200, CONTENT_TYPE_LATEST.encode()
            except DuetimeError as error:
                status, body = 503, f"{error.message}\n".encode()
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return answer
