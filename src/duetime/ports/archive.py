"""The archive port: where links of the audit go before they are removed from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class AuditArchive(Protocol):
    async def save(self, chain: int, first: int, last: int, lines: Sequence[bytes]) -> None:
        """Keep the lines (`domain.audit_export`) of these links of a chain. What it has answered is durable.

        Saving the same links again replaces what was saved. Raises OSError if it can't be done.
        """
