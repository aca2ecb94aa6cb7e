"""The notice executor: an attempt sends one notice to its alert channels.

A webhook is an ordinary request of the HTTP executor: guarded, signed with the tenant's key, with the execution's id.
All other channels are URLs of apprise, which opens sockets of its own: it runs in a child process behind a proxy.
A channel's URL is a secret. No message, log line or response of an attempt holds more of it than the host.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from duetime.domain.channels import Kind
from duetime.domain.execution import ErrorType
from duetime.domain.notices import webhook_body
from duetime.domain.payloads import HttpRequest, Notice
from duetime.executors.http import HttpExecutor
from duetime.executors.notice.apprise import AppriseSender
from duetime.ports.executor import Attempt, Outcome
from duetime.ports.vault import DecryptionFailed


class Channel(msgspec.Struct, frozen=True):
    kind: Kind
    url: str  # in plain text

    def __repr__(self) -> str:
        return f"Channel({self.kind})"  # never the URL: a traceback may show it


FindChannel = Callable[[str, str], Awaitable[Channel | None]]  # by tenant and name


class NoticeExecutor:
    """`find`: returns a channel with its URL decrypted, None if there is none; may raise DecryptionFailed."""

    def __init__(self, webhooks: HttpExecutor, apprise: AppriseSender, find: FindChannel) -> None:
        self._webhooks = webhooks
        self._apprise = apprise
        self._find = find

    async def start(self) -> None:
        """Does nothing: a child process is started for each message."""

    async def stop(self) -> None:
        await self._apprise.stop()

    async def execute(self, attempt: Attempt[Notice]) -> Outcome:
        deadline = time.monotonic() + attempt.timeout_seconds
        names = attempt.payload.channels
        outcomes = [await self._send_to(name, attempt, deadline) for name in names]
        failed = [one for one in outcomes if one.error_type is not None]
        return failed[0] if failed else outcomes[-1]

    async def _send_to(self, name: str, attempt: Attempt[Notice], deadline: float) -> Outcome:
        tenant = attempt.claim.tenant
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                channel = await self._find(tenant, name)
        except DecryptionFailed as problem:
            return Outcome(ErrorType.INTERNAL_ERROR, f"{problem}. Nothing was sent.")
        except TimeoutError:
            return Outcome(ErrorType.TIMEOUT, f"The alert channel '{name}' was not read in time. Nothing was sent.")
        if channel is None:
            message = f"There is no alert channel '{name}' (any more). Nothing was sent."
            return Outcome(ErrorType.BLOCKED_TARGET, message)
        return await self.send(channel, attempt, deadline)

    async def send(self, channel: Channel, attempt: Attempt[Notice], deadline: float) -> Outcome:
        """Sends the notice to one channel: also to the operator's own, which are not in the store."""
        if channel.kind is Kind.APPRISE:
            return await self._apprise.send(channel.url, attempt, deadline)
        body: dict[str, Any] = webhook_body(attempt.payload, attempt.claim.scheduled_at)
        request = HttpRequest(channel.url, body=body)
        outcome = await self._webhooks.execute(Attempt(attempt.claim, request, attempt.may_send))
        return msgspec.structs.replace(outcome, response=None)  # a target may echo the URL that it was called with
