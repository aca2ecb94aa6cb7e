"""Sends calls of an app to a Duetime: to a server, or to an application in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from litestar.types import ASGIApp, Message, Scope

from duetime.client.calls import Answer, Call

T = TypeVar("T")


class Asking(Protocol):
    """The methods raise the errors of the client."""

    def ask(self, call: Call[T]) -> T:
        """Sends a call from a thread. Blocks until the response."""

    async def ask_async(self, call: Call[T]) -> T:
        """Sends a call from any event loop."""

    def close(self) -> None: ...


async def ask_in_process(app: ASGIApp, call: Call[T]) -> T:
    """Sends a call to an application in this process, without a port."""
    answered = await exchange(app, call.method, call.path, call.headers, call.body)
    return call.read(Answer(answered.status, answered.body, lambda name: answered.headers.get(name.lower())))


class Exchanged(NamedTuple):
    """The response of an application. The names of headers are in lower case."""

    status: int
    body: bytes
    headers: dict[str, str]


async def exchange(app: ASGIApp, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Exchanged:
    path, _, query = url.partition("?")
    sent = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope: Any = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"localhost"), *sent], "client": None, "server": None, "state": {},
    }  # fmt: skip
    return await _exchange(app, scope, body or b"")


async def _exchange(app: ASGIApp, scope: Scope, body: bytes) -> Exchanged:
    status, answered, found = 0, bytearray(), dict[str, str]()

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            found.update({name.decode().lower(): value.decode() for name, value in message.get("headers", ())})
        elif message["type"] == "http.response.body":
            answered.extend(message.get("body", b""))

    await app(scope, receive, send)
    return Exchanged(status, bytes(answered), found)
