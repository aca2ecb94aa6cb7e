"""The bus port: nodes send each other hints. A hint may be lost, late or duplicated; nothing may depend on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from duetime.domain.hint import Hint


class Bus(Protocol):
    async def start(self, receive: Callable[[Hint], None]) -> None:
        """Starts to listen. `receive` gets the hints of other nodes; it must neither wait nor raise.

        Starting succeeds even if the bus can't be reached: it is retried in the background.
        """

    async def stop(self) -> None:
        """Sends the waiting hint if that is quick, and closes the bus."""

    def send(self, hint: Hint) -> None:
        """Sends a hint to all other nodes, soon. Cheap enough to call for each job: hints in quick succession merge."""
