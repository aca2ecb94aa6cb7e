"""A TCP proxy in front of a server. A test can drop a response, or all connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """`swallow_answer_to`: the next request that begins with this text is forwarded, and its response is dropped."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.swallow_answer_to: bytes | None = None
        self.requests: list[bytes] = []

    def cut(self) -> None:
        """Breaks all connections."""
        for connection in self._open:
            _end(connection)
        self._open.clear()

    def seen(self, start: bytes) -> list[bytes]:
        return [request for request in self.requests if request.startswith(start)]

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._open += [client, server]
                swallowing = threading.Event()
                for pump in (self._to_server, self._to_client):
                    threading.Thread(target=pump, args=(client, server, swallowing), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, swallowing: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                self.requests.append(data)
                if self.swallow_answer_to is not None and data.startswith(self.swallow_answer_to):
                    self.swallow_answer_to = None
                    swallowing.set()
                server.sendall(data)
        _end(server)

    def _to_client(self, client: socket.socket, server: socket.socket, swallowing: threading.Event) -> None:
        with suppress(OSError):
            while (data := server.recv(1 << 16)) and not swallowing.is_set():
                client.sendall(data)
        _end(client)
        _end(server)

    @contextmanager
    def serving(self) -> Iterator[Proxy]:
        threading.Thread(target=self._serve, daemon=True).start()
        try:
            yield self
        finally:
            _end(self._listener)
            self.cut()


def _end(connection: socket.socket) -> None:
    """Shuts the socket down. A close has no effect on the peer while a thread waits in it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
