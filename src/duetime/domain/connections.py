"""The number of databases that a tenant may register for its SQL jobs. Pure."""

from __future__ import annotations

from duetime.domain.errors import Conflict


def check_connections(count: int, is_known: bool, limit: int) -> None:
    """Raises Conflict if a tenant with `count` connections can't add one. An existing one (`is_known`) can change."""
    if count >= limit and not is_known:
        raise Conflict(
            f"there are {count} connections, which is the most a tenant may have; remove one first, or ask the "
            "operator (TENANT_CONNECTIONS_LIMIT)"
        )
