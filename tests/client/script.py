"""A server with scripted responses, for errors that a real server rarely has."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

LOST = b""  # the connection ends without a response


def answer(status: int, body: Any = None, content_type: str = "application/json", **headers: str) -> bytes:
    """Returns a response that closes its connection, so that every request is recorded. Text is sent unchanged."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Scripted", f"content-type: {content_type}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [] if isinstance(body, str) else [f"content-length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


def problem(status: int, error: str, message: str = "no", **headers: str) -> bytes:
    body = {"type": "urn:duetime:problem:x", "title": "No", "status": status, "error": error, "message": message}
    return answer(status, body, "application/problem+json", **headers)


class Script:
    def __init__(self, answers: tuple[bytes, ...]) -> None:
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[str] = []

    def header(self, name: str) -> list[str]:
        """Returns the value of this header in each request."""
        found = []
        for request in self.requests:
            lines = dict(line.lower().split(": ", 1) for line in request.partition("\r\n\r\n")[0].split("\r\n")[1:])
            found.append(lines.get(name, ""))
        return found

    def _serve(self) -> None:
        with suppress(OSError):
            while self._answers:
                connection, _ = self._listener.accept()
                with connection:
                    self.requests.append(_request(connection))
                    connection.sendall(self._answers.pop(0))


def _request(connection: socket.socket) -> str:
    read = b""
    while b"\r\n\r\n" not in read:
        read += connection.recv(1 << 16)
    head, _, body = read.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0]):
        body += connection.recv(1 << 16)
    return (head + b"\r\n\r\n" + body).decode()


@contextmanager
def scripted(*answers: bytes) -> Iterator[Script]:
    script = Script(answers)
    threading.Thread(target=script._serve, daemon=True).start()
    try:
        yield script
    finally:
        with suppress(OSError):
            script._listener.shutdown(socket.SHUT_RDWR)
        script._listener.close()
