"""Sends notices to the operator's own channels, without the store: when the database is gone, or this node is leaving.

Each channel gets each notice at least once, unless it stays out of reach: a failed one is tried again for some minutes.
What is told is decided by `domain.direct_alerts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from duetime.domain.direct_alerts import DirectRules
from duetime.domain.ids import make_id
from duetime.domain.payloads import Notice
from duetime.ports.clock import Clock
from duetime.ports.notices import DirectChannels

PAUSES_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0, 60.0, 60.0, 60.0)  # before each further attempt
MOST_UNDER_WAY = 64

log = structlog.get_logger()


class DirectAlerts:
    """`pauses`: between attempts; as many again as there are pauses."""

    def __init__(
        self, channels: DirectChannels, clock: Clock, random_bytes: Callable[[int], bytes],
        pauses: tuple[float, ...] = PAUSES_SECONDS,
    ) -> None:  # fmt: skip
        self._channels = channels
        self._clock = clock
        self._random_bytes = random_bytes
        self._pauses = pauses
        self._rules = DirectRules()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_on(self) -> bool:
        """Whether the operator has set up channels."""
        return self._channels.count > 0

    def tell(self, notice: Notice) -> bool:
        """Begins to send the notice to all channels. Returns False if it was told before, or too many were."""
        now = self._clock.now()
        if not self.is_on or not self._rules.admits(notice, now):
            return False
        for place in range(self._channels.count):
            if len(self._tasks) >= MOST_UNDER_WAY:
                log.error("a notice to the operator was dropped: too many are under way", title=notice.title)
                return False
            message_id = make_id(now, self._random_bytes(10))
            task = asyncio.create_task(self._send(place, message_id, notice))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return True

    async def settle(self) -> None:
        """Waits until all notices have been sent, or given up."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def stop(self) -> None:
        """Gives up what has not been sent."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, place: int, message_id: str, notice: Notice) -> None:
        problem: str | None = None
        for pause in (0.0, *self._pauses):
            await asyncio.sleep(pause)
            try:
                outcome = await self._channels.send(place, message_id, notice)
            except Exception as error:  # noqa: BLE001 (tried again; its text may hold the channel's URL)
                problem = type(error).__name__
                continue
            if outcome.error_type is None:
                return
            problem = outcome.error_message
        log.error("a notice did not reach the operator", channel=place + 1, title=notice.title, error=problem)
