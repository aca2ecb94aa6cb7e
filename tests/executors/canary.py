"""Listens at addresses that no job may call, in its own thread, and records every connection."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from executors.ssrf_corpus import REDIRECTS, location, same

EVERYWHERE = ("0.0.0.0", "::")


@dataclass
class Visit:
    address: str  # the called address
    port: int
    line: str = ""  # of the request, when it has arrived


class Canary:
    """Listens at `port` and `tls` on every address of `addresses` that this machine has, and at `low_ports` if it may.

    Connections to an address in `public` at `port` are allowed (`guests`); all others are `hits`.
    """

    def __init__(self, addresses: tuple[str, ...], public: tuple[str, ...], low_ports: tuple[int, ...]) -> None:
        self._addresses = addresses
        self._public = public
        self._visits: list[Visit] = []
        self._listeners = self._listen()
        for port in low_ports:
            for address in addresses:
                with contextlib.suppress(OSError):  # not permitted, or used by another process
                    self._listeners.append(_listener(address, port))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="canary", daemon=True)

    def _listen(self) -> list[socket.socket]:
        """On two ports that are free on all addresses."""
        for _ in range(20):
            listeners: list[socket.socket] = []
            try:
                self.port, self.tls = self._listen_on_all(listeners), self._listen_on_all(listeners)
            except OSError:
                for listener in listeners:
                    listener.close()
            else:
                return listeners
        raise AssertionError(f"no port is free on all of {self._addresses}")

    def _listen_on_all(self, listeners: list[socket.socket]) -> int:
        port = 0
        for address in self._addresses:
            try:
                listeners.append(_listener(address, port))
            except OSError as problem:
                if problem.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise  # some machines have no IPv6, and some have no loopback addresses except 127.0.0.1
            else:
                port = listeners[-1].getsockname()[1]
        return port

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        for listener in self._listeners:
            listener.close()

    def listens_on(self, address: str) -> bool:
        listening = {
            listener.getsockname()[0] for listener in self._listeners if listener.getsockname()[1] == self.port
        }
        if address == "localhost":
            return True
        return bool(address) and (
            same(address) in listening or ("::" if ":" in same(address) else "0.0.0.0") in listening
        )

    @property
    def guests(self) -> list[Visit]:
        return [visit for visit in self._visits if self._is_guest(visit)]

    @property
    def hits(self) -> list[Visit]:
        return [visit for visit in self._visits if not self._is_guest(visit)]

    def _is_guest(self, visit: Visit) -> bool:
        return visit.address in self._public and visit.port == self.port

    async def _serve(self) -> None:
        self._servers = [await asyncio.start_server(self._answer, sock=listener) for listener in self._listeners]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = writer.get_extra_info("sockname")[:2]
        visit = Visit(same(address), port)
        self._visits.append(visit)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            visit.line = (await reader.readline()).decode("latin-1").rstrip()
            if visit.line.startswith("POST "):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(visit.line))
                await writer.drain()
        writer.close()

    def _response(self, line: str) -> bytes:
        redirect = line.split(" ")[1].partition("/redirect/")[2]
        if not redirect:
            return b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        status, _, number = redirect.partition("/")
        where = location(int(number), self.port)
        return (
            f"HTTP/1.1 {status} {REDIRECTS[int(status)]}\r\nLocation: {where}\r\nRefresh: 0; url={where}\r\n"
            f'Alt-Svc: h2="127.0.0.1:{self.port}"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
        ).encode()


def _listener(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=1024)
