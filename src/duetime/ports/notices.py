"""The port of the operator's own channels: a notice is sent at once, and nothing is stored."""

from __future__ import annotations

from typing import Protocol

from duetime.domain.execution import Outcome
from duetime.domain.payloads import Notice


class DirectChannels(Protocol):
    @property
    def count(self) -> int:
        """How many channels the operator has set up (ALERT_URLS)."""

    async def send(self, place: int, message_id: str, notice: Notice) -> Outcome:
        """Sends a notice to channel number `place`, from 0. `message_id`: a UUID, the same when it is tried again."""
