"""What the PostgreSQL driver raises: one list for the store, the registry and the bus."""

from __future__ import annotations

import asyncpg

TROUBLE = (
    OSError,  # and TimeoutError
    asyncpg.PostgresError,
    asyncpg.InterfaceError,  # the connection is closed
    asyncpg.InternalClientError,  # it was cut in the middle of a message, or the server has said goodbye on it
)
