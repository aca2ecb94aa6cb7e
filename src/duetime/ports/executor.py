"""The executor port: how one attempt of an execution is carried out.

An executor gets everything it needs in a `Task` and answers with an `Outcome`. It never raises for what a target
does: a hang, a refusal or garbage is an outcome. It raises `asyncio.CancelledError` only when it is cancelled, and by
then has let go of the connection; `NotSent` only when `task.may_send` says no. It does not retry, does not write to the
store and knows no policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from duetime.domain.execution import Outcome, Trigger
from duetime.domain.job import HttpRequest

__all__ = ["Executor", "NotSent", "Outcome", "Task", "always"]


class NotSent(Exception):
    """The lease came into doubt before the first byte left: the run is as it was, and may be another node's by now."""


def always() -> bool:
    return True


class Task(msgspec.Struct, frozen=True, gc=False):
    """One attempt, ready to run."""

    execution_id: str
    job_id: str
    tenant: str
    scheduled_at: int  # ms since the epoch, UTC
    attempt: int  # from 1
    token: int  # fencing: grows with each claim of this execution
    trigger: Trigger
    timeout_seconds: float  # the whole attempt: resolve, connect, send, wait, read
    payload: HttpRequest
    # Asked right before the first byte of a request, and again for a request that is sent anew: a process may have been
    # stopped since the last look, also while it connected.
    may_send: Callable[[], bool] = always


class Executor(Protocol):
    async def start(self) -> None:
        """Open pools. Called once, inside the running event loop."""

    async def stop(self) -> None:
        """Close them. No task is running by then."""

    async def execute(self, task: Task) -> Outcome:
        """Carry out one attempt within `task.timeout_seconds`, measured from the call. May raise NotSent."""
