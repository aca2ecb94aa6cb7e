"""The executor port: it runs one attempt of an execution.

An executor gets everything it needs in an `Attempt` and returns an `Outcome`. It never raises for the behaviour of a
target: a hang, a refusal or garbage is an outcome. It raises `asyncio.CancelledError` only when it is cancelled, after
it has released the connection, and `NotSent` only when `attempt.may_send` returns False. It does not retry, does not
write to the store, and applies no policy of the job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from duetime.domain.defaults import timeout_of
from duetime.domain.execution import Claim, Outcome
from duetime.domain.job import Delivery
from duetime.domain.payloads import Payload
from duetime.ports.logs import NO_LOG, LogWriter

__all__ = ["Attempt", "Executor", "NotSent", "Outcome", "always"]


class NotSent(Exception):
    """The lease was in doubt before the first byte was sent. The execution is unchanged; another node may have it."""


def always() -> bool:
    return True


PayloadT = TypeVar("PayloadT", bound=Payload)


class Attempt(msgspec.Struct, Generic[PayloadT], frozen=True, gc=False):
    """One attempt, ready to run: what a node has claimed, with the payload in plain text."""

    claim: Claim
    payload: PayloadT  # the payload of `claim.spec`, with its secrets decrypted
    # Called right before the first byte of a request, and again before a request is resent: the process may have been
    # suspended since the last check, also while it connected.
    may_send: Callable[[], bool] = always
    log: LogWriter = NO_LOG  # gets the attempt's output as it is printed

    @property
    def timeout_seconds(self) -> float:
        """Returns how long the whole attempt may take: resolve, connect, send, wait, read."""
        return timeout_of(self.claim.spec)

    @property
    def repeatable(self) -> bool:
        """Returns False if the job runs at most once: a request that may have been lost is not sent again."""
        return self.claim.spec.delivery is not Delivery.AT_MOST_ONCE


class Executor(Protocol[PayloadT]):
    async def start(self) -> None:
        """Opens connection pools. Called once, inside the running event loop."""

    async def stop(self) -> None:
        """Closes the pools. No attempt is running by then."""

    async def execute(self, attempt: Attempt[PayloadT]) -> Outcome:
        """Runs one attempt within `attempt.timeout_seconds`, measured from the call. May raise NotSent."""
