"""Errors as RFC 9457 problem+json."""

from __future__ import annotations

import msgspec


class ProblemField(msgspec.Struct, frozen=True):
    pointer: str = ""
    message: str = ""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """RFC 9457. `error` is a stable code, `message` a sentence that includes what to do.

    The `type` of a 507 is `memory` or `job_count`; `current`, `limit` and `requested` are its numbers.
    """

    type: str
    title: str
    status: int
    error: str
    message: str
    instance: str = ""
    errors: list[ProblemField] = []
    retry_after: int | None = None
    current: int | None = None
    limit: int | None = None
    requested: int | None = None
