"""The bus port: how nodes tell each other hints. A hint may be lost, late or doubled; nothing may depend on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from duetime.domain.hint import Hint

__all__ = ["Bus", "Hint"]


class Bus(Protocol):
    async def start(self, receive: Callable[[Hint], None]) -> None:
        """Begin to listen. `receive` gets what other nodes send; it must neither wait nor raise.

        A bus that can't be reached is no reason not to start: it is tried again in the background.
        """

    async def stop(self) -> None:
        """Send what is waiting, if that is quick, and close."""

    def send(self, hint: Hint) -> None:
        """Tell all other nodes, soon. Cheap enough to be called for each job: hints that follow closely are merged."""
