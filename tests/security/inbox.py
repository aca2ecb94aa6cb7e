"""A target on loopback that keeps what it receives in memory: paths, headers and bodies."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


class Received(NamedTuple):
    path: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def verifies(self, secret: str) -> bool:
        """Returns whether a receiver with this secret accepts the request as genuine."""
        try:
            Webhook(secret).verify(self.body, dict(self.headers))
        except WebhookVerificationError:
            return False
        return True

    @property
    def signatures(self) -> list[str]:
        return self.headers["webhook-signature"].split(" ")


class Inbox:
    def __init__(self, port: int) -> None:
        self.port = port
        self.received: list[Received] = []

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[Received]:
        return [one for one in self.received if one.path == path]


@contextmanager
def inbox() -> Iterator[Inbox]:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        box = Inbox(server.server_address[1])

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                box.received.append(Received(self.path, headers, body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *_: object) -> None:
                return

        server.RequestHandlerClass = Handler
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield box
        finally:
            server.shutdown()
