"""The key with which a tenant's receivers verify requests."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duetime.domain.signing import DEFAULT_OVERLAP_SECONDS, LONGEST_OVERLAP_SECONDS
from duetime.wire.words import Instant


class RotateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`overlap_seconds`: how long requests are also signed with the previous version; 0 if it leaked."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=LONGEST_OVERLAP_SECONDS)] = DEFAULT_OVERLAP_SECONDS


class OtherSigningKey(msgspec.Struct, frozen=True):
    """`until`: when it stops signing requests; null: when the operator removes the secret that it is derived from."""

    version: int
    secret: str
    until: Instant | None = None

    def __repr__(self) -> str:
        return f"OtherSigningKey(version={self.version!r}, until={self.until!r})"


class SigningKeyView(msgspec.Struct, frozen=True):
    """`secret`: the key of receivers. `others` also sign the requests during a rotation."""

    version: int
    secret: str
    rotated_at: Instant | None = None
    rotated_by: str | None = None
    others: tuple[OtherSigningKey, ...] = ()

    def __repr__(self) -> str:
        return f"SigningKeyView(version={self.version!r}, rotated_at={self.rotated_at!r})"
