"""What an admin may grant with an API key: no more than the admin has. And how many keys a tenant may have. Pure."""

from __future__ import annotations

import msgspec

from duetime.domain.errors import Conflict, Forbidden
from duetime.domain.identity import Caller, Right, Role, Tier, rights_of, tier_of
from duetime.domain.instants import format_instant

ENDED_KEPT = 500  # keys of a tenant that are revoked or expired; older ones are removed as new ones are made

_RANK = {Tier.FREE: 0, Tier.PRO: 1, Tier.ENTERPRISE: 2}


class KeyLimits(msgspec.Struct, frozen=True):
    """How many API keys that are neither revoked nor expired a tenant may have, and for how many users."""

    keys: int
    users: int


def check_grant(caller: Caller, role: Role, tier: Tier, scopes: tuple[Right, ...], expires_at: int | None) -> None:
    """Raises Forbidden if a key with this role, tier, scopes and end could do more than its creator.

    A key that expires can't create a key that expires later: otherwise its rights would never end. The end of a token
    (JWT) does not count: its issuer renews it for the same person, and it creates the first key of every tenant.
    """
    wanted = tier_of(role, tier)
    if _RANK[wanted] > _RANK[caller.tier]:
        what = f"the role '{role}' has the tier '{wanted}'" if wanted is not tier else f"the tier '{tier}'"
        raise Forbidden(
            f"{what} is above yours, which is '{caller.tier}': a key can't have more than who makes it; "
            "the tier is given by the operator, in your token"
        )
    more = rights_of(role, scopes or None) - caller.rights
    if more:
        raise Forbidden(
            f"the key would have {_names(more)}, and you have not: a key can't have more than who makes it; "
            "name fewer scopes, or another role"
        )
    if caller.expires_at is not None and (expires_at is None or expires_at > caller.expires_at):
        raise Forbidden(
            f"the key would outlive yours, which ends at {format_instant(caller.expires_at)}; let it end before, or "
            "make it with a credential that lasts longer"
        )


def check_key_limits(keys: int, users: int, is_known_user: bool, limits: KeyLimits) -> None:
    """Raises Conflict if a tenant that has so many keys, for so many users, can't have one more."""
    if keys >= limits.keys:
        raise Conflict(
            f"there are {keys} API keys, which is the most a tenant may have; revoke one first, or ask the operator "
            "(TENANT_KEYS_LIMIT)"
        )
    if users >= limits.users and not is_known_user:
        raise Conflict(
            f"there are API keys for {users} users, which is the most a tenant may have; use one of these users, "
            "revoke the keys of another, or ask the operator (TENANT_USERS_LIMIT)"
        )


def _names(rights: frozenset[Right]) -> str:
    return ("the right " if len(rights) == 1 else "the rights ") + ", ".join(f"'{right}'" for right in sorted(rights))
