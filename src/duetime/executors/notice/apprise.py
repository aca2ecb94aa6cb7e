"""Sends one message with apprise: in a child process, behind a proxy that applies the SSRF guard.

A child for each message: a plugin that hangs, leaks or misbehaves is killed with it, and no tenant's tokens are in the
memory of another one's. It costs half a second of a processor, which an alert may.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress

from duetime.domain.execution import ErrorType
from duetime.domain.payloads import Notice
from duetime.domain.targets import AllowedDomains
from duetime.executors.guard import AllowedNetworks, Guard
from duetime.executors.notice.child import PROGRAM
from duetime.executors.notice.proxy import GuardProxy
from duetime.executors.notice.schemes import ALLOWED, ports_of, refusal_of
from duetime.executors.notice.wire import MOST_REPLY_BYTES, Order, Reply, decode_reply
from duetime.executors.resolver import Lookup, Resolver, SystemLookup
from duetime.executors.uncancelled import uncancelled
from duetime.places import Places
from duetime.ports.executor import Attempt, NotSent, Outcome

CHILDREN = 4  # at once
MOST_CHILDREN = 8  # with those of tenants that would otherwise wait behind others whose services hang
MEMORY_BYTES = 384 * 1024 * 1024
GRACE_SECONDS = 2.0  # after which a child ends itself: its node was killed

_TYPES = {"firing": {"info": "info", "warning": "warning", "critical": "failure"}}
_OTHER_TYPES = {"resolved": "success", "test": "info"}
_PROBLEMS = {
    "url": (ErrorType.BLOCKED_TARGET, "apprise can't read the URL of this channel. Nothing was sent."),
    "lost": (ErrorType.CONNECTION_ERROR, "The service could not be reached, or closed the connection."),
    "tls": (ErrorType.TLS_ERROR, "No TLS connection to the service: its certificate was not accepted, or it failed."),
    "timeout": (ErrorType.TIMEOUT, "The service did not answer in time."),
}


class AppriseSender:
    """`allow`, `domains`: as for webhooks. `python`: the interpreter; `path`: where it imports from."""

    def __init__(
        self, *, allow: AllowedNetworks = (), domains: AllowedDomains | None = None, lookup: Lookup | None = None,
        schemes: frozenset[str] = ALLOWED, memory_bytes: int = MEMORY_BYTES,
    ) -> None:  # fmt: skip
        self._allow = allow
        self._domains = domains
        self._schemes = schemes
        self._memory_bytes = memory_bytes
        self._lookup = lookup or SystemLookup()
        self._resolver = Resolver(Guard(allow).check, self._lookup)
        self._places = Places(CHILDREN, MOST_CHILDREN)
        self.children: set[Process] = set()

    async def stop(self) -> None:
        await self._resolver.close()
        if isinstance(self._lookup, SystemLookup):
            self._lookup.close()

    async def send(self, url: str, attempt: Attempt[Notice], deadline: float) -> Outcome:
        """`deadline`: by the monotonic clock. Raises NotSent."""
        if (refusal := refusal_of(url)) is not None and self._schemes is ALLOWED:
            return Outcome(ErrorType.BLOCKED_TARGET, f"{refusal}. Nothing was sent.")
        guard = Guard(self._allow, ports_of(url), self._domains)
        proxy = GuardProxy(guard, self._resolver, attempt.claim.tenant, attempt.may_send)
        place = self._places.of(attempt.claim.tenant)
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())), place, proxy:
                reply = await self._run(self._order(url, attempt.payload, proxy, deadline))
        except TimeoutError:
            message = f"The service did not answer in full within {attempt.timeout_seconds:g} s."
            return proxy.failure or Outcome(ErrorType.TIMEOUT, message)
        except OSError as problem:
            reason = os.strerror(problem.errno) if problem.errno else type(problem).__name__
            return Outcome(ErrorType.INTERNAL_ERROR, f"The process that sends it was not started: {reason}.")
        if proxy.is_in_doubt:
            raise NotSent
        return outcome_of(reply, proxy.failure)

    def _order(self, url: str, notice: Notice, proxy: GuardProxy, deadline: float) -> Order:
        return Order(
            url, notice.title, notice.body, apprise_type(notice), proxy.port, proxy.token,
            max(0.0, deadline - time.monotonic()) + GRACE_SECONDS, self._memory_bytes, tuple(sorted(self._schemes)),
            ssl.get_default_verify_paths().cafile or "",
        )  # fmt: skip

    async def _run(self, order: Order) -> Reply | None:
        """Runs a child, and kills it and all that it has started when the caller no longer waits."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", PROGRAM, *sys.path,
            stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd="/", env=_environment(), start_new_session=True,
        )  # fmt: skip
        self.children.add(child)
        try:
            return await _ask(child, order)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await uncancelled(child.wait())
            self.children.discard(child)


def apprise_type(notice: Notice) -> str:
    """Returns the type of message that apprise shows: with a colour or a sign, as the service has it."""
    return _OTHER_TYPES.get(notice.status) or _TYPES["firing"][notice.severity]


def outcome_of(reply: Reply | None, failure: Outcome | None) -> Outcome:
    """`failure`: of the proxy. It explains best why something was not sent."""
    if reply is not None and reply.is_sent:
        return Outcome(http_status=reply.status)
    if reply is not None and reply.refused:
        message = f"The service tried to {reply.refused}, which no alert channel may. The message was not sent."
        return Outcome(ErrorType.BLOCKED_TARGET, message)
    if failure is not None:
        return failure
    if reply is None:
        return Outcome(ErrorType.INTERNAL_ERROR, "The process that sends it was killed, or used too much memory.")
    if reply.problem in _PROBLEMS:
        return Outcome(*_PROBLEMS[reply.problem])
    if reply.status is not None and not 200 <= reply.status < 300:
        return Outcome(ErrorType.HTTP_ERROR, f"The service answered {reply.status}.", reply.status)
    return Outcome(ErrorType.CONNECTION_ERROR, "The service did not accept the message.", reply.status)


async def _ask(child: Process, order: Order) -> Reply | None:
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(ConnectionError):  # it died at once: there will be no reply
        child.stdin.write(order.encode())
        await child.stdin.drain()
    child.stdin.close()
    data = b""
    while len(data) < MOST_REPLY_BYTES and (part := await child.stdout.read(MOST_REPLY_BYTES - len(data))):
        data += part
    return decode_reply(data)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}  # some Pythons need it
    return {**kept, "LANG": "C.UTF-8", "HOME": "/nonexistent", "PATH": "/nonexistent"}
