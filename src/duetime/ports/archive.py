"""The archive port: stores links of the audit before they are removed from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class AuditArchive(Protocol):
    async def save(self, chain: int, first: int, last: int, lines: Sequence[bytes]) -> None:
        """Stores the lines (`domain.audit_export`) of these links of a chain. When it returns, they are durable.

        Saving the same links again replaces them. Raises OSError if the lines can't be saved.
        """
