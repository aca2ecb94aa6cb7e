"""The heartbeat: while this node works, it calls a URL of the operator. If the calls stop, others raise the alarm.

No alert of Duetime can tell that Duetime itself has stopped. A service outside, such as Healthchecks, notices that the
calls are missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from duetime.domain.execution import Outcome
from duetime.domain.instants import SECOND
from duetime.engine.service import Service
from duetime.ports.clock import Clock

log = structlog.get_logger()


class Heartbeat(Service):
    """`trouble()`: why the node does not work; None if it does. `call()`: sends the request."""

    def __init__(
        self, call: Callable[[], Awaitable[Outcome]], trouble: Callable[[], str | None], clock: Clock, seconds: float
    ) -> None:
        super().__init__("heartbeat", clock)
        self._call = call
        self._trouble = trouble
        self._seconds = seconds
        self._problem: str | None = None

    async def run_once(self) -> int:
        until = self._clock.now() + round(self._seconds * SECOND)
        trouble = self._trouble()
        if trouble is not None:
            self._note(f"this node does not work: {trouble}")
            return self._clock.now() + SECOND  # the next call follows as soon as it works again
        outcome = await self._call()
        self._note(None if outcome.error_type is None else f"the call failed: {outcome.error_message}")
        return until

    def _note(self, problem: str | None) -> None:
        """Logs a problem when it begins and when it ends, not each time."""
        if problem != self._problem:
            if problem is not None:
                log.warning("no heartbeat", reason=problem)
            else:
                log.info("the heartbeat goes on")
        self._problem = problem
