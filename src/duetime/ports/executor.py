"""The executor port: how one attempt of an execution is carried out.

An executor gets everything it needs in a `Task` and answers with an `Outcome`. It never raises for what a target
does: a hang, a refusal or garbage is an outcome. It raises `asyncio.CancelledError` only when it is cancelled, and by
then has let go of the connection; `NotSent` only when `task.may_send` says no. It does not retry, does not write to the
store and knows no policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from duetime.domain.execution import Outcome, Trigger
from duetime.domain.payloads import Payload
from duetime.ports.logs import NO_LOG, LogWriter

__all__ = ["Executor", "NotSent", "Outcome", "Task", "always"]


class NotSent(Exception):
    """The lease came into doubt before the first byte left: the run is as it was, and may be another node's by now."""


def always() -> bool:
    return True


PayloadT = TypeVar("PayloadT", bound=Payload)


class Task(msgspec.Struct, Generic[PayloadT], frozen=True, gc=False):
    """One attempt, ready to run."""

    execution_id: str
    job_id: str
    tenant: str
    scheduled_at: int  # ms since the epoch, UTC
    attempt: int  # from 1
    token: int  # fencing: grows with each claim of this execution
    trigger: Trigger
    timeout_seconds: float  # the whole attempt: resolve, connect, send, wait, read
    payload: PayloadT
    # Asked right before the first byte of a request, and again for a request that is sent anew: a process may have been
    # stopped since the last look, also while it connected.
    may_send: Callable[[], bool] = always
    log: LogWriter = NO_LOG  # what it prints, as it comes
    repeatable: bool = True  # False: at most once, so that even what may have been lost on the way is not sent again


class Executor(Protocol[PayloadT]):
    async def start(self) -> None:
        """Open pools. Called once, inside the running event loop."""

    async def stop(self) -> None:
        """Close them. No task is running by then."""

    async def execute(self, task: Task[PayloadT]) -> Outcome:
        """Carry out one attempt within `task.timeout_seconds`, measured from the call. May raise NotSent."""
