"""Commands on the log of events: append a page, prune."""

from __future__ import annotations

from typing import Any

from duetime.domain import commands as c
from duetime.store.postgres.statements import Statements


def values_of(command: c.AddEvents) -> dict[str, Any]:
    """Returns the values of the block `add_events`."""
    return {
        "writer": command.writer, "sequence": command.sequence, "now": command.now,
        "tenants": [row.tenant for row in command.rows], "sizes": [row.size for row in command.rows],
        "texts": [row.events for row in command.rows],
    }  # fmt: skip


class EventCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def add_events(self, command: c.AddEvents) -> int | None:
        """Applies a page that comes with other commands. One that comes alone is written by the store itself."""
        number = await self._db.value("add_events", **values_of(command))
        return None if number is None else int(number)

    async def prune_events(self, command: c.PruneEvents) -> int:
        return await self._db.remove(
            "prune_events", before=command.before, most_bytes=command.most_bytes, limit=command.limit
        )
