"""The audit: who changed what."""

from __future__ import annotations

from typing import Any

import msgspec

from duetime.wire.words import Instant


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    """One change. For a secret, it shows at most that it changed."""

    at: Instant
    actor: str
    via: str = ""
    request_id: str = ""
    action: str
    resource: str = ""
    before: Any = None
    after: Any = None


class AuditList(msgspec.Struct, frozen=True):
    entries: list[AuditView]
    limit: int = 0
    has_more: bool = False
    next_cursor: str | None = None
