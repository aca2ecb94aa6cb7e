"""The bus of a single node: it discards hints, because there is no other node."""

from __future__ import annotations

from collections.abc import Callable

from duetime.domain.hint import Hint


class LocalBus:
    async def start(self, receive: Callable[[Hint], None]) -> None:
        del receive

    async def stop(self) -> None:
        return

    def send(self, hint: Hint) -> None:
        del hint
