"""When the certificates of targets end: read once a day from those that jobs have called in the last day.

The facts are for alerts, and each node knows those of its own attempts. A handshake of its own reads the certificate,
also one that has ended already, which no request would accept. It goes through the SSRF guard, and runs on a thread.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import structlog
from cryptography.x509 import load_der_x509_certificate

from duetime.domain.shares import FairCache
from duetime.executors.guard import BlockedTarget, Target
from duetime.executors.resolver import DnsError

MOST_ORIGINS = 2048
MOST_LISTED = 200
DAY_SECONDS = 86_400.0
AGAIN_SECONDS = 3600.0  # after a handshake that failed
PAUSE_SECONDS = 30.0  # between two looks for origins that are due
MOST_A_LOOK = 32
HANDSHAKE_SECONDS = 3.0  # to connect, and as much for the handshake as a whole

Origin = tuple[str, str, int]  # tenant, host, port
Resolve = Callable[[str, str], Awaitable[Sequence[str]]]  # a name, for a tenant, to checked addresses
Read = Callable[[str, str, int], int]  # address, host, port

log = structlog.get_logger()


class Certificate(NamedTuple):
    tenant: str
    origin: str  # https://host:port
    not_after: int  # ms since the epoch


class _Known:
    __slots__ = ("called_at", "due_at", "is_called", "not_after", "target")

    def __init__(self, target: Target, now: float) -> None:
        self.target = target
        self.called_at = now
        self.is_called = False  # since the last look: cheaper to set, for each attempt, than an instant
        self.due_at = now
        self.not_after: int | None = None


class Certificates:
    """`resolve`: through the guard. `read`: does the handshake; replaced in tests. Tenants share the room fairly."""

    def __init__(
        self, resolve: Resolve, *, most: int = MOST_ORIGINS, monotonic: Callable[[], float] = time.monotonic,
        read: Read | None = None,
    ) -> None:  # fmt: skip
        self._resolve = resolve
        self._monotonic = monotonic
        self._read = read or read_not_after
        self._known: dict[Origin, _Known] = {}
        self._places = FairCache[Origin](most)
        self._threads = ThreadPoolExecutor(1, "duetime-certificates")
        self._loop: asyncio.Task[None] | None = None

    def called(self, tenant: str, target: Target) -> None:
        """Takes note that a job calls this https target. Called for each attempt."""
        origin = tenant, target.host, target.port
        known = self._known.get(origin)
        if known is not None:
            known.is_called = True
            return
        self._known[origin] = _Known(target, self._monotonic())
        dropped = self._places.add(tenant, origin)
        if dropped is not None:
            del self._known[dropped]

    def certificates(self, most: int = MOST_LISTED) -> list[Certificate]:
        """Returns the certificates that are known, those that end first."""
        found = [
            Certificate(tenant, f"https://{f'[{host}]' if ':' in host else host}:{port}", known.not_after)
            for (tenant, host, port), known in self._known.items()
            if known.not_after is not None
        ]
        return sorted(found, key=lambda one: one.not_after)[:most]

    def start(self) -> None:
        self._loop = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Reads the certificates that are due, and forgets targets that no job calls any more."""
        now = self._monotonic()
        for known in self._known.values():
            if known.is_called:
                known.called_at, known.is_called = now, False
        for origin in [it for it, known in self._known.items() if now - known.called_at > DAY_SECONDS]:
            del self._known[origin]
            self._places.discard(origin)
        due = [(origin, known) for origin, known in self._known.items() if known.due_at <= now]
        for (tenant, _, _), known in due[:MOST_A_LOOK]:
            known.due_at = now + (DAY_SECONDS if await self._learn(tenant, known) else AGAIN_SECONDS)

    async def _learn(self, tenant: str, known: _Known) -> bool:
        target = known.target
        try:
            addresses = (target.host,) if target.address is not None else await self._resolve(target.host, tenant)
            known.not_after = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._read, addresses[0], target.host, target.port
            )
        except (OSError, ValueError, DnsError, BlockedTarget) as problem:
            log.debug("a certificate could not be read", host=target.host, error=type(problem).__name__)
            return False
        return True


def read_not_after(address: str, host: str, port: int) -> int:
    """Returns when the certificate of a server ends, in ms. Raises OSError or ValueError. Verifies nothing: it sends
    nothing either."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((address, port), HANDSHAKE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        found = secure.getpeercert(binary_form=True)
    if found is None:
        raise ValueError("the server sent no certificate")
    return int(load_der_x509_certificate(found).not_valid_after_utc.timestamp() * 1000)
