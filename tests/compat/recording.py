"""A proxy on loopback that records each request that a client sends, and the response of the node.

Each kind of client (the SDK, the command line, a worker, plain HTTP) has its own proxy, so a recording names the
sender of a message. Credentials are not recorded.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from compat.frozen import Exchange
from patience import PATIENCE_SECONDS

HEADERS = ("accept", "content-type", "idempotency-key", "if-match", "last-event-id")  # of a request
RESPONSE_HEADERS = ("content-type", "etag", "retry-after")
HOP = ("connection", "transfer-encoding", "host")


class Recording:
    """All exchanges of a scenario, in the order in which they ended. `step` is set by the scenario."""

    def __init__(self, port: int) -> None:
        self.port = port  # of the node
        self.step = ""
        self.exchanges: list[Exchange] = []

    @contextmanager
    def proxy(self, sender: str) -> Iterator[str]:
        """Yields the URL of the node for this kind of client."""
        recording = self

        class Handler(_Handler):
            def setup(self) -> None:
                super().setup()
                self.recording, self.sender = recording, sender

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            server.daemon_threads, server.block_on_close = True, False
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recording: Recording
    sender: str

    def _pass_on(self) -> None:
        step, body = self.recording.step, self._read_body()
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in HOP}
        headers.pop("content-length", None)
        node = http.client.HTTPConnection("127.0.0.1", self.recording.port, timeout=PATIENCE_SECONDS)
        try:
            node.request(self.command, self.path, body or None, headers)
            response = node.getresponse()
            self.close_connection = True
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            answer = self._relay(response)
        finally:
            node.close()
        self.recording.exchanges.append(
            Exchange(
                operation="", sender=self.sender, step=step, method=self.command, path=self.path,
                headers={name: headers[name] for name in HEADERS if name in headers}, request=_value(body),
                status=response.status,
                response_headers={name: value for name in RESPONSE_HEADERS if (value := response.headers[name])},
                response=_value(answer),
            )
        )  # fmt: skip

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def do_PUT(self) -> None:
        self._pass_on()

    def do_PATCH(self) -> None:
        self._pass_on()

    def do_DELETE(self) -> None:
        self._pass_on()

    def _relay(self, response: http.client.HTTPResponse) -> bytes:
        """Forwards each part as it arrives, and returns all. A stream ends when the client disconnects."""
        answer = bytearray()
        with suppress(OSError, http.client.HTTPException):
            while part := response.read1(1 << 16):
                answer += part
                self.wfile.write(part)
                self.wfile.flush()
        return bytes(answer)

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = bytearray()
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(body)

    def log_message(self, *_: object) -> None:
        return


def _value(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode()
