"""Serves /metrics for Prometheus: on its own port, and behind the API for the operator.

The metrics are figures of the whole node over all tenants, and name the tenants with the most waiting executions. So
the API shows them to the operator only. On its own port every client that reaches it gets them, or, with METRICS_TOKEN,
every client that has the token.
"""

from __future__ import annotations

from hmac import compare_digest

from litestar import Response, get
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from duetime.api.auth.access import check_operator
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.domain.identity import Caller, Right

PATH = "/metrics"
Headers = list[tuple[bytes, bytes]]


@get(PATH, right=Right.ADMIN, include_in_schema=False)
async def get_metrics(request: AnyRequest, context: ApiContext, caller: Caller) -> Response[bytes]:
    check_operator(context, caller)
    kind, body = context.metrics.render(await context.readings(), request.headers.get("accept", ""))
    return Response(body, media_type=kind)


def create_metrics_app(context: ApiContext, token: str) -> ASGIApp:
    """`token`: the bearer token that clients need; empty: none."""
    wanted = f"Bearer {token}".encode() if token else b""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            return
        given = dict(scope["headers"])
        status, headers, body = 200, Headers(), b""
        if wanted and not compare_digest(given.get(b"authorization", b""), wanted):
            headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
            status, body = 401, b"this needs 'Authorization: Bearer <METRICS_TOKEN>'\n"
        elif scope["path"] != PATH:
            headers = [(b"content-type", b"text/plain")]
            status, body = 404, b"the metrics are at /metrics\n"
        else:
            accept = given.get(b"accept", b"").decode("latin-1")
            kind, body = context.metrics.render(await context.readings(), accept)
            headers = [(b"content-type", kind.encode())]
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return answer
