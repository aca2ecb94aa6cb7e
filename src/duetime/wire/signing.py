"""The key that a tenant's receivers verify requests with."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duetime.domain.signing import DEFAULT_OVERLAP_SECONDS, LONGEST_OVERLAP_SECONDS
from duetime.wire.words import Instant


class RotateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`overlap_seconds`: how long requests are also signed with the version of before. 0: no longer, as it leaked."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=LONGEST_OVERLAP_SECONDS)] = DEFAULT_OVERLAP_SECONDS


class OtherSigningKey(msgspec.Struct, frozen=True):
    """`until`: when requests are no longer signed with it; null: when the operator removes the secret it comes from."""

    version: int
    secret: str
    until: Instant | None = None

    def __repr__(self) -> str:
        return f"OtherSigningKey(version={self.version!r}, until={self.until!r})"


class SigningKeyView(msgspec.Struct, frozen=True):
    """`secret` is what a receiver verifies with. `others` sign the same requests while keys rotate."""

    version: int
    secret: str
    rotated_at: Instant | None = None
    rotated_by: str | None = None
    others: tuple[OtherSigningKey, ...] = ()

    def __repr__(self) -> str:
        return f"SigningKeyView(version={self.version!r}, rotated_at={self.rotated_at!r})"
