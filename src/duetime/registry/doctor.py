"""What `duetime doctor` and `duetime migrate` ask of the registry's tables, without joining and without making them."""

from __future__ import annotations

import asyncpg

from duetime.domain.lease import View
from duetime.registry.postgres import PostgresRegistry


async def read_view(url: str, seconds: float) -> View | None:
    """The cluster as of now; None if the registry has no tables yet. Bounded in time."""
    registry = PostgresRegistry(url, call_seconds=seconds)
    try:
        return await registry.view()
    except asyncpg.UndefinedTableError:
        return None
    finally:
        await registry.stop()
