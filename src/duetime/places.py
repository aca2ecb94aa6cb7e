"""A bounded number of places on an event loop, shared fairly by tenant: `domain.shares.FairQueue`, with waiting.

For what can't be taken back once it has begun: a thread, a call to a server. For one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from duetime.domain.errors import Overloaded
from duetime.domain.shares import FairQueue


class Places:
    """`capacity` places for all, and more for those that would else wait behind others, up to `most`.

    `most_waiting`: how many of one tenant may wait for a place; None: any number. `what` the error calls them.
    """

    def __init__(self, capacity: int, most: int, most_waiting: int | None = None, what: str = "reads") -> None:
        self._queue = FairQueue[asyncio.Future[None]](capacity, most)
        self.most_waiting = most_waiting
        self._what = what

    def begun_of(self, tenant: str) -> int:
        """How many places the tenant has."""
        return self._queue.of(tenant)

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        await self.enter(tenant)
        try:
            yield
        finally:
            self.leave(tenant)

    async def enter(self, tenant: str) -> None:
        """Wait for a place. Whoever has one leaves it once. Raises Overloaded if too many of the tenant wait."""
        if self.most_waiting is not None and self._queue.waiting(tenant) >= self.most_waiting:
            raise Overloaded(
                f"{self.most_waiting} {self._what} of yours wait at this node, which is the most; ask again in a "
                "moment, and for less at once"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.wait(tenant, turn)
        self._begin()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._queue.withdraw(tenant, turn)
            else:  # it had its turn in the same moment
                self.leave(tenant)
            raise

    def leave(self, tenant: str) -> None:
        self._queue.end(tenant)
        self._begin()

    def _begin(self) -> None:
        for tenant, turn in self._queue.begin():
            if turn.done():  # it was cancelled, and has not withdrawn yet
                self._queue.end(tenant)
            else:
                turn.set_result(None)
