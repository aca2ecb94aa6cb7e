"""How many databases a tenant may register for its SQL jobs. Pure."""

from __future__ import annotations

from duetime.domain.errors import Conflict


def check_connections(count: int, is_known: bool, limit: int) -> None:
    """Raises Conflict if a tenant that has so many connections can't have another. One that is there can be changed."""
    if count >= limit and not is_known:
        raise Conflict(
            f"there are {count} connections, which is the most a tenant may have; remove one first, or ask the "
            "operator (TENANT_CONNECTIONS_LIMIT)"
        )
