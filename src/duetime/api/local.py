"""While there is no identity, only this machine's own people may ask: not the web pages they happen to look at.

A page in a browser can send requests to 127.0.0.1, and a host name that resolves to it makes it look like its own. So a
request must name a local host, and one that a page sends must come from a page of this same server.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from duetime.api.problems import MEDIA_TYPE, Problem

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class LocalOnly:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            host = origin = b""
            for name, value in scope["headers"]:
                if name == b"host":
                    host = value
                elif name == b"origin":
                    origin = value
            if not _is_local(host) or (origin and urlsplit(origin).netloc != host):
                await _refuse(send)
                return
        await self._app(scope, receive, send)


def _is_local(host: bytes) -> bool:
    name = host.decode("latin-1").lower()
    return (name if name.endswith("]") else name.rsplit(":", 1)[0] if ":" in name else name) in LOCAL_HOSTS


async def _refuse(send: Send) -> None:
    message = "without a JWT secret this server answers local requests only: use http://127.0.0.1 or http://localhost"
    problem = Problem("urn:duetime:problem:forbidden", "Not from here", 403, "FORBIDDEN", message)
    headers = [(b"content-type", MEDIA_TYPE.encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(problem), "more_body": False})
