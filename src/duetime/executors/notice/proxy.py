"""The proxy that a child process reaches the network through: CONNECT, and plain HTTP, each to a checked address.

It listens on loopback while one message is being sent, on a port of its own, and serves only the child that knows its
token. Each target passes the SSRF guard: its name is resolved here, every address is checked, and the connection goes
to one of these addresses. So neither a redirect nor a name that resolves anew leads elsewhere.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress

from duetime.domain.execution import ErrorType
from duetime.executors.guard import BlockedTarget, Guard, Target
from duetime.executors.notice.jail import LOOPBACK
from duetime.executors.resolver import DnsError, Resolver
from duetime.ports.executor import Outcome

MOST_HEAD_BYTES = 32_768
MOST_BYTES = 1024 * 1024  # from a target over one connection, and to it
MOST_CONNECTIONS = 16  # at once
CONNECT_SECONDS = 10.0
READ = 65_536

_END = b"\r\n\r\n"
_OF_THE_PROXY = (b"proxy-authorization:", b"proxy-connection:", b"connection:", b"keep-alive:")


class _Refused(Exception):
    """The child gets this status line, and nothing is sent to a target."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class GuardProxy:
    """`may_send`: False while the node's lease is in doubt. `failure`: the last problem with a target."""

    def __init__(self, guard: Guard, resolver: Resolver, tenant: str, may_send: Callable[[], bool]) -> None:
        self.port = 0
        self.token = secrets.token_hex(16)
        self.failure: Outcome | None = None
        self.is_in_doubt = False
        self._guard = guard
        self._resolver = resolver
        self._tenant = tenant
        self._may_send = may_send
        self._proof = b"Basic " + b64encode(f"duetime:{self.token}".encode())
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> GuardProxy:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0, limit=MOST_HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._exchange(reader, writer)
        except _Refused as refused:
            writer.write(f"HTTP/1.1 {refused.status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            with suppress(OSError):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the child, or its target, has hung up; the child sees that, too
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(_END))[: -len(_END)].split(b"\r\n")
        if not any(self._is_proof(line) for line in lines[1:]):
            raise _Refused("407 Proxy Authentication Required")
        try:
            method, where, version = lines[0].decode("ascii").split(" ")
        except (UnicodeDecodeError, ValueError):
            raise _Refused("400 Bad Request") from None
        is_tunnel = method == "CONNECT"
        if not is_tunnel and not where.lower().startswith("http://"):
            raise _Refused("400 Bad Request")
        target, addresses = await self._find(f"https://{where}/" if is_tunnel else where)
        to_reader, to_writer = await self._open(target, addresses)
        try:
            if is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                to_writer.write(_closing([f"{method} {target.path} {version}".encode("latin-1"), *lines[1:]]))
            await self._relay((reader, to_writer), (to_reader, writer), is_tunnel)
        finally:
            to_writer.transport.abort()

    def _is_proof(self, line: bytes) -> bool:
        name, _, value = line.partition(b":")
        return name.strip().lower() == b"proxy-authorization" and hmac.compare_digest(value.strip(), self._proof)

    async def _find(self, url: str) -> tuple[Target, Sequence[str]]:
        """Returns the target and its checked addresses."""
        try:
            target = self._guard.target(url)
            if target.address is not None:
                return target, (target.host,)
            return target, await self._resolver.resolve(target.host, self._tenant)
        except BlockedTarget as problem:
            self.failure = Outcome(ErrorType.BLOCKED_TARGET, f"{problem} Nothing was sent there.")
            raise _Refused("403 Forbidden") from None
        except DnsError as problem:
            self.failure = Outcome(ErrorType.DNS_ERROR, str(problem))
            raise _Refused("502 Bad Gateway") from None

    async def _open(
        self, target: Target, addresses: Sequence[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for address in addresses:
            if not self._may_send():
                self.is_in_doubt = True
                raise _Refused("503 Service Unavailable")
            with suppress(OSError):  # includes TimeoutError
                async with asyncio.timeout(CONNECT_SECONDS / len(addresses)):
                    return await asyncio.open_connection(address, target.port)
        message = f"No connection to {target.host}:{target.port}."
        self.failure = Outcome(ErrorType.CONNECTION_ERROR, message)
        raise _Refused("502 Bad Gateway")

    async def _relay(
        self, there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        here: tuple[asyncio.StreamReader, asyncio.StreamWriter], is_tunnel: bool,
    ) -> None:  # fmt: skip
        """Copies both ways until the target has hung up. A child that only closes its side still gets the response."""
        out = asyncio.create_task(self._copy(*there))
        back = asyncio.create_task(self._copy(*here) if is_tunnel else self._answer(*here))
        try:
            await back
        finally:
            for task in (out, back):
                task.cancel()
            await asyncio.gather(out, back, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copies a response. The child must not keep the connection: its next request may be for another target."""
        is_interim = True
        while is_interim:
            lines = (await reader.readuntil(_END))[: -len(_END)].split(b"\r\n")
            is_interim = lines[0].partition(b" ")[2].startswith(b"1")
            writer.write(_closing(lines))
        await self._copy(reader, writer)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = MOST_BYTES
        while data := await reader.read(min(READ, left + 1)):
            left -= len(data)
            if left < 0:
                self.failure = Outcome(ErrorType.CONNECTION_ERROR, f"More than {MOST_BYTES} bytes were to be sent.")
                raise ConnectionError("too many bytes")
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def _closing(lines: Sequence[bytes]) -> bytes:
    """Returns the head of a message after which its connection is closed."""
    kept = [line for line in lines[1:] if not line.lower().startswith(_OF_THE_PROXY)]
    return b"\r\n".join((lines[0], *kept, b"Connection: close")) + _END
