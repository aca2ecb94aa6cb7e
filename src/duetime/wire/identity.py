"""API keys."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duetime.domain.identity import Right, Role, Tier
from duetime.domain.payloads import Label
from duetime.wire.words import Instant, RightWord, RoleWord, TierWord

MOST_DAYS = 3650  # until a key expires


class KeyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`user_id`: the key's user; you if left out. `tier`: yours if left out. No `scopes`: all rights of the role.

    Role, tier, scopes and expiry may not exceed those of the key's creator. Without `expires_in_days`, the key expires
    with the key that creates it.
    """

    name: Label
    user_id: Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[!-~]+$")] | None = None
    role: Role = Role.USER
    tier: Tier | None = None
    scopes: Annotated[tuple[Right, ...], Meta(max_length=len(Right))] = ()
    expires_in_days: Annotated[float, Meta(gt=0, le=MOST_DAYS)] | None = None


class MadeKey(msgspec.Struct, frozen=True, kw_only=True):
    """`key` is shown only once: the server stores a hash of it."""

    key_id: str
    key: str
    name: str
    user_id: str
    role: RoleWord
    tier: TierWord
    scopes: list[RightWord] = []
    created_at: Instant
    expires_at: Instant | None = None

    def __repr__(self) -> str:
        return f"MadeKey(key_id={self.key_id!r}, name={self.name!r}, user_id={self.user_id!r})"


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    key_id: str
    name: str
    user_id: str
    role: RoleWord
    tier: TierWord
    scopes: list[str] = []  # values of Right
    created_at: Instant
    created_by: str = ""
    expires_at: Instant | None = None
    last_used_at: Instant | None = None
    revoked_at: Instant | None = None


class KeyList(msgspec.Struct, frozen=True):
    keys: list[KeyView]


class KeyMessage(msgspec.Struct, frozen=True):
    key_id: str
    message: str = ""
