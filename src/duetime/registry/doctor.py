"""Reads the registry's tables for `duetime doctor` and `duetime migrate`. It neither joins nor creates the tables."""

from __future__ import annotations

import asyncpg

from duetime.domain.lease import View
from duetime.registry.postgres import PostgresRegistry


async def read_view(url: str, seconds: float) -> View | None:
    """Returns the current view of the cluster, within `seconds`; None if the registry has no tables yet."""
    registry = PostgresRegistry(url, call_seconds=seconds)
    try:
        return await registry.view()
    except asyncpg.UndefinedTableError:
        return None
    finally:
        await registry.stop()
