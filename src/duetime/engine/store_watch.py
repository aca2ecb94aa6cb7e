"""Watches whether this node reaches its store, and tells the operator directly when it has not for a while.

The alerts of tenants are in the store: of a store that is gone they can't tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from duetime.domain.direct_alerts import database_back, database_gone
from duetime.domain.instants import SECOND
from duetime.domain.payloads import Notice
from duetime.engine.service import Service
from duetime.ports.clock import Clock

CHECK_SECONDS = 5.0  # for one check; the store has shorter timeouts of its own
LONGEST_TROUBLE = 300  # characters


class StoreWatch(Service):
    """`check`: as `Store.check`. `after_seconds`: how long the store may be away. `tell(notice)`: to the operator.

    `trouble`: what is wrong now; None: nothing.
    """

    def __init__(
        self, check: Callable[[], Awaitable[str | None]], clock: Clock, node: str, after_seconds: float,
        tell: Callable[[Notice], object],
    ) -> None:  # fmt: skip
        super().__init__("store watch", clock)
        self._check = check
        self._node = node
        self._after_seconds = after_seconds
        self._tell = tell
        self._since: float | None = None
        self._is_told = False
        self.trouble: str | None = "not checked yet"

    async def run_once(self) -> int:
        self.trouble = await self._ask()
        now = self._clock.monotonic()
        if self.trouble is None:
            if self._is_told and self._since is not None:
                self._tell(database_back(self._node, now - self._since))
            self._since, self._is_told = None, False
        else:
            self._since = now if self._since is None else self._since
            if now - self._since >= self._after_seconds and not self._is_told:
                self._is_told = True
                self._tell(database_gone(self._node, now - self._since, self.trouble))
        return self._clock.now() + SECOND

    async def _ask(self) -> str | None:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                trouble = await self._check()
        except TimeoutError:
            return f"no answer within {CHECK_SECONDS:g} s"
        except Exception as error:  # noqa: BLE001 (whatever it is, the store does not work)
            trouble = f"{type(error).__name__}: {error}"
        return trouble and trouble[:LONGEST_TROUBLE]
