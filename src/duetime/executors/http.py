"""The HTTP executor: one attempt is one request to a checked address, and has one outcome whatever the target does.

It follows no redirects, reads no proxy settings and no credentials from the environment, keeps no cookies and
decompresses nothing. An attempt's timeout covers everything: resolving, connecting, sending, waiting and reading. The
TLS handshake and the response head have additional limits (`ConnectionLimits`).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Sequence
from itertools import cycle

from duetime.domain.execution import ErrorType
from duetime.domain.payloads import HttpRequest
from duetime.domain.sampling import NOTHING, Sampling
from duetime.domain.targets import AllowedDomains
from duetime.executors.answer import kept_text, retry_after_seconds
from duetime.executors.connection import BadAnswer, Connection, ConnectionLost, LateHead
from duetime.executors.guard import DEFAULT_PORTS, AllowedNetworks, BlockedTarget, Guard, Ports, Target
from duetime.executors.headers import attempt_headers, check_headers, encode_body, job_headers
from duetime.executors.pool import DEFAULT_LIMITS, ConnectionLimits, ConnectionPool, SlowHandshake
from duetime.executors.resolver import DnsError, Lookup, Resolver, SystemLookup
from duetime.ports.executor import Attempt, Outcome

_STALE_SECONDS = 1.0
# Each timeout is longer by the next of these. Hundreds of attempts at a target that hangs start together. If they also
# timed out together, the event loop would do nothing else for 50 ms, and all other attempts would be late.
_EXTRA_SECONDS = tuple(number / 1000 for number in range(64))
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


class HttpExecutor:
    """Runs `http_request` jobs.

    `allow`: networks that jobs may call besides public addresses, or True for all. `domains`: hosts that jobs may call;
    None for any. `ports`: port ranges that jobs may call. `limits`: limits for every connection. `keys_of`: returns the
    keys that sign a tenant's requests: several while keys rotate, none to send unsigned; called for each attempt.
    `called(tenant, target)`: an attempt calls this https target. `clock`: wall-clock seconds. `lookup`: resolves a name
    to addresses; default: the system's resolver. `tls`: default: a context that trusts the machine's root certificates.
    `sampling`: the executions whose targets are told that their trace is exported.
    """

    def __init__(
        self, *,
        allow: AllowedNetworks = (), domains: AllowedDomains | None = None, ports: Ports = DEFAULT_PORTS,
        limits: ConnectionLimits = DEFAULT_LIMITS, keys_of: Callable[[str], Sequence[bytes]] = lambda tenant: (),
        clock: Callable[[], float] = time.time, lookup: Lookup | None = None, tls: ssl.SSLContext | None = None,
        dns_ttl_seconds: float = 15.0, called: Callable[[str, Target], None] | None = None,
        sampling: Sampling = NOTHING,
    ) -> None:  # fmt: skip
        self._keys_of = keys_of
        self.called = called
        self._clock = clock
        self._sampling = sampling
        self._is_tracing = sampling is not NOTHING
        self.guard = Guard(allow, ports, domains)
        self._lookup = lookup or SystemLookup()
        self._resolver = Resolver(self.guard.check, self._lookup, ttl_seconds=dns_ttl_seconds)
        self._pool = ConnectionPool(tls or ssl.create_default_context(), limits)
        self._extra_seconds = cycle(_EXTRA_SECONDS)

    async def start(self) -> None:
        """Does nothing: connections are opened by the first attempts."""

    async def stop(self) -> None:
        self._pool.close()
        await self._resolver.close()
        if isinstance(self._lookup, SystemLookup):
            self._lookup.close()

    async def resolve(self, host: str, tenant: str) -> Sequence[str]:
        """Returns the addresses of a name, each checked. Raises DnsError or BlockedTarget."""
        return await self._resolver.resolve(host, tenant)

    async def execute(self, attempt: Attempt[HttpRequest]) -> Outcome:
        deadline = time.monotonic() + attempt.timeout_seconds + next(self._extra_seconds)
        prepared = self._prepare(attempt)
        if isinstance(prepared, Outcome):
            return prepared
        target, request = prepared
        if target.tls and self.called is not None:
            self.called(attempt.claim.tenant, target)
        # All of the exchange is here: one coroutine less for each request of a burst.
        head_only, may_send = attempt.payload.method == "HEAD", attempt.may_send
        try:
            addresses = (target.host,) if target.address is not None else self._resolver.cached(target.host)
            if addresses is None:
                async with asyncio.timeout_at(deadline):
                    addresses = await self._resolver.resolve(target.host, attempt.claim.tenant)
            connection = self._pool.take(target, addresses)
            if connection is not None:
                sent_at = time.monotonic()
                try:
                    await connection.exchange(request, deadline, head_only=head_only, may_send=may_send)
                except ConnectionLost as lost:
                    # The target closed an idle connection while we wrote to it. HTTP clients send a request with an
                    # Idempotency-Key again on a new connection, and all our requests have that header. If the target
                    # took longer than _STALE_SECONDS to close, it did receive the first request.
                    if lost.answered or not attempt.repeatable or time.monotonic() > sent_at + _STALE_SECONDS:
                        raise
                    connection = None
            if connection is None:
                connection = await self._pool.connect(target, addresses, deadline)
                await connection.exchange(request, deadline, head_only=head_only, may_send=may_send)
        except (OSError, DnsError, BlockedTarget, ConnectionLost, BadAnswer) as problem:
            return _network_failure(problem, target, attempt.timeout_seconds)
        self._pool.give_back(target, connection, attempt.claim.tenant)
        # The connection is back in the pool, but nothing awaits before its response is read: no other attempt has it.
        return self._outcome(attempt, target, connection)

    def _prepare(self, attempt: Attempt[HttpRequest]) -> tuple[Target, bytes] | Outcome:
        """Returns the target and the request; or the outcome, if the request can't be sent."""
        try:
            target = self.guard.target(attempt.payload.url)
        except BlockedTarget as problem:
            return Outcome(ErrorType.BLOCKED_TARGET, f"{problem} Nothing was sent.")
        problems = check_headers(attempt.payload.headers) if attempt.payload.headers else None
        if problems:
            return Outcome(ErrorType.BLOCKED_TARGET, f"{problems[0]} Nothing was sent.")
        try:
            return target, self._request(attempt, target)
        except (TypeError, ValueError):
            return Outcome(ErrorType.INTERNAL_ERROR, "The job's body can't be written as JSON. Nothing was sent.")

    def _request(self, attempt: Attempt[HttpRequest], target: Target) -> bytes:
        payload = attempt.payload
        body, content_type = encode_body(payload.body)
        length = f"Content-Length: {len(body)}\r\n" if body or payload.method not in _BODILESS else ""
        claim = attempt.claim
        headers = attempt_headers(
            claim, int(self._clock()), body, self._keys_of(claim.tenant),
            is_sampled=self._is_tracing and self._sampling.has(claim.execution_id),
        )  # fmt: skip
        head = (
            f"{payload.method} {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n"
            f"{job_headers(payload.headers, content_type)}{length}"
            f"{headers}\r\n"
        )
        return head.encode("latin-1") + body

    def _outcome(self, attempt: Attempt[HttpRequest], target: Target, connection: Connection) -> Outcome:
        status = connection.status
        response = kept_text(connection.body) if connection.body else None
        expected = attempt.payload.expect_status
        if status in expected if expected else 200 <= status < 300:
            return Outcome(http_status=status, response=response)
        message = f"{target.host} answered {status}."
        if 300 <= status < 400 and status != 304:
            message = (
                f"{target.host} answered {status}; redirects are not followed. Put the final address in the job's URL."
            )
        again = retry_after_seconds(connection.retry_after, self._clock())
        return Outcome(ErrorType.HTTP_ERROR, message, status, response, again)


def _network_failure(problem: Exception, target: Target, timeout_seconds: float) -> Outcome:
    """Returns an outcome that names the host and the cause, but never the path or query: they may hold a secret."""
    host = target.host
    match problem:
        case BlockedTarget():
            return Outcome(ErrorType.BLOCKED_TARGET, f"{problem} Nothing was sent.")
        case DnsError():
            return Outcome(ErrorType.DNS_ERROR, str(problem))
        case BadAnswer():
            return Outcome(ErrorType.CONNECTION_ERROR, f"{host} {problem}.")
        case ConnectionLost():
            return Outcome(ErrorType.CONNECTION_ERROR, f"{host} closed the connection before its answer was complete.")
        case LateHead():
            return Outcome(ErrorType.TIMEOUT, f"{host} {problem}.")
        case SlowHandshake():
            return Outcome(ErrorType.TLS_ERROR, f"{host} {problem}.")
        case TimeoutError() if problem.errno is None:
            return Outcome(ErrorType.TIMEOUT, f"{host} did not answer in full within {timeout_seconds:g} s.")
        case ssl.SSLError():
            return Outcome(ErrorType.TLS_ERROR, f"No TLS connection to {host}: {_tls_reason(problem)}.")
        case OSError():
            reason = os.strerror(problem.errno) if problem.errno else type(problem).__name__
            return Outcome(ErrorType.CONNECTION_ERROR, f"No connection to {host}:{target.port}: {reason}.")
        case _:
            raise problem


def _tls_reason(problem: ssl.SSLError) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return kept_text(problem.verify_message.rstrip(".").encode(), 200)
    return (problem.reason or "the handshake failed").replace("_", " ").lower()
