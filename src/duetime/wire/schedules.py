"""The preview of a schedule."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duetime.domain.job import Dst
from duetime.wire.words import Instant


class PreviewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schedule: Annotated[str, Meta(min_length=1, max_length=512)]
    timezone: Annotated[str, Meta(min_length=1, max_length=64)] = "UTC"
    dst: Dst = Dst()
    after: str | None = None
    count: Annotated[int, Meta(ge=1, le=100)] = 10


class Preview(msgspec.Struct, frozen=True):
    description: str
    next: list[Instant]
    warnings: list[str] = []
