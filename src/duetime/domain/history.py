"""Which tenants lose executions and logs when there are more than may be kept: those that hold the most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from duetime.domain.shares import fair_level

NO_TENANT = ""  # the tenant of logs whose execution was removed


class Held(msgspec.Struct, frozen=True, array_like=True):
    """What a tenant has in the ledger."""

    tenant: str
    executions: int
    ended: int  # those of them that may be removed


def to_trim(held: Sequence[Held], most: int, page: int) -> list[tuple[str, int]]:
    """Returns (tenant, how many of its executions to remove), up to `page` in all.

    Tenants are cut down to one level, the largest first. A tenant at or below its equal share loses nothing, even if
    the others can't be cut because their executions are still open.
    """
    too_many = sum(one.executions for one in held) - most
    level = fair_level([one.executions for one in held], most)
    left = min(page, too_many)
    trims: list[tuple[str, int]] = []
    for one in sorted(held, key=lambda one: (-one.executions, one.tenant)):
        number = min(left, one.ended, one.executions - level)
        if number > 0:
            trims.append((one.tenant, number))
            left -= number
    return trims


def excess(held: Mapping[str, int], most_bytes: int) -> dict[str, int]:
    """Returns how many bytes each tenant has to lose. Logs of NO_TENANT are removed first."""
    ownerless = held.get(NO_TENANT, 0)
    others = {tenant: size for tenant, size in held.items() if tenant != NO_TENANT}
    left = max(0, most_bytes - sum(others.values()))  # for the logs of NO_TENANT
    level = fair_level(others.values(), most_bytes)
    return {NO_TENANT: max(0, ownerless - left), **{tenant: max(0, size - level) for tenant, size in others.items()}}
