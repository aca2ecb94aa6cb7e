"""A limited number of places on one event loop, shared fairly by tenant: `domain.shares.FairQueue`, with waiting.

For work that can't be interrupted once it has begun: a thread, a call to a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from duetime.domain.errors import Overloaded
from duetime.domain.shares import FairQueue


class Places:
    """`capacity` places for all, and up to `most` for tenants that would otherwise wait behind others.

    `most_waiting`: how many of one tenant may wait for a place; None: any number. `what`: their name in the error.
    """

    def __init__(self, capacity: int, most: int, most_waiting: int | None = None, what: str = "reads") -> None:
        self._queue = FairQueue[asyncio.Future[None]](capacity, most)
        self.most_waiting = most_waiting
        self._what = what

    def begun_of(self, tenant: str) -> int:
        """Returns how many places the tenant has."""
        return self._queue.of(tenant)

    @property
    def begun(self) -> int:
        """Returns how many places are taken."""
        return self._queue.begun

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        await self.enter(tenant)
        try:
            yield
        finally:
            self.leave(tenant)

    async def enter(self, tenant: str) -> None:
        """Waits for a place. The caller must `leave` it once. Raises Overloaded if too many of the tenant wait."""
        if self.most_waiting is not None and self._queue.waiting(tenant) >= self.most_waiting:
            raise Overloaded(
                f"{self.most_waiting} {self._what} of yours wait at this node, which is the limit; try again in a "
                "moment, with fewer at once"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.wait(tenant, turn)
        self._begin()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._queue.withdraw(tenant, turn)
            else:  # it got its place at the same time
                self.leave(tenant)
            raise

    def leave(self, tenant: str) -> None:
        self._queue.end(tenant)
        self._begin()

    def _begin(self) -> None:
        for tenant, turn in self._queue.begin():
            if turn.done():  # cancelled, and not withdrawn yet
                self._queue.end(tenant)
            else:
                turn.set_result(None)
