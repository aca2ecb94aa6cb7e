"""A fair semaphore, round-robin by tenant: many requests of one tenant delay another tenant by only one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from duetime.domain.round_robin import RoundRobin


class TurnGate:
    def __init__(self, at_once: int) -> None:
        self._free = at_once  # 0 while any request waits
        self._waiting = RoundRobin[asyncio.Future[None]]()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        await self._enter(tenant)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, tenant: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.add(tenant, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came at the moment of the cancellation
                self._leave()
            raise

    def _leave(self) -> None:
        while (turn := self._waiting.take()) is not None:
            if not turn.done():  # otherwise the waiter was cancelled
                turn.set_result(None)
                return
        self._free += 1
